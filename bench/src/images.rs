//! Containers through the whole agent: the first call when none runs, the call of a paused one, and what gateway and scheduler add to
//! the call of a warm one.
//!
//! The image is the testkit's probe from scratch, so that what is measured is the agent and the engine, not a program's own start.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bollard::Docker;
use bollard::models::ContainerSummary;
use bollard::query_parameters::{ListContainersOptionsBuilder, RemoveContainerOptionsBuilder};
use fdn_core::DurationMs;
use fdn_edge_agent::Settings;
use fdn_instances::docker::Network;

use crate::Options;
use crate::rig::{Rig, image_manifest};

/// First calls, and calls of a paused container.
const CALLS: usize = 50;
/// Calls of a warm container each way in one round, in pieces that take turns.
const WARM: usize = 2000;
const PIECE: usize = 100;

pub(crate) fn run(options: &Options) -> Result<()> {
    println!(
        "images: one client through the whole agent to containers of the Docker engine, {CALLS} calls each, from the request to the answer's first byte; ms"
    );
    println!("{:<42} {:>9} {:>9} {:>9}", "", "p50", "p95", "longest");
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?
        .block_on(measure(options))
}

const CREATED: &str = "none runs, one was created";

/// What a call finds, by the containers that are created and the instances that are started and paused ahead.
const AHEAD: [(&str, usize, u32); 3] = [
    ("none runs, nothing is ahead", 0, 0),
    (CREATED, 1, 0),
    ("one was started and paused", 0, 1),
];

/// One way of being ready for a call, on a node of its own.
struct Way {
    what: &'static str,
    ahead: usize,
    standby: u32,
    rig: Rig,
    node: String,
    took: Vec<Duration>,
}

/// The engine, and the image on it.
pub(crate) struct Engine {
    pub(crate) socket: PathBuf,
    client: Docker,
    pub(crate) archive: Vec<u8>,
}

async fn measure(options: &Options) -> Result<()> {
    let engine = Engine::start().await?;
    for (name, network) in [
        ("isolated", Network::Isolated),
        ("host", Network::Host),
        ("bridge", Network::Bridge),
    ] {
        Box::pin(engine.cold(name, network)).await?;
    }
    engine.paused().await?;
    engine.warm(options.rounds).await
}

impl Engine {
    pub(crate) async fn start() -> Result<Self> {
        let socket = fdn_testkit::docker::socket().await;
        let path = socket.display().to_string();
        Ok(Self {
            client: Docker::connect_with_unix(&path, 60, bollard::API_DEFAULT_VERSION)?,
            socket,
            archive: std::fs::read(fdn_testkit::docker::saved_image("bench"))?,
        })
    }

    fn settings(&self, node: &str, network: Network) -> Result<Settings> {
        let mut settings = Settings {
            node: format!("{node}-{}", std::process::id()).parse()?,
            ..Settings::default()
        };
        settings.docker.enabled = true;
        settings.docker.socket.clone_from(&self.socket);
        settings.docker.network = network;
        settings.docker.trusted = network != Network::Isolated;
        Ok(settings)
    }

    async fn rig(&self, settings: Settings) -> Result<Rig> {
        Box::pin(Rig::start(settings, None, &self.archive, image_manifest())).await
    }

    /// Every call finds no instance that serves: each is stopped as soon as its call has ended. What is kept ahead differs, and the ways
    /// take turns call by call.
    async fn cold(&self, name: &str, network: Network) -> Result<()> {
        let mut ways = Vec::new();
        for (what, ahead, standby) in AHEAD {
            // A port that was free once need not be free later: none are created ahead there.
            if network == Network::Host && what == CREATED {
                continue;
            }
            let mut settings = self.settings(&format!("{name}-{ahead}-{standby}"), network)?;
            settings.instances.keep = DurationMs::from_millis(1);
            // One that was started ahead because the engine is slow would be kept for a minute.
            settings.scale.max = 1;
            settings.scale.stable = DurationMs::from_millis(500);
            settings.scale.panic = DurationMs::from_millis(100);
            settings.docker.ahead = ahead;
            settings.instances.standby = standby;
            let node = settings.node.to_string();
            ways.push(Way {
                what,
                ahead: if network == Network::Host { 0 } else { ahead },
                standby,
                rig: self.rig(settings).await?,
                node,
                took: Vec::with_capacity(CALLS),
            });
        }
        for _ in 0..CALLS {
            for way in &mut ways {
                self.until_cold(way).await?;
                way.took.push(way.rig.first_byte().await?);
            }
        }
        for way in ways {
            print(&format!("{name}: {}", way.what), way.took);
            way.rig.stop().await;
            self.remove(&way.node).await?;
        }
        Ok(())
    }

