//! Bodies of answers, streamed from a guest to actix while the request's body may still be arriving.
//!
//! A response body that fails after the head ends in an error, which makes actix close the connection or reset the stream, so that the client can
//! tell a truncated answer from a complete one.
//!
//! A body is polled only while its client reads: actix does not poll it while the connection's buffer or the stream's window is full. So a timer
//! ends the call at its deadline, and the next poll returns the error.

use std::cell::RefCell;
use std::error::Error;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use actix_http::body::{BodySize, MessageBody};
use bytes::Bytes;
use fdn_core::Coded;
use fdn_runtime::{CallError, ResponseBody};
use http_body::{Body, Frame};
use tokio::time::sleep_until;
use tokio_util::task::AbortOnDropHandle;

use super::connection::RunningCall;
use super::end::CallEnd;
use super::instance::InstanceBody;
use super::upload::{Pump, poll_pump};
use crate::metrics::Outcome;
use crate::policy::guard::Permit;
use crate::usage::PendingRecord;

/// The body of a gateway's response.
pub struct GatewayBody {
    kind: Kind,
    /// The usage record that the answer's head waits for.
    pending: Option<PendingRecord>,
    /// Counts the call for its connection until the body is sent.
    running: Option<RunningCall>,
}

enum Kind {
    Full(Bytes),
    /// No body, but its length is announced: the answer to HEAD.
    Length(u64),
    /// Shared with the timer that ends it at the call's deadline.
    Stream(Rc<RefCell<Streaming>>),
    /// No body at all.
    None,
}

/// The result of polling a body.
type Polled = Poll<Option<Result<Bytes, Box<dyn Error>>>>;
/// Where a response body that is still being written comes from.
pub enum Source {
    /// A sandbox.
    Guest(ResponseBody),
    /// An instance.
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

    /// Tells a guest that its time is over, so that its log has the reason. An instance notices that its body is dropped.
    fn expire(&mut self) {
        if let Self::Guest(body) = self {
            body.expire();
        }
    }
}

struct Streaming {
    /// Where the body comes from; `None` once it has ended.
    source: Option<Source>,
    pump: Option<Pump>,
    length: Option<u64>,
    end: Option<CallEnd>,
    /// The number of bytes of the body sent so far.
    sent: u64,
    /// The record that the answer waits for, and the piece that is sent once it is written.
    waiting: Option<(Recording, Option<Bytes>)>,
    /// The call's permit, one of those that limit how many calls of the app run.
    permit: Option<Arc<Permit>>,
    /// The time from the call's arrival to its deadline.
    timeout: Duration,
    /// Whether the deadline passed before the body had ended, and nobody has been told yet.
    late: bool,
    /// Who waits for the next piece.
    waker: Option<Waker>,
    /// Ends the call at its deadline; dropped when the body ends.
    timer: Option<AbortOnDropHandle<()>>,
}

/// Resolves to whether a record was written to disk.
type Recording = Pin<Box<dyn Future<Output = bool>>>;

impl GatewayBody {
    /// A body that is complete in memory.
    #[must_use]
    pub const fn full(bytes: Bytes) -> Self {
        Self::of(Kind::Full(bytes))
    }

    /// No body; `length` is that of the body which a GET would have had, if known.
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
            running: None,
        }
    }

    /// Makes the answer's head wait for a record.
    pub fn wait_for(&mut self, pending: Option<PendingRecord>) {
        self.pending = pending;
    }

    /// Counts the call as one that runs on its connection until this body is dropped.
    pub(super) fn counted(mut self, running: Option<RunningCall>) -> Self {
        self.running = running;
        self
    }

    /// Takes the record that the answer's head has to wait for.
    pub fn pending(&mut self) -> Option<PendingRecord> {
        self.pending.take()
    }

    /// A body that is still being written, until the deadline of a call with this timeout at the latest. `end` receives how it ended.
    ///
    /// # Panics
    /// Outside of a thread of the gateway.
    #[must_use]
    pub fn stream(
        source: Source,
        pump: Option<Pump>,
        length: Option<u64>,
        end: CallEnd,
        (deadline, timeout): (Instant, Duration),
    ) -> Self {
        Self::until(
            deadline,
            Streaming {
                pump,
                length,
                end: Some(end),
                ..Streaming::new(source, timeout)
            },
        )
    }

    /// The body of another gateway's answer; that gateway records the call. `permit` is released after the last byte, or at the body's deadline.
    ///
    /// # Panics
    /// Outside of a thread of the gateway.
    #[must_use]
    pub fn relayed(body: InstanceBody, length: Option<u64>, permit: Option<Arc<Permit>>) -> Self {
        let (deadline, timeout) = body.times();
        Self::until(
            deadline,
            Streaming {
                length,
                permit,
                ..Streaming::new(Source::Instance(body), timeout)
            },
        )
    }

    /// A body that ends at `deadline` at the latest. The timer starts now and not with the first poll, because there may be none.
    fn until(deadline: Instant, streaming: Streaming) -> Self {
        let streaming = Rc::new(RefCell::new(streaming));
        let watched = Rc::downgrade(&streaming);
        let timer = tokio::task::spawn_local(async move {
            sleep_until(deadline.into()).await;
            if let Some(streaming) = watched.upgrade() {
                streaming.borrow_mut().expire();
            }
        });
        streaming.borrow_mut().timer = Some(AbortOnDropHandle::new(timer));
        Self::of(Kind::Stream(streaming))
    }
}

