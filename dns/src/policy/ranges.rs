//! Longest-prefix tables, stored as sorted pieces of the address space.
//!
//! When a table is built, its prefixes are flattened: the address space is divided into pieces, each the longest run of addresses for which the
//! longest matching prefix gives the same value. Neighbours with the same value form one piece, whatever prefixes they come from. A
//! lookup is one binary search and returns the value together with the piece's bounds. The bounds determine the *exact* scope
//! of an answer (RFC 7871, section 7.2.1) by two counts of leading zeros: the shortest prefix of the address that contains neither
//! the address before the piece nor the one after it ([`Span::scope`]). It is never too wide, because such a block is
//! inside the piece; and no wider block is correct, because it would contain one of the two neighbours.
//!
//! The prefixes themselves are stored beside the pieces, sorted: changes are merged into them, they are what is written to disk, and a client
//! prefix that spans several pieces gets the value of the longest prefix that contains all of it ([`Table::covering`]).
//!
//! Memory: 7 bytes per IPv4 prefix with 16-bit values, and 6 per piece; there are at most two pieces per prefix, and one
//! more. Building is linear after sorting. Applying changes costs little more than a copy of the arrays: a prefix affects only its own
//! block, so only the pieces inside the blocks of changed prefixes are recomputed.

use std::fmt::Debug;
use std::net::IpAddr;
use std::ops::Range;

use fdn_core::ClientPrefix;

use pieces::flatten;

/// A value of a table: a small number, one of which means "none".
pub trait Id: Copy + Eq + Debug {
    /// The value where no prefix matches.
    const NONE: Self;
}

impl Id for u16 {
    const NONE: Self = Self::MAX;
}

impl Id for u32 {
    const NONE: Self = Self::MAX;
}

/// The bits of an address of one family.
pub(crate) trait Address: Copy + Ord + Debug {
    /// The first address.
    const ZERO: Self;
    /// The length in bits.
    const BITS: u8;
    /// The bits left-aligned in 128 bits.
    fn top(self) -> u128;
    /// The reverse of [`Address::top`].
    fn of(top: u128) -> Self;
    /// A 64-bit value that every bit of the address affects.
    fn low(self) -> u64;
}

impl Address for u32 {
    const ZERO: Self = 0;
    const BITS: u8 = 32;

    fn top(self) -> u128 {
        u128::from(self) << 96
    }

    fn of(top: u128) -> Self {
        Self::try_from(top >> 96).expect("a shift by 96 leaves 32 bits")
    }

    fn low(self) -> u64 {
        u64::from(self)
    }
}

impl Address for u128 {
    const ZERO: Self = 0;
    const BITS: u8 = 128;

    fn top(self) -> u128 {
        self
    }

    fn of(top: u128) -> Self {
        top
    }

    #[allow(
        clippy::cast_possible_truncation,
        reason = "the upper half is folded into the lower one before"
    )]
    fn low(self) -> u64 {
        (self ^ (self >> 64).rotate_left(17)) as u64
    }
}

/// The bits of an address, left-aligned in 128 bits, and whether it is IPv4.
#[must_use]
pub const fn bits(addr: IpAddr) -> (u128, bool) {
    match addr {
        IpAddr::V4(v4) => ((v4.to_bits() as u128) << 96, true),
        IpAddr::V6(v6) => (v6.to_bits(), false),
    }
}

/// The bits of an IPv6 address or, if it is IPv4-mapped, of the IPv4 address in it (RFC 4291, section 2.5.5.2); and whether it is IPv4.
#[must_use]
pub const fn unmapped(addr: u128) -> (u128, bool) {
    if Span::MAPPED.first <= addr && addr <= Span::MAPPED.last {
        (addr << MAPPED_BITS, true)
    } else {
        (addr, false)
    }
}

/// The number of bits before the IPv4 address in an IPv4-mapped IPv6 address.
const MAPPED_BITS: u8 = ClientPrefix::MAPPED_BITS;

/// A mask of the bits below the first `len`.
const fn below(len: u8) -> u128 {
    if len >= 128 { 0 } else { u128::MAX >> len }
}

/// A run of addresses, as left-aligned bits. For IPv4 addresses the lower 96 bits are zeros in `first` and ones
/// in `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first address.
    pub first: u128,
    /// The last address.
    pub last: u128,
}

impl Span {
    /// All addresses.
    pub const ALL: Self = Self {
        first: 0,
        last: u128::MAX,
    };

