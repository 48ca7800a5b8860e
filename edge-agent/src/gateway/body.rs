//! Bodies between actix and a guest, in both directions at the same time.
//!
//! A request body that is small, or here already, is handed over whole. Any other is pumped piece by piece on the connection's own
//! thread, because actix bodies cannot leave it: first while the answer's head is awaited, then while the answer's body is sent.
//! A response body that fails after the head ends in an error, which makes actix cut the connection or reset the stream: the client
//! can tell a cut answer from a whole one.

use std::error::Error;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use actix_http::Payload;
use actix_http::body::{BodySize, MessageBody};
use actix_http::error::PayloadError;
use bytes::{Bytes, BytesMut};
use fdn_core::{ByteSize, Coded, ErrorCode};
use fdn_instances::BoxError;
use fdn_runtime::{CallError, RequestBody, RequestBodySender, ResponseBody};
use futures::{Stream, StreamExt};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, StreamBody};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tracing::debug;

use super::instance::InstanceBody;
use super::problem::Answer;
use super::service::CallEnd;
use crate::metrics::Outcome;
use crate::usage::Pending;

/// Pieces of a request body that wait between client and guest.
const PIECES: usize = 4;

/// Moves the rest of a request body into the guest; fails when there is more of it than the app accepts.
pub type Pump = Pin<Box<dyn Future<Output = Result<(), CallError>>>>;

/// Hands a request body over: `length` is what the client announced, up to `inline` octets are read whole first, and more than
/// `limit` is refused.
///
/// # Errors
/// When the body is too large, or the client breaks it off.
pub async fn upload(
    mut payload: Payload,
    length: Option<u64>,
    inline: u64,
    limit: u64,
) -> Result<(RequestBody, Option<Pump>), Answer> {
    let (first, ended) = begin(&mut payload, length, inline, limit).await?;
    if ended {
        return Ok((RequestBody::full(first), None));
    }
    let (sender, body) = RequestBody::channel(PIECES);
    Ok((body, Some(Box::pin(pump(payload, first, sender, limit)))))
}

/// A request body for an instance.
pub enum Outgoing {
    /// All of it is here, so that it can be sent again.
    Whole(Bytes),
    /// It is sent as it comes, once.
    Stream(Option<fdn_instances::Body>),
}

impl Outgoing {
    /// The body for one attempt; nothing if it has been sent and is not here any more.
    pub fn take(&mut self) -> Option<fdn_instances::Body> {
        match self {
            Self::Whole(bytes) => Some(fdn_instances::full_body(bytes.clone())),
            Self::Stream(body) => body.take(),
        }
    }
}

/// As [`upload`], for an instance: up to `kept` octets are read whole first.
///
/// # Errors
/// When the body is too large, or the client breaks it off.
pub async fn upload_to_instance(
    mut payload: Payload,
    length: Option<u64>,
    kept: u64,
    limit: u64,
) -> Result<(Outgoing, Option<Pump>), Answer> {
    let (first, ended) = begin(&mut payload, length, kept, limit).await?;
    if ended {
        return Ok((Outgoing::Whole(first), None));
    }
    let (sender, receiver) = mpsc::channel::<Result<Bytes, BoxError>>(PIECES);
    let frames = ReceiverStream::new(receiver).map(|piece| piece.map(Frame::data));
    let body = StreamBody::new(frames).boxed_unsync();
    let pump = pump(payload, first, sender, limit);
    Ok((Outgoing::Stream(Some(body)), Some(Box::pin(pump))))
}

/// The beginning of a body, or all of it where it is here or small; and whether that is all.
async fn begin(
    payload: &mut Payload,
    length: Option<u64>,
    whole: u64,
    limit: u64,
) -> Result<(Bytes, bool), Answer> {
    if matches!(payload, Payload::None) || length == Some(0) {
        return Ok((Bytes::new(), true));
    }
    if length.is_some_and(|length| length > limit) {
        return Err(Answer::of_call(ErrorCode::BodyTooLarge));
    }
    let wait = length.is_some_and(|length| length <= whole);
    read_ahead(payload, wait, whole, limit).await
}

/// The other end of a body that is pumped.
trait Sink {
    /// Takes one piece; `false` if nobody reads any more.
    async fn push(&mut self, piece: Bytes) -> bool;
    /// Ends the body as broken.
    async fn break_off(self, reason: &str);
}

