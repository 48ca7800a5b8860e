//! The admin listener of a process: `/healthz` (the process runs), `/readyz` (it can do its work; otherwise 503 with the reasons) and
//! `/metrics` (Prometheus text format).

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use actix_web::dev::ServerHandle;
use actix_web::web::{self, ServiceConfig};
use actix_web::{App, HttpResponse, HttpServer};
use prometheus::{Encoder, Registry, TextEncoder};
use tracing::error;

use crate::error::ServiceError;
use crate::health::{Condition, Readiness};

/// Adds the three routes to an existing server. Needs [`Registry`] and [`Readiness`] as `web::Data`.
pub fn routes(config: &mut ServiceConfig) {
    config
        .route("/healthz", web::get().to(healthz))
        .route("/readyz", web::get().to(readyz))
        .route("/metrics", web::get().to(metrics));
}

/// The response header of `/healthz` with the load of a process: 1 is as much as it can carry.
pub const LOAD_HEADER: &str = "x-fdn-load";

/// Returns the load of a process, for [`LOAD_HEADER`]. A process that has one adds it to its server as `web::Data`.
#[derive(Clone)]
pub struct Load(pub Arc<dyn Fn() -> f64 + Send + Sync>);

/// The response header of `/healthz` with the reason why a running process takes no work now. DNS servers then send no clients there; process
/// supervisors
/// see a healthy process, since a restart would not help.
pub const NOT_ACCEPTING_HEADER: &str = "x-fdn-refuses";

/// Why a process takes no work now, if it does not: for [`NOT_ACCEPTING_HEADER`], and as a condition of `/readyz`. A process that supports this adds it
/// to its
/// server as `web::Data`.
#[derive(Clone)]
pub struct NotAccepting {
    /// The name of the condition.
    pub condition: &'static str,
    /// Returns why it takes no work now, or `None` if it does.
    pub why: Arc<dyn Fn() -> Option<String> + Send + Sync>,
}

/// Replaces the characters that a header value cannot contain.
fn printable(text: &str) -> String {
    let printable = |c| if matches!(c, ' '..='~') { c } else { '?' };
    text.chars().map(printable).collect()
}

async fn healthz(
    load: Option<web::Data<Load>>,
    not_accepting: Option<web::Data<NotAccepting>>,
) -> HttpResponse {
    let mut response = HttpResponse::Ok();
    if let Some(why) = not_accepting.and_then(|not_accepting| (not_accepting.why)()) {
        response.insert_header((NOT_ACCEPTING_HEADER, printable(&why)));
    }
    if let Some(load) = load {
        response.insert_header((LOAD_HEADER, format!("{:.3}", (load.0)())));
    }
    response.content_type("text/plain").body("ok\n")
}

async fn readyz(
    readiness: web::Data<Readiness>,
    not_accepting: Option<web::Data<NotAccepting>>,
) -> HttpResponse {
    let mut conditions = readiness.conditions();
    if let Some(not_accepting) = not_accepting {
        let why = (not_accepting.why)();
        let condition = Condition::needed(why.is_none(), why.unwrap_or_default());
        conditions.insert(not_accepting.condition, condition);
    }
    let mut response = if conditions.values().all(Condition::permits) {
        HttpResponse::Ok()
    } else {
        HttpResponse::ServiceUnavailable()
    };
    response.json(conditions)
}

async fn metrics(registry: web::Data<Registry>) -> HttpResponse {
    let encoder = TextEncoder::new();
    let mut buffer = Vec::new();
    match encoder.encode(&registry.gather(), &mut buffer) {
        Ok(()) => HttpResponse::Ok()
            .content_type(encoder.format_type())
            .body(buffer),
        Err(cause) => {
            error!(%cause, "metrics could not be written");
            HttpResponse::InternalServerError().finish()
        }
    }
}

/// A running admin server.
#[derive(Debug)]
pub struct AdminServer {
    address: SocketAddr,
    handle: ServerHandle,
}

