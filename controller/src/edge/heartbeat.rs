//! The heartbeat of all feeds: one timer instead of one per feed.
//!
//! A feed sends something every `edge.heartbeat`. Thousands of timers would wake the process for one feed at a time; so feeds are in groups, and one
//! group after another is woken: few wake-ups, each for many feeds, and never for all at once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::interval;

/// The number of groups, and of wake-ups per heartbeat.
const GROUPS: u8 = 20;

/// The groups of feeds.
pub(super) struct Heartbeat {
    groups: Vec<watch::Sender<()>>,
    joined: AtomicUsize,
}

impl Default for Heartbeat {
    fn default() -> Self {
        Self {
            groups: (0..GROUPS).map(|_| watch::Sender::new(())).collect(),
            joined: AtomicUsize::new(0),
        }
    }
}

impl Heartbeat {
    /// A receiver in the next group; it changes with every heartbeat.
    #[must_use]
    pub(super) fn join(&self) -> watch::Receiver<()> {
        let joined = self.joined.fetch_add(1, Ordering::Relaxed);
        self.groups[joined % self.groups.len()].subscribe()
    }

    /// Wakes the groups in turn, each once in `every`, and never returns. A late beat is made up for at once, since machines time each interval.
    pub(super) async fn run(&self, every: Duration) {
        let mut timer = interval(every / u32::from(GROUPS));
        for group in self.groups.iter().cycle() {
            timer.tick().await;
            group.send_replace(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_feed_hears_every_beat_of_its_group() {
        let heartbeat = Heartbeat::default();
        let feeds: Vec<_> = (0..100).map(|_| heartbeat.join()).collect();
        let groups = usize::from(GROUPS);
        assert!(feeds[0].same_channel(&feeds[groups]));
        assert!(feeds.windows(2).all(|next| !next[0].same_channel(&next[1])));
        let listen = futures::future::join_all(feeds.into_iter().map(async |mut feed| {
            for _ in 0..3 {
                feed.changed().await.expect("a beat");
            }
        }));
        let heard = tokio::select! {
            heard = listen => heard,
            () = heartbeat.run(Duration::from_millis(20)) => Vec::new(),
        };
        assert_eq!(heard.len(), 100);
    }
}
