//! The checker finds what is seeded into sound plans.

use fdn_core::Resources;
use fdn_scheduling::checker::{Violation, check};
use fdn_scheduling::dag::{TaskIndex, Transfer};
use fdn_scheduling::place::{
    Availability, Cluster, ClusterIndex, Hold, Network, Options, Placement, Plan, Speed, heu_orche,
};
use proptest::prelude::*;

use crate::instance::{Instance, dag, id, mib, ms, raw};

fn two_by_two() -> Instance {
    let edge = Transfer::Fixed(ms(5.0));
    Instance {
        dag: dag(
            &[(10.0, 4), (10.0, 4), (10.0, 4), (10.0, 4)],
            &[(0, 1, edge), (0, 2, edge), (1, 3, edge), (2, 3, edge)],
        ),
        clusters: ["a", "b"]
            .map(|name| Cluster::new(id(name), Speed::new(1.0), 1).with_free(mib(12)))
            .into(),
        network: Network::instant(2),
        distance: vec![ms(1.0), ms(2.0)],
        options: Options::default(),
    }
}

/// Applies a change to the placements of a sound plan and says what the checker finds.
fn corrupted(instance: &Instance, change: impl FnOnce(&mut Vec<Placement>)) -> Vec<Violation> {
    let problem = instance.problem();
    let plan = heu_orche(&problem).expect("it fits").plan;
    assert_eq!(check(&problem, &plan), Ok(()));
    let mut placements = plan.placements().to_vec();
    change(&mut placements);
    let plan = Plan::new(&problem, placements, plan.order().to_vec());
    check(&problem, &plan).expect_err("the change breaks a rule")
}

fn shift(placement: &mut Placement, by: f64) {
    placement.start += ms(by);
    placement.finish += ms(by);
}

#[test]
fn a_start_before_the_request_or_the_data_is_found() {
    let found = corrupted(&two_by_two(), |p| shift(&mut p[0], -0.5));
    assert_eq!(
        found,
        [Violation::Early {
            task: TaskIndex::new(0),
            start: ms(0.5),
            ready: ms(1.0)
        }]
    );
    let found = corrupted(&two_by_two(), |p| shift(&mut p[3], -1.0));
    assert!(matches!(found[0], Violation::Early { task, .. } if task == TaskIndex::new(3)));
}

#[test]
fn two_in_one_slot_and_a_slot_not_yet_free_are_found() {
    // Task 2 runs on b while task 1 runs on a; put into the slot of a, they overlap. Its data is there even sooner.
    let found = corrupted(&two_by_two(), |p| {
        let other = if p[1].cluster == p[0].cluster { 2 } else { 1 };
        p[other].cluster = p[0].cluster;
    });
    assert!(
        found
            .iter()
            .any(|v| matches!(v, Violation::Overlap { slot: 0, .. })),
        "{found:?}"
    );
    let instance = two_by_two();
    let plan = heu_orche(&instance.problem()).expect("it fits").plan;
    let mut busy = instance;
    for cluster in &mut busy.clusters {
        cluster.slots = [ms(3.0)].into_iter().collect();
    }
    let found = check(&busy.problem(), &plan).expect_err("the slot is busy until 3");
    assert!(matches!(found[0], Violation::Overlap { until, .. } if until == ms(3.0)));
}

