//! Competition of client groups for memory: no cluster is promised more than it has, nobody is driven out by who comes, and where memory is
//! ample it does not show.

use std::num::NonZeroU32;

use fdn_core::{MebiBytes, MilliCpu, Millis, Resources};
use fdn_scheduling::compete::{
    Competition, GroupDemand, Moves, Outcome, Rate, Terms, Verdict, containers,
};
use fdn_scheduling::dag::{Dag, DagBuilder, Holding, TaskIndex, Transfer};
use fdn_scheduling::place::{Cluster, ClusterIndex, Exclusion, Memory, Network, Options, Speed};
use fdn_scheduling::steer::{Margin, replan};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::instance::{id, mib, ms};

fn terms() -> Terms {
    Terms {
        margin: Margin::default(),
        options: Options {
            exit_leg: true,
            ..Options::default()
        },
        horizon: Millis::new(10_000.0),
    }
}

fn at(index: usize) -> ClusterIndex {
    ClusterIndex::new(index)
}

fn seats(count: u32) -> Holding {
    NonZeroU32::new(count).map_or(Holding::Calls, Holding::Instances)
}

/// A chain of tasks of such work, memory and holding.
fn chain(tasks: &[(f64, u64, Holding)]) -> Dag {
    let mut builder = DagBuilder::new();
    for (number, (work, memory, holding)) in tasks.iter().enumerate() {
        let demand = Resources::new(MilliCpu(0), MebiBytes(*memory));
        let task = builder.task(format!("t{number}"), ms(*work), demand);
        builder.holding(task, *holding);
        if number > 0 {
            builder.edge(TaskIndex::new(number - 1), task, Transfer::Fixed(ms(1.0)));
        }
    }
    builder.build().expect("a DAG")
}

/// Clusters of a thousand slots with so much memory, all of it on one node.
fn clusters(memory: &[u64]) -> Vec<Cluster> {
    let cluster = |(n, memory): (usize, &u64)| {
        Cluster::new(id(&format!("c{n}")), Speed::new(1.0), 1000)
            .with_capacity(Resources {
                memory_mib: MebiBytes(*memory),
                ..Resources::UNLIMITED
            })
            .with_free(mib(*memory))
            .with_largest(mib(*memory))
    };
    memory.iter().enumerate().map(cluster).collect()
}

#[derive(Clone, Debug)]
struct Group {
    app: usize,
    distance: Vec<Millis>,
    rate: f64,
    before: Option<Vec<ClusterIndex>>,
}

fn group(app: usize, distance: &[f64], rate: f64, before: Option<usize>) -> Group {
    Group {
        app,
        distance: distance.iter().map(|d| ms(*d)).collect(),
        rate,
        before: before.map(|place| vec![at(place)]),
    }
}

fn demands<'a>(apps: &'a [Dag], groups: &'a [Group]) -> Vec<GroupDemand<'a>> {
    let demand = |group: &'a Group| GroupDemand {
        app: group.app,
        dag: &apps[group.app],
        distance: &group.distance,
        rate: Rate::per_second(group.rate),
        before: group.before.as_deref(),
        constraints: None,
        factors: None,
        dwells: false,
    };
    groups.iter().map(demand).collect()
}

fn run(clusters: &[Cluster], apps: &[Dag], groups: &[Group]) -> (Vec<Outcome>, Vec<Memory>) {
    let network = Network::instant(clusters.len());
    let mut outcomes = vec![None; groups.len()];
    let mut competition = Competition::new(clusters, &network, terms());
    competition
        .run(
            &demands(apps, groups),
            &mut Moves::unlimited(),
            |number, _, outcome| {
                assert!(outcomes[number].replace(outcome.clone()).is_none());
            },
        )
        .expect("consistent");
    let outcomes = outcomes.into_iter().map(|o| o.expect("decided")).collect();
    (outcomes, competition.needed().to_vec())
}

fn verdicts(outcomes: &[Outcome]) -> Vec<Verdict> {
    outcomes.iter().map(|outcome| outcome.verdict).collect()
}

fn places(outcomes: &[Outcome]) -> Vec<usize> {
    let first = |outcome: &Outcome| outcome.clusters.first().map_or(usize::MAX, |c| c.get());
    outcomes.iter().map(first).collect()
}

