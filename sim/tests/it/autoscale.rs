//! The autoscaler in a closed loop: what it decides changes what it sees.

use fdn_core::Millis;
use fdn_scheduling::scale::{Autoscaler, Profile, Proportional, Scaler, Settings};
use fdn_sim::autoscale::{Course, Function, Request, play};
use fdn_sim::paper::{ALL, Context, Effort};
use fdn_sim::progress::Silent;
use proptest::prelude::*;

use crate::data::traces;

const EXEC: f64 = 500.0;
const COLD: f64 = 2000.0;

fn function(requests: Vec<Request>) -> Function {
    let profile = Profile {
        exec: Millis::new(EXEC),
        cold: Millis::new(COLD),
    };
    Function::new("f", profile, requests)
}

/// One request every `every` ms for `minutes`.
fn steady(every: f64, minutes: f64) -> Vec<Request> {
    (0..)
        .map(|n| f64::from(n) * every)
        .take_while(|at| *at < minutes * 60_000.0)
        .map(|at| Request { at, exec: EXEC })
        .collect()
}

fn ours(requests: Vec<Request>) -> Course {
    let function = function(requests);
    let settings = Settings::default();
    let mut scaler = Autoscaler::new(settings, function.profile).expect("good settings");
    play(&function, &mut scaler, settings.stable).expect("no rule broken")
}

fn plain(requests: Vec<Request>) -> Course {
    let function = function(requests);
    let settings = Settings::default();
    let mut scaler = Proportional::new(settings).expect("good settings");
    assert_eq!(scaler.name(), "proportional");
    play(&function, &mut scaler, settings.stable).expect("no rule broken")
}

#[test]
fn one_request_costs_one_start_its_run_and_the_grace() {
    let course = ours(vec![Request {
        at: 1000.0,
        exec: EXEC,
    }]);
    assert_eq!(
        (course.cold, course.waits.as_slice()),
        (1, [COLD].as_slice())
    );
    assert_eq!(course.busy_ms, EXEC);
    let sizes: Vec<u32> = course.sizes.iter().map(|(_, size)| *size).collect();
    assert_eq!(sizes, [1, 0]);
    // Active for the last time at the tick that sees the end of its run; zero at most a tick and a bucket after the grace.
    let idle = course.alive_ms - COLD - EXEC;
    assert!((60_000.0..=66_000.0).contains(&idle), "{idle} ms idle");
}

#[test]
fn a_constant_load_settles_and_nothing_waits_any_more() {
    // 4 at once on average.
    let course = ours(steady(EXEC / 4.0, 20.0));
    let settled: Vec<_> = course
        .sizes
        .iter()
        .filter(|(at, _)| (300_000.0..1_200_000.0).contains(at))
        .collect();
    assert!(settled.is_empty(), "changes after 5 minutes: {settled:?}");
    let before: Vec<_> = course
        .sizes
        .iter()
        .filter(|(at, _)| *at < 300_000.0)
        .collect();
    let (_, size) = before.last().expect("it was scaled up");
    assert!((4..=6).contains(size), "{size}");
    let late = &course.waits[course.waits.len() / 4..];
    assert!(late.iter().all(|wait| *wait == 0.0));
    assert_eq!(course.reversals.count, 1, "up, and down at the end");
    assert_eq!(course.sizes.last().map(|(_, size)| *size), Some(0));
}

#[test]
fn a_burst_is_answered_sooner_than_by_the_mean() {
    let mut requests = steady(EXEC * 2.0, 10.0);
    let burst = (0..400).map(|n| Request {
        at: 300_000.0 + 50.0 * f64::from(n),
        exec: EXEC,
    });
    requests.extend(burst);
    requests.sort_by(|a, b| a.at.total_cmp(&b.at));
    let longest = |course: &Course| course.waits.iter().copied().fold(0.0, f64::max);
    let (ours, plain) = (ours(requests.clone()), plain(requests));
    assert!(
        longest(&ours) * 2.0 < longest(&plain),
        "{} ms and {} ms",
        longest(&ours),
        longest(&plain)
    );
    assert_eq!(ours.reversals.flaps, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn every_request_runs_and_no_course_flaps(
        gaps in prop::collection::vec((0.0f64..1.0, 1.0f64..20_000.0), 1..200),
        scale in 1.0f64..60_000.0,
    ) {
        let mut at = 0.0;
        let requests: Vec<Request> = gaps
            .iter()
            .map(|&(gap, exec)| {
                at += gap * gap * gap * scale;
                Request { at, exec }
            })
            .collect();
        let work: f64 = requests.iter().map(|request| request.exec).sum();
        let course = ours(requests);
        prop_assert_eq!(course.waits.len(), gaps.len());
        prop_assert!((course.busy_ms - work).abs() < 1e-3);
        prop_assert!(course.alive_ms >= course.busy_ms);
        prop_assert!(course.cold as usize <= gaps.len());
        prop_assert_eq!(course.reversals.flaps, 0);
        prop_assert_eq!(course.sizes.last().map(|(_, size)| *size), Some(0));
    }
}

#[test]
fn the_small_experiment_reaches_its_aims() {
    let Some(folder) = traces() else { return };
    let experiment = ALL
        .iter()
        .find(|experiment| experiment.name() == "autoscale")
        .expect("it is listed");
    let context = Context {
        data: Some(&folder),
        effort: Effort::Quick,
        progress: &Silent,
    };
    let outcome = experiment.run(&context).expect("it runs");
    let missed: Vec<_> = outcome.gates.iter().filter(|gate| !gate.holds).collect();
    assert!(missed.is_empty(), "{missed:?}");
    assert_eq!(outcome.plots.len(), 1);
}
