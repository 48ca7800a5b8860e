use fdn_core::{MebiBytes, MilliCpu, Millis};
use proptest::prelude::*;

use super::*;

fn mib(value: u64) -> Resources {
    Resources::new(MilliCpu(0), MebiBytes(value))
}

fn free_from(times: &[f64]) -> Timeline {
    let mut timeline = Timeline::default();
    timeline.begin(&times.iter().map(|time| Millis::new(*time)).collect());
    timeline
}

fn earliest(timeline: &Timeline, ready: f64, work: f64) -> f64 {
    timeline.earliest(&SlotRequest {
        ready,
        work,
        held: None,
    })
}

#[test]
fn a_gap_is_taken_when_it_is_long_enough() {
    let mut timeline = free_from(&[0.0]);
    assert_eq!(timeline.occupy(0.0, 10.0, mib(0)), 0);
    timeline.occupy(15.0, 20.0, mib(0));
    assert_eq!(earliest(&timeline, 0.0, 5.0), 10.0);
    assert_eq!(earliest(&timeline, 0.0, 5.1), 20.0);
    assert_eq!(earliest(&timeline, 12.0, 3.0), 12.0);
    assert_eq!(earliest(&timeline, 12.0, 3.1), 20.0);
    timeline.occupy(10.0, 15.0, mib(0));
    assert_eq!(earliest(&timeline, 0.0, 1.0), 20.0);
    timeline.release(0, 0.0, 10.0);
    assert_eq!(earliest(&timeline, 0.0, 10.0), 0.0);
    assert_eq!(timeline.available(), 20.0);
}

#[test]
fn the_earliest_of_all_slots_counts_and_the_first_of_equals_is_taken() {
    let mut timeline = free_from(&[8.0, 3.0, 3.0]);
    assert_eq!(earliest(&timeline, 0.0, 1.0), 3.0);
    assert_eq!(timeline.occupy(3.0, 9.0, mib(0)), 1);
    assert_eq!(timeline.occupy(3.0, 4.0, mib(0)), 2);
    assert_eq!(timeline.occupy(8.0, 12.0, mib(0)), 0);
    assert_eq!(timeline.available(), 4.0);
    assert_eq!(earliest(&free_from(&[]), 0.0, 0.0), f64::INFINITY);
    assert_eq!(free_from(&[]).available(), f64::INFINITY);
}

#[test]
fn before_a_slot_is_free_there_is_no_gap() {
    let timeline = free_from(&[7.0]);
    assert_eq!(earliest(&timeline, 0.0, 0.0), 7.0);
    assert_eq!(earliest(&timeline, 2.0, 1.0), 7.0);
    // A container from before that started late does not leave a gap either.
    let mut slots = Slots::idle(1);
    slots.occupy(Millis::new(4.0), Millis::new(8.0), mib(1));
    let mut timeline = Timeline::default();
    timeline.begin(&slots);
    assert_eq!(earliest(&timeline, 0.0, 1.0), 8.0);
}

#[test]
fn what_has_no_duration_needs_an_idle_moment_and_takes_nothing() {
    let mut timeline = free_from(&[0.0]);
    timeline.occupy(2.0, 6.0, mib(0));
    timeline.occupy(6.0, 9.0, mib(0));
    for (ready, start) in [(0.0, 0.0), (2.0, 2.0), (3.0, 6.0), (6.0, 6.0), (7.0, 9.0)] {
        assert_eq!(earliest(&timeline, ready, 0.0), start);
        timeline.occupy(start, start, mib(0));
    }
    // None of the five has split the gap in front, or made one where there is none.
    assert_eq!(earliest(&timeline, 0.0, 2.0), 0.0);
    assert_eq!(earliest(&timeline, 0.5, 2.0), 9.0);
    timeline.release(0, 6.0, 6.0);
    assert_eq!(earliest(&timeline, 6.0, 1.0), 9.0);
}

