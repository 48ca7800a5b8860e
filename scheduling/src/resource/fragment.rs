//! How much of a node's devices is free but of no use to the instances that usually come.
//!
//! **Problem.** Free slices that no usual instance fits into are lost. A placement should lose as few of them as possible.
//!
//! **Source.** Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent", USENIX
//! ATC 2023. With `p_m` the share of instances of kind `m` among those that usually come and `R_g` what is free on device `g`,
//! - `F(m) = sum over g of R_g` if `m` does not fit on the node at all, or wants no device;
//! - `F(m) = sum over g with R_g < d_m of R_g` if it does, where `d_m` is what it wants of each device;
//! - `F = sum over m of p_m * F(m)`; an instance goes where F grows least.
//!
//! **Readings.** Which instances usually come is an input. Kinds are taken in order of their share until they make up a given part of
//! all, at most [`KINDS_MAX`]; the shares of those are scaled to 1.
//!
//! **Complexity.** O(s log n + m) per node for s different wishes of devices, m kinds and n devices: the devices are looked at once
//! for all kinds that want the same of them.
//!
//! **Invariants.** `0 <= F <= ` what is free on the devices.

use std::collections::BTreeMap;

use super::fleet::{Fleet, NodeIndex};
use super::layout::Packed;
use super::query::DeviceSet;
use super::vector::{DeviceRequest, Request, Vector};
use super::word::Word;

/// The most kinds of instances that are looked at.
pub const KINDS_MAX: usize = 256;

/// The kinds that want the same of the devices.
#[derive(Clone, Debug)]
struct Shape {
    devices: DeviceRequest,
    /// What the kinds want of the classes, with their shares.
    kinds: Vec<(Vector, f64)>,
    share: f64,
}

/// The instances that usually come.
#[derive(Clone, Debug)]
pub struct Typical<W> {
    shapes: Vec<Shape>,
    /// The kinds, in order.
    kinds: Vec<Request>,
    /// What was computed per node, for which version of it.
    cache: Vec<Option<(u64, f64)>>,
    word: std::marker::PhantomData<W>,
}

impl<W: Word> Typical<W> {
    /// From requests of the past: the most frequent kinds that make up `part` of them.
    #[must_use]
    pub fn observed(requests: impl IntoIterator<Item = Request>, part: f64) -> Self {
        let mut counts = BTreeMap::<Request, u64>::new();
        let mut all = 0;
        for request in requests {
            *counts.entry(request).or_default() += 1;
            all += 1;
        }
        let mut kinds: Vec<(Request, u64)> = counts.into_iter().collect();
        kinds.sort_by_key(|(request, count)| (std::cmp::Reverse(*count), *request));
        let mut covered = 0;
        let enough = part * all as f64;
        let frequent = kinds.into_iter().take(KINDS_MAX).take_while(|(_, count)| {
            let wanted = (covered as f64) < enough;
            covered += count;
            wanted
        });
        Self::new(frequent.map(|(request, count)| (request, count as f64)))
    }

    /// Kinds with their weights; those that are not positive numbers are left out.
    #[must_use]
    pub fn new(kinds: impl IntoIterator<Item = (Request, f64)>) -> Self {
        let mut by_shape = BTreeMap::<DeviceRequest, Vec<(Vector, f64)>>::new();
        let mut sum = 0.0;
        let mut all = Vec::new();
        for (request, weight) in kinds {
            if weight > 0.0 && weight.is_finite() {
                let shape = by_shape.entry(request.devices).or_default();
                shape.push((request.classes, weight));
                sum += weight;
                all.push(request);
            }
        }
        all.sort_unstable();
        all.dedup();
        let shape = |(devices, mut kinds): (DeviceRequest, Vec<(Vector, f64)>)| {
            for (_, weight) in &mut kinds {
                *weight /= sum;
            }
            let share = kinds.iter().map(|(_, share)| share).sum();
            Shape {
                devices,
                kinds,
                share,
            }
        };
        Self {
            shapes: by_shape.into_iter().map(shape).collect(),
            kinds: all,
            cache: Vec::new(),
            word: std::marker::PhantomData,
        }
    }

    /// How many kinds there are.
    #[must_use]
    pub const fn kinds(&self) -> usize {
        self.kinds.len()
    }

    /// The number of the kind of this request, if it is one that usually comes.
    #[must_use]
    pub fn kind(&self, request: &Request) -> Option<usize> {
        self.kinds.binary_search(request).ok()
    }

    /// What is free on the node's devices and of no use, on average over the usual instances.
    #[must_use]
    pub fn fragments(&self, fleet: &Fleet<W>, node: NodeIndex) -> f64 {
        self.fragments_when(
            fleet,
            node,
            &fleet.free_vector(node),
            fleet.device_free(node),
        )
    }

    /// How much more of the node's devices would be of no use with an instance on these devices; `None` if it does not fit.
    ///
    /// What is of no use now is remembered until the node changes: so this is for one fleet.
    pub fn gradient(
        &mut self,
        fleet: &Fleet<W>,
        node: NodeIndex,
        request: &Request,
        devices: DeviceSet,
    ) -> Option<f64> {
        let free = fleet.free_vector(node).checked_sub(&request.classes).ok()?;
        let each = request.devices.each(fleet.spec(node).each);
        let mut device_free = fleet.device_free(node);
        for device in devices.iter() {
            device_free = fleet.layout().sub(device_free, device, each).ok()?;
        }
        let after = self.fragments_when(fleet, node, &free, device_free);
        Some(after - self.remembered(fleet, node))
    }

    fn remembered(&mut self, fleet: &Fleet<W>, node: NodeIndex) -> f64 {
        if self.cache.len() < fleet.len() {
            self.cache.resize(fleet.len(), None);
        }
        let version = fleet.version(node);
        match self.cache[node.get()] {
            Some((of, fragments)) if of == version => fragments,
            _ => {
                let fragments = self.fragments(fleet, node);
                self.cache[node.get()] = Some((version, fragments));
                fragments
            }
        }
    }

    fn fragments_when(
        &self,
        fleet: &Fleet<W>,
        node: NodeIndex,
        free: &Vector,
        device_free: Packed<W>,
    ) -> f64 {
        let layout = fleet.layout();
        let total = layout.total(device_free) as f64;
        if total == 0.0 {
            return 0.0;
        }
        let of_shape = |shape: &Shape| {
            let matches = fleet.fitting_when(node, device_free, shape.devices);
            let Some(matches) = matches.filter(|_| shape.devices.count() > 0) else {
                return shape.share * total;
            };
            let rest = layout.total_of_others(device_free, matches) as f64;
            let kinds = shape.kinds.iter();
            kinds
                .map(|(wanted, share)| share * if wanted.fits(free) { rest } else { total })
                .sum()
        };
        self.shapes.iter().map(of_shape).sum()
    }
}
