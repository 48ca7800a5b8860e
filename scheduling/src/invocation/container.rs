//! The table of containers.
//!
//! | state | memory is held | counts for `W(j)` | leaves by |
//! | --- | --- | --- | --- |
//! | loading for an invocation | yes | no | ready |
//! | running an invocation | yes | no | finished, interrupted |
//! | warming, ahead: loading without an invocation | yes | no | ready |
//! | idle | yes | yes | taken, released |
//!
//! A failed or lost container leaves from every state.

use fdn_core::Millis;

use super::heap::NOWHERE;
use super::id::{ContainerId, RequestId, Slot};

/// The state of a container.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum State {
    /// The row is not in use.
    Gone,
    /// Loading for an invocation.
    Loading(Claim),
    /// Executing an invocation, since this time.
    Running { claim: Claim, since: Millis },
    /// Loading without an invocation, at the request of the keep-alive policy.
    Warming,
    /// Loading without an invocation, at the request of a scaler.
    Ahead,
    /// Warm and free.
    Idle,
}

/// The invocation that a container serves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Claim {
    pub(super) request: RequestId,
    pub(super) arrival: Millis,
    /// How long it had executed before it was pre-empted.
    pub(super) executed: Millis,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Container {
    pub(super) state: State,
    pub(super) function: u32,
    pub(super) worker: u32,
    /// The weight it holds: that of the profile when it was loaded.
    pub(super) memory: u64,
    /// When it was ordered, or taken by its present invocation.
    pub(super) since: Millis,
    /// The sequence number of its last use; larger is more recent.
    pub(super) used: u64,
    /// Its eviction priority by the keep-alive policy; the smallest is evicted first.
    pub(super) rank: f64,
    /// Whether it counts as running for queue-or-cold: busy and not past its expected end.
    pub(super) timely: bool,
    /// Whether only a scaler still wants it: the keep-alive policy no longer keeps it.
    pub(super) let_go: bool,
    /// Its position in the heap of idle containers of its function.
    pub(super) in_function: u32,
    /// Its position in the heap of idle containers of its worker.
    pub(super) in_worker: u32,
    generation: u32,
    next_free: u32,
}

/// All containers.
#[derive(Clone, Debug, Default)]
pub(super) struct Containers {
    rows: Vec<Container>,
    free: Option<u32>,
    alive: usize,
}

impl Containers {
    pub(super) const fn alive(&self) -> usize {
        self.alive
    }

    /// The row of a container; `None` if it is gone.
    pub(super) fn find(&self, id: ContainerId) -> Option<u32> {
        let row = self.rows.get(id.0.index as usize)?;
        let there = row.generation == id.0.generation && row.state != State::Gone;
        there.then_some(id.0.index)
    }

    pub(super) fn id(&self, row: u32) -> ContainerId {
        ContainerId(Slot {
            index: row,
            generation: self.rows[row as usize].generation,
        })
    }

    pub(super) fn get(&self, row: u32) -> &Container {
        &self.rows[row as usize]
    }

    pub(super) fn get_mut(&mut self, row: u32) -> &mut Container {
        &mut self.rows[row as usize]
    }

    /// The rows in use.
    pub(super) fn rows(&self) -> impl Iterator<Item = (u32, &Container)> {
        let rows = self.rows.iter().enumerate();
        rows.filter(|(_, row)| row.state != State::Gone)
            .map(|(at, row)| (at as u32, row))
    }

    /// The number of rows, in use or not.
    pub(super) const fn len(&self) -> usize {
        self.rows.len()
    }

    /// A new container.
    pub(super) fn add(&mut self, function: u32, worker: u32, memory: u64, state: State) -> u32 {
        let fresh = Container {
            state,
            function,
            worker,
            memory,
            since: Millis::ZERO,
            used: 0,
            rank: 0.0,
            timely: false,
            let_go: false,
            in_function: NOWHERE,
            in_worker: NOWHERE,
            generation: 0,
            next_free: NOWHERE,
        };
        self.alive += 1;
        let Some(row) = self.free else {
            self.rows.push(fresh);
            // Workers hold fewer than 2^32 containers of at least 1 MiB.
            return (self.rows.len() - 1) as u32;
        };
        let old = &mut self.rows[row as usize];
        self.free = (old.next_free != NOWHERE).then_some(old.next_free);
        *old = Container {
            generation: old.generation.wrapping_add(1),
            ..fresh
        };
        row
    }

    /// Removes a container and frees its row.
    pub(super) fn remove(&mut self, row: u32) {
        let next = self.free.replace(row).unwrap_or(NOWHERE);
        let old = &mut self.rows[row as usize];
        old.state = State::Gone;
        old.next_free = next;
        self.alive -= 1;
    }
}
