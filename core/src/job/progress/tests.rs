use proptest::prelude::*;

use super::*;

const TERMS: JobRules = JobRules {
    retry: RetryPolicy {
        attempts: 3,
        first: DurationMs::from_millis(100),
        longest: DurationMs::from_millis(1000),
    },
    idempotent: true,
};
const ONCE: JobRules = JobRules {
    idempotent: false,
    ..TERMS
};

fn queued() -> JobProgress {
    JobProgress {
        state: JobState::Queued,
        ..JobProgress::submitted(Timestamp(10), Timestamp(10_000))
    }
}

fn to(step: Step) -> JobProgress {
    match step {
        Step::To(progress) => progress,
        Step::Stale => panic!("the event is stale"),
    }
}

fn claim(progress: &JobProgress, now: u64) -> JobProgress {
    let event = Event::Claimed {
        lease_until: Timestamp(now + 500),
    };
    to(progress.step(&TERMS, event, Timestamp(now), 0.0))
}

fn end(progress: &JobProgress, rules: &JobRules, ending: AttemptResult, now: u64) -> JobProgress {
    let event = Event::Ended {
        attempt: progress.attempt,
        ending,
    };
    to(progress.step(rules, event, Timestamp(now), 0.0))
}

#[test]
fn a_job_that_is_answered_well_succeeds_once() {
    let running = claim(&queued(), 20);
    assert_eq!((running.state, running.attempt), (JobState::Running, 1));
    let done = end(&running, &TERMS, AttemptResult::Succeeded, 30);
    assert_eq!((done.state, done.lease_until), (JobState::Succeeded, None));
    let late = Event::Ended {
        attempt: 1,
        ending: AttemptResult::CutShort,
    };
    assert_eq!(done.step(&TERMS, late, Timestamp(40), 0.0), Step::Stale);
}

#[test]
fn a_function_that_may_be_repeated_is_until_the_job_is_a_dead_letter() {
    let mut progress = queued();
    let mut now = 20;
    for (failure, pause) in [(1, 100), (2, 200)] {
        progress = end(&claim(&progress, now), &TERMS, AttemptResult::CutShort, now);
        assert_eq!(
            (progress.state, progress.failures),
            (JobState::Queued, failure)
        );
        assert_eq!(progress.due_at, Timestamp(now + pause));
        let early = Event::Claimed {
            lease_until: Timestamp(now + 500),
        };
        assert_eq!(
            progress.step(&TERMS, early, Timestamp(now), 0.0),
            Step::Stale
        );
        now += pause;
    }
    let dead = end(&claim(&progress, now), &TERMS, AttemptResult::CutShort, now);
    assert_eq!(
        (dead.state, dead.attempt, dead.failures),
        (JobState::Dead, 3, 3)
    );
    let again = Event::Redriven {
        expires_at: Timestamp(99_999),
    };
    let again = to(dead.step(&TERMS, again, Timestamp(now), 0.0));
    assert_eq!(
        (again.state, again.attempt, again.failures),
        (JobState::Queued, 3, 0)
    );
    assert_eq!(
        claim(&again, now).attempt,
        4,
        "numbers of attempts are never given twice"
    );
}

#[test]
fn a_function_that_may_not_be_repeated_fails_when_it_may_have_run() {
    let running = claim(&queued(), 20);
    assert_eq!(
        end(&running, &ONCE, AttemptResult::CutShort, 30).state,
        JobState::Failed
    );
    let missed = end(&running, &ONCE, AttemptResult::NeverBegun, 30);
    assert_eq!(
        (missed.state, missed.failures, missed.misses),
        (JobState::Queued, 0, 1)
    );
    let lost = Event::LeaseLost { attempt: 1 };
    let early = running.step(&ONCE, lost, Timestamp(519), 0.0);
    assert_eq!(early, Step::Stale, "the lease has not ended");
    assert_eq!(
        to(running.step(&ONCE, lost, Timestamp(520), 0.0)).state,
        JobState::Failed
    );
}

#[test]
fn what_is_too_old_is_dropped_and_never_begun() {
    let claimed = Event::Claimed {
        lease_until: Timestamp(20_000),
    };
    let late = to(queued().step(&TERMS, claimed, Timestamp(10_000), 0.0));
    assert_eq!((late.state, late.attempt), (JobState::Dropped, 0));
    assert_eq!(
        to(queued().step(&TERMS, Event::Tick, Timestamp(10_000), 0.0)).state,
        JobState::Dropped
    );
    assert_eq!(
        queued().step(&TERMS, Event::Tick, Timestamp(9999), 0.0),
        Step::Stale
    );
    let missed = end(
        &claim(&queued(), 9950),
        &TERMS,
        AttemptResult::NeverBegun,
        9960,
    );
    assert_eq!(
        missed.state,
        JobState::Dropped,
        "the next attempt would be too late"
    );
    let failed = end(
        &claim(&queued(), 9950),
        &TERMS,
        AttemptResult::CutShort,
        9960,
    );
    assert_eq!(failed.state, JobState::Dead, "it has run: that is no drop");
}