/// What the groups need of each cluster where they are now, counted afresh; who has no place stays where it was.
fn needed(clusters: &[Cluster], apps: &[Dag], groups: &[Group], outcomes: &[Outcome]) -> Vec<f64> {
    let mut needed = vec![0.0; clusters.len()];
    for (app, dag) in apps.iter().enumerate() {
        for number in 0..dag.given() {
            let task = dag.task(TaskIndex::new(number));
            let mut rates = vec![0.0; clusters.len()];
            for (group, outcome) in groups.iter().zip(outcomes) {
                let there = match outcome.verdict {
                    Verdict::Unplaced => group.before.clone().unwrap_or_default(),
                    _ => outcome.clusters.clone(),
                };
                if let Some(place) = there.get(number).filter(|_| group.app == app)
                    && place.get() < clusters.len()
                {
                    rates[place.get()] += group.rate;
                }
            }
            for (place, rate) in rates.into_iter().enumerate() {
                let time = clusters[place].speed.time(task.work);
                let count = containers(Rate::per_second(rate), time, task.holding);
                needed[place] += count * task.demand.memory_mib.get() as f64;
            }
        }
    }
    needed
}

#[test]
fn what_does_not_fit_nearby_goes_where_there_is_room() {
    // Three apps of one instance each; two fit into the near cluster.
    let clusters = clusters(&[1100, 8000]);
    let apps: Vec<Dag> = (0..3).map(|_| chain(&[(10.0, 512, seats(10))])).collect();
    let groups = [
        group(0, &[5.0, 50.0], 3.0, None),
        group(1, &[5.0, 50.0], 2.0, None),
        group(2, &[5.0, 50.0], 1.0, None),
    ];
    let (outcomes, needed) = run(&clusters, &apps, &groups);
    assert_eq!(places(&outcomes), [0, 0, 1], "the most work chooses first");
    assert_eq!((needed[0].main, needed[1].main), (1024.0, 512.0));
    // Further groups of an app that is there need nothing more.
    let more = (0..20).map(|_| group(0, &[5.0, 50.0], 3.0, None));
    let groups: Vec<Group> = groups.into_iter().chain(more).collect();
    let (outcomes, needed) = run(&clusters, &apps, &groups);
    assert_eq!(needed[0].main, 1024.0);
    assert_eq!(places(&outcomes).iter().filter(|p| **p == 0).count(), 22);
}

#[test]
fn calls_that_grow_beyond_the_memory_move_the_least_and_no_more_than_must() {
    let clusters = clusters(&[2048, 8192]);
    let apps: Vec<Dag> = (0..4).map(|_| chain(&[(100.0, 512, seats(1))])).collect();
    let rates = [0.1, 0.09, 0.08, 0.07];
    let mut groups: Vec<Group> = (0..4)
        .map(|app| group(app, &[5.0, 50.0], rates[app], Some(0)))
        .collect();
    let (outcomes, _) = run(&clusters, &apps, &groups);
    assert_eq!(verdicts(&outcomes), [Verdict::StillBest; 4]);
    // The first is called so often that it needs a second instance: L = 1.
    groups[0].rate = 10.0;
    let (outcomes, needed) = run(&clusters, &apps, &groups);
    assert_eq!(places(&outcomes), [0, 0, 0, 1]);
    let Verdict::Failed(why @ Exclusion::Crowded { .. }) = outcomes[3].verdict else {
        panic!("{:?}", outcomes[3].verdict);
    };
    assert_eq!(needed[0].main, 2048.0);
    assert_eq!(
        why.to_string(),
        "has its memory promised to others: wants 512 MiB memory, 0 MiB free"
    );
}

#[test]
fn who_comes_for_a_gain_leaves_the_margin_free_and_drives_nobody_out() {
    let apps: Vec<Dag> = (0..3).map(|_| chain(&[(10.0, 500, seats(10))])).collect();
    // The second would gain by moving to the first's cluster.
    let groups = [
        group(0, &[5.0, 50.0], 1.0, Some(0)),
        group(1, &[5.0, 50.0], 9.0, Some(1)),
    ];
    let verdict = |memory: u64| {
        let (outcomes, _) = run(&clusters(&[memory, 8000]), &apps, &groups);
        assert_eq!(outcomes[0].verdict, Verdict::StillBest);
        outcomes[1].verdict
    };
    assert_eq!(verdict(900), Verdict::StillBest);
    assert_eq!(
        verdict(1050),
        Verdict::StillBest,
        "1000 of 1050 is too near"
    );
    assert_eq!(verdict(1200), Verdict::Better);
    // One that has no place at all takes what there is.
    let groups = [groups[0].clone(), group(2, &[5.0, 50.0], 9.0, None)];
    let (outcomes, _) = run(&clusters(&[1050, 8000]), &apps, &groups);
    assert_eq!(places(&outcomes), [0, 0]);
}

