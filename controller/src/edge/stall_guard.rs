//! Limits how slowly an answer may be read. A reader that asks for an artifact and stops reading keeps a file or a connection to the object store
//! open.
//!
//! HTTP/2 sends what it is handed as its reader makes room, and only then asks for more: so the time from handing over a part until the next one is
//! asked for is the reader's. Nothing but closing the connection aborts such an answer.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use fdn_service::CancellationToken;
use futures::Stream;
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

use crate::state::lock;

/// The bytes for which a reader has the time limit.
const PART: usize = 256 << 10;

/// What a reader has taken of the present part.
#[derive(Debug, Default)]
struct PartProgress {
    bytes: usize,
    /// The reader's time for them so far.
    spent: Duration,
    /// Since when the reader has been waited for; `None` while it waits for the source.
    since: Option<Instant>,
}

impl PartProgress {
    fn spent(&self, now: Instant) -> Duration {
        let present = self.since.map(|since| now.duration_since(since));
        self.spent + present.unwrap_or_default()
    }

    /// The reader asks for more.
    fn on_poll(&mut self, now: Instant) {
        self.spent = self.spent(now);
        self.since = None;
        if self.bytes >= PART {
            *self = Self::default();
        }
    }

    /// The reader was handed `bytes` bytes.
    fn on_data(&mut self, bytes: usize, now: Instant) {
        self.bytes += bytes;
        self.since = Some(now);
    }
}

/// The bytes of an answer, with its reader watched.
pub(super) struct StallGuard<S> {
    bytes: S,
    progress: Arc<Mutex<PartProgress>>,
    _watch: AbortOnDropHandle<()>,
}

/// Watches the reader of an answer: cancels `stalled` if it takes longer than `limit` for a part.
pub(super) fn guard_stalls<S>(
    bytes: S,
    limit: Duration,
    stalled: CancellationToken,
) -> StallGuard<S> {
    let progress = Arc::<Mutex<PartProgress>>::default();
    let watched = Arc::clone(&progress);
    let watch = tokio::spawn(async move {
        loop {
            let left = limit.saturating_sub(lock(&watched).spent(Instant::now()));
            if left.is_zero() {
                return stalled.cancel();
            }
            sleep(left).await;
        }
    });
    StallGuard {
        bytes,
        progress,
        _watch: AbortOnDropHandle::new(watch),
    }
}

impl<S, E> Stream for StallGuard<S>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
{
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<S::Item>> {
        lock(&self.progress).on_poll(Instant::now());
        let part = ready!(Pin::new(&mut self.bytes).poll_next(context));
        if let Some(Ok(bytes)) = &part {
            lock(&self.progress).on_data(bytes.len(), Instant::now());
        }
        Poll::Ready(part)
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use futures::{FutureExt as _, StreamExt as _};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    /// The reader's time for the present part, after it took so many bytes at each of these times.
    fn spent(bytes: usize, seconds: &[u64]) -> Duration {
        let begin = Instant::now();
        let at = |second: u64| begin + Duration::from_secs(second);
        let mut progress = PartProgress::default();
        progress.on_data(bytes, begin);
        for &second in seconds {
            progress.on_poll(at(second));
            progress.on_data(bytes, at(second));
        }
        progress.spent(at(seconds.last().copied().unwrap_or(0) + 10))
    }

    #[test]
    fn each_part_has_its_time_however_small_the_pieces_are() {
        let seconds = Duration::from_secs;
        assert_eq!(spent(PART, &[]), seconds(10));
        assert_eq!(spent(PART, &[29, 58]), seconds(10));
        assert_eq!(spent(PART / 2, &[8, 16]), seconds(10));
        assert_eq!(spent(PART / 8, &[8, 16]), seconds(26));
    }

    #[test]
    fn waiting_for_what_is_to_come_is_no_readers_fault() {
        let mut progress = PartProgress::default();
        let begin = Instant::now();
        progress.on_poll(begin);
        assert_eq!(progress.spent(begin + LIMIT), Duration::ZERO);
        progress.on_data(1, begin + LIMIT);
        progress.on_poll(begin + LIMIT * 2);
        assert_eq!(progress.spent(begin + LIMIT * 9), LIMIT);
    }

    #[tokio::test]
    async fn a_reader_that_takes_no_more_is_given_up_and_one_that_left_is_not() {
        let stalled = CancellationToken::new();
        let endless = || stream::repeat(Ok::<_, ()>(Bytes::from("x")));
        let mut left = guard_stalls(endless(), Duration::from_millis(1), stalled.clone());
        assert!(left.next().now_or_never().is_some());
        drop(left);
        tokio::task::yield_now().await;
        assert!(!stalled.is_cancelled());
        let mut bytes = guard_stalls(endless(), Duration::from_millis(1), stalled.clone());
        assert!(bytes.next().await.is_some());
        stalled.cancelled().await;
    }
}
