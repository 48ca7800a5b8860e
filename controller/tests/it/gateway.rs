//! A fake gateway of a node: answers jobs as their bodies demand, and counts them.

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

/// What the gateway has received.
#[derive(Default)]
struct Seen {
    /// The number of calls, by job.
    calls: BTreeMap<JobId, u32>,
    running: u32,
    most: u32,
    passes: Vec<(String, JobPass)>,
    /// Webhook requests: relevant headers, and the body.
    told: Vec<(BTreeMap<String, String>, String)>,
    /// How many further webhook requests are to fail.
    deaf: u32,
}

/// A fake gateway.
#[derive(Clone)]
pub(crate) struct FakeGateway {
    /// The address for webhooks.
    pub(crate) address: SocketAddr,
    /// The port that controllers call.
    port: u16,
    seen: Arc<Mutex<Seen>>,
    /// Each permit ends one call with the body `wait`.
    gate: Arc<Semaphore>,
    /// The response status of calls with the body `fail`.
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
            // Each permit lets one call through.
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
        "barred" => HttpResponse::Forbidden()
            .insert_header(("fdn-call-outcome", "not_started"))
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
    /// Starts a gateway, as that of a node of the network.
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

    /// Reports the node to a controller.
    pub(crate) async fn join(&self, rig: &Rig) {
        rig.node(self.status()).await;
    }

    /// The node's status.
    pub(crate) fn status(&self) -> NodeStatus {
        NodeStatus {
            slots: 64,
            ..nodes::asked_at("eu-1", self.port)
        }
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().expect("not poisoned")
    }

    /// The number of calls for a job.
    pub(crate) fn calls(&self, job: JobId) -> u32 {
        self.seen().calls.get(&job).copied().unwrap_or(0)
    }

    /// The number of running calls, and the most that ever ran at once.
    pub(crate) fn running(&self) -> (u32, u32) {
        let seen = self.seen();
        (seen.running, seen.most)
    }

    /// Ends this many waiting calls.
    pub(crate) fn open(&self, calls: usize) {
        self.gate.add_permits(calls);
    }

    /// Sets the response status of `fail`.
    pub(crate) fn fail_with(&self, status: u16) {
        *self.status.lock().expect("not poisoned") = status;
    }

    /// Makes the next `times` webhook requests fail.
    pub(crate) fn deaf(&self, times: u32) {
        self.seen().deaf = times;
    }

    /// The job passes of all calls, with the host of each.
    pub(crate) fn passes(&self) -> Vec<(String, JobPass)> {
        self.seen().passes.clone()
    }

    /// The webhook requests received.
    pub(crate) fn told(&self) -> Vec<(BTreeMap<String, String>, String)> {
        self.seen().told.clone()
    }
}
