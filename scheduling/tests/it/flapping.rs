//! Over a hundred passes, with clusters that slow down, lose half of their slots, fail and come back: nobody goes to and fro, each change of the world
//! costs each group a few moves at most, and soon after it nobody moves any more.

use fdn_core::{Millis, Resources, Timestamp};
use fdn_scheduling::compete::{Competition, GroupDemand, Moves, Rate, Terms, Verdict};
use fdn_scheduling::dag::Dag;
use fdn_scheduling::place::{Availability, Cluster, ClusterIndex, Network, Options, Speed};
use fdn_scheduling::residual::{self, Residuals, Sample};
use fdn_scheduling::steer::Margin;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::instance::{id, ms};

const PASSES: usize = 100;
/// Between two passes.
const PAUSE: Millis = Millis::new(5_000.0);
/// Passes for which a group stays that was moved for a gain.
const DWELL: usize = 6;
/// Moves of one group after a change of the world: its old place fails or slows, and what it took meanwhile is better used by others.
const MOVES: usize = 3;
/// Passes after which nothing moves any more, as long as the world does not change.
const REST: usize = 20;

/// What a cluster is like from one pass on.
#[derive(Clone, Copy)]
enum Change {
    Slow,
    Halved,
    Down,
    Well,
}

/// The pass, the cluster and what becomes of it: the largest clusters, one after the other.
const CHANGES: [(usize, usize, Change); 6] = [
    (2, 0, Change::Slow),
    (23, 1, Change::Halved),
    (44, 0, Change::Well),
    (44, 1, Change::Well),
    (58, 2, Change::Down),
    (79, 2, Change::Well),
];

struct World {
    clusters: Vec<Cluster>,
    apps: Vec<Dag>,
    distances: Vec<Vec<Millis>>,
    rates: Vec<f64>,
}

/// Eight clusters and forty groups that ask for `load` of all that there is.
fn world(seed: u64, load: f64) -> World {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut slots: Vec<usize> = (0..8).map(|_| rng.random_range(8..64)).collect();
    slots.sort_unstable_by(|a, b| b.cmp(a));
    let clusters: Vec<Cluster> = slots
        .iter()
        .enumerate()
        .map(|(n, slots)| Cluster::new(id(&format!("c{n}")), Speed::new(1.0), *slots))
        .collect();
    let works: Vec<f64> = (0..40).map(|_| rng.random_range(2.0..80.0)).collect();
    let shares: Vec<f64> = (0..40).map(|_| rng.random_range(0.1..1.0)).collect();
    let (all, whole): (usize, f64) = (slots.iter().sum(), shares.iter().sum());
    World {
        apps: works
            .iter()
            .map(|work| Dag::single("f", ms(*work), Resources::default()).expect("one task"))
            .collect(),
        distances: (0..40)
            .map(|_| (0..8).map(|_| ms(rng.random_range(1.0..120.0))).collect())
            .collect(),
        rates: works
            .iter()
            .zip(&shares)
            .map(|(work, share)| share / whole * load * all as f64 * 1000.0 / work)
            .collect(),
        clusters,
    }
}

fn change(well: &Cluster, change: Change) -> Cluster {
    let mut cluster = well.clone();
    match change {
        Change::Slow => cluster.speed = Speed::new(0.1),
        Change::Halved => {
            let half = Cluster::new(well.id.clone(), well.speed, well.slots.len() / 2);
            cluster.slots = half.slots;
        }
        Change::Down => cluster.availability = Availability::Down,
        Change::Well => {}
    }
    cluster
}

