use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn cluster(n: usize) -> ClusterId {
    format!("c{n}").parse().expect("cluster")
}

fn plan(parents: &[usize], when: Condition) -> StagePlan {
    StagePlan {
        parents: parents.to_vec(),
        when,
        clusters: vec![cluster(0)],
        retries: 0,
        backoff: Duration::from_millis(100),
        timeout: 10 * SECOND,
        idempotent: false,
    }
}

fn begin(plans: Vec<StagePlan>) -> (Run, Vec<Action>) {
    Run::new(plans, 60 * SECOND)
}

fn started(actions: &[Action]) -> Vec<(usize, u32, String)> {
    let of = |action: &Action| match action {
        Action::Start {
            stage,
            attempt,
            cluster,
            ..
        } => Some((*stage, *attempt, cluster.to_string())),
        _ => None,
    };
    actions.iter().filter_map(of).collect()
}

fn finish(actions: &[Action]) -> Option<&Outcome> {
    actions.iter().find_map(|action| match action {
        Action::Finish(outcome) => Some(outcome),
        _ => None,
    })
}

fn done(stage: usize, attempt: u32) -> Event {
    Event::Done { stage, attempt }
}

fn failed(stage: usize, attempt: u32, kind: FailureKind) -> Event {
    let failure = Failure::new(kind, "because");
    Event::Failed {
        stage,
        attempt,
        failure,
    }
}

use Condition::{Always, Failure as OnFailure, Success};

#[test]
fn five_stages_run_side_by_side_and_join() {
    let five = vec![
        plan(&[], Success),
        plan(&[0], Success),
        plan(&[0], Success),
        plan(&[0], Success),
        plan(&[3, 1, 2], Success),
    ];
    let (mut run, first) = begin(five);
    assert_eq!(started(&first), [(0, 1, "c0".to_owned())]);
    let next = run.apply(done(0, 1), SECOND);
    assert_eq!(started(&next).len(), 3);
    assert!(started(&run.apply(done(3, 1), SECOND)).is_empty());
    assert!(
        run.apply(done(3, 1), SECOND).is_empty(),
        "told twice, done once"
    );
    run.apply(done(1, 1), SECOND);
    let join = run.apply(done(2, 1), SECOND);
    assert!(join.contains(&Action::Forget { stage: 0 }));
    let inputs = join.iter().find_map(|action| match action {
        Action::Start { inputs, .. } => Some(inputs.clone()),
        _ => None,
    });
    let inputs = inputs.expect("the join starts");
    let order: Vec<usize> = inputs.iter().map(|(parent, _)| *parent).collect();
    assert_eq!(order, [3, 1, 2], "in the order declared");
    let end = run.apply(done(4, 1), 2 * SECOND);
    assert_eq!(finish(&end), Some(&Outcome::Answered(vec![4])));
    assert_eq!(run.next_due(), None);
}

#[test]
fn a_failure_that_nobody_takes_up_ends_the_run_at_once() {
    let (mut run, _) = begin(vec![
        plan(&[], Success),
        plan(&[0], Success),
        plan(&[0], Success),
        plan(&[1, 2], Success),
    ]);
    run.apply(done(0, 1), SECOND);
    let end = run.apply(failed(1, 1, FailureKind::Answered), SECOND);
    assert!(end.contains(&Action::Cancel {
        stage: 2,
        attempt: 1
    }));
    let Some(Outcome::Failed {
        stage,
        attempt,
        failure,
    }) = finish(&end)
    else {
        panic!("{end:?}");
    };
    assert_eq!(
        (*stage, *attempt, failure.reason.as_str()),
        (1, 1, "because")
    );
    assert!(run.apply(done(2, 1), SECOND).is_empty(), "too late");
}

#[test]
fn conditions_take_up_failures() {
    let stages = vec![
        plan(&[], Success),
        plan(&[0], Success),
        plan(&[1], OnFailure),
        plan(&[1], Success),
        plan(&[2, 3], Always),
    ];
    let (mut run, _) = begin(stages.clone());
    run.apply(done(0, 1), SECOND);
    let next = run.apply(failed(1, 1, FailureKind::Refused), SECOND);
    assert_eq!(started(&next), [(2, 1, "c0".to_owned())]);
    assert_eq!(run.settled(3), Some(Settled::Skipped));
    let next = run.apply(done(2, 1), SECOND);
    assert_eq!(started(&next), [(4, 1, "c0".to_owned())]);
    let end = run.apply(done(4, 1), SECOND);
    assert_eq!(finish(&end), Some(&Outcome::Answered(vec![4])));

    let (mut run, _) = begin(stages);
    run.apply(done(0, 1), SECOND);
    run.apply(done(1, 1), SECOND);
    assert_eq!(run.settled(2), Some(Settled::Skipped), "nothing failed");
}