impl Streaming {
    const fn new(source: Source, timeout: Duration) -> Self {
        Self {
            source: Some(source),
            pump: None,
            length: None,
            end: None,
            sent: 0,
            waiting: None,
            permit: None,
            timeout,
            late: false,
            waker: None,
            timer: None,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Polled {
        let polled = self.poll_piece(cx);
        if polled.is_pending() {
            match &mut self.waker {
                Some(waker) => waker.clone_from(cx.waker()),
                None => self.waker = Some(cx.waker().clone()),
            }
        }
        polled
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Polled {
        if self.waiting.is_some() {
            return self.poll_record(cx);
        }
        if std::mem::take(&mut self.late) {
            return Poll::Ready(Some(Err(Box::new(self.too_late()))));
        }
        if let Err(error) = poll_pump(&mut self.pump, cx) {
            return self.fail(error);
        }
        loop {
            let Some(source) = &mut self.source else {
                return Poll::Ready(None);
            };
            let Poll::Ready(frame) = source.poll_frame(cx) else {
                return Poll::Pending;
            };
            match frame {
                None => {
                    let pending = self.end.take().and_then(CallEnd::complete);
                    self.release();
                    return self.after(pending, None, cx);
                }
                Some(Err(error)) => return self.fail(error),
                // Trailers are dropped: actix cannot send them.
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

    /// Ends the call because its time is over, although its client has not read all of the answer.
    fn expire(&mut self) {
        let Some(source) = &mut self.source else {
            return;
        };
        source.expire();
        let outcome = Outcome::of_code(self.too_late().code());
        if let Some(end) = self.end.take() {
            // The answer is cut off, so nothing waits for the record.
            drop(end.ended(Some(outcome)));
        }
        self.release();
        self.late = true;
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    const fn too_late(&self) -> CallError {
        CallError::Timeout {
            limit: self.timeout,
        }
    }

    /// Releases everything that the body held while it was written.
    fn release(&mut self) {
        self.source = None;
        self.pump = None;
        self.permit = None;
        self.timer = None;
    }
}

impl Streaming {
    /// Sends a piece. With the piece that completes the announced length the client has the whole answer, so the call is recorded first.
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

    /// Sends a piece, or the end of the body, once a record is written.
    fn after(
        &mut self,
        pending: Option<PendingRecord>,
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
            // The answer is cut off, so nothing waits for the record.
            drop(end.ended(Some(Outcome::of_code(error.code()))));
        }
        self.release();
        Poll::Ready(Some(Err(Box::new(error))))
    }
}

/// Reads and discards what the guest writes, because the answer has no body; the guest's other effects still take place.
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
    // The answer has already been sent, after a record of its own.
    drop(match outcome {
        None => end.complete(),
        failed => end.ended(failed),
    });
}

impl MessageBody for GatewayBody {
    type Error = Box<dyn Error>;

    fn size(&self) -> BodySize {
        match &self.kind {
            Kind::Full(bytes) => BodySize::Sized(bytes.len() as u64),
            Kind::Length(length) => BodySize::Sized(*length),
            Kind::Stream(streaming) => {
                let length = streaming.borrow().length;
                length.map_or(BodySize::Stream, BodySize::Sized)
            }
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
            Kind::Stream(streaming) => streaming.borrow_mut().poll(cx),
            Kind::Length(_) | Kind::None => Poll::Ready(None),
        }
    }

    fn try_into_bytes(self) -> Result<Bytes, Self> {
        match self.kind {
            Kind::Full(bytes) => Ok(bytes),
            kind => Err(Self {
                kind,
                pending: self.pending,
                running: self.running,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use fdn_instances::BoxError;
    use fdn_testkit::wait::PATIENCE;
    use futures::{StreamExt as _, stream};
    use http_body_util::{BodyExt as _, StreamBody};
    use tokio::sync::oneshot;
    use tokio::task::LocalSet;
    use tokio::time::timeout;

    use super::*;

    /// A body of one piece that does not end, and what resolves when it is dropped.
    fn endless(deadline: Instant) -> (GatewayBody, oneshot::Receiver<()>) {
        let (held, released) = oneshot::channel();
        let first: Result<_, BoxError> = Ok(Frame::data(Bytes::from_static(b"first")));
        let first = stream::iter([first]);
        let frames = first.chain(stream::pending()).map(move |frame| {
            let _held = &held;
            frame
        });
        let body = InstanceBody::relayed(StreamBody::new(frames).boxed_unsync(), deadline);
        (GatewayBody::relayed(body, None, None), released)
    }

    async fn next(body: &mut GatewayBody) -> Option<Result<Bytes, Box<dyn Error>>> {
        poll_fn(|cx| Pin::new(&mut *body).poll_next(cx)).await
    }

    #[tokio::test]
    async fn an_answer_that_nobody_reads_is_let_go_at_the_deadline() {
        let reading = async {
            let (mut body, released) = endless(Instant::now() + Duration::from_millis(20));
            // The client does not read, so the server does not poll the body.
            let released = timeout(PATIENCE, released).await.expect("in time");
            assert!(released.is_err(), "it is dropped");
            let cut = next(&mut body).await.expect("no regular end");
            assert!(cut.is_err(), "{cut:?}");
        };
        LocalSet::new().run_until(reading).await;
    }

    #[tokio::test]
    async fn an_answer_whose_client_waits_is_cut_at_the_deadline() {
        let reading = async {
            let (mut body, _released) = endless(Instant::now() + Duration::from_millis(20));
            let all = async { while let Some(Ok(_)) = next(&mut body).await {} };
            timeout(PATIENCE, all).await.expect("the reader is woken");
        };
        LocalSet::new().run_until(reading).await;
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
