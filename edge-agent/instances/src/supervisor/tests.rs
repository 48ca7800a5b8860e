use proptest::prelude::*;
use uuid::Uuid;

use super::*;

fn id(n: u128) -> InstanceId {
    InstanceId::from_uuid(Uuid::from_u128(n))
}

fn crash() -> Failure {
    Failure::of_end(&Exit::ended(137), Vec::new())
}

fn at(ms: u64) -> Timestamp {
    Timestamp(ms)
}

/// Orders an instance and lets it fail at the same moment.
fn fail(supervisor: &mut Supervisor, n: u128, now: u64) {
    supervisor.ordered(id(n));
    supervisor.failed(id(n), crash(), at(now), 0.0);
}

fn next(supervisor: &mut Supervisor, now: u64) -> u64 {
    supervisor.may_start(at(now)).map_or_else(|t| t.0, |()| now)
}

#[test]
fn pauses_double_up_to_the_longest_and_the_first_is_none() {
    let mut supervisor = Supervisor::new(Settings::default());
    let mut now = 1000;
    let mut pauses = Vec::new();
    for n in 0..12 {
        fail(&mut supervisor, n, now);
        let then = next(&mut supervisor, now);
        pauses.push(then - now);
        now = then;
    }
    assert_eq!(
        pauses,
        [
            0, 250, 500, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000, 60_000
        ]
    );
    let degraded = supervisor.degraded(at(now)).expect("it failed");
    assert_eq!((degraded.failures, degraded.since), (12, at(1000)));
    assert!(degraded.failure.reason.contains("signal 9"));
}

#[test]
fn a_wave_of_kills_is_one_failure_and_costs_no_pause() {
    let mut supervisor = Supervisor::new(Settings::default());
    for n in 0..20 {
        supervisor.ordered(id(n));
        supervisor.ready(id(n), at(10));
    }
    for n in 0..20 {
        supervisor.failed(id(n), crash(), at(500), 0.0);
    }
    assert_eq!(supervisor.may_start(at(500)), Ok(()));
    assert_eq!(supervisor.degraded(at(500)).map(|d| d.failures), Some(1));
}

#[test]
fn what_ran_well_is_replaced_without_a_word() {
    let mut supervisor = Supervisor::new(Settings::default());
    supervisor.ordered(id(1));
    supervisor.ready(id(1), at(0));
    supervisor.failed(id(1), crash(), at(30_000), 0.0);
    assert_eq!(supervisor.may_start(at(30_000)), Ok(()));
    assert_eq!(supervisor.degraded(at(30_000)), None);
}

#[test]
fn only_an_instance_that_runs_well_ends_the_row() {
    let mut supervisor = Supervisor::new(Settings::default());
    fail(&mut supervisor, 1, 0);
    fail(&mut supervisor, 2, 0);
    supervisor.ordered(id(3));
    supervisor.ready(id(3), at(1000));
    assert!(supervisor.degraded(at(30_999)).is_some(), "not yet");
    assert_eq!(supervisor.degraded(at(31_000)), None);
    fail(&mut supervisor, 4, 31_000);
    assert_eq!(supervisor.may_start(at(31_000)), Ok(()), "a row of its own");
}

#[test]
fn what_can_never_succeed_waits_longest() {
    let mut supervisor = Supervisor::new(Settings::default());
    supervisor.ordered(id(1));
    let error = StartError::ImageInvalid {
        image: "x".to_owned(),
        reason: "for another processor".to_owned(),
    };
    supervisor.failed(id(1), Failure::of_start(&error), at(0), 0.0);
    assert_eq!(supervisor.may_start(at(0)), Err(at(60_000)));
}

#[derive(Clone, Debug)]
enum Step {
    Order,
    Ready(usize),
    Fail(usize, f64),
    Stop(usize),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::Order),
        (0..8usize).prop_map(Step::Ready),
        (0..8usize, -0.5..1.5f64).prop_map(|(n, c)| Step::Fail(n, c)),
        (0..8usize).prop_map(Step::Stop),
        (0..40_000u64).prop_map(Step::Wait),
    ]
}

proptest! {
    #[test]
    fn pauses_are_bounded_and_the_reason_is_kept(steps in prop::collection::vec(step(), 0..200)) {
        let settings = Settings { lines: 3, ..Settings::default() };
        let mut supervisor = Supervisor::new(settings);
        let (mut now, mut count, mut living) = (0u64, 0u128, Vec::new());
        for step in steps {
            match step {
                Step::Order => {
                    if supervisor.may_start(at(now)).is_ok() {
                        count += 1;
                        supervisor.ordered(id(count));
                        living.push(id(count));
                    }
                }
                Step::Ready(n) => if let Some(id) = living.get(n) { supervisor.ready(*id, at(now)) },
                Step::Stop(n) => if n < living.len() { supervisor.stopped(living.remove(n)) },
                Step::Wait(ms) => now += ms,
                Step::Fail(n, chance) => if n < living.len() {
                    let line = LogLine { stream: fdn_core::api::LogStream::Stderr, text: "x".to_owned() };
                    let failure = Failure::of_end(&Exit::ended(1), vec![line; 10]);
                    supervisor.failed(living.remove(n), failure, at(now), chance);
                }
            }
            let until = next(&mut supervisor, now);
            prop_assert!(until - now <= 60_000, "never longer than the longest pause");
            let degraded = supervisor.clone().degraded(at(now)).cloned();
            if until > now && degraded.is_none() {
                // An instance runs well, so the next question finds the pause gone as well.
                let _ = supervisor.degraded(at(now)).is_none();
                prop_assert_eq!(supervisor.may_start(at(now)), Ok(()));
            }
            if let Some(degraded) = degraded {
                prop_assert!(degraded.failure.log.len() <= 3 && degraded.failures > 0);
            }
        }
    }

    #[test]
    fn a_supervisor_left_alone_always_allows_a_start_again(fails in 0u128..40, chance in 0.0..1.0f64) {
        let mut supervisor = Supervisor::new(Settings::default());
        let mut now = 0;
        for n in 0..fails {
            now = next(&mut supervisor, now);
            supervisor.ordered(id(n));
            supervisor.failed(id(n), crash(), at(now), chance);
            let pause = next(&mut supervisor, now) - now;
            let whole = if n == 0 { 0 } else { (250u64 << (n - 1).min(20)).min(60_000) };
            prop_assert!(pause <= whole && pause >= whole / 2, "{pause} of {whole}");
        }
    }
}
