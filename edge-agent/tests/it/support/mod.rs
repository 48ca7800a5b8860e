//! A network of one controller and the agents that a test starts.

mod certify;
mod controller;
pub(crate) mod identity;
pub(crate) mod killable;
pub(crate) mod link;
pub(crate) mod peers;
pub(crate) mod workflows;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fdn_core::enrol::NodeIdentity;
use fdn_core::feed::Frame;
use fdn_core::fleet::FleetDesired;
use fdn_core::manifest::Manifest;
use fdn_core::message::{AppDesired, AppPhase, AppSpec, FunctionSpec, Message};
use fdn_core::policy::GatewaySpec;
use fdn_core::workflow::Workflow;
use fdn_core::{
    AppName, ByteSize, ClusterId, Digest, DurationMs, FunctionName, NodeId, Revision, Timestamp,
    VersionNumber,
};
use fdn_edge_agent::artifacts::Machine;
use fdn_edge_agent::{Agent, Settings};
use fdn_instances::Runtime;
use fdn_link::{Connection, ControllerLinkSettings, Link, LinkMetrics};
use fdn_service::pki::Bearer;
use fdn_service::pki::tls::{self, Credentials};
use fdn_service::{CancellationToken, http_client, secret};
use fdn_testkit::wait;
use reqwest::header::HOST;
use reqwest::{Client, RequestBuilder, Response};
use tempfile::TempDir;

pub(crate) use controller::FakeController;

/// The network of one test.
pub(crate) struct Network {
    pub(crate) folder: TempDir,
    pub(crate) controller: FakeController,
    pub(crate) client: Client,
    /// The credentials with which the network's controller calls nodes.
    pub(crate) credentials: Credentials,
    asker: Client,
    /// The clusters of the started nodes.
    clusters: Mutex<BTreeMap<NodeId, ClusterId>>,
    revision: AtomicU64,
    /// The started nodes.
    nodes: Mutex<BTreeSet<NodeId>>,
    /// Cancelled to end the connections of nodes.
    stop: CancellationToken,
}

