//! Queries over all devices of a node at once, on the packed word.
//!
//! **Problem.** Which devices have at least `r` free, how many, and which of them is the best? Unpacking the word costs a shift, a mask
//! and a comparison per device.
//!
//! **Method.** Comparisons of all fields in parallel (SIMD within a register; Lamport, "Multiple byte processing with full-word
//! instructions", CACM 18(8), 1975). The encoding has no spare bit between fields, so the highest bit `h` of each field serves as
//! its guard. With `x` the fields and `y` the threshold in each, both without `h`, `(x | h) - y` keeps `h` exactly where
//! `x >= y`, and never borrows from a neighbour; the highest bits themselves are compared by logic:
//! `x >= y  <=>  h of ( (x & !y) | (!(x ^ y) & ((x | h) - (y & !h))) )`. Where `y` is the same for all devices, its highest bit is known,
//! and that is `x | (...)` or `x & (...)`.
//! The largest and smallest quantity follow bit by bit, from the highest: those candidates remain that have the bit (or lack it).
//!
//! **Complexity.** A comparison is four to seven operations, whatever the number of devices; the largest or smallest O(b); the choice of
//! `count` devices O(count * b).
//!
//! **Invariants.** Ties go to the lower index. The results equal those of a loop over the quantities (property tests over all `n*b`).

use super::layout::{Layout, Packed};
use super::unit::Units;
use super::word::Word;

/// A set of devices of a node, by index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceSet(u128);

impl DeviceSet {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// Adds a device to the set.
    ///
    /// # Panics
    /// If the index is 128 or more: no layout has so many devices.
    #[must_use]
    pub const fn with(self, device: u32) -> Self {
        Self(self.0 | 1 << device)
    }

    /// Whether the set contains a device.
    #[must_use]
    pub const fn contains(self, device: u32) -> bool {
        device < u128::BITS && self.0 >> device & 1 == 1
    }

    /// The number of devices in the set.
    #[must_use]
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The indices, in ascending order.
    pub fn iter(self) -> impl Iterator<Item = u32> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let device = (rest != 0).then(|| rest.trailing_zeros())?;
            rest &= rest - 1;
            Some(device)
        })
    }
}

impl FromIterator<u32> for DeviceSet {
    fn from_iter<I: IntoIterator<Item = u32>>(devices: I) -> Self {
        devices.into_iter().fold(Self::NONE, Self::with)
    }
}

/// The devices that passed a comparison, as the highest bit of each one's field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matches<W>(pub(super) W);

impl<W: Word> Matches<W> {
    /// Whether any device matched.
    #[inline]
    #[must_use]
    pub fn any(self) -> bool {
        self.0 != W::ZERO
    }

    /// The number of matching devices.
    #[must_use]
    pub fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether at least this many devices matched.
    #[inline]
    #[must_use]
    pub fn at_least(self, count: u32) -> bool {
        match count {
            0 => true,
            1 => self.any(),
            // Cheaper than counting on processors without a population count instruction.
            2 => self.without_first().any(),
            count => self.count() >= count,
        }
    }

    /// The devices that matched in both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The lowest matching index.
    #[must_use]
    pub fn first(self, layout: &Layout<W>) -> Option<u32> {
        self.any().then(|| self.0.trailing_zeros() / layout.bits())
    }

    /// The matching devices as a set of indices.
    #[must_use]
    pub fn devices(self, layout: &Layout<W>) -> DeviceSet {
        let mut rest = self;
        std::iter::from_fn(|| {
            let device = rest.first(layout)?;
            rest = rest.without_first();
            Some(device)
        })
        .collect()
    }

    #[inline]
    fn without_first(self) -> Self {
        Self(self.0 & self.0.minus(W::ONE))
    }

    fn without(self, device: u32, layout: &Layout<W>) -> Self {
        Self(self.0 & !(W::ONE << (device * layout.bits() + layout.bits() - 1)))
    }
}

/// A quantity to compare every device with, prepared once for many nodes.
#[derive(Clone, Copy, Debug)]
pub struct Threshold<W> {
    /// The quantity in every field, without the highest bits.
    rest: W,
    high: W,
    /// Whether the quantity has the highest bit set.
    upper: bool,
}

