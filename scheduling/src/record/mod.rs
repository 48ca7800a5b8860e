//! A planning pass as bytes: all its inputs and decisions, so that it can be replayed by the same code and compared to the last bit, or
//! be decided by another rule.
//!
//! **Format.** `fdn-plan`, the format version as an integer, then the parts below in sequence. Integers are LEB128 (seven bits per byte,
//! the lowest first); floating-point numbers are the eight bytes of IEEE 754, the lowest first, since JSON has neither infinity nor every
//! bit; strings and lists begin with their length. What many demands share (workflows, groups with their distances, exclusions,
//! corrections) is stored once, and demands refer to it by index. Compression, checksums and files are up to the caller.
//!
//! | part | has |
//! | --- | --- |
//! | when | the time in ms since 1970, and the state of the bucket of moves |
//! | terms | margin, horizon, options of Heu-Orche |
//! | clusters | id, speed, slots, free and total resources, availability; then the links of every pair |
//! | names | of the apps |
//! | shared | workflows, groups, exclusions, corrections |
//! | settled, demands | app, rate, previous clusters, whether it dwells, and which of the shared parts it uses |
//! | decisions | of each demand: the verdict, the clusters, the latency; of each cluster: its load and memory need; the bucket of moves |
//!
//! **Invariants.** Decoding gives exactly the pass that was encoded; bytes that are no record are refused, and no more memory is
//! allocated than the length of the input justifies.

mod bytes;
mod decode;
mod encode;
mod replay;

use fdn_core::{Millis, Timestamp};

use crate::compete::{Competition, GroupDemand, Moves, Outcome, Pass, Rate, Terms};
use crate::dag::Dag;
use crate::place::{Cluster, ClusterIndex, Constraints, Memory, Network};
pub use replay::Difference;

/// The format version that is written, and the only one that is read.
pub const VERSION: u64 = 1;
/// The first bytes of every record.
pub const MARK: &[u8; 8] = b"fdn-plan";

/// The bytes are not a valid record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// They do not begin with [`MARK`].
    #[error("does not begin like a record")]
    Mark,
    /// They have this other format version.
    #[error("is of version {0}, and this program reads {VERSION}")]
    Version(u64),
    /// They end before the record does.
    #[error("ends before its content does")]
    Short,
    /// A value is out of its range; the text names it.
    #[error("has {0} that cannot be")]
    Nonsense(&'static str),
    /// They continue after the end of the record.
    #[error("goes on after its content has ended")]
    Long,
}

/// The load of a cluster after a pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClusterLoad {
    /// The offered load in erlangs: the mean number of busy slots.
    pub erlangs: f64,
    /// The arrival rate of task runs, per second.
    pub runs: f64,
    /// The memory needed for instances.
    pub memory: Memory,
}

/// The decisions of a pass.
#[derive(Clone, Debug, PartialEq)]
pub struct Decisions {
    /// By demand that had its turn, in the order of [`Pass::demands`].
    pub outcomes: Vec<Outcome>,
    /// By cluster.
    pub loads: Vec<ClusterLoad>,
    /// The bucket of moves after the pass.
    pub moves: Moves,
}

impl Decisions {
    /// Collects the decisions from a competition after its pass.
    #[must_use]
    pub fn new(outcomes: Vec<Outcome>, competition: &Competition<'_>, moves: Moves) -> Self {
        let parts = competition.loads().iter().zip(competition.needed());
        Self {
            outcomes,
            loads: parts
                .map(|(load, memory)| ClusterLoad {
                    erlangs: load.erlangs(),
                    runs: load.runs(),
                    memory: *memory,
                })
                .collect(),
            moves,
        }
    }
}

/// A completed pass, to be recorded.
#[derive(Clone, Copy, Debug)]
pub struct CompletedPass<'a> {
    /// When it was made.
    pub at: Timestamp,
    /// The names of the apps, indexed by [`GroupDemand::app`].
    pub apps: &'a [&'a str],
    /// The names of the groups: of the settled demands, then of the others.
    pub groups: &'a [&'a str],
    /// Its inputs.
    pub pass: &'a Pass<'a>,
    /// The bucket of moves before the pass.
    pub moves: Moves,
    /// Its decisions.
    pub decisions: &'a Decisions,
}

impl CompletedPass<'_> {
    /// Encodes the record; see the module for the format.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encode::encode(self)
    }
}

/// A client group's name and its distances to the clusters.
#[derive(Clone, Debug, PartialEq)]
struct View {
    name: String,
    distance: Vec<Millis>,
}

/// One demand, with indices into the shared parts.
#[derive(Clone, Debug)]
struct Entry {
    app: usize,
    dag: usize,
    view: usize,
    rate: Rate,
    before: Option<Vec<ClusterIndex>>,
    constraints: Option<usize>,
    factors: Option<usize>,
    dwells: bool,
}

/// A decoded record.
#[derive(Clone, Debug)]
pub struct RecordedPass {
    at: Timestamp,
    moves: Moves,
    terms: Terms,
    clusters: Vec<Cluster>,
    network: Network,
    apps: Vec<String>,
    dags: Vec<Dag>,
    views: Vec<View>,
    constraints: Vec<Constraints>,
    factors: Vec<Vec<f64>>,
    settled: Vec<Entry>,
    demands: Vec<Entry>,
    decisions: Decisions,
}

impl RecordedPass {
    /// Decodes a record.
    ///
    /// # Errors
    /// When the bytes are not a valid record.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        decode::decode(bytes)
    }

    /// When the pass was made.
    #[must_use]
    pub const fn at(&self) -> Timestamp {
        self.at
    }

    /// The clusters before the pass.
    #[must_use]
    pub fn clusters(&self) -> &[Cluster] {
        &self.clusters
    }

    /// The recorded decisions.
    #[must_use]
    pub const fn decisions(&self) -> &Decisions {
        &self.decisions
    }

    /// The demands that had no turn.
    #[must_use]
    pub fn settled(&self) -> Vec<GroupDemand<'_>> {
        self.settled
            .iter()
            .map(|entry| self.demand(entry))
            .collect()
    }

    /// The demands that had their turn.
    #[must_use]
    pub fn demands(&self) -> Vec<GroupDemand<'_>> {
        self.demands
            .iter()
            .map(|entry| self.demand(entry))
            .collect()
    }

    /// The names of the app and the group: of each settled demand, then of the others.
    pub fn names(&self) -> impl Iterator<Item = (&str, &str)> {
        let entries = self.settled.iter().chain(&self.demands);
        entries.map(|entry| {
            let (app, view) = (&self.apps[entry.app], &self.views[entry.view]);
            (app.as_str(), view.name.as_str())
        })
    }

    /// The recorded pass with the given demands, which [`Self::settled`] and [`Self::demands`] return.
    #[must_use]
    pub fn pass<'a>(
        &'a self,
        settled: &'a [GroupDemand<'a>],
        demands: &'a [GroupDemand<'a>],
    ) -> Pass<'a> {
        Pass {
            clusters: &self.clusters,
            network: &self.network,
            terms: self.terms,
            settled,
            demands,
        }
    }

    fn demand<'a>(&'a self, entry: &'a Entry) -> GroupDemand<'a> {
        GroupDemand {
            app: entry.app,
            dag: &self.dags[entry.dag],
            distance: &self.views[entry.view].distance,
            rate: entry.rate,
            before: entry.before.as_deref(),
            constraints: entry.constraints.map(|at| &self.constraints[at]),
            factors: entry.factors.map(|at| self.factors[at].as_slice()),
            dwells: entry.dwells,
        }
    }
}