#[test]
fn nobody_is_kept_out_by_its_own_instances() {
    // All that is free at this moment is held by the app itself.
    let mut clusters = clusters(&[1024, 8000]);
    clusters[0] = clusters[0].clone().with_free(mib(0)).with_largest(mib(0));
    let apps: Vec<Dag> = (0..2).map(|_| chain(&[(10.0, 512, seats(10))])).collect();
    let groups = [
        group(0, &[5.0, 50.0], 1.0, Some(0)),
        group(1, &[5.0, 50.0], 1.0, None),
    ];
    let (outcomes, _) = run(&clusters, &apps, &groups);
    assert_eq!(outcomes[0].verdict, Verdict::StillBest);
    assert_eq!(places(&outcomes), [0, 1], "who is new needs what is free");
    // One that nobody calls holds nothing: others have taken what there was.
    let idle = [group(0, &[5.0, 50.0], 0.0, Some(0))];
    let (outcomes, _) = run(&clusters, &apps, &idle);
    assert!(matches!(
        outcomes[0].verdict,
        Verdict::Failed(Exclusion::Shortage { .. })
    ));
}

#[test]
fn whom_nobody_has_memory_for_stays_and_is_told_why() {
    let clusters = clusters(&[1024, 1024]);
    let apps = vec![chain(&[(100.0, 512, seats(1))])];
    let groups = [group(0, &[5.0, 50.0], 40.0, Some(0))];
    let network = Network::instant(2);
    let mut told = String::new();
    let mut competition = Competition::new(&clusters, &network, terms());
    competition
        .run(
            &demands(&apps, &groups),
            &mut Moves::unlimited(),
            |_, problem, outcome| {
                assert_eq!(outcome.verdict, Verdict::Unplaced);
                let why = replan(problem, None, Margin::default()).expect_err("no room");
                told = why.to_string();
            },
        )
        .expect("consistent");
    assert_eq!(
        told,
        "no cluster can take t0: c0 (has its memory promised to others: wants 3072 MiB memory, 1024 MiB free), \
         c1 (has its memory promised to others: wants 3072 MiB memory, 1024 MiB free)"
    );
    // What it takes there counts all the same.
    assert_eq!(competition.needed()[0].main, 3072.0);
}

#[test]
fn stages_of_one_workflow_must_fit_together() {
    // Each would fit alone; together they do not.
    let clusters = clusters(&[1000, 5000]);
    let apps = vec![chain(&[(10.0, 600, seats(10)), (10.0, 600, seats(10))])];
    let groups = [group(0, &[5.0, 10.0], 1.0, None)];
    let (outcomes, needed) = run(&clusters, &apps, &groups);
    assert_eq!(outcomes[0].verdict, Verdict::First);
    assert!(needed[0].main <= 1000.0, "{needed:?}");
    assert_eq!(needed[0].main + needed[1].main, 1200.0);
}

/// A random network and random groups of random apps.
fn random(seed: u64, memory: u64) -> (Vec<Cluster>, Vec<Dag>, Vec<Group>) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let count = rng.random_range(2..6);
    let sizes: Vec<u64> = (0..count).map(|_| rng.random_range(1..=memory)).collect();
    let mut network = clusters(&sizes);
    for cluster in &mut network {
        cluster.speed = Speed::new(rng.random_range(0.5..2.0));
    }
    let apps: Vec<Dag> = (0..rng.random_range(1..8))
        .map(|_| {
            let tasks: Vec<_> = (0..rng.random_range(1..4))
                .map(|_| {
                    let holding = seats(rng.random_range(0..5));
                    (
                        rng.random_range(1.0..200.0),
                        rng.random_range(0..600),
                        holding,
                    )
                })
                .collect();
            chain(&tasks)
        })
        .collect();
    let groups = (0..rng.random_range(1..40))
        .map(|_| {
            let app = rng.random_range(0..apps.len());
            let distance: Vec<f64> = (0..count).map(|_| rng.random_range(1.0..120.0)).collect();
            let rate = if rng.random_bool(0.2) {
                0.0
            } else {
                rng.random_range(0.0..20.0)
            };
            let place = || at(rng.random_range(0..count + 1));
            let before: Vec<ClusterIndex> = std::iter::repeat_with(place)
                .take(apps[app].given())
                .collect();
            Group {
                before: rng.random_bool(0.6).then_some(before),
                ..group(app, &distance, rate, None)
            }
        })
        .collect();
    (network, apps, groups)
}

