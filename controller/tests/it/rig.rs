//! The test rig: a controller on free ports, its broker, and a client.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fdn_controller::app::snapshot;
use fdn_controller::edge::reports::take_in;
use fdn_controller::settings::{
    ArtifactSettings, ClientLocation, DatabaseSettings, NetworkSettings,
};
use fdn_controller::store::Store;
use fdn_controller::{Controller, Settings, State};
use fdn_core::api::{AppsSnapshot, DeployResponse, DnsSnapshot, LoginResponse};
use fdn_core::message::{Message, NodeStatus};
use fdn_core::{
    DurationMs, GeoPoint, MebiBytes, MessageId, MilliCpu, Millis, NodeId, Problem, Resources,
    Revision,
};
use fdn_runtime::Compiler;
use fdn_testkit::wait;
use reqwest::multipart::{Form, Part};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde::de::DeserializeOwned;
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::broker::TestBroker;

/// The database of a test.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Backend {
    Sqlite,
    Postgres,
}

impl Backend {
    /// Settings of a new, empty database.
    pub(crate) async fn database(self, folder: &Path) -> DatabaseSettings {
        let url = match self {
            Self::Sqlite => format!("sqlite://{}", folder.join("controller.db").display()),
            Self::Postgres => fdn_testkit::postgres::database().await.url,
        };
        DatabaseSettings {
            url,
            max_connections: 4,
            ..DatabaseSettings::default()
        }
    }

    /// A store on a new database with the schema in place.
    pub(crate) async fn store(self, folder: &Path) -> Store {
        let store = Store::connect(&self.database(folder).await)
            .await
            .expect("connected");
        store.migrate().await.expect("migrated");
        store
    }
}

/// Defines each test for both databases.
macro_rules! on_both {
    ($($test:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $test() {
                super::$test(crate::rig::Backend::Sqlite).await;
            })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $test() {
                super::$test(crate::rig::Backend::Postgres).await;
            })*
        }
    };
}
pub(crate) use on_both;

/// Nodes that report periodically, as agents do, with their last statuses.
type Speaking = Arc<Mutex<BTreeMap<NodeId, NodeStatus>>>;

/// Reports the last status of each node every second.
async fn speak(state: Arc<State>, speaking: Speaking) {
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let statuses: Vec<NodeStatus> = {
            let mut speaking = speaking.lock().expect("not poisoned");
            speaking.values_mut().map(newer).collect()
        };
        for status in statuses {
            take_in(&state, &Message::NodeStatus(Box::new(status)));
        }
    }
}

/// Increments the status's sequence number; returns a copy.
fn newer(status: &mut NodeStatus) -> NodeStatus {
    status.sequence += 1;
    status.clone()
}

/// A running controller and everything around it.
pub(crate) struct Rig {
    speaking: Speaking,
    speaker: JoinHandle<()>,
    pub(crate) controller: Controller,
    pub(crate) broker: Arc<TestBroker>,
    pub(crate) settings: Settings,
    pub(crate) token: String,
    pub(crate) password: String,
    pub(crate) http: reqwest::Client,
    pub(crate) folder: Arc<TempDir>,
}

/// Settings that keep everything below one folder.
pub(crate) async fn settings(folder: &Path, backend: Backend) -> Settings {
    let mut settings = Settings {
        listen: ([127, 0, 0, 1], 0).into(),
        workers: 1,
        network: NetworkSettings {
            token_file: folder.join("token"),
            key_file: folder.join("key"),
        },
        database: backend.database(folder).await,
        artifacts: ArtifactSettings {
            local: folder.join("artifacts"),
            ..ArtifactSettings::default()
        },
        ..Settings::default()
    };
    settings.edge.listen = ([127, 0, 0, 1], 0).into();
    settings.accounts.initial_password_file = Some(folder.join("password"));
    // Tests that send unknown tokens do so from one address.
    settings.accounts.token_attempts = 10_000;
    settings.uploads.folder = Some(folder.join("uploads"));
    // A loaded machine may be slow.
    settings.database.acquire_timeout = DurationMs::from_secs(60);
    settings.function_logs.node_timeout = DurationMs::from_secs(60);
    settings.function_logs.search_timeout = DurationMs::from_secs(60);
    settings.dispatch.confirm_timeout = DurationMs::from_secs(60);
    settings.planner.interval = DurationMs::from_secs(1);
    settings.planner.watch_interval = DurationMs::from_millis(50);
    settings.dispatch.interval = DurationMs::from_millis(100);
    settings.dispatch.backoff = DurationMs::from_millis(200);
    settings.geo.locations = vec![
        location("192.0.2.0/24", 48.86, 2.35),
        location("198.51.100.0/24", 40.71, -74.01),
    ];
    settings
}

