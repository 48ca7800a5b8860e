//! The single task of a node that drives its schedulers: everything that happens to them happens here, one event after another.
//!
//! A turn takes the input (frames of other nodes, the host's commands, time), passes it to the state machines of
//! `fdn_scheduling::instance`, [`crate::membership`] and [`crate::head`], executes their actions, and sends the resulting messages. Messages of a
//! node to itself take the same path as messages to others, without the wire. Nothing here decides where an instance starts.
//!
//! # What the actor adds to the schedulers' rules
//! - *No majority, no acts.* Without grants from most members ([`crate::membership`]), messages of schedulers are dropped: a node that may be given
//!   up starts nothing. Its own tasks may still use its own room, which nobody else can allocate meanwhile.
//! - *New nodes and old attempts.* A fence asks those nodes that its submitter knows. So an attempt may start only on nodes that its
//!   submitter knew when it began: attempts are numbered per submitter, and each submitter tells each new node from which number on.
//! - *New heads.* The epoch of the head is the term of its global scheduler. A new head begins without memory, and tasks given to its
//!   predecessor are broken chains, which their submitter ends by a fence (`fdn_scheduling::instance`).

mod changes;
mod command;
mod directory;
mod global;
mod inbound;
mod instances;
mod links;
mod members;
mod outbound;
mod own;
mod recount;
#[cfg(test)]
mod tests;
mod turn;

use std::collections::VecDeque;
use std::sync::Arc;

use fdn_core::{ClusterId, Millis, Resources};
use fdn_scheduling::instance::{Action, Global, Node, NodeIndex, Running, Settled, Submitter};
use rand_chacha::ChaCha8Rng;
use tokio::sync::{mpsc, watch};

use crate::clock::{Clock, millis};
use crate::error::ClusterError;
use crate::head::{Election, ElectionAction, LeaseView};
use crate::host::Host;
use crate::identity::{Member, Tag};
use crate::idmap::IdMap;
use crate::link::LinkEvent;
use crate::membership::{Change, Membership};
use crate::metrics::Metrics;
use crate::settings::ClusterSettings;
use crate::stage::{ListBatch, PreSchedulers};
use crate::tally::TallyMap;
use crate::wire::convert::TaskContext;
use crate::wire::proto::Body;

pub(crate) use command::{Command, End};
use directory::{Directory, IndexAllocation};
use links::Streams;
use own::OwnTasks;
use recount::Differences;

/// The context that travels with a task held by a scheduler here, and since when the task is held.
#[derive(Clone, Debug)]
struct HeldContext {
    context: TaskContext,
    since: Millis,
    deadline: Millis,
}

/// An instance that runs here.
#[derive(Clone, Copy, Debug)]
struct RunningInstance {
    running: Running,
    demand: Resources,
    /// The process that requested it.
    submitter: Tag,
    /// Whether its submitter must be asked if it is still wanted.
    unconfirmed: bool,
}

/// The input channels of the node's task.
pub(crate) struct Sources {
    pub(crate) frames: mpsc::Receiver<LinkEvent>,
    pub(crate) commands: mpsc::Receiver<Command>,
    pub(crate) ends: mpsc::UnboundedReceiver<End>,
    /// Lists made by pre-schedulers.
    pub(crate) batches: mpsc::Receiver<ListBatch>,
    pub(crate) lease: watch::Receiver<LeaseView>,
}

/// The initial state of the node's task.
pub(crate) struct ActorParts<H> {
    pub(crate) cluster: ClusterId,
    pub(crate) me: Member,
    pub(crate) settings: Arc<ClusterSettings>,
    pub(crate) host: H,
    pub(crate) links: Arc<crate::link::Links>,
    /// The channel on which pre-schedulers send their lists.
    pub(crate) batches: mpsc::Sender<ListBatch>,
    pub(crate) rng: ChaCha8Rng,
    /// Counts changes of the members, for subscribers.
    pub(crate) changed: watch::Sender<u64>,
    /// Tells whether this node could be the head, for what keeps the lease.
    pub(crate) fit: watch::Sender<bool>,
}

