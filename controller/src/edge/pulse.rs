//! The beat of all feeds: one timer that goes round, instead of one for each.
//!
//! A feed says something every `edge.heartbeat`. Thousands of timers would wake the process for one feed at a time; so feeds stand in groups, and
//! one group after another is woken: few wakings, each for many, and never all at once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::interval;

/// Groups of feeds: so many times in a heartbeat the process is woken.
const GROUPS: u8 = 20;

/// The groups.
pub(super) struct Pulse {
    groups: Vec<watch::Sender<()>>,
    joined: AtomicUsize,
}

impl Default for Pulse {
    fn default() -> Self {
        Self {
            groups: (0..GROUPS).map(|_| watch::Sender::new(())).collect(),
            joined: AtomicUsize::new(0),
        }
    }
}

impl Pulse {
    /// A place in the group that is next; it changes with every beat.
    #[must_use]
    pub(super) fn join(&self) -> watch::Receiver<()> {
        let joined = self.joined.fetch_add(1, Ordering::Relaxed);
        self.groups[joined % self.groups.len()].subscribe()
    }

    /// Goes round for ever, each group once in `every`. A beat that comes late is made good at once: machines count the time from one to the next.
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
        let pulse = Pulse::default();
        let feeds: Vec<_> = (0..100).map(|_| pulse.join()).collect();
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
            () = pulse.run(Duration::from_millis(20)) => Vec::new(),
        };
        assert_eq!(heard.len(), 100);
    }
}
