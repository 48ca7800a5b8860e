//! The slots of a cluster during a placement: the interface the engine needs, and its append-only form for Heu-Orche.

use fdn_core::{Millis, Resources};

use super::slots::Slots;

/// One container to be fitted into a cluster's slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotRequest<'a> {
    /// The earliest possible start, in ms.
    pub(super) ready: f64,
    /// How long it runs, in ms.
    pub(super) work: f64,
    /// The resources it holds while it runs and how much of them there is; `None` if they are held until the job ends and so counted by the engine.
    pub(super) held: Option<HeldResources<'a>>,
}

/// Resources held by running containers.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldResources<'a> {
    /// What one more container holds.
    pub(super) demand: &'a Resources,
    /// What all together may hold.
    pub(super) free: &'a Resources,
}

/// The slots of one cluster during a placement.
pub(super) trait Calendar: Default + std::fmt::Debug {
    /// Starts with the slots in the state that the problem gives.
    fn begin(&mut self, slots: &Slots);

    /// `avail[p]`: when the first slot has nothing more to do, in ms; infinity without slots.
    fn available(&self) -> f64;

    /// A lower bound of every start from now on, gaps included; occupying slots never lowers it.
    fn floor(&self) -> f64;

    /// The earliest start; infinity without slots.
    fn earliest(&self, wanted: &SlotRequest<'_>) -> f64;

    /// Takes a slot from `start`, which [`Calendar::earliest`] has given, to `finish`, and returns its number. `held` is what
    /// the container holds meanwhile.
    fn occupy(&mut self, start: f64, finish: f64, held: Resources) -> u32;
}

/// Makes a list `count` long; surplus elements move to `spare` and are taken from there again, so that their buffers are kept.
pub(super) fn resize<T: Default>(list: &mut Vec<T>, spare: &mut Vec<T>, count: usize) {
    while list.len() > count {
        spare.extend(list.pop());
    }
    while list.len() < count {
        list.push(spare.pop().unwrap_or_default());
    }
}

/// Slots to which containers are only ever appended: no gap is filled.
#[derive(Debug, Default)]
pub(super) struct Append {
    available: f64,
    slots: Slots,
}

impl Calendar for Append {
    fn begin(&mut self, slots: &Slots) {
        self.slots.clone_from(slots);
        self.available = slots.earliest().get();
    }

    fn available(&self) -> f64 {
        self.available
    }

    fn floor(&self) -> f64 {
        self.available
    }

    fn earliest(&self, wanted: &SlotRequest<'_>) -> f64 {
        let start = self.available.max(wanted.ready);
        let Some(HeldResources { demand, free }) = wanted.held else {
            return start;
        };
        let (from, work) = (Millis::new(start), Millis::new(wanted.work));
        self.slots.earliest_fit(free, demand, from, work).get()
    }

    fn occupy(&mut self, start: f64, finish: f64, held: Resources) -> u32 {
        let slot = self
            .slots
            .occupy(Millis::new(start), Millis::new(finish), held);
        self.available = self.slots.earliest().get();
        slot
    }
}