/// The node's task.
pub(crate) struct Actor<H> {
    clock: Clock,
    now: Millis,
    cluster: ClusterId,
    settings: Arc<ClusterSettings>,
    metrics: Metrics,
    host: H,
    rng: ChaCha8Rng,
    changed: watch::Sender<u64>,
    fit: watch::Sender<bool>,
    me: Member,
    index: NodeIndex,
    members: Membership,
    /// The time until which most members let this node act; updated after changes and at ticks, so it may be earlier than the truth.
    acts_until: Millis,
    /// The last tick at which this incarnation had a majority.
    had_majority: Option<Millis>,
    election: Election,
    lease: LeaseView,
    directory: Directory,
    streams: Streams,
    node: Node<Resources>,
    /// Only on the head.
    global: Option<Global<Resources>>,
    /// Only on the head, if configured.
    pre_schedulers: Option<PreSchedulers>,
    batches: mpsc::Sender<ListBatch>,
    submitter: Submitter<Resources>,
    own: OwnTasks,
    running: TallyMap<RunningInstance>,
    /// What other nodes run for this one without its knowledge.
    differences: Differences,
    contexts: IdMap<HeldContext>,
    global_contexts: IdMap<HeldContext>,
    /// The id and trace of the instance that was just started.
    started: Option<(u64, Vec<u64>)>,
    /// Messages of this node to itself.
    local: VecDeque<Body>,
    node_actions: Vec<Action<Resources>>,
    global_actions: Vec<Action<Resources>>,
    submitter_actions: Vec<Action<Resources>>,
    settled: Vec<Settled>,
    changes: Vec<Change>,
    election_actions: Vec<ElectionAction>,
    /// Room that is kept free while the node drains.
    drain_reservations: Vec<Running>,
    /// Since when the node has been trying to become a member.
    joining_since: Millis,
    next_tick: Millis,
    next_ping: Millis,
    next_sweep: Millis,
    next_snapshot: Millis,
    /// When the global scheduler may decide again, if a decision time is emulated.
    next_decision: Millis,
    /// Members whose list of members differed at their last ping.
    differing: Vec<Tag>,
    leaving: bool,
}

impl<H: Host> Actor<H> {
    pub(crate) fn new(parts: ActorParts<H>) -> Result<Self, ClusterError> {
        let ActorParts {
            cluster,
            me,
            settings,
            host,
            links,
            batches,
            rng,
            changed,
            fit,
        } = parts;
        let clock = Clock::default();
        let now = clock.now();
        let is_alone = settings.founder && settings.seeds.iter().all(|seed| *seed == me.address);
        let mut directory = Directory::default();
        let (IndexAllocation::New(index) | IndexAllocation::Reused(index)) =
            directory.assign(&me, Millis::ZERO, 0);
        directory.slot_mut(index).admits_from = Some(0);
        let mut node = Node::new(index, 1, me.capacity, settings.node())
            .map_err(|error| ClusterError::Settings(error.to_string()))?;
        node.touch();
        let mut submitter = Submitter::new(1, me.key.tag.first_task(), settings.submitter());
        submitter.touch();
        let timing = settings.membership();
        Ok(Self {
            clock,
            now,
            cluster,
            metrics: links.metrics.clone(),
            members: Membership::new(now, me.clone(), timing, is_alone),
            acts_until: if is_alone {
                Millis::INFINITY
            } else {
                Millis::ZERO
            },
            had_majority: None,
            election: Election::new(now, millis(settings.timing.election.as_duration())),
            lease: LeaseView::Unavailable,
            directory,
            streams: Streams::new(links),
            node,
            global: None,
            pre_schedulers: None,
            batches,
            submitter,
            own: OwnTasks::new(me.key.tag, settings.limits.placed),
            running: TallyMap::new(|entry| entry.submitter),
            differences: Differences::new(),
            contexts: IdMap::default(),
            global_contexts: IdMap::default(),
            started: None,
            local: VecDeque::new(),
            node_actions: Vec::new(),
            global_actions: Vec::new(),
            submitter_actions: Vec::new(),
            settled: Vec::new(),
            changes: Vec::new(),
            election_actions: Vec::new(),
            drain_reservations: Vec::new(),
            joining_since: now,
            next_tick: now,
            next_ping: now,
            next_sweep: now,
            next_snapshot: now,
            next_decision: now,
            differing: Vec::new(),
            leaving: false,
            settings,
            host,
            rng,
            changed,
            fit,
            me,
            index,
        })
    }

    /// Whether this node may act as a scheduler.
    fn acts(&self) -> bool {
        !self.leaving && self.now < self.acts_until
    }

    /// The number of a node that was gone before this time may be reused.
    fn forgotten(&self) -> Millis {
        let timing = &self.settings.timing;
        let wanted = timing.wanted.as_duration() + timing.memory.as_duration() * 2;
        self.now - millis(wanted)
    }
}
