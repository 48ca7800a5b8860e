//! Which nodes have room for an instance.
//!
//! **Source.** Patent CN111381957A: a node passes if every class has at least the requested amount free; for a class with several
//! devices, at least `count` of them must each have the amount requested per device.
//!
//! **Complexity.** One pass per requested class, a handful of operations per node without data-dependent branches; 64 nodes at a time
//! become one word of the result, and words without remaining nodes are skipped.

use super::fleet::{Fleet, NodeIndex};
use super::layout::Packed;
use super::query::Matches;
use super::vector::{Class, DeviceRequest, Request};
use super::word::Word;

/// The number of nodes per word of the set.
const CHUNK: usize = 64;

/// A set of nodes, one bit each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSet {
    words: Vec<u64>,
}

impl NodeSet {
    /// An empty set with memory for this many nodes, so that filling it does not allocate.
    #[must_use]
    pub fn with_room(nodes: usize) -> Self {
        Self {
            words: Vec::with_capacity(nodes.div_ceil(CHUNK)),
        }
    }

    /// Makes this the set of the first `nodes` nodes.
    pub fn fill(&mut self, nodes: usize) {
        self.words.clear();
        self.words.resize(nodes.div_ceil(CHUNK), u64::MAX);
        if let (Some(last), rest @ 1..) = (self.words.last_mut(), nodes % CHUNK) {
            *last = (1 << rest) - 1;
        }
    }

    /// Removes all nodes.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Whether the set contains a node.
    #[must_use]
    pub fn contains(&self, node: NodeIndex) -> bool {
        let word = self.words.get(node.get() / CHUNK).copied().unwrap_or(0);
        word >> (node.get() % CHUNK) & 1 == 1
    }

    /// Removes a node.
    pub fn remove(&mut self, node: NodeIndex) {
        if let Some(word) = self.words.get_mut(node.get() / CHUNK) {
            *word &= !(1 << (node.get() % CHUNK));
        }
    }

    /// The number of nodes in the set.
    #[must_use]
    pub fn count(&self) -> usize {
        self.words
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum()
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// The nodes, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = NodeIndex> {
        self.words.iter().enumerate().flat_map(|(at, &word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
                rest &= rest - 1;
                Some(NodeIndex::new(at * CHUNK + bit))
            })
        })
    }

    /// Keeps the nodes whose items pass the test.
    #[inline]
    fn retain<T>(&mut self, items: &[T], pass: impl Fn(&T) -> bool) {
        for (word, chunk) in self.words.iter_mut().zip(items.chunks(CHUNK)) {
            if *word != 0 {
                let mut passed = 0;
                for (bit, item) in chunk.iter().enumerate() {
                    passed |= u64::from(pass(item)) << bit;
                }
                *word &= passed;
            }
        }
    }

    /// As [`Self::retain`], for two lists.
    #[inline]
    fn retain_pairs<T>(&mut self, items: (&[T], &[T]), pass: impl Fn(&T, &T) -> bool) {
        let chunks = items.0.chunks(CHUNK).zip(items.1.chunks(CHUNK));
        for (word, (left, right)) in self.words.iter_mut().zip(chunks) {
            if *word != 0 {
                let mut passed = 0;
                for (bit, (left, right)) in left.iter().zip(right).enumerate() {
                    passed |= u64::from(pass(left, right)) << bit;
                }
                *word &= passed;
            }
        }
    }
}

impl<W: Word> Fleet<W> {
    /// Fills `nodes` with the nodes that have room for the request.
    pub fn filter(&self, request: &Request, nodes: &mut NodeSet) {
        nodes.fill(self.len());
        for class in Class::ALL {
            let wanted = request.classes.get(class);
            if wanted > 0 {
                nodes.retain(self.free_list(class), |free| *free >= wanted);
            }
        }
        match request.devices {
            DeviceRequest::None => {}
            DeviceRequest::Slices { count, .. } if request.devices.count() > 0 => {
                self.filter_slices(request, count, nodes);
            }
            DeviceRequest::Slices { .. } => {}
            DeviceRequest::Whole(count) => self.filter_whole(count, nodes),
        }
    }

    fn filter_slices(&self, request: &Request, count: u32, nodes: &mut NodeSet) {
        // Only a request for whole devices depends on the devices' capacity, so its value does not matter here.
        let each = request.devices.each(super::unit::Units(0));
        let Some(threshold) = self.layout().at_least(each) else {
            nodes.clear();
            return;
        };
        // Devices that a node lacks are empty fields, which never pass, since more than zero is requested.
        let free = self.device_free_list();
        // One call per count, so that the compiler can move the case distinction out of the loop.
        match count {
            1 => nodes.retain(free, |free| threshold.matches(*free).at_least(1)),
            2 => nodes.retain(free, |free| threshold.matches(*free).at_least(2)),
            _ => nodes.retain(free, |free| threshold.matches(*free).at_least(count)),
        }
    }

    fn filter_whole(&self, count: u32, nodes: &mut NodeSet) {
        let pass = |free: &Packed<W>, capacity: &Packed<W>| {
            self.untouched(*free, *capacity).at_least(count)
        };
        nodes.retain_pairs((self.device_free_list(), self.device_capacity_list()), pass);
    }

    /// The devices of which nothing is in use.
    #[inline]
    fn untouched(&self, free: Packed<W>, capacity: Packed<W>) -> Matches<W> {
        let layout = self.layout();
        layout
            .at_least_each(free, capacity)
            .and(layout.present(capacity))
    }

    /// The devices of a node that the request could use; `None` if there are too few.
    #[must_use]
    pub fn fitting(&self, node: NodeIndex, request: &Request) -> Option<Matches<W>> {
        self.fitting_when(node, self.device_free(node), request.devices)
    }

    /// As [`Self::fitting`], for a hypothetical free state.
    pub(super) fn fitting_when(
        &self,
        node: NodeIndex,
        free: Packed<W>,
        request: DeviceRequest,
    ) -> Option<Matches<W>> {
        let matches = match request {
            _ if request.count() == 0 => self.layout().all(),
            DeviceRequest::Whole(_) => self.untouched(free, self.device_capacity(node)),
            DeviceRequest::Slices { each, .. } => self.layout().at_least(each)?.matches(free),
            DeviceRequest::None => self.layout().all(),
        };
        matches.at_least(request.count()).then_some(matches)
    }
}
