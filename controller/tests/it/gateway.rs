//! A node's gateway, played: answers jobs by what their bodies say, and counts.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use fdn_core::JobId;
use fdn_core::job::JobPass;
use fdn_core::message::NodeStatus;
use tokio::sync::Semaphore;

use crate::nodes;
use crate::rig::Rig;

/// What the gateway has seen.
#[derive(Default)]
struct Seen {
    /// Calls by job.
    calls: BTreeMap<JobId, u32>,
    running: u32,
    most: u32,
    passes: Vec<(String, JobPass)>,
    /// Webhooks: headers that matter, and the body.
    told: Vec<(BTreeMap<String, String>, String)>,
    /// How often a webhook is still to be answered badly.
    deaf: u32,
}

/// A gateway that is played.
#[derive(Clone)]
pub(crate) struct FakeGateway {
    /// Where it is told of jobs.
    pub(crate) address: SocketAddr,
    /// Where controllers call it.
    port: u16,
    seen: Arc<Mutex<Seen>>,
    /// Calls with the body `wait` end when they get one of these.
    gate: Arc<Semaphore>,
    /// What a body of `fail` is answered with.
    status: Arc<Mutex<u16>>,
}

struct Leave(FakeGateway);

impl Drop for Leave {
    fn drop(&mut self) {
        self.0.seen().running -= 1;
    }
}

async fn serve(
    request: HttpRequest,
    body: web::Bytes,
    node: web::Data<FakeGateway>,
) -> HttpResponse {
    let text = |name: &str| {
        let value = request.headers().get(name)?;
        value.to_str().ok().map(str::to_owned)
    };
    let pass: JobPass = match text("x-fdn-job").and_then(|pass| pass.parse().ok()) {
        Some(pass) => pass,
        None => return HttpResponse::Unauthorized().finish(),
    };
    {
        let mut seen = node.seen();
        *seen.calls.entry(pass.job).or_default() += 1;
        seen.running += 1;
        seen.most = seen.most.max(seen.running);
        let host = text("fdn-call-host").unwrap_or_default();
        seen.passes.push((host, pass));
    }
    let _leave = Leave(node.get_ref().clone());
    match std::str::from_utf8(&body).unwrap_or("bytes") {
        "wait" => {
            // Whoever opens the gate lets one call through.
            let passed = tokio::time::timeout(Duration::from_secs(60), node.gate.acquire()).await;
            passed
                .expect("the gate opens")
                .expect("not closed")
                .forget();
            HttpResponse::Ok().body("waited")
        }
        "fail" => {
            let status = *node.status.lock().expect("not poisoned");
            let status = StatusCode::from_u16(status).expect("a status");
            HttpResponse::build(status).body(format!("{status}"))
        }
        "full" => HttpResponse::ServiceUnavailable()
            .insert_header(("x-fdn-error", "FDN-3007"))
            .finish(),
        "large" => HttpResponse::Ok().body(vec![b'x'; 100_000]),
        _ => HttpResponse::Ok()
            .content_type(text("content-type").unwrap_or_else(|| "text/plain".to_owned()))
            .body(body),
    }
}

async fn told(request: HttpRequest, body: String, node: web::Data<FakeGateway>) -> HttpResponse {
    let headers = request.headers().iter().map(|(name, value)| {
        let value = value.to_str().unwrap_or_default().to_owned();
        (name.as_str().to_owned(), value)
    });
    let headers = headers.collect();
    let mut seen = node.seen();
    seen.told.push((headers, body));
    if seen.deaf > 0 {
        seen.deaf -= 1;
        return HttpResponse::InternalServerError().finish();
    }
    HttpResponse::NoContent().finish()
}

impl FakeGateway {
    /// A gateway, and a node of the network that has it.
    pub(crate) async fn start(rig: &Rig) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let (called, status) = nodes::listener("eu-1");
        let node = Self {
            address: listener.local_addr().expect("an address"),
            port: status.controller_port.expect("a port"),
            seen: Arc::default(),
            gate: Arc::new(Semaphore::new(0)),
            status: Arc::new(Mutex::new(500)),
        };
        let data = web::Data::new(node.clone());
        let server = HttpServer::new(move || {
            App::new()
                .app_data(data.clone())
                .app_data(web::PayloadConfig::new(32 << 20))
                .route("/told", web::post().to(told))
                .default_service(web::to(serve))
        })
        .workers(1)
        .disable_signals()
        .listen(listener)
        .expect("listens")
        .listen_rustls_0_23(
            called,
            nodes::shown(rig, "fdn://cluster/eu-west/node/eu-1").await,
        )
        .expect("listens")
        .run();
        tokio::spawn(server);
        node.join(rig).await;
        node
    }

    /// Tells a controller of the node.
    pub(crate) async fn join(&self, rig: &Rig) {
        rig.node(self.status()).await;
    }

    /// What the node says of itself.
    pub(crate) fn status(&self) -> NodeStatus {
        NodeStatus {
            slots: 64,
            ..nodes::asked_at("eu-1", self.port)
        }
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().expect("not poisoned")
    }

    /// How often a job was called.
    pub(crate) fn calls(&self, job: JobId) -> u32 {
        self.seen().calls.get(&job).copied().unwrap_or(0)
    }

    /// Calls that run now, and the most that ever ran.
    pub(crate) fn running(&self) -> (u32, u32) {
        let seen = self.seen();
        (seen.running, seen.most)
    }

    /// Lets calls through that wait.
    pub(crate) fn open(&self, calls: usize) {
        self.gate.add_permits(calls);
    }

    /// What `fail` is answered with from now on.
    pub(crate) fn fail_with(&self, status: u16) {
        *self.status.lock().expect("not poisoned") = status;
    }

    /// Answers the next webhooks badly.
    pub(crate) fn deaf(&self, times: u32) {
        self.seen().deaf = times;
    }

    /// The passes of all calls, with the host that each was for.
    pub(crate) fn passes(&self) -> Vec<(String, JobPass)> {
        self.seen().passes.clone()
    }

    /// What was told of jobs.
    pub(crate) fn told(&self) -> Vec<(BTreeMap<String, String>, String)> {
        self.seen().told.clone()
    }
}
