//! Competition of client groups: who moves, why, how much at once, and that nobody is worse off for it than when all ignore each other.

use std::collections::BTreeMap;

use fdn_core::{Millis, Resources};
use fdn_scheduling::compete::{
    Competition, GroupDemand, Load, Moves, Outcome, Rate, Terms, Verdict,
};
use fdn_scheduling::dag::{Dag, DagBuilder, TaskIndex};
use fdn_scheduling::place::{
    Availability, Cluster, ClusterIndex, Constraints, Exclusion, HeuOrche, Network, Options, Speed,
};
use fdn_scheduling::steer::{Margin, replan};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::instance::{id, ms};

const HORIZON: Millis = Millis::new(10_000.0);

fn terms() -> Terms {
    Terms {
        margin: Margin::default(),
        options: Options {
            exit_leg: true,
            ..Options::default()
        },
        horizon: HORIZON,
    }
}

fn at(index: usize) -> ClusterIndex {
    ClusterIndex::new(index)
}

fn function(work: f64) -> Dag {
    Dag::single("f", ms(work), Resources::default()).expect("one task")
}

fn clusters(slots: &[usize]) -> Vec<Cluster> {
    (0..slots.len())
        .map(|n| Cluster::new(id(&format!("c{n}")), Speed::new(1.0), slots[n]))
        .collect()
}

/// A group by its distances, its rate and where it was.
struct Group {
    distance: Vec<Millis>,
    rate: f64,
    before: Option<Vec<ClusterIndex>>,
}

impl Group {
    fn new(distance: &[f64], rate: f64) -> Self {
        Self {
            distance: distance.iter().map(|d| ms(*d)).collect(),
            rate,
            before: None,
        }
    }
}

fn run(clusters: &[Cluster], dag: &Dag, groups: &[Group], moves: &mut Moves) -> Vec<Outcome> {
    let network = Network::instant(clusters.len());
    let demands: Vec<GroupDemand<'_>> = groups
        .iter()
        .enumerate()
        .map(|(app, group)| GroupDemand {
            app,
            dag,
            distance: &group.distance,
            rate: Rate::per_second(group.rate),
            before: group.before.as_deref(),
            constraints: None,
            factors: None,
            dwells: false,
        })
        .collect();
    let mut outcomes = BTreeMap::new();
    let mut competition = Competition::new(clusters, &network, terms());
    competition
        .run(&demands, moves, |at, _, outcome| {
            assert!(outcomes.insert(at, outcome.clone()).is_none());
        })
        .expect("consistent");
    // What is asked for in the end is what the outcomes ask for.
    let mut loads: Vec<Load> = clusters.iter().map(Load::of).collect();
    for (at, outcome) in &outcomes {
        for cluster in &outcome.clusters {
            let time = clusters[cluster.get()]
                .speed
                .time(dag.task(TaskIndex::new(0)).mean());
            loads[cluster.get()].add(demands[*at].rate, time);
        }
    }
    for (ours, theirs) in competition.loads().iter().zip(&loads) {
        assert!((ours.erlangs() - theirs.erlangs()).abs() < 1e-6);
    }
    outcomes.into_values().collect()
}

fn where_to(outcomes: &[Outcome]) -> Vec<usize> {
    outcomes.iter().map(|o| o.clusters[0].get()).collect()
}

#[test]
fn a_cluster_that_cannot_do_what_it_is_asked_for_is_left_whatever_the_bucket_holds() {
    // Forty groups keep 16.4 of 20 slots busy; at a tenth of the speed they would keep 164 busy.
    let dag = function(10.0);
    let group = || Group {
        before: Some(vec![at(0)]),
        ..Group::new(&[5.0, 20.0], 41.0)
    };
    let groups: Vec<Group> = (0..40).map(|_| group()).collect();
    let moved = |speed: f64, slots: usize| {
        let mut clusters = clusters(&[20, slots]);
        clusters[0] = Cluster::new(id("c0"), Speed::new(speed), 20);
        let outcomes = run(&clusters, &dag, &groups, &mut Moves::none());
        let of = |verdict| outcomes.iter().filter(|o| o.verdict == verdict).count();
        (of(Verdict::Better), of(Verdict::Deferred))
    };
    // Four of them keep 16.4 slots busy, five 20.5.
    assert_eq!(moved(0.1, 40), (36, 4));
    // Eleven keep 4.51 of 5 slots busy, twelve more than 95 % of them.
    assert_eq!(moved(0.1, 5), (11, 29));
    assert_eq!(moved(0.9, 40).0, 0, "it is busy, and not overfull");
}