#[test]
fn without_an_exit_that_ran_there_is_no_answer() {
    let (mut run, _) = begin(vec![plan(&[], Success), plan(&[0], OnFailure)]);
    let end = run.apply(done(0, 1), SECOND);
    let Some(Outcome::Failed { stage, attempt, .. }) = finish(&end) else {
        panic!("{end:?}");
    };
    assert_eq!((*stage, *attempt), (1, 0));
}

#[test]
fn a_cluster_that_is_not_reached_is_left_for_the_next_at_once() {
    let two = StagePlan {
        clusters: vec![cluster(1), cluster(2)],
        ..plan(&[], Success)
    };
    let (mut run, first) = begin(vec![two.clone()]);
    assert_eq!(started(&first), [(0, 1, "c1".to_owned())]);
    let next = run.apply(failed(0, 1, FailureKind::NotStarted), SECOND);
    assert_eq!(started(&next), [(0, 2, "c2".to_owned())]);
    let end = run.apply(failed(0, 2, FailureKind::NotStarted), SECOND);
    assert!(matches!(
        finish(&end),
        Some(Outcome::Failed { attempt: 2, .. })
    ));

    // Lost midway: only where the function may run twice.
    let (mut run, _) = begin(vec![two.clone()]);
    let end = run.apply(failed(0, 1, FailureKind::Lost), SECOND);
    assert!(finish(&end).is_some());
    let (mut run, _) = begin(vec![StagePlan {
        idempotent: true,
        ..two
    }]);
    let next = run.apply(failed(0, 1, FailureKind::Lost), SECOND);
    assert_eq!(started(&next), [(0, 2, "c2".to_owned())]);
}

#[test]
fn repetitions_wait_twice_as_long_each_time() {
    let (mut run, _) = begin(vec![StagePlan {
        retries: 2,
        idempotent: true,
        ..plan(&[], Success)
    }]);
    let mut now = SECOND;
    for (attempt, pause) in [(1, 100), (2, 200)] {
        assert!(started(&run.apply(failed(0, attempt, FailureKind::Answered), now)).is_empty());
        let due = now + Duration::from_millis(pause);
        assert_eq!(run.next_due(), Some(due));
        assert!(
            run.apply(Event::Tick, due - Duration::from_millis(1))
                .is_empty()
        );
        now = due;
        assert_eq!(started(&run.apply(Event::Tick, now)).len(), 1);
    }
    let end = run.apply(failed(0, 3, FailureKind::Answered), now);
    assert!(matches!(
        finish(&end),
        Some(Outcome::Failed { attempt: 3, .. })
    ));
}

#[test]
fn time_ends_attempts_and_runs() {
    let (mut run, _) = begin(vec![plan(&[], Success)]);
    assert_eq!(run.next_due(), Some(10 * SECOND));
    let end = run.apply(Event::Tick, 10 * SECOND);
    assert_eq!(
        end[0],
        Action::Cancel {
            stage: 0,
            attempt: 1
        }
    );
    assert!(matches!(
        finish(&end),
        Some(Outcome::Failed { stage: 0, .. })
    ));

    let (mut run, _) = Run::new(vec![plan(&[], Success), plan(&[0], Success)], 2 * SECOND);
    run.apply(done(0, 1), SECOND);
    let end = run.apply(Event::Tick, 2 * SECOND);
    assert_eq!(
        finish(&end),
        Some(&Outcome::Late {
            stage: 1,
            attempt: 1
        })
    );
    assert!(end.contains(&Action::Cancel {
        stage: 1,
        attempt: 1
    }));
}

fn any_plans() -> impl Strategy<Value = Vec<StagePlan>> {
    let stage = (
        any::<prop::sample::Index>(),
        prop::collection::vec(any::<prop::sample::Index>(), 0..3),
        prop::sample::select(vec![Success, OnFailure, Always]),
        1_usize..4,
        0_u32..3,
        any::<bool>(),
    );
    prop::collection::vec(stage, 1..9).prop_map(|stages| {
        let stages = stages.into_iter().enumerate();
        stages
            .map(|(n, (first, more, when, clusters, retries, idempotent))| {
                let mut parents: Vec<usize> = Vec::new();
                if n > 0 {
                    parents = more.iter().chain([&first]).map(|p| p.index(n)).collect();
                    parents.sort_unstable();
                    parents.dedup();
                }
                StagePlan {
                    clusters: (0..clusters).map(cluster).collect(),
                    retries,
                    idempotent,
                    ..plan(&parents, if n == 0 { Success } else { when })
                }
            })
            .collect()
    })
}

/// What is watched from outside while a run goes on.
struct Watched {
    plans: Vec<StagePlan>,
    running: BTreeMap<usize, u32>,
    done: Vec<bool>,
    ended: Vec<bool>,
    unsafe_failure: Vec<bool>,
    attempts: Vec<u32>,
    finished: bool,
}

