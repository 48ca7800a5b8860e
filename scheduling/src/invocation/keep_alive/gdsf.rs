//! Greedy-dual size-frequency caching of containers.
//!
//! **Source.** Fuerst, Sharma: FaasCache (ASPLOS 2021), after Cherkasova's GDSF. On use a container gets
//! `priority = clock + freq(j) * D(j) / R(j)`; the smallest priority is evicted, and then `clock = max(clock, priority)`.
//! `freq` counts the invocations of the function, the present one included.
//!
//! **Complexity.** O(1) for each use; the order of victims is the worker's heap.

use fdn_core::Millis;

use super::KeepAlive;
use crate::invocation::id::FunctionIndex;
use crate::invocation::profile::Profile;

/// Evicts the container that costs least to load again, relative to the memory it holds.
#[derive(Clone, Debug, Default)]
pub struct Gdsf {
    clock: f64,
    frequency: Vec<u64>,
}

impl KeepAlive for Gdsf {
    fn name(&self) -> &'static str {
        "gdsf"
    }

    fn registered(&mut self, function: FunctionIndex) {
        let rows = self.frequency.len().max(function.get() + 1);
        self.frequency.resize(rows, 0);
        self.frequency[function.get()] = 0;
    }

    fn used(&mut self, _: Millis, function: FunctionIndex, profile: &Profile) -> f64 {
        let frequency = &mut self.frequency[function.get()];
        *frequency += 1;
        let memory = profile.memory().get() as f64;
        self.clock + *frequency as f64 * profile.cold_start().get() / memory
    }

    fn evicted(&mut self, rank: f64) {
        self.clock = self.clock.max(rank);
    }
}

#[cfg(test)]
mod tests {
    use fdn_core::MebiBytes;

    use super::*;

    #[test]
    fn the_standing_grows_with_use_and_with_what_was_evicted_before() {
        let mut gdsf = Gdsf::default();
        let [a, b] = [0, 1].map(FunctionIndex::new);
        gdsf.registered(a);
        gdsf.registered(b);
        let profile = |cold, memory| {
            Profile::new(Millis::ZERO, Millis::new(cold), MebiBytes(memory)).expect("valid")
        };
        let (small, large) = (profile(100.0, 10), profile(100.0, 50));
        assert_eq!(gdsf.used(Millis::ZERO, a, &small), 10.0);
        assert_eq!(gdsf.used(Millis::ZERO, a, &small), 20.0);
        assert_eq!(gdsf.used(Millis::ZERO, b, &large), 2.0);
        gdsf.evicted(2.0);
        assert_eq!(gdsf.used(Millis::ZERO, b, &large), 6.0);
        gdsf.evicted(1.0);
        assert_eq!(gdsf.used(Millis::ZERO, b, &large), 8.0);
        gdsf.registered(a);
        assert_eq!(gdsf.used(Millis::ZERO, a, &small), 12.0);
    }
}
