//! Who asked for what: counted while answering, reported to the controller every second.
//!
//! The table is split into shards, each with a mutex that is only ever tried: a query that finds a shard busy or full is answered all
//! the same and only not counted. Reports are fire-and-forget, because demand that matters is seen again.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fdn_core::message::{DemandReport, Message};
use fdn_core::{AppName, ClientPrefix};
use fdn_link::SharedCentre;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::metrics::Metrics;

const SHARDS: usize = 16;
/// Entries of one message.
const REPORT_ENTRIES: usize = 2000;
/// How long a controller may take for one report.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

type Counts = HashMap<(Arc<AppName>, ClientPrefix), u64>;

/// Counts queries by app and client prefix.
#[derive(Debug)]
pub struct Demand {
    shards: [Mutex<Counts>; SHARDS],
    capacity: usize,
    hasher: RandomState,
    metrics: Arc<Metrics>,
}

impl Demand {
    /// A table for `capacity` pairs of app and prefix.
    #[must_use]
    pub fn new(capacity: usize, metrics: Arc<Metrics>) -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            capacity: capacity.div_ceil(SHARDS),
            hasher: RandomState::new(),
            metrics,
        }
    }

    /// Counts one query, if there is room.
    pub fn record(&self, app: &Arc<AppName>, prefix: ClientPrefix) {
        let shard = usize::try_from(self.hasher.hash_one(prefix) % SHARDS as u64).unwrap_or(0);
        let Ok(mut counts) = self.shards[shard].try_lock() else {
            self.metrics.demand_dropped.inc();
            return;
        };
        let room = counts.len() < self.capacity;
        let key = (Arc::clone(app), prefix);
        if let Some(count) = counts.get_mut(&key) {
            *count += 1;
        } else if room {
            counts.insert(key, 1);
        } else {
            self.metrics.demand_dropped.inc();
        }
    }

    /// Takes everything counted so far, in a stable order.
    #[must_use]
    pub fn take(&self) -> Vec<(AppName, ClientPrefix, u64)> {
        let mut entries = Vec::new();
        for shard in &self.shards {
            let counts = std::mem::take(&mut *shard.lock().unwrap_or_else(PoisonError::into_inner));
            entries.extend(
                counts
                    .into_iter()
                    .map(|((app, prefix), count)| (app.as_ref().clone(), prefix, count)),
            );
        }
        entries.sort();
        entries
    }
}

/// Reports until `shutdown`.
pub async fn report(
    demand: Arc<Demand>,
    server: String,
    centre: SharedCentre,
    every: Duration,
    shutdown: CancellationToken,
) {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut away = false;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = shutdown.cancelled() => return,
        }
        for entries in demand.take().chunks(REPORT_ENTRIES) {
            let report = DemandReport {
                server: server.clone(),
                entries: entries.to_vec(),
            };
            let report = fdn_link::report(&*centre, Message::DemandReport(report), SEND_TIMEOUT);
            let sent = tokio::select! {
                sent = report => sent.is_ok(),
                () = shutdown.cancelled() => return,
            };
            if !sent {
                demand.metrics.demand_unsent.inc();
            }
            if sent == away {
                away = !sent;
                if away {
                    warn!(
                        "no controller takes demand reports; answers go on, reports are dropped until one does"
                    );
                } else {
                    info!("demand reports are taken again");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus::Registry;

    use super::*;

    fn demand(capacity: usize) -> Demand {
        Demand::new(
            capacity,
            Arc::new(Metrics::new(&Registry::new()).expect("metrics")),
        )
    }

    #[test]
    fn queries_are_coalesced_and_taken_once() {
        let demand = demand(1000);
        let app = Arc::new("hello".parse().expect("app"));
        let prefix: ClientPrefix = "192.0.2.0/24".parse().expect("prefix");
        for _ in 0..3 {
            demand.record(&app, prefix);
        }
        demand.record(&app, "198.51.100.0/24".parse().expect("prefix"));
        let taken = demand.take();
        assert_eq!(taken.len(), 2);
        assert_eq!(taken[0], ("hello".parse().expect("app"), prefix, 3));
        assert!(demand.take().is_empty());
    }

    #[test]
    fn a_full_table_counts_what_it_leaves_out() {
        let demand = demand(SHARDS);
        let app = Arc::new("hello".parse().expect("app"));
        for third in 0..=255u8 {
            demand.record(&app, ClientPrefix::new([10, 0, third, 0].into(), 24));
        }
        let taken = demand.take().len();
        assert!(taken <= SHARDS);
        assert_eq!(demand.metrics.demand_dropped.get(), 256 - taken as u64);
    }
}
