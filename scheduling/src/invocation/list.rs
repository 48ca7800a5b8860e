//! Waiting invocations as FIFO lists through one table: 48 bytes each, no allocation once the table has grown.

use fdn_core::Millis;

use super::id::{RequestId, Slot};

/// The end of a list.
pub(super) const NONE: u32 = u32::MAX;

/// A waiting invocation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) request: RequestId,
    pub(super) arrival: Millis,
    /// Its sequence number in the queue; a pre-empted one is queued again with a new number.
    pub(super) turn: u64,
    /// How long it has executed before it was pre-empted.
    pub(super) executed: Millis,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    waiting: Waiting,
    function: u32,
    /// Odd while the row is in use.
    generation: u32,
    next: u32,
    before: u32,
}

/// The ends of one list, and its length.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    pub(super) first: u32,
    last: u32,
    pub(super) len: usize,
}

impl Default for List {
    fn default() -> Self {
        Self {
            first: NONE,
            last: NONE,
            len: 0,
        }
    }
}

/// The table that holds all lists.
#[derive(Clone, Debug)]
pub(super) struct Lists {
    nodes: Vec<Node>,
    free: u32,
    len: usize,
}

impl Default for Lists {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            free: NONE,
            len: 0,
        }
    }
}

/// The memory of one waiting invocation, in bytes.
pub(super) const BYTES: usize = size_of::<Node>();

impl Lists {
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) fn waiting(&self, at: u32) -> &Waiting {
        &self.nodes[at as usize].waiting
    }

    /// The function whose list a row is in.
    pub(super) fn function(&self, at: u32) -> u32 {
        self.nodes[at as usize].function
    }

    /// The row of a slot; `None` if its invocation no longer waits.
    pub(super) fn find(&self, slot: Slot) -> Option<u32> {
        let node = self.nodes.get(slot.index as usize)?;
        (node.generation == slot.generation && slot.generation % 2 == 1).then_some(slot.index)
    }

    /// Inserts an invocation before the first one that `goes_before` selects, or at the end.
    pub(super) fn insert(
        &mut self,
        function: u32,
        list: &mut List,
        waiting: Waiting,
        goes_before: Option<impl Fn(&Waiting) -> bool>,
    ) -> Slot {
        let at = self.take(function, waiting);
        let next = goes_before.map_or(NONE, |goes_before| {
            let mut next = list.first;
            while next != NONE && !goes_before(self.waiting(next)) {
                next = self.nodes[next as usize].next;
            }
            next
        });
        let before = if next == NONE {
            std::mem::replace(&mut list.last, at)
        } else {
            std::mem::replace(&mut self.nodes[next as usize].before, at)
        };
        if before == NONE {
            list.first = at;
        } else {
            self.nodes[before as usize].next = at;
        }
        let node = &mut self.nodes[at as usize];
        (node.next, node.before) = (next, before);
        list.len += 1;
        self.len += 1;
        Slot {
            index: at,
            generation: node.generation,
        }
    }

    /// Removes an invocation from its list.
    pub(super) fn remove(&mut self, list: &mut List, at: u32) -> Waiting {
        let Node {
            waiting,
            next,
            before,
            ..
        } = self.nodes[at as usize];
        if before == NONE {
            list.first = next;
        } else {
            self.nodes[before as usize].next = next;
        }
        if next == NONE {
            list.last = before;
        } else {
            self.nodes[next as usize].before = before;
        }
        let node = &mut self.nodes[at as usize];
        node.generation = node.generation.wrapping_add(1);
        node.next = std::mem::replace(&mut self.free, at);
        list.len -= 1;
        self.len -= 1;
        waiting
    }

    /// A row for an invocation: a free one, else a new one.
    fn take(&mut self, function: u32, waiting: Waiting) -> u32 {
        if self.free == NONE {
            self.nodes.push(Node {
                waiting,
                function,
                generation: 1,
                next: NONE,
                before: NONE,
            });
            // The bound of the queue is below 2^32.
            return (self.nodes.len() - 1) as u32;
        }
        let at = self.free;
        let node = &mut self.nodes[at as usize];
        self.free = node.next;
        node.generation = node.generation.wrapping_add(1);
        (node.function, node.waiting) = (function, waiting);
        at
    }
}
