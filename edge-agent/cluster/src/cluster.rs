//! The handle to a node of a cluster.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fdn_core::{ClusterId, NodeId, Resources};
use fdn_scheduling::instance::TaskId;
use prometheus::Registry;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use crate::actor::{Actor, ActorParts, Command, End, Sources};
use crate::error::ClusterError;
use crate::head::LeaseView;
use crate::head::keeper;
use crate::head::lease::LeaseStore;
use crate::host::{Host, Outcome, ScalingTask};
use crate::identity::{Key, Member, Tag};
use crate::link::accept::accept;
use crate::link::cut::Cuts;
use crate::link::delay::DelayLine;
use crate::link::tls::TlsSource;
use crate::link::{Links, hello};
use crate::metrics::Metrics;
use crate::peer::{PeerDialer, Peers};
use crate::settings::ClusterSettings;
use crate::status::ClusterStatus;

/// The most commands waiting for the node's task.
const COMMANDS: usize = 256;

/// The parts from which a node of a cluster is made.
pub struct ClusterParts<H> {
    /// The name of its cluster.
    pub cluster: ClusterId,
    /// Its name.
    pub node: NodeId,
    /// Its capacity for instances.
    pub capacity: Resources,
    /// Its settings.
    pub settings: ClusterSettings,
    /// Starts and ends instances on this node.
    pub host: H,
    /// Answers other nodes' requests, and decides which nodes this one talks to.
    pub peers: Option<Arc<dyn Peers>>,
    /// The store of the lease on being the head; without one the members elect the head by themselves.
    pub leases: Option<Arc<dyn LeaseStore>>,
    /// The registry for its metrics.
    pub registry: Registry,
}

/// A running node of a cluster. Cheap to clone; when the last copy is dropped, the node leaves.
#[derive(Clone, Debug)]
pub struct Cluster {
    commands: mpsc::Sender<Command>,
    ends: mpsc::UnboundedSender<End>,
    address: SocketAddr,
    metrics: Metrics,
    dialer: PeerDialer,
    changes: watch::Receiver<u64>,
    task: Arc<Mutex<Option<JoinHandle<()>>>>,
}

/// A stream of outcomes of tasks.
#[derive(Debug)]
pub struct Outcomes(mpsc::UnboundedReceiver<Outcome>);

impl From<mpsc::UnboundedReceiver<Outcome>> for Outcomes {
    fn from(receiver: mpsc::UnboundedReceiver<Outcome>) -> Self {
        Self(receiver)
    }
}

impl Outcomes {
    /// The next outcome; `None` after the last.
    pub async fn next(&mut self) -> Option<Outcome> {
        self.0.recv().await
    }
}

impl Cluster {
    /// Starts a node; returns once it listens. It joins, or founds, its cluster in the background. Must be called on a tokio runtime.
    ///
    /// # Errors
    /// When a setting or certificate cannot be used, or the address is taken.
    pub async fn start<H: Host>(parts: ClusterParts<H>) -> Result<Self, ClusterError> {
        parts.settings.check()?;
        let settings = Arc::new(parts.settings);
        let metrics = Metrics::new(&parts.registry)?;
        let failed = |source| ClusterError::Listen {
            address: settings.listen,
            source,
        };
        let listener = TcpListener::bind(settings.listen).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let mut rng = ChaCha8Rng::from_rng(&mut rand::rng());
        let me = Member {
            key: Key {
                tag: Tag::new(rng.next_u32()),
                incarnation: 1,
            },
            node: parts.node,
            address: settings.advertise.unwrap_or(address),
            capacity: parts.capacity,
            candidate: settings.candidate,
        };
        let (events, frames) = mpsc::channel(settings.limits.receive_queue);
        let links = Arc::new(Links {
            tls: settings.tls.as_ref().map(TlsSource::open).transpose()?,
            hello: Mutex::new(hello(&parts.cluster, &me, false)),
            events,
            cuts: Cuts::default(),
            delay: delay(&settings)?,
            metrics: metrics.clone(),
            stop: CancellationToken::new(),
            sessions: AtomicU64::new(1),
            cluster: parts.cluster.clone(),
            settings: Arc::clone(&settings),
            peers: parts.peers,
        });
        let dialer = PeerDialer::new(Arc::clone(&links));
        let stop = links.stop.clone();
        tokio::spawn(accept(Arc::clone(&links), listener));
        let (commands, inbox) = mpsc::channel(COMMANDS);
        let (ends, ended) = mpsc::unbounded_channel();
        let (batches, batches_receiver) = mpsc::channel(settings.global.in_flight);
        let (view, lease) = watch::channel(LeaseView::Unavailable);
        let (fit, is_fit) = watch::channel(false);
        if let Some(store) = parts.leases.filter(|_| settings.candidate) {
            let keeper = keeper::keep(store, parts.cluster.clone(), me.node.clone(), is_fit, view);
            let stop = stop.clone();
            tokio::spawn(async move { stop.run_until_cancelled(keeper).await });
        }
        info!(node = %me.node, %address, "listening for the other nodes of the cluster");
        let (changed, changes) = watch::channel(0);
        let actor = Actor::new(ActorParts {
            changed,
            fit,
            cluster: parts.cluster,
            me,
            settings,
            host: parts.host,
            links,
            batches,
            rng,
        })?;
        let task = tokio::spawn(actor.run(Sources {
            frames,
            commands: inbox,
            ends: ended,
            batches: batches_receiver,
            lease,
        }));
        Ok(Self {
            commands,
            ends,
            address,
            metrics,
            dialer,
            changes,
            task: Arc::new(Mutex::new(Some(task))),
        })
    }