impl<W: Word> Threshold<W> {
    /// The devices that have at least the quantity.
    #[inline]
    #[must_use]
    pub fn matches(&self, packed: Packed<W>) -> Matches<W> {
        // As `ge`, with the highest bit of the threshold known: the same for all devices.
        let x = packed.0;
        let rest = (x | self.high).minus(self.rest);
        let pass = if self.upper { x & rest } else { x | rest };
        Matches(pass & self.high)
    }
}

/// The fields in which `x` is at least `y`, as their highest bits.
#[inline]
fn ge<W: Word>(x: W, y: W, high: W) -> W {
    let rest = (x | high).minus(y & !high);
    ((x & !y) | (!(x ^ y) & rest)) & high
}

/// Which device an instance gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceChoice {
    /// The one with the most free, which spreads instances.
    LeastUsed,
    /// The one with the least free that still fits, which packs instances and keeps devices whole.
    #[default]
    MostUsed,
}

impl<W: Word> Layout<W> {
    /// Prepares a comparison with a quantity; `None` if no field can hold it, so that no device has that much.
    #[must_use]
    pub fn at_least(&self, quantity: Units) -> Option<Threshold<W>> {
        let fits = quantity <= self.most();
        fits.then(|| {
            let all = self.spread(quantity);
            Threshold {
                rest: all & !self.high,
                high: self.high,
                upper: all & self.high != W::ZERO,
            }
        })
    }

    /// The devices whose quantity is at least that of the same device in `other`.
    #[inline]
    #[must_use]
    pub fn at_least_each(&self, packed: Packed<W>, other: Packed<W>) -> Matches<W> {
        Matches(ge(packed.0, other.0, self.high))
    }

    /// All devices.
    #[must_use]
    pub const fn all(&self) -> Matches<W> {
        Matches(self.high)
    }

    /// The devices with a quantity above zero.
    #[must_use]
    pub fn present(&self, packed: Packed<W>) -> Matches<W> {
        Matches(ge(packed.0, self.low, self.high))
    }

    /// The sum over the devices that did not match.
    #[must_use]
    pub fn total_of_others(&self, packed: Packed<W>, matches: Matches<W>) -> u128 {
        // The highest bit of a field minus its lowest gives all bits below the highest; together they are the whole field.
        let fields = matches.0.minus(matches.0 >> (self.bits() - 1)) | matches.0;
        self.total(Packed(packed.0 & !fields))
    }

    /// The largest quantity among the given devices, and the first device that has it.
    #[must_use]
    pub fn largest(&self, packed: Packed<W>, among: Matches<W>) -> Option<(u32, Units)> {
        self.extreme(packed, among, false)
    }

    /// The smallest quantity among the given devices, and the first device that has it.
    #[must_use]
    pub fn smallest(&self, packed: Packed<W>, among: Matches<W>) -> Option<(u32, Units)> {
        self.extreme(packed, among, true)
    }

    /// The device for an instance among those that have enough, by the free amounts; ties to the lower index.
    #[must_use]
    pub fn choose(&self, free: Packed<W>, among: Matches<W>, choice: DeviceChoice) -> Option<u32> {
        let (device, _) = self.extreme(free, among, choice == DeviceChoice::MostUsed)?;
        Some(device)
    }

    /// `count` devices for an instance; `None` if fewer match.
    #[must_use]
    pub fn choose_many(
        &self,
        free: Packed<W>,
        mut among: Matches<W>,
        count: u32,
        choice: DeviceChoice,
    ) -> Option<DeviceSet> {
        if !among.at_least(count) {
            return None;
        }
        let mut chosen = DeviceSet::NONE;
        for _ in 0..count {
            let device = self.choose(free, among, choice)?;
            chosen = chosen.with(device);
            among = among.without(device, self);
        }
        Some(chosen)
    }

    fn extreme(
        &self,
        packed: Packed<W>,
        among: Matches<W>,
        smallest: bool,
    ) -> Option<(u32, Units)> {
        let word = if smallest { !packed.0 } else { packed.0 };
        let mut left = among.0;
        for up in 0..self.bits() {
            let having = (word << up) & left;
            if having != W::ZERO {
                left = having;
            }
        }
        let device = Matches(left).first(self)?;
        self.get(packed, device).ok().map(|units| (device, units))
    }

    /// A word with the quantity in every field.
    fn spread(&self, quantity: Units) -> W {
        self.low.times(quantity.get())
    }
}