#[test]
fn a_wrong_duration_place_count_or_slot_is_found() {
    let found = corrupted(&two_by_two(), |p| p[3].finish += ms(1.0));
    assert!(matches!(
        found[0],
        Violation::Duration { work, .. } if work == ms(10.0)
    ));
    let found = corrupted(&two_by_two(), |p| {
        p.push(p[3]);
    });
    assert_eq!(
        found,
        [Violation::Count {
            placements: 5,
            tasks: 4
        }]
    );
    let found = corrupted(&two_by_two(), |p| p[2].slot = 1);
    assert!(matches!(found[0], Violation::NoSuchSlot { slot: 1, .. }));
    let problem = two_by_two();
    let problem = problem.problem();
    let plan = heu_orche(&problem).expect("it fits").plan;
    let mut instance = two_by_two();
    instance.clusters.truncate(1);
    instance.network = Network::instant(1);
    instance.distance.truncate(1);
    let found = check(&instance.problem(), &plan).expect_err("one cluster is gone");
    assert!(
        matches!(found[0], Violation::NoSuchCluster { cluster, .. } if cluster == ClusterIndex::new(1))
    );
    let mut instance = two_by_two();
    instance.clusters[1].availability = Availability::Down;
    let found = check(&instance.problem(), &plan).expect_err("b is down");
    assert!(matches!(found[0], Violation::Barred { .. }));
}

#[test]
fn more_than_is_free_is_found_in_both_ways_of_holding() {
    let mut instance = two_by_two();
    let plan = heu_orche(&instance.problem()).expect("it fits").plan;
    for cluster in &mut instance.clusters {
        cluster.free = mib(7);
    }
    let found = check(&instance.problem(), &plan).expect_err("two of 4 MiB on one cluster");
    assert!(matches!(&found[0], Violation::Overcommitted { held, .. } if *held == mib(8)));
    // Held for the task only, one at a time is 4 of 7.
    instance.options.hold = Hold::Task;
    assert_eq!(check(&instance.problem(), &plan), Ok(()));
    for cluster in &mut instance.clusters {
        cluster.free = mib(3);
    }
    assert!(check(&instance.problem(), &plan).is_err());
    for cluster in &mut instance.clusters {
        cluster.free = mib(100);
        cluster.largest = mib(3);
    }
    let found = check(&instance.problem(), &plan).expect_err("no node has 4");
    assert!(matches!(found[0], Violation::TooLarge { .. }));
}

#[test]
fn a_latency_that_does_not_follow_is_found() {
    let instance = two_by_two();
    let plan = heu_orche(&instance.problem()).expect("it fits").plan;
    let mut farther = instance.clone();
    farther.distance = vec![ms(1.0), ms(2.0)];
    let exit = plan.placement(TaskIndex::new(3)).cluster.get();
    farther.distance[exit] = ms(0.5);
    let found = check(&farther.problem(), &plan).expect_err("the way back is shorter now");
    assert!(
        found
            .iter()
            .any(|v| matches!(v, Violation::Latency { said, .. } if *said == plan.latency()))
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Any one task put a moment earlier, to a cluster of another speed, or stretched, never goes unnoticed.
    #[test]
    fn any_single_corruption_is_found(raw in raw(8, 3), pick in any::<prop::sample::Index>(), kind in 0u8..3) {
        let mut raw = raw;
        for (work, _) in &mut raw.tasks {
            *work += 1;
        }
        let mut instance = raw.build();
        instance.options.hold = Hold::Job;
        for (i, cluster) in instance.clusters.iter_mut().enumerate() {
            // One slot each, which is either busy until a task starts or waits for its data: no start can be earlier.
            cluster.slots = [ms(0.0)].into_iter().collect();
            cluster.speed = Speed::new([1.0, 2.0, 3.0][i]);
            cluster.free = Resources::UNLIMITED;
        }
        let problem = instance.problem();
        let plan = heu_orche(&problem).expect("unlimited").plan;
        let mut placements = plan.placements().to_vec();
        let task = TaskIndex::new(pick.index(instance.dag.given()));
        let placement = &mut placements[task.get()];
        match kind {
            0 => shift(placement, -0.01),
            1 => {
                if instance.clusters.len() == 1 {
                    return Ok(());
                }
                placement.cluster = ClusterIndex::new((placement.cluster.get() + 1) % instance.clusters.len());
            }
            _ => placement.finish += ms(0.25),
        }
        let corrupted = Plan::new(&problem, placements, plan.order().to_vec());
        prop_assert!(check(&problem, &corrupted).is_err());
    }
}
