//! How a cluster's slots are filled: what the engine asks of them, and the way of Heu-Orche, which only appends.

use fdn_core::{Millis, Resources};

use super::slots::Slots;

/// What a container takes of a cluster while it runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    /// When it could start.
    pub(super) ready: f64,
    /// How long it runs.
    pub(super) work: f64,
    /// What it holds while it runs, and what there is of it; `None` if that is counted elsewhere.
    pub(super) held: Option<Held<'a>>,
}

/// Resources held by running containers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held<'a> {
    /// What one more container holds.
    pub(super) demand: &'a Resources,
    /// What all together may hold.
    pub(super) free: &'a Resources,
}

/// The slots of one cluster during a placement.
pub(super) trait Calendar: Default + std::fmt::Debug {
    /// Starts with the slots as the problem has them.
    fn begin(&mut self, slots: &Slots);

    /// When the first slot has nothing more to do; infinity without slots.
    fn available(&self) -> f64;

    /// Before this nothing can start any more, in whatever gap; taking slots never makes it earlier.
    fn floor(&self) -> f64;

    /// The earliest start; infinity without slots.
    fn earliest(&self, wanted: &Wanted<'_>) -> f64;

    /// Takes a slot from `start`, which [`Calendar::earliest`] has given, to `finish`, and returns its number. `held` is what
    /// the container holds meanwhile.
    fn occupy(&mut self, start: f64, finish: f64, held: Resources) -> u32;
}

/// Makes a list `count` long; what is not needed now goes to `spare` and comes back from there, with its memory.
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

    fn earliest(&self, wanted: &Wanted<'_>) -> f64 {
        let start = self.available.max(wanted.ready);
        let Some(Held { demand, free }) = wanted.held else {
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