#[test]
fn held_resources_move_the_start_to_where_they_are_free() {
    let mut timeline = free_from(&[0.0; 3]);
    timeline.occupy(0.0, 10.0, mib(60));
    timeline.occupy(4.0, 8.0, mib(30));
    let fit = |timeline: &Timeline, demand, ready, work| {
        let (demand, free) = (mib(demand), mib(100));
        let held = Some(HeldResources {
            demand: &demand,
            free: &free,
        });
        timeline.earliest(&SlotRequest { ready, work, held })
    };
    assert_eq!(fit(&timeline, 10, 0.0, 50.0), 0.0);
    // 40 fit beside 60, but only until the second starts.
    assert_eq!(fit(&timeline, 40, 0.0, 4.0), 0.0);
    assert_eq!(fit(&timeline, 40, 0.0, 5.0), 8.0);
    assert_eq!(fit(&timeline, 41, 0.0, 1.0), 10.0);
    assert_eq!(fit(&timeline, 100, 0.0, 0.0), 0.0);
    // A slot is idle at 8, but the memory is held again from 12 on.
    timeline.occupy(12.0, 20.0, mib(80));
    assert_eq!(fit(&timeline, 40, 0.0, 4.0), 0.0);
    assert_eq!(fit(&timeline, 40, 5.0, 4.0), 8.0);
    assert_eq!(fit(&timeline, 40, 5.0, 4.1), 20.0);
    timeline.release(0, 12.0, 20.0);
    assert_eq!(fit(&timeline, 40, 5.0, 4.1), 8.0);
}

#[test]
fn what_earlier_jobs_hold_while_they_run_counts() {
    let mut slots = Slots::idle(2);
    slots.occupy(Millis::new(4.0), Millis::new(10.0), mib(60));
    let mut timeline = Timeline::default();
    timeline.begin(&slots);
    let (demand, free) = (mib(50), mib(100));
    let held = Some(HeldResources {
        demand: &demand,
        free: &free,
    });
    let at = |ready, work| timeline.earliest(&SlotRequest { ready, work, held });
    assert_eq!(
        (at(0.0, 4.0), at(0.0, 5.0), at(5.0, 1.0)),
        (0.0, 10.0, 10.0)
    );
}

/// The same question, answered by trying every moment at which the answer could lie.
fn slow(taken: &[f64], runs: &[(u32, f64, f64, u64)], wanted: (f64, f64, u64), free: u64) -> f64 {
    let (ready, work, demand) = wanted;
    let ends = runs.iter().map(|run| run.2);
    let mut moments: Vec<f64> = ends.chain(taken.iter().copied()).chain([ready]).collect();
    moments.retain(|at| *at >= ready);
    moments.sort_by(f64::total_cmp);
    let idle = |slot: usize, at: f64| {
        let mine = runs.iter().filter(|run| run.0 as usize == slot);
        at >= taken[slot] && mine.clone().all(|run| at + work <= run.1 || run.2 <= at)
    };
    let fits = |at: f64| {
        let held = |t: f64| {
            let running = runs.iter().filter(|run| run.1 <= t && t < run.2);
            running.map(|run| run.3).sum::<u64>() + demand <= free
        };
        let starts = runs.iter().map(|run| run.1);
        work == 0.0
            || starts
                .filter(|t| at < *t && *t < at + work)
                .chain([at])
                .all(held)
    };
    let found = moments
        .into_iter()
        .find(|at| (0..taken.len()).any(|slot| idle(slot, *at)) && fits(*at));
    found.expect("after the last end everything is free")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Any mix of taking and giving back: each start is the least possible, and giving back leaves no trace.
    #[test]
    fn every_start_is_the_least(
        taken in prop::collection::vec((0u8..20).prop_map(f64::from), 1..4),
        steps in prop::collection::vec((0u8..60, 0u8..12, 0u64..60, any::<bool>(), any::<prop::sample::Index>()), 1..40),
        hold in any::<bool>(),
    ) {
        let mut timeline = free_from(&taken);
        let mut runs: Vec<(u32, f64, f64, u64)> = Vec::new();
        for (ready, work, demand, give_back, pick) in steps {
            if give_back && !runs.is_empty() {
                let (slot, start, end, _) = runs.remove(pick.index(runs.len()));
                timeline.release(slot, start, end);
            }
            let demand = if hold { demand } else { 0 };
            let (ready, work, free) = (f64::from(ready), f64::from(work), 100);
            let (wants, has) = (mib(demand), mib(free));
            let held = hold.then_some(HeldResources { demand: &wants, free: &has });
            let start = timeline.earliest(&SlotRequest { ready, work, held });
            prop_assert_eq!(start, slow(&taken, &runs, (ready, work, demand), free));
            let slot = timeline.occupy(start, start + work, wants);
            if work > 0.0 {
                runs.push((slot, start, start + work, demand));
            }
        }
        let ends = |slot: usize| runs.iter().filter(move |run| run.0 as usize == slot).map(|run| run.2);
        let last = (0..taken.len()).map(|slot| ends(slot).fold(taken[slot], f64::max));
        prop_assert_eq!(timeline.available(), last.fold(f64::INFINITY, f64::min));
    }
}