    /// The address on which it listens for other nodes.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its metrics.
    #[must_use]
    pub const fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Connects to other nodes for requests that their [`Peers`] answer.
    #[must_use]
    pub const fn dialer(&self) -> &PeerDialer {
        &self.dialer
    }

    /// Notifies of every change of the members: joined, lost, left, draining. The value counts changes; [`Cluster::status`] has the members.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }

    /// Reserves room on this node for an instance that already runs and that no task requested, such as one found when the process
    /// started. Released with [`Cluster::ended`]; `None` if there is no room for it.
    ///
    /// # Errors
    /// When the node has stopped.
    pub async fn hold(&self, demand: Resources) -> Result<Option<TaskId>, ClusterError> {
        let (answer, held) = oneshot::channel();
        self.command(Command::Hold(demand, answer)).await?;
        held.await.map_err(|_| ClusterError::Stopped)
    }

    /// Requests instances anywhere in the cluster. Every task has one outcome, within the time for which it is wanted and some
    /// seconds more.
    ///
    /// # Errors
    /// When the node has stopped.
    pub async fn scale(&self, tasks: Vec<ScalingTask>) -> Result<Outcomes, ClusterError> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.scale_into(tasks, sender).await?;
        Ok(Outcomes(receiver))
    }

    /// Like [`Cluster::scale`], with the outcomes of many bursts going to one channel. It never holds more of them than tasks were submitted.
    ///
    /// # Errors
    /// When the node has stopped.
    pub async fn scale_into(
        &self,
        tasks: Vec<ScalingTask>,
        outcomes: mpsc::UnboundedSender<Outcome>,
    ) -> Result<(), ClusterError> {
        self.command(Command::Scale(tasks, outcomes)).await
    }

    /// Reports that the instance of a task has ended on this node. To be called once for every [`Host::start`]; a second call is harmless.
    pub fn ended(&self, task: TaskId) {
        self.end(task, false);
    }

    /// Reports that the instance of a task could not be started on this node.
    pub fn failed(&self, task: TaskId) {
        self.end(task, true);
    }

    fn end(&self, task: TaskId, failed: bool) {
        // The queue is bounded by the number of instances here. A node that has stopped ignores the report.
        let _ = self.ends.send(End { task, failed });
    }

    /// Makes this node stop or resume taking new instances. Running instances continue.
    ///
    /// # Errors
    /// When the node has stopped.
    pub async fn drain(&self, draining: bool) -> Result<(), ClusterError> {
        self.command(Command::Drain(draining)).await
    }

    /// Declares, on an operator's word, that a node is dead and will not return with what it has: for the case that most members are dead,
    /// so that the others cannot agree on it. If it is not true, tasks that went there may be started twice.
    ///
    /// # Errors
    /// When the node has stopped.
    pub async fn forget(&self, node: NodeId) -> Result<(), ClusterError> {
        self.command(Command::Forget(node)).await
    }

    /// Cuts this node off from others, as a broken network would: for tests of partitions.
    ///
    /// # Errors
    /// When the node has stopped.
    pub async fn cut(&self, from: Vec<NodeId>) -> Result<(), ClusterError> {
        self.command(Command::Cut(from)).await
    }

    /// The node's status.
    ///
    /// # Errors
    /// When the node has stopped.
    pub async fn status(&self) -> Result<ClusterStatus, ClusterError> {
        let (answer, status) = oneshot::channel();
        self.command(Command::Status(answer)).await?;
        status.await.map_err(|_| ClusterError::Stopped)
    }

    /// Leaves the cluster: the others know at once that nothing starts here any more.
    pub async fn leave(&self) {
        let (answer, left) = oneshot::channel();
        if self.command(Command::Leave(answer)).await.is_ok() {
            // If no answer comes, the node has already stopped.
            let _ = left.await;
        }
        let task = self
            .task
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .take();
        if let Some(task) = task
            && let Err(error) = task.await
        {
            debug!(%error, "the node's task ended badly");
        }
    }

    async fn command(&self, command: Command) -> Result<(), ClusterError> {
        let sent = self.commands.send(command).await;
        sent.map_err(|_| ClusterError::Stopped)
    }
}

fn delay(settings: &ClusterSettings) -> Result<Option<DelayLine>, ClusterError> {
    if settings.emulate.one_way_delay_ms <= 0.0 {
        return Ok(None);
    }
    let delay = Duration::from_secs_f64(settings.emulate.one_way_delay_ms / 1000.0);
    let started = DelayLine::start(delay);
    let started = started.map_err(|error| ClusterError::Settings(error.to_string()));
    started.map(Some)
}
