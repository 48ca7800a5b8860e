//! Records of passes: what was written is what is read, the same decisions come of it to the last bit, and what is no record is refused.

use std::num::NonZeroU32;

use fdn_core::manifest::RuntimeKind;
use fdn_core::{ByteSize, MebiBytes, MilliCpu, Millis, Resources, Timestamp};
use fdn_scheduling::compete::{GroupDemand, Moves, Outcome, Pass, Rate, Terms, Verdict, appraise};
use fdn_scheduling::dag::{Dag, DagBuilder, Holding, TaskIndex, Transfer};
use fdn_scheduling::place::{
    Availability, Bandwidth, Cluster, ClusterIndex, Constraints, Exclusion, Link, Network, Options,
    Slots, Speed,
};
use fdn_scheduling::record::{CompletedPass, Decisions, MARK, Malformed, RecordedPass};
use fdn_scheduling::steer::Margin;
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::instance::{id, ms};

/// App, group, rate, where it was, whether it dwells.
type Group = (usize, usize, f64, Option<Vec<ClusterIndex>>, bool);

/// All that a pass reads, made up.
struct World {
    clusters: Vec<Cluster>,
    network: Network,
    dags: Vec<Dag>,
    distances: Vec<Vec<Millis>>,
    constraints: Vec<Option<Constraints>>,
    factors: Vec<Option<Vec<f64>>>,
    /// Those of the first `settled` have no turn.
    groups: Vec<Group>,
    settled: usize,
    moves: Moves,
    terms: Terms,
}

fn resources(rng: &mut ChaCha8Rng) -> Resources {
    Resources {
        cpu_milli: MilliCpu(rng.random_range(0..8000)),
        memory_mib: MebiBytes(rng.random_range(0..8192)),
        gpu_memory_mib: MebiBytes(rng.random_range(0..2)),
    }
}

fn cluster(at: usize, rng: &mut ChaCha8Rng) -> Cluster {
    let slots = rng.random_range(0..12);
    let (capacity, free) = (resources(rng), resources(rng));
    let speed = Speed::new(rng.random_range(0.0..4.0));
    let waits = (0..slots).map(|_| ms(f64::from(rng.random_range(0..3_u32)) * 0.1));
    let slots = waits.collect::<Slots>();
    Cluster::new(id(&format!("c{at}")), speed, 0)
        .with_slots(slots)
        .with_capacity(capacity)
        .with_free(free)
        .with_largest(free)
        .with_availability(match rng.random_range(0..6) {
            0 => Availability::Draining,
            1 => Availability::Down,
            _ => Availability::Up,
        })
}

fn dag(rng: &mut ChaCha8Rng) -> Dag {
    let mut builder = DagBuilder::new();
    let tasks = rng.random_range(1..5);
    for n in 0..tasks {
        let demand = Resources::new(MilliCpu(100), MebiBytes(rng.random_range(0..512)));
        let task = builder.task(format!("t{n}"), ms(rng.random_range(0.0..90.0)), demand);
        if let Some(seats) = NonZeroU32::new(rng.random_range(0..4)) {
            builder.holding(task, Holding::Instances(seats));
        }
        builder.mean_ratio(task, rng.random_range(0.5..3.0));
        // Some have several entries, which get a common one in front.
        for parent in 0..n {
            if rng.random_bool(0.6) {
                continue;
            }
            let transfer = if rng.random_bool(0.5) {
                Transfer::Data(ByteSize::from_bytes(rng.random_range(0..1 << 20)))
            } else {
                Transfer::Fixed(ms(rng.random_range(0.0..9.0)))
            };
            builder.edge(TaskIndex::new(parent), task, transfer);
        }
    }
    builder.build().expect("a dag")
}

fn bar(rng: &mut ChaCha8Rng) -> Option<Exclusion> {
    Some(match rng.random_range(0..20) {
        0 => Exclusion::NotReady,
        1 => Exclusion::NoRuntime {
            kind: RuntimeKind::Docker,
        },
        2 => Exclusion::Shortage {
            wanted: resources(rng),
            free: resources(rng),
        },
        _ => return None,
    })
}

