//! Client groups: clients that see the clusters alike share one plan.
//!
//! A client's distances are quantized, cluster by cluster, and clients with equal quantized distances form a group. The plan is made for
//! the quantized distances, so it does not depend on which member asked first.
//!
//! **Quantization.** Below `steps` times the floor, distances are rounded to multiples of the floor (1 ms by default); above, each
//! doubling is divided into `steps` equal parts (16 by default), like a floating-point number with few digits. So the error is at most
//! half the floor, or 1/(2 x steps) of the distance (3.2 % by default), whichever is more: less than the hysteresis of 10 %
//! ([`crate::steer`]) that plans must overcome to change. Only divisions and one rounding are used, no logarithms, so the same distance
//! gives the same step on every machine.

use std::collections::BTreeMap;
use std::fmt;

use fdn_core::latency::ClientView;
use fdn_core::{ClusterId, Millis};

/// The quantization of distances.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grouping {
    floor: Millis,
    steps: u32,
}

impl Grouping {
    /// A quantization with steps of `floor` below `steps` times `floor`, and `steps` per doubling above. `None` unless the floor is
    /// positive and finite, and `steps` is a power of two up to 4096.
    #[must_use]
    pub fn new(floor: Millis, steps: u32) -> Option<Self> {
        (floor.is_finite() && floor > Millis::ZERO && steps.is_power_of_two() && steps <= 4096)
            .then_some(Self { floor, steps })
    }

    /// The step of a distance.
    #[must_use]
    pub fn step(&self, distance: Millis) -> Step {
        let mut units = distance.max(Millis::ZERO).get() / self.floor.get();
        if units.is_nan() || units > f64::from(Step::UNITS_MAX) {
            return Step(None);
        }
        let (steps, mut doublings) = (f64::from(self.steps), 0);
        // Rounding up at the end of a doubling reaches the beginning of the next, which is the same distance.
        while units.round() >= steps * 2.0 {
            units /= 2.0;
            doublings += 1;
        }
        Step(Some((units.round() as u32) << doublings))
    }

    /// The group of a client with these one-way distances from the clusters.
    #[must_use]
    pub fn key<'a>(
        &self,
        distances: impl IntoIterator<Item = (&'a ClusterId, Millis)>,
    ) -> GroupKey {
        let steps = distances
            .into_iter()
            .map(|(id, distance)| (id.clone(), self.step(distance)))
            .collect();
        GroupKey {
            floor: self.floor,
            steps,
        }
    }

    /// The group of a client with these latency estimates.
    #[must_use]
    pub fn key_of(&self, view: &ClientView) -> GroupKey {
        self.key(
            view.estimates
                .iter()
                .map(|(id, estimate)| (id, estimate.one_way())),
        )
    }
}

impl Default for Grouping {
    fn default() -> Self {
        Self {
            floor: Millis::new(1.0),
            steps: 16,
        }
    }
}

/// A quantized distance in units of the floor; `None` if out of reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Step(Option<u32>);

impl Step {
    /// Beyond any terrestrial distance by orders of magnitude; treated as out of reach.
    const UNITS_MAX: u32 = 1 << 30;

    /// The distance that the step represents; infinity if out of reach.
    #[must_use]
    pub fn distance(self, floor: Millis) -> Millis {
        self.0
            .map_or(Millis::INFINITY, |units| floor * f64::from(units))
    }
}

/// The key of a client group: clients with equal keys share a plan. Its text form is stable and suitable for databases and labels.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupKey {
    floor: Millis,
    steps: BTreeMap<ClusterId, Step>,
}

impl GroupKey {
    /// The distance of the group from a cluster; infinity for a cluster that is not part of the key.
    #[must_use]
    pub fn distance(&self, cluster: &ClusterId) -> Millis {
        self.steps
            .get(cluster)
            .map_or(Millis::INFINITY, |step| step.distance(self.floor))
    }

    /// The distances of the group from all clusters of the key.
    pub fn distances(&self) -> impl Iterator<Item = (&ClusterId, Millis)> + '_ {
        self.steps
            .iter()
            .map(|(id, step)| (id, step.distance(self.floor)))
    }
}

impl Eq for GroupKey {}

impl Ord for GroupKey {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.floor, &self.steps).cmp(&(other.floor, &other.steps))
    }
}

impl PartialOrd for GroupKey {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for GroupKey {
    /// `ap-south=57,eu-west=12,us-east=inf`: each cluster's distance in ms, by name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (id, distance)) in self.distances().enumerate() {
            let separator = if i == 0 { "" } else { "," };
            write!(f, "{separator}{id}={}", distance.get())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(name: &str) -> ClusterId {
        name.parse().expect("a cluster name")
    }

    fn rounded(ms: f64) -> f64 {
        let grouping = Grouping::default();
        grouping
            .step(Millis::new(ms))
            .distance(Millis::new(1.0))
            .get()
    }

    #[test]
    fn steps_grow_with_the_distance() {
        for (given, expected) in [
            (0.0, 0.0),
            (0.4, 0.0),
            (0.6, 1.0),
            (15.4, 15.0),
            (31.4, 31.0),
            (32.9, 32.0),
            (33.1, 34.0),
            (63.2, 64.0),
            (66.5, 68.0),
            (100.0, 100.0),
            (101.9, 100.0),
            (1000.0, 992.0),
            (f64::INFINITY, f64::INFINITY),
            (-3.0, 0.0),
        ] {
            assert_eq!(rounded(given), expected, "{given}");
        }
    }

    #[test]
    fn clients_that_see_the_clusters_alike_share_a_key() {
        let grouping = Grouping::default();
        let (a, b) = (id("a"), id("b"));
        let key = |x, y| grouping.key([(&b, Millis::new(y)), (&a, Millis::new(x))]);
        assert_eq!(key(10.2, 80.3), key(9.8, 81.5));
        assert_ne!(key(10.2, 80.3), key(10.2, 90.0));
        assert_eq!(key(10.2, f64::INFINITY).to_string(), "a=10,b=inf");
        assert_eq!(key(10.2, 80.3).distance(&b), Millis::new(80.0));
        assert_eq!(key(10.2, 80.3).distance(&id("c")), Millis::INFINITY);
    }

    #[test]
    fn settings_outside_the_range_are_refused() {
        assert!(Grouping::new(Millis::new(0.5), 64).is_some());
        assert!(Grouping::new(Millis::ZERO, 16).is_none());
        assert!(Grouping::new(Millis::INFINITY, 16).is_none());
        assert!(Grouping::new(Millis::new(1.0), 12).is_none());
        assert!(Grouping::new(Millis::new(1.0), 8192).is_none());
    }

    proptest! {
        #[test]
        fn rounding_is_close_monotonic_and_idempotent(a in 0.0..5_000.0f64, b in 0.0..5_000.0f64) {
            prop_assert!((rounded(a) - a).abs() <= (a / 31.0).max(0.5) + 1e-9, "{} -> {}", a, rounded(a));
            prop_assert_eq!(rounded(rounded(a)), rounded(a));
            if a <= b {
                prop_assert!(rounded(a) <= rounded(b));
            }
        }
    }
}
