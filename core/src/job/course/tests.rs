use proptest::prelude::*;

use super::*;

const TERMS: Terms = Terms {
    retry: RetryPolicy {
        attempts: 3,
        first: DurationMs::from_millis(100),
        longest: DurationMs::from_millis(1000),
    },
    idempotent: true,
};
const ONCE: Terms = Terms {
    idempotent: false,
    ..TERMS
};

fn queued() -> Course {
    Course {
        state: JobState::Queued,
        ..Course::submitted(Timestamp(10), Timestamp(10_000))
    }
}

fn to(step: Step) -> Course {
    match step {
        Step::To(course) => course,
        Step::Stale => panic!("the event is stale"),
    }
}

fn claim(course: &Course, now: u64) -> Course {
    let event = Event::Claimed {
        lease_until: Timestamp(now + 500),
    };
    to(course.step(&TERMS, event, Timestamp(now), 0.0))
}

fn end(course: &Course, terms: &Terms, ending: Ending, now: u64) -> Course {
    let event = Event::Ended {
        attempt: course.attempt,
        ending,
    };
    to(course.step(terms, event, Timestamp(now), 0.0))
}

#[test]
fn a_job_that_is_answered_well_succeeds_once() {
    let running = claim(&queued(), 20);
    assert_eq!((running.state, running.attempt), (JobState::Running, 1));
    let done = end(&running, &TERMS, Ending::Succeeded, 30);
    assert_eq!((done.state, done.lease_until), (JobState::Succeeded, None));
    let late = Event::Ended {
        attempt: 1,
        ending: Ending::CutShort,
    };
    assert_eq!(done.step(&TERMS, late, Timestamp(40), 0.0), Step::Stale);
}

#[test]
fn a_function_that_may_be_repeated_is_until_the_job_is_a_dead_letter() {
    let mut course = queued();
    let mut now = 20;
    for (failure, pause) in [(1, 100), (2, 200)] {
        course = end(&claim(&course, now), &TERMS, Ending::CutShort, now);
        assert_eq!((course.state, course.failures), (JobState::Queued, failure));
        assert_eq!(course.due_at, Timestamp(now + pause));
        let early = Event::Claimed {
            lease_until: Timestamp(now + 500),
        };
        assert_eq!(course.step(&TERMS, early, Timestamp(now), 0.0), Step::Stale);
        now += pause;
    }
    let dead = end(&claim(&course, now), &TERMS, Ending::CutShort, now);
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
        end(&running, &ONCE, Ending::CutShort, 30).state,
        JobState::Failed
    );
    let missed = end(&running, &ONCE, Ending::NeverBegun, 30);
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
        to(queued().step(&TERMS, Event::Looked, Timestamp(10_000), 0.0)).state,
        JobState::Dropped
    );
    assert_eq!(
        queued().step(&TERMS, Event::Looked, Timestamp(9999), 0.0),
        Step::Stale
    );
    let missed = end(&claim(&queued(), 9950), &TERMS, Ending::NeverBegun, 9960);
    assert_eq!(
        missed.state,
        JobState::Dropped,
        "the next attempt would be too late"
    );
    let failed = end(&claim(&queued(), 9950), &TERMS, Ending::CutShort, 9960);
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
            ending: Ending::Succeeded,
        },
        Event::LeaseLost { attempt: 1 },
        Event::Looked,
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
        let course = Course {
            state: *state,
            attempt: 1,
            lease_until: (*state == Running).then_some(Timestamp(50)),
            ..queued()
        };
        for (event, expected) in events.into_iter().zip(table(*state)) {
            let next = match course.step(&ONCE, event, Timestamp(100), 0.0) {
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
        Just(Ending::Succeeded),
        Just(Ending::Refused),
        Just(Ending::NeverBegun),
        Just(Ending::CutShort)
    ];
    prop_oneof![
        Just(Event::Confirmed),
        (0u64..3000).prop_map(|at| Event::Claimed {
            lease_until: Timestamp(at)
        }),
        (0u32..6, ending).prop_map(|(attempt, ending)| Event::Ended { attempt, ending }),
        (0u32..6).prop_map(|attempt| Event::LeaseLost { attempt }),
        Just(Event::Looked),
        Just(Event::Cancelled),
    ]
}

proptest! {
    #[test]
    fn a_job_ends_exactly_once_whatever_is_told(
        told in prop::collection::vec((event(), 0u64..200, 0.0f64..1.0), 0..80),
        idempotent: bool,
    ) {
        let terms = Terms { idempotent, ..TERMS };
        let (mut course, mut now, mut ends) = (Course::submitted(Timestamp(0), Timestamp(3000)), 0, 0);
        for (event, passed, jitter) in told {
            now += passed;
            let before = course.clone();
            if let Step::To(next) = before.step(&terms, event, Timestamp(now), jitter) {
                prop_assert!(!before.state.is_final(), "left {} by {event:?}", before.state);
                prop_assert!(next.attempt >= before.attempt && next.attempt <= before.attempt + 1);
                prop_assert_eq!(next.lease_until.is_some(), next.state == JobState::Running);
                prop_assert!(next.failures <= terms.retry.attempts);
                if let Event::Ended { attempt, .. } | Event::LeaseLost { attempt } = event {
                    prop_assert_eq!(attempt, before.attempt, "another attempt's end counted");
                }
                ends += u32::from(next.state.is_final());
                course = next;
            }
        }
        prop_assert_eq!(ends, u32::from(course.state.is_final()));
    }

    /// Dispatchers that only ever crash or fail to reach a gateway cannot keep a job under way for ever.
    #[test]
    fn a_job_that_is_looked_after_ends(endings in prop::collection::vec(0u8..2, 1..200), idempotent: bool) {
        let terms = Terms { idempotent, ..TERMS };
        let mut course = queued();
        let mut now = 10;
        for ending in endings.iter().cycle().take(400) {
            if course.state.is_final() {
                break;
            }
            now = now.max(course.due_at.get());
            let claimed = Event::Claimed { lease_until: Timestamp(now + 50) };
            course = to(course.step(&terms, claimed, Timestamp(now), 0.0));
            if course.state == JobState::Running {
                let attempt = course.attempt;
                now += 50;
                let event = match ending {
                    0 => Event::Ended { attempt, ending: Ending::NeverBegun },
                    _ => Event::LeaseLost { attempt },
                };
                course = to(course.step(&terms, event, Timestamp(now), 0.0));
            }
        }
        prop_assert!(course.state.is_final(), "{course:?}");
    }
}
