//! An agent in this process with one app, whose image is in its cache already.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use bytes::Bytes;
use fdn_core::feed::{AppFrame, Frame};
use fdn_core::manifest::{Manifest, RuntimeKind};
use fdn_core::message::{AppDesired, AppSpec, FunctionSpec};
use fdn_core::workflow::Workflow;
use fdn_core::{Digest, DurationMs, MilliCpu, Revision, VersionNumber};
use fdn_edge_agent::artifacts::Machine;
use fdn_edge_agent::{Agent, Settings};
use fdn_instances::Runtime;
use fdn_link::{Body, Connection, ControllerLink, Feed, FeedEvent, LinkError};
use fdn_service::secret;
use http::{Request, Response};
use tokio::sync::{Notify, mpsc, watch};

/// The app's host name.
pub(crate) const HOST: &str = "bench.fn.test";

pub(crate) struct Rig {
    agent: Agent,
    client: reqwest::Client,
    _folder: tempfile::TempDir,
    /// The other end of its feed.
    told: mpsc::Sender<FeedEvent>,
    _up: watch::Sender<bool>,
}

/// A centre that takes no report.
struct Nobody;

#[async_trait]
impl ControllerLink for Nobody {
    async fn send(&self, _: Request<Bytes>) -> Result<Response<Body>, LinkError> {
        Err(LinkError::NotConnected)
    }
}

/// The manifest of an image.
pub(crate) fn image_manifest() -> Manifest {
    Manifest {
        runtime: RuntimeKind::Docker,
        timeout: DurationMs::from_secs(60),
        ..Manifest::default()
    }
}

impl Rig {
    /// Starts an agent with these settings but for its files and addresses, on `runtime` if one is given, and deploys the image.
    pub(crate) async fn start(
        settings: Settings,
        runtime: Option<Arc<dyn Runtime>>,
        image: &[u8],
        manifest: Manifest,
    ) -> Result<Self> {
        let rig = Self::open(settings, runtime, &[image]).await?;
        rig.tell(desired(image, manifest)?).await?;
        rig.until_taken().await?;
        Ok(rig)
    }

    /// Starts an agent with these settings but for its files and addresses, on `runtime` if one is given, with these artifacts in its cache.
    pub(crate) async fn open(
        settings: Settings,
        runtime: Option<Arc<dyn Runtime>>,
        artifacts: &[&[u8]],
    ) -> Result<Self> {
        let machine = Machine::new(&settings.runtime)?;
        Self::open_on(machine, settings, runtime, artifacts).await
    }

