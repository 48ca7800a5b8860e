//! Capacity, use and reservations of one node: `used + reserved <= capacity`, always.
//!
//! A reservation has a lease: when that ends, the resources are free again, whatever the task's holder still assumes. Reservations are
//! keyed by task and attempt, so that a repeated probe reserves once.

use std::collections::VecDeque;

use fdn_core::Millis;

use super::demand::Demand;
use super::message::{Running, TaskId};
use super::settings::Limits;

#[derive(Clone, Copy, Debug)]
struct Reservation<D> {
    id: TaskId,
    attempt: u32,
    demand: D,
    expires: Millis,
}

#[derive(Clone, Copy, Debug)]
struct Place<D> {
    number: u64,
    demand: D,
    busy: bool,
}

/// The resource accounting of one node.
#[derive(Clone, Debug)]
pub(super) struct Ledger<D> {
    capacity: D,
    used: D,
    reserved: D,
    free: D,
    reservations: VecDeque<Reservation<D>>,
    places: Vec<Place<D>>,
    vacant: Vec<u32>,
    started: u64,
    version: u64,
    limits: Limits,
}

impl<D: Demand> Ledger<D> {
    pub(super) fn new(capacity: D, limits: Limits) -> Self {
        Self {
            capacity,
            used: D::default(),
            reserved: D::default(),
            free: capacity,
            reservations: VecDeque::with_capacity(limits.reservations),
            places: Vec::with_capacity(limits.running),
            vacant: Vec::with_capacity(limits.running),
            started: 0,
            version: 0,
            limits,
        }
    }

    pub(super) const fn capacity(&self) -> D {
        self.capacity
    }

    pub(super) const fn used(&self) -> D {
        self.used
    }

    pub(super) const fn reserved(&self) -> D {
        self.reserved
    }

    #[inline]
    pub(super) const fn free(&self) -> D {
        self.free
    }

    /// Increases with every change of the free resources.
    pub(super) const fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn running(&self) -> usize {
        self.places.len() - self.vacant.len()
    }

    #[inline]
    fn changed(&mut self) {
        let taken = self.used.plus(&self.reserved);
        self.free = self
            .capacity
            .minus(&taken)
            .expect("nothing is taken but what was free");
        self.version += 1;
    }

    #[inline]
    pub(super) fn has_room(&self, demand: &D) -> bool {
        demand.fits(&self.free) && self.running() < self.limits.running
    }

    /// Starts an instance; `None` if its demand does not fit.
    pub(super) fn start(&mut self, demand: D) -> Option<Running> {
        if !self.has_room(&demand) {
            return None;
        }
        self.started += 1;
        let place = Place {
            number: self.started,
            demand,
            busy: true,
        };
        let slot = match self.vacant.pop() {
            Some(slot) => {
                self.places[slot as usize] = place;
                slot
            }
            None => {
                self.places.push(place);
                u32::try_from(self.places.len() - 1).expect("the limit is far below")
            }
        };
        self.used = self.used.plus(&demand);
        self.changed();
        Some(Running {
            slot,
            number: self.started,
        })
    }

    /// Frees the resources of an ended instance; false if that was done before.
    pub(super) fn end(&mut self, running: Running) -> bool {
        let Some(place) = self.places.get_mut(running.slot as usize) else {
            return false;
        };
        if !place.busy || place.number != running.number {
            return false;
        }
        place.busy = false;
        let demand = place.demand;
        self.used = self.used.minus_or_zero(&demand);
        self.vacant.push(running.slot);
        self.changed();
        true
    }

    pub(super) fn is_reserved(&self, id: TaskId, attempt: u32) -> bool {
        self.position(id, attempt).is_some()
    }

    fn position(&self, id: TaskId, attempt: u32) -> Option<usize> {
        self.reservations
            .iter()
            .position(|r| r.id == id && r.attempt == attempt)
    }