impl Watched {
    fn see(&mut self, run: &Run, actions: &[Action]) -> Result<(), TestCaseError> {
        prop_assert!(
            !self.finished || actions.is_empty(),
            "nothing after the end"
        );
        for action in actions {
            prop_assert!(!self.finished, "the end is the last action");
            match action {
                Action::Start {
                    stage,
                    attempt,
                    inputs,
                    ..
                } => {
                    let plan = &self.plans[*stage];
                    prop_assert!(!self.done[*stage] && !self.running.contains_key(stage));
                    prop_assert!(
                        !self.unsafe_failure[*stage],
                        "only what is safe is made again"
                    );
                    prop_assert_eq!(*attempt, self.attempts[*stage] + 1);
                    self.attempts[*stage] = *attempt;
                    prop_assert!(*attempt <= plan.clusters.len() as u32 + plan.retries);
                    let parents: Vec<usize> = inputs.iter().map(|(parent, _)| *parent).collect();
                    prop_assert_eq!(&parents, &plan.parents, "all parents have ended");
                    let holds = match plan.when {
                        Success => inputs.iter().all(|(_, how)| *how == Settled::Done),
                        OnFailure => inputs.iter().any(|(_, how)| *how == Settled::Failed),
                        Always => true,
                    };
                    prop_assert!(holds);
                    self.running.insert(*stage, *attempt);
                }
                Action::Cancel { stage, attempt } => {
                    prop_assert_eq!(self.running.remove(stage), Some(*attempt));
                    self.unsafe_failure[*stage] |= !self.plans[*stage].idempotent;
                }
                Action::Forget { stage } => prop_assert!(self.done[*stage]),
                Action::Finish(outcome) => {
                    self.finished = true;
                    prop_assert!(self.running.is_empty());
                    match outcome {
                        Outcome::Answered(exits) => {
                            prop_assert!(!exits.is_empty());
                            prop_assert!(exits.iter().all(|exit| self.done[*exit]));
                        }
                        Outcome::Failed { stage, attempt, .. }
                        | Outcome::Late { stage, attempt } => {
                            prop_assert!(!self.done[*stage]);
                            prop_assert_eq!(*attempt, self.attempts[*stage]);
                        }
                    }
                }
            }
        }
        for at in 0..self.plans.len() {
            self.ended[at] = run.settled(at).is_some();
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn every_run_keeps_the_rules_and_ends(plans in any_plans(), choices in prop::collection::vec((any::<prop::sample::Index>(), 0_u8..8, 0_u64..3000), 400)) {
        let (mut run, first) = Run::new(plans.clone(), 60 * SECOND);
        let n = plans.len();
        let mut watched = Watched { plans, running: BTreeMap::new(), done: vec![false; n], ended: vec![false; n], unsafe_failure: vec![false; n], attempts: vec![0; n], finished: false };
        watched.see(&run, &first)?;
        let mut now = Duration::ZERO;
        for (which, what, pause) in choices {
            if watched.finished { break; }
            now += Duration::from_millis(pause);
            let running: Vec<(usize, u32)> = watched.running.iter().map(|(s, a)| (*s, *a)).collect();
            let event = if running.is_empty() || what == 7 {
                let due = run.next_due();
                prop_assert!(due.is_some(), "a run that has not ended goes on by itself");
                now = now.max(due.unwrap_or_default());
                Event::Tick
            } else {
                let (stage, attempt) = *which.get(&running);
                match what {
                    0..=2 => done(stage, attempt),
                    3 => failed(stage, attempt, FailureKind::NotStarted),
                    4 => failed(stage, attempt, FailureKind::Lost),
                    5 => failed(stage, attempt, FailureKind::Answered),
                    _ => failed(stage, attempt, FailureKind::Refused),
                }
            };
            match &event {
                Event::Done { stage, .. } => {
                    watched.running.remove(stage);
                    watched.done[*stage] = true;
                }
                Event::Failed { stage, failure, .. } => {
                    watched.running.remove(stage);
                    let again = match failure.kind {
                        FailureKind::NotStarted => true,
                        FailureKind::Lost | FailureKind::Answered => watched.plans[*stage].idempotent,
                        FailureKind::Refused => false,
                    };
                    watched.unsafe_failure[*stage] |= !again;
                }
                Event::Tick => {}
            }
            let actions = run.apply(event.clone(), now);
            watched.see(&run, &actions)?;
            // The same again, late: it counts for nothing.
            if !matches!(event, Event::Tick) && !watched.finished {
                let again = run.apply(event, now);
                watched.see(&run, &again)?;
                prop_assert!(again.is_empty());
            }
        }
        prop_assert!(watched.finished, "a run ends within its deadline");
    }
}
