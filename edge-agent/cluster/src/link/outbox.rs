//! The queue of messages to be sent on one stream.
//!
//! It is bounded: at the bound, scheduling messages are dropped, the newest first, and counted; the protocols above recover from losses. Messages
//! between members (such as pings) are few and have an extra reserve, because without them a busy node would look dead.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use fdn_core::NodeId;
use futures::Stream;

use super::cut::Cuts;
use super::delay::DelayLine;
use crate::metrics::Metrics;
use crate::wire::proto::{Body, Frame, Item};

/// How many messages between members fit above the bound.
const RESERVE: usize = 1024;

/// The queue of one stream.
#[derive(Debug)]
pub(crate) struct Outbox {
    inner: Mutex<Inner>,
    limit: usize,
    frame: usize,
    delay: Option<DelayLine>,
    cuts: Cuts,
    peer: OnceLock<NodeId>,
    metrics: Metrics,
}

#[derive(Debug, Default)]
struct Inner {
    queue: VecDeque<(Option<Instant>, Item)>,
    waker: Option<Waker>,
    closed: bool,
}

impl Outbox {
    pub(crate) fn new(
        limit: usize,
        frame: usize,
        delay: Option<DelayLine>,
        cuts: Cuts,
        metrics: Metrics,
    ) -> Self {
        Self {
            inner: Mutex::default(),
            limit,
            frame,
            delay,
            cuts,
            peer: OnceLock::new(),
            metrics,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the node at the other end, once it is known.
    pub(crate) fn to(&self, peer: &NodeId) {
        // A stream has only one hello.
        let _ = self.peer.set(peer.clone());
    }

    /// Queues messages, emptying the list; those for which there is no room are dropped.
    pub(crate) fn push(&self, items: &mut Vec<Item>) {
        let due = self.delay.as_ref().map(DelayLine::due);
        let mut dropped = 0;
        let mut inner = self.lock();
        for item in items.drain(..) {
            let limit = if is_between_members(&item) {
                self.limit + RESERVE
            } else {
                self.limit
            };
            if inner.closed || inner.queue.len() >= limit {
                dropped += 1;
            } else {
                inner.queue.push_back((due, item));
            }
        }
        let waker = inner.waker.take();
        drop(inner);
        if dropped > 0 {
            self.metrics.dropped.inc_by(dropped);
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Lets what is queued be sent, then ends the stream.
    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        if let Some(waker) = inner.waker.take() {
            waker.wake();
        }
    }

    fn poll_frame(&self, context: &Context<'_>) -> Poll<Option<Frame>> {
        let mut inner = self.lock();
        if self.peer.get().is_some_and(|peer| self.cuts.is_cut(peer)) {
            inner.queue.clear();
        }
        let ready = match (&self.delay, inner.queue.front()) {
            (Some(delay), Some((Some(due), _))) => {
                let now = Instant::now();
                if *due > now {
                    delay.wake_at(*due, context.waker().clone());
                    inner.waker = Some(context.waker().clone());
                    return Poll::Pending;
                }
                let is_due = |(due, _): &(Option<Instant>, Item)| due.is_none_or(|due| due <= now);
                inner.queue.iter().take_while(|entry| is_due(entry)).count()
            }
            _ => inner.queue.len(),
        };
        if ready == 0 {
            if inner.closed {
                return Poll::Ready(None);
            }
            inner.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        let count = ready.min(self.frame);
        let items = inner.queue.drain(..count).map(|(_, item)| item).collect();
        drop(inner);
        self.metrics.frames_out.inc();
        self.metrics.messages_out.inc_by(count as u64);
        Poll::Ready(Some(Frame { items }))
    }
}

const fn is_between_members(item: &Item) -> bool {
    matches!(
        item.body,
        Some(
            Body::Hello(_)
                | Body::Rejected(_)
                | Body::Ping(_)
                | Body::Ack(_)
                | Body::Members(_)
                | Body::Ballot(_)
                | Body::Leave(_)
        )
    )
}

/// The stream of queued messages, frame by frame.
#[derive(Debug)]
pub(crate) struct Drain(pub(crate) Arc<Outbox>);

impl Stream for Drain {
    type Item = Frame;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Frame>> {
        self.0.poll_frame(context)
    }
}

impl Drop for Drain {
    /// Nothing is sent any more: what is queued is lost, and so is everything pushed later.
    fn drop(&mut self) {
        let mut inner = self.0.lock();
        inner.closed = true;
        inner.queue.clear();
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, StreamExt};

    use super::*;
    use crate::wire::proto::{Attempt, Key};

    fn outbox(limit: usize, frame: usize) -> Arc<Outbox> {
        let metrics = Metrics::new(&prometheus::Registry::new()).unwrap();
        let cuts = Cuts::default();
        Arc::new(Outbox::new(limit, frame, None, cuts, metrics))
    }

    fn release(id: u64) -> Item {
        Body::Release(Attempt { id, attempt: 1 }).into()
    }

    #[test]
    fn what_waits_goes_as_one_frame_up_to_its_size() {
        let outbox = outbox(100, 4);
        let mut drain = Drain(Arc::clone(&outbox));
        assert!(drain.next().now_or_never().is_none(), "nothing waits");
        outbox.push(&mut (0..6).map(release).collect());
        let mut size = || {
            drain
                .next()
                .now_or_never()
                .map(|frame| frame.unwrap().items.len())
        };
        assert_eq!([size(), size(), size()], [Some(4), Some(2), None]);
    }

    #[test]
    fn at_the_bound_the_newest_are_dropped_but_not_what_keeps_members_together() {
        let outbox = outbox(2, 10);
        outbox.push(&mut (0..5).map(release).collect());
        let leave = Body::Leave(Key::default());
        outbox.push(&mut vec![leave.clone().into(), release(9)]);
        assert_eq!(outbox.metrics.dropped.get(), 4);
        let frame = Drain(outbox).next().now_or_never().unwrap().unwrap();
        let expected = vec![release(0), release(1), leave.into()];
        assert_eq!(frame.items, expected);
    }

    #[test]
    fn a_closed_stream_sends_what_it_has_and_ends() {
        let outbox = outbox(10, 10);
        outbox.push(&mut vec![release(1)]);
        outbox.close();
        outbox.push(&mut vec![release(2)]);
        let mut drain = Drain(Arc::clone(&outbox));
        let first = drain.next().now_or_never().unwrap();
        assert_eq!(first.unwrap().items, [release(1)]);
        assert_eq!(drain.next().now_or_never(), Some(None));
    }

    #[test]
    fn a_cut_link_swallows_what_is_sent() {
        let outbox = outbox(10, 10);
        let node: NodeId = "b".parse().unwrap();
        outbox.to(&node);
        outbox.cuts.set([node]);
        outbox.push(&mut vec![release(1)]);
        let mut drain = Drain(Arc::clone(&outbox));
        assert!(drain.next().now_or_never().is_none());
        outbox.cuts.set([]);
        outbox.push(&mut vec![release(2)]);
        let frame = drain.next().now_or_never().unwrap().unwrap();
        assert_eq!(frame.items, [release(2)]);
    }
}
