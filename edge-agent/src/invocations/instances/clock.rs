//! The pool's clock: calls the pool when its next tick is due, and updates the metrics.

use std::sync::Arc;
use std::time::Duration;

use fdn_core::Millis;
use fdn_scheduling::invocation::FunctionIndex;
use fdn_service::CancellationToken;

use super::{Inner, State};
use crate::invocations::pool::FunctionCounts;

/// The minimum time between two ticks.
const GAP: Duration = Duration::from_millis(1);

impl Inner {
    /// Ticks the pool when it is due and, while calls wait, whenever memory becomes free.
    pub(super) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut waits = false;
        loop {
            // Listening before the check, so that a release in between is not missed.
            let watch = waits.then(|| self.ledger.watch());
            let freed = self.ledger.freed();
            tokio::pin!(freed);
            freed.as_mut().enable();
            self.placer.evict_standby();
            let due = self.with(|state, now| {
                state.pool.tick(now);
                self.show(state);
                waits = state.pool.waiting() > 0;
                state.due = state.pool.next_tick();
                state.due
            });
            let left = due.map(|due| (due - self.now()).max(Millis::ZERO));
            let sleep = async {
                match left {
                    Some(left) => {
                        tokio::time::sleep(Duration::from_secs_f64(left.get() / 1e3)).await
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep => {}
                () = self.wake.notified() => {}
                () = freed, if watch.is_some() => {}
            }
            // Limits how often a busy node ticks.
            tokio::time::sleep(GAP).await;
        }
    }

    fn show(&self, state: &State) {
        let mut all = FunctionCounts::default();
        for index in 0..state.functions.len() {
            let of = state.pool.counts(FunctionIndex::new(index));
            all.starting += of.starting;
            all.open += of.open;
            all.idle += of.idle;
            all.waking += of.waking;
            all.paused += of.paused;
            all.running += of.running;
            all.waiting += of.waiting;
        }
        let instances = [
            ("starting", all.starting),
            ("open", all.open),
            ("idle", all.idle + all.waking - all.paused),
            ("paused", all.paused),
        ];
        for (state, count) in instances {
            let gauge = self.metrics.instances.with_label_values(&[state]);
            gauge.set(i64::from(count));
        }
        let at_share = i64::try_from(state.pool.apps_at_share()).unwrap_or(i64::MAX);
        self.metrics.apps_at_share.set(at_share);
        for (state, count) in [("running", all.running), ("waiting", all.waiting)] {
            let gauge = self.metrics.calls.with_label_values(&[state]);
            gauge.set(i64::from(count));
        }
    }
}