pub(crate) fn location(prefix: &str, lat: f64, lon: f64) -> ClientLocation {
    ClientLocation {
        prefix: prefix.parse().expect("prefix"),
        lat,
        lon,
    }
}

impl Rig {
    /// Starts a controller on SQLite.
    pub(crate) async fn start() -> Self {
        Self::start_with(Backend::Sqlite, |_| {}).await
    }

    /// Starts a controller with changed settings.
    pub(crate) async fn start_with(backend: Backend, change: impl FnOnce(&mut Settings)) -> Self {
        let folder = Arc::new(tempfile::tempdir().expect("folder"));
        let mut settings = settings(folder.path(), backend).await;
        change(&mut settings);
        Box::pin(Self::start_on(
            settings,
            Arc::new(TestBroker::default()),
            folder,
        ))
        .await
    }

    /// Starts a controller on the folder and broker of another one.
    pub(crate) async fn start_on(
        settings: Settings,
        broker: Arc<TestBroker>,
        folder: Arc<TempDir>,
    ) -> Self {
        let shared: fdn_bus::SharedBroker = Arc::clone(&broker) as _;
        let starting = Controller::start_with(settings.clone(), shared, Compiler::InProcess);
        let controller = Box::pin(starting).await.expect("started");
        let password =
            std::fs::read_to_string(folder.path().join("password")).expect("the initial password");
        let ca = folder.path().join("api-ca.pem");
        let ca = ca.exists().then_some(ca.as_path());
        let http = fdn_service::http_client::build_trusting(Duration::from_secs(60), ca);
        let http = http.expect("client");
        let speaking = Speaking::default();
        let speaker = tokio::spawn(speak(Arc::clone(controller.state()), Arc::clone(&speaking)));
        let mut rig = Self {
            speaking,
            speaker,
            controller,
            broker,
            settings,
            token: String::new(),
            password,
            http,
            folder,
        };
        rig.token = rig.login("admin", &rig.password).await;
        rig
    }

    /// Kills this controller, and starts another one on the same database, folder and broker.
    pub(crate) async fn restart(self) -> Self {
        Box::pin(self.restart_with(|_| {})).await
    }

    /// Like [`Self::restart`], with changed settings.
    pub(crate) async fn restart_with(self, change: impl FnOnce(&mut Settings)) -> Self {
        let Self {
            controller,
            broker,
            mut settings,
            folder,
            speaker,
            ..
        } = self;
        change(&mut settings);
        speaker.abort();
        controller.stop().await;
        Box::pin(Self::start_on(settings, broker, folder)).await
    }

    pub(crate) async fn login(&self, user: &str, password: &str) -> String {
        let body = serde_json::json!({ "user": user, "password": password });
        let answer: LoginResponse = self
            .json(self.anonymous(Method::POST, "/v1/login").json(&body))
            .await;
        answer.token
    }

    pub(crate) fn url(&self, path: &str) -> String {
        let scheme = match self.settings.api.tls.certificates.is_empty() {
            true => "http",
            false => "https",
        };
        format!("{scheme}://{}{path}", self.controller.address())
    }

