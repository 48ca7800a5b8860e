//! Agents of one cluster, each with an engine of its own, on loopback addresses.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fdn_cluster::ClusterStatus;
use fdn_core::device::Percent;
use fdn_core::{DurationMs, MilliCpu};
use fdn_edge_agent::artifacts::Machine;
use fdn_edge_agent::{Agent, Settings};
use fdn_instances::fake::{FakeEngine, FakeProgram};
use fdn_instances::full_body;
use fdn_testkit::wait;
use tokio::sync::watch;

use super::Network;
use crate::bursts::runtime;

/// The CPU of one instance ([`crate::bursts::container`]).
pub(crate) const INSTANCE: u64 = 10;

/// A node of the cluster.
pub(crate) struct Member {
    pub(crate) agent: Agent,
    pub(crate) engine: Arc<FakeEngine>,
    /// The calls that run here, now and at most.
    pub(crate) load: Load,
}

/// The number of calls that run in the instances of one engine.
#[derive(Clone, Default)]
pub(crate) struct Load {
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Load {
    pub(crate) fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }

    pub(crate) fn now(&self) -> usize {
        self.now.load(Ordering::SeqCst)
    }
}

/// Counts a call while it runs.
struct Running(Load, watch::Sender<usize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
        self.1.send_modify(|all| *all -= 1);
    }
}

/// A barrier for calls: each answers once this many run at the same time on all nodes together, or the gate was opened.
#[derive(Clone)]
pub(crate) struct Meeting {
    all: watch::Sender<usize>,
    open: watch::Sender<bool>,
    size: usize,
}

impl Meeting {
    pub(crate) fn of(size: usize) -> Self {
        Self {
            all: watch::Sender::new(0),
            open: watch::Sender::new(size == 0),
            size,
        }
    }

    pub(crate) fn open(&self) {
        self.open.send_replace(true);
    }

    /// A program whose calls wait at this barrier, on one engine.
    pub(crate) fn program(&self, load: &Load) -> FakeProgram {
        let (meeting, load) = (self.clone(), load.clone());
        FakeProgram::new(move |_, _| {
            let (meeting, load) = (meeting.clone(), load.clone());
            async move {
                let now = load.now.fetch_add(1, Ordering::SeqCst) + 1;
                load.most.fetch_max(now, Ordering::SeqCst);
                meeting.all.send_modify(|all| *all += 1);
                let _running = Running(load, meeting.all.clone());
                if *meeting.all.borrow() >= meeting.size {
                    meeting.open();
                }
                let mut open = meeting.open.subscribe();
                open.wait_for(|open| *open)
                    .await
                    .expect("the meeting lasts");
                http::Response::new(full_body("met"))
            }
        })
    }
}

/// Settings of a node of a cluster with room for this many instances.
pub(crate) fn settings(
    network: &Network,
    node: &str,
    room: u64,
    seed: Option<SocketAddr>,
) -> Settings {
    let mut settings = network.settings(node);
    // A node without room for an instance is a gateway only.
    settings.capacity.cpu_milli = MilliCpu((room * INSTANCE).max(INSTANCE / 2));
    // These tests fill nodes with one app.
    settings.admission.app_share = Percent::WHOLE;
    settings.admission.tenant_share = Percent::WHOLE;
    settings.peers.enabled = true;
    settings.peers.cluster.listen = SocketAddr::from(([127, 0, 0, 1], 0));
    settings.peers.cluster.plaintext = true;
    settings.peers.cluster.seeds = seed.into_iter().collect();
    settings.peers.cluster.founder = seed.is_none();
    // A dead node is given up after a while, one that is only slow is not.
    let timing = &mut settings.peers.cluster.timing;
    timing.wanted = DurationMs::from_secs(50);
    timing.lease = DurationMs::from_secs(8);
    timing.suspect_after = DurationMs::from_secs(4);
    timing.dead_after = DurationMs::from_secs(12);
    timing.connect = DurationMs::from_secs(30);
    timing.keep_alive = DurationMs::from_secs(30);
    settings.peers.orphan_after = DurationMs::from_secs(45);
    settings
}

