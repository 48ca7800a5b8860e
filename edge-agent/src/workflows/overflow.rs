//! Chooses the gateways that would finish a call sooner than this one, when the call would wait here.
//!
//! **Problem.** Plans distribute clients by average demand; the demand at any moment is above or below it. While calls wait on one node, another
//! node, here or in another cluster, may be idle.
//!
//! **Approach.** For every call forwarded to it, a gateway reports how long one more call of that function would take there, wait included
//! ([`Loads`]). A gateway with a call that would wait compares its own expected time with the round-trip time plus the expected time there. A
//! gateway with no recent report is assumed to admit a call at once; offering it the call is how to find out. The offer names the time within
//! which the call must be finished; a gateway that cannot meet it refuses before anything has run, and reports its expected time. So reports may
//! be outdated: the gateway that decides knows its current load.
//!
//! **Invariants.** A call is forwarded only for a gain above the configured share and above [`LEAST`]; it is offered to at most [`OFFERS`]
//! gateways; the number of stored reports is bounded.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fdn_core::{AppName, ClusterId, Millis};

/// The least gain in ms that is worth forwarding a call.
const LEAST: Millis = Millis::new(5.0);
/// The number of gateways to which one call is offered.
const OFFERS: usize = 2;
/// How long a report counts.
const FRESH: Duration = Duration::from_secs(1);
/// The maximum number of stored reports, over all apps and gateways.
const LOADS: usize = 4096;
/// The assumed round-trip time to a node of the same cluster.
pub(super) const SAME_CLUSTER: Millis = Millis::new(1.0);

/// The reported times of a call at other gateways, by app and gateway.
#[derive(Debug, Default)]
pub(crate) struct Loads(Mutex<BTreeMap<(AppName, SocketAddr), (Instant, Millis)>>);

impl Loads {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(AppName, SocketAddr), (Instant, Millis)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a gateway's report of how long a call would take.
    pub(super) fn note(&self, app: &AppName, address: SocketAddr, finish: Millis, now: Instant) {
        let mut all = self.lock();
        if all.len() >= LOADS {
            all.retain(|_, (at, _)| now.saturating_duration_since(*at) < FRESH);
        }
        let key = (app.clone(), address);
        if all.len() < LOADS || all.contains_key(&key) {
            all.insert(key, (now, finish));
        }
    }

    /// A gateway's report, if it is recent.
    fn of(&self, app: &AppName, address: SocketAddr, now: Instant) -> Option<Millis> {
        let found = self.lock().get(&(app.clone(), address)).copied();
        let fresh = found.filter(|(at, _)| now.saturating_duration_since(*at) < FRESH);
        fresh.map(|(_, finish)| finish)
    }
}

/// A gateway to which a call may be offered.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) cluster: ClusterId,
    pub(super) address: SocketAddr,
    /// The round-trip time.
    pub(super) round_trip: Millis,
}

/// A gateway to which a call is offered.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ForwardTarget {
    pub(crate) cluster: ClusterId,
    pub(crate) address: SocketAddr,
    /// The time, counted from the call's arrival there, within which it must be finished, or it must not begin; `None`: no limit.
    pub(crate) within: Option<Millis>,
}

/// The expected time of a call on this node.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocalEstimate {
    /// Once admitted.
    pub(super) run: Millis,
    /// Including the wait.
    pub(super) finish: Millis,
    /// The share of `finish` that forwarding must save, 0 to 1.
    pub(super) gain: f64,
}

impl LocalEstimate {
    /// The longest time that the call may take elsewhere, round trip included.
    pub(super) fn bound(&self) -> Millis {
        (self.finish * (1.0 - self.gain)).min(self.finish - LEAST)
    }
}

