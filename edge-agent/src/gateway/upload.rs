//! Uploads request bodies from actix to a guest, while its answer may already be on its way.
//!
//! A request body that is small, or has already arrived, is handed over as a whole. Any other is pumped piece by piece on the connection's own
//! thread, because actix bodies are not `Send`: first while the answer's head is awaited, then while the answer's body is sent.
//!
//! actix drops the call of an HTTP/1 client that leaves, but not that of an HTTP/2 client which resets its stream or closes its connection. Only the
//! request body tells: after its end it yields an error instead of nothing more. So a pump goes on to look at it.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_http::error::PayloadError;
use actix_http::{BoxedPayloadStream, Payload};
use bytes::{Bytes, BytesMut};
use fdn_core::{ByteSize, ErrorCode};
use fdn_instances::BoxError;
use fdn_runtime::{CallError, RequestBody, RequestBodySender};
use futures::{Stream, StreamExt};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_stream::wrappers::ReceiverStream;
use tracing::debug;

use super::problem::ProblemResponse;

/// The capacity of the queue between client and guest, in pieces.
const PIECES: usize = 4;

/// How often an HTTP/2 stream is looked at: h2 wakes nobody for it once the body has ended.
const LOOK: Duration = Duration::from_millis(250);

/// Moves the rest of a request body into the guest; fails if it exceeds the app's limit, or if an HTTP/2 client leaves.
pub(super) type Pump = Pin<Box<dyn Future<Output = Result<(), CallError>>>>;

/// Hands a request body over. `length` is what the client announced; an announced body of up to `inline` bytes is read completely first, and more
/// than `limit` bytes are refused.
///
/// # Errors
/// When the body is too large, or the client aborts it.
pub(super) async fn upload(
    mut payload: Payload,
    length: Option<u64>,
    inline: u64,
    limit: u64,
) -> Result<(RequestBody, Option<Pump>), ProblemResponse> {
    let (first, ended) = begin(&mut payload, length, inline, limit).await?;
    if ended {
        return Ok((RequestBody::full(first), watched(payload)));
    }
    let (sender, body) = RequestBody::channel(PIECES);
    Ok((body, Some(Box::pin(pump(payload, first, sender, limit)))))
}

/// Reads a whole request body of at most `limit` bytes.
///
/// # Errors
/// When the body is larger, or the client aborts it.
pub(crate) async fn all(
    mut payload: Payload,
    length: Option<u64>,
    limit: u64,
) -> Result<Bytes, ProblemResponse> {
    if matches!(payload, Payload::None) || length == Some(0) {
        return Ok(Bytes::new());
    }
    if length.is_some_and(|length| length > limit) {
        return Err(ProblemResponse::of_call(ErrorCode::BodyTooLarge));
    }
    let (whole, _) = read_ahead(&mut payload, true, limit, limit).await?;
    Ok(whole)
}

/// The result of reading a request body up to a limit.
pub(super) enum UpTo {
    /// The whole body.
    Whole(Bytes),
    /// The body is larger; this payload yields all of it again.
    Larger(Payload),
}

/// Reads a whole request body if it has at most `limit` bytes.
///
/// # Errors
/// When the client aborts it.
pub(super) async fn up_to(mut payload: Payload, limit: u64) -> Result<UpTo, ProblemResponse> {
    let mut read = BytesMut::new();
    while let Some(piece) = payload.next().await {
        read.extend_from_slice(&piece.map_err(|error| broken(&error))?);
        if read.len() as u64 > limit {
            let read = futures::stream::iter([Ok(read.freeze())]);
            let whole: BoxedPayloadStream = Box::pin(read.chain(payload));
            return Ok(UpTo::Larger(Payload::from(whole)));
        }
    }
    Ok(UpTo::Whole(read.freeze()))
}

/// A request body for an instance.
pub(super) enum Outgoing {
    /// The whole body, so that it can be sent again.
    Whole(Bytes),
    /// A stream, which can be sent only once.
    Stream(Option<fdn_instances::Body>),
}

impl Outgoing {
    /// The body for one attempt; `None` if it was a stream that is already used.
    pub(super) fn take(&mut self) -> Option<fdn_instances::Body> {
        match self {
            Self::Whole(bytes) => Some(fdn_instances::full_body(bytes.clone())),
            Self::Stream(body) => body.take(),
        }
    }
}

/// Like [`upload`], for an instance: an announced body of up to `kept` bytes is read completely first.
///
/// # Errors
/// When the body is too large, or the client aborts it.
pub(super) async fn upload_to_instance(
    mut payload: Payload,
    length: Option<u64>,
    kept: u64,
    limit: u64,
) -> Result<(Outgoing, Option<Pump>), ProblemResponse> {
    let (first, ended) = begin(&mut payload, length, kept, limit).await?;
    if ended {
        return Ok((Outgoing::Whole(first), watched(payload)));
    }
    let (sender, receiver) = mpsc::channel::<Result<Bytes, BoxError>>(PIECES);
    let frames = ReceiverStream::new(receiver).map(|piece| piece.map(Frame::data));
    let body = StreamBody::new(frames).boxed_unsync();
    let pump = pump(payload, first, sender, limit);
    Ok((Outgoing::Stream(Some(body)), Some(Box::pin(pump))))
}