/// The address of an agent for other nodes.
pub(crate) fn address(agent: &Agent) -> SocketAddr {
    let peers = agent.peers().expect("it takes part");
    peers.cluster().expect("it has started").address()
}

impl Member {
    pub(crate) async fn start(
        network: &Network,
        settings: Settings,
        image: &str,
        meeting: &Meeting,
    ) -> Self {
        let (engine, load) = (FakeEngine::new(), Load::default());
        engine.add_image(image, meeting.program(&load));
        let runtime = runtime(&engine, settings.node.as_str());
        // Boxed, because settings are large and part of every test's future.
        let agent = Box::pin(network.agent_with(settings, runtime)).await;
        Self {
            agent,
            engine,
            load,
        }
    }
}

/// Starts a cluster with this much room on each node, and waits until all know each other.
pub(crate) async fn cluster(
    network: &Network,
    rooms: &[u64],
    image: &str,
    meeting: &Meeting,
) -> Vec<Member> {
    let mut members: Vec<Member> = Vec::new();
    for (number, room) in (1..).zip(rooms) {
        let seed = members.first().map(|first| address(&first.agent));
        let settings = settings(network, &format!("n-{number}"), *room, seed);
        members.push(Box::pin(Member::start(network, settings, image, meeting)).await);
    }
    for member in &members {
        until_status(&member.agent, |status| is_whole(status, rooms.len())).await;
    }
    members
}

/// Whether a node is one of this many members, with a quorum and a head.
pub(crate) fn is_whole(status: &ClusterStatus, members: usize) -> bool {
    status.joined
        && status.quorum
        && status.head.is_some()
        && status.members.len() == members
        && status
            .members
            .iter()
            .all(|one| one.connected || one.node == status.node)
}

/// Waits until a node's view of its cluster satisfies `wanted`.
pub(crate) async fn until_status(agent: &Agent, wanted: impl Fn(&ClusterStatus) -> bool) {
    let peers = agent.peers().expect("it takes part");
    let cluster = peers.cluster().expect("it has started");
    wait::until("the cluster to be as wanted", async || {
        let status = cluster.status().await.map_err(|error| error.to_string())?;
        if wanted(&status) {
            Ok(())
        } else {
            Err(format!("{status:?}"))
        }
    })
    .await;
}

/// An agent on a tokio runtime of its own, which can be killed like a machine that loses power.
pub(crate) struct Mortal {
    runtime: tokio::runtime::Runtime,
    pub(crate) address: SocketAddr,
    pub(crate) gateway: SocketAddr,
    /// Never dropped, because it is killed.
    _agent: std::mem::ManuallyDrop<Agent>,
}

impl Mortal {
    pub(crate) async fn start(
        network: &Network,
        settings: Settings,
        engine: &Arc<FakeEngine>,
    ) -> Self {
        let instances = runtime(engine, settings.node.as_str());
        let own = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        network.knows(settings.node.clone());
        let connection = {
            // The connection's tasks end with the agent's runtime.
            let _own = own.enter();
            Some(network.connection(&settings))
        };
        let machine = Machine::new(&settings.runtime).expect("an engine");
        let starting = own.spawn(Agent::start_with(
            settings,
            connection,
            machine,
            Some(instances),
        ));
        let agent = starting.await.expect("it runs").expect("the agent starts");
        Self {
            address: address(&agent),
            gateway: agent.gateway_address(),
            _agent: std::mem::ManuallyDrop::new(agent),
            runtime: own,
        }
    }

    pub(crate) fn agent(&self) -> &Agent {
        &self._agent
    }

    /// Ends all its tasks and sockets at once.
    pub(crate) fn kill(self) {
        self.runtime.shutdown_background();
    }
}