/// The gateways to which the call is offered, the soonest first; ties keep their order.
pub(super) fn sooner(
    app: &AppName,
    here: &LocalEstimate,
    candidates: impl IntoIterator<Item = Candidate>,
    loads: &Loads,
    now: Instant,
) -> Vec<ForwardTarget> {
    let bound = here.bound();
    let timed = candidates.into_iter().map(|candidate| {
        let there = loads.of(app, candidate.address, now).unwrap_or(here.run);
        (candidate.round_trip + there, candidate)
    });
    let mut timed: Vec<(Millis, Candidate)> = timed.filter(|(time, _)| *time < bound).collect();
    timed.sort_by_key(|(time, _)| *time);
    let targets = timed.into_iter().take(OFFERS);
    targets
        .map(|(_, candidate)| ForwardTarget {
            within: Some(bound - candidate.round_trip),
            cluster: candidate.cluster,
            address: candidate.address,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(n: u8) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, n], 1))
    }

    fn candidate(n: u8, round_trip: f64) -> Candidate {
        Candidate {
            cluster: "eu-west".parse().expect("cluster"),
            address: at(n),
            round_trip: Millis::new(round_trip),
        }
    }

    fn here(run: f64, finish: f64) -> LocalEstimate {
        LocalEstimate {
            run: Millis::new(run),
            finish: Millis::new(finish),
            gain: 0.2,
        }
    }

    fn targets(here: &LocalEstimate, round_trips: &[f64], told: &[(u8, f64)]) -> Vec<(u8, f64)> {
        let (app, now) = ("hello".parse().expect("app"), Instant::now());
        let loads = Loads::default();
        for (n, finish) in told {
            loads.note(&app, at(*n), Millis::new(*finish), now);
        }
        let candidates = (0..)
            .zip(round_trips)
            .map(|(n, round_trip)| candidate(n, *round_trip));
        let targets = sooner(&app, here, candidates, &loads, now);
        let plain = |target: ForwardTarget| {
            let SocketAddr::V4(address) = target.address else {
                panic!("{target:?}")
            };
            let within = target.within.expect("a time").get();
            (address.ip().octets()[3], within)
        };
        targets.into_iter().map(plain).collect()
    }

    #[test]
    fn who_would_finish_sooner_is_asked_first_and_is_told_within_which_time() {
        // 100 ms of work and as long a wait: the call may take 160 ms elsewhere.
        let busy = here(100.0, 200.0);
        assert_eq!(targets(&busy, &[70.0], &[]), [], "too far");
        assert_eq!(targets(&busy, &[50.0], &[]), [(0, 110.0)]);
        assert_eq!(
            targets(&busy, &[50.0, 1.0, 10.0], &[]),
            [(1, 159.0), (2, 150.0)],
            "two at most"
        );
        // A gateway that reports a wait comes later, or not at all.
        assert_eq!(
            targets(&busy, &[50.0, 1.0, 10.0], &[(1, 155.0)]),
            [(2, 150.0), (0, 110.0)]
        );
        assert_eq!(targets(&busy, &[1.0], &[(0, 160.0)]), []);
        // A faster cluster is worth a longer round trip.
        assert_eq!(targets(&busy, &[70.0], &[(0, 40.0)]), [(0, 90.0)]);
    }

    #[test]
    fn a_gain_of_next_to_nothing_moves_nobody() {
        assert_eq!(targets(&here(1.0, 6.0), &[0.0], &[]), []);
        assert_eq!(targets(&here(1.0, 6.1), &[0.0], &[]).len(), 1);
        let never = LocalEstimate {
            gain: 1.0,
            ..here(100.0, 10_000.0)
        };
        assert_eq!(targets(&never, &[0.0], &[(0, 0.0)]), []);
    }

    #[test]
    fn what_was_told_is_forgotten_soon_and_memory_is_bounded() {
        let (app, now): (AppName, _) = ("hello".parse().expect("app"), Instant::now());
        let loads = Loads::default();
        let address = |n: usize| SocketAddr::from(([127, 0, (n / 250) as u8, (n % 250) as u8], 1));
        for n in 0..=LOADS {
            loads.note(&app, address(n), Millis::new(7.0), now);
        }
        assert_eq!(loads.lock().len(), LOADS);
        assert_eq!(loads.of(&app, address(LOADS), now), None);
        // A known entry can still be updated.
        loads.note(&app, address(0), Millis::new(9.0), now);
        assert_eq!(loads.of(&app, address(0), now), Some(Millis::new(9.0)));
        let later = now + FRESH;
        assert_eq!(loads.of(&app, address(0), later), None);
        loads.note(&app, address(LOADS), Millis::new(1.0), later);
        assert_eq!(loads.lock().len(), 1, "what is over makes room");
    }
}
