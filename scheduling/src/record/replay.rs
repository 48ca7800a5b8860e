//! Replays a recorded pass.

use std::fmt;

use super::bytes::Writer;
use super::{ClusterLoad, Decisions, RecordedPass, encode};
use crate::Error;
use crate::compete::{Outcome, Verdict};
use crate::place::ClusterIndex;

/// A decision that differs between record and replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Its subject: an app's client group, a cluster, the bound on moves.
    pub what: String,
    /// The recorded decision.
    pub recorded: String,
    /// The replayed decision.
    pub replayed: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: recorded {}, replayed {}",
            self.what, self.recorded, self.replayed
        )
    }
}

impl RecordedPass {
    /// Replays the pass with the present code.
    ///
    /// # Errors
    /// When the record's parts are inconsistent.
    pub fn replay(&self) -> Result<Decisions, Error> {
        let (settled, demands) = (self.settled(), self.demands());
        let mut moves = self.moves;
        let mut outcomes: Vec<Option<Outcome>> = vec![None; demands.len()];
        let pass = self.pass(&settled, &demands);
        let competition = pass.run(&mut moves, |at, _, outcome| {
            outcomes[at] = Some(outcome.clone());
        })?;
        let outcomes = outcomes.into_iter().flatten().collect();
        Ok(Decisions::new(outcomes, &competition, moves))
    }

    /// The decisions that differ from the recorded ones by a single bit or more.
    #[must_use]
    pub fn differences(&self, replayed: &Decisions) -> Vec<Difference> {
        let ours = &self.decisions;
        let clusters = self.clusters.len();
        let mut found = Vec::new();
        let names = self.names().skip(self.settled.len());
        let pairs = ours.outcomes.iter().zip(&replayed.outcomes);
        for ((app, group), (one, other)) in names.zip(pairs) {
            let bits = |outcome: &Outcome| bytes(|to| encode::outcome(to, outcome, clusters));
            if bits(one) != bits(other) {
                found.push(Difference {
                    what: format!("app {app}, group {group}"),
                    recorded: self.outcome_text(one),
                    replayed: self.outcome_text(other),
                });
            }
        }
        for (cluster, (one, other)) in self
            .clusters
            .iter()
            .zip(ours.loads.iter().zip(&replayed.loads))
        {
            let bits = |load: &ClusterLoad| bytes(|to| encode::cluster_load(to, load));
            if bits(one) != bits(other) {
                found.push(Difference {
                    what: format!("cluster {}", cluster.id),
                    recorded: load_text(one),
                    replayed: load_text(other),
                });
            }
        }
        let tokens = |decisions: &Decisions| decisions.moves.numbers().map(f64::to_bits);
        if tokens(ours) != tokens(replayed) {
            let left = |decisions: &Decisions| format!("{:?} left", decisions.moves.numbers()[2]);
            found.push(Difference {
                what: "the bound on moves".to_owned(),
                recorded: left(ours),
                replayed: left(replayed),
            });
        }
        let counts = |decisions: &Decisions| (decisions.outcomes.len(), decisions.loads.len());
        if counts(ours) != counts(replayed) {
            let said = |decisions: &Decisions| {
                let (outcomes, loads) = counts(decisions);
                format!("{outcomes} groups and {loads} clusters")
            };
            found.push(Difference {
                what: "the number of decisions".to_owned(),
                recorded: said(ours),
                replayed: said(replayed),
            });
        }
        found
    }

    fn outcome_text(&self, outcome: &Outcome) -> String {
        let name = |place: &ClusterIndex| {
            let cluster = self.clusters.get(place.get());
            cluster.map_or("gone", |cluster| cluster.id.as_str())
        };
        let places: Vec<&str> = outcome.clusters.iter().map(name).collect();
        let verdict = match outcome.verdict {
            Verdict::First => "first placed",
            Verdict::StillBest => "still best",
            Verdict::WithinMargin => "within the margin",
            Verdict::Better => "moved for a gain",
            Verdict::Deferred => "put off",
            Verdict::Failed(_) => "moved since it had to",
            Verdict::Unplaced => "no place",
        };
        // The shortest digits that identify the number exactly.
        let latency = outcome.latency.get();
        format!("{} ({verdict}, {latency:?} ms)", places.join(" and "))
    }
}

fn bytes(write: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut to = Writer::default();
    write(&mut to);
    to.0
}

fn load_text(load: &ClusterLoad) -> String {
    format!(
        "{:?} slots, {:?} runs a second, {:?} MiB",
        load.erlangs, load.runs, load.memory.main
    )
}
