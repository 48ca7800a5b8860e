//! Worked examples: published numbers, or numbers computed by hand.

use fdn_core::{Coded, ErrorCode, Millis};
use fdn_scheduling::checker::check;
use fdn_scheduling::dag::Transfer;
use fdn_scheduling::place::{
    Cluster, Costs, Hold, Network, Options, Planned, Problem, Score, Speed, heu_orche, scores,
};

use crate::instance::{Instance, dag, id, mib, ms};
use crate::oracle::optimum;

pub(crate) fn close(a: Millis, b: f64) {
    assert!((a.get() - b).abs() < 1e-9, "{a} instead of {b}");
}

fn fixed(edges: &[(usize, usize, f64)]) -> Vec<(usize, usize, Transfer)> {
    edges
        .iter()
        .map(|(from, to, time)| (from - 1, to - 1, Transfer::Fixed(ms(*time))))
        .collect()
}

/// One-based tasks in the order in which they were placed.
pub(crate) fn order(planned: &Planned) -> Vec<usize> {
    planned.plan.order().iter().map(|t| t.get() + 1).collect()
}

/// One-based clusters by task.
pub(crate) fn clusters(planned: &Planned) -> Vec<usize> {
    let placements = planned.plan.placements();
    placements.iter().map(|p| p.cluster.get() + 1).collect()
}

fn finishes(planned: &Planned) -> Vec<f64> {
    let placements = planned.plan.placements();
    placements.iter().map(|p| p.finish.get()).collect()
}

pub(crate) fn ten_tasks() -> (Instance, Costs) {
    let edges = fixed(&[
        (1, 2, 18.0),
        (1, 3, 12.0),
        (1, 4, 9.0),
        (1, 5, 11.0),
        (1, 6, 14.0),
        (2, 8, 19.0),
        (2, 9, 16.0),
        (3, 7, 23.0),
        (4, 8, 27.0),
        (4, 9, 23.0),
        (5, 9, 13.0),
        (6, 8, 15.0),
        (7, 10, 17.0),
        (8, 10, 11.0),
        (9, 10, 13.0),
    ]);
    let rows = [
        [14, 16, 9],
        [13, 19, 18],
        [11, 13, 19],
        [13, 8, 17],
        [12, 13, 10],
        [13, 16, 9],
        [7, 15, 11],
        [5, 11, 14],
        [18, 12, 20],
        [21, 7, 16],
    ]
    .map(|row| row.map(|t: u32| ms(f64::from(t))));
    let instance = Instance {
        dag: dag(&[(0.0, 0); 10], &edges),
        clusters: (0..3)
            .map(|p| Cluster::new(id(&format!("p{p}")), Speed::new(1.0), 1))
            .collect(),
        network: Network::instant(3),
        distance: vec![Millis::ZERO; 3],
        options: Options::default(),
    };
    (instance, Costs::new(&rows).expect("costs"))
}

/// Figure 3 and table 2 of Topcuoglu, Hariri and Wu, IEEE TPDS 13(3), 2002.
#[test]
fn example_a_ten_tasks_with_unrelated_costs() {
    let (instance, costs) = ten_tasks();
    let problem = instance.problem().with_costs(&costs).expect("costs fit");
    let expected = [
        108.0, 77.0, 80.0, 80.0, 69.0, 63.333, 42.667, 35.667, 44.333, 14.667,
    ];
    for (score, expected) in scores(&problem).iter().zip(expected) {
        assert!((score.get() - expected).abs() < 1e-3, "{score} {expected}");
    }
    let planned = heu_orche(&problem).expect("unlimited resources");
    close(planned.plan.latency(), 80.0);
    assert_eq!(check(&problem, &planned.plan), Ok(()));
    assert_eq!(order(&planned), [1, 3, 4, 2, 5, 6, 9, 7, 8, 10]);
    assert_eq!(optimum(&problem), Some(73.0));
}

pub(crate) fn six_tasks(
    demands: [u64; 6],
    free: [u64; 2],
    exit_leg: bool,
    score: Score,
) -> Instance {
    let work = [8.0, 12.0, 6.0, 10.0, 4.0, 9.0];
    let tasks: Vec<(f64, u64)> = work.into_iter().zip(demands).collect();
    let edges = fixed(&[
        (1, 2, 3.0),
        (1, 3, 5.0),
        (1, 4, 2.0),
        (2, 5, 4.0),
        (3, 5, 1.0),
        (3, 6, 6.0),
        (4, 6, 2.0),
    ]);
    Instance {
        dag: dag(&tasks, &edges),
        clusters: [(1.0, free[0]), (2.0, free[1])]
            .into_iter()
            .zip(["c1", "c2"])
            .map(|((speed, free), name)| {
                Cluster::new(id(name), Speed::new(speed), 1).with_free(mib(free))
            })
            .collect(),
        network: Network::instant(2),
        distance: vec![ms(0.2), ms(0.6)],
        options: Options {
            exit_leg,
            hold: Hold::Job,
            score,
        },
    }
}

