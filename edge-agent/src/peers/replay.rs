//! Keeps a request's body while it is sent, so that the request can be recovered when the other node says that the instance has not seen it.
//!
//! At most [`UNREAD`] bytes are kept: that is how much HTTP/2's flow control lets be in transit before the other node's runtime reads any of it.
//! Beyond that, the instance has begun to read.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use fdn_cluster::peer::UNREAD;
use fdn_instances::{Body, BoxError};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;

#[derive(Debug)]
struct State {
    /// `None` once the body was taken back.
    rest: Option<Body>,
    kept: VecDeque<Frame<Bytes>>,
    bytes: usize,
    /// Whether everything that was sent is kept.
    whole: bool,
}

/// The kept part of a body.
#[derive(Debug)]
pub(super) struct ReplayBuffer(Arc<Mutex<State>>);

/// The body while it is sent.
struct BufferedBody(Arc<Mutex<State>>);

/// A body that was taken back.
struct ReplayedBody {
    kept: VecDeque<Frame<Bytes>>,
    rest: Body,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Splits a body into the one to send and a handle to take it back.
pub(super) fn buffered(body: Body) -> (Body, ReplayBuffer) {
    let state = Arc::new(Mutex::new(State {
        rest: Some(body),
        kept: VecDeque::new(),
        bytes: 0,
        whole: true,
    }));
    let sending = BufferedBody(Arc::clone(&state)).boxed_unsync();
    (sending, ReplayBuffer(state))
}

impl ReplayBuffer {
    /// The body as before sending; `None` if more was sent than is kept. The sending side then gets an error.
    pub(super) fn recover(self) -> Option<Body> {
        let mut state = lock(&self.0);
        let rest = state.rest.take()?;
        if !state.whole {
            return None;
        }
        let kept = std::mem::take(&mut state.kept);
        if kept.is_empty() {
            return Some(rest);
        }
        Some(ReplayedBody { kept, rest }.boxed_unsync())
    }
}

impl http_body::Body for BufferedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut state = lock(&self.0);
        let Some(rest) = &mut state.rest else {
            return Poll::Ready(Some(Err("the request was taken back".into())));
        };
        let polled = Pin::new(rest).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                // A frame that begins within the bound may be in transit, unread.
                let copy = match (frame.data_ref(), frame.trailers_ref()) {
                    (Some(data), _) => Some(Frame::data(data.clone())),
                    (None, Some(trailers)) => Some(Frame::trailers(trailers.clone())),
                    (None, None) => None,
                };
                let copy = copy.filter(|_| state.whole && state.bytes < UNREAD);
                match copy {
                    Some(copy) => {
                        state.bytes += copy.data_ref().map_or(0, Bytes::len);
                        state.kept.push_back(copy);
                    }
                    None => {
                        state.whole = false;
                        state.kept.clear();
                    }
                }
            }
            // The failed body cannot be sent again either.
            Poll::Ready(Some(Err(_))) => state.whole = false,
            Poll::Ready(None) | Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        let state = lock(&self.0);
        state.rest.as_ref().is_some_and(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let state = lock(&self.0);
        state
            .rest
            .as_ref()
            .map_or_else(SizeHint::default, Body::size_hint)
    }
}

impl http_body::Body for ReplayedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.kept.pop_front() {
            Some(frame) => Poll::Ready(Some(Ok(frame))),
            None => Pin::new(&mut self.rest).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.kept.is_empty() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let kept = self.kept.iter().filter_map(Frame::data_ref);
        let kept: u64 = kept.map(|data| data.len() as u64).sum();
        let rest = self.rest.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(kept));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(kept));
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use fdn_instances::full_body;
    use futures::FutureExt;
    use http_body::Body as _;
    use http_body_util::StreamBody;

    use super::*;

    fn pieces(count: usize, size: usize) -> Body {
        let frames = (0..count).map(move |piece| {
            let byte = u8::try_from(piece % 251).expect("small");
            Ok(Frame::data(Bytes::from(vec![byte; size])))
        });
        StreamBody::new(futures::stream::iter(frames)).boxed_unsync()
    }

    async fn send(body: &mut Body, frames: usize) {
        for _ in 0..frames {
            body.frame().await.expect("a frame").expect("good");
        }
    }

    #[tokio::test]
    async fn what_was_sent_within_the_bound_comes_back_as_it_was() {
        let (mut sending, kept) = buffered(full_body("hello"));
        assert_eq!(sending.size_hint().exact(), Some(5));
        send(&mut sending, 1).await;
        let back = kept.recover().expect("whole");
        assert_eq!(back.size_hint().exact(), Some(5));
        assert_eq!(back.collect().await.expect("good").to_bytes(), "hello");
        assert!(sending.frame().await.expect("told").is_err());

        let size = UNREAD / 4;
        let (mut sending, kept) = buffered(pieces(8, size));
        send(&mut sending, 4).await;
        let back = kept.recover().expect("all four were within the bound");
        let all = pieces(8, size).collect().await.expect("good").to_bytes();
        assert_eq!(back.collect().await.expect("good").to_bytes(), all);
    }

    #[tokio::test]
    async fn what_was_sent_beyond_the_bound_does_not_come_back() {
        let (mut sending, kept) = buffered(pieces(8, UNREAD / 4));
        send(&mut sending, 5).await;
        assert!(kept.recover().is_none());
        let broken = futures::stream::iter([Err::<Frame<Bytes>, BoxError>("cut".into())]);
        let (mut sending, kept) = buffered(StreamBody::new(broken).boxed_unsync());
        assert!(sending.frame().now_or_never().is_some());
        assert!(kept.recover().is_none(), "the client's body broke");
    }

    #[tokio::test]
    async fn a_body_that_was_not_sent_comes_back_as_it_is() {
        let (sending, kept) = buffered(full_body(Bytes::new()));
        assert!(sending.is_end_stream());
        assert!(kept.recover().expect("whole").is_end_stream());
    }
}