#[test]
fn groups_share_what_none_of_them_would_leave_alone() {
    // Ten slots near, ten far; two groups that keep eight slots busy each would both have the near ones.
    let clusters = clusters(&[10, 10]);
    let dag = function(10.0);
    let mut groups = [
        Group::new(&[5.0, 20.0], 800.0),
        Group::new(&[5.0, 20.0], 790.0),
    ];
    let outcomes = run(&clusters, &dag, &groups, &mut Moves::unlimited());
    assert_eq!(
        where_to(&outcomes),
        [0, 1],
        "the larger one has the first choice"
    );
    assert!(outcomes.iter().all(|o| o.verdict == Verdict::First));
    // One that is small finds room beside the large one.
    groups[1].rate = 10.0;
    let outcomes = run(&clusters, &dag, &groups, &mut Moves::unlimited());
    assert_eq!(where_to(&outcomes), [0, 0]);
    assert!(outcomes[1].latency < ms(5.0 + 10.0 + 5.0 + 5.0));
}

#[test]
fn load_is_counted_with_mean_times_and_latency_with_typical_ones() {
    // Two groups keep four slots busy each by what calls typically take: both would have the ten near slots, and wait for next to nothing.
    let clusters = clusters(&[10, 10]);
    let groups = [
        Group::new(&[5.0, 20.0], 400.0),
        Group::new(&[5.0, 20.0], 390.0),
    ];
    let decided = |ratio: f64| {
        let mut builder = DagBuilder::new();
        let task = builder.task("f", ms(10.0), Resources::default());
        builder.mean_ratio(task, ratio);
        let dag = builder.build().expect("one task");
        run(&clusters, &dag, &groups, &mut Moves::unlimited())
    };
    assert_eq!(where_to(&decided(1.0)), [0, 0]);
    // A few calls that take long make the mean twice that: together they would ask for sixteen slots.
    let apart = decided(2.0);
    assert_eq!(where_to(&apart), [0, 1]);
    // Eight of ten slots are busy, for 20 ms each: a wait of 20 * 0.8^3 / (10 * 0.2); the call itself takes the typical time.
    let expected = 5.0 + 10.0 + 5.12 + 5.0;
    assert!((apart[0].latency.get() - expected).abs() < 1e-9);
}

#[test]
fn a_group_counts_the_wait_that_its_corrected_time_makes() {
    // Near, calls take ten times as long as their work: fifty a second keep fifty slots busy, of which there are forty.
    let clusters = clusters(&[40, 40]);
    let (dag, network) = (function(100.0), Network::instant(2));
    let distance = [ms(5.0), ms(600.0)];
    let decided = |rate: f64, before: Option<&[ClusterIndex]>| {
        let demand = GroupDemand {
            app: 0,
            dag: &dag,
            distance: &distance,
            rate: Rate::per_second(rate),
            before,
            constraints: None,
            factors: Some(&[10.0, 1.0]),
            dwells: false,
        };
        let mut places = Vec::new();
        Competition::new(&clusters, &network, terms())
            .run(&[demand], &mut Moves::unlimited(), |_, _, outcome| {
                places.clone_from(&outcome.clusters);
            })
            .expect("consistent");
        places
    };
    assert_eq!(decided(1.0, None), [at(0)], "1010 ms and not 1300");
    assert_eq!(decided(50.0, None), [at(1)]);
    assert_eq!(
        decided(50.0, Some(&[at(0)])),
        [at(1)],
        "it does not stay either"
    );
}