pub(crate) const PLENTY: [u64; 2] = [1 << 30; 2];

#[test]
fn example_b_six_tasks_two_speeds() {
    let instance = six_tasks([0; 6], PLENTY, true, Score::Normal);
    let problem = instance.problem();
    let expected = [28.25, 16.0, 17.25, 16.25, 3.0, 6.75].map(ms);
    assert_eq!(scores(&problem), expected);
    let planned = heu_orche(&problem).expect("unlimited resources");
    assert_eq!(order(&planned), [1, 3, 4, 2, 6, 5]);
    assert_eq!(clusters(&planned), [2; 6]);
    for (finish, expected) in finishes(&planned)
        .into_iter()
        .zip([4.6, 18.6, 7.6, 12.6, 25.1, 23.1])
    {
        close(ms(finish), expected);
    }
    close(planned.plan.latency(), 25.7);
    assert_eq!(check(&problem, &planned.plan), Ok(()));
    close(ms(optimum(&problem).expect("feasible")), 23.7);
}

#[test]
fn example_b_in_the_reversed_order() {
    let instance = six_tasks([0; 6], PLENTY, true, Score::Inverse);
    let planned = heu_orche(&instance.problem()).expect("unlimited resources");
    assert_eq!(order(&planned), [1, 2, 4, 3, 5, 6]);
    close(planned.plan.latency(), 26.7);
}

#[test]
fn example_c_with_resources_held_to_the_end() {
    let demands = [2, 3, 1, 2, 1, 2];
    for (free, expected, latency) in [
        ([4, 8], [2, 2, 2, 2, 1, 1], 27.8),
        ([6, 5], [2, 1, 2, 2, 1, 1], 32.8),
    ] {
        let instance = six_tasks(demands, free, false, Score::Normal);
        let problem = instance.problem();
        let planned = heu_orche(&problem).expect("it fits");
        assert_eq!(clusters(&planned), expected);
        close(planned.plan.latency(), latency);
        assert_eq!(check(&problem, &planned.plan), Ok(()));
    }
}

#[test]
fn example_c_refused_names_the_container_and_every_cluster() {
    let instance = six_tasks([2, 3, 1, 2, 1, 2], [4, 4], false, Score::Normal);
    let error = heu_orche(&instance.problem()).expect_err("11 do not fit into 8");
    assert_eq!(
        error.to_string(),
        "no cluster can take t1: c1 (wants 3 MiB memory, 2 MiB free), c2 (wants 3 MiB memory, 1 MiB free)"
    );
    assert_eq!(error.code(), ErrorCode::NoClusterFits);
    // Held only while a container runs, everything fits: 3 at most at a time on each cluster.
    let mut instance = instance;
    instance.options.hold = Hold::Task;
    let problem = instance.problem();
    let planned = heu_orche(&problem).expect("it fits");
    assert_eq!(check(&problem, &planned.plan), Ok(()));
}

#[test]
fn a_second_job_starts_from_what_the_first_left() {
    let instance = six_tasks([2, 3, 1, 2, 1, 2], [12, 12], false, Score::Normal);
    let problem = instance.problem();
    let first = heu_orche(&problem).expect("it fits").plan;
    let mut after = instance.clone();
    first.apply(&instance.dag, Hold::Job, &mut after.clusters);
    assert_eq!(
        after.clusters[1].slots.available(),
        [first
            .placements()
            .iter()
            .map(|p| p.finish)
            .max()
            .expect("six")]
    );
    let held: u64 = 24
        - after
            .clusters
            .iter()
            .map(|c| c.free.memory_mib.get())
            .sum::<u64>();
    assert_eq!(held, 11);
    let problem = after.problem();
    let second = heu_orche(&problem).expect("it fits").plan;
    assert_eq!(check(&problem, &second), Ok(()));
    // The fast cluster is busy and holds 11 of 12: the second job has to use the slow one.
    assert!(second.latency() > first.latency());
    assert!(second.placements().iter().any(|p| p.cluster.get() == 0));
    second.apply(&instance.dag, Hold::Job, &mut after.clusters);
    assert!(heu_orche(&after.problem()).is_err());
    // Once the first has ended, its resources are there again, and a third fits.
    first.release(&instance.dag, Hold::Job, &mut after.clusters);
    assert!(heu_orche(&after.problem()).is_ok());
}

