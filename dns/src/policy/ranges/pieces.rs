//! Divides the address space into the pieces of a table: all of it, or only where prefixes changed.

use std::ops::Range;

use super::{Address, Family, Id, Parts, Span, below, differ};

/// The pieces of the address space under construction, from its beginning to its end.
struct Pieces<A, V> {
    starts: Vec<A>,
    found: Vec<V>,
}

impl<A: Address, V: Id> Pieces<A, V> {
    fn with_room(count: usize) -> Self {
        Self {
            starts: Vec::with_capacity(count),
            found: Vec::with_capacity(count),
        }
    }

    /// Sets the value of the addresses from `start` on; no earlier piece may begin later.
    fn begin(&mut self, start: A, value: V) {
        if self.starts.last() == Some(&start) {
            self.starts.pop();
            self.found.pop();
        }
        if self.found.last() != Some(&value) {
            self.starts.push(start);
            self.found.push(value);
        }
    }

    /// Copies a range of a table's pieces unchanged.
    fn copy(&mut self, from: &Family<A, V>, run: Range<usize>) {
        let Some(first) = run.clone().next() else {
            return;
        };
        // The first one may have the same value as the piece before it.
        self.begin(from.starts[first], from.found[first]);
        self.starts
            .extend_from_slice(&from.starts[first + 1..run.end]);
        self.found
            .extend_from_slice(&from.found[first + 1..run.end]);
    }

    /// Adds the pieces that these sorted prefixes produce, from the first address of the first prefix to the end of the last; `around` is the value
    /// around all of them. The prefixes that contain the current address are on a stack, the innermost on top.
    fn cut(&mut self, addrs: &[A], lens: &[u8], values: &[V], around: V) {
        let mut open: Vec<(u128, V)> = Vec::new();
        for ((addr, len), value) in addrs.iter().zip(lens).zip(values) {
            let block = Span::block(addr.top(), *len);
            while open.last().is_some_and(|(last, _)| *last < block.first) {
                self.close(&mut open, around);
            }
            self.begin(*addr, *value);
            open.push((block.last, *value));
        }
        while !open.is_empty() {
            self.close(&mut open, around);
        }
    }

    /// Ends the innermost open prefix: after it, the value of the enclosing one continues.
    fn close(&mut self, open: &mut Vec<(u128, V)>, around: V) {
        if let Some((last, _)) = open.pop()
            && let Some(next) = last.checked_add(1)
        {
            let value = open.last().map_or(around, |outer| outer.1);
            self.begin(A::of(next), value);
        }
    }
}

/// Divides the address space into pieces.
pub(super) fn flatten<A: Address, V: Id>(
    addrs: &[A],
    lens: &[u8],
    values: &[V],
) -> (Vec<A>, Vec<V>) {
    let mut pieces = Pieces::with_room(addrs.len() + 1);
    pieces.begin(A::ZERO, V::NONE);
    pieces.cut(addrs, lens, values, V::NONE);
    (pieces.starts, pieces.found)
}

/// The value of the innermost prefix before index `end` that contains `block`. `end` is the index of `block`, or where it would be.
fn around<A: Address, V: Id>(parts: &Parts<A, V>, end: usize, block: Span) -> V {
    let mut at = end;
    // In the table's order, every prefix that contains a block precedes it; the prefixes in between end before it.
    while let Some(before) = at.checked_sub(1) {
        let (addr, len) = (parts.addrs[before].top(), parts.lens[before]);
        if Span::block(addr, len).covers(block) {
            return parts.values[before];
        }
        // No prefix longer than the common leading bits contains the block; skip all that begin after those bits.
        let common = differ(addr, block.first) - 1;
        let first = block.first & !below(common);
        at = parts.addrs[..before].partition_point(|a| a.top() <= first);
        while at > 0 && parts.addrs[at - 1].top() == first && parts.lens[at - 1] > common {
            at -= 1;
        }
    }
    V::NONE
}

impl<A: Address, V: Id> Family<A, V> {
    /// The pieces after changes that produced `parts` from this table: those inside the blocks of changed prefixes are recomputed, the others
    /// are copied.
    pub(super) fn cut_anew(
        &self,
        parts: &Parts<A, V>,
        changes: &[((A, u8), Option<V>)],
    ) -> (Vec<A>, Vec<V>) {
        let mut pieces = Pieces::with_room(self.starts.len() + 2 * changes.len() + 1);
        // The index of the first old piece that was not handled yet.
        let mut old = 0;
        // The end of the block that was recomputed last; it includes the blocks of all changed prefixes inside it.
        let mut done: Option<u128> = None;
        for ((addr, len), _) in changes {
            let block = Span::block(addr.top(), *len);
            if done.is_some_and(|done| block.first <= done) {
                continue;
            }
            let run = old..old + self.starts[old..].partition_point(|start| *start < *addr);
            old = run.end;
            pieces.copy(self, run);
            let first = parts.addrs.partition_point(|a| *a < *addr);
            let first = first
                + parts.addrs[first..]
                    .iter()
                    .zip(&parts.lens[first..])
                    .take_while(|(a, l)| **a == *addr && **l < *len)
                    .count();
            let last = first + parts.addrs[first..].partition_point(|a| a.top() <= block.last);
            let outer = around(parts, first, block);
            pieces.begin(*addr, outer);
            pieces.cut(
                &parts.addrs[first..last],
                &parts.lens[first..last],
                &parts.values[first..last],
                outer,
            );
            // After the block, the old value continues.
            old += self.starts[old..].partition_point(|start| start.top() <= block.last);
            if let Some(next) = block.last.checked_add(1) {
                pieces.begin(A::of(next), self.found[old - 1]);
            }
            done = Some(block.last);
        }
        pieces.copy(self, old..self.starts.len());
        (pieces.starts, pieces.found)
    }
}