/// One pass: where all are, and who moved.
fn pass(
    world: &World,
    clusters: &[Cluster],
    before: Option<&[ClusterIndex]>,
    factors: &[Vec<f64>],
    dwells: impl Fn(usize) -> bool,
    moves: &mut Moves,
) -> (Vec<ClusterIndex>, Vec<(usize, Verdict)>) {
    let network = Network::instant(clusters.len());
    let demands: Vec<GroupDemand<'_>> = (0..world.apps.len())
        .map(|at| GroupDemand {
            app: at,
            dag: &world.apps[at],
            distance: &world.distances[at],
            rate: Rate::per_second(world.rates[at]),
            before: before.map(|before| std::slice::from_ref(&before[at])),
            constraints: None,
            factors: factors.get(at).map(Vec::as_slice),
            dwells: dwells(at),
        })
        .collect();
    let terms = Terms {
        margin: Margin::default(),
        options: Options {
            exit_leg: true,
            ..Options::default()
        },
        horizon: Millis::new(10_000.0),
    };
    let mut places = vec![ClusterIndex::new(0); demands.len()];
    let mut moved = Vec::new();
    Competition::new(clusters, &network, terms)
        .run(&demands, moves, |at, _, outcome| {
            places[at] = outcome.clusters[0];
            if before.is_some_and(|before| before[at] != places[at]) {
                moved.push((at, outcome.verdict));
            }
        })
        .expect("consistent");
    (places, moved)
}

/// Passes over the changing world; `seed` and `load` are named where something is wrong.
fn hundred(seed: u64, load: f64) {
    let world = world(seed, load);
    let mut clusters = world.clusters.clone();
    let mut moves = Moves::new(0.25, Millis::new(30_000.0)).expect("possible");
    let (mut places, _) = pass(&world, &clusters, None, &[], |_| false, &mut moves);
    // Where each group was since the world changed, and when that was.
    let mut left: Vec<Vec<(ClusterIndex, usize)>> = vec![Vec::new(); places.len()];
    let (mut since, mut gained) = (0, vec![None; places.len()]);
    for number in 1..PASSES {
        for (_, cluster, what) in CHANGES.iter().filter(|(at, ..)| *at == number) {
            clusters[*cluster] = change(&world.clusters[*cluster], *what);
            left.iter_mut().for_each(Vec::clear);
            since = number;
        }
        moves.fill(PAUSE);
        let dwells = |at: usize| gained[at].is_some_and(|then| number - then < DWELL);
        let (next, moved) = pass(&world, &clusters, Some(&places), &[], dwells, &mut moves);
        for (group, verdict) in &moved {
            let (from, to) = (places[*group], next[*group]);
            let at = format!("seed {seed}, load {load}, pass {number}, group {group} to {to}");
            if let Some((place, then)) = left[*group].iter().rev().find(|(place, _)| *place == to) {
                assert!(
                    number - then >= DWELL,
                    "{at}: it left {place} in pass {then}"
                );
            }
            left[*group].push((from, number));
            assert!(left[*group].len() <= MOVES, "{at}: {:?}", left[*group]);
            if *verdict == Verdict::Better {
                gained[*group] = Some(number);
            }
        }
        assert!(
            moved.is_empty() || number - since < REST,
            "seed {seed}, load {load}, pass {number}: {moved:?} although nothing changed since {since}"
        );
        places = next;
    }
}

#[test]
fn a_change_of_the_world_moves_each_group_a_few_times_and_then_all_is_at_rest() {
    for seed in 0..8 {
        for load in [0.4, 0.7, 0.9] {
            hundred(seed, load);
        }
    }
}

