//! Chooses which client prefixes are reported to the controller, among many that may never ask again.
//!
//! **Problem.** Anybody can put any subnet into a question. A client that sends ten thousand made-up ones per second must cost a bounded
//! amount, and must not displace prefixes with real clients, which ask again whenever their cached answer has expired.
//!
//! **Approach.** A prefix that is seen for the first time is only noted in a Bloom filter. There are two filters, one for the current span of
//! time and one for the previous, so that what was seen in either is known. A prefix that is seen again is counted, in a table of bounded size
//! (Space-Saving): when the table is full, a new entry replaces the one with the smallest count, and inherits that count as its possible error.
//! Counts are halved with every span, so that prefixes that no longer ask make room. As long as few new prefixes arrive, they are reported
//! at once: a quiet network need not wait for the second question. Reports are bounded too: one half goes to the pairs with the highest guaranteed
//! counts, the other to those whose last report is the oldest, so that every pair gets its turn; the rest waits for the next report.
//!
//! **Source.** B. H. Bloom, Communications of the ACM 13(7), 1970; A. Metwally, D. Agrawal, A. El Abbadi, Efficient computation of frequent and
//! top-k elements in data streams, ICDT 2005; the filter in front of it as in TinyLFU (Einziger, Friedman, Manes, 2017).
//!
//! **Complexity.** O(log n) for each pair of app and prefix that is added, O(n log n) per span; memory is fixed by the settings.
//!
//! **Invariants.** A prefix with more than `1/capacity` of all counted questions is in the table (Space-Saving). No prefix is reported more
//! often than it asked. Nothing here runs on a thread that answers queries.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, Hash, RandomState};
use std::time::Duration;

/// Filter bits per expected new prefix of a span, and how many of them a prefix sets: the false positive rate is about one in a hundred.
const BITS: usize = 10;
const HASHES: u64 = 4;

/// The bounds of what is kept and reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The most pairs in the table.
    pub capacity: usize,
    /// The number of new pairs per span that the filter is sized for.
    pub expected_new: usize,
    /// The most new pairs that are admitted to the table at once, per report.
    pub max_new: usize,
    /// The most pairs per report.
    pub max_reported: usize,
    /// The time after which counts are halved and the filters are rotated.
    pub span: Duration,
}

/// The questions that were left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnreportedCounts {
    /// Questions of pairs that were seen for the first time and only noted in the filter.
    pub first: u64,
    /// Questions that were counted, but whose entry was replaced before it was reported.
    pub beyond: u64,
}

#[derive(Debug)]
struct Slot<K> {
    key: K,
    count: u64,
    /// The part of the count that may belong to an entry that was replaced.
    error: u64,
    /// The count since the last report.
    fresh: u64,
    /// The number of the last report that included it; 0 for never.
    last_reported: u64,
}

/// Counts pairs, and chooses which are reported.
#[derive(Debug)]
pub struct HeavyHitters<K> {
    bounds: Bounds,
    hasher: RandomState,
    filters: [Vec<u64>; 2],
    /// When the current span began.
    span_start: Duration,
    slots: Vec<Slot<K>>,
    index: HashMap<K, usize>,
    /// The slots by count, smallest first.
    order: BTreeSet<(u64, usize)>,
    /// The number of new pairs admitted since the last report.
    admitted: usize,
    /// The number of reports.
    times: u64,
    unreported: UnreportedCounts,
}

