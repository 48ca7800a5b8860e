//! Response bodies: complete if the guest ended when it set the head, streaming otherwise.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use wasmtime_wasi_http::p2::body::HyperOutgoingBody;

use super::driver::Driver;
use crate::error::CallError;

/// The body of a response. Polling it drives the guest; an error means that the response is truncated and the connection must be
/// closed, not ended regularly.
pub struct ResponseBody(Kind);

enum Kind {
    /// The guest has ended and everything is in memory.
    Whole {
        data: Option<Bytes>,
        trailers: Option<http::HeaderMap>,
    },
    Streaming(Box<Streaming>),
    Over,
}

struct Streaming {
    driver: Driver,
    body: HyperOutgoingBody,
    /// Frames taken out of `body` before the caller asked for them.
    ahead: VecDeque<Frame<Bytes>>,
    ended: bool,
    left: u64,
}

/// Takes over a call whose head is set. If the guest has ended and its body can be read to the end, the result is complete.
pub(super) fn start(
    driver: Driver,
    body: HyperOutgoingBody,
    headers: &http::HeaderMap,
    cx: &mut Context<'_>,
) -> Result<ResponseBody, CallError> {
    let limit = driver.shared.limits.response.as_bytes();
    let mut streaming = Streaming {
        driver,
        body,
        ahead: VecDeque::new(),
        ended: false,
        left: limit,
    };
    let declared = headers
        .get(http::header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|declared| declared > limit) {
        return Err(streaming.exceed());
    }
    if streaming.driver.is_done() {
        streaming.collect(cx)?;
    }
    Ok(ResponseBody(if streaming.ended {
        streaming.into_whole()
    } else {
        Kind::Streaming(Box::new(streaming))
    }))
}

impl Streaming {
    fn exceed(&mut self) -> CallError {
        self.driver.cancel(CallError::ResponseTooLarge {
            limit: self.driver.shared.limits.response,
        });
        self.failure()
    }

    fn count(&mut self, frame: &Frame<Bytes>) -> Result<(), CallError> {
        if let Some(data) = frame.data_ref() {
            let size = u64::try_from(data.len()).unwrap_or(u64::MAX);
            let Some(left) = self.left.checked_sub(size) else {
                return Err(self.exceed());
            };
            self.left = left;
            self.driver
                .shared
                .update_stats(|stats| stats.response_bytes += size);
        }
        Ok(())
    }