/// Reads the beginning of a body, or all of it if it is small or has already arrived; returns whether the body ended.
async fn begin(
    payload: &mut Payload,
    length: Option<u64>,
    whole: u64,
    limit: u64,
) -> Result<(Bytes, bool), ProblemResponse> {
    if matches!(payload, Payload::None) || length == Some(0) {
        return Ok((Bytes::new(), true));
    }
    if length.is_some_and(|length| length > limit) {
        return Err(ProblemResponse::of_call(ErrorCode::BodyTooLarge));
    }
    let wait = length.is_some_and(|length| length <= whole);
    read_ahead(payload, wait, whole, limit).await
}

/// The receiving end of a pumped body.
trait Sink {
    /// Sends one piece; `false` if the receiver is gone.
    async fn push(&mut self, piece: Bytes) -> bool;
    /// Ends the body with an error.
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
        // If the receiver is gone, nobody has to be told.
        drop(self.send(Err(reason.into())).await);
    }
}

/// What notices that an HTTP/2 client leaves after its request body; `None` for HTTP/1.
fn watched(payload: Payload) -> Option<Pump> {
    is_http2(&payload).then(|| -> Pump { Box::pin(watch(payload)) })
}

const fn is_http2(payload: &Payload) -> bool {
    matches!(payload, Payload::H2 { .. })
}

/// Ends with an error when the client of this HTTP/2 stream resets it or closes its connection, else never.
async fn watch(mut payload: Payload) -> Result<(), CallError> {
    loop {
        // A body that the guest does not want is discarded, so that it takes no part of the connection's window.
        while let Some(piece) = payload.next().await {
            piece.map_err(|error| client_left(&error))?;
        }
        sleep(LOOK).await;
    }
}

/// Why a call ends whose HTTP/2 client has left. It counts as the client's doing, like a body that breaks off.
fn client_left(error: &PayloadError) -> CallError {
    debug!(%error, "a client has left");
    CallError::BadRequest {
        reason: "the client has left".to_owned(),
    }
}

async fn pump<S: Sink>(
    mut payload: Payload,
    first: Bytes,
    sender: S,
    limit: u64,
) -> Result<(), CallError> {
    let transferred = transfer(&mut payload, first, sender, limit).await?;
    match transferred {
        // actix ends a call over HTTP/1 whose client has left.
        _ if !is_http2(&payload) => Ok(()),
        Transferred::Done => watch(payload).await,
        Transferred::Broken(error) => Err(client_left(&error)),
    }
}

/// How the transfer of a body ended.
enum Transferred {
    /// The guest has all of it, or wants no more.
    Done,
    /// The client broke it off.
    Broken(PayloadError),
}

/// Moves a body into its sink.
async fn transfer<S: Sink>(
    payload: &mut Payload,
    first: Bytes,
    mut sender: S,
    limit: u64,
) -> Result<Transferred, CallError> {
    let mut left = limit.saturating_sub(first.len() as u64);
    if !first.is_empty() && !sender.push(first).await {
        return Ok(Transferred::Done);
    }
    while let Some(piece) = payload.next().await {
        match piece {
            Ok(piece) if piece.is_empty() => {}
            Ok(piece) => {
                let Some(rest) = left.checked_sub(piece.len() as u64) else {
                    // Counted before the guest sees it, so that an answer that has begun is cut off rather than taken for complete.
                    sender.break_off("the request body is too large").await;
                    let limit = ByteSize::from_bytes(limit);
                    return Err(CallError::RequestTooLarge { limit });
                };
                left = rest;
                if !sender.push(piece).await {
                    // The guest reads no more. Over HTTP/1, actix handles what the client still sends.
                    return Ok(Transferred::Done);
                }
            }
            Err(error) => {
                sender.break_off(&error.to_string()).await;
                return Ok(Transferred::Broken(error));
            }
        }
    }
    Ok(Transferred::Done)
}

/// Continues an upload.
///
/// # Errors
/// When the request body is too large.
pub(super) fn poll_pump(pump: &mut Option<Pump>, cx: &mut Context<'_>) -> Result<(), CallError> {
    if let Some(running) = pump
        && let Poll::Ready(result) = running.as_mut().poll(cx)
    {
        *pump = None;
        return result;
    }
    Ok(())
}

/// Reads what has already arrived, or the whole body if `wait`; returns whether the body has ended.
async fn read_ahead(
    payload: &mut Payload,
    wait: bool,
    inline: u64,
    limit: u64,
) -> Result<(Bytes, bool), ProblemResponse> {
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
                    return Err(ProblemResponse::of_call(ErrorCode::BodyTooLarge));
                }
                // Nearly always there is just one piece, which is then passed on without a copy.
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

fn broken(error: &PayloadError) -> ProblemResponse {
    debug!(%error, "a request body broke off");
    ProblemResponse::new(
        ErrorCode::BadRequest,
        "the request body broke off before its end",
    )
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
}