#[test]
fn a_cluster_of_which_few_nodes_can_run_a_task_is_as_large_as_these() {
    // Near, one slot of ten is open to it; it keeps three busy.
    let clusters = clusters(&[20, 20]);
    let (dag, network) = (function(10.0), Network::instant(2));
    let distance = [ms(5.0), ms(50.0)];
    let constraints = |share: f64| {
        Constraints::from_fn((1, 2), |_, _| None)
            .with_shares(|_, at| if at == 0 { share } else { 1.0 })
    };
    let narrow = constraints(0.1);
    let decided = |constraints: Option<&Constraints>, rates: &[f64]| {
        let demands: Vec<GroupDemand<'_>> = rates
            .iter()
            .enumerate()
            .map(|(app, rate)| GroupDemand {
                app,
                dag: &dag,
                distance: &distance,
                rate: Rate::per_second(*rate),
                before: None,
                constraints,
                factors: None,
                dwells: false,
            })
            .collect();
        let mut places = BTreeMap::new();
        Competition::new(&clusters, &network, terms())
            .run(&demands, &mut Moves::unlimited(), |at, _, outcome| {
                places.insert(at, outcome.clusters[0].get());
            })
            .expect("consistent");
        places.into_values().collect::<Vec<_>>()
    };
    assert_eq!(decided(None, &[300.0]), [0]);
    assert_eq!(decided(Some(&narrow), &[300.0]), [1]);
    assert_eq!(decided(Some(&narrow), &[50.0]), [0]);
    // Neither do many that are small fill the two slots together.
    let many = decided(Some(&narrow), &[50.0; 20]);
    assert_eq!(many.iter().filter(|at| **at == 0).count(), 3, "{many:?}");
    assert!(!narrow.is_empty() && constraints(1.0).is_empty());
}

#[test]
fn at_rest_nobody_moves() {
    let clusters = clusters(&[10, 10]);
    let dag = function(10.0);
    let mut groups = [
        Group::new(&[5.0, 20.0], 800.0),
        Group::new(&[5.0, 20.0], 790.0),
    ];
    for (group, outcome) in groups.iter_mut().zip(run(
        &clusters,
        &dag,
        &function_groups(),
        &mut Moves::unlimited(),
    )) {
        group.before = Some(outcome.clusters);
    }
    for _ in 0..3 {
        let outcomes = run(&clusters, &dag, &groups, &mut Moves::unlimited());
        assert!(
            outcomes.iter().all(|o| o.verdict == Verdict::StillBest),
            "{outcomes:?}"
        );
    }
}

fn function_groups() -> [Group; 2] {
    [
        Group::new(&[5.0, 20.0], 800.0),
        Group::new(&[5.0, 20.0], 790.0),
    ]
}

#[test]
fn moves_for_gain_wait_for_their_turn_and_forced_ones_do_not() {
    // Forty equal groups far away; the near cluster has come back and takes them all.
    let near_is = |availability| {
        let mut clusters = clusters(&[1000, 1000]);
        clusters[1] = clusters[1].clone().with_availability(availability);
        clusters
    };
    let dag = function(10.0);
    let mut groups: Vec<Group> = (0..40).map(|_| Group::new(&[50.0, 5.0], 10.0)).collect();
    for group in &mut groups {
        group.before = Some(vec![at(0)]);
    }
    let mut moves = Moves::new(0.25, ms(1000.0)).expect("settings");
    let mut left = Vec::new();
    for _ in 0..5 {
        let outcomes = run(&near_is(Availability::Up), &dag, &groups, &mut moves);
        left.push(
            outcomes
                .iter()
                .filter(|o| o.verdict == Verdict::Deferred)
                .count(),
        );
        for (group, outcome) in groups.iter_mut().zip(outcomes) {
            group.before = Some(outcome.clusters);
        }
        moves.fill(ms(1000.0));
    }
    assert_eq!(left, [30, 20, 10, 0, 0]);
    // It dies: all of them leave at once, whatever the bucket holds.
    let mut empty = Moves::new(1e-9, ms(1e9)).expect("settings");
    let outcomes = run(&near_is(Availability::Down), &dag, &groups, &mut empty);
    assert!(
        outcomes
            .iter()
            .all(|o| o.verdict == Verdict::Failed(Exclusion::Down))
    );
    assert!(where_to(&outcomes).iter().all(|cluster| *cluster == 0));
}

