//! The event-driven policies for one job alone.

use fdn_core::Millis;
use fdn_scheduling::checker::{Violation, check};
use fdn_scheduling::dag::{TaskIndex, Transfer};
use fdn_scheduling::online::EventDriven;
use fdn_scheduling::place::{
    Cluster, Costs, Detail, Exclusion, Link, Network, Options, Placer, Plan, Run, Speed,
};
use proptest::prelude::*;

use crate::instance::{Instance, dag, id, ms, raw};

fn all() -> [EventDriven; 5] {
    [
        EventDriven::fcfs(),
        EventDriven::priority(),
        EventDriven::distance(),
        EventDriven::lrtf(),
        EventDriven::late(),
    ]
}

/// An entry of 2 ms and three children of 4, 8 and 6; clusters of speed 1 and 2 with a slot each, 1 ms apart.
fn fork(distance: [f64; 2]) -> Instance {
    let one = Transfer::Fixed(ms(1.0));
    Instance {
        dag: dag(
            &[(2.0, 0), (4.0, 0), (8.0, 0), (6.0, 0)],
            &[(0, 1, one), (0, 2, one), (0, 3, one)],
        ),
        clusters: vec![
            Cluster::new(id("slow"), Speed::new(1.0), 1),
            Cluster::new(id("fast"), Speed::new(2.0), 1),
        ],
        network: Network::uniform(2, Link::INSTANT),
        distance: distance.map(ms).to_vec(),
        options: Options::default(),
    }
}

fn placed(mut policy: EventDriven, instance: &Instance) -> Plan {
    let problem = instance.problem();
    let plan = policy
        .place(&problem, Detail::Nothing)
        .expect("it fits")
        .plan;
    assert_eq!(check(&problem, &plan), Ok(()), "{}", policy.name());
    plan
}

/// Cluster, start and finish of each task.
fn rows(plan: &Plan) -> Vec<(usize, f64, f64)> {
    let row =
        |p: &fdn_scheduling::place::Placement| (p.cluster.get(), p.start.get(), p.finish.get());
    plan.placements().iter().map(row).collect()
}

#[test]
fn fcfs_takes_clusters_in_turn_whatever_their_speed() {
    let plan = placed(EventDriven::fcfs(), &fork([0.0, 0.0]));
    let expected = [(0, 0.0, 2.0), (1, 3.0, 5.0), (0, 2.0, 10.0), (1, 5.0, 8.0)];
    assert_eq!(rows(&plan), expected);
    assert_eq!(plan.latency(), ms(10.0));
}

#[test]
fn priority_goes_where_least_is_queued_and_starts_the_largest() {
    let plan = placed(EventDriven::priority(), &fork([0.0, 0.0]));
    // Backlogs when the children are bound: 0 0, then 4 0, then 4 4.
    let expected = [(0, 0.0, 2.0), (0, 8.0, 12.0), (1, 3.0, 7.0), (0, 2.0, 8.0)];
    assert_eq!(rows(&plan), expected);
}

#[test]
fn distance_stays_at_the_nearest_cluster() {
    let plan = placed(EventDriven::distance(), &fork([1.0, 5.0]));
    let expected = [
        (0, 1.0, 3.0),
        (0, 3.0, 7.0),
        (0, 7.0, 15.0),
        (0, 15.0, 21.0),
    ];
    assert_eq!(rows(&plan), expected);
    assert_eq!(plan.latency(), ms(22.0));
}

#[test]
fn distance_goes_on_to_the_next_nearest_when_resources_run_out() {
    let mut instance = fork([1.0, 5.0]);
    let tasks = [(2.0, 2), (4.0, 1), (8.0, 3), (6.0, 1)];
    let one = Transfer::Fixed(ms(1.0));
    instance.dag = dag(&tasks, &[(0, 1, one), (0, 2, one), (0, 3, one)]);
    let room = crate::instance::mib(4);
    instance.clusters = instance
        .clusters
        .into_iter()
        .map(|c| c.with_free(room))
        .collect();
    let plan = placed(EventDriven::distance(), &instance);
    let clusters: Vec<usize> = rows(&plan).iter().map(|row| row.0).collect();
    assert_eq!(clusters, [0, 0, 1, 0]);
}

