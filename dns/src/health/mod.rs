//! Health checks of the gateways, made by the DNS server itself so that they continue without a controller.
//!
//! A check passes if, within the timeout, a TCP connection to the gateway opens and the gateway's admin listener answers `GET /healthz` with a
//! 2xx status, over HTTP or HTTPS ([`client`]), without saying that it takes no calls. Each gateway has a task of its own; [`machine`] decides
//! about the result, [`schedule`] about the time of the next check, and [`Published`] carries the result into the answers. With its health a gateway
//! reports its load ([`shed`]).

pub mod client;
pub mod machine;
pub mod schedule;
pub mod shed;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fdn_core::ClusterId;
use fdn_service::admin::{LOAD_HEADER, NOT_ACCEPTING_HEADER};
use rand::RngExt;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use tracing::{info, warn};

use self::client::Client;
use self::machine::{Change, Health};
use self::schedule::CheckSchedule;
use crate::metrics::Metrics;
use crate::policy::fleet::Network;
use crate::published::Published;

/// The parameters of the health checks.
#[derive(Clone, Copy, Debug)]
pub struct Checks {
    /// The interval, the timeout, and the thresholds.
    pub schedule: CheckSchedule,
    /// The number of checks that may run at once.
    pub concurrency: usize,
}

/// One gateway to be checked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Target {
    cluster: ClusterId,
    gateway: SocketAddr,
    health: Option<SocketAddr>,
}

/// Why a check failed.
#[derive(Debug)]
enum Failure {
    /// No answer came in time; the timeout was noticed after this duration.
    TimedOut(Duration),
    /// The gateway, or the connection to it, reported an error.
    Reported(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut(took) => write!(f, "no answer within {} ms", took.as_millis()),
            Self::Reported(reason) => f.write_str(reason),
        }
    }
}

struct Prober {
    client: Client,
    checks: Checks,
    slots: Semaphore,
    published: Arc<Published>,
    metrics: Arc<Metrics>,
}

/// Checks the gateways of the current network until `shutdown`, and follows its changes.
pub async fn run(
    client: Client,
    checks: Checks,
    published: Arc<Published>,
    metrics: Arc<Metrics>,
    shutdown: CancellationToken,
) {
    let mut networks = published.networks();
    let slots = Semaphore::new(checks.concurrency.max(1));
    let prober = Arc::new(Prober {
        client,
        checks,
        slots,
        published,
        metrics,
    });
    let tracker = TaskTracker::new();
    let mut running: BTreeMap<Target, AbortOnDropHandle<()>> = BTreeMap::new();
    loop {
        let wanted = targets(&networks.borrow_and_update().clone());
        // Dropping the handle of a removed gateway aborts its task.
        running.retain(|target, _| wanted.contains(target));
        for target in wanted {
            running.entry(target.clone()).or_insert_with(|| {
                AbortOnDropHandle::new(tracker.spawn(run_checks(Arc::clone(&prober), target)))
            });
        }
        tokio::select! {
            changed = networks.changed() => if changed.is_err() { break },
            () = shutdown.cancelled() => break,
        }
    }
    running.clear();
    tracker.close();
    tracker.wait().await;
}

fn targets(network: &Network) -> Vec<Target> {
    let target =
        |(cluster, gateway, health): (&ClusterId, SocketAddr, Option<SocketAddr>)| Target {
            cluster: cluster.clone(),
            gateway,
            health,
        };
    let mut targets: Vec<Target> = network.gateways().map(target).collect();
    targets.sort();
    targets.dedup();
    targets
}

/// Checks one gateway forever.
async fn run_checks(prober: Arc<Prober>, target: Target) {
    // A gateway that was out of the answers before its address or cluster changed stays out until it passes its checks again.
    let mut state = if prober.published.dead_gateways().contains(&target.gateway) {
        Health::Down
    } else {
        Health::Up
    };
    prober
        .metrics
        .gateway(&target.cluster, target.gateway, state.is_up());
    let mut inconclusive = 0;
    loop {
        let started = Instant::now();
        let result = {
            // Waiting here delays a check, but never makes it fail.
            let Ok(_permit) = prober.slots.acquire().await else {
                return;
            };
            match prober.check(&target).await {
                Err(Failure::TimedOut(took))
                    if prober.checks.schedule.is_inconclusive(took, inconclusive) =>
                {
                    inconclusive += 1;
                    prober.metrics.inconclusive_checks.inc();
                    continue;
                }
                result => result.map_err(|failure| failure.to_string()),
            }
        };
        inconclusive = 0;
        let spread = rand::rng().random_range(0.0..1.0);
        let (next, change, pause) = prober.checks.schedule.after(state, result.is_ok(), spread);
        state = next;
        let failure = result.as_ref().err().map(String::as_str);
        prober.report_change(&target, change, failure);
        // Not only if it has changed: a gateway that has left the network for a moment is published as alive again, while its checks go on if
        // only the network after that moment was seen here.
        prober.published.set_health(target.gateway, state.is_up());
        if let Ok(load) = result {
            prober.published.set_load(target.gateway, load);
        }
        sleep_until(started + pause).await;
    }
}

impl Prober {
    /// Makes one check. Returns the load that the gateway reported, or why the check failed.
    async fn check(&self, target: &Target) -> Result<Option<f64>, Failure> {
        let began = Instant::now();
        let both = async {
            tokio::try_join!(
                check_connection(target.gateway),
                self.check_health(target.health)
            )
        };
        match timeout(self.checks.schedule.timeout, both).await {
            Ok(Ok(((), load))) => Ok(load),
            Ok(Err(Some(reason))) => Err(Failure::Reported(reason)),
            Ok(Err(None)) | Err(_) => Err(Failure::TimedOut(began.elapsed())),
        }
    }

    /// Asks a gateway for its health. Returns the load that it reported, or what was wrong; the error is `None` if no answer came in time.
    async fn check_health(
        &self,
        health: Option<SocketAddr>,
    ) -> Result<Option<f64>, Option<String>> {
        let Some(address) = health else {
            return Ok(None);
        };
        let answer = self.client.ask(address).await.map_err(|cause| {
            (!cause.is_timeout()).then(|| format!("health at {address}: {}", client::reason(cause)))
        })?;
        let status = answer.status();
        if let Some(why) = answer.headers().get(NOT_ACCEPTING_HEADER) {
            let why = String::from_utf8_lossy(why.as_bytes());
            Err(Some(format!(
                "health at {address}: it takes no calls: {why}"
            )))
        } else if status.is_success() {
            let load = answer.headers().get(LOAD_HEADER);
            let load = load.and_then(|value| value.to_str().ok()?.parse::<f64>().ok());
            Ok(load.filter(|load| load.is_finite() && *load >= 0.0))
        } else {
            Err(Some(format!("health at {address}: status {status}")))
        }
    }

    fn report_change(&self, target: &Target, change: Change, failure: Option<&str>) {
        let Target {
            cluster, gateway, ..
        } = target;
        let up = match change {
            Change::None => return,
            Change::Leaves => {
                warn!(%cluster, %gateway, reason = failure.unwrap_or_default(), "gateway fails its checks and leaves the answers");
                false
            }
            Change::Returns => {
                info!(%cluster, %gateway, "gateway passes its checks and returns to the answers");
                true
            }
        };
        self.metrics.gateway(cluster, *gateway, up);
    }
}

async fn check_connection(gateway: SocketAddr) -> Result<(), Option<String>> {
    TcpStream::connect(gateway)
        .await
        .map(drop)
        .map_err(|cause| Some(format!("gateway: {cause}")))
}

#[cfg(test)]
mod tests;
