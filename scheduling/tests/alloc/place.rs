//! Placement allocates nothing per job once its buffers are warm.

use fdn_core::{ByteSize, MebiBytes, MilliCpu, Millis, Resources};
use fdn_scheduling::dag::{Dag, DagBuilder, TaskIndex, Transfer};
use fdn_scheduling::place::{
    Availability, Bandwidth, Best, Cluster, Costs, Detail, Heft, HeuOrche, Hold, Link, Network,
    Options, Placer, Plan, Problem, Speed,
};
use fdn_scheduling::policy::{Budget, Policy};

use crate::counting::allocations;

#[path = "../it/random.rs"]
mod random;

/// Four tasks with data and demands, beside a job with fixed transfer times and none.
fn diamond() -> Dag {
    let mut builder = DagBuilder::new();
    let demand = Resources::new(MilliCpu(100), MebiBytes(64));
    for work in [10.0, 40.0, 30.0, 5.0] {
        builder.task("t", Millis::new(work), demand);
    }
    for (from, to) in [(0, 1), (0, 2), (1, 3), (2, 3)] {
        let data = Transfer::Data(ByteSize::from_mib(1));
        builder.edge(TaskIndex::new(from), TaskIndex::new(to), data);
    }
    builder.build().expect("a DAG")
}

fn clusters() -> Vec<Cluster> {
    let cluster = |name: &str, speed| {
        let free = Resources::new(MilliCpu(300), MebiBytes(256));
        Cluster::new(name.parse().expect("a name"), Speed::new(speed), 3).with_free(free)
    };
    vec![
        cluster("a", 1.0),
        cluster("down", 9.0).with_availability(Availability::Down),
        cluster("b", 2.0),
    ]
}

fn problems(test: impl FnOnce(&[Problem<'_>])) {
    let (dag, clusters) = (diamond(), clusters());
    let link = Link {
        latency: Millis::new(3.0),
        bandwidth: Bandwidth::from_mb_per_s(100.0).expect("a positive rate"),
    };
    let network = Network::uniform(3, link);
    let distance = [1.0, 2.0, 3.0].map(Millis::new);
    let small = Problem::new(&dag, &clusters, &network, &distance).expect("consistent");
    let costs = Costs::new(&[[10.0, 5.0, 7.0].map(Millis::new); 4]).expect("rows alike");
    let jobs = [(300, 3), (300, 8)].map(|(tasks, n)| random::random_job(tasks, n, 7));
    let large = jobs.each_ref().map(|job| {
        Problem::new(&job.dag, &job.clusters, &job.network, &job.distance).expect("consistent")
    });
    let options = |hold| Options {
        exit_leg: true,
        hold,
        ..Options::default()
    };
    test(&[
        small.with_options(options(Hold::Job)),
        small.with_options(options(Hold::Task)),
        small.with_costs(&costs).expect("costs fit"),
        large[0],
        large[1].with_options(options(Hold::Task)),
    ]);
}

fn allocates_nothing_once_warm(mut placer: impl Placer) {
    problems(|problems| {
        let mut plan = Plan::default();
        let mut round = |plan: &mut Plan| {
            for problem in problems {
                placer.place_into(problem, plan).expect("it fits");
            }
        };
        assert!(allocations(|| round(&mut plan)) > 0, "the counter counts");
        // Once more, because only now buffers shrink from the last problem to the first.
        round(&mut plan);
        let warm = allocations(|| {
            for _ in 0..10 {
                round(&mut plan);
            }
        });
        assert_eq!(warm, 0);
    });
}

#[test]
fn heu_orche_allocates_nothing_once_warm() {
    allocates_nothing_once_warm(HeuOrche::default());
}

#[test]
fn heft_allocates_nothing_once_warm() {
    allocates_nothing_once_warm(Heft::default());
}

/// How often the second of two placements allocates.
fn warm(policy: Policy, tasks: usize, hold: Hold) -> u64 {
    let job = random::random_job(tasks, 5, 7);
    let options = Options {
        hold,
        ..Options::default()
    };
    let problem = Problem::new(&job.dag, &job.clusters, &job.network, &job.distance)
        .expect("consistent")
        .with_options(options);
    let mut placer = policy.placer(Budget::default());
    let mut place = || placer.place(&problem, Detail::Nothing).expect("unlimited");
    let first = place();
    let mut second = None;
    let during = allocations(|| second = Some(place()));
    assert_eq!(Some(first), second);
    during
}

/// Nothing per task or candidate: only the plan that is returned and a few short lists.
#[test]
fn a_list_scheduler_allocates_as_much_for_a_large_job_as_for_a_small_one() {
    let searches = [Policy::Best, Policy::Exact];
    // These run the job in a world of its own.
    let driven = [
        Policy::Fcfs,
        Policy::Priority,
        Policy::Distance,
        Policy::Lrtf,
    ];
    for policy in Policy::ALL
        .iter()
        .filter(|policy| !searches.contains(policy) && !driven.contains(policy))
    {
        // The portfolio makes four plans.
        let most = if *policy == Policy::Portfolio { 28 } else { 8 };
        for hold in [Hold::Job, Hold::Task] {
            let (small, large) = (warm(*policy, 50, hold), warm(*policy, 800, hold));
            assert_eq!(small, large, "{policy}");
            assert!(large <= most, "{policy}: {large}");
        }
    }
}

/// What a refinement allocates does not depend on how long it searches.
#[test]
fn a_step_of_the_refinement_allocates_nothing_once_warm() {
    problems(|problems| {
        for problem in problems {
            let start = HeuOrche::default().place(problem, Detail::Nothing);
            let start = start.expect("it fits").plan;
            let mut long = Best::new(3_000, 1);
            let mut none = Best::new(0, 1);
            let round = |best: &mut Best| allocations(|| drop(best.refine(problem, &start)));
            round(&mut long);
            round(&mut none);
            assert_eq!(round(&mut long), round(&mut none));
        }
    });
}

#[test]
fn a_plan_made_in_place_is_the_plan() {
    problems(|problems| {
        let mut placer = HeuOrche::default();
        let mut plan = Plan::default();
        for problem in problems {
            placer.place_into(problem, &mut plan).expect("it fits");
            let planned = HeuOrche::default().place(problem, Detail::Full);
            assert_eq!(plan, planned.expect("it fits").plan);
        }
    });
}

#[test]
fn a_refused_job_leaves_the_plan_as_it_was() {
    problems(|problems| {
        let mut placer = HeuOrche::default();
        let mut plan = Plan::default();
        placer.place_into(&problems[0], &mut plan).expect("it fits");
        let before = plan.clone();
        let full: Vec<Cluster> = problems[0]
            .clusters()
            .iter()
            .map(|cluster| cluster.clone().with_free(Resources::default()))
            .collect();
        let problem = Problem::new(
            problems[0].dag(),
            &full,
            problems[0].network(),
            problems[0].distance(),
        );
        let refused = placer.place_into(&problem.expect("consistent"), &mut plan);
        assert!(refused.is_err());
        assert_eq!(plan, before);
    });
}