#[test]
fn a_cluster_that_is_gone_and_one_that_nobody_can_have_are_told() {
    let dag = function(10.0);
    let mut groups = [Group::new(&[5.0], 1.0)];
    groups[0].before = Some(vec![at(7)]);
    let outcomes = run(&clusters(&[4]), &dag, &groups, &mut Moves::unlimited());
    assert_eq!(outcomes[0].verdict, Verdict::Failed(Exclusion::Gone));
    let full = clusters(&[4])[0]
        .clone()
        .with_availability(Availability::Draining);
    let outcomes = run(&[full], &dag, &groups, &mut Moves::unlimited());
    assert_eq!(outcomes[0].verdict, Verdict::Unplaced);
    assert!(outcomes[0].clusters.is_empty());
}

/// A random network under so much load.
fn random(seed: u64, load: f64) -> (Vec<Cluster>, Dag, Vec<Group>) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let count = rng.random_range(2..6);
    let slots: Vec<usize> = (0..count).map(|_| rng.random_range(2..40)).collect();
    let mut network = clusters(&slots);
    for cluster in &mut network {
        cluster.speed = Speed::new(rng.random_range(0.5..2.0));
    }
    let capacity: f64 = network
        .iter()
        .map(|c| c.speed.get() * c.slots.len() as f64)
        .sum();
    let dag = function(rng.random_range(2.0..50.0));
    let number = rng.random_range(4..30);
    let work = dag.task(TaskIndex::new(0)).work.get() / 1000.0;
    let groups = (0..number).map(|_| {
        let distance: Vec<f64> = (0..count).map(|_| rng.random_range(1.0..120.0)).collect();
        let weight = rng.random_range(0.2..1.8);
        Group::new(
            &distance,
            weight * load * capacity / work / f64::from(number),
        )
    });
    let groups = groups.collect();
    (network, dag, groups)
}

/// What users feel on average, if groups are there: mean latency, weighted by calls.
fn felt(clusters: &[Cluster], dag: &Dag, groups: &[Group], places: &[usize]) -> f64 {
    let work = dag.task(TaskIndex::new(0)).work;
    let mut loads: Vec<Load> = clusters.iter().map(Load::of).collect();
    for (group, place) in groups.iter().zip(places) {
        loads[*place].add(
            Rate::per_second(group.rate),
            clusters[*place].speed.time(work),
        );
    }
    let (mut sum, mut calls) = (0.0, 0.0);
    for (group, place) in groups.iter().zip(places) {
        let time = clusters[*place].speed.time(work);
        let wait = loads[*place].wait(Rate::default(), time, HORIZON);
        let latency = group.distance[*place] * 2.0 + time + wait;
        sum += latency.get() * group.rate;
        calls += group.rate;
    }
    sum / calls
}

#[test]
fn under_load_users_are_better_off_than_when_groups_ignore_each_other() {
    let mut ratios = Vec::new();
    for seed in 0..60 {
        let (clusters, dag, mut groups) = random(seed, 0.7);
        let alone: Vec<usize> = groups
            .iter()
            .map(|group| {
                let group = [Group::new(
                    &group.distance.iter().map(|d| d.get()).collect::<Vec<_>>(),
                    0.0,
                )];
                where_to(&run(&clusters, &dag, &group, &mut Moves::unlimited()))[0]
            })
            .collect();
        for _ in 0..3 {
            let outcomes = run(&clusters, &dag, &groups, &mut Moves::unlimited());
            for (group, outcome) in groups.iter_mut().zip(outcomes) {
                group.before = Some(outcome.clusters);
            }
        }
        let together: Vec<usize> = groups
            .iter()
            .map(|group| group.before.as_ref().expect("placed")[0].get())
            .collect();
        let ratio =
            felt(&clusters, &dag, &groups, &together) / felt(&clusters, &dag, &groups, &alone);
        assert!(ratio <= 1.1, "seed {seed}: {ratio}");
        ratios.push(ratio);
    }
    ratios.sort_by(f64::total_cmp);
    assert!(ratios[ratios.len() / 2] < 0.7, "{ratios:?}");
}

