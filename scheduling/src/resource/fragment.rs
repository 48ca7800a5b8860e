//! Fragmentation: how much of a node's devices is free but unusable for typical instances.
//!
//! **Problem.** Free slices into which no typical instance fits are lost. A placement should lose as few of them as possible.
//!
//! **Source.** Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent", USENIX
//! ATC 2023. With `p_m` the share of kind `m` among typical instances and `R_g` the free amount of device `g`,
//! - `F(m) = sum over g of R_g` if `m` does not fit on the node at all, or requests no device;
//! - `F(m) = sum over g with R_g < d_m of R_g` if it does, where `d_m` is what it requests of each device;
//! - `F = sum over m of p_m * F(m)`; an instance goes where F grows least.
//!
//! **Readings.** The typical instances are an input. Kinds are taken in descending order of their share until they make up a given part
//! of all, at most [`KINDS_MAX`]; their shares are scaled to a sum of 1.
//!
//! **Complexity.** O(s log n + m) per node for s different device requests, m kinds and n devices: the devices are examined once for all
//! kinds with the same request.
//!
//! **Invariants.** `F` is between 0 and the free amount of all devices.

use std::collections::BTreeMap;

use super::fleet::{Fleet, NodeIndex};
use super::layout::Packed;
use super::query::DeviceSet;
use super::vector::{DeviceRequest, Request, Vector};
use super::word::Word;

/// The most kinds of instances that are considered.
pub const KINDS_MAX: usize = 256;

/// The kinds with the same device request.
#[derive(Clone, Debug)]
struct Shape {
    devices: DeviceRequest,
    /// The class requests of the kinds, with their shares.
    kinds: Vec<(Vector, f64)>,
    share: f64,
}

/// The typical instances of a fleet.
#[derive(Clone, Debug)]
pub struct Typical<W> {
    shapes: Vec<Shape>,
    /// The kinds, sorted.
    kinds: Vec<Request>,
    /// By node: the fragmentation computed last, with the node's version at that time.
    cache: Vec<Option<(u64, f64)>>,
    word: std::marker::PhantomData<W>,
}

impl<W: Word> Typical<W> {
    /// From past requests: the most frequent kinds that make up `part` of them.
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

    /// From kinds with weights; those whose weight is not a positive number are left out.
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

    /// The number of kinds.
    #[must_use]
    pub const fn kinds(&self) -> usize {
        self.kinds.len()
    }

    /// The index of the kind with this request; `None` if it is not typical.
    #[must_use]
    pub fn kind(&self, request: &Request) -> Option<usize> {
        self.kinds.binary_search(request).ok()
    }

    /// The free amount of the node's devices that is unusable, on average over the typical instances.
    #[must_use]
    pub fn fragments(&self, fleet: &Fleet<W>, node: NodeIndex) -> f64 {
        self.fragments_when(
            fleet,
            node,
            &fleet.free_vector(node),
            fleet.device_free(node),
        )
    }

    /// By how much the fragmentation of the node grows with an instance on these devices; `None` if it does not fit.
    ///
    /// Results are cached until the node changes, so use one value per fleet.
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
