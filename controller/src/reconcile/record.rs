//! What a pass read and decided, put down while it is made.

use fdn_core::Timestamp;
use fdn_scheduling::compete::{Competition, Moves, Outcome, Pass};
use fdn_scheduling::record::{Decisions, Made};

/// Where a pass is written.
#[derive(Debug)]
pub struct Tape<'a> {
    now: Timestamp,
    apps: &'a [&'a str],
    outcomes: Vec<(usize, Outcome)>,
    into: &'a mut Vec<u8>,
}

impl<'a> Tape<'a> {
    /// A pass at `now` over these apps, in their order, is written as a record.
    #[must_use]
    pub const fn new(now: Timestamp, apps: &'a [&'a str], into: &'a mut Vec<u8>) -> Self {
        Self {
            now,
            apps,
            outcomes: Vec::new(),
            into,
        }
    }

    /// What was decided for an offer.
    pub(super) fn note(&mut self, at: usize, outcome: &Outcome) {
        self.outcomes.push((at, outcome.clone()));
    }

    /// The pass has ended: the names of the groups of settled offers, then of the others; the bucket of moves before and after.
    pub(super) fn write(
        &mut self,
        pass: &Pass<'_>,
        groups: &[&str],
        (before, after): (Moves, Moves),
        competition: &Competition<'_>,
    ) {
        let mut outcomes = std::mem::take(&mut self.outcomes);
        outcomes.sort_by_key(|(at, _)| *at);
        let outcomes = outcomes.into_iter().map(|(_, outcome)| outcome).collect();
        let decisions = Decisions::new(outcomes, competition, after);
        *self.into = Made {
            at: self.now,
            apps: self.apps,
            groups,
            pass,
            moves: before,
            decisions: &decisions,
        }
        .encode();
    }
}
