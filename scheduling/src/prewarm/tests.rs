//! Runs by hand, and made-up runs under a checker of the rules.

use proptest::prelude::*;

use super::*;

fn ms(value: f64) -> Millis {
    Millis::new(value)
}

fn stage(parents: &[usize], takes: f64) -> Stage {
    Stage {
        parents: parents.to_vec(),
        when: Condition::Success,
        takes: ms(takes),
        is_warm: false,
    }
}

fn settings(horizon: f64) -> Settings {
    Settings {
        horizon: ms(horizon),
        at_once: 16,
    }
}

fn told(run: &mut Prewarm, now: f64) -> Vec<(usize, f64)> {
    let due = run.due(ms(now)).into_iter();
    due.map(|announcement| (announcement.stage, announcement.within.get()))
        .collect()
}

/// A chain of five, 100 ms each.
fn chain() -> Vec<Stage> {
    let mut stages = vec![stage(&[], 100.0)];
    stages.extend((1..5).map(|at| stage(&[at - 1], 100.0)));
    stages
}

#[test]
fn all_later_stages_are_told_when_the_first_begins_and_not_only_the_next() {
    let mut run = Prewarm::new(chain(), settings(10_000.0));
    run.begun(0, ms(0.0));
    assert_eq!(
        told(&mut run, 0.0),
        [(1, 100.0), (2, 200.0), (3, 300.0), (4, 400.0)]
    );
    assert_eq!(told(&mut run, 0.0), [], "once");
    assert_eq!(run.next_due(ms(0.0)), None, "while they are asked");
}

#[test]
fn what_is_too_early_is_told_again_by_what_a_start_takes_there() {
    let mut run = Prewarm::new(chain(), settings(10_000.0));
    run.begun(0, ms(0.0));
    told(&mut run, 0.0);
    run.answered(1, Answer::Started);
    run.answered(2, Answer::Warm);
    run.answered(3, Answer::NoRoom);
    run.answered(4, Answer::Later(ms(80.0)));
    assert_eq!(
        run.next_due(ms(1.0)),
        Some(ms(300.0)),
        "a quarter before 320"
    );
    assert_eq!(told(&mut run, 299.0), []);
    // The stages before were quicker than was thought: it is time sooner.
    run.ended(0);
    run.begun(1, ms(20.0));
    run.ended(1);
    run.begun(2, ms(40.0));
    assert_eq!(run.next_due(ms(40.0)), Some(ms(140.0)));
    run.ended(2);
    run.begun(3, ms(60.0));
    assert_eq!(told(&mut run, 60.0), [(4, 100.0)]);
    assert!(is_due(ms(100.0), ms(80.0)) && !is_due(ms(100.1), ms(80.0)));
}

#[test]
fn a_stage_that_is_far_off_is_told_when_the_horizon_reaches_it() {
    let mut run = Prewarm::new(chain(), settings(150.0));
    run.begun(0, ms(0.0));
    assert_eq!(told(&mut run, 0.0), [(1, 100.0)]);
    assert_eq!(run.next_due(ms(0.0)), Some(ms(50.0)));
    assert_eq!(told(&mut run, 50.0), [(2, 150.0)]);
    // One that takes longer than it should may end at any moment.
    run.answered(1, Answer::Started);
    run.answered(2, Answer::Started);
    assert_eq!(
        told(&mut run, 500.0),
        [],
        "200 ms are more than the horizon"
    );
    run.ended(0);
    run.begun(1, ms(500.0));
    run.ended(1);
    run.begun(2, ms(500.0));
    assert_eq!(told(&mut run, 500.0), [(3, 100.0)]);
}

#[test]
fn a_join_is_expected_after_the_slowest_of_its_parents() {
    let stages = vec![
        stage(&[], 10.0),
        stage(&[0], 500.0),
        stage(&[0], 20.0),
        stage(&[1, 2], 10.0),
    ];
    let mut run = Prewarm::new(stages, settings(10_000.0));
    run.begun(0, ms(0.0));
    assert_eq!(told(&mut run, 0.0), [(1, 10.0), (2, 10.0), (3, 510.0)]);
}