    /// The same, on a machine that it shares with other agents.
    pub(crate) async fn open_on(
        machine: Machine,
        mut settings: Settings,
        runtime: Option<Arc<dyn Runtime>>,
        artifacts: &[&[u8]],
    ) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        settings.data = folder.path().join("agent");
        settings.gateway.listen = any;
        settings.gateway.workers = 1;
        settings.admin.listen = any;
        settings.controller.url = "http://127.0.0.1:9".to_owned();
        // Agents that call each other's stages are given the same one.
        if !settings.network.token_file.is_file() {
            settings.network.token_file = folder.path().join("token");
            secret::read_or_create(&settings.network.token_file)?;
        }
        settings.capacity.cpu_milli = MilliCpu(100_000);
        settings.devices.enabled = false;
        settings.stop.drain = DurationMs::from_millis(0);
        // They are here already: nobody fetches them.
        let components = settings.data.join("cache/components");
        std::fs::create_dir_all(&components)?;
        for artifact in artifacts {
            let name = format!("{}.wasm", Digest::of(artifact).hex());
            std::fs::write(components.join(name), artifact)?;
        }
        let (told, heard) = mpsc::channel(4);
        let (up, connected) = watch::channel(true);
        let connection = Connection {
            controllers: Arc::new(Nobody),
            feed: Feed {
                events: heard,
                connected,
                resync: Arc::new(Notify::new()),
            },
        };
        let agent = Agent::start_with(settings, Some(connection), machine, runtime).await?;
        Ok(Self {
            agent,
            client: fdn_service::http_client::build(Duration::from_secs(60))?,
            _folder: folder,
            told,
            _up: up,
        })
    }

    /// Tells it something, as the centre does.
    pub(crate) async fn tell(&self, frame: Frame) -> Result<()> {
        self.told.send(FeedEvent::Change(frame)).await?;
        Ok(())
    }

    /// Tells it of these apps and that there are no others.
    pub(crate) async fn tell_all(&self, apps: Vec<Frame>) -> Result<()> {
        self.told
            .send(FeedEvent::Snapshot(Revision(1), apps))
            .await?;
        Ok(())
    }

    /// Waits until it knows the app.
    pub(crate) async fn until_taken(&self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.call("/").await? == 404 {
            ensure!(Instant::now() < deadline, "the app is not taken");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Where clients reach it.
    pub(crate) fn gateway_address(&self) -> SocketAddr {
        self.agent.gateway_address()
    }

    /// Where gateways of other clusters call its stages.
    pub(crate) fn stage_address(&self) -> Result<SocketAddr> {
        let address = self.agent.stage_address();
        address.context("it takes stage calls")
    }

    /// Where other nodes of its cluster reach it.
    pub(crate) fn peer_address(&self) -> Result<SocketAddr> {
        let cluster = self.agent.peers().and_then(|peers| peers.cluster());
        Ok(cluster.context("it takes part in a cluster")?.address())
    }

    /// A call through the gateway; its status.
    pub(crate) async fn call(&self, path: &str) -> Result<u16> {
        let url = format!("http://{}{path}", self.agent.gateway_address());
        self.get(&url).await
    }

    /// A call from the same client to anywhere.
    pub(crate) async fn get(&self, url: &str) -> Result<u16> {
        let answer = self.client.get(url).header("host", HOST).send().await?;
        let status = answer.status().as_u16();
        answer.bytes().await?;
        Ok(status)
    }

    /// How long a call that must end 200 takes until its head is here.
    pub(crate) async fn first_byte(&self) -> Result<Duration> {
        let url = format!("http://{}/", self.agent.gateway_address());
        let begin = Instant::now();
        let answer = self.client.get(url).header("host", HOST).send().await?;
        let took = begin.elapsed();
        ensure!(answer.status() == 200, "it ended {}", answer.status());
        answer.bytes().await?;
        Ok(took)
    }

    /// The value of a metric, by the beginning of its line.
    pub(crate) async fn metric(&self, line: &str) -> Result<f64> {
        let url = format!("http://{}/metrics", self.agent.admin_address());
        let text = self.client.get(url).send().await?.text().await?;
        let found = text.lines().find(|l| l.starts_with(line));
        let value = found.and_then(|line| line.rsplit(' ').next()?.parse().ok());
        Ok(value.unwrap_or(0.0))
    }

    pub(crate) async fn stop(self) {
        self.agent.stop().await;
    }
}

fn desired(image: &[u8], manifest: Manifest) -> Result<Frame> {
    app(("bench", HOST), image, manifest)
}

/// What the centre tells of an app of one function, by its name and its host name. No plan uses it: nodes load it at its first call.
pub(crate) fn app((name, host): (&str, &str), image: &[u8], manifest: Manifest) -> Result<Frame> {
    let function: fdn_core::FunctionName = name.parse()?;
    let spec = AppSpec {
        holders: fdn_core::message::Holders::EVERYWHERE,
        host: host.parse()?,
        workflow: Workflow::single(function.clone(), VersionNumber::FIRST),
        functions: vec![FunctionSpec {
            function,
            version: VersionNumber::FIRST,
            digest: Digest::of(image),
            size: image.len() as u64,
            manifest,
            secrets: std::collections::BTreeMap::new(),
            forms: Vec::new(),
        }],
        primary: std::collections::BTreeSet::new(),
        leaving: std::collections::BTreeSet::new(),
        run: None,
        gateway: Box::default(),
        forms: Default::default(),
        tenant: None,
    };
    let desired = AppDesired {
        app: name.parse()?,
        revision: Revision(1),
        spec: Some(spec),
    };
    Ok(Frame::App(Box::new(AppFrame {
        desired,
        secrets: Vec::new(),
    })))
}