/// Who has to move, or has no place, when a random network that holds everybody is planned again with what came of it.
fn moved_when_planned_again(seed: u64, memory: u64) -> Option<Outcome> {
    let (clusters, apps, mut groups) = random(seed, memory);
    let unplaced = |outcome: &Outcome| outcome.verdict == Verdict::Unplaced;
    let (outcomes, _) = run(&clusters, &apps, &groups);
    if outcomes.iter().any(unplaced) {
        // It does not fit.
        return None;
    }
    groups = groups
        .into_iter()
        .zip(outcomes)
        .map(|(group, outcome)| Group {
            before: Some(outcome.clusters),
            ..group
        })
        .collect();
    let (outcomes, _) = run(&clusters, &apps, &groups);
    outcomes
        .into_iter()
        .find(|outcome| unplaced(outcome) || matches!(outcome.verdict, Verdict::Failed(_)))
}

#[test]
fn a_task_that_joins_another_of_its_own_takes_nobodys_memory() {
    // One task of a chain stays where a second one comes for the gain. The one that stays shares an instance with a group whose turn is still to come:
    // together they need one more than it does alone.
    assert_eq!(moved_when_planned_again(77_324, 6_682), None);
}

proptest! {
    /// Where everybody has a place no cluster is promised more memory than it has, and what is said to be needed is.
    #[test]
    fn no_cluster_is_promised_more_than_it_has(seed in 0u64..100_000, memory in 500u64..20_000) {
        let (clusters, apps, groups) = random(seed, memory);
        let (outcomes, said) = run(&clusters, &apps, &groups);
        let needed = needed(&clusters, &apps, &groups, &outcomes);
        for (place, needed) in needed.iter().enumerate() {
            prop_assert!((said[place].main - needed).abs() < 1e-3, "{} {}", said[place].main, needed);
            let over = groups.iter().zip(&outcomes).any(|(group, outcome)| {
                let stays = group.before.iter().flatten().any(|c| c.get() == place);
                outcome.verdict == Verdict::Unplaced && stays
            });
            let capacity = clusters[place].capacity.memory_mib.get() as f64;
            prop_assert!(over || *needed <= capacity + 1e-3, "{} of {} in {}", needed, capacity, place);
        }
        // The same again gives the same.
        prop_assert_eq!(&outcomes, &run(&clusters, &apps, &groups).0);
    }

    /// Planned again with what came of it, nobody has to move for memory, and still nobody is over.
    #[test]
    fn what_fits_is_left_in_peace(seed in 0u64..100_000, memory in 2_000u64..40_000) {
        let moved = moved_when_planned_again(seed, memory);
        prop_assert!(moved.is_none(), "{:?}", moved);
    }

    /// Twice the memory that all could ever need is as good as no bound.
    #[test]
    fn where_memory_is_ample_it_does_not_show(seed in 0u64..100_000) {
        let (mut clusters, apps, groups) = random(seed, 1000);
        let most: f64 = groups
            .iter()
            .flat_map(|group| {
                let dag = &apps[group.app];
                dag.indices().map(move |task| {
                    let task = dag.task(task);
                    let time = Speed::new(0.5).time(task.work);
                    let count = containers(Rate::per_second(group.rate), time, task.holding);
                    count * task.demand.memory_mib.get() as f64
                })
            })
            .sum();
        let with = |clusters: &mut Vec<Cluster>, capacity: Resources| {
            for cluster in clusters.iter_mut() {
                *cluster = cluster.clone().with_capacity(capacity);
            }
            run(clusters, &apps, &groups).0
        };
        let ample = Resources { memory_mib: MebiBytes(most as u64 * 2 + 600 * 3), ..Resources::UNLIMITED };
        let bounded = with(&mut clusters, ample);
        prop_assert_eq!(bounded, with(&mut clusters, Resources::UNLIMITED));
    }
}
