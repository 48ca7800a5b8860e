//! Which process was well when: by this a failure is excused or not.

use std::collections::BTreeMap;
use std::time::Duration;

use super::schedule::Part;

/// How a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It runs and has said that it is ready.
    Well,
    /// It runs, and is not ready yet; or it is about to be taken away in order.
    Between,
    /// It does not run, or stands still.
    Gone,
}

/// How all processes were. One of which nothing is known was never there.
#[derive(Clone, Debug, Default)]
pub struct Lives {
    parts: BTreeMap<Part, Vec<(Duration, State)>>,
}

impl Lives {
    /// From now on it is so. Times never go back for a part.
    pub fn becomes(&mut self, part: Part, at: Duration, state: State) {
        self.parts.entry(part).or_default().push((at, state));
    }

    /// Whether it was anything else than well at any time from `from` to `to`.
    #[must_use]
    pub fn was_disturbed(&self, part: Part, from: Duration, to: Duration) -> bool {
        let Some(changes) = self.parts.get(&part) else {
            return true;
        };
        let first = changes.partition_point(|(at, _)| *at <= from);
        let before = changes[..first].last().map(|(_, state)| *state);
        let mut later = changes[first..].iter().take_while(|(at, _)| *at <= to);
        before != Some(State::Well) || later.any(|(_, state)| *state != State::Well)
    }

    /// Whether any machine was.
    #[must_use]
    pub fn was_any_node_disturbed(&self, from: Duration, to: Duration) -> bool {
        let mut nodes = self.parts.keys().copied();
        nodes.any(|part| matches!(part, Part::Node(..)) && self.was_disturbed(part, from, to))
    }

    /// For how long it has been gone without a break at `at`; nothing if it is not.
    #[must_use]
    pub fn gone_for(&self, part: Part, at: Duration) -> Option<Duration> {
        let since = self.in_state_since(part, at, State::Gone)?;
        Some(at - since)
    }

    /// For how long it has been well at `at`; nothing if it is not.
    #[must_use]
    pub fn well_for(&self, part: Part, at: Duration) -> Option<Duration> {
        let since = self.in_state_since(part, at, State::Well)?;
        Some(at - since)
    }

    fn in_state_since(&self, part: Part, at: Duration, state: State) -> Option<Duration> {
        let changes = self.parts.get(&part)?;
        let until = changes.partition_point(|(when, _)| *when <= at);
        let run = changes[..until].iter().rev();
        run.take_while(|(_, was)| *was == state)
            .last()
            .map(|(when, _)| *when)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: Part = Part::Node(0, 1);

    fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn lives() -> Lives {
        let mut lives = Lives::default();
        lives.becomes(NODE, secs(0), State::Well);
        lives.becomes(NODE, secs(10), State::Gone);
        lives.becomes(NODE, secs(15), State::Gone);
        lives.becomes(NODE, secs(20), State::Between);
        lives.becomes(NODE, secs(22), State::Well);
        lives
    }

    #[test]
    fn a_disturbance_counts_for_what_it_overlaps() {
        let lives = lives();
        for (from, to, disturbed) in [
            (1, 9, false),
            (1, 10, true),
            (12, 14, true),
            (20, 21, true),
            (21, 30, true),
            (22, 30, false),
        ] {
            let got = lives.was_disturbed(NODE, secs(from), secs(to));
            assert_eq!(got, disturbed, "{from} to {to}");
            assert_eq!(
                lives.was_any_node_disturbed(secs(from), secs(to)),
                disturbed
            );
        }
        assert!(lives.was_disturbed(Part::Node(1, 1), secs(1), secs(2)));
    }

    #[test]
    fn the_time_since_it_is_gone_has_no_break() {
        let lives = lives();
        assert_eq!(lives.gone_for(NODE, secs(9)), None);
        assert_eq!(lives.gone_for(NODE, secs(17)), Some(secs(7)));
        assert_eq!(lives.gone_for(NODE, secs(20)), None);
        assert_eq!(lives.well_for(NODE, secs(21)), None);
        assert_eq!(lives.well_for(NODE, secs(25)), Some(secs(3)));
        assert_eq!(lives.gone_for(Part::Dns(0), secs(1)), None);
    }
}