#[test]
fn every_cell_of_the_table_is_as_written() {
    let lease_until = Timestamp(600);
    let events = [
        Event::Confirmed,
        Event::Claimed { lease_until },
        Event::Ended {
            attempt: 1,
            ending: AttemptResult::Succeeded,
        },
        Event::LeaseLost { attempt: 1 },
        Event::Tick,
        Event::Cancelled,
        Event::Redriven {
            expires_at: Timestamp(20_000),
        },
    ];
    use JobState::{Cancelled, Failed, Queued, Running, Succeeded};
    let table = |state| match state {
        JobState::Submitted => [Some(Queued), None, None, None, None, Some(Cancelled), None],
        Queued => [None, Some(Running), None, None, None, Some(Cancelled), None],
        Running => [
            None,
            None,
            Some(Succeeded),
            Some(Failed),
            None,
            Some(Cancelled),
            None,
        ],
        JobState::Dead | JobState::Dropped | Failed => {
            [None, None, None, None, None, None, Some(Queued)]
        }
        Succeeded | Cancelled => [None; 7],
    };
    for state in JobState::ALL {
        let progress = JobProgress {
            state: *state,
            attempt: 1,
            lease_until: (*state == Running).then_some(Timestamp(50)),
            ..queued()
        };
        for (event, expected) in events.into_iter().zip(table(*state)) {
            let next = match progress.step(&ONCE, event, Timestamp(100), 0.0) {
                Step::To(next) => Some(next.state),
                Step::Stale => None,
            };
            assert_eq!(next, expected, "{state}, {event:?}");
        }
    }
}

/// What a world of lost, doubled and late messages may tell a job.
fn event() -> impl Strategy<Value = Event> {
    let ending = prop_oneof![
        Just(AttemptResult::Succeeded),
        Just(AttemptResult::Refused),
        Just(AttemptResult::NeverBegun),
        Just(AttemptResult::CutShort)
    ];
    prop_oneof![
        Just(Event::Confirmed),
        (0u64..3000).prop_map(|at| Event::Claimed {
            lease_until: Timestamp(at)
        }),
        (0u32..6, ending).prop_map(|(attempt, ending)| Event::Ended { attempt, ending }),
        (0u32..6).prop_map(|attempt| Event::LeaseLost { attempt }),
        Just(Event::Tick),
        Just(Event::Cancelled),
    ]
}

proptest! {
    #[test]
    fn a_job_ends_exactly_once_whatever_is_told(
        told in prop::collection::vec((event(), 0u64..200, 0.0f64..1.0), 0..80),
        idempotent: bool,
    ) {
        let rules = JobRules { idempotent, ..TERMS };
        let (mut progress, mut now, mut ends) = (JobProgress::submitted(Timestamp(0), Timestamp(3000)), 0, 0);
        for (event, passed, jitter) in told {
            now += passed;
            let before = progress.clone();
            if let Step::To(next) = before.step(&rules, event, Timestamp(now), jitter) {
                prop_assert!(!before.state.is_final(), "left {} by {event:?}", before.state);
                prop_assert!(next.attempt >= before.attempt && next.attempt <= before.attempt + 1);
                prop_assert_eq!(next.lease_until.is_some(), next.state == JobState::Running);
                prop_assert!(next.failures <= rules.retry.attempts);
                if let Event::Ended { attempt, .. } | Event::LeaseLost { attempt } = event {
                    prop_assert_eq!(attempt, before.attempt, "another attempt's end counted");
                }
                ends += u32::from(next.state.is_final());
                progress = next;
            }
        }
        prop_assert_eq!(ends, u32::from(progress.state.is_final()));
    }

    /// Dispatchers that only ever crash or fail to reach a gateway cannot keep a job under way for ever.
    #[test]
    fn a_job_that_is_looked_after_ends(endings in prop::collection::vec(0u8..2, 1..200), idempotent: bool) {
        let rules = JobRules { idempotent, ..TERMS };
        let mut progress = queued();
        let mut now = 10;
        for ending in endings.iter().cycle().take(400) {
            if progress.state.is_final() {
                break;
            }
            now = now.max(progress.due_at.get());
            let claimed = Event::Claimed { lease_until: Timestamp(now + 50) };
            progress = to(progress.step(&rules, claimed, Timestamp(now), 0.0));
            if progress.state == JobState::Running {
                let attempt = progress.attempt;
                now += 50;
                let event = match ending {
                    0 => Event::Ended { attempt, ending: AttemptResult::NeverBegun },
                    _ => Event::LeaseLost { attempt },
                };
                progress = to(progress.step(&rules, event, Timestamp(now), 0.0));
            }
        }
        prop_assert!(progress.state.is_final(), "{progress:?}");
    }
}
