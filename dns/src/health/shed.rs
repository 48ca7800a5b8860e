//! Load shedding: a cluster above its capacity sends a gradually growing share of its clients elsewhere until its load fits.
//!
//! Gateways report their load with their health. Above [`Shedding::above`] the share of a cluster's clients that is sent elsewhere grows, the
//! faster the higher the load; below [`Shedding::below`] it shrinks, at half the maximum speed; in between it stays, so that it does not
//! oscillate. A client's prefix decides whether it belongs to that share ([`crate::policy::fleet::Fleet::diverts`]): a prefix that is sent
//! elsewhere stays there until the share shrinks below it. Answers are cached for their time to live, so the speed should be small against it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fdn_core::ClusterId;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::metrics::Metrics;
use crate::policy::fleet::{Network, Share};
use crate::published::Published;

/// When and how fast a cluster sends clients elsewhere. Loads are fractions of capacity: 1 is as much as a cluster can carry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shedding {
    /// The load above which a cluster sends clients elsewhere.
    pub above: f64,
    /// The load below which it takes them back.
    pub below: f64,
    /// How much the share of its clients grows per second, at twice the load `above` or more.
    pub speed: f64,
    /// The largest share that is sent elsewhere.
    pub max: f64,
}

/// The denominator of a [`Share`].
const WHOLE: f64 = 65_536.0;

impl Shedding {
    /// The share after `elapsed` at this load.
    #[must_use]
    pub fn next(&self, part: f64, load: f64, elapsed: Duration) -> f64 {
        let step = self.speed * elapsed.as_secs_f64();
        let part = if load > self.above {
            part + step * ((load - self.above) / self.above.max(f64::EPSILON)).min(1.0)
        } else if load < self.below {
            part - step / 2.0
        } else {
            part
        };
        part.clamp(0.0, self.max)
    }
}

/// Converts a fraction to the fixed-point [`Share`] of a fleet.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to the range just before"
)]
fn share(part: f64) -> Share {
    (part * WHOLE).clamp(0.0, f64::from(Share::MAX)) as Share
}

/// The load of each cluster: the mean over its gateways that reported one.
fn loads(network: &Network, told: &BTreeMap<SocketAddr, f64>) -> BTreeMap<ClusterId, f64> {
    let mut sums: BTreeMap<ClusterId, (f64, f64)> = BTreeMap::new();
    for (cluster, gateway, _) in network.gateways() {
        if let Some(load) = told.get(&gateway) {
            let sum = sums.entry(cluster.clone()).or_default();
            *sum = (sum.0 + load, sum.1 + 1.0);
        }
    }
    sums.into_iter()
        .map(|(cluster, (sum, count))| (cluster, sum / count))
        .collect()
}

/// The share of its clients that each cluster sends elsewhere now.
#[derive(Debug, Default)]
struct ShedShares(BTreeMap<ClusterId, f64>);

impl ShedShares {
    /// Updates the shares after `elapsed` at these loads. A cluster without a reported load sends nothing elsewhere: nothing says that it should.
    fn step(
        &mut self,
        shedding: Shedding,
        loads: &BTreeMap<ClusterId, f64>,
        elapsed: Duration,
    ) -> BTreeMap<ClusterId, Share> {
        let before = std::mem::take(&mut self.0);
        for (cluster, load) in loads {
            let held = before.get(cluster).copied().unwrap_or(0.0);
            let part = shedding.next(held, *load, elapsed);
            match (held > 0.0, part > 0.0) {
                (false, true) => {
                    warn!(%cluster, load, "the cluster has more load than it can carry and gives clients away")
                }
                (true, false) => info!(%cluster, load, "the cluster has all its clients again"),
                _ => {}
            }
            if part > 0.0 {
                self.0.insert(cluster.clone(), part);
            }
        }
        let shares = self
            .0
            .iter()
            .map(|(cluster, part)| (cluster.clone(), share(*part)));
        shares.filter(|(_, share)| *share > 0).collect()
    }
}

/// Updates the shares every `every` until `shutdown`.
pub async fn run(
    shedding: Shedding,
    every: Duration,
    published: Arc<Published>,
    metrics: Arc<Metrics>,
    shutdown: CancellationToken,
) {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut shed_shares = ShedShares::default();
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = shutdown.cancelled() => return,
        }
        let network = Arc::clone(published.serving().fleet.network());
        let loads = loads(&network, &published.loads());
        let shares = shed_shares.step(shedding, &loads, every);
        for spec in network.clusters() {
            metrics.shed(
                &spec.cluster,
                shares.get(&spec.cluster).copied().unwrap_or(0),
            );
        }
        published.set_shares(shares);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SHEDDING: Shedding = Shedding {
        above: 1.0,
        below: 0.8,
        speed: 0.02,
        max: 0.9,
    };

    fn id(name: &str) -> ClusterId {
        name.parse().expect("cluster")
    }

    proptest! {
        /// A cluster with more demand than capacity settles at a share where it can carry the rest, and stays there.
        #[test]
        fn it_settles_where_the_load_can_be_carried(demand in 1.05..5.0f64) {
            let (mut part, mut settled) = (0.0, Vec::new());
            for second in 0..2000 {
                let load = demand * (1.0 - part);
                let next = SHEDDING.next(part, load, Duration::from_secs(1));
                prop_assert!((next - part).abs() <= SHEDDING.speed + 1e-12, "not gradual");
                part = next;
                if second > 1500 {
                    settled.push((share(part), load));
                }
            }
            prop_assert!(settled.iter().all(|(share, load)| *share == settled[0].0 && *load < 1.01), "{settled:?}");
            prop_assert!(part < SHEDDING.max);
        }

        #[test]
        fn what_is_given_away_comes_back(part in 0.0..0.9f64) {
            let mut part = part;
            for _ in 0..200 {
                part = SHEDDING.next(part, 0.5, Duration::from_secs(1));
            }
            prop_assert_eq!(share(part), 0);
        }
    }

    #[test]
    fn between_the_two_bounds_nothing_moves() {
        for load in [0.8, 0.9, 1.0] {
            let part = SHEDDING.next(0.3, load, Duration::from_secs(60));
            assert!((part - 0.3).abs() < 1e-12);
        }
        let max = SHEDDING.next(0.89, 100.0, Duration::from_secs(60));
        assert!((max - 0.9).abs() < 1e-12);
    }

    #[test]
    fn a_cluster_that_goes_silent_takes_its_clients_back() {
        let mut shed_shares = ShedShares::default();
        let loaded = BTreeMap::from([(id("a"), 2.0), (id("b"), 0.5)]);
        let second = Duration::from_secs(1);
        let shares = shed_shares.step(SHEDDING, &loaded, second);
        assert_eq!(shares.keys().collect::<Vec<_>>(), [&id("a")]);
        assert!(shed_shares.step(SHEDDING, &loaded, second)[&id("a")] > shares[&id("a")]);
        assert!(
            shed_shares
                .step(SHEDDING, &BTreeMap::new(), second)
                .is_empty()
        );
        // It starts again from zero.
        assert_eq!(shed_shares.step(SHEDDING, &loaded, second), shares);
    }
}
