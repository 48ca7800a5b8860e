//! A long walk over states: what is undone is as it was, what is continued is what would be built anew.

use fdn_core::{ByteSize, MebiBytes, MilliCpu, Millis, Resources};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::super::{Bandwidth, Cluster, Hold, Link, Network, Options, Speed};
use super::*;
use crate::dag::{Dag, DagBuilder, Transfer};

const TASKS: usize = 24;

fn mib(value: u64) -> Resources {
    Resources::new(MilliCpu(0), MebiBytes(value))
}

/// Three parents at most for each task, some without work, some edges with data.
fn job() -> Dag {
    let mut builder = DagBuilder::new();
    for at in 0..TASKS {
        let work = if at % 7 == 3 {
            0.0
        } else {
            5.0 + (at * 37 % 23) as f64
        };
        builder.task(format!("t{at}"), Millis::new(work), mib(at as u64 % 5));
    }
    for to in 1..TASKS {
        let mut parents = [to / 2, to / 3, to.saturating_sub(1 + to % 4)];
        parents.sort_unstable();
        for (at, from) in parents.into_iter().enumerate() {
            if parents[..at].contains(&from) {
                continue;
            }
            let transfer = if to % 2 == 0 {
                Transfer::Fixed(Millis::new((from + to) as f64 / 4.0))
            } else {
                Transfer::Data(ByteSize::from_bytes(to as u64 * 100_000))
            };
            builder.edge(TaskIndex::new(from), TaskIndex::new(to), transfer);
        }
    }
    builder.build().expect("edges lead to later tasks only")
}

fn clusters() -> Vec<Cluster> {
    let cluster = |name: &str, speed, slots| {
        Cluster::new(name.parse().expect("a name"), Speed::new(speed), slots).with_free(mib(24))
    };
    vec![
        cluster("a", 1.0, 2),
        cluster("b", 2.0, 1),
        cluster("c", 1.5, 3),
        cluster("none", 9.0, 0),
    ]
}

fn with_problem(hold: Hold, test: impl FnOnce(&Problem<'_>)) {
    let (dag, clusters) = (job(), clusters());
    let link = Link {
        latency: Millis::new(1.0),
        bandwidth: Bandwidth::from_mb_per_s(200.0).expect("a positive rate"),
    };
    let network = Network::uniform(clusters.len(), link);
    let distance = [3.0, 1.0, 2.0, 0.0].map(Millis::new);
    let problem = Problem::new(&dag, &clusters, &network, &distance).expect("consistent");
    let options = Options {
        hold,
        ..Options::default()
    };
    test(&problem.with_options(options));
}

/// The order keeps precedence, and what each cluster holds is what it has.
fn assert_sound(problem: &Problem<'_>, state: &State) {
    let place = |task: TaskIndex| state.order.iter().position(|other| *other == task);
    for task in problem.dag().indices() {
        assert!(state.usable().contains(&state.cluster(task)));
        for (child, _) in problem.dag().children(task) {
            assert!(place(task) < place(child));
        }
    }
    if problem.options().hold == Hold::Job {
        for (p, cluster) in problem.clusters().iter().enumerate() {
            let here = problem
                .dag()
                .indices()
                .filter(|task| state.cluster(*task) == p);
            let held = here.fold(Resources::default(), |sum, task| {
                sum.saturating_add(&problem.dag().task(task).demand)
            });
            assert!(held.fits(&cluster.free));
        }
    }
}

fn assignment(state: &State) -> (Vec<TaskIndex>, Vec<usize>) {
    let clusters = (0..TASKS).map(|task| state.cluster(TaskIndex::new(task)));
    (state.order.clone(), clusters.collect())
}

#[test]
fn every_state_of_a_walk_is_sound_and_a_change_undone_leaves_no_trace() {
    for hold in [Hold::Job, Hold::Task] {
        with_problem(hold, |problem| {
            let start = HeuOrche::default()
                .place(problem, Detail::Nothing)
                .expect("it fits")
                .plan;
            let mut state = State::default();
            state.begin(problem, &start);
            let mut rng = ChaCha8Rng::seed_from_u64(1);
            let (mut moved, mut changed) = (0, 0);
            for _ in 0..3_000 {
                let Some(change) = state.draw(problem, start.order(), &mut rng) else {
                    continue;
                };
                let before = assignment(&state);
                state.apply(problem, change);
                assert_ne!(assignment(&state), before);
                assert_sound(problem, &state);
                state.undo(problem, change);
                assert_eq!(assignment(&state), before);
                state.apply(problem, change);
                match change {
                    state::Move::Order { .. } => moved += 1,
                    state::Move::Cluster { .. } => changed += 1,
                }
            }
            assert!(moved > 500 && changed > 200, "{moved} {changed}");
        });
    }
}

#[test]
fn a_schedule_that_is_continued_is_the_one_that_is_built_anew() {
    for hold in [Hold::Job, Hold::Task] {
        with_problem(hold, |problem| {
            let start = HeuOrche::default()
                .place(problem, Detail::Nothing)
                .expect("it fits")
                .plan;
            let (mut kept, mut fresh) = (Best::new(0, 1), Best::new(0, 1));
            for best in [&mut kept, &mut fresh] {
                best.state.begin(problem, &start);
                best.decoder.begin(problem, best.state.usable());
                best.decode(problem, 0, f64::INFINITY).expect("no limit");
            }
            let mut rng = ChaCha8Rng::seed_from_u64(2);
            for step in 0..1_000 {
                let Some(change) = kept.state.draw(problem, start.order(), &mut rng) else {
                    continue;
                };
                let first = kept.state.apply(problem, change);
                let continued = kept.decode(problem, first, f64::INFINITY);
                fresh.state.copy_from(&kept.state);
                assert_eq!(
                    continued,
                    fresh.decode(problem, 0, f64::INFINITY),
                    "step {step}"
                );
                // With a limit just below, the same schedule is given up; at it, it is kept.
                let answer = continued.expect("no limit");
                assert_eq!(fresh.decode(problem, 0, answer * (1.0 - 1e-9)), None);
                assert!(fresh.decode(problem, 0, answer * (1.0 + 1e-9)).is_some());
            }
        });
    }
}

#[test]
fn the_chain_leads_from_the_last_answer_to_the_first_start_without_a_gap() {
    with_problem(Hold::Job, |problem| {
        let start = HeuOrche::default()
            .place(problem, Detail::Nothing)
            .expect("it fits")
            .plan;
        let mut best = Best::new(0, 1);
        let plan = best.refine(problem, &start);
        let last = problem
            .dag()
            .exits()
            .iter()
            .map(|exit| best.decoder.answer(problem, *exit))
            .max();
        assert_eq!(last, Some(best.decoder.answer(problem, best.chain[0])));
        assert_eq!(best.chain.last(), Some(&problem.dag().entry()));
        for pair in best.chain.windows(2) {
            let (later, earlier) = (plan.placement(pair[0]), plan.placement(pair[1]));
            let is_parent = problem
                .dag()
                .parents(pair[0])
                .any(|(parent, _)| parent == pair[1]);
            let same_slot = (later.cluster, later.slot) == (earlier.cluster, earlier.slot);
            assert!(is_parent || (same_slot && earlier.finish == later.start));
        }
    });
}
