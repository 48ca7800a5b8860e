//! The one task of a node that drives its schedulers: everything that happens to them happens here, one thing after the other.
//!
//! A turn takes what has come in (frames of other nodes, the host's words, time), hands it to the state machines of
//! `fdn_scheduling::instance`, [`crate::membership`] and [`crate::head`], does what they say, and sends what has gathered. What a node says to itself goes
//! the same way as what it says to others, without the wire. Nothing here decides where an instance starts.
//!
//! # What the shell adds to the schedulers' rules
//! - *No majority, no acts.* Without the grants of most members ([`crate::membership`]) messages of schedulers are dropped: a node that may be given
//!   up starts nothing. Its own tasks may still use its own room, which nobody else can hand out meanwhile.
//! - *New nodes and old attempts.* A fence asks those nodes that its submitter knows. So an attempt may start only on nodes that its
//!   submitter knew when it began: attempts are numbered per submitter, and each submitter tells each new node from which number on.
//! - *New heads.* The epoch of the head is the term of its global scheduler. A head that takes over begins without memory, and what was given to its
//!   predecessor is a broken chain, which its submitter ends by a fence (`fdn_scheduling::instance`).

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
use crate::link::FromLink;
use crate::membership::{Change, Membership};
use crate::metrics::Metrics;
use crate::settings::ClusterSettings;
use crate::stage::{Made, PreSchedulers};
use crate::tally::Tallied;
use crate::wire::convert::TaskContext;
use crate::wire::proto::Body;

pub(crate) use command::{Command, End};
use directory::{Directory, Given};
use links::Streams;
use own::Own;
use recount::Differences;

/// What travels with a task that a scheduler here has, and since when it has it.
#[derive(Clone, Debug)]
struct HeldContext {
    context: TaskContext,
    since: Millis,
    deadline: Millis,
}

/// An instance that runs here.
#[derive(Clone, Copy, Debug)]
struct Here {
    running: Running,
    demand: Resources,
    /// Who asked for it.
    submitter: Tag,
    /// Whether its submitter must be asked if it is still wanted.
    unconfirmed: bool,
}

/// Where the node's task gets its work.
pub(crate) struct Sources {
    pub(crate) frames: mpsc::Receiver<FromLink>,
    pub(crate) commands: mpsc::Receiver<Command>,
    pub(crate) ends: mpsc::UnboundedReceiver<End>,
    /// Lists of pre-schedulers.
    pub(crate) made: mpsc::Receiver<Made>,
    pub(crate) lease: watch::Receiver<LeaseView>,
}

/// What the node's task begins with.
pub(crate) struct Beginning<H> {
    pub(crate) cluster: ClusterId,
    pub(crate) me: Member,
    pub(crate) settings: Arc<ClusterSettings>,
    pub(crate) host: H,
    pub(crate) links: Arc<crate::link::Links>,
    /// Where pre-schedulers send their lists.
    pub(crate) made: mpsc::Sender<Made>,
    pub(crate) rng: ChaCha8Rng,
    /// Counts changes of members, for those who follow them.
    pub(crate) changed: watch::Sender<u64>,
}

/// The task.
pub(crate) struct Actor<H> {
    clock: Clock,
    now: Millis,
    cluster: ClusterId,
    settings: Arc<ClusterSettings>,
    metrics: Metrics,
    host: H,
    rng: ChaCha8Rng,
    changed: watch::Sender<u64>,
    me: Member,
    index: NodeIndex,
    members: Membership,
    /// Until when most members let this node act, as far as they have answered; brought up to date with every answer and change.
    acts_until: Millis,
    election: Election,
    lease: LeaseView,
    directory: Directory,
    streams: Streams,
    node: Node<Resources>,
    /// On the head only.
    global: Option<Global<Resources>>,
    /// On the head only, if it is to have any.
    pre_schedulers: Option<PreSchedulers>,
    made: mpsc::Sender<Made>,
    submitter: Submitter<Resources>,
    own: Own,
    running: Tallied<Here>,
    /// What other nodes run for this one and this one does not know of.
    differences: Differences,
    contexts: IdMap<HeldContext>,
    global_contexts: IdMap<HeldContext>,
    /// The trace of the instance that was just started.
    started: Option<(u64, Vec<u64>)>,
    /// What this node says to itself.
    local: VecDeque<Body>,
    node_actions: Vec<Action<Resources>>,
    global_actions: Vec<Action<Resources>>,
    origin_actions: Vec<Action<Resources>>,
    settled: Vec<Settled>,
    changes: Vec<Change>,
    election_actions: Vec<ElectionAction>,
    /// Room that is kept from instances while the node drains.
    kept: Vec<Running>,
    /// Since when the node has tried to become a member.
    joining_since: Millis,
    next_tick: Millis,
    next_ping: Millis,
    next_sweep: Millis,
    next_snapshot: Millis,
    /// When the global scheduler may decide again, if that is emulated to take time.
    next_decision: Millis,
    /// Members whose list of members was another one at their last ping.
    differing: Vec<Tag>,
    leaving: bool,
}

impl<H: Host> Actor<H> {
    pub(crate) fn new(beginning: Beginning<H>) -> Result<Self, ClusterError> {
        let Beginning {
            cluster,
            me,
            settings,
            host,
            links,
            made,
            rng,
            changed,
        } = beginning;
        let clock = Clock::default();
        let now = clock.now();
        let is_alone = settings.founder && settings.seeds.iter().all(|seed| *seed == me.address);
        let mut directory = Directory::default();
        let (Given::New(index) | Given::Again(index)) = directory.give(&me, Millis::ZERO, 0);
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
            election: Election::new(now, millis(settings.timing.election.as_duration())),
            lease: LeaseView::Away,
            directory,
            streams: Streams::new(links),
            node,
            global: None,
            pre_schedulers: None,
            made,
            submitter,
            own: Own::new(me.key.tag, settings.limits.placed),
            running: Tallied::new(|here| here.submitter),
            differences: Differences::new(),
            contexts: IdMap::default(),
            global_contexts: IdMap::default(),
            started: None,
            local: VecDeque::new(),
            node_actions: Vec::new(),
            global_actions: Vec::new(),
            origin_actions: Vec::new(),
            settled: Vec::new(),
            changes: Vec::new(),
            election_actions: Vec::new(),
            kept: Vec::new(),
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
            me,
            index,
        })
    }

    /// Whether this node may act as a scheduler.
    fn acts(&self) -> bool {
        !self.leaving && self.now < self.acts_until
    }

    /// Before that moment a node must be gone for its number to be given to another.
    fn forgotten(&self) -> Millis {
        let timing = &self.settings.timing;
        let wanted = timing.wanted.as_duration() + timing.memory.as_duration() * 2;
        self.now - millis(wanted)
    }
}
