//! A workflow of five stages over two clusters, cold: none of its containers runs when a call comes. With and without starting them before their calls.
//!
//! ```text
//! in (Wasm, eu-west) ─▶ detect (container, us-east) ─▶ resize (container, us-east) ─▶ text (Wasm, eu-west) ─▶ join (container, eu-west)
//! ```
//!
//! Components are loaded when they are deployed and stay so: what is cold of a workflow are its containers. Each way has two agents of its own, in this
//! process, with one-way delays of [`DELAY_MS`] between them, on one Docker engine; the ways take turns run by run, and a run begins when no container of
//! the one before is left.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fdn_core::feed::{AppFrame, Frame};
use fdn_core::fleet::FleetDesired;
use fdn_core::manifest::Manifest;
use fdn_core::message::{AppDesired, AppSpec, FunctionSpec, Holders};
use fdn_core::workflow::{Declaration, FunctionLookup, RunSpec};
use fdn_core::{ClusterId, Digest, DurationMs, Revision, VersionNumber};
use fdn_edge_agent::Settings;
use fdn_instances::docker::Network;
use fdn_service::secret;
use fdn_testkit::components;
use serde::Serialize;

use crate::Options;
use crate::images::Engine;
use crate::rig::{HOST, Rig, image_manifest};

/// One way between the clusters.
const DELAY_MS: u64 = 40;
/// Runs of each way, whatever the rounds: one takes five seconds.
const RUNS: usize = 10;
/// After so long a stage is not taken for warm because it has answered.
const REST: Duration = Duration::from_millis(1200);
const CLUSTERS: [&str; 2] = ["eu-west", "us-east"];
const STAGES: &str = "
stages:
  - { name: in, function: component }
  - { name: detect, function: container, needs: [in] }
  - { name: resize, function: container, needs: [detect] }
  - { name: text, function: component, needs: [resize] }
  - { name: join, function: container, needs: [text] }
";
const AWAY: [&str; 2] = ["detect", "resize"];

/// End-to-end times of one way, in ms.
#[derive(Debug, Serialize)]
struct Figures {
    runs: usize,
    median: f64,
    p99: f64,
    longest: f64,
    /// Stages that had an instance started before their call.
    started_ahead: f64,
}

/// A network of two agents.
struct Pair {
    what: &'static str,
    nodes: [String; 2],
    rigs: [Rig; 2],
    took: Vec<f64>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    println!(
        "workflow-cold: five stages over two clusters {DELAY_MS} ms apart, three of them containers of which none runs; {} runs each way, in turns; ms from the call to the last byte",
        RUNS
    );
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?
        .block_on(measure(options))
}