#[test]
fn several_entries_wait_for_one_request() {
    // Two entries without an order between them: the request reaches c1 after 10, c2 after 30, and crosses between them in 5.
    let instance = Instance {
        dag: dag(&[(40.0, 0), (40.0, 0)], &[]),
        clusters: ["c1", "c2"]
            .map(|name| Cluster::new(id(name), Speed::new(1.0), 1))
            .into(),
        network: Network::uniform(
            2,
            fdn_scheduling::place::Link {
                latency: ms(5.0),
                bandwidth: fdn_scheduling::place::Bandwidth::UNLIMITED,
            },
        ),
        distance: vec![ms(10.0), ms(30.0)],
        options: Options::default(),
    };
    let problem = instance.problem();
    let planned = heu_orche(&problem).expect("it fits");
    let entry = instance.dag.virtual_entry().expect("two entries");
    assert_eq!(planned.plan.placement(entry).finish, ms(10.0));
    assert_eq!(planned.plan.entry(&instance.dag).get(), 0);
    assert_eq!(clusters(&planned), [1, 2, 1]);
    assert_eq!(finishes(&planned), [50.0, 55.0, 10.0]);
    // max(50 + 10, 55 + 30).
    assert_eq!(planned.plan.latency(), ms(85.0));
    assert_eq!(check(&problem, &planned.plan), Ok(()));
}

#[test]
fn an_arrival_later_than_zero_shifts_the_schedule_not_the_latency() {
    let instance = six_tasks([0; 6], PLENTY, true, Score::Normal);
    let problem = instance.problem();
    let now = heu_orche(&problem).expect("it fits").plan;
    let later = problem.with_arrival(ms(1000.0)).expect("finite");
    let shifted = heu_orche(&later).expect("it fits").plan;
    assert_eq!(check(&later, &shifted), Ok(()));
    close(shifted.latency(), now.latency().get());
    for (a, b) in now.placements().iter().zip(shifted.placements()) {
        close(b.start, a.start.get() + 1000.0);
        assert_eq!(a.cluster, b.cluster);
    }
}

#[test]
fn the_way_back_counts_for_exits_only_when_asked() {
    // Near and slow against far and fast: 10 + 50 = 60 and 10 back; 30 + 25 = 55 and 30 back.
    let mut instance = Instance {
        dag: dag(&[(50.0, 0)], &[]),
        clusters: [("near", 1.0), ("far", 2.0)]
            .map(|(name, speed)| Cluster::new(id(name), Speed::new(speed), 1))
            .into(),
        network: Network::instant(2),
        distance: vec![ms(10.0), ms(30.0)],
        options: Options::default(),
    };
    let without = heu_orche(&instance.problem()).expect("it fits");
    assert_eq!(clusters(&without), [2]);
    close(without.plan.latency(), 85.0);
    instance.options.exit_leg = true;
    let with = heu_orche(&instance.problem()).expect("it fits");
    assert_eq!(clusters(&with), [1]);
    close(with.plan.latency(), 70.0);
}

#[test]
fn parts_that_do_not_belong_together_are_refused() {
    let instance = six_tasks([0; 6], PLENTY, true, Score::Normal);
    let Instance {
        dag,
        clusters,
        network,
        ..
    } = &instance;
    let error = Problem::new(dag, clusters, network, &[ms(1.0)]).expect_err("one distance");
    assert_eq!(error.to_string(), "1 distances, but there must be 2");
    assert!(Problem::new(dag, clusters, network, &[ms(1.0), ms(-1.0)]).is_err());
    assert!(Problem::new(dag, clusters, &Network::instant(3), &instance.distance).is_err());
    let costs = Costs::new(&[[ms(1.0), ms(1.0)]]).expect("one row");
    let error = instance.problem().with_costs(&costs).expect_err("one row");
    assert_eq!(error.to_string(), "1 rows of costs, but there must be 6");
    assert!(Costs::new(&[vec![ms(1.0)], vec![]]).is_err());
    assert!(instance.problem().with_arrival(Millis::INFINITY).is_err());
}