impl World {
    fn new(seed: u64) -> Self {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let count = rng.random_range(1..6);
        let clusters: Vec<Cluster> = (0..count).map(|at| cluster(at, rng)).collect();
        let network = Network::from_fn(count, |_, _| Link {
            latency: ms(rng.random_range(0.0..80.0)),
            bandwidth: Bandwidth::from_mb_per_s(rng.random_range(1.0..99.0)).expect("positive"),
        });
        let apps = rng.random_range(1..5);
        let dags: Vec<Dag> = (0..apps).map(|_| dag(rng)).collect();
        let distances: Vec<Vec<Millis>> = (0..rng.random_range(1..6))
            .map(|_| {
                let one = |rng: &mut ChaCha8Rng| match rng.random_range(0..9) {
                    0 => Millis::INFINITY,
                    _ => ms(rng.random_range(0.0..150.0)),
                };
                (0..count).map(|_| one(rng)).collect()
            })
            .collect();
        let sizes: Vec<usize> = dags.iter().map(Dag::given).collect();
        let constraints = sizes
            .iter()
            .map(|tasks| {
                rng.random_bool(0.5).then(|| {
                    let constraints = Constraints::from_fn((*tasks, count), |_, _| bar(rng));
                    constraints.with_shares(|_, _| if rng.random_bool(0.8) { 1.0 } else { 0.3 })
                })
            })
            .collect();
        let factors = sizes
            .iter()
            .map(|tasks| {
                let factor = |rng: &mut ChaCha8Rng| rng.random_range(0.1..9.0);
                let some = rng.random_bool(0.5);
                some.then(|| (0..tasks * count).map(|_| factor(rng)).collect())
            })
            .collect();
        let place = |rng: &mut ChaCha8Rng| match rng.random_range(0..=count) {
            gone if gone == count => ClusterIndex::new(usize::MAX),
            at => ClusterIndex::new(at),
        };
        let groups: Vec<Group> = (0..rng.random_range(0..14))
            .map(|_| {
                let app = rng.random_range(0..apps);
                let before = rng
                    .random_bool(0.7)
                    .then(|| (0..sizes[app]).map(|_| place(rng)).collect());
                let group = rng.random_range(0..distances.len());
                let rate = rng.random_range(0.0..60.0);
                (app, group, rate, before, rng.random_bool(0.2))
            })
            .collect();
        let settled = rng.random_range(0..=groups.len().min(3));
        let mut moves = Moves::new(rng.random_range(0.01..1.0), ms(7_000.0)).expect("a bucket");
        moves.fill(ms(rng.random_range(0.0..100.0)));
        Self {
            settled,
            moves: if rng.random_bool(0.1) {
                Moves::unlimited()
            } else {
                moves
            },
            terms: Terms {
                margin: Margin::new(rng.random_range(0.0..0.5)).expect("a margin"),
                options: Options {
                    exit_leg: true,
                    ..Options::default()
                },
                horizon: ms(10_000.0),
            },
            clusters,
            network,
            dags,
            distances,
            constraints,
            factors,
            groups,
        }
    }

    fn demands(&self) -> Vec<GroupDemand<'_>> {
        let groups = self.groups.iter();
        groups
            .map(|(app, group, rate, before, dwells)| GroupDemand {
                app: *app,
                dag: &self.dags[*app],
                distance: &self.distances[*group],
                rate: Rate::per_second(*rate),
                before: before.as_deref(),
                constraints: self.constraints[*app].as_ref(),
                factors: self.factors[*app].as_deref(),
                dwells: *dwells,
            })
            .collect()
    }

    /// The pass is made and written; `change` what it decided before that.
    fn record(&self, change: impl FnOnce(&mut Decisions)) -> Vec<u8> {
        let demands = self.demands();
        let (settled, demands) = demands.split_at(self.settled);
        let pass = Pass {
            clusters: &self.clusters,
            network: &self.network,
            terms: self.terms,
            settled,
            demands,
        };
        let mut moves = self.moves;
        let mut outcomes: Vec<Option<Outcome>> = vec![None; demands.len()];
        let competition = pass
            .run(&mut moves, |at, _, outcome| {
                outcomes[at] = Some(outcome.clone());
            })
            .expect("consistent");
        let outcomes = outcomes.into_iter().map(|o| o.expect("a turn")).collect();
        let mut decisions = Decisions::new(outcomes, &competition, moves);
        change(&mut decisions);
        let names: Vec<String> = (0..self.dags.len()).map(|n| format!("app-{n}")).collect();
        let apps: Vec<&str> = names.iter().map(String::as_str).collect();
        let names: Vec<String> = self
            .groups
            .iter()
            .map(|g| format!("group {}", g.1))
            .collect();
        let groups: Vec<&str> = names.iter().map(String::as_str).collect();
        CompletedPass {
            at: Timestamp(1_790_000_000_123),
            apps: &apps,
            groups: &groups,
            pass: &pass,
            moves: self.moves,
            decisions: &decisions,
        }
        .encode()
    }
}