impl AdminServer {
    /// Serves the three routes, and those added by `more`, on `listener`.
    ///
    /// # Errors
    /// When the listener's address cannot be read or the server cannot start.
    pub fn start(
        listener: TcpListener,
        registry: Registry,
        readiness: Readiness,
        more: impl Fn(&mut ServiceConfig) + Clone + Send + 'static,
    ) -> Result<Self, ServiceError> {
        let failed = |source| ServiceError::Listen {
            address: SocketAddr::from(([0, 0, 0, 0], 0)),
            setting: "the admin address".to_owned(),
            source,
        };
        let address = listener.local_addr().map_err(failed)?;
        let server = HttpServer::new(move || {
            App::new()
                .app_data(web::Data::new(registry.clone()))
                .app_data(web::Data::new(readiness.clone()))
                .configure(routes)
                .configure(more.clone())
        })
        .workers(1)
        .disable_signals()
        // A client that followed a log and has disconnected must not delay the shutdown.
        .h1_allow_half_closed(false)
        .shutdown_timeout(1)
        .listen(listener)
        .map_err(failed)?
        .run();
        let handle = server.handle();
        tokio::spawn(server);
        Ok(Self { address, handle })
    }

    /// The address that it listens on.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops the server.
    pub async fn stop(self) {
        self.handle.stop(true).await;
    }
}

#[cfg(test)]
mod tests {
    use prometheus::IntCounter;

    use super::*;

    #[tokio::test]
    async fn a_process_that_has_a_load_tells_it_with_its_health() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let readiness = Readiness::waiting_for(&[]);
        let load = Load(Arc::new(|| 0.75));
        let more = move |config: &mut ServiceConfig| {
            config.app_data(web::Data::new(load.clone()));
        };
        let server = AdminServer::start(listener, Registry::new(), readiness, more).expect("start");
        let client = crate::http_client::build(std::time::Duration::from_secs(5)).expect("client");
        let answer = client
            .get(format!("http://{}/healthz", server.address()))
            .send()
            .await;
        let answer = answer.expect("answer");
        assert_eq!(answer.headers().get(LOAD_HEADER).expect("header"), "0.750");
        server.stop().await;
    }

    #[tokio::test]
    async fn a_process_that_takes_no_work_lives_and_is_not_ready() {
        let full = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let looked = Arc::clone(&full);
        let not_accepting = NotAccepting {
            condition: "usage",
            why: Arc::new(move || {
                let full = looked.load(std::sync::atomic::Ordering::Relaxed);
                full.then(|| "the disk is full\n".to_owned())
            }),
        };
        let more = move |config: &mut ServiceConfig| {
            config.app_data(web::Data::new(not_accepting.clone()));
        };
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let readiness = Readiness::waiting_for(&[]);
        let server = AdminServer::start(listener, Registry::new(), readiness, more).expect("start");
        let client = crate::http_client::build(std::time::Duration::from_secs(5)).expect("client");
        let base = format!("http://{}", server.address());
        let get = async |path: &str| {
            let answer = client.get(format!("{base}{path}")).send().await;
            let answer = answer.expect("answer");
            let why = answer.headers().get(NOT_ACCEPTING_HEADER).cloned();
            let status = answer.status().as_u16();
            (status, why, answer.text().await.expect("text"))
        };
        let (status, why, _) = get("/healthz").await;
        assert_eq!((status, why), (200, None));
        assert_eq!(get("/readyz").await.0, 200);
        full.store(true, std::sync::atomic::Ordering::Relaxed);
        let (status, why, _) = get("/healthz").await;
        assert_eq!(status, 200, "a restart would not help");
        assert_eq!(why.expect("header"), "the disk is full?");
        let (status, _, text) = get("/readyz").await;
        assert_eq!(status, 503);
        assert!(text.contains("\"usage\":{\"ok\":false"), "{text}");
        server.stop().await;
    }

    #[tokio::test]
    async fn the_three_routes_tell_the_truth() {
        let registry = Registry::new();
        let counter = IntCounter::new("fdn_test_total", "a test").expect("metric");
        registry
            .register(Box::new(counter.clone()))
            .expect("register");
        counter.inc();
        let readiness = Readiness::waiting_for(&["store"]);
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let server =
            AdminServer::start(listener, registry, readiness.clone(), |_| {}).expect("start");
        let client = crate::http_client::build(std::time::Duration::from_secs(5)).expect("client");
        let base = format!("http://{}", server.address());
        let get = |path: &str| client.get(format!("{base}{path}")).send();
        assert_eq!(get("/healthz").await.expect("answer").status(), 200);
        let waiting = get("/readyz").await.expect("answer");
        assert_eq!(waiting.status(), 503);
        assert!(waiting.text().await.expect("text").contains("starting"));
        readiness.set("store", true, "");
        assert_eq!(get("/readyz").await.expect("answer").status(), 200);
        assert!(
            get("/metrics")
                .await
                .expect("answer")
                .text()
                .await
                .expect("text")
                .contains("fdn_test_total 1")
        );
        server.stop().await;
    }
}
