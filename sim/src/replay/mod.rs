//! What was: the planning passes that a controller recorded (`planner.record`), made again.
//!
//! Every pass is made by the code that production runs, from what it had read, and what comes out is compared with what was decided, to the last bit.
//! Beside that, other rules place the same demand on the same clusters ([`Policy`]), and what was decided and what they do is appraised by the model
//! that plans are made by ([`fdn_scheduling::compete::appraise`]): what it would have cost.

mod policy;
mod segment;
mod tally;

use std::fs;
use std::path::Path;

use fdn_scheduling::compete::{GroupDemand, Pass, Rate, Verdict, appraise};
use fdn_scheduling::place::ClusterIndex;
use fdn_scheduling::record::RecordedPass;
use serde::Serialize;

use crate::Error;
use crate::progress::Progress;
pub use policy::Policy;
use policy::{Done, Key, Part, Ruled, work};
pub use segment::{Damage, Records, segments};
use tally::{Sample, Tally};

/// Differences and damages that are told one by one; all are counted.
const TOLD: usize = 20;
/// The name of what was decided, among policies.
pub const DECIDED: &str = "decided";

/// Something that was decided otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Differing {
    /// The number of the pass, the first being 1.
    pub pass: u64,
    /// When it was made, in milliseconds since 1970.
    pub at_ms: u64,
    /// What it is about.
    pub what: String,
    /// What the record says.
    pub recorded: String,
    /// What the replay came to.
    pub replayed: String,
}

/// Bytes that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Damaged {
    /// The file's name.
    pub segment: String,
    /// Where they begin.
    pub from: usize,
    /// Where they end.
    pub to: usize,
    /// What is wrong with them.
    pub why: String,
}

/// What a rule costs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// The rule; [`DECIDED`] is what was decided.
    pub policy: &'static str,
    /// What calls take in the mean; null without calls.
    pub mean_ms: Option<f64>,
    /// What one call in a hundred takes at least.
    pub p99_ms: Option<f64>,
    /// The share of calls that no cluster of theirs could serve; the times are those of the others.
    pub unserved_share: f64,
    /// How often a group was sent elsewhere; null where each call is sent anew.
    pub moves: Option<usize>,
    /// What was moved, as a share of the load of one pass.
    pub moved_share: Option<f64>,
    /// Memory that instances would need beyond what clusters have, in the mean over time.
    pub memory_missing_mib: f64,
}

/// What a folder of records tells.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Replay {
    /// Files.
    pub segments: usize,
    /// Passes.
    pub passes: u64,
    /// Decisions in them.
    pub decisions: u64,
    /// When the first was made, in milliseconds since 1970.
    pub from_ms: u64,
    /// When the last was made.
    pub to_ms: u64,
    /// Passes that the replay decided otherwise.
    pub passes_differing: u64,
    /// How they differ, the first of them.
    pub differences: Vec<Differing>,
    /// Places that could not be read.
    pub damages: u64,
    /// The first of them.
    pub damaged: Vec<Damaged>,
    /// What was decided, and the rules that were asked for.
    pub costs: Vec<Cost>,
}

/// A rule and what it has cost so far.
struct Compared {
    ruled: Option<Ruled>,
    name: &'static str,
    tally: Tally,
}

/// Makes the passes of a folder again, and plans by other rules.
///
/// # Errors
/// When the folder or a file cannot be read, or there is no whole record.
pub fn replay(
    folder: &Path,
    policies: &[Policy],
    progress: &dyn Progress,
) -> Result<Replay, Error> {
    let paths = segments(folder)?;
    let part = progress.begin("replay", paths.len() as u64);
    let mut replayed = Replay {
        segments: paths.len(),
        passes: 0,
        decisions: 0,
        from_ms: 0,
        to_ms: 0,
        passes_differing: 0,
        differences: Vec::new(),
        damages: 0,
        damaged: Vec::new(),
        costs: Vec::new(),
    };
    let decided = std::iter::once((None, DECIDED));
    let rules = policies
        .iter()
        .map(|policy| (Some(Ruled::new(*policy)), policy.name()));
    let mut compared: Vec<Compared> = decided
        .chain(rules)
        .map(|(ruled, name)| Compared {
            ruled,
            name,
            tally: Tally::default(),
        })
        .collect();
    for path in &paths {
        let content = fs::read(path).map_err(|source| Error::Read {
            path: path.clone(),
            source,
        })?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        for record in Records::new(&content) {
            match record {
                Ok(recorded) => {
                    replayed.take(&recorded)?;
                    for one in &mut compared {
                        one.take(&recorded)?;
                    }
                }
                Err(damage) => replayed.damage(&name, damage),
            }
        }
        part.advance(1);
    }
    if replayed.passes == 0 {
        let expected = "no record can be read; expected planning passes";
        return Err(Error::input(folder, "folder", expected));
    }
    replayed.costs = compared.into_iter().map(Compared::cost).collect();
    Ok(replayed)
}

