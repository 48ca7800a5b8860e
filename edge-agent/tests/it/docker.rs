//! The bursts with containers of a real Docker engine: from zero, after `kill -9` of every container, over a slow link, while their number goes
//! up and down, and while idle ones are paused. Every call ends with 200.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bollard::Docker;
use bollard::query_parameters::{KillContainerOptionsBuilder, ListContainersOptionsBuilder};
use fdn_core::manifest::{Manifest, RuntimeKind};
use fdn_core::{ByteSize, DurationMs, MilliCpu};
use fdn_edge_agent::artifacts::Machine;
use fdn_edge_agent::{Agent, Settings};
use fdn_instances::Owner;
use fdn_instances::docker::{DockerOptions, DockerRuntime, Network as Mode};
use fdn_testkit::wait;

use crate::bursts::{burst, deployed};
use crate::support::Network;
use crate::support::link::Far;

/// The manifest of the probe, of which twenty fit two cores.
fn probe() -> Manifest {
    Manifest {
        runtime: RuntimeKind::Docker,
        timeout: DurationMs::from_secs(60),
        cpu_milli: MilliCpu(100),
        memory: ByteSize::from_mib(32),
        expected: DurationMs::from_millis(20),
        ..Manifest::default()
    }
}

fn archive(note: &str) -> Vec<u8> {
    let path = fdn_testkit::docker::saved_image(note);
    std::fs::read(path).expect("the archive was written")
}

/// The engine, accessed without the agent.
struct Engine {
    socket: PathBuf,
    client: Docker,
}

impl Engine {
    async fn start() -> Self {
        let socket = fdn_testkit::docker::socket().await;
        let path = socket.display().to_string();
        let client = Docker::connect_with_unix(&path, 60, bollard::API_DEFAULT_VERSION);
        Self {
            socket,
            client: client.expect("a socket"),
        }
    }

    /// Settings of a node with this engine and two cores, whatever the machine has.
    fn settings(&self, network: &Network, node: &str) -> Settings {
        let mut settings = network.settings(node);
        settings.docker.enabled = true;
        settings.docker.socket.clone_from(&self.socket);
        settings.capacity.cpu_milli = MilliCpu(2000);
        settings.docker.engine_timeout = DurationMs::from_secs(60);
        settings
    }

    /// The running containers of a node.
    async fn running(&self, node: &str) -> Vec<String> {
        let label = format!("net.fdn.node={node}");
        let filters = HashMap::from([("label".to_owned(), vec![label])]);
        let options = ListContainersOptionsBuilder::default().filters(&filters);
        let listed = self.client.list_containers(Some(options.build())).await;
        let listed = listed.expect("the engine answers");
        listed.into_iter().filter_map(|found| found.id).collect()
    }

    /// Kills every container of a node with SIGKILL; returns how many there were.
    async fn kill_all(&self, node: &str) -> usize {
        let running = self.running(node).await;
        let kills = running.iter().map(|id| {
            let options = KillContainerOptionsBuilder::default().signal("SIGKILL");
            self.client.kill_container(id, Some(options.build()))
        });
        let killed = futures::future::join_all(kills).await;
        killed.iter().filter(|killed| killed.is_ok()).count()
    }