impl Network {
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().expect("folder");
        secret::read_or_create(&folder.path().join("token")).expect("token");
        let controller = FakeController::start().await;
        let bearer = Bearer::Controller("fdn://controller/test".parse().expect("a controller"));
        let end = Timestamp(fdn_service::now().get() + 864_000_000);
        let credentials = controller.credentials(bearer, end);
        Self {
            asker: asker(&credentials),
            credentials,
            clusters: Mutex::default(),
            controller,
            client: http_client::build(Duration::from_secs(60)).expect("client"),
            revision: AtomicU64::new(0),
            nodes: Mutex::default(),
            stop: CancellationToken::new(),
            folder,
        }
    }

    /// Settings of a node of this network, small enough for many at the same time.
    pub(crate) fn settings(&self, node: &str) -> Settings {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut settings = Settings {
            node: node.parse().expect("node"),
            cluster: "eu-west".parse().expect("cluster"),
            region: "eu-west".parse().expect("region"),
            data: self.folder.path().join(node),
            ..Settings::default()
        };
        settings.gateway.listen = any;
        settings.gateway.workers = 1;
        settings.admin.listen = any;
        settings.workflows.listen = any;
        settings.centre = self.centre();
        settings.network.token_file = self.folder.path().join("token");
        settings.compile.worker = Some(PathBuf::from(env!("CARGO_BIN_EXE_fdn-edge-agent")));
        settings.runtime.max_instances = 50;
        settings.runtime.max_memory = ByteSize::from_mib(64);
        settings.apps.retry_first = DurationMs::from_millis(50);
        settings.apps.retry_max = DurationMs::from_millis(200);
        settings.reports.status_interval = DurationMs::from_millis(100);
        settings.usage.seal_after = DurationMs::from_millis(50);
        settings.usage.retry_first = DurationMs::from_millis(10);
        settings.usage.retry_max = DurationMs::from_millis(50);
        // No test may depend on the machine's own devices.
        settings.devices.enabled = false;
        settings.stop.drain = DurationMs::from_millis(0);
        settings.stop.grace = DurationMs::from_secs(10);
        lengthen(&mut settings);
        settings
    }

    pub(crate) async fn agent(&self, settings: Settings) -> Agent {
        self.nodes
            .lock()
            .expect("lock")
            .insert(settings.node.clone());
        let machine = Machine::new(&settings.runtime).expect("an engine");
        self.start_agent(settings, machine, None).await
    }

    /// How nodes reach the controller.
    fn centre(&self) -> ControllerLinkSettings {
        ControllerLinkSettings {
            controllers: vec![self.controller.address()],
            spread: DurationMs::from_millis(0),
            retry_first: DurationMs::from_millis(50),
            retry_max: DurationMs::from_millis(200),
            connect_timeout: DurationMs::from_secs(50),
            answer_timeout: DurationMs::from_secs(50),
            ..ControllerLinkSettings::default()
        }
    }

    /// The connection of a node, whatever certificates it shows to other nodes.
    pub(crate) fn connection(&self, settings: &Settings) -> Connection {
        let folder = self.folder.path().join(settings.node.as_str());
        let files = self
            .controller
            .identity(&folder, &settings.node, &settings.cluster);
        let registry = prometheus::Registry::new();
        let metrics = LinkMetrics::new(&registry, "fdn_agent").expect("metrics");
        let stop = self.stop.child_token();
        Link::start(&settings.centre, files, metrics, stop).expect("an identity")
    }

    /// Starts an agent with a connection, on an engine.
    pub(crate) async fn start_agent(
        &self,
        settings: Settings,
        machine: Machine,
        runtime: Option<Arc<dyn Runtime>>,
    ) -> Agent {
        let starting = Box::pin(self.try_agent(settings, machine, runtime));
        starting.await.expect("the agent starts")
    }

    /// The same; returns the error if it does not start.
    pub(crate) async fn try_agent(
        &self,
        mut settings: Settings,
        machine: Machine,
        runtime: Option<Arc<dyn Runtime>>,
    ) -> Result<Agent, fdn_edge_agent::Error> {
        if settings.tls.certificate.is_none() {
            // A separate copy, so that new authorities cannot cut it off from the controller.
            let folder = self
                .folder
                .path()
                .join(settings.node.as_str())
                .join("shown");
            let known = &self.controller;
            let files = known.identity(&folder, &settings.node, &settings.cluster);
            settings.tls.ca = Some(files.ca);
            settings.tls.certificate = Some(files.certificate);
            settings.tls.key = Some(files.key);
        }
        let (node, cluster) = (settings.node.clone(), settings.cluster.clone());
        self.clusters.lock().expect("lock").insert(node, cluster);
        let connection = Some(self.connection(&settings));
        Box::pin(Agent::start_with(settings, connection, machine, runtime)).await
    }

    /// An agent whose container images run in `runtime`.
    pub(crate) async fn agent_with(&self, settings: Settings, runtime: Arc<dyn Runtime>) -> Agent {
        self.nodes
            .lock()
            .expect("lock")
            .insert(settings.node.clone());
        let machine = Machine::new(&settings.runtime).expect("an engine");
        self.start_agent(settings, machine, Some(runtime)).await
    }

    /// Adds a node that must know further deployments before a test goes on.
    pub(crate) fn knows(&self, node: NodeId) {
        self.nodes.lock().expect("lock").insert(node);
    }

    /// Removes a node that is gone.
    pub(crate) fn forgets(&self, node: &str) {
        let node: NodeId = node.parse().expect("node");
        self.nodes.lock().expect("lock").remove(&node);
    }

    /// A controller's request to an agent.
    pub(crate) fn ask(&self, agent: &Agent, target: &str) -> RequestBuilder {
        self.asker.get(self.asked_at(agent, target))
    }

    /// The URL of an agent for controllers.
    pub(crate) fn asked_at(&self, agent: &Agent, target: &str) -> String {
        let clusters = self.clusters.lock().expect("lock");
        let node = NodeIdentity {
            cluster: clusters[agent.node()].clone(),
            node: agent.node().clone(),
        };
        let host = tls::host(&node, Ipv4Addr::LOCALHOST.into());
        let port = agent.controller_port().expect("it can be asked");
        format!("https://{host}:{port}{target}")
    }

    pub(crate) fn next_revision(&self) -> Revision {
        Revision(self.revision.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Stores a component at the controller, makes it the app's current version and tells the nodes.
    pub(crate) async fn deploy(
        &self,
        app: &str,
        version: u32,
        component: &[u8],
        manifest: Manifest,
    ) -> Revision {
        self.deploy_where(app, version, component, manifest, true)
            .await
    }

    pub(crate) async fn deploy_where(
        &self,
        app: &str,
        version: u32,
        component: &[u8],
        manifest: Manifest,
        primary: bool,
    ) -> Revision {
        self.controller.store(component);
        let desired = self.desired(app, version, component, manifest, primary);
        let revision = desired.revision;
        self.controller.set(desired.clone());
        self.tell(desired).await;
        self.until_known(app, revision).await;
        revision
    }

    /// The desired state of an app of one function, with a new revision; not sent yet.
    pub(crate) fn desired(
        &self,
        app: &str,
        version: u32,
        component: &[u8],
        manifest: Manifest,
        primary: bool,
    ) -> AppDesired {
        let app: AppName = app.parse().expect("app");
        let function: FunctionName = app.clone().into();
        let version = VersionNumber::try_from(version).expect("version");
        let primary: BTreeSet<_> = if primary {
            ["eu-west".parse().expect("cluster")].into()
        } else {
            BTreeSet::new()
        };
        AppDesired {
            revision: self.next_revision(),
            spec: Some(AppSpec {
                holders: fdn_core::message::Holders::EVERYWHERE,
                host: host(app.as_str()).parse().expect("host"),
                workflow: Workflow::single(function.clone(), version),
                functions: vec![FunctionSpec {
                    function,
                    version,
                    digest: Digest::of(component),
                    size: component.len() as u64,
                    secrets: BTreeMap::new(),
                    manifest,
                    forms: Vec::new(),
                }],
                primary,
                leaving: BTreeSet::new(),
                run: None,
                gateway: Box::default(),
                forms: Default::default(),
                tenant: None,
            }),
            app,
        }
    }

    /// Changes the policy of a deployed app, and waits until the nodes know it.
    pub(crate) async fn regulate(&self, app: &str, gateway: GatewaySpec) {
        let mut desired = self.controller.desired(app).expect("a deployed app");
        desired.revision = self.next_revision();
        if let Some(spec) = &mut desired.spec {
            *spec.gateway = gateway;
        }
        self.demand(desired).await;
    }

    /// Sends an app's desired state, and waits until the nodes know it.
    pub(crate) async fn demand(&self, desired: AppDesired) {
        let (app, revision) = (desired.app.clone(), desired.revision);
        self.controller.set(desired.clone());
        self.tell(desired).await;
        self.until_known(app.as_str(), revision).await;
    }

    /// Deletes an app.
    pub(crate) async fn delete(&self, app: &str) {
        let desired = AppDesired {
            app: app.parse().expect("app"),
            revision: self.next_revision(),
            spec: None,
        };
        self.controller.set(desired.clone());
        self.tell(desired).await;
    }

    pub(crate) async fn tell(&self, desired: AppDesired) {
        self.controller.tell_app(desired);
    }

    /// Sends the operators' decisions.
    pub(crate) async fn tell_fleet(&self, fleet: FleetDesired) {
        self.controller.tell(&Frame::Fleet(fleet));
    }

    /// A request to an app through a gateway.
    pub(crate) fn get(&self, agent: &Agent, app: &str, path: &str) -> RequestBuilder {
        let url = format!("http://{}{path}", agent.gateway_address());
        self.client.get(url).header(HOST, host(app))
    }

    pub(crate) fn post(&self, agent: &Agent, app: &str, path: &str) -> RequestBuilder {
        let url = format!("http://{}{path}", agent.gateway_address());
        self.client.post(url).header(HOST, host(app))
    }

    /// The text with which an app answers.
    pub(crate) async fn text(&self, agent: &Agent, app: &str) -> String {
        let answer = self.get(agent, app, "/").send().await.expect("an answer");
        let status = answer.status();
        let text = answer.text().await.expect("a body");
        assert!(status.is_success(), "{status}: {text}");
        text
    }

    /// Waits until an app answers with this text.
    pub(crate) async fn until_text(&self, agent: &Agent, app: &str, expected: &str) {
        wait::until(&format!("{app} to answer {expected:?}"), async || {
            let answer = self
                .get(agent, app, "/")
                .send()
                .await
                .map_err(|e| e.to_string())?;
            let text = answer.text().await.map_err(|e| e.to_string())?;
            if text == expected { Ok(()) } else { Err(text) }
        })
        .await;
    }

    /// The value of a metric, by the beginning of its line.
    pub(crate) async fn metric(&self, agent: &Agent, line: &str) -> Option<f64> {
        let url = format!("http://{}/metrics", agent.admin_address());
        let text = self
            .client
            .get(url)
            .send()
            .await
            .expect("metrics")
            .text()
            .await
            .expect("text");
        let found = text.lines().find(|l| l.starts_with(line))?;
        found.rsplit(' ').next()?.parse().ok()
    }

    /// Reads the node statuses that reach the controller until one satisfies `wanted`.
    pub(crate) async fn until_status(
        &self,
        wanted: impl Fn(&fdn_core::message::NodeStatus) -> bool,
    ) -> fdn_core::message::NodeStatus {
        let status = |message| match message {
            Message::NodeStatus(status) if wanted(&status) => Some(*status),
            _ => None,
        };
        self.controller.until_reported(status).await
    }

    /// Waits until every node has reported that it knows this revision of the app.
    async fn until_known(&self, app: &str, revision: Revision) {
        let missing = self.nodes.lock().expect("lock").clone();
        if missing.is_empty() {
            return;
        }
        let missing = Mutex::new(missing);
        self.until_status(|status| {
            let mut missing = missing.lock().expect("lock");
            let knows = |a: &fdn_core::message::AppObserved| {
                a.app.as_str() == app && a.revision >= revision
            };
            if status.apps.iter().any(knows) {
                missing.remove(&status.node);
            }
            missing.is_empty()
        })
        .await;
    }

    /// Waits until the node has reported this revision of the app in this phase.
    pub(crate) async fn until_phase(
        &self,
        app: &str,
        revision: Revision,
        phase: impl Fn(&AppPhase) -> bool,
    ) {
        self.until_status(|status| {
            status
                .apps
                .iter()
                .any(|a| a.app.as_str() == app && a.revision == revision && phase(&a.phase))
        })
        .await;
    }
}

/// Lengthens timeouts, so that a pause of a busy machine does not count as a failure. The waiting times of calls stay below the timeout of the
/// tests' client, so that the node's answer is seen.
fn lengthen(settings: &mut Settings) {
    let patience = DurationMs::from_secs(50);
    settings.gateway.head_timeout = patience;
    settings.admission.wait = patience;
    settings.admission.hold = patience;
    settings.instances.wait = patience;
    settings.instances.resume_timeout = patience;
    settings.docker.health_timeout = patience;
    settings.kubernetes.health_timeout = patience;
    settings.policy.jwks_timeout = patience;
    settings.reports.link_timeout = patience;
    settings.workflows.connect = patience;
    settings.workflows.keep_alive = patience;
}

/// Flow-control windows of the simulated controller, in bytes: of a stream, and of a connection.
const WINDOWS: (u32, u32) = (1 << 20, 1 << 20);

/// A client that calls nodes with these credentials.
pub(crate) fn asker(credentials: &Credentials) -> Client {
    let tls = credentials.client_of_nodes(Arc::new(|_| false));
    let client =
        http_client::of_nodes(tls.expect("certificates"), Duration::from_secs(60), WINDOWS);
    client.expect("a client")
}

pub(crate) fn host(app: &str) -> String {
    format!("{app}.fn.test")
}

/// A manifest whose limits end a bad function soon.
pub(crate) fn tight() -> Manifest {
    Manifest {
        timeout: DurationMs::from_secs(60),
        cpu_time: DurationMs::from_millis(200),
        memory: ByteSize::from_mib(8),
        response_limit: ByteSize::from_mib(1),
        ..Manifest::default()
    }
}

/// The problem in a response, checked against its header.
pub(crate) async fn problem(answer: Response) -> fdn_core::Problem {
    assert_eq!(answer.headers()["content-type"], "application/problem+json");
    let status = answer.status().as_u16();
    let header = answer.headers()["x-fdn-error"]
        .to_str()
        .expect("text")
        .to_owned();
    let id = answer.headers()["x-request-id"]
        .to_str()
        .expect("text")
        .to_owned();
    let problem: fdn_core::Problem = answer.json().await.expect("a problem");
    assert_eq!(
        (problem.status, problem.code.as_str()),
        (status, header.as_str())
    );
    assert_eq!(problem.request_id, Some(id));
    problem
}

/// A client that speaks HTTP/2 from the first byte and finds these apps at the agent's gateway.
pub(crate) fn http2_client(agent: &Agent, apps: &[&str]) -> Client {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let mut builder = Client::builder()
        .tls_backend_preconfigured(tls)
        .http2_prior_knowledge();
    for app in apps {
        builder = builder.resolve(&host(app), agent.gateway_address());
    }
    builder.build().expect("client")
}