    /// The IPv4-mapped IPv6 addresses: ::ffff:0:0/96.
    pub const MAPPED: Self = Self::block(0xffff << 32, MAPPED_BITS);

    /// These IPv4 addresses as IPv4-mapped IPv6 addresses.
    #[must_use]
    pub const fn mapped(self) -> Self {
        Self {
            first: Self::MAPPED.first | self.first >> MAPPED_BITS,
            last: Self::MAPPED.first | self.last >> MAPPED_BITS,
        }
    }

    /// The IPv6 addresses below or above the IPv4-mapped ones, on the side of `addr`, which must not be mapped.
    #[must_use]
    pub const fn beside_mapped(addr: u128) -> Self {
        if addr < Self::MAPPED.first {
            Self {
                first: 0,
                last: Self::MAPPED.first - 1,
            }
        } else {
            Self {
                first: Self::MAPPED.last + 1,
                last: u128::MAX,
            }
        }
    }

    /// The addresses that share `len` leading bits with `addr`.
    #[must_use]
    pub const fn block(addr: u128, len: u8) -> Self {
        Self {
            first: addr & !below(len),
            last: addr | below(len),
        }
    }

    /// The intersection; the runs must overlap.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            first: self.first.max(other.first),
            last: self.last.min(other.last),
        }
    }

    /// Whether `other` is completely inside.
    #[must_use]
    pub const fn covers(self, other: Self) -> bool {
        self.first <= other.first && other.last <= self.last
    }

    /// The number of leading bits of `addr` that exclude the address before this run, and the number that exclude the one after it.
    #[must_use]
    pub const fn needs(self, addr: u128) -> (u8, u8) {
        let before = match self.first.checked_sub(1) {
            None => 0,
            Some(other) => differ(addr, other),
        };
        let after = match self.last.checked_add(1) {
            None => 0,
            Some(other) => differ(addr, other),
        };
        (before, after)
    }

    /// The length of the widest block around `addr` that is inside this run, which must contain `addr`.
    #[must_use]
    pub const fn scope(self, addr: u128) -> u8 {
        let (before, after) = self.needs(addr);
        if before > after { before } else { after }
    }
}

/// The number of leading bits needed to distinguish two addresses.
#[allow(
    clippy::cast_possible_truncation,
    reason = "leading zeros of 128 bits are at most 128, and the addresses differ"
)]
const fn differ(one: u128, other: u128) -> u8 {
    (one ^ other).leading_zeros() as u8 + 1
}

/// A prefix of a table and its new value; `None` removes the prefix.
pub type Change<V> = (ClientPrefix, Option<V>);

/// The prefixes of one family, and the pieces that result from them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Family<A, V> {
    /// The prefixes, by address and then length. Three arrays, because a struct of the three would be padded.
    addrs: Box<[A]>,
    lens: Box<[u8]>,
    values: Box<[V]>,
    /// The first address of each piece; the first one is 0.
    starts: Box<[A]>,
    /// The value of each piece; neighbours have different values.
    found: Box<[V]>,
}

impl<A: Address, V: Id> Default for Family<A, V> {
    fn default() -> Self {
        Self {
            addrs: Box::default(),
            lens: Box::default(),
            values: Box::default(),
            starts: Box::new([A::ZERO]),
            found: Box::new([V::NONE]),
        }
    }
}

/// The prefixes of a table under construction.
struct Parts<A, V> {
    addrs: Vec<A>,
    lens: Vec<u8>,
    values: Vec<V>,
}

impl<A: Address, V: Id> Parts<A, V> {
    fn with_room(count: usize) -> Self {
        Self {
            addrs: Vec::with_capacity(count),
            lens: Vec::with_capacity(count),
            values: Vec::with_capacity(count),
        }
    }

    fn push(&mut self, (addr, len): (A, u8), value: V) {
        self.addrs.push(addr);
        self.lens.push(len);
        self.values.push(value);
    }

    /// Copies a range of a table's prefixes unchanged.
    fn copy(&mut self, from: &Family<A, V>, run: Range<usize>) {
        self.addrs.extend_from_slice(&from.addrs[run.clone()]);
        self.lens.extend_from_slice(&from.lens[run.clone()]);
        self.values.extend_from_slice(&from.values[run]);
    }

    fn build(self) -> Family<A, V> {
        let (starts, found) = flatten(&self.addrs, &self.lens, &self.values);
        Family {
            addrs: self.addrs.into(),
            lens: self.lens.into(),
            values: self.values.into(),
            starts: starts.into(),
            found: found.into(),
        }
    }
}

