//! An HTTP body with a size limit and, optionally, an idle timeout.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};
use wasmtime_wasi_http::Error;

use super::Permit;

pub(crate) struct BoundedBody<B> {
    inner: B,
    left: u64,
    /// Returned once, when the limit is exceeded; the body ends then.
    too_large: Option<Error>,
    idle: Option<(Duration, Pin<Box<Sleep>>)>,
    _permit: Option<Permit>,
}

impl<B> BoundedBody<B> {
    pub(crate) fn new(inner: B, limit: u64, too_large: Error) -> Self {
        Self {
            inner,
            left: limit,
            too_large: Some(too_large),
            idle: None,
            _permit: None,
        }
    }

    /// Makes the body fail if no frame arrives for this long.
    pub(crate) fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle = Some((timeout, Box::pin(tokio::time::sleep(timeout))));
        self
    }

    /// Keeps the permit until the body is dropped.
    pub(crate) fn holding(mut self, permit: Option<Permit>) -> Self {
        self._permit = permit;
        self
    }
}

impl<B> Body for BoundedBody<B>
where
    B: Body<Data = Bytes, Error = Error> + Unpin,
{
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        if this.too_large.is_none() {
            return Poll::Ready(None);
        }
        let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(cx) else {
            if let Some((_, timer)) = &mut this.idle
                && timer.as_mut().poll(cx).is_ready()
            {
                return Poll::Ready(Some(Err(Error::ConnectionReadTimeout)));
            }
            return Poll::Pending;
        };
        if let Some((timeout, timer)) = &mut this.idle {
            timer.as_mut().reset(Instant::now() + *timeout);
        }
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            let size = u64::try_from(data.len()).unwrap_or(u64::MAX);
            let Some(left) = this.left.checked_sub(size) else {
                return Poll::Ready(this.too_large.take().map(Err));
            };
            this.left = left;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