impl<K: Hash + Eq + Ord + Clone> HeavyHitters<K> {
    /// Creates an empty counter.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        let words = (bounds.expected_new.max(1) * BITS).div_ceil(64);
        Self {
            filters: [vec![0; words], vec![0; words]],
            hasher: RandomState::new(),
            span_start: Duration::ZERO,
            slots: Vec::new(),
            index: HashMap::new(),
            order: BTreeSet::new(),
            admitted: 0,
            times: 0,
            unreported: UnreportedCounts::default(),
            bounds,
        }
    }

    /// Adds `count` questions of a pair; `now` is the time since the start.
    pub fn add(&mut self, key: &K, count: u64, now: Duration) {
        if now.saturating_sub(self.span_start) >= self.bounds.span {
            self.rotate(now);
        }
        if let Some(at) = self.index.get(key).copied() {
            self.raise(at, count);
            return;
        }
        let known = self.check_and_mark(key);
        if !known && self.admitted >= self.bounds.max_new {
            self.unreported.first += count;
            return;
        }
        self.admitted += usize::from(!known);
        self.insert(key, count);
    }

    /// Returns the pairs to report now, sorted, each with its count since it was last reported.
    pub fn take(&mut self) -> Vec<(K, u64)> {
        self.admitted = 0;
        self.times += 1;
        let mut due: Vec<usize> = (0..self.slots.len())
            .filter(|at| self.slots[*at].fresh > 0)
            .collect();
        if due.len() > self.bounds.max_reported {
            let guaranteed = |at: usize| Reverse(self.slots[at].count - self.slots[at].error);
            let last = |at: usize| self.slots[at].last_reported;
            due.sort_unstable_by_key(|at| (guaranteed(*at), last(*at), *at));
            due[self.bounds.max_reported / 2..]
                .sort_unstable_by_key(|at| (last(*at), guaranteed(*at), *at));
            due.truncate(self.bounds.max_reported);
        }
        let mut all: Vec<(K, u64)> = due
            .into_iter()
            .map(|at| {
                let slot = &mut self.slots[at];
                slot.last_reported = self.times;
                (slot.key.clone(), std::mem::take(&mut slot.fresh))
            })
            .collect();
        all.sort_unstable();
        all
    }

    /// Returns and resets the questions that were left out.
    pub fn take_unreported(&mut self) -> UnreportedCounts {
        std::mem::take(&mut self.unreported)
    }

    /// The number of pairs in the table.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether the table is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    fn raise(&mut self, at: usize, count: u64) {
        let slot = &mut self.slots[at];
        self.order.remove(&(slot.count, at));
        slot.count = slot.count.saturating_add(count);
        slot.fresh = slot.fresh.saturating_add(count);
        self.order.insert((slot.count, at));
    }

    fn insert(&mut self, key: &K, count: u64) {
        let slot = |error: u64| Slot {
            key: key.clone(),
            count: error.saturating_add(count),
            error,
            fresh: count,
            last_reported: 0,
        };
        let at = if self.slots.len() < self.bounds.capacity.max(1) {
            self.slots.push(slot(0));
            self.slots.len() - 1
        } else {
            // The table is not empty, so there is a smallest count.
            let Some((least, at)) = self.order.pop_first() else {
                return;
            };
            self.index.remove(&self.slots[at].key);
            self.unreported.beyond += self.slots[at].fresh;
            self.slots[at] = slot(least);
            at
        };
        self.index.insert(key.clone(), at);
        self.order.insert((self.slots[at].count, at));
    }

    /// Notes a pair in the current filter; returns whether it was seen in this span or the previous one.
    fn check_and_mark(&mut self, key: &K) -> bool {
        let hash = self.hasher.hash_one(key);
        let (first, step) = (hash & 0xffff_ffff, (hash >> 32) | 1);
        let bits = self.filters[0].len() as u64 * 64;
        let (mut now, mut before) = (true, true);
        for n in 0..HASHES {
            let bit = first.wrapping_add(n.wrapping_mul(step)) % bits;
            let (word, mask) = ((bit / 64) as usize, 1_u64 << (bit % 64));
            now &= self.filters[0][word] & mask != 0;
            before &= self.filters[1][word] & mask != 0;
            self.filters[0][word] |= mask;
        }
        now || before
    }

    /// Starts the next span.
    fn rotate(&mut self, now: Duration) {
        // After a long silence the previous filter is outdated too.
        let is_next = now.saturating_sub(self.span_start) < self.bounds.span * 2;
        self.span_start = now;
        self.filters.swap(0, 1);
        self.filters[0].fill(0);
        if !is_next {
            self.filters[1].fill(0);
        }
        let slots = std::mem::take(&mut self.slots);
        self.index.clear();
        self.order.clear();
        for mut slot in slots {
            slot.count /= 2;
            slot.error /= 2;
            if slot.count == 0 && slot.fresh == 0 {
                continue;
            }
            let at = self.slots.len();
            self.index.insert(slot.key.clone(), at);
            self.order.insert((slot.count, at));
            self.slots.push(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn bounds() -> Bounds {
        Bounds {
            capacity: 1024,
            expected_new: 700_000,
            max_new: 8,
            max_reported: 512,
            span: Duration::from_secs(60),
        }
    }

    #[test]
    fn ten_thousand_made_up_prefixes_a_second_push_no_real_one_out() {
        let mut heavy = HeavyHitters::new(bounds());
        let (mut reported, mut most, mut made_up) = (vec![0_u64; 200], 0, 1_000_000_u64);
        // Two hundred real prefixes ask every twenty seconds, as their answers expire; the flood lasts three minutes.
        for second in 0..180_u64 {
            let now = SECOND * u32::try_from(second).expect("small");
            for _ in 0..10_000 {
                made_up += 1;
                heavy.add(&made_up, 1, now);
            }
            for real in (0..200).filter(|real| real % 20 == second % 20) {
                heavy.add(&real, 1, now);
            }
            let all = heavy.take();
            most = most.max(all.len());
            for (key, count) in all {
                if let Some(real) = reported.get_mut(usize::try_from(key).expect("small")) {
                    *real += count;
                }
            }
            assert!(heavy.len() <= 1024);
        }
        // Each asked nine times; the first question may only have been noted.
        assert!(
            reported.iter().all(|count| (8..=9).contains(count)),
            "{reported:?}"
        );
        // The reported made-up prefixes are those admitted at once, and false positives of the filter.
        assert!(most <= 8 + 300 + 10, "{most}");
        assert!(heavy.take_unreported().first > 1_500_000);
    }

    #[test]
    fn a_quiet_network_is_told_of_everybody_at_once() {
        let mut heavy = HeavyHitters::new(bounds());
        for key in 0..5 {
            heavy.add(&key, 1, Duration::ZERO);
        }
        heavy.add(&3, 2, Duration::ZERO);
        assert_eq!(heavy.take(), [(0, 1), (1, 1), (2, 1), (3, 3), (4, 1)]);
        assert_eq!(heavy.take(), []);
        for key in 10..30 {
            heavy.add(&key, 1, SECOND);
        }
        assert_eq!(heavy.take().len(), 8);
        assert_eq!(heavy.take_unreported().first, 12);
        for key in 10..30 {
            heavy.add(&key, 1, SECOND);
        }
        assert_eq!(heavy.take().len(), 20, "the second time they are known");
    }

    #[test]
    fn who_asks_no_more_makes_room_and_is_forgotten() {
        let mut heavy = HeavyHitters::new(Bounds {
            max_new: 1,
            ..bounds()
        });
        heavy.add(&1, 3, Duration::ZERO);
        heavy.take();
        for minute in 1..5 {
            heavy.add(&(100 + minute), 1, SECOND * 60 * minute);
            heavy.take();
        }
        assert!(!heavy.index.contains_key(&1));
        // After a long silence a prefix counts as new again.
        heavy.add(&500, 1, SECOND * 6000);
        heavy.add(&1, 1, SECOND * 6000);
        assert_eq!(heavy.take(), [(500, 1)]);
    }

    #[test]
    fn what_is_told_at_a_time_is_bounded_and_the_heavy_come_first() {
        let mut heavy = HeavyHitters::new(Bounds {
            max_reported: 3,
            max_new: 100,
            ..bounds()
        });
        for key in 0..10_u64 {
            heavy.add(&key, key + 1, Duration::ZERO);
        }
        assert_eq!(heavy.take(), [(7, 8), (8, 9), (9, 10)]);
        heavy.add(&9, 1, Duration::ZERO);
        assert_eq!(heavy.take(), [(5, 6), (6, 7), (9, 1)], "the others wait");
        assert_eq!(heavy.take_unreported(), UnreportedCounts::default());
    }

    #[test]
    fn whoever_asks_has_a_turn_however_many_ask_more_often() {
        let mut heavy = HeavyHitters::new(Bounds {
            max_reported: 20,
            max_new: 100,
            ..bounds()
        });
        let mut reported = BTreeMap::<u64, u64>::new();
        for _ in 0..10 {
            // Sixty pairs, three times as many as one report holds, of which half ask ten times as often.
            for key in 0..60 {
                heavy.add(&key, if key % 2 == 0 { 10 } else { 1 }, Duration::ZERO);
            }
            let all = heavy.take();
            assert_eq!(all.len(), 20);
            for (key, count) in all {
                *reported.entry(key).or_default() += count;
            }
        }
        assert_eq!(reported.len(), 60, "{reported:?}");
    }

    proptest! {
        /// Compared with unbounded counts: nothing is reported more often than it was asked, what is left out is counted, and a table that is
        /// large enough reports everything.
        #[test]
        fn nothing_is_made_up(keys in prop::collection::vec((0u32..40, 1u64..4), 1..300), capacity in 1usize..50) {
            let open = Bounds { capacity, max_new: usize::MAX, max_reported: usize::MAX, ..bounds() };
            let mut heavy = HeavyHitters::new(open);
            let mut asked = BTreeMap::<u32, u64>::new();
            let mut reported = BTreeMap::<u32, u64>::new();
            for (number, (key, count)) in keys.iter().enumerate() {
                heavy.add(key, *count, Duration::ZERO);
                *asked.entry(*key).or_default() += count;
                if number % 7 == 0 {
                    for (key, count) in heavy.take() {
                        *reported.entry(key).or_default() += count;
                    }
                }
            }
            for (key, count) in heavy.take() {
                *reported.entry(key).or_default() += count;
            }
            let left = heavy.take_unreported();
            for (key, count) in &reported {
                prop_assert!(count <= &asked[key]);
            }
            let (all, said): (u64, u64) = (asked.values().sum(), reported.values().sum());
            prop_assert_eq!(all, said + left.beyond + left.first);
            prop_assert!(heavy.len() <= capacity);
            if capacity >= 40 {
                prop_assert_eq!(reported, asked);
            }
        }

        /// The guarantee of Space-Saving: of `n` counted questions, every pair with more than `n / capacity` is in the table.
        #[test]
        fn the_heavy_have_a_place(keys in prop::collection::vec(0u32..100, 1..400), capacity in 1usize..20) {
            let open = Bounds { capacity, max_new: usize::MAX, max_reported: usize::MAX, ..bounds() };
            let mut heavy = HeavyHitters::new(open);
            let mut asked = BTreeMap::<u32, u64>::new();
            for key in &keys {
                heavy.add(key, 1, Duration::ZERO);
                *asked.entry(*key).or_default() += 1;
            }
            for (key, count) in asked {
                if count as usize > keys.len() / capacity {
                    prop_assert!(heavy.index.contains_key(&key), "{} of {}", count, keys.len());
                }
            }
        }
    }
}
