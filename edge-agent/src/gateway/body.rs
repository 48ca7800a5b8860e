//! Bodies of answers, streamed from a guest to actix while the request's body may still be arriving.
//!
//! A response body that fails after the head ends in an error, which makes actix close the connection or reset the stream, so that the client can
//! tell a truncated answer from a complete one.

use std::error::Error;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use actix_http::body::{BodySize, MessageBody};
use bytes::Bytes;
use fdn_core::Coded;
use fdn_runtime::{CallError, ResponseBody};
use http_body::{Body, Frame};

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
}

enum Kind {
    Full(Bytes),
    /// No body, but its length is announced: the answer to HEAD.
    Length(u64),
    Stream(Box<Streaming>),
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
}

struct Streaming {
    body: Source,
    pump: Option<Pump>,
    length: Option<u64>,
    end: Option<CallEnd>,
    /// The number of bytes of the body sent so far.
    sent: u64,
    /// The record that the answer waits for, and the piece that is sent once it is written.
    waiting: Option<(Recording, Option<Bytes>)>,
    /// The call's permit, one of those that limit how many calls of the app run.
    _permit: Option<Arc<Permit>>,
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
        }
    }

    /// Makes the answer's head wait for a record.
    pub fn wait_for(&mut self, pending: Option<PendingRecord>) {
        self.pending = pending;
    }

    /// Takes the record that the answer's head has to wait for.
    pub fn pending(&mut self) -> Option<PendingRecord> {
        self.pending.take()
    }

    /// A body that is still being written. `end` receives how it ended.
    #[must_use]
    pub fn stream(body: Source, pump: Option<Pump>, length: Option<u64>, end: CallEnd) -> Self {
        Self::of(Kind::Stream(Box::new(Streaming {
            body,
            pump,
            length,
            end: Some(end),
            sent: 0,
            waiting: None,
            _permit: None,
        })))
    }

    /// The body of another gateway's answer; that gateway records the call. `permit` is released after the last byte.
    #[must_use]
    pub fn relayed(body: InstanceBody, length: Option<u64>, permit: Option<Arc<Permit>>) -> Self {
        Self::of(Kind::Stream(Box::new(Streaming {
            body: Source::Instance(body),
            pump: None,
            length,
            end: None,
            sent: 0,
            waiting: None,
            _permit: permit,
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
    use super::*;

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