    /// Every call finds its container paused.
    async fn paused(&self) -> Result<()> {
        let mut settings = self.settings("paused", Network::Isolated)?;
        settings.instances.pause_after = DurationMs::from_millis(1);
        let node = settings.node.to_string();
        let line = format!("fdn_agent_instance_pauses_total{{node=\"{node}\",result=\"paused\"}}");
        let rig = self.rig(settings).await?;
        let mut took = Vec::with_capacity(CALLS);
        for call in 1..=CALLS {
            let deadline = Instant::now() + Duration::from_secs(60);
            // It was paused after each call so far.
            while rig.metric(&line).await? < call as f64 {
                ensure!(Instant::now() < deadline, "the container is not paused");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            took.push(rig.first_byte().await?);
        }
        print("its container is paused", took);
        rig.stop().await;
        self.remove(&node).await
    }

    /// The same client calls one container directly and through the gateway. On the node's own network, where both are possible.
    async fn warm(&self, rounds: u32) -> Result<()> {
        let settings = self.settings("warm", Network::Host)?;
        let node = settings.node.to_string();
        let rig = self.rig(settings).await?;
        ensure!(rig.call("/").await? == 200, "the container does not answer");
        let found = self.containers(&node).await?;
        let labels = found.first().and_then(|c| c.labels.as_ref());
        let port = labels.and_then(|labels| labels.get("net.fdn.port"));
        let direct_url = format!("http://127.0.0.1:{}/", port.context("it has a port")?);
        let (mut direct, mut through) = (Vec::new(), Vec::new());
        for _ in 0..rounds as usize * WARM / PIECE {
            for _ in 0..PIECE {
                let begin = Instant::now();
                ensure!(rig.get(&direct_url).await? == 200, "a direct call failed");
                direct.push(begin.elapsed());
            }
            for _ in 0..PIECE {
                let begin = Instant::now();
                ensure!(rig.call("/").await? == 200, "a warm call failed");
                through.push(begin.elapsed());
            }
        }
        let added = median(&mut through) - median(&mut direct);
        print("warm, straight to the container", direct);
        print("warm, through gateway and scheduler", through);
        println!("{:<42} {added:>9.3}", "  added at p50");
        rig.stop().await;
        self.remove(&node).await
    }

    /// Containers of a node, those that have ended included.
    pub(crate) async fn containers(&self, node: &str) -> Result<Vec<ContainerSummary>> {
        let label = format!("net.fdn.node={node}");
        let filters = HashMap::from([("label".to_owned(), vec![label])]);
        let options = ListContainersOptionsBuilder::default().all(true);
        let options = options.filters(&filters).build();
        Ok(self.client.list_containers(Some(options)).await?)
    }

    /// Nothing of the call before is left, and what is to be ahead is there.
    async fn until_cold(&self, way: &Way) -> Result<()> {
        let wanted = way.ahead + way.standby as usize;
        let created = "fdn_docker_containers_ahead";
        let standby = format!(
            "fdn_agent_instances{{node=\"{}\",state=\"standby\"}}",
            way.node
        );
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let created = way.rig.metric(created).await?;
            let standby = way.rig.metric(&standby).await?;
            let is_ahead = created == way.ahead as f64 && standby == f64::from(way.standby);
            if is_ahead && self.containers(&way.node).await?.len() == wanted {
                break;
            }
            ensure!(
                Instant::now() < deadline,
                "a container stays, or is missing"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // The engine clears up after it for a moment.
        tokio::time::sleep(Duration::from_millis(100)).await;
        Ok(())
    }

    pub(crate) async fn remove(&self, node: &str) -> Result<()> {
        for container in self.containers(node).await? {
            let options = RemoveContainerOptionsBuilder::default().force(true).build();
            let id = container.id.unwrap_or_default();
            drop(self.client.remove_container(&id, Some(options)).await);
        }
        Ok(())
    }
}

fn ms(took: Duration) -> f64 {
    took.as_secs_f64() * 1e3
}

fn median(took: &mut [Duration]) -> f64 {
    took.sort_unstable();
    ms(took[(took.len() - 1) / 2])
}

fn print(what: &str, mut took: Vec<Duration>) {
    took.sort_unstable();
    let at = |share: usize| ms(took[(took.len() - 1) * share / 100]);
    println!(
        "{what:<42} {:>9.3} {:>9.3} {:>9.3}",
        at(50),
        at(95),
        at(100)
    );
}
