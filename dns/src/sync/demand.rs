//! Demand: which clients ask for which apps. Counted while answering, filtered separately, reported to the controller every second.
//!
//! Each answering thread counts in a lane with a mutex that is only ever tried: a query that finds its lane locked or full is answered
//! all the same, only not counted. The lanes are emptied ten times per report, and [`super::heavy_hitters`] chooses what is reported. Reports
//! are fire-and-forget, because demand that matters is seen again.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fdn_core::message::{DemandReport, Message};
use fdn_core::{AppName, ClientPrefix};
use fdn_link::SharedControllerLink;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::heavy_hitters::{Bounds, HeavyHitters};
use crate::metrics::Metrics;
use crate::settings::DemandSettings;

/// The number of lanes; if there are more threads, they share lanes.
const LANES: usize = 16;
/// How often the lanes are emptied per report.
const ROUNDS: u32 = 10;
/// The time after which counts are halved, and for which a prefix that was seen once is remembered at least.
const SPAN: Duration = Duration::from_secs(60);
/// The most entries of one message.
const REPORT_ENTRIES: usize = 2000;
/// The timeout of sending one report.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// The pairs of one lane, keyed by the address of the app's name: the lane holds a reference to it, so the address cannot be reused.
type LaneCounts = HashMap<(usize, ClientPrefix), (Arc<AppName>, u64)>;

thread_local! {
    /// The lane of this thread.
    static LANE: usize = NEXT_LANE.fetch_add(1, Ordering::Relaxed) % LANES;
}

static NEXT_LANE: AtomicUsize = AtomicUsize::new(0);

/// Counts queries by app and client prefix.
#[derive(Debug)]
pub struct Demand {
    lanes: [Mutex<LaneCounts>; LANES],
    /// The most pairs of one lane.
    capacity: usize,
    metrics: Arc<Metrics>,
}

impl Demand {
    /// Creates lanes for `capacity` pairs of app and prefix each.
    #[must_use]
    pub fn new(capacity: usize, metrics: Arc<Metrics>) -> Self {
        Self {
            lanes: std::array::from_fn(|_| Mutex::default()),
            capacity,
            metrics,
        }
    }

    /// Counts one query, if there is room.
    pub fn record(&self, app: &Arc<AppName>, prefix: ClientPrefix) {
        let lane = LANE.with(|lane| *lane);
        let Ok(mut counts) = self.lanes[lane].try_lock() else {
            self.metrics.demand_dropped.inc();
            return;
        };
        let key = (Arc::as_ptr(app) as usize, prefix);
        if let Some((_, count)) = counts.get_mut(&key) {
            *count += 1;
        } else if counts.len() < self.capacity {
            counts.insert(key, (Arc::clone(app), 1));
        } else {
            self.metrics.demand_dropped.inc();
        }
    }

    /// Takes all counts so far, in a stable order.
    #[must_use]
    pub fn take(&self) -> Vec<(AppName, ClientPrefix, u64)> {
        let mut all: BTreeMap<(AppName, ClientPrefix), u64> = BTreeMap::new();
        for lane in &self.lanes {
            // The new map has the capacity that the old one needed, so that the answering thread need not grow it again.
            let mut counts = lane.lock().unwrap_or_else(PoisonError::into_inner);
            let empty = LaneCounts::with_capacity(counts.len());
            let taken = std::mem::replace(&mut *counts, empty);
            drop(counts);
            taken.into_iter().for_each(|((_, prefix), (app, count))| {
                *all.entry((app.as_ref().clone(), prefix)).or_default() += count;
            });
        }
        all.into_iter()
            .map(|((app, prefix), count)| (app, prefix, count))
            .collect()
    }
}

/// The bounds of what is counted and reported.
#[must_use]
pub fn bounds(settings: &DemandSettings) -> Bounds {
    Bounds {
        capacity: settings.capacity,
        expected_new: settings.strangers,
        max_new: settings.fresh,
        max_reported: settings.told,
        span: SPAN,
    }
}

/// Sends reports until `shutdown`.
pub async fn report(
    demand: Arc<Demand>,
    server: String,
    centre: SharedControllerLink,
    settings: DemandSettings,
    shutdown: CancellationToken,
) {
    let mut heavy = HeavyHitters::new(bounds(&settings));
    let (begun, mut round) = (Instant::now(), 0);
    let mut ticks = interval(settings.interval.as_duration() / ROUNDS);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut away = false;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = shutdown.cancelled() => return,
        }
        for (app, prefix, count) in demand.take() {
            heavy.add(&(app, prefix), count, begun.elapsed());
        }
        round = (round + 1) % ROUNDS;
        if round != 0 {
            continue;
        }
        let reported = heavy.take().into_iter();
        let reported: Vec<_> = reported
            .map(|((app, prefix), count)| (app, prefix, count))
            .collect();
        let left = heavy.take_unreported();
        demand.metrics.demand_first.inc_by(left.first);
        demand.metrics.demand_dropped.inc_by(left.beyond);
        for entries in reported.chunks(REPORT_ENTRIES) {
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
        let demand = demand(100);
        let app = Arc::new("hello".parse().expect("app"));
        for third in 0..=255u8 {
            demand.record(&app, ClientPrefix::new([10, 0, third, 0].into(), 24));
        }
        assert_eq!(demand.take().len(), 100);
        assert_eq!(demand.metrics.demand_dropped.get(), 156);
    }

    #[test]
    fn threads_count_together_what_each_counts_for_itself() {
        let demand = Arc::new(demand(100));
        let app: Arc<AppName> = Arc::new("hello".parse().expect("app"));
        let prefix: ClientPrefix = "192.0.2.0/24".parse().expect("prefix");
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (demand, app) = (Arc::clone(&demand), Arc::clone(&app));
                std::thread::spawn(move || (0..50).for_each(|_| demand.record(&app, prefix)))
            })
            .collect();
        for thread in threads {
            thread.join().expect("no panic");
        }
        let dropped = demand.metrics.demand_dropped.get();
        assert_eq!(demand.take()[0].2 + dropped, 200);
    }
}
