//! Records the inputs and decisions of a pass while it runs.

use fdn_core::Timestamp;
use fdn_scheduling::compete::{Competition, Moves, Outcome, Pass};
use fdn_scheduling::record::{CompletedPass, Decisions};

/// The recording of a pass.
#[derive(Debug)]
pub struct PassRecorder<'a> {
    now: Timestamp,
    apps: &'a [&'a str],
    outcomes: Vec<(usize, Outcome)>,
    into: &'a mut Vec<u8>,
}

impl<'a> PassRecorder<'a> {
    /// Records a pass at `now` over these apps, in their order, into a buffer.
    #[must_use]
    pub const fn new(now: Timestamp, apps: &'a [&'a str], into: &'a mut Vec<u8>) -> Self {
        Self {
            now,
            apps,
            outcomes: Vec::new(),
            into,
        }
    }

    /// Records the decision about a demand.
    pub(super) fn note(&mut self, at: usize, outcome: &Outcome) {
        self.outcomes.push((at, outcome.clone()));
    }

    /// Writes the record at the end of the pass; takes the names of the groups, of settled demands and then of the others, and the
    /// bucket of moves before and after.
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
        *self.into = CompletedPass {
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