#[test]
fn lrtf_chooses_by_finish_and_runs_the_longest() {
    let plan = placed(EventDriven::lrtf(), &fork([0.0, 0.0]));
    let expected = [(1, 0.0, 1.0), (1, 5.0, 7.0), (1, 1.0, 5.0), (0, 2.0, 8.0)];
    assert_eq!(rows(&plan), expected);
    assert!(plan.runs().is_empty(), "nothing was paused");
}

#[test]
fn late_binding_takes_children_by_their_score() {
    let plan = placed(EventDriven::late(), &fork([0.0, 0.0]));
    let expected = [(1, 0.0, 1.0), (1, 5.0, 7.0), (1, 1.0, 5.0), (0, 2.0, 8.0)];
    assert_eq!(rows(&plan), expected);
    assert_eq!(plan.order().len(), 4);
}

/// On one slot: the entry, then 6 ms of work, and 8 that are there later because their parent takes 1 ms first.
fn paused() -> (Instance, Plan) {
    let none = Transfer::Fixed(Millis::ZERO);
    let mut instance = fork([0.0, 0.0]);
    instance.dag = dag(
        &[(2.0, 0), (6.0, 0), (7.0, 0), (8.0, 0)],
        &[(0, 1, none), (0, 2, none), (2, 3, none)],
    );
    instance.clusters.pop();
    instance.network = Network::instant(1);
    instance.distance.pop();
    let plan = placed(EventDriven::lrtf(), &instance);
    (instance, plan)
}

#[test]
fn what_is_paused_keeps_its_progress() {
    let (mut instance, _) = paused();
    // Two slots: 6 and 7 run from 2; at 9 the 8 take the place of nothing, since 6 ended at 8.
    instance.clusters[0] = Cluster::new(id("slow"), Speed::new(1.0), 2);
    assert!(placed(EventDriven::lrtf(), &instance).runs().is_empty());

    let none = Transfer::Fixed(Millis::ZERO);
    instance.clusters[0] = Cluster::new(id("slow"), Speed::new(1.0), 2);
    instance.dag = dag(
        &[(2.0, 0), (9.0, 0), (3.0, 0), (8.0, 0), (9.5, 0)],
        &[(0, 1, none), (0, 2, none), (2, 3, none), (2, 4, none)],
    );
    let plan = placed(EventDriven::lrtf(), &instance);
    // At 5 the 3 end; 9.5 take that slot, and 8 that of the 9, of which 6 are left. At 13 the 8 end, and the 6 go on.
    let expected = [
        (0, 0.0, 2.0),
        (0, 2.0, 19.0),
        (0, 2.0, 5.0),
        (0, 5.0, 13.0),
        (0, 5.0, 14.5),
    ];
    assert_eq!(rows(&plan), expected);
    let of_first: Vec<(f64, f64)> = plan
        .runs()
        .iter()
        .filter(|run| run.task == TaskIndex::new(1))
        .map(|run| (run.start.get(), run.finish.get()))
        .collect();
    assert_eq!(of_first, [(2.0, 5.0), (13.0, 19.0)]);
}