    pub(crate) fn anonymous(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, self.url(path))
    }

    /// A request with the first user's token.
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.anonymous(method, path).bearer_auth(&self.token)
    }

    /// Handles a machine's report.
    pub(crate) fn report(&self, message: Message) {
        take_in(self.controller.state(), &message);
    }

    /// The state for nodes of all clusters, with secrets sealed as in the database.
    pub(crate) async fn apps_snapshot(&self) -> AppsSnapshot {
        let state = self.controller.state();
        let mut tx = state.store.snapshot().await.expect("begun");
        let all = snapshot::apps(state, &mut tx, Revision::NONE)
            .await
            .expect("read");
        tx.rollback().await.expect("ended");
        all
    }

    /// The state for DNS servers.
    pub(crate) async fn dns_snapshot(&self) -> DnsSnapshot {
        let state = self.controller.state();
        let mut tx = state.store.snapshot().await.expect("begun");
        let all = snapshot::dns(state, &mut tx, Revision::NONE)
            .await
            .expect("read");
        tx.rollback().await.expect("ended");
        all
    }

    /// The response of a request that must succeed.
    pub(crate) async fn json<T: DeserializeOwned>(&self, request: RequestBuilder) -> T {
        let answer = request.send().await.expect("an answer");
        let (status, text) = (answer.status(), answer.text().await.expect("a body"));
        assert!(status.is_success(), "{status}: {text}");
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> T {
        self.json(self.request(Method::GET, path)).await
    }

    /// The response of a request that must be refused.
    pub(crate) async fn refused(&self, request: RequestBuilder) -> (StatusCode, Problem) {
        let answer = request.send().await.expect("an answer");
        let (status, kind) = (
            answer.status(),
            answer.headers().get("content-type").cloned(),
        );
        let text = answer.text().await.expect("a body");
        assert_eq!(
            kind.expect("a content type"),
            Problem::MEDIA_TYPE,
            "{status}: {text}"
        );
        let problem: Problem = serde_json::from_str(&text).expect("a problem document");
        assert_eq!(problem.status, status.as_u16());
        assert!(problem.request_id.is_some());
        (status, problem)
    }

    /// Builds an upload.
    pub(crate) fn upload(
        &self,
        app: &str,
        component: Vec<u8>,
        manifest: Option<&str>,
        secrets: Option<&str>,
    ) -> RequestBuilder {
        let mut form = Form::new();
        if let Some(manifest) = manifest {
            form = form.text("manifest", manifest.to_owned());
        }
        if let Some(secrets) = secrets {
            form = form.text("secrets", secrets.to_owned());
        }
        let form = form.part(
            "component",
            Part::bytes(component).file_name("component.wasm"),
        );
        self.request(Method::POST, &format!("/v1/apps/{app}/versions"))
            .multipart(form)
    }

    /// Deploys a component, which must succeed.
    pub(crate) async fn deploy(&self, app: &str, component: Vec<u8>) -> DeployResponse {
        self.json(self.upload(app, component, None, None)).await
    }

    /// Reports a node's status, now and every second from now on.
    pub(crate) async fn node(&self, mut status: NodeStatus) {
        {
            let mut speaking = self.speaking.lock().expect("not poisoned");
            if let Some(last) = speaking.get(&status.node) {
                status.sequence = last.sequence + 1;
            }
            speaking.insert(status.node.clone(), status.clone());
        }
        self.report(Message::NodeStatus(Box::new(status)));
    }

    /// Stops the reports of a node.
    pub(crate) fn silence(&self, node: &str) {
        self.speaking
            .lock()
            .expect("not poisoned")
            .retain(|id, _| id.as_str() != node);
    }

    /// Adds two idle nodes, one near each of the configured client locations, and waits until they are known.
    pub(crate) async fn two_regions(&self) {
        for status in two_regions() {
            self.node(status).await;
        }
        wait::until("both nodes to be known", async || {
            let clusters: Vec<serde_json::Value> = self.get("/v1/clusters").await;
            if clusters.len() == 2 {
                Ok(())
            } else {
                Err(format!("{clusters:?}"))
            }
        })
        .await;
    }

    /// The components in the artifact store.
    pub(crate) fn artifacts(&self) -> Vec<String> {
        files(&self.settings.artifacts.local.join("sha256"))
    }

    /// The machine code in the artifact store, by engine.
    pub(crate) fn compiled(&self) -> Vec<String> {
        files(&self.settings.artifacts.local.join("compiled"))
    }

    /// The packs of the compile cache in the artifact store.
    pub(crate) fn packs(&self) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> = Vec::new();
        let folder = self.settings.artifacts.local.join("compile-cache");
        for engine in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let packs = std::fs::read_dir(engine.path()).into_iter().flatten();
            found.extend(packs.flatten().map(|pack| pack.path()));
        }
        found.sort();
        found
    }

    /// The objects of jobs in the artifact store.
    pub(crate) fn objects_of_jobs(&self) -> Vec<String> {
        files(&self.settings.artifacts.local.join("jobs"))
    }

    /// The files left in the folder of uploads.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        files(self.settings.uploads.folder.as_ref().expect("set"))
    }
}

fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else {
                found.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    found
}

pub(crate) fn two_regions() -> [NodeStatus; 2] {
    [
        node_at("eu-1", "eu-west", 53.35, -6.26),
        node_at("us-1", "us-east", 39.04, -77.49),
    ]
}

/// The status of an idle node of speed 1 with 4 slots.
pub(crate) fn node_at(node: &str, cluster: &str, lat: f64, lon: f64) -> NodeStatus {
    let room = Resources::new(MilliCpu(4000), MebiBytes(4096));
    NodeStatus {
        node: node.parse().expect("node"),
        cluster: cluster.parse().expect("cluster"),
        region: cluster.parse().expect("region"),
        location: GeoPoint::new(lat, lon).expect("position"),
        gateway: "127.0.1.1:8080".parse().expect("address"),
        weight: fdn_core::GatewayWeight::default(),
        admin: "127.0.1.1:8081".parse().expect("address"),
        boot: MessageId::from_uuid(uuid::Uuid::from_u128(1)),
        // Statuses made later are newer.
        sequence: fdn_service::now().get(),
        version: "0.1.0".to_owned(),
        speed: 1.0,
        capacity: room,
        free: room,
        slots: 4,
        busy: 0,
        waiting: 0,
        queued_work: Millis::ZERO,
        draining: false,
        stages: None,
        apps: Vec::new(),
        devices: Vec::new(),
        stage_calls: None,
        controller_port: Some(8444),
        runtimes: None,
    }
}
