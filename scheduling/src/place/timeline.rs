//! A cluster's slots with all their busy intervals, so that a container can be inserted into a gap.
//!
//! **Problem.** Of `k` slots, each busy at certain times, find the earliest start from a given time on at which one is idle for long
//! enough; occupy it; release it when a search backtracks.
//!
//! **Source.** The insertion-based policy of HEFT (Topcuoglu, Hariri, Wu: IEEE TPDS 13(3), 2002, section 5.1), for `k` slots
//! instead of one processor.
//!
//! **Readings.** The earliest start wins, ties by the smaller slot. A slot that is busy when planning begins has no gap before it becomes
//! free, because its load until then is not known. A container of no duration needs an idle moment, occupies nothing and is not recorded:
//! it may start where two busy intervals touch, and never splits a gap. Resources that containers hold while they run can delay the start
//! until another container ends.
//!
//! **Complexity.** Each slot is a list of busy intervals in order of time with binary search: finding a gap costs O(k log m) plus the
//! gaps passed over because they are too short, an insertion O(k log m) plus moving the later intervals. Where held resources are short,
//! each attempt adds O(k log m) for each container that starts while the new one would run. Nothing is allocated once the lists have
//! grown.
//!
//! **Invariants.** The busy intervals of a slot do not overlap and have a length above zero, so that both their starts and their
//! ends ascend; none begins before the slot is free; what is released was occupied.

use fdn_core::Resources;

use super::calendar::{Calendar, HeldResources, SlotRequest, resize};
use super::slots::Slots;

/// A busy interval, `[start, end)`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Run {
    start: f64,
    end: f64,
    held: Resources,
}

/// One slot.
#[derive(Clone, Debug, Default, PartialEq)]
struct SlotTimeline {
    /// The end of the work from before planning; no gap begins earlier.
    taken: f64,
    runs: Vec<Run>,
    /// Per class, an upper bound of what any of its containers holds.
    widest: Resources,
}

impl SlotTimeline {
    /// The position of the first busy interval that ends after a time.
    fn after(&self, time: f64) -> usize {
        match self.runs.last() {
            Some(last) if last.end > time => self.runs.partition_point(|run| run.end <= time),
            _ => self.runs.len(),
        }
    }

    /// The earliest time from `ready` on at which the slot is idle for `work`.
    fn earliest(&self, ready: f64, work: f64) -> f64 {
        let mut start = ready.max(self.taken);
        for run in &self.runs[self.after(start)..] {
            if start + work <= run.start {
                break;
            }
            start = run.end;
        }
        start
    }

    /// The position at which `[start, finish)` can be inserted; `None` if the slot is not idle then.
    fn gap(&self, start: f64, finish: f64) -> Option<usize> {
        let at = self.after(start);
        let behind = self.runs.get(at).is_none_or(|run| finish <= run.start);
        (start >= self.taken && behind).then_some(at)
    }

    /// The busy interval that contains a time, if there is one: what its container holds, and until when.
    fn holding(&self, time: f64) -> Option<&Run> {
        self.runs
            .get(self.after(time))
            .filter(|run| run.start <= time)
    }
}

/// The slots of a cluster with all busy intervals.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    slot_timelines: Vec<SlotTimeline>,
    spare: Vec<SlotTimeline>,
    /// Per class, an upper bound of what is held at any time.
    peak: Resources,
}

impl Calendar for Timeline {
    fn begin(&mut self, slots: &Slots) {
        resize(&mut self.slot_timelines, &mut self.spare, slots.len());
        for record in slots.records() {
            let slot_timeline = &mut self.slot_timelines[record.index as usize];
            slot_timeline.taken = record.available.get();
            slot_timeline.runs.clear();
            slot_timeline.widest = record.demand;
            // Of a container from before planning only the resources matter; the time before its end is no gap anyway.
            if record.start < record.available {
                slot_timeline.runs.push(Run {
                    start: record.start.get(),
                    end: record.available.get(),
                    held: record.demand,
                });
            }
        }
        self.sum_up();
    }

    fn available(&self) -> f64 {
        let end = |slot_timeline: &SlotTimeline| {
            slot_timeline
                .runs
                .last()
                .map_or(slot_timeline.taken, |run| run.end)
        };
        self.slot_timelines
            .iter()
            .map(end)
            .fold(f64::INFINITY, f64::min)
    }

