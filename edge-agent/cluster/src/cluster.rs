//! The handle on a node of a cluster.

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

use crate::actor::{Actor, Beginning, Command, End, Sources};
use crate::error::ClusterError;
use crate::head::LeaseView;
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
use fdn_core::enrol::LeaseRequest;

/// Commands that wait for the node's task.
const COMMANDS: usize = 256;

/// What a node of a cluster is made of.
pub struct ClusterParts<H> {
    /// Its cluster.
    pub cluster: ClusterId,
    /// Its name.
    pub node: NodeId,
    /// What it has for instances.
    pub capacity: Resources,
    /// Its settings.
    pub settings: ClusterSettings,
    /// What starts and ends instances here.
    pub host: H,
    /// What answers other nodes' requests, and says with whom this node talks.
    pub peers: Option<Arc<dyn Peers>>,
    /// The lease on being the head; without one the members choose by themselves.
    pub leases: Option<Arc<dyn LeaseStore>>,
    /// Where its metrics go.
    pub registry: Registry,
}

/// A node of a cluster, running. Cheap to clone; when the last copy is gone, the node leaves.
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

/// Outcomes of tasks, as they come.
#[derive(Debug)]
pub struct Outcomes(mpsc::UnboundedReceiver<Outcome>);

impl From<mpsc::UnboundedReceiver<Outcome>> for Outcomes {
    fn from(receiver: mpsc::UnboundedReceiver<Outcome>) -> Self {
        Self(receiver)
    }
}

impl Outcomes {
    /// The next one; `None` after the last.
    pub async fn next(&mut self) -> Option<Outcome> {
        self.0.recv().await
    }
}

impl Cluster {
    /// Starts a node; returns when it listens. It joins, or begins, its cluster in the background. Must be called on a tokio runtime.
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
        let (made, lists) = mpsc::channel(settings.global.in_flight);
        let (view, lease) = watch::channel(LeaseView::Away);
        if let Some(store) = parts.leases.filter(|_| settings.candidate) {
            let keeper = keep_lease(store, parts.cluster.clone(), me.node.clone(), view);
            let stop = stop.clone();
            tokio::spawn(async move { stop.run_until_cancelled(keeper).await });
        }
        info!(node = %me.node, %address, "listening for the other nodes of the cluster");
        let (changed, changes) = watch::channel(0);
        let actor = Actor::new(Beginning {
            changed,
            cluster: parts.cluster,
            me,
            settings,
            host: parts.host,
            links,
            made,
            rng,
        })?;
        let task = tokio::spawn(actor.run(Sources {
            frames,
            commands: inbox,
            ends: ended,
            made: lists,
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

    /// Where it listens for other nodes.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its metrics.
    #[must_use]
    pub const fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Connects to other nodes for requests that [`Peers`] answer there.
    #[must_use]
    pub const fn dialer(&self) -> &PeerDialer {
        &self.dialer
    }

    /// Tells of every change of members: joined, lost, left, draining. How many there were; what they are, [`Cluster::status`] says.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }

    /// Takes room on this node for an instance that runs already and that no task asked for: one that was found when the process
    /// started. Free again with [`Cluster::ended`]; `None` if there is no room for it.
    ///
    /// # Errors
    /// When the node has stopped.
    pub async fn hold(&self, demand: Resources) -> Result<Option<TaskId>, ClusterError> {
        let (answer, held) = oneshot::channel();
        self.command(Command::Hold(demand, answer)).await?;
        held.await.map_err(|_| ClusterError::Stopped)
    }

    /// Asks for instances anywhere in the cluster. Every task has one outcome, within the time for which it is wanted and some
    /// seconds more.
    ///
    /// # Errors
    /// When the node has stopped.
    pub async fn scale(&self, tasks: Vec<ScalingTask>) -> Result<Outcomes, ClusterError> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.scale_into(tasks, sender).await?;
        Ok(Outcomes(receiver))
    }

    /// As [`Cluster::scale`], with outcomes of many bursts going to one place. No more of them wait there than tasks were asked for.
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

    /// The instance of a task has ended on this node. To be said once for every [`Host::start`]; twice does no harm.
    pub fn ended(&self, task: TaskId) {
        self.end(task, false);
    }

    /// The instance of a task could not be started on this node.
    pub fn failed(&self, task: TaskId) {
        self.end(task, true);
    }

    fn end(&self, task: TaskId, failed: bool) {
        // As many as there are instances here. A node that has stopped has no use for it.
        let _ = self.ends.send(End { task, failed });
    }

    /// This node takes no more instances, or takes some again. What runs goes on running.
    ///
    /// # Errors
    /// When the node has stopped.
    pub async fn drain(&self, draining: bool) -> Result<(), ClusterError> {
        self.command(Command::Drain(draining)).await
    }

    /// An operator's word that a node is dead and will not come back with what it has: for when most members are dead, so that the
    /// others cannot agree on it. If it is not true, tasks that went there may be started twice.
    ///
    /// # Errors
    /// When the node has stopped.
    pub async fn forget(&self, node: NodeId) -> Result<(), ClusterError> {
        self.command(Command::Forget(node)).await
    }

    /// Cuts this node off from others, as a broken network would: for tests of what happens then.
    ///
    /// # Errors
    /// When the node has stopped.
    pub async fn cut(&self, from: Vec<NodeId>) -> Result<(), ClusterError> {
        self.command(Command::Cut(from)).await
    }

    /// How it stands.
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
            // It has stopped if nothing comes.
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

/// For how long the lease on being the head is asked for.
const LEASE: Duration = Duration::from_secs(5);

/// Asks for the lease again and again, and says how it stands.
async fn keep_lease(
    store: Arc<dyn LeaseStore>,
    cluster: ClusterId,
    node: NodeId,
    view: watch::Sender<LeaseView>,
) {
    let mut request = LeaseRequest {
        node,
        epoch: None,
        ttl_ms: u64::try_from(LEASE.as_millis()).unwrap_or(u64::MAX),
    };
    let mut unanswered = Duration::ZERO;
    let pause = LEASE / 4;
    loop {
        match tokio::time::timeout(pause, store.ask(&cluster, &request)).await {
            Ok(Ok(lease)) => {
                unanswered = Duration::ZERO;
                let is_mine = lease.holder == request.node
                    && request.epoch.is_none_or(|epoch| epoch == lease.epoch);
                request.epoch = is_mine.then_some(lease.epoch);
                view.send_replace(if is_mine {
                    LeaseView::Mine
                } else {
                    LeaseView::Others
                });
            }
            Ok(Err(error)) => debug!(%error, "the lease of the head"),
            Err(_) => debug!("the store of the head's lease did not answer in time"),
        }
        tokio::time::sleep(pause).await;
        unanswered += pause;
        if unanswered > LEASE {
            view.send_replace(LeaseView::Away);
        }
    }
}
