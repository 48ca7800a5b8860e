//! The guard against starvation: invocations that have waited too long go first.
//!
//! Smallest-first orders can delay large invocations without bound under overload. With a [`Guard`], invocations that have waited for a
//! threshold leave the order, and the one that has waited longest goes before all others.
//!
//! **Cost.** Under overload a threshold below the waiting time of first come, first served turns the whole queue into that. So the guard
//! is off by default, and has a bounded form: at most a share `x` of the dispatched memory-time goes to invocations because of their age.
//! Each such start debits its expected memory-time to an account, to which every start credits `x` times its own. The balance never
//! exceeds zero, so that quiet periods accumulate no credit, and a starved invocation may start when it is not negative. Over any period
//! the starved therefore get at most `x` times what was dispatched plus one invocation.

use fdn_core::Millis;

use super::refusal::Refusal;

/// The threshold and the bound of the guard.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guard {
    after: Millis,
    share: f64,
}

impl Guard {
    /// A guard for invocations that have waited for `after`, which get at most a share of the dispatched memory-time (above 0 and at
    /// most 1, which means no bound).
    ///
    /// # Errors
    /// When the threshold is negative or the share out of its range.
    pub fn new(after: Millis, share: f64) -> Result<Self, Refusal> {
        if after < Millis::ZERO {
            let what = "the wait after which an invocation starves must not be negative";
            return Err(Refusal::InvalidSetting { what });
        }
        if !(share > 0.0 && share <= 1.0) {
            let what = "the share of starved invocations must be above 0 and at most 1";
            return Err(Refusal::InvalidSetting { what });
        }
        Ok(Self { after, share })
    }

    /// The waiting time from which an invocation goes first.
    #[must_use]
    pub const fn after(&self) -> Millis {
        self.after
    }
}

/// The guard with its account.
#[derive(Clone, Copy, Debug)]
pub(super) struct Starvation {
    guard: Option<Guard>,
    account: f64,
}

impl Starvation {
    pub(super) const fn new(guard: Option<Guard>) -> Self {
        Self {
            guard,
            account: 0.0,
        }
    }

    /// When an invocation that arrived at `arrival` goes before all others; `None` without a guard.
    pub(super) fn starves_at(&self, arrival: Millis) -> Option<Millis> {
        Some(arrival + self.guard?.after)
    }

    /// Whether the account allows a starved invocation to go first now.
    pub(super) const fn is_admitting(&self) -> bool {
        self.account >= 0.0
    }

    /// Books the start of an invocation with this expected memory-time, made because of its age or by the order.
    pub(super) fn started(&mut self, memory_time: f64, for_its_age: bool) {
        let Some(guard) = self.guard else { return };
        if guard.share >= 1.0 {
            return;
        }
        if for_its_age {
            self.account -= memory_time;
        }
        self.account = (self.account + guard.share * memory_time).min(0.0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_guard_has_a_threshold_and_a_share() {
        let new = |after, share| Guard::new(Millis::new(after), share);
        assert!(new(0.0, 1.0).is_ok() && new(60e3, 0.1).is_ok());
        for bad in [
            new(-1.0, 0.5),
            new(1.0, 0.0),
            new(1.0, 1.1),
            new(1.0, f64::NAN),
        ] {
            assert!(matches!(bad, Err(Refusal::InvalidSetting { .. })));
        }
        let off = Starvation::new(None);
        assert_eq!(off.starves_at(Millis::ZERO), None);
    }

    proptest! {
        #[test]
        fn over_any_span_the_starved_get_their_share_and_one_invocation_more(
            costs in prop::collection::vec((0.1f64..100.0, any::<bool>()), 1..200),
            share in 0.01f64..0.99,
        ) {
            let guard = Guard::new(Millis::ZERO, share).expect("valid");
            let mut starvation = Starvation::new(Some(guard));
            let mut started: Vec<(f64, bool)> = Vec::new();
            for (cost, wanted) in costs {
                let for_its_age = wanted && starvation.is_admitting();
                starvation.started(cost, for_its_age);
                started.push((cost, for_its_age));
            }
            for from in 0..started.len() {
                let (mut all, mut starved) = (0.0, 0.0);
                for &(cost, for_its_age) in &started[from..] {
                    all += cost;
                    starved += if for_its_age { cost } else { 0.0 };
                    prop_assert!(starved <= share * all + 100.0 + 1e-6);
                }
            }
        }
    }
}