async fn measure(options: &Options) -> Result<()> {
    let engine = Engine::start().await?;
    let folder = tempfile::tempdir()?;
    let token = folder.path().join("token");
    secret::read_or_create(&token)?;
    let mut pairs = Vec::new();
    for (what, prewarm) in [("without", 0), ("with", 10)] {
        let prewarm = DurationMs::from_secs(prewarm);
        pairs.push(Pair::start(options, &engine, &token, what, prewarm).await?);
    }
    // The first run of each way is left out: it also fills the engine's caches.
    for pair in &mut pairs {
        pair.run(&engine).await?;
        pair.took.clear();
    }
    for _ in 0..RUNS {
        for pair in &mut pairs {
            pair.run(&engine).await?;
        }
    }
    println!(
        "{:<10} {:>9} {:>9} {:>9} {:>14}",
        "", "median", "p99", "longest", "started ahead"
    );
    let mut all = BTreeMap::new();
    for pair in pairs {
        let (what, figures) = pair.end(&engine).await?;
        println!(
            "{what:<10} {:>9.1} {:>9.1} {:>9.1} {:>14}",
            figures.median, figures.p99, figures.longest, figures.started_ahead
        );
        all.insert(what, figures);
    }
    if let Some(file) = &options.json {
        std::fs::write(file, serde_json::to_vec_pretty(&all)?)
            .with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(())
}

impl Pair {
    async fn start(
        options: &Options,
        engine: &Engine,
        token: &PathBuf,
        what: &'static str,
        prewarm: DurationMs,
    ) -> Result<Self> {
        let component = components::echo();
        let artifacts = [&component[..], &engine.archive[..]];
        let (mut rigs, mut nodes) = (Vec::new(), Vec::new());
        for cluster in CLUSTERS {
            let mut settings = Settings {
                node: format!("{what}-{cluster}-{}", std::process::id()).parse()?,
                cluster: cluster.parse()?,
                ..Settings::default()
            };
            settings.network.token_file.clone_from(token);
            settings.compile.worker = Some(options.binaries.join("fdn-edge-agent"));
            settings.docker.enabled = true;
            settings.docker.socket.clone_from(&engine.socket);
            settings.docker.network = Network::Isolated;
            settings.docker.ahead = 0;
            // Every instance is stopped as soon as its call has ended.
            settings.instances.keep = DurationMs::from_millis(1);
            settings.scale.stable = DurationMs::from_millis(500);
            settings.scale.panic = DurationMs::from_millis(100);
            settings.scale.max = 1;
            settings.workflows.enabled = true;
            settings.workflows.plaintext = true;
            settings.workflows.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            settings.workflows.prewarm = prewarm;
            let others = CLUSTERS.iter().filter(|other| **other != cluster);
            for other in others {
                let delay = DurationMs::from_millis(DELAY_MS);
                settings
                    .workflows
                    .emulate_delay
                    .insert(other.parse()?, delay);
            }
            nodes.push(settings.node.to_string());
            rigs.push(Rig::open(settings, None, &artifacts).await?);
        }
        let rigs: [Rig; 2] = rigs.try_into().ok().context("two agents")?;
        let mut addresses = BTreeMap::new();
        for (cluster, rig) in CLUSTERS.iter().zip(&rigs) {
            addresses.insert(cluster.parse()?, vec![rig.stage_address()?]);
        }
        for rig in &rigs {
            rig.tell(Frame::Fleet(FleetDesired {
                revision: Revision(1),
                stage_calls: addresses.clone(),
                ..FleetDesired::default()
            }))
            .await?;
            rig.tell(workflow(&component, &engine.archive)?).await?;
        }
        for rig in &rigs {
            rig.until_taken().await?;
        }
        let pair = Self {
            what,
            nodes: nodes.try_into().ok().context("two agents")?,
            rigs,
            took: Vec::new(),
        };
        pair.until_ready().await?;
        Ok(pair)
    }

    /// Until every stage is answered by both.
    async fn until_ready(&self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(120);
        for rig in &self.rigs {
            while rig.call("/").await? != 200 {
                ensure!(Instant::now() < deadline, "the workflow does not answer");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        Ok(())
    }

    /// One run that finds nothing.
    async fn run(&mut self, engine: &Engine) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(60);
        for node in &self.nodes {
            while !engine.containers(node).await?.is_empty() {
                ensure!(Instant::now() < deadline, "a container stays");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        tokio::time::sleep(REST).await;
        let begin = Instant::now();
        let status = self.rigs[0].call("/").await?;
        let took = begin.elapsed().as_secs_f64() * 1e3;
        ensure!(status == 200, "a run ended {status}");
        self.took.push(took);
        Ok(())
    }

    async fn end(mut self, engine: &Engine) -> Result<(&'static str, Figures)> {
        let mut started_ahead = 0.0;
        for place in ["here", "away"] {
            let node = &self.nodes[0];
            let line = format!(
                "fdn_agent_stage_prewarms_total{{node=\"{node}\",outcome=\"started\",where=\"{place}\"}}"
            );
            started_ahead += self.rigs[0].metric(&line).await?;
        }
        self.took.sort_by(f64::total_cmp);
        let at = |share: usize| self.took[(self.took.len() - 1) * share / 100];
        let figures = Figures {
            runs: self.took.len(),
            median: at(50),
            p99: at(99),
            longest: at(100),
            started_ahead,
        };
        for (rig, node) in self.rigs.into_iter().zip(&self.nodes) {
            rig.stop().await;
            engine.remove(node).await?;
        }
        Ok((self.what, figures))
    }
}

/// The workflow as the centre tells of it, for calls that come to eu-west.
fn workflow(component: &[u8], image: &[u8]) -> Result<Frame> {
    let declared = Declaration::parse(STAGES).context("the workflow")?;
    let definition = declared.resolve(|_, _| FunctionLookup::Version(VersionNumber::FIRST));
    let definition = definition.ok().context("the workflow")?;
    let function = |name: &str, artifact: &[u8], manifest: Manifest| -> Result<FunctionSpec> {
        Ok(FunctionSpec {
            function: name.parse()?,
            version: VersionNumber::FIRST,
            digest: Digest::of(artifact),
            size: artifact.len() as u64,
            manifest,
            secrets: BTreeMap::new(),
            forms: Vec::new(),
        })
    };
    let [eu, us]: [ClusterId; 2] = [CLUSTERS[0].parse()?, CLUSTERS[1].parse()?];
    let mut places = BTreeMap::new();
    for stage in AWAY {
        places.insert(stage.parse()?, us.clone());
    }
    let spec = AppSpec {
        holders: Holders::EVERYWHERE,
        host: HOST.parse()?,
        functions: vec![
            function("component", component, Manifest::default())?,
            function("container", image, image_manifest())?,
        ],
        workflow: definition.workflow,
        primary: BTreeSet::from([eu.clone(), us]),
        leaving: BTreeSet::new(),
        run: Some(Box::new(RunSpec {
            timeout: definition.timeout,
            rules: definition.rules,
            placement: BTreeMap::from([(eu, places)]),
        })),
        gateway: Box::default(),
        forms: Default::default(),
        tenant: None,
    };
    Ok(Frame::App(Box::new(AppFrame {
        desired: AppDesired {
            app: "bench".parse()?,
            revision: Revision(2),
            spec: Some(spec),
        },
        secrets: Vec::new(),
    })))
}