impl Replay {
    fn take(&mut self, recorded: &RecordedPass) -> Result<(), Error> {
        let again = recorded.replay().map_err(inconsistent)?;
        let differences = recorded.differences(&again);
        let at_ms = recorded.at().get();
        if self.passes == 0 {
            self.from_ms = at_ms;
        }
        self.to_ms = at_ms;
        self.passes += 1;
        self.decisions += recorded.decisions().outcomes.len() as u64;
        self.passes_differing += u64::from(!differences.is_empty());
        let room = TOLD.saturating_sub(self.differences.len());
        let told = differences.into_iter().take(room);
        self.differences.extend(told.map(|difference| Differing {
            pass: self.passes,
            at_ms,
            what: difference.what,
            recorded: difference.recorded,
            replayed: difference.replayed,
        }));
        Ok(())
    }

    fn damage(&mut self, segment: &str, damage: Damage) {
        self.damages += 1;
        if self.damaged.len() < TOLD {
            self.damaged.push(Damaged {
                segment: segment.to_owned(),
                from: damage.bytes.start,
                to: damage.bytes.end,
                why: damage.why,
            });
        }
    }
}

/// A record whose parts do not fit each other was never written by a controller.
fn inconsistent(error: fdn_scheduling::Error) -> Error {
    Error::Broken(format!("a record cannot be planned: {error}"))
}

impl Compared {
    fn take(&mut self, recorded: &RecordedPass) -> Result<(), Error> {
        let (settled, free) = (recorded.settled(), recorded.demands());
        if !settled.is_empty() {
            // The controller did not know yet which nodes live, and kept all as it was: it says nothing about clusters.
            return Ok(());
        }
        let pass = recorded.pass(&settled, &free);
        let demands = keyed(recorded, &pass);
        let done = match &mut self.ruled {
            None => decided(recorded, &pass),
            Some(ruled) => ruled.pass(pass.clusters, &demands),
        };
        let parts: Vec<(GroupDemand<'_>, &[ClusterIndex])> = done
            .parts
            .iter()
            .map(|part| {
                let mut demand = demands[part.demand].1;
                demand.rate = Rate::per_second(demand.rate.get() * part.share);
                (demand, part.places.as_slice())
            })
            .collect();
        let appraisal = appraise(&pass, &parts).map_err(inconsistent)?;
        let samples = parts.iter().zip(&appraisal.latencies);
        let samples = samples.map(|((demand, _), latency)| Sample {
            rate: demand.rate.get(),
            latency: latency.map(fdn_core::Millis::get),
        });
        let there = pass.clusters.iter().map(|cluster| cluster.capacity);
        let missing = appraisal
            .needed
            .iter()
            .zip(there)
            .map(|(needed, there)| (needed.main - there.memory_mib.get() as f64).max(0.0));
        let all: f64 = demands.iter().map(|(_, demand)| work(demand)).sum();
        let moved = if all > 0.0 { done.moved / all } else { 0.0 };
        self.tally.pass(
            recorded.at(),
            samples.collect(),
            missing.sum(),
            done.moves.map(|moves| (moves, moved)),
        );
        Ok(())
    }

    fn cost(self) -> Cost {
        self.tally.cost(self.name)
    }
}

/// All demands, settled ones first, and who each is.
fn keyed<'a>(recorded: &RecordedPass, pass: &Pass<'a>) -> Vec<(Key, GroupDemand<'a>)> {
    let mut seen = std::collections::BTreeMap::<(&str, &str), usize>::new();
    let demands = pass.settled.iter().chain(pass.demands);
    recorded
        .names()
        .zip(demands)
        .map(|((app, group), demand)| {
            let count = seen.entry((app, group)).or_default();
            *count += 1;
            ((app.to_owned(), group.to_owned(), *count), *demand)
        })
        .collect()
}

/// What was decided, as a rule that did so.
fn decided(recorded: &RecordedPass, pass: &Pass<'_>) -> Done {
    let settled = pass.settled.iter().map(|demand| (demand, None));
    let outcomes = &recorded.decisions().outcomes;
    let demands = pass.demands.iter().zip(outcomes.iter().map(Some));
    let mut done = Done {
        moves: Some(0),
        ..Done::default()
    };
    for (at, (demand, outcome)) in settled.chain(demands).enumerate() {
        let before = demand.before.unwrap_or_default();
        let places = match outcome {
            Some(outcome) if outcome.verdict != Verdict::Unplaced => &outcome.clusters[..],
            _ => before,
        };
        if demand.before.is_some() && before != places {
            done.moves = done.moves.map(|moves| moves + 1);
            done.moved += work(demand);
        }
        done.parts.push(Part {
            demand: at,
            share: 1.0,
            places: places.to_vec(),
        });
    }
    done
}
