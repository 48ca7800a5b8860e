//! The suitability of a node for an instance, as a cost: the smallest wins, ties go to the smaller node.
//!
//! **Source.** Patent CN111381957A: with `u_i = requested/capacity` of class `i`, *least-requested* takes the smallest mean of `u_i`,
//! *most-balanced* the smallest variance `mean (u_i - mean)^2`. Both spread instances and so starve those that want many
//! devices of one node; *packing* (largest mean), *smallest leftover* (best fit on the devices) and *fragmentation*
//! ([`super::Typical`]) are here for that.
//!
//! **Readings.** `u_i` are fractions, counted with the new instance included. Classes that the node lacks (capacity 0) are left out. All
//! devices of a node together are one class.
//!
//! **Complexity.** O(classes + log devices) per node.

use std::cmp::Ordering;

use super::fleet::{Fleet, NodeIndex};
use super::fragment::Typical;
use super::query::DeviceSet;
use super::vector::{Class, Request};
use super::word::Word;

/// The rule by which nodes are compared.
#[derive(Clone, Debug)]
pub enum Score<W> {
    /// Least average use: spreads the load.
    LeastRequested,
    /// Most even use of the classes.
    MostBalanced,
    /// Most average use: keeps nodes empty for large instances.
    Packing,
    /// Least left over on the devices that the instance gets, then on all devices of the node.
    SmallestLeftover,
    /// Least growth of fragmentation for typical instances.
    Fragmentation(Typical<W>),
}

/// A cost; smaller is better. Totally ordered, so a choice never depends on the order of comparisons.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    cost: f64,
    /// Breaks ties.
    then: u64,
}

impl Cost {
    /// The primary cost.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.cost
    }

    pub(super) const fn new(cost: f64, then: u64) -> Self {
        Self { cost, then }
    }
}

impl PartialEq for Cost {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Cost {}

impl PartialOrd for Cost {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Cost {
    fn cmp(&self, other: &Self) -> Ordering {
        let first = self.cost.total_cmp(&other.cost);
        first.then(self.then.cmp(&other.then))
    }
}

/// The use of a node's classes with an additional instance.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// The mean fraction over its classes.
    pub mean: f64,
    /// The variance of the fractions.
    pub variance: f64,
}

impl Usage {
    /// From the fractions; zero if there are none.
    pub fn of(fractions: impl Iterator<Item = f64> + Clone) -> Self {
        let (sum, count) = fractions
            .clone()
            .fold((0.0, 0.0), |(sum, count), u| (sum + u, count + 1.0));
        if count == 0.0 {
            return Self::default();
        }
        let mean = sum / count;
        let squares: f64 = fractions.map(|u| (u - mean) * (u - mean)).sum();
        Self {
            mean,
            variance: squares / count,
        }
    }
}

impl<W: Word> Fleet<W> {
    /// The use of a node with an additional instance.
    #[must_use]
    pub fn usage_with(&self, node: NodeIndex, request: &Request) -> Usage {
        let spec = self.spec(node);
        let of_classes = Class::ALL.into_iter().filter_map(|class| {
            let capacity = spec.capacity.get(class);
            let used = capacity - self.free(node, class) + request.classes.get(class);
            (capacity > 0).then(|| used as f64 / capacity as f64)
        });
        let capacity = self.layout().total(self.device_capacity(node));
        let of_devices = (capacity > 0).then(|| {
            let wanted = u128::from(request.devices.count())
                * u128::from(request.devices.each(spec.each).get());
            let used = capacity - self.layout().total(self.device_free(node)) + wanted;
            used as f64 / capacity as f64
        });
        Usage::of(of_classes.chain(of_devices))
    }

    /// The amounts left on the devices that the instance would get, and on all devices of the node.
    pub(super) fn leftover(
        &self,
        node: NodeIndex,
        request: &Request,
        devices: DeviceSet,
    ) -> (u64, u64) {
        let free = self.device_free(node);
        let each = request.devices.each(self.spec(node).each).get();
        let there: u64 = devices
            .iter()
            .filter_map(|device| self.layout().get(free, device).ok())
            .map(|free| free.get().saturating_sub(each))
            .fold(0, u64::saturating_add);
        let all = u64::try_from(self.layout().total(free)).unwrap_or(u64::MAX);
        (
            there,
            all.saturating_sub(each.saturating_mul(u64::from(devices.len()))),
        )
    }
}