    /// The next frame that the guest has written, without driving the guest.
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, CallError>>> {
        Poll::Ready(match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            Some(Ok(frame)) => Some(self.count(&frame).map(|()| frame)),
            Some(Err(error)) => {
                self.driver.cancel(CallError::NoResponse {
                    reason: format!("it gave up its response body: {error}"),
                });
                Some(Err(self.failure()))
            }
            None => None,
        })
    }

    /// Reads everything that is left in the body of a guest that has ended.
    fn collect(&mut self, cx: &mut Context<'_>) -> Result<(), CallError> {
        loop {
            match self.poll_body(cx) {
                Poll::Ready(Some(frame)) => self.ahead.push_back(frame?),
                Poll::Ready(None) => {
                    self.ended = true;
                    return Ok(());
                }
                // A background thread is still dropping the instance.
                Poll::Pending => return Ok(()),
            }
        }
    }

    fn into_whole(self) -> Kind {
        let mut pieces = Vec::new();
        let mut trailers = None;
        for frame in self.ahead {
            match frame.into_data() {
                Ok(data) => pieces.push(data),
                Err(frame) => trailers = frame.into_trailers().ok(),
            }
        }
        let data = if pieces.len() > 1 {
            let mut all = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
            for piece in &pieces {
                all.extend_from_slice(piece);
            }
            Some(all.freeze())
        } else {
            pieces.pop()
        };
        Kind::Whole {
            data: data.filter(|data| !data.is_empty()),
            trailers,
        }
    }

    fn failure(&self) -> CallError {
        self.driver
            .shared
            .outcome()
            .and_then(Result::err)
            .unwrap_or(CallError::Cancelled)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, CallError>>> {
        if let Some(frame) = self.ahead.pop_front() {
            return Poll::Ready(Some(Ok(frame)));
        }
        if std::time::Instant::now() >= self.driver.shared.deadline() {
            // The timer would not stop a guest whose output never runs dry, or a client that reads slowly.
            self.driver.cancel(CallError::Timeout {
                limit: self.driver.shared.limits.timeout,
            });
            return Poll::Ready(Some(Err(self.failure())));
        }
        loop {
            match self.poll_body(cx) {
                Poll::Ready(Some(frame)) => return Poll::Ready(Some(frame)),
                Poll::Ready(None) => return Poll::Ready(self.end(cx)),
                // The instance is about to be dropped, and the body with it.
                Poll::Pending if self.driver.is_done() => {
                    return self
                        .driver
                        .poll_timer(cx)
                        .map(|()| Some(Err(self.failure())));
                }
                Poll::Pending => {}
            }
            if self.driver.poll(cx).is_pending() {
                // What the guest has written in this poll is returned at once.
                match self.poll_body(cx) {
                    Poll::Ready(Some(frame)) => return Poll::Ready(Some(frame)),
                    Poll::Ready(None) => return Poll::Ready(self.end(cx)),
                    Poll::Pending => return Poll::Pending,
                }
            }
        }
    }

    /// The body has ended: because the guest ended it, or because the guest is gone.
    fn end(&mut self, cx: &mut Context<'_>) -> Option<Result<Frame<Bytes>, CallError>> {
        // A guest that is gone has recorded why before its body ended; without that, the guest itself ended the body, and the answer is complete.
        let is_complete = self.driver.shared.outcome().is_none();
        // Most guests return right after the end of their body; the others continue without a caller.
        if self.driver.poll(cx).is_pending() {
            self.driver.detach();
            return None;
        }
        match self.driver.shared.outcome() {
            // There was no place for what the guest still wanted to do.
            Some(Err(CallError::Overloaded { .. })) if is_complete => None,
            Some(Err(error)) => Some(Err(error)),
            Some(Ok(())) | None => None,
        }
    }
}

impl ResponseBody {
    /// Ends a guest whose time is over, for a caller that did not poll the body until then because its client does not read.
    pub fn expire(&mut self) {
        if let Kind::Streaming(streaming) = &mut self.0 {
            let limit = streaming.driver.shared.limits.timeout;
            streaming.driver.cancel(CallError::Timeout { limit });
        }
    }

    /// The complete body if it is in memory, so that a gateway can send it with its length; `None` while it is streamed or
    /// has trailers.
    #[must_use]
    pub fn as_full(&self) -> Option<&Bytes> {
        static NOTHING: Bytes = Bytes::new();
        match &self.0 {
            Kind::Whole {
                data,
                trailers: None,
            } => Some(data.as_ref().unwrap_or(&NOTHING)),
            Kind::Over => Some(&NOTHING),
            Kind::Whole { .. } | Kind::Streaming(_) => None,
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = CallError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, CallError>>> {
        match &mut self.0 {
            Kind::Whole { data, trailers } => {
                let frame = data
                    .take()
                    .map(Frame::data)
                    .or_else(|| trailers.take().map(Frame::trailers));
                Poll::Ready(frame.map(Ok))
            }
            Kind::Streaming(streaming) => {
                let frame = ready!(streaming.poll(cx));
                if !matches!(frame, Some(Ok(_))) {
                    self.0 = Kind::Over;
                }
                Poll::Ready(frame)
            }
            Kind::Over => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Whole { data, trailers } => data.is_none() && trailers.is_none(),
            Kind::Streaming(_) => false,
            Kind::Over => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole { data, .. } => SizeHint::with_exact(
                data.as_ref()
                    .map_or(0, |data| u64::try_from(data.len()).unwrap_or(u64::MAX)),
            ),
            Kind::Streaming(_) => SizeHint::default(),
            Kind::Over => SizeHint::with_exact(0),
        }
    }
}