proptest! {
    /// Without load it is Heu-Orche with hysteresis, group by group.
    #[test]
    fn who_asks_for_nothing_is_planned_alone(seed in 0u64..10_000) {
        let (clusters, dag, mut groups) = random(seed, 0.0);
        let network = Network::instant(clusters.len());
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        for group in &mut groups {
            let place = rng.random_range(0..clusters.len() + 1);
            group.before = (place < clusters.len()).then(|| vec![at(place)]);
        }
        let outcomes = run(&clusters, &dag, &groups, &mut Moves::unlimited());
        for (group, outcome) in groups.iter().zip(&outcomes) {
            let problem = fdn_scheduling::place::Problem::new(&dag, &clusters, &network, &group.distance)
                .expect("consistent")
                .with_options(terms().options);
            let before: Option<Vec<_>> = group.before.as_ref().map(|before| {
                before.iter().map(|c| clusters[c.get()].id.clone()).collect()
            });
            let steered = replan(&problem, before.as_deref(), Margin::default()).expect("it fits");
            prop_assert_eq!(&clusters[outcome.clusters[0].get()].id, &steered.decision.cluster);
            prop_assert_eq!(outcome.latency, steered.plan.latency());
        }
    }

    /// With its toll a group pays for what it takes from the others: leaving all in place is never better for all together.
    #[test]
    fn no_pass_makes_calls_take_longer_as_a_mean(seed in 0u64..10_000, load in 0.1f64..1.5) {
        let (clusters, dag, mut groups) = random(seed, load);
        let mut rng = ChaCha8Rng::seed_from_u64(!seed);
        for group in &mut groups {
            group.before = Some(vec![at(rng.random_range(0..clusters.len()))]);
        }
        let places = |groups: &[Group]| -> Vec<usize> {
            groups.iter().filter_map(|group| Some(group.before.as_ref()?[0].get())).collect()
        };
        for _ in 0..4 {
            let stay = felt(&clusters, &dag, &groups, &places(&groups));
            let outcomes = run(&clusters, &dag, &groups, &mut Moves::unlimited());
            for (group, outcome) in groups.iter_mut().zip(outcomes) {
                group.before = Some(outcome.clusters);
            }
            let moved = felt(&clusters, &dag, &groups, &places(&groups));
            prop_assert!(moved <= stay * (1.0 + 1e-9), "{} {}", stay, moved);
        }
    }

    /// Whoever moves for gain gains more than the margin at that moment; whoever stays could not; the same again gives the same.
    #[test]
    fn moves_are_worth_it_and_reproducible(seed in 0u64..10_000, load in 0.1f64..1.5) {
        let (clusters, dag, mut groups) = random(seed, load);
        let mut rng = ChaCha8Rng::seed_from_u64(!seed);
        for group in &mut groups {
            group.before = Some(vec![at(rng.random_range(0..clusters.len()))]);
        }
        let network = Network::instant(clusters.len());
        let demands: Vec<GroupDemand<'_>> = groups
            .iter()
            .enumerate()
            .map(|(app, group)| GroupDemand {
                app,
                dag: &dag,
                distance: &group.distance,
                rate: Rate::per_second(group.rate),
                before: group.before.as_deref(),
                constraints: None,
                factors: None,
                dwells: false,
            })
            .collect();
        let mut competition = Competition::new(&clusters, &network, terms());
        let (mut seen, mut wrong) = (Vec::new(), Vec::new());
        competition
            .run(&demands, &mut Moves::unlimited(), |index, problem, outcome| {
                let before = demands[index].before.expect("they were somewhere");
                let cost = |clusters: &[ClusterIndex]| {
                    let plan = HeuOrche::default().evaluate(problem, |task| clusters.get(task.get()).copied());
                    plan.expect("all clusters are up").latency().get()
                };
                let gained = cost(&outcome.clusters) < cost(before) * 0.9;
                let moved = outcome.clusters != before;
                if moved != (outcome.verdict == Verdict::Better) || moved && !gained {
                    wrong.push((index, outcome.clone()));
                }
                seen.push((index, outcome.clone()));
            })
            .expect("consistent");
        prop_assert!(wrong.is_empty(), "{:?}", wrong);
        prop_assert_eq!(seen.len(), groups.len());
        seen.sort_by_key(|(index, _)| *index);
        let again = run(&clusters, &dag, &groups, &mut Moves::unlimited());
        prop_assert!(seen.iter().map(|(_, outcome)| outcome).eq(&again));
    }
}