/// What was read, written again.
fn again(recorded: &RecordedPass, moves: Moves, terms: &World) -> Vec<u8> {
    let (settled, demands) = (recorded.settled(), recorded.demands());
    let pass = recorded.pass(&settled, &demands);
    assert_eq!(pass.terms, terms.terms);
    let names: Vec<String> = (0..terms.dags.len()).map(|n| format!("app-{n}")).collect();
    let apps: Vec<&str> = names.iter().map(String::as_str).collect();
    let groups: Vec<&str> = recorded.names().map(|(_, group)| group).collect();
    CompletedPass {
        at: recorded.at(),
        apps: &apps,
        groups: &groups,
        pass: &pass,
        moves,
        decisions: recorded.decisions(),
    }
    .encode()
}

proptest! {
    #[test]
    fn what_is_read_is_what_was_written_and_decides_the_same(seed in any::<u64>()) {
        let world = World::new(seed);
        let bytes = world.record(|_| {});
        let recorded = RecordedPass::decode(&bytes).expect("a record");
        prop_assert_eq!(recorded.clusters(), &world.clusters[..]);
        prop_assert_eq!(again(&recorded, world.moves, &world), bytes);
        let replayed = recorded.replay().expect("consistent");
        prop_assert_eq!(recorded.differences(&replayed), []);
    }

    /// Nothing that is cut off, goes on or was changed makes anything stop that reads it, and what is cut off is never taken for whole.
    #[test]
    fn what_is_no_record_is_refused(seed in any::<u64>(), cut in 0.0f64..1.0, changed in any::<u8>()) {
        let bytes = World::new(seed).record(|_| {});
        let at = (bytes.len() as f64 * cut) as usize;
        prop_assert!(RecordedPass::decode(&bytes[..at]).is_err());
        let mut more = bytes.clone();
        more.push(0);
        prop_assert_eq!(RecordedPass::decode(&more).err(), Some(Malformed::Long));
        let mut other = bytes;
        other[at] = changed;
        if let Ok(recorded) = RecordedPass::decode(&other)
            && let Ok(replayed) = recorded.replay()
        {
            std::hint::black_box(recorded.differences(&replayed));
        }
    }

    /// What nobody would have decided is found, were it but one bit.
    #[test]
    fn a_decision_that_was_changed_is_found(seed in any::<u64>(), which in any::<prop::sample::Index>()) {
        let world = World::new(seed);
        prop_assume!(world.groups.len() > world.settled);
        let bytes = world.record(|decisions| {
            let at = which.index(decisions.outcomes.len());
            let latency = &mut decisions.outcomes[at].latency;
            *latency = if latency.is_finite() {
                Millis::new(f64::from_bits(latency.get().to_bits() ^ 1))
            } else {
                Millis::ZERO
            };
        });
        let recorded = RecordedPass::decode(&bytes).expect("a record");
        let replayed = recorded.replay().expect("consistent");
        let found = recorded.differences(&replayed);
        prop_assert_eq!(found.len(), 1);
        prop_assert!(found[0].what.starts_with("app app-"), "{}", &found[0]);
        prop_assert_ne!(&found[0].recorded, &found[0].replayed);
    }

    /// Nothing that is asked of clusters gets lost when what was decided is appraised.
    #[test]
    fn what_was_decided_is_appraised_with_all_that_it_asks(seed in any::<u64>()) {
        let world = World::new(seed);
        let recorded = RecordedPass::decode(&world.record(|_| {})).expect("a record");
        let (settled, demands) = (recorded.settled(), recorded.demands());
        let pass = recorded.pass(&settled, &demands);
        let there: Vec<_> = demands
            .iter()
            .zip(&recorded.decisions().outcomes)
            .map(|(demand, outcome)| match outcome.verdict {
                Verdict::Unplaced => (*demand, demand.before.unwrap_or_default()),
                _ => (*demand, &outcome.clusters[..]),
            })
            .chain(settled.iter().map(|demand| (*demand, demand.before.unwrap_or_default())))
            .collect();
        let appraisal = appraise(&pass, &there).expect("consistent");
        prop_assert_eq!(appraisal.latencies.len(), there.len());
        let near = |one: f64, other: f64| (one - other).abs() <= 1e-6 * (1.0 + one.abs());
        for (load, asked) in appraisal.loads.iter().zip(&recorded.decisions().loads) {
            prop_assert!(near(load.erlangs(), asked.erlangs), "{:?} {:?}", load, asked);
        }
        for (needed, asked) in appraisal.needed.iter().zip(&recorded.decisions().loads) {
            prop_assert!(near(needed.main, asked.memory.main), "{:?} {:?}", needed, asked);
        }
    }
}