/// What calls of a group take in a cluster beside what is expected, of which a plan knows what was seen: goes over many passes, and returns what
/// the groups' calls take on average before and after, how many moved late, and the worst error of what is expected of their places.
fn learning(seed: u64) -> (f64, f64, usize, f64) {
    // So little that nobody waits: what calls take is what is compared.
    let world = world(seed, 0.1);
    let mut rng = ChaCha8Rng::seed_from_u64(seed + 100);
    let real: Vec<Vec<f64>> = (0..world.apps.len())
        .map(|_| (0..8).map(|_| rng.random_range(0.4..2.5)).collect())
        .collect();
    let work = |group: usize| world.apps[group].task(world.apps[group].entry()).work;
    let felt = |places: &[ClusterIndex]| {
        let each = places.iter().enumerate().map(|(group, place)| {
            let way = world.distances[group][place.get()].get() * 2.0;
            (work(group).get() * real[group][place.get()] + way) * world.rates[group]
        });
        each.sum::<f64>() / world.rates.iter().sum::<f64>()
    };
    let mut known = Residuals::<(usize, usize)>::new(residual::Terms::default(), 1_000);
    let mut moves = Moves::new(0.25, Millis::new(30_000.0)).expect("possible");
    let (mut places, _) = pass(&world, &world.clusters, None, &[], |_| false, &mut moves);
    let first = felt(&places);
    let (mut gained, mut late) = (vec![None; places.len()], 0);
    for number in 1..=300_usize {
        let now = Timestamp(number as u64 * 5_000);
        for (group, place) in places.iter().enumerate() {
            let noise = rng.random_range(0.9..1.1);
            let sample = Sample {
                predicted: work(group),
                actual: work(group) * real[group][place.get()] * noise,
                calls: (world.rates[group] * 5.0) as u64,
                effective: residual::FEW,
            };
            known.observe(&(group, place.get()), &sample, now, 0.1);
        }
        let factor = |group, at| known.factor(&(group, at), work(group), now);
        let factors: Vec<Vec<f64>> = (0..places.len())
            .map(|group| (0..8).map(|at| factor(group, at)).collect())
            .collect();
        moves.fill(PAUSE);
        let dwells = |at: usize| gained[at].is_some_and(|then| number - then < DWELL);
        let all = &world.clusters;
        let (next, moved) = pass(&world, all, Some(&places), &factors, dwells, &mut moves);
        for (group, verdict) in &moved {
            if *verdict == Verdict::Better {
                gained[*group] = Some(number);
            }
        }
        late += if number > 200 { moved.len() } else { 0 };
        places = next;
    }
    let errors = places.iter().enumerate().map(|(group, place)| {
        let factor = known.factor(&(group, place.get()), work(group), Timestamp(1_500_000));
        (factor / real[group][place.get()] - 1.0).abs()
    });
    (first, felt(&places), late, errors.fold(0.0, f64::max))
}

#[test]
fn plans_that_learn_what_calls_take_come_to_rest_and_are_better_for_it() {
    for seed in 0..4 {
        let (before, after, late, error) = learning(seed);
        assert!(
            after < before,
            "seed {seed}: {before} ms before, {after} after"
        );
        assert!(late <= 10, "seed {seed}: {late} moves in the last third");
        assert!(error < 0.15, "seed {seed}: {error}");
    }
}

#[test]
fn who_dwells_stays_unless_the_place_fails() {
    let clusters = [
        Cluster::new(id("near"), Speed::new(1.0), 8),
        Cluster::new(id("far"), Speed::new(1.0), 8),
    ];
    let dag = Dag::single("f", ms(10.0), Resources::default()).expect("one task");
    let verdict = |clusters: &[Cluster], dwells: bool| {
        let (network, before) = (Network::instant(2), [ClusterIndex::new(1)]);
        let demand = GroupDemand {
            app: 0,
            dag: &dag,
            distance: &[ms(1.0), ms(50.0)],
            rate: Rate::per_second(1.0),
            before: Some(&before),
            constraints: None,
            factors: None,
            dwells,
        };
        let terms = Terms {
            margin: Margin::default(),
            options: Options::default(),
            horizon: Millis::new(10_000.0),
        };
        let mut found = None;
        Competition::new(clusters, &network, terms)
            .run(&[demand], &mut Moves::unlimited(), |_, _, outcome| {
                found = Some(outcome.verdict);
            })
            .expect("consistent");
        found.expect("an outcome")
    };
    assert_eq!(verdict(&clusters, false), Verdict::Better);
    assert_eq!(verdict(&clusters, true), Verdict::Deferred);
    let mut failed = clusters.clone();
    failed[1].availability = Availability::Down;
    assert!(matches!(verdict(&failed, true), Verdict::Failed(_)));
}