#[test]
fn the_checker_finds_runs_that_cannot_be() {
    let (instance, plan) = paused();
    let problem = instance.problem();
    let whole = |task: usize| {
        let placement = plan.placements()[task];
        Run {
            task: TaskIndex::new(task),
            slot: placement.slot,
            start: placement.start,
            finish: placement.finish,
        }
    };
    let runs: Vec<Run> = (0..4).map(whole).collect();
    let found = |runs: &[Run]| check(&problem, &plan.clone().with_runs(runs.to_vec()));
    assert_eq!(found(&runs), Ok(()));

    let mut split = runs.clone();
    split[3].finish = ms(split[3].start.get() + 3.0);
    split.push(Run {
        start: split[3].finish,
        ..runs[3]
    });
    assert_eq!(found(&split), Ok(()), "paused for no time at all");

    let broken = |change: &dyn Fn(&mut Vec<Run>)| {
        let mut runs = split.clone();
        change(&mut runs);
        found(&runs).expect_err("a rule is broken")
    };
    let runs_of = |task: usize| Violation::Runs {
        task: TaskIndex::new(task),
        start: plan.placements()[task].start,
        finish: plan.placements()[task].finish,
    };
    let missing = broken(&|runs| {
        runs.remove(1);
    });
    assert_eq!(missing, [runs_of(1)]);
    assert!(broken(&|runs| runs[4].start = runs[3].start).contains(&runs_of(3)));
    assert!(broken(&|runs| runs[4].finish = ms(99.0)).contains(&runs_of(3)));
    let short = broken(&|runs| runs[3].finish = ms(runs[3].start.get() + 2.0));
    assert!(
        matches!(short[..], [Violation::Duration { .. }]),
        "{short:?}"
    );
    let slot = broken(&|runs| runs[4].slot = 7);
    assert!(
        matches!(slot[..], [Violation::NoSuchSlot { slot: 7, .. }]),
        "{slot:?}"
    );
    let stray = broken(&|runs| runs[4].task = TaskIndex::new(9));
    assert!(matches!(stray[..], [Violation::Count { .. }]), "{stray:?}");
    let overlap = broken(&|runs| {
        runs[1].start = runs[2].start;
    });
    assert!(
        overlap
            .iter()
            .any(|v| matches!(v, Violation::Runs { .. } | Violation::Overlap { .. }))
    );
}

#[test]
fn given_costs_are_what_counts() {
    let instance = fork([0.0, 0.0]);
    let rows_of = [[9.0, 1.0], [1.0, f64::INFINITY], [5.0, 5.0], [5.0, 5.0]];
    let costs = Costs::new(&rows_of.map(|row| row.map(ms))).expect("costs");
    let problem = instance
        .problem()
        .with_costs(&costs)
        .expect("as many rows as tasks");
    for mut policy in all() {
        let plan = policy
            .place(&problem, Detail::Nothing)
            .expect("it fits")
            .plan;
        assert_eq!(check(&problem, &plan), Ok(()), "{}", policy.name());
        assert_eq!(plan.placements()[1].cluster.get(), 0, "{}", policy.name());
    }
}

#[test]
fn a_job_that_fits_nowhere_is_refused_with_what_keeps_it_out() {
    let mut instance = fork([0.0, f64::INFINITY]);
    instance.clusters[0] = instance.clusters[0]
        .clone()
        .with_free(crate::instance::mib(3));
    instance.dag = dag(&[(1.0, 4)], &[]);
    for mut policy in all() {
        let refused = policy
            .place(&instance.problem(), Detail::Nothing)
            .expect_err("4 MiB do not fit into 3");
        assert_eq!(refused.name, "t0");
        assert!(matches!(refused.clusters[0].1, Exclusion::Shortage { .. }));
        assert_eq!(refused.clusters[1].1, Exclusion::OutOfReach);
    }
    // A container whose parents' data never meets.
    let mut apart = fork([0.0, 0.0]);
    let data = Transfer::Data(fdn_core::ByteSize::from_bytes(1));
    apart.dag = dag(
        &[(1.0, 0), (1.0, 0), (1.0, 0)],
        &[(0, 2, data), (1, 2, data)],
    );
    apart.network = Network::from_fn(2, |_, _| Link::NONE);
    let refused = EventDriven::fcfs().place(&apart.problem(), Detail::Nothing);
    let plan = refused.map(|planned| planned.plan.latency());
    assert!(plan.is_ok(), "no other cluster can be used: {plan:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn every_plan_passes_the_checker(raw in raw(12, 4)) {
        let instance = raw.build();
        let problem = instance.problem();
        for mut policy in all() {
            match policy.place(&problem, Detail::Nothing) {
                Ok(planned) => prop_assert_eq!(check(&problem, &planned.plan), Ok(()), "{}", policy.name()),
                Err(refused) => prop_assert!(!refused.clusters.is_empty()),
            }
        }
    }

    #[test]
    fn what_fits_task_by_task_is_never_refused_if_held_task_by_task(raw in raw(12, 4)) {
        let mut raw = raw;
        raw.hold_task = true;
        for cluster in &mut raw.clusters {
            cluster.free = cluster.free.max(5);
        }
        let instance = raw.build();
        for mut policy in all() {
            prop_assert!(policy.place(&instance.problem(), Detail::Nothing).is_ok());
        }
    }
}