#[test]
fn placements_are_appraised_with_the_waits_that_they_make() {
    let clusters = [
        Cluster::new(id("a"), Speed::new(1.0), 1),
        Cluster::new(id("b"), Speed::new(1.0), 1).with_slots(Slots::idle(0)),
        // What waits there now is of no account.
        Cluster::new(id("c"), Speed::new(2.0), 0)
            .with_slots([ms(500.0)].into_iter().collect::<Slots>()),
    ];
    let network = Network::instant(3);
    let dag = Dag::single("f", ms(10.0), Resources::default()).expect("one task");
    let pass = Pass {
        clusters: &clusters,
        network: &network,
        terms: Terms {
            margin: Margin::default(),
            options: Options {
                exit_leg: true,
                ..Options::default()
            },
            horizon: ms(10_000.0),
        },
        settled: &[],
        demands: &[],
    };
    let distance = [ms(5.0), ms(5.0), ms(40.0)];
    let demand = |rate: f64| GroupDemand {
        app: 0,
        dag: &dag,
        distance: &distance,
        rate: Rate::per_second(rate),
        before: None,
        constraints: None,
        factors: None,
        dwells: false,
    };
    let [a, b, c] = [0, 1, 2].map(|at| [ClusterIndex::new(at)]);
    let latencies = |demands: &[(GroupDemand<'_>, &[ClusterIndex])]| {
        let appraisal = appraise(&pass, demands).expect("consistent");
        let times = appraisal.latencies.into_iter();
        times.map(|time| time.map(Millis::get)).collect::<Vec<_>>()
    };
    // Half of one slot: the wait is one run.
    assert_eq!(latencies(&[(demand(50.0), &a)]), [Some(30.0)]);
    // Two halves of it meet there.
    let halves = [(demand(25.0), &a[..]), (demand(25.0), &a[..])];
    assert_eq!(latencies(&halves), [Some(30.0), Some(30.0)]);
    // No slot, no place at all, and a fast one that is far.
    let others = [
        (demand(1.0), &b[..]),
        (demand(1.0), &[][..]),
        (demand(100.0), &c[..]),
    ];
    assert_eq!(latencies(&others), [None, None, Some(90.0)]);
}

#[test]
fn records_of_another_form_say_so() {
    assert_eq!(
        RecordedPass::decode(b"fdn-plaN\x01").err(),
        Some(Malformed::Mark)
    );
    assert_eq!(RecordedPass::decode(b"").err(), Some(Malformed::Mark));
    let next = [&MARK[..], &[2]].concat();
    let why = RecordedPass::decode(&next).expect_err("newer");
    assert_eq!(why.to_string(), "is of version 2, and this program reads 1");
    // A list that would be longer than any memory.
    let bytes = World::new(1).record(|_| {});
    let head = MARK.len() + 1 + 6 + 24 + 8 + 8 + 3;
    let endless = [&bytes[..head], &[0xff; 9][..], &[0x01][..]].concat();
    assert_eq!(RecordedPass::decode(&endless).err(), Some(Malformed::Short));
}
