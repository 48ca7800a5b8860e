//! Which gateways finish a call sooner than this one, where it would wait.
//!
//! **Problem.** Plans spread clients by what they ask for on average; what comes at this moment is more or less than that. While calls wait at one
//! node, another one, here or in another cluster, may be idle.
//!
//! **Way.** A gateway tells with every call that was handed on to it how long one more of that function would take there, the wait included
//! ([`Loads`]). Whoever has a call that would wait compares: what it would take here, against the way there and back and what it would take
//! there. Of a gateway that told nothing lately it is taken that a call is let in at once: to ask it is to offer it the call. The call says within which
//! time it is to be over; who cannot do that says so at once, and how long it would take, before anything has run. So what is known may be old: the
//! one that decides knows how it is now.
//!
//! **Invariants.** A call is handed on only for a gain above the share that is set and above [`LEAST`]; it is offered to at most [`OFFERS`] gateways;
//! what is remembered is bounded.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fdn_core::{AppName, ClusterId, Millis};

/// The gain below which it is not worth the work.
const LEAST: Millis = Millis::new(5.0);
/// To how many gateways a call that would wait is offered.
const OFFERS: usize = 2;
/// How long counts what a gateway told.
const FRESH: Duration = Duration::from_secs(1);
/// Gateways of which is remembered what they told, by app.
const LOADS: usize = 4096;
/// The way to a node of the same cluster and back.
pub(super) const BESIDE: Millis = Millis::new(1.0);

/// How long a call would take at other gateways, as they told.
#[derive(Debug, Default)]
pub(crate) struct Loads(Mutex<BTreeMap<(AppName, SocketAddr), (Instant, Millis)>>);

impl Loads {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(AppName, SocketAddr), (Instant, Millis)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A gateway told how long a call would take.
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

    /// What a gateway told lately.
    fn of(&self, app: &AppName, address: SocketAddr, now: Instant) -> Option<Millis> {
        let found = self.lock().get(&(app.clone(), address)).copied();
        let fresh = found.filter(|(at, _)| now.saturating_duration_since(*at) < FRESH);
        fresh.map(|(_, finish)| finish)
    }
}

/// A gateway that may be asked.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) cluster: ClusterId,
    pub(super) address: SocketAddr,
    /// The way there and back.
    pub(super) way: Millis,
}

/// A gateway that is asked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Asked {
    pub(crate) cluster: ClusterId,
    pub(crate) address: SocketAddr,
    /// The call is to be over there within so long after it has come, or is not to begin; nothing if it may take what it takes.
    pub(crate) within: Option<Millis>,
}

/// What a call takes here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Here {
    /// Once it has been let in.
    pub(super) run: Millis,
    /// With the wait.
    pub(super) finish: Millis,
    /// The share of that which is to be saved.
    pub(super) gain: f64,
}

impl Here {
    /// How long it may take elsewhere, the way included.
    pub(super) fn bound(&self) -> Millis {
        (self.finish * (1.0 - self.gain)).min(self.finish - LEAST)
    }
}

/// Who is asked, the soonest first; of equally soon ones in their order.
pub(super) fn sooner(
    app: &AppName,
    here: &Here,
    candidates: impl IntoIterator<Item = Candidate>,
    loads: &Loads,
    now: Instant,
) -> Vec<Asked> {
    let bound = here.bound();
    let timed = candidates.into_iter().map(|candidate| {
        let there = loads.of(app, candidate.address, now).unwrap_or(here.run);
        (candidate.way + there, candidate)
    });
    let mut timed: Vec<(Millis, Candidate)> = timed.filter(|(time, _)| *time < bound).collect();
    timed.sort_by_key(|(time, _)| *time);
    let asked = timed.into_iter().take(OFFERS);
    asked
        .map(|(_, candidate)| Asked {
            within: Some(bound - candidate.way),
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

    fn candidate(n: u8, way: f64) -> Candidate {
        Candidate {
            cluster: "eu-west".parse().expect("cluster"),
            address: at(n),
            way: Millis::new(way),
        }
    }

    fn here(run: f64, finish: f64) -> Here {
        Here {
            run: Millis::new(run),
            finish: Millis::new(finish),
            gain: 0.2,
        }
    }

    fn asked(here: &Here, ways: &[f64], told: &[(u8, f64)]) -> Vec<(u8, f64)> {
        let (app, now) = ("hello".parse().expect("app"), Instant::now());
        let loads = Loads::default();
        for (n, finish) in told {
            loads.note(&app, at(*n), Millis::new(*finish), now);
        }
        let candidates = (0..).zip(ways).map(|(n, way)| candidate(n, *way));
        let asked = sooner(&app, here, candidates, &loads, now);
        let plain = |asked: Asked| {
            let SocketAddr::V4(address) = asked.address else {
                panic!("{asked:?}")
            };
            let within = asked.within.expect("a time").get();
            (address.ip().octets()[3], within)
        };
        asked.into_iter().map(plain).collect()
    }

    #[test]
    fn who_would_finish_sooner_is_asked_first_and_is_told_within_which_time() {
        // 100 ms of work and as long a wait: elsewhere it may take 160 in all.
        let busy = here(100.0, 200.0);
        assert_eq!(asked(&busy, &[70.0], &[]), [], "too far");
        assert_eq!(asked(&busy, &[50.0], &[]), [(0, 110.0)]);
        assert_eq!(
            asked(&busy, &[50.0, 1.0, 10.0], &[]),
            [(1, 159.0), (2, 150.0)],
            "two at most"
        );
        // One that told that calls wait there as well comes later, or not at all.
        assert_eq!(
            asked(&busy, &[50.0, 1.0, 10.0], &[(1, 155.0)]),
            [(2, 150.0), (0, 110.0)]
        );
        assert_eq!(asked(&busy, &[1.0], &[(0, 160.0)]), []);
        // A cluster that is faster is worth a longer way.
        assert_eq!(asked(&busy, &[70.0], &[(0, 40.0)]), [(0, 90.0)]);
    }

    #[test]
    fn a_gain_of_next_to_nothing_moves_nobody() {
        assert_eq!(asked(&here(1.0, 6.0), &[0.0], &[]), []);
        assert_eq!(asked(&here(1.0, 6.1), &[0.0], &[]).len(), 1);
        let never = Here {
            gain: 1.0,
            ..here(100.0, 10_000.0)
        };
        assert_eq!(asked(&never, &[0.0], &[(0, 0.0)]), []);
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
        // One that is known is told anew.
        loads.note(&app, address(0), Millis::new(9.0), now);
        assert_eq!(loads.of(&app, address(0), now), Some(Millis::new(9.0)));
        let later = now + FRESH;
        assert_eq!(loads.of(&app, address(0), later), None);
        loads.note(&app, address(LOADS), Millis::new(1.0), later);
        assert_eq!(loads.lock().len(), 1, "what is over makes room");
    }
}