#[test]
fn what_runs_upon_failures_only_and_what_is_warm_is_not_told() {
    let mut stages = vec![
        stage(&[], 10.0),
        stage(&[0], 10.0),
        stage(&[1], 10.0),
        stage(&[1], 10.0),
        stage(&[0], 10.0),
        stage(&[0], 10.0),
    ];
    stages[1].when = Condition::Failure;
    stages[3].when = Condition::Always;
    stages[4].is_warm = true;
    let mut run = Prewarm::new(stages.clone(), settings(10_000.0));
    run.begun(0, ms(0.0));
    assert_eq!(told(&mut run, 0.0), [(5, 10.0), (3, 20.0)]);
    // It runs: so will what needs it.
    run.ended(0);
    run.begun(1, ms(10.0));
    assert_eq!(told(&mut run, 10.0), [(2, 10.0)]);
    let mut off = Prewarm::new(stages, settings(0.0));
    off.begun(0, ms(0.0));
    assert_eq!(told(&mut off, 0.0), []);
    assert_eq!(off.next_due(ms(0.0)), None);
}

#[test]
fn what_a_stage_takes_is_learnt_with_a_leaning_to_its_short_runs() {
    let first = smoothed_duration(None, ms(500.0));
    assert_eq!(first, ms(500.0), "a cold one");
    let warm = (0..8).fold(first, |known, _| smoothed_duration(Some(known), ms(50.0)));
    assert!(warm < ms(52.0), "{warm}");
    assert_eq!(smoothed_duration(Some(ms(50.0)), ms(150.0)), ms(60.0));
}

/// One thing that happens in a made-up run.
#[derive(Clone, Debug)]
enum Step {
    Pass(f64),
    Begin,
    End,
    Answer(u8, f64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0.0..300.0).prop_map(Step::Pass),
        Just(Step::Begin),
        Just(Step::End),
        (0u8..6, 0.0..400.0).prop_map(|(kind, cold)| Step::Answer(kind, cold)),
    ];
    prop::collection::vec(step, 1..120)
}

fn dag() -> impl Strategy<Value = Vec<Stage>> {
    let one = (any::<u64>(), 0u8..6, 0.0..500.0f64, any::<bool>());
    prop::collection::vec(one, 1..12).prop_map(|all| {
        let stage = |(at, (mask, when, takes, is_warm)): (usize, (u64, u8, f64, bool))| Stage {
            parents: (0..at).filter(|parent| mask >> parent & 1 == 1).collect(),
            when: match when {
                0 => Condition::Failure,
                1 => Condition::Always,
                _ => Condition::Success,
            },
            takes: ms(takes),
            is_warm: is_warm && mask % 3 == 0,
        };
        all.into_iter().enumerate().map(stage).collect()
    })
}

proptest! {
    #[test]
    fn stages_are_told_within_the_rules(
        stages in dag(), steps in steps(), horizon in 0.0..1000.0f64, at_once in 1usize..4,
    ) {
        let horizon = ms(horizon);
        let mut run = Prewarm::new(stages.clone(), Settings { horizon, at_once });
        let (mut now, mut begun, mut ended) = (ms(0.0), 0, 0);
        let mut asked: Vec<usize> = Vec::new();
        let mut announcements = vec![0; stages.len()];
        let mut closed: Vec<bool> = stages.iter().map(|stage| stage.is_warm).collect();
        for step in steps {
            match step {
                Step::Pass(span) => {
                    let next = run.next_due(now);
                    prop_assert!(next.is_none_or(|at| at > now), "what is due was told");
                    now += ms(span);
                }
                Step::Begin if begun < stages.len() => { run.begun(begun, now); begun += 1; }
                Step::End if ended < begun => { run.ended(ended); ended += 1; }
                Step::Answer(kind, cold) if !asked.is_empty() => {
                    let stage = asked.remove(0);
                    let answer = [
                        Answer::Started, Answer::Warm, Answer::NoRoom, Answer::Later(ms(cold)), Answer::Unknown, Answer::Lost,
                    ][usize::from(kind)];
                    closed[stage] = !matches!(answer, Answer::Later(_));
                    run.answered(stage, answer);
                }
                Step::Begin | Step::End | Step::Answer(..) => {}
            }
            for Announcement { stage, within } in run.due(now) {
                prop_assert!(stage >= begun, "it waits");
                prop_assert!(!closed[stage] && !asked.contains(&stage));
                prop_assert!(within >= ms(0.0) && within <= horizon + ms(1e-6), "{within} of {horizon}");
                prop_assert!(stages[stage].when != Condition::Failure);
                announcements[stage] += 1;
                prop_assert!(announcements[stage] <= ANNOUNCEMENTS_MAX);
                asked.push(stage);
            }
            prop_assert!(asked.len() <= at_once);
        }
    }
}
