//! A pass of the planner as bytes: everything that it read, and everything that it decided, so that it can be made again by the same code and
//! compared to the last bit, or be made by another rule.
//!
//! **Form.** `fdn-plan`, the version of the form as a whole number, then the parts below one after the other. Whole numbers are of seven bits to the
//! byte, the lowest first; numbers with fractions are the eight bytes of IEEE 754, the lowest first, since JSON has neither infinity nor every bit;
//! texts and lists begin with their length. What many offers share (workflows, groups with their distances, what bars tasks from clusters, corrections)
//! stands once, and offers name it by its index. Compressing, check sums and files are for whoever keeps records.
//!
//! | part | has |
//! | --- | --- |
//! | when | milliseconds since 1970, and the numbers of the bucket of moves |
//! | terms | margin, horizon, readings of Heu-Orche |
//! | clusters | name, speed, slots, what is free and what there is at all, whether it takes work; then the links of every pair |
//! | names | of apps |
//! | shared | workflows, groups, bars, corrections |
//! | settled, offers | app, rate, where it was, whether it dwells, and which of the shared parts are its own |
//! | decisions | of each offer: the verdict, the clusters, the time; of each cluster: what is asked of it; the bucket of moves |
//!
//! **Invariants.** What is read back gives the very pass that was written; bytes that are no record are refused, and nothing larger than they
//! could tell of is ever made room for.

mod bytes;
mod decode;
mod encode;
mod replay;

use fdn_core::{Millis, Timestamp};

use crate::compete::{Competition, Moves, Offer, Outcome, Pass, Rate, Terms};
use crate::dag::Dag;
use crate::place::{Bars, Cluster, ClusterIndex, Memory, Network};
pub use replay::Difference;

/// The version of the form that is written, and the only one that is read.
pub const VERSION: u64 = 1;
/// How a record begins.
pub const MARK: &[u8; 8] = b"fdn-plan";

/// Why bytes are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// They do not begin like one.
    #[error("does not begin like a record")]
    Mark,
    /// They are of another version.
    #[error("is of version {0}, and this program reads {VERSION}")]
    Version(u64),
    /// They end before the record does.
    #[error("ends before its content does")]
    Short,
    /// Something is no value that can be there.
    #[error("has {0} that cannot be")]
    Nonsense(&'static str),
    /// They go on after the record has ended.
    #[error("goes on after its content has ended")]
    Long,
}

/// What is asked of a cluster after a pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asked {
    /// Slots that are busy on average.
    pub erlangs: f64,
    /// Runs a second.
    pub runs: f64,
    /// Memory.
    pub memory: Memory,
}

/// What a pass decided.
#[derive(Clone, Debug, PartialEq)]
pub struct Decisions {
    /// Of each offer that had its turn.
    pub outcomes: Vec<Outcome>,
    /// Of each cluster.
    pub asked: Vec<Asked>,
    /// The bucket of moves as it was left.
    pub moves: Moves,
}

impl Decisions {
    /// What a competition came to.
    #[must_use]
    pub fn new(outcomes: Vec<Outcome>, competition: &Competition<'_>, moves: Moves) -> Self {
        let parts = competition.loads().iter().zip(competition.needed());
        Self {
            outcomes,
            asked: parts
                .map(|(load, memory)| Asked {
                    erlangs: load.erlangs(),
                    runs: load.runs(),
                    memory: *memory,
                })
                .collect(),
            moves,
        }
    }
}

/// A pass that was just made.
#[derive(Clone, Copy, Debug)]
pub struct Made<'a> {
    /// When.
    pub at: Timestamp,
    /// The names of apps, by [`Offer::app`].
    pub apps: &'a [&'a str],
    /// The names of the groups of settled offers, then of the others.
    pub groups: &'a [&'a str],
    /// What it read.
    pub pass: &'a Pass<'a>,
    /// The bucket of moves before.
    pub moves: Moves,
    /// What it decided.
    pub decisions: &'a Decisions,
}

impl Made<'_> {
    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encode::encode(self)
    }
}

/// A group of clients as it sees the clusters.
#[derive(Clone, Debug, PartialEq)]
struct View {
    name: String,
    distance: Vec<Millis>,
}

/// Which clients of which app, and what they ask for.
#[derive(Clone, Debug)]
struct Entry {
    app: usize,
    dag: usize,
    view: usize,
    rate: Rate,
    before: Option<Vec<ClusterIndex>>,
    bars: Option<usize>,
    factors: Option<usize>,
    dwells: bool,
}

/// A pass that was recorded.
#[derive(Clone, Debug)]
pub struct Recorded {
    at: Timestamp,
    moves: Moves,
    terms: Terms,
    clusters: Vec<Cluster>,
    network: Network,
    apps: Vec<String>,
    dags: Vec<Dag>,
    views: Vec<View>,
    bars: Vec<Bars>,
    factors: Vec<Vec<f64>>,
    settled: Vec<Entry>,
    offers: Vec<Entry>,
    decisions: Decisions,
}

impl Recorded {
    /// Reads a record.
    ///
    /// # Errors
    /// When the bytes are none.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        decode::decode(bytes)
    }

    /// When the pass was made.
    #[must_use]
    pub const fn at(&self) -> Timestamp {
        self.at
    }

    /// The clusters.
    #[must_use]
    pub fn clusters(&self) -> &[Cluster] {
        &self.clusters
    }

    /// What was decided.
    #[must_use]
    pub const fn decisions(&self) -> &Decisions {
        &self.decisions
    }

    /// Offers that had no turn.
    #[must_use]
    pub fn settled(&self) -> Vec<Offer<'_>> {
        self.settled.iter().map(|entry| self.offer(entry)).collect()
    }

    /// Offers that had their turn.
    #[must_use]
    pub fn offers(&self) -> Vec<Offer<'_>> {
        self.offers.iter().map(|entry| self.offer(entry)).collect()
    }

    /// The names of the app and the group of each settled offer, then of the others.
    pub fn names(&self) -> impl Iterator<Item = (&str, &str)> {
        let entries = self.settled.iter().chain(&self.offers);
        entries.map(|entry| {
            let (app, view) = (&self.apps[entry.app], &self.views[entry.view]);
            (app.as_str(), view.name.as_str())
        })
    }

    /// The pass, of these offers of its own.
    #[must_use]
    pub fn pass<'a>(&'a self, settled: &'a [Offer<'a>], offers: &'a [Offer<'a>]) -> Pass<'a> {
        Pass {
            clusters: &self.clusters,
            network: &self.network,
            terms: self.terms,
            settled,
            offers,
        }
    }

    fn offer<'a>(&'a self, entry: &'a Entry) -> Offer<'a> {
        Offer {
            app: entry.app,
            dag: &self.dags[entry.dag],
            distance: &self.views[entry.view].distance,
            rate: entry.rate,
            before: entry.before.as_deref(),
            bars: entry.bars.map(|at| &self.bars[at]),
            factors: entry.factors.map(|at| self.factors[at].as_slice()),
            dwells: entry.dwells,
        }
    }
}
