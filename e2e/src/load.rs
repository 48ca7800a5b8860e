//! A steady trickle of calls and DNS questions that must all succeed while servers die and return.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fdn_testkit::wait;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::dns;

/// The pause between two calls of one caller.
const PAUSE: Duration = Duration::from_millis(50);

/// Callers that run until stopped.
#[derive(Debug)]
pub struct Load {
    stop: CancellationToken,
    tasks: JoinSet<()>,
    seen: Arc<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    calls: AtomicU64,
    questions: AtomicU64,
    failures: Mutex<Vec<String>>,
}

impl Seen {
    fn fail(&self, what: String) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        // The first few are enough to understand.
        if failures.len() < 20 {
            failures.push(what);
        }
    }
}

impl Load {
    /// For each client subnet, asks DNS for `host` and calls the answered addresses on `port`; the body must start with `expected`.
    #[must_use]
    pub fn start(
        server: SocketAddr,
        host: &str,
        port: u16,
        subnets: &[&str],
        expected: &str,
    ) -> Self {
        let (stop, seen) = (CancellationToken::new(), Arc::<Seen>::default());
        let mut tasks = JoinSet::new();
        for subnet in subnets {
            let caller = Caller {
                server,
                host: host.to_owned(),
                port,
                subnet: (*subnet).to_owned(),
                expected: expected.to_owned(),
                seen: Arc::clone(&seen),
            };
            let stop = stop.clone();
            tasks.spawn(async move {
                let client = reqwest::Client::builder()
                    // Calls must be answered; how soon is a matter of the machine.
                    .timeout(wait::PATIENCE)
                    .tls_backend_preconfigured(no_tls())
                    .build()
                    .expect("a plain HTTP client");
                while !stop.is_cancelled() {
                    caller.once(&client).await;
                    tokio::time::sleep(PAUSE).await;
                }
            });
        }
        Self { stop, tasks, seen }
    }

    /// Calls and questions so far.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        (
            self.seen.calls.load(Ordering::Relaxed),
            self.seen.questions.load(Ordering::Relaxed),
        )
    }

    /// Stops and returns how many calls and questions succeeded.
    ///
    /// # Panics
    /// When a single one failed.
    pub async fn stop(mut self) -> (u64, u64) {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("a caller does not panic");
        }
        let failures = self
            .seen
            .failures
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        assert!(failures.is_empty(), "calls failed: {failures:#?}");
        (
            self.seen.calls.load(Ordering::Relaxed),
            self.seen.questions.load(Ordering::Relaxed),
        )
    }
}

fn no_tls() -> rustls::ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider supports the default versions")
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth()
}

struct Caller {
    server: SocketAddr,
    host: String,
    port: u16,
    subnet: String,
    expected: String,
    seen: Arc<Seen>,
}

impl Caller {
    async fn once(&self, client: &reqwest::Client) {
        let (server, host, subnet) = (self.server, self.host.clone(), self.subnet.clone());
        let asked =
            tokio::task::spawn_blocking(move || dns::ask(server, &host, Some(&subnet), false))
                .await;
        let answer = match asked.expect("asking does not panic") {
            Ok(answer) if answer.status == "NOERROR" && !answer.addresses.is_empty() => answer,
            other => return self.seen.fail(format!("dns {}: {other:?}", self.subnet)),
        };
        self.seen.questions.fetch_add(1, Ordering::Relaxed);
        for address in &answer.addresses {
            let url = format!("http://{}/", SocketAddr::new(*address, self.port));
            let sent = client.get(&url).header("host", &self.host).send().await;
            match sent {
                Ok(response) => {
                    let status = response.status();
                    let body = response.text().await.unwrap_or_default();
                    if status == 200 && body.starts_with(&self.expected) {
                        self.seen.calls.fetch_add(1, Ordering::Relaxed);
                    } else {
                        self.seen.fail(format!("{url}: {status} {body}"));
                    }
                }
                Err(error) => self.seen.fail(format!("{url}: {error:?}")),
            }
        }
    }
}