impl Sink for RequestBodySender {
    async fn push(&mut self, piece: Bytes) -> bool {
        self.send(piece).await.is_ok()
    }

    async fn break_off(self, reason: &str) {
        self.abort(reason);
    }
}

impl Sink for mpsc::Sender<Result<Bytes, BoxError>> {
    async fn push(&mut self, piece: Bytes) -> bool {
        self.send(Ok(piece)).await.is_ok()
    }

    async fn break_off(self, reason: &str) {
        // Nobody reads any more: then nobody need be told.
        drop(self.send(Err(reason.into())).await);
    }
}

async fn pump<S: Sink>(
    mut payload: Payload,
    first: Bytes,
    mut sender: S,
    limit: u64,
) -> Result<(), CallError> {
    let mut left = limit.saturating_sub(first.len() as u64);
    if !first.is_empty() && !sender.push(first).await {
        return Ok(());
    }
    while let Some(piece) = payload.next().await {
        match piece {
            Ok(piece) if piece.is_empty() => {}
            Ok(piece) => {
                let Some(rest) = left.checked_sub(piece.len() as u64) else {
                    // Counted here, before the guest, so that an answer that has begun is cut and not taken for a whole one.
                    sender.break_off("the request body is too large").await;
                    let limit = ByteSize::from_bytes(limit);
                    return Err(CallError::RequestTooLarge { limit });
                };
                left = rest;
                if !sender.push(piece).await {
                    // The guest reads no more; actix deals with what the client still sends.
                    return Ok(());
                }
            }
            Err(error) => {
                sender.break_off(&error.to_string()).await;
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Goes on with an upload.
///
/// # Errors
/// When the request body is too large.
pub fn poll_pump(pump: &mut Option<Pump>, cx: &mut Context<'_>) -> Result<(), CallError> {
    if let Some(running) = pump
        && let Poll::Ready(result) = running.as_mut().poll(cx)
    {
        *pump = None;
        return result;
    }
    Ok(())
}

/// Reads what is here, or all of it if `wait`; says whether the body has ended.
async fn read_ahead(
    payload: &mut Payload,
    wait: bool,
    inline: u64,
    limit: u64,
) -> Result<(Bytes, bool), Answer> {
    let mut first: Option<Bytes> = None;
    let mut rest = BytesMut::new();
    let mut size = 0_u64;
    let ended = loop {
        if !wait && size >= inline {
            break false;
        }
        let next = poll_fn(|cx| match Pin::new(&mut *payload).poll_next(cx) {
            Poll::Pending if !wait => Poll::Ready(None),
            other => other.map(Some),
        });
        match next.await {
            None => break false,
            Some(None) => break true,
            Some(Some(piece)) => {
                let piece = piece.map_err(|error| broken(&error))?;
                size += piece.len() as u64;
                if size > limit {
                    return Err(Answer::of_call(ErrorCode::BodyTooLarge));
                }
                // Nearly always there is one piece, which is then handed on without a copy.
                match &first {
                    None => first = Some(piece),
                    Some(_) => rest.extend_from_slice(&piece),
                }
            }
        }
    };
    let first = first.unwrap_or_default();
    if rest.is_empty() {
        return Ok((first, ended));
    }
    let mut whole = BytesMut::with_capacity(first.len() + rest.len());
    whole.extend_from_slice(&first);
    whole.extend_from_slice(&rest);
    Ok((whole.freeze(), ended))
}

fn broken(error: &PayloadError) -> Answer {
    debug!(%error, "a request body broke off");
    Answer::new(
        ErrorCode::BadRequest,
        "the request body broke off before its end",
    )
}

/// What a gateway sends as a body.
pub struct GatewayBody {
    kind: Kind,
    /// The record that the answer's head waits for.
    pending: Option<Pending>,
}

enum Kind {
    Full(Bytes),
    /// No body, but its length is told: an answer to HEAD.
    Length(u64),
    Stream(Box<Streaming>),
    /// No body at all.
    None,
}

/// What a body that is polled says.
type Polled = Poll<Option<Result<Bytes, Box<dyn Error>>>>;
/// A response body that is still being written.
pub enum Source {
    /// By a sandbox.
    Guest(ResponseBody),
    /// By an instance.
    Instance(InstanceBody),
}

impl Source {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, CallError>>> {
        match self {
            Self::Guest(body) => Pin::new(body).poll_frame(cx),
            Self::Instance(body) => body.poll_frame(cx),
        }
    }
}

struct Streaming {
    body: Source,
    pump: Option<Pump>,
    length: Option<u64>,
    end: Option<CallEnd>,
    /// Octets of the body so far.
    sent: u64,
    /// The record that the answer waits for, and what is sent once it is safe.
    waiting: Option<(Recording, Option<Bytes>)>,
}

/// Whether a record is safe, once that is known.
type Recording = Pin<Box<dyn Future<Output = bool>>>;

impl GatewayBody {
    /// A body that is here.
    #[must_use]
    pub const fn full(bytes: Bytes) -> Self {
        Self::of(Kind::Full(bytes))
    }

    /// No body; `length` is that of the body which a GET would have had, if it is known.
    #[must_use]
    pub const fn none(length: Option<u64>) -> Self {
        Self::of(match length {
            Some(length) => Kind::Length(length),
            None => Kind::None,
        })
    }

    const fn of(kind: Kind) -> Self {
        Self {
            kind,
            pending: None,
        }
    }

    /// The answer's head is to wait for a record.
    pub fn wait_for(&mut self, pending: Option<Pending>) {
        self.pending = pending;
    }

    /// The record that the answer's head has to wait for; told once.
    pub fn pending(&mut self) -> Option<Pending> {
        self.pending.take()
    }

    /// A body that is still being written. `end` is told how it ended.
    #[must_use]
    pub fn stream(body: Source, pump: Option<Pump>, length: Option<u64>, end: CallEnd) -> Self {
        Self::of(Kind::Stream(Box::new(Streaming {
            body,
            pump,
            length,
            end: Some(end),
            sent: 0,
            waiting: None,
        })))
    }
}

impl Streaming {
    fn poll(&mut self, cx: &mut Context<'_>) -> Polled {
        if self.waiting.is_some() {
            return self.poll_record(cx);
        }
        if let Err(error) = poll_pump(&mut self.pump, cx) {
            return self.fail(error);
        }
        loop {
            let Poll::Ready(frame) = self.body.poll_frame(cx) else {
                return Poll::Pending;
            };
            match frame {
                None => {
                    let pending = self.end.take().and_then(|end| end.ended(None));
                    return self.after(pending, None, cx);
                }
                Some(Err(error)) => return self.fail(error),
                // Trailers are left out: actix has no way to send them.
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data()
                        && !data.is_empty()
                    {
                        return self.send(data, cx);
                    }
                }
            }
        }
    }
}

impl Streaming {
    /// Sends a piece. With the one that makes the answer whole, the client has all that was announced, so the call is recorded first.
    fn send(&mut self, data: Bytes, cx: &mut Context<'_>) -> Polled {
        let before = self.sent;
        self.sent += data.len() as u64;
        let makes_whole = |length: u64| before < length && self.sent >= length;
        let whole = self.length.is_some_and(makes_whole);
        let Some(end) = &mut self.end else {
            return Poll::Ready(Some(Ok(data)));
        };
        end.sending(data.len());
        let pending = if whole { end.still_runs() } else { None };
        self.after(pending, Some(data), cx)
    }

    /// Sends a piece, or the end, once a record is safe.
    fn after(
        &mut self,
        pending: Option<Pending>,
        data: Option<Bytes>,
        cx: &mut Context<'_>,
    ) -> Polled {
        match pending {
            Some(pending) if !pending.is_safe() => {
                self.waiting = Some((Box::pin(pending.safe()), data));
                self.poll_record(cx)
            }
            _ => Poll::Ready(data.map(Ok)),
        }
    }

    fn poll_record(&mut self, cx: &mut Context<'_>) -> Polled {
        let Some((recording, _)) = &mut self.waiting else {
            return Poll::Ready(None);
        };
        let Poll::Ready(safe) = recording.as_mut().poll(cx) else {
            return Poll::Pending;
        };
        let data = self.waiting.take().and_then(|(_, data)| data);
        if safe {
            return Poll::Ready(data.map(Ok));
        }
        Poll::Ready(Some(Err("the call could not be recorded".into())))
    }

    fn fail(&mut self, error: CallError) -> Polled {
        if let Some(end) = self.end.take() {
            // The answer is cut off: nobody waits for the record.
            drop(end.ended(Some(Outcome::of_code(error.code()))));
        }
        Poll::Ready(Some(Err(Box::new(error))))
    }
}

/// Lets the guest write to nobody, because the answer has no body: what it does besides is done all the same.
pub async fn drain(mut body: Source, pump: Option<Pump>, end: CallEnd) {
    let mut pump = pump;
    let outcome = poll_fn(|cx| {
        if let Err(error) = poll_pump(&mut pump, cx) {
            return Poll::Ready(Some(Outcome::of_code(error.code())));
        }
        loop {
            match body.poll_frame(cx) {
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(error))) => {
                    return Poll::Ready(Some(Outcome::of_code(error.code())));
                }
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
    });
    let outcome = outcome.await;
    // The answer has left already, after a record of its own.
    drop(end.ended(outcome));
}

impl MessageBody for GatewayBody {
    type Error = Box<dyn Error>;

    fn size(&self) -> BodySize {
        match &self.kind {
            Kind::Full(bytes) => BodySize::Sized(bytes.len() as u64),
            Kind::Length(length) => BodySize::Sized(*length),
            Kind::Stream(streaming) => streaming.length.map_or(BodySize::Stream, BodySize::Sized),
            Kind::None => BodySize::None,
        }
    }

    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        match &mut self.kind {
            Kind::Full(bytes) if bytes.is_empty() => Poll::Ready(None),
            Kind::Full(bytes) => Poll::Ready(Some(Ok(std::mem::take(bytes)))),
            Kind::Stream(streaming) => streaming.poll(cx),
            Kind::Length(_) | Kind::None => Poll::Ready(None),
        }
    }

    fn try_into_bytes(self) -> Result<Bytes, Self> {
        match self.kind {
            Kind::Full(bytes) => Ok(bytes),
            kind => Err(Self {
                kind,
                pending: self.pending,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::*;

    fn payload(pieces: &[&'static str]) -> Payload {
        let pieces: Vec<_> = pieces
            .iter()
            .map(|p| Ok(Bytes::from_static(p.as_bytes())))
            .collect();
        let stream: actix_http::BoxedPayloadStream = Box::pin(stream::iter(pieces));
        Payload::from(stream)
    }

    fn endless() -> Payload {
        let first = stream::iter([Ok(Bytes::from_static(b"first"))]);
        let stream: actix_http::BoxedPayloadStream = Box::pin(first.chain(stream::pending()));
        Payload::from(stream)
    }

    #[tokio::test]
    async fn what_is_here_is_handed_over_whole() {
        for length in [None, Some(6)] {
            let body = payload(&["abc", "", "def"]);
            let (bytes, ended) = read_ahead(&mut { body }, length.is_some(), 100, 100)
                .await
                .expect("read");
            assert_eq!((bytes.as_ref(), ended), (&b"abcdef"[..], true));
        }
        let (_, pump) = upload(payload(&["abc"]), Some(3), 100, 100)
            .await
            .expect("taken");
        assert!(pump.is_none());
    }

    #[tokio::test]
    async fn what_is_not_here_yet_is_pumped() {
        let (bytes, ended) = read_ahead(&mut endless(), false, 100, 100)
            .await
            .expect("read");
        assert_eq!((bytes.as_ref(), ended), (&b"first"[..], false));
        let (_, pump) = upload(endless(), None, 100, 100).await.expect("taken");
        assert!(pump.is_some());
        let (_, pump) = upload(payload(&["0123456789", "x"]), None, 10, 100)
            .await
            .expect("taken");
        assert!(pump.is_some(), "no more than the inline size is read ahead");
    }

    #[tokio::test]
    async fn too_much_is_refused_announced_or_not() {
        for length in [Some(11), None] {
            let refused = upload(payload(&["0123456789", "x"]), length, 100, 10).await;
            assert_eq!(refused.err().map(|a| a.code), Some(ErrorCode::BodyTooLarge));
        }
        let broken: actix_http::BoxedPayloadStream =
            Box::pin(stream::iter([Err(PayloadError::Incomplete(None))]));
        let refused = upload(Payload::from(broken), Some(5), 100, 10).await;
        assert_eq!(refused.err().map(|a| a.code), Some(ErrorCode::BadRequest));
    }

    #[test]
    fn sizes() {
        assert_eq!(
            GatewayBody::full(Bytes::from_static(b"abc")).size(),
            BodySize::Sized(3)
        );
        assert_eq!(GatewayBody::none(Some(7)).size(), BodySize::Sized(7));
        assert_eq!(GatewayBody::none(None).size(), BodySize::None);
    }
}