    /// Reserves resources until `expires`; false if they do not fit or there are too many reservations. Leases must be given in the
    /// order of their ends.
    pub(super) fn reserve(&mut self, id: TaskId, attempt: u32, demand: D, expires: Millis) -> bool {
        if !self.has_room(&demand) || self.reservations.len() >= self.limits.reservations {
            return false;
        }
        self.reservations.push_back(Reservation {
            id,
            attempt,
            demand,
            expires,
        });
        self.reserved = self.reserved.plus(&demand);
        self.changed();
        true
    }

    /// Cancels a reservation; false if there is none.
    pub(super) fn release(&mut self, id: TaskId, attempt: u32) -> bool {
        let Some(at) = self.position(id, attempt) else {
            return false;
        };
        self.remove(at);
        true
    }

    fn remove(&mut self, at: usize) {
        if let Some(reservation) = self.reservations.remove(at) {
            self.reserved = self.reserved.minus_or_zero(&reservation.demand);
            self.changed();
        }
    }

    /// Ends the leases due by `now`: a lease given at 0 for 5 ms holds before 5 and not at 5.
    #[inline]
    pub(super) fn expire(&mut self, now: Millis) {
        while self.next_expiry().is_some_and(|expires| expires <= now) {
            self.remove(0);
        }
    }

    #[inline]
    pub(super) fn next_expiry(&self) -> Option<Millis> {
        self.reservations.front().map(|first| first.expires)
    }
}

#[cfg(test)]
mod tests {
    use super::super::demand::Slots;
    use super::*;

    fn ms(value: f64) -> Millis {
        Millis::new(value)
    }

    fn ledger(slots: u32) -> Ledger<Slots> {
        Ledger::new(Slots(slots), Limits::default())
    }

    #[test]
    fn what_runs_and_what_is_reserved_share_the_room() {
        let mut ledger = ledger(2);
        let first = ledger.start(Slots(1)).unwrap();
        assert!(ledger.reserve(TaskId(1), 0, Slots(1), ms(5.0)));
        assert_eq!(ledger.start(Slots(1)), None);
        assert!(!ledger.reserve(TaskId(2), 0, Slots(1), ms(5.0)));
        assert!(ledger.end(first) && !ledger.end(first), "only once");
        assert!(ledger.release(TaskId(1), 0) && !ledger.release(TaskId(1), 0));
        assert_eq!(ledger.free(), Slots(2));
        assert_eq!(ledger.version(), 4, "one for each change");
    }

    #[test]
    fn a_handle_of_an_earlier_instance_ends_nothing() {
        let mut ledger = ledger(1);
        let first = ledger.start(Slots(1)).unwrap();
        assert!(ledger.end(first));
        let second = ledger.start(Slots(1)).unwrap();
        assert!(!ledger.end(first), "its place has another instance");
        assert_eq!(ledger.running(), 1);
        assert!(ledger.end(second));
        assert!(!ledger.end(Running { slot: 9, number: 1 }));
    }

    #[test]
    fn no_lease_outlives_its_end() {
        let mut ledger = ledger(3);
        for (id, expires) in [(1, 5.0), (2, 6.0), (3, 7.0)] {
            assert!(ledger.reserve(TaskId(id), 1, Slots(1), ms(expires)));
        }
        ledger.expire(ms(4.9));
        assert_eq!(ledger.reserved(), Slots(3));
        assert!(!ledger.release(TaskId(2), 0), "another attempt");
        ledger.expire(ms(6.0));
        assert!(ledger.is_reserved(TaskId(3), 1) && !ledger.is_reserved(TaskId(2), 1));
        assert_eq!(ledger.next_expiry(), Some(ms(7.0)));
        ledger.expire(ms(100.0));
        assert_eq!((ledger.free(), ledger.next_expiry()), (Slots(3), None));
    }

    #[test]
    fn the_bounds_hold() {
        let limits = Limits {
            reservations: 1,
            running: 1,
            ..Limits::default()
        };
        let mut ledger = Ledger::new(Slots(9), limits);
        assert!(ledger.reserve(TaskId(1), 0, Slots(1), ms(5.0)));
        assert!(!ledger.reserve(TaskId(2), 0, Slots(1), ms(5.0)));
        assert!(ledger.start(Slots(1)).is_some());
        assert!(ledger.start(Slots(1)).is_none());
    }
}