impl<A: Address, V: Id> Family<A, V> {
    /// The value of the piece that contains `addr`, and the piece's bounds.
    fn piece(&self, addr: u128) -> (V, Span) {
        let addr = A::of(addr);
        // The first piece begins at the first address, so one is always found.
        let after = self.starts.partition_point(|start| *start <= addr).max(1);
        let last = self
            .starts
            .get(after)
            .map_or(u128::MAX, |next| next.top() - 1);
        let first = self.starts[after - 1].top();
        (self.found[after - 1], Span { first, last })
    }

    /// The value and the length of the longest prefix that contains a block.
    ///
    /// In the table's order, every prefix that contains the block comes before the block and after everything that precedes that prefix. So the
    /// last prefix up to the block either contains it, or gives an upper bound on the length of one that does.
    fn covering(&self, addr: u128, len: u8) -> Option<(V, u8)> {
        let (mut at, mut longest) = (addr, len);
        loop {
            let mut after = self.addrs.partition_point(|a| a.top() <= at);
            while after > 0 && self.addrs[after - 1].top() == at && self.lens[after - 1] > longest {
                after -= 1;
            }
            let last = after.checked_sub(1)?;
            let (other, length) = (self.addrs[last].top(), self.lens[last]);
            if Span::block(other, length).covers(Span::block(addr, len)) {
                return Some((self.values[last], length));
            }
            longest = differ(addr, other) - 1;
            at = addr & !below(longest);
        }
    }

    /// The table after changes, which are sorted and have one entry per prefix.
    fn merged(&self, changes: &[((A, u8), Option<V>)]) -> Self {
        let mut parts = Parts::with_room(self.addrs.len() + changes.len());
        let mut next = 0;
        for (key, value) in changes {
            let at = next + self.before(next, *key);
            parts.copy(self, next..at);
            let is_held = at < self.addrs.len() && (self.addrs[at], self.lens[at]) == *key;
            next = at + usize::from(is_held);
            if let Some(value) = value {
                parts.push(*key, *value);
            }
        }
        parts.copy(self, next..self.addrs.len());
        // If many prefixes change, recomputing all pieces costs less.
        if changes.len() > self.addrs.len() / 8 {
            return parts.build();
        }
        let (starts, found) = self.cut_anew(&parts, changes);
        Self {
            addrs: parts.addrs.into(),
            lens: parts.lens.into(),
            values: parts.values.into(),
            starts: starts.into(),
            found: found.into(),
        }
    }

    /// The number of prefixes from `first` on that precede `key`: a galloping search, since changes are often close together.
    fn before(&self, first: usize, key: (A, u8)) -> usize {
        let (addrs, lens) = (&self.addrs[first..], &self.lens[first..]);
        let is_before = |at: usize| (addrs[at], lens[at]) < key;
        let (mut low, mut step) = (0, 1);
        while low + step <= addrs.len() && is_before(low + step - 1) {
            low += step;
            step *= 2;
        }
        let mut high = (low + step - 1).min(addrs.len());
        while low < high {
            let middle = low.midpoint(high);
            if is_before(middle) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// A polynomial hash of addresses, lengths and values, starting from `before`. It need not resist attacks: tables with equal hashes are
    /// compared.
    fn digest(&self, before: u64) -> u64
    where
        V: Into<u64>,
    {
        let keys = self.addrs.iter().zip(&self.lens);
        keys.zip(&self.values)
            .fold(before, |sum, ((addr, len), value)| {
                let parts = addr.low() ^ (u64::from(*len) << 56) ^ ((*value).into() << 40);
                // 2^64 divided by the golden ratio: odd, and far from every power of two.
                sum.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(parts)
            })
    }

    fn mapped(&mut self, map: impl Fn(V) -> V) {
        for value in self.values.iter_mut().chain(&mut self.found) {
            *value = map(*value);
        }
    }
}

/// A longest-prefix table over IPv4 and IPv6.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table<V: Id> {
    v4: Family<u32, V>,
    v6: Family<u128, V>,
}

impl<V: Id> Default for Table<V> {
    fn default() -> Self {
        Self {
            v4: Family::default(),
            v6: Family::default(),
        }
    }
}

impl<V: Id> FromIterator<(ClientPrefix, V)> for Table<V> {
    fn from_iter<I: IntoIterator<Item = (ClientPrefix, V)>>(entries: I) -> Self {
        Self::default().with(
            entries
                .into_iter()
                .map(|(prefix, value)| (prefix, Some(value))),
        )
    }
}

/// The changes of a table while they are collected: as compact as the table itself, because there may be millions.
#[derive(Debug)]
pub(crate) struct CollectedChanges<V> {
    v4: Vec<((u32, u8), Option<V>)>,
    v6: Vec<((u128, u8), Option<V>)>,
}

impl<V> Default for CollectedChanges<V> {
    fn default() -> Self {
        Self {
            v4: Vec::new(),
            v6: Vec::new(),
        }
    }
}

impl<V> CollectedChanges<V> {
    /// Adds a change; if a prefix occurs several times, the last change wins.
    pub(crate) fn push(&mut self, (prefix, value): Change<V>) {
        let len = prefix.len();
        match prefix.addr() {
            IpAddr::V4(addr) => self.v4.push(((addr.to_bits(), len), value)),
            IpAddr::V6(addr) => self.v6.push(((addr.to_bits(), len), value)),
        }
    }
}

/// Sorts changes, and keeps the last one of each prefix.
fn in_order<A: Ord + Copy, V>(changes: &mut Vec<((A, u8), V)>) {
    if !changes.is_sorted_by_key(|change| change.0) {
        changes.sort_by_key(|change| change.0);
    }
    changes.dedup_by(|later, earlier| {
        let same = later.0 == earlier.0;
        if same {
            std::mem::swap(later, earlier);
        }
        same
    });
}

impl<V: Id> Table<V> {
    /// The table after changes; if a prefix occurs several times, the last change wins.
    #[must_use]
    pub fn with(&self, changes: impl IntoIterator<Item = Change<V>>) -> Self {
        let mut collected = CollectedChanges::default();
        changes
            .into_iter()
            .for_each(|change| collected.push(change));
        self.after(collected)
    }