    fn floor(&self) -> f64 {
        let taken = self
            .slot_timelines
            .iter()
            .map(|slot_timeline| slot_timeline.taken);
        taken.fold(f64::INFINITY, f64::min)
    }

    fn earliest(&self, wanted: &SlotRequest<'_>) -> f64 {
        let SlotRequest { ready, work, held } = *wanted;
        let Some(HeldResources { demand, free }) = held.filter(|held| self.may_clash(held, work))
        else {
            return self.idle(ready, work);
        };
        let mut start = self.idle(ready, work);
        while start.is_finite()
            && let Some(until) = self.clash(demand, free, start, start + work)
        {
            start = self.idle(until, work);
        }
        start
    }

    fn occupy(&mut self, start: f64, finish: f64, held: Resources) -> u32 {
        let gap = |(slot, slot_timeline): (usize, &SlotTimeline)| {
            Some((slot, slot_timeline.gap(start, finish)?))
        };
        let (slot, at) = self
            .slot_timelines
            .iter()
            .enumerate()
            .find_map(gap)
            .expect("a start that was found has a gap");
        if start < finish {
            let slot_timeline = &mut self.slot_timelines[slot];
            let end = finish;
            slot_timeline.runs.insert(at, Run { start, end, held });
            let widest = slot_timeline.widest.max_by_class(&held);
            if widest != slot_timeline.widest {
                slot_timeline.widest = widest;
                self.sum_up();
            }
        }
        u32::try_from(slot).expect("slots are numbered by u32")
    }
}

impl Timeline {
    /// Reverts [`Calendar::occupy`]; a container of no duration occupied nothing.
    pub(super) fn release(&mut self, slot: u32, start: f64, finish: f64) {
        if start < finish {
            let slot_timeline = &mut self.slot_timelines[slot as usize];
            let at = slot_timeline.after(start);
            let released = slot_timeline.runs.remove(at);
            debug_assert_eq!((released.start, released.end), (start, finish));
        }
    }

    /// Drops the intervals that end by `time`, before which nothing more will start.
    pub(super) fn forget_before(&mut self, time: f64) {
        for slot_timeline in &mut self.slot_timelines {
            let past = slot_timeline.after(time);
            let last = slot_timeline.runs.drain(..past).next_back();
            slot_timeline.taken = last.map_or(slot_timeline.taken, |run| run.end);
        }
    }

    /// The earliest time from `ready` on at which some slot is idle for `work`.
    fn idle(&self, ready: f64, work: f64) -> f64 {
        let mut earliest = f64::INFINITY;
        for slot_timeline in &self.slot_timelines {
            earliest = earliest.min(slot_timeline.earliest(ready, work));
            if earliest <= ready {
                break;
            }
        }
        earliest
    }

    fn sum_up(&mut self) {
        let widest = self
            .slot_timelines
            .iter()
            .map(|slot_timeline| slot_timeline.widest);
        self.peak = widest.fold(Resources::default(), |sum, held| sum.saturating_add(&held));
    }

    /// Whether resources could delay the start: not if the container has no duration, nor if everything held at the peak fits beside it.
    fn may_clash(&self, held: &HeldResources<'_>, work: f64) -> bool {
        work > 0.0 && !self.peak.saturating_add(held.demand).fits(held.free)
    }

    /// If `demand` does not fit at some moment of `[start, end)`: a time before which no start of the container is possible. What is
    /// held grows only where a container starts, so checking those moments suffices.
    fn clash(&self, demand: &Resources, free: &Resources, start: f64, end: f64) -> Option<f64> {
        let starts = self.slot_timelines.iter().flat_map(|slot_timeline| {
            let first = slot_timeline.runs.partition_point(|run| run.start <= start);
            let within = move |run: &&Run| run.start < end;
            slot_timeline.runs[first..].iter().take_while(within)
        });
        std::iter::once(start)
            .chain(starts.map(|run| run.start))
            .find_map(|time| self.short_until(demand, free, time))
    }

    /// If `demand` does not fit at `time`: when the first of the containers running then ends.
    fn short_until(&self, demand: &Resources, free: &Resources, time: f64) -> Option<f64> {
        let (mut sum, mut until) = (*demand, f64::INFINITY);
        for run in self
            .slot_timelines
            .iter()
            .filter_map(|slot_timeline| slot_timeline.holding(time))
        {
            sum = sum.saturating_add(&run.held);
            until = until.min(run.end);
        }
        (!sum.fits(free)).then_some(until)
    }
}

#[cfg(test)]
mod tests;