    async fn until_none(&self, node: &str) {
        wait::until("the last container to go", async || {
            match self.running(node).await.len() {
                0 => Ok(()),
                left => Err(format!("{left} containers")),
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_from_zero_after_a_kill_and_over_a_slow_link() {
    Box::pin(bursts_of(8)).await;
}

async fn bursts_of(size: usize) {
    let _turn = fdn_testkit::exclusive::lock().await;
    let engine = Engine::start().await;
    let network = Network::start().await;
    let archive = archive("bursts");
    let mut good = 0;
    let agent = network.agent(engine.settings(&network, "near-1")).await;
    deployed(&network, "probe", &archive, probe()).await;
    assert_eq!(engine.running("near-1").await.len(), 0, "from zero");
    for round in ["from zero", "after kill -9 of every container"] {
        if round != "from zero" {
            assert!(engine.kill_all("near-1").await > 0);
        }
        let (served, others) = burst(&network, &agent, "probe", size).await;
        assert!(others.is_empty(), "{round}: {others:?}");
        good += served;
    }
    agent.stop().await;
    engine.kill_all("near-1").await;

    let owner = Owner {
        cluster: "eu-west".parse().expect("cluster"),
        node: "far-1".parse().expect("node"),
    };
    let options = DockerOptions {
        socket: engine.socket.clone(),
        folder: Some(network.folder.path().join("containers")),
        engine_timeout: wait::PATIENCE,
        ..DockerOptions::default()
    };
    let near_end = DockerRuntime::connect(owner, options).await;
    let link = Arc::new(Far {
        near: Arc::new(near_end.expect("the engine answers")),
        delay: Duration::from_millis(75),
    });
    let mut settings = engine.settings(&network, "far-1");
    settings.docker.enabled = false;
    let agent = network.agent_with(settings, link).await;
    network.until_text(&agent, "probe", "hello").await;
    assert!(engine.kill_all("far-1").await > 0);
    let (served, others) = burst(&network, &agent, "probe", size).await;
    assert!(others.is_empty(), "150 ms link: {others:?}");
    good += served;
    assert_eq!(good, 3 * size);
    agent.stop().await;
    engine.kill_all("far-1").await;
}

/// How often pauses on this node had this result.
async fn pauses(network: &Network, agent: &Agent, result: &str) -> f64 {
    let line = format!(r#"fdn_agent_instance_pauses_total{{node="paused-1",result="{result}"}}"#);
    network.metric(agent, &line).await.unwrap_or(0.0)
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_containers_wake_for_calls_and_those_that_are_killed_are_replaced() {
    Box::pin(paused_and_woken(3)).await;
}

async fn paused_and_woken(times: usize) {
    let _turn = fdn_testkit::exclusive::lock().await;
    let engine = Engine::start().await;
    let network = Network::start().await;
    let mut settings = engine.settings(&network, "paused-1");
    settings.instances.pause_after = DurationMs::from_millis(1);
    let agent = network.agent(settings).await;
    deployed(&network, "probe", archive("paused"), probe()).await;
    assert_eq!(network.text(&agent, "probe").await, "hello");
    let mut before = 0.0;
    let mut until_paused = async || {
        before = wait::until("the container to be paused again", async || {
            match pauses(&network, &agent, "paused").await {
                count if count > before => Ok(count),
                count => Err(count),
            }
        })
        .await;
    };
    let first = engine.running("paused-1").await;
    for _ in 0..times {
        until_paused().await;
        assert_eq!(network.text(&agent, "probe").await, "hello");
    }
    assert_eq!(
        engine.running("paused-1").await,
        first,
        "always the same one"
    );
    assert_eq!(pauses(&network, &agent, "not_resumed").await, 0.0);
    until_paused().await;
    assert_eq!(engine.kill_all("paused-1").await, 1);
    let (served, others) = burst(&network, &agent, "probe", 10).await;
    assert_eq!((served, others), (10, Vec::new()));
    agent.stop().await;
    engine.kill_all("paused-1").await;
}

/// An agent does not start if functions' containers could reach its node, unless its operator declares every function trusted.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_does_not_start_where_containers_would_reach_its_node() {
    let network = Network::start().await;
    let engine = Engine::start().await;
    for (mode, trusted) in [
        (Mode::Bridge, false),
        (Mode::Host, false),
        (Mode::Bridge, true),
    ] {
        let mut settings = engine.settings(&network, "reach-1");
        (settings.docker.network, settings.docker.trusted) = (mode, trusted);
        let machine = Machine::new(&settings.runtime).expect("an engine");
        match network.try_agent(settings, machine, None).await {
            Ok(agent) => {
                assert!(trusted, "{mode:?}");
                agent.stop().await;
            }
            Err(error) => {
                let told = format!("{error:?}");
                assert!(!trusted && told.contains("trusted = true"), "{told}");
            }
        }
    }
}

mod soak {
    use super::*;
    use crate::bursts::{burst_of, most_during, up_and_down};

    #[tokio::test(flavor = "multi_thread")]
    async fn bursts_of_fifty_from_zero_after_a_kill_and_over_a_slow_link() {
        Box::pin(bursts_of(50)).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn paused_containers_wake_again_and_again() {
        Box::pin(paused_and_woken(20)).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_thousand_calls_while_containers_go_from_0_to_20_to_0() {
        let _turn = fdn_testkit::exclusive::lock().await;
        let engine = Engine::start().await;
        let network = Network::start().await;
        let mut settings = engine.settings(&network, "scaled-1");
        settings.scale.stable = DurationMs::from_millis(1000);
        settings.scale.panic = DurationMs::from_millis(200);
        settings.scale.interval = DurationMs::from_millis(50);
        settings.instances.keep = DurationMs::from_millis(300);
        let agent = network.agent(settings).await;
        deployed(&network, "probe", archive("scaled"), probe()).await;
        let mut served = 0;
        // Two cores are twenty tenths.
        up_and_down(async |count| {
            let calls = burst_of(&network, &agent, ("probe", "/sleep/200"), count);
            let running = async || engine.running("scaled-1").await.len();
            let ((good, others), most) = most_during(calls, running).await;
            assert!(others.is_empty(), "{others:?}");
            served += good;
            most
        })
        .await;
        assert!(served >= 1000, "{served}");
        engine.until_none("scaled-1").await;
        wait::until("what they held to be free", async || {
            let line = r#"fdn_agent_held{node="scaled-1",what="cpu_of_instances"}"#;
            match network.metric(&agent, line).await {
                Some(0.0) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
        assert_eq!(
            network.text(&agent, "probe").await,
            "hello",
            "and from zero again"
        );
        agent.stop().await;
        engine.kill_all("scaled-1").await;
    }
}