    /// The table after collected changes.
    pub(crate) fn after(&self, mut changes: CollectedChanges<V>) -> Self {
        in_order(&mut changes.v4);
        in_order(&mut changes.v6);
        let v4 = self.v4.merged(&changes.v4);
        // Free the memory of the first half before the second is merged.
        drop(changes.v4);
        Self {
            v4,
            v6: self.v6.merged(&changes.v6),
        }
    }

    /// The value for an address, and the piece of the address space with the same value.
    #[must_use]
    pub fn piece(&self, addr: u128, is_v4: bool) -> (Option<V>, Span) {
        let (value, span) = if is_v4 {
            self.v4.piece(addr)
        } else {
            self.v6.piece(addr)
        };
        ((value != V::NONE).then_some(value), span)
    }

    /// The value and the length of the longest prefix that contains all of `client`.
    #[must_use]
    pub fn covering(&self, client: ClientPrefix) -> Option<(V, u8)> {
        let (addr, is_v4) = bits(client.addr());
        if is_v4 {
            self.v4.covering(addr, client.len())
        } else {
            self.v6.covering(addr, client.len())
        }
    }

    /// The number of prefixes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.v4.addrs.len() + self.v6.addrs.len()
    }

    /// Whether there are no prefixes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All prefixes, IPv4 before IPv6, by address and then length.
    pub fn entries(&self) -> impl Iterator<Item = (ClientPrefix, V)> {
        let v4 = (0..self.v4.addrs.len()).map(|i| {
            let addr = IpAddr::from(self.v4.addrs[i].to_be_bytes());
            (ClientPrefix::new(addr, self.v4.lens[i]), self.v4.values[i])
        });
        let v6 = (0..self.v6.addrs.len()).map(|i| {
            let addr = IpAddr::from(self.v6.addrs[i].to_be_bytes());
            // An IPv4-mapped IPv6 address would change its family here, but canonical prefixes never are.
            (ClientPrefix::new(addr, self.v6.lens[i]), self.v6.values[i])
        });
        v4.chain(v6)
    }

    /// Replaces every value.
    pub(crate) fn mapped(mut self, map: impl Fn(V) -> V) -> Self {
        self.v4.mapped(&map);
        self.v6.mapped(&map);
        self
    }

    /// A hash that is the same for equal tables, computed in one pass over the prefixes.
    pub(crate) fn digest(&self) -> u64
    where
        V: Into<u64>,
    {
        self.v6.digest(self.v4.digest(0))
    }

    /// The values of all prefixes.
    pub(crate) fn values(&self) -> impl Iterator<Item = V> {
        self.v4.values.iter().chain(&self.v6.values).copied()
    }
}

mod pieces;
pub(crate) mod raw;

#[cfg(test)]
mod tests;
