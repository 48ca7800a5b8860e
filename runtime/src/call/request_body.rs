//! Request bodies, as callers provide them and as guests read them.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use tokio::sync::mpsc;
use wasmtime_wasi_http::Error as WasiError;

use super::shared::Shared;
use crate::error::CallError;

/// The body of a request, as a caller provides it.
pub struct RequestBody(Source);

enum Source {
    Whole(Option<Bytes>),
    Boxed(UnsyncBoxBody<Bytes, WasiError>),
    Pieces {
        receiver: mpsc::Receiver<Bytes>,
        aborted: Arc<OnceLock<String>>,
    },
}

impl RequestBody {
    /// An empty body.
    #[must_use]
    pub fn empty() -> Self {
        Self(Source::Whole(None))
    }

    /// A body that is completely in memory: the fastest way for small ones.
    #[must_use]
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        Self(Source::Whole(Some(bytes.into()).filter(|b| !b.is_empty())))
    }

    /// Any other body that is `Send`.
    pub fn new<B, E>(body: B) -> Self
    where
        B: Body<Data = Bytes, Error = E> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
    {
        Self(Source::Boxed(
            body.map_err(|error| WasiError::InternalError(Some(error.into().to_string())))
                .boxed_unsync(),
        ))
    }

    /// A body sent piece by piece, for sources that are not `Send`; at most `pieces` are buffered.
    #[must_use]
    pub fn channel(pieces: usize) -> (RequestBodySender, Self) {
        let (sender, receiver) = mpsc::channel(pieces.max(1));
        let aborted = Arc::new(OnceLock::new());
        (
            RequestBodySender {
                sender,
                aborted: aborted.clone(),
            },
            Self(Source::Pieces { receiver, aborted }),
        )
    }
}

/// The sending side of [`RequestBody::channel`]. Dropping it ends the body.
pub struct RequestBodySender {
    sender: mpsc::Sender<Bytes>,
    aborted: Arc<OnceLock<String>>,
}

impl RequestBodySender {
    /// Sends one piece; waits while the guest is not reading.
    ///
    /// # Errors
    /// When the call is over or the guest no longer reads: stop sending.
    pub async fn send(&mut self, bytes: Bytes) -> Result<(), CallError> {
        self.sender
            .send(bytes)
            .await
            .map_err(|_| CallError::Cancelled)
    }

    /// Ends the body with an error, so that the guest does not take a truncated body for a complete one.
    pub fn abort(self, reason: &str) {
        // Set before the channel closes, because the reader checks it then. It is set at most once: `self` is consumed.
        let _ = self.aborted.set(reason.to_owned());
    }
}

/// A request body as the guest reads it: limited in size, and cut off once its call is over.
pub(crate) struct GuestRequestBody {
    source: Source,
    left: u64,
    shared: Arc<Shared>,
}

impl GuestRequestBody {
    pub(crate) fn new(body: RequestBody, shared: Arc<Shared>) -> Self {
        Self {
            source: body.0,
            left: shared.limits.body.as_bytes(),
            shared,
        }
    }

    fn poll_source(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, WasiError>>> {
        match &mut self.source {
            Source::Whole(bytes) => Poll::Ready(bytes.take().map(|b| Ok(Frame::data(b)))),
            Source::Boxed(body) => Pin::new(body).poll_frame(cx),
            Source::Pieces { receiver, aborted } => {
                Poll::Ready(match (ready!(receiver.poll_recv(cx)), aborted.get()) {
                    (Some(piece), _) => Some(Ok(Frame::data(piece))),
                    (None, Some(reason)) => {
                        Some(Err(WasiError::InternalError(Some(reason.clone()))))
                    }
                    (None, None) => None,
                })
            }
        }
    }
}

impl Body for GuestRequestBody {
    type Data = Bytes;
    type Error = WasiError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, WasiError>>> {
        // A reused instance may still hold the body of an earlier call.
        if self.shared.is_over() {
            self.source = Source::Whole(None);
            return Poll::Ready(Some(Err(WasiError::ConnectionTerminated)));
        }
        let frame = ready!(self.poll_source(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            let size = u64::try_from(data.len()).unwrap_or(u64::MAX);
            let Some(left) = self.left.checked_sub(size) else {
                self.shared.mark_body_exceeded();
                self.source = Source::Whole(None);
                return Poll::Ready(Some(Err(WasiError::HttpRequestBodySize(Some(
                    self.shared.limits.body.as_bytes(),
                )))));
            };
            self.left = left;
        }
        Poll::Ready(frame)
    }
}
