//! The list schedulers on examples: published numbers, or numbers computed by hand.

use fdn_core::{ByteSize, Millis};
use fdn_scheduling::checker::check;
use fdn_scheduling::dag::{TaskIndex, Transfer};
use fdn_scheduling::place::{
    Cluster, ClusterIndex, Costs, Detail, Exclusion, Heft, HeuOrche, Link, Network, Options, Peft,
    PeftOrder, Placer, Planned, Portfolio, Problem, Score, Speed, Verdict, heu_orche, lower_bound,
};
use fdn_scheduling::policy::{Budget, Policy};

use crate::examples::{PLENTY, close, clusters, order, six_tasks, ten_tasks};
use crate::instance::{Instance, dag, id, ms};
use crate::oracle::optimum;

fn place(policy: Policy, problem: &Problem<'_>) -> Planned {
    let planned = policy
        .placer(Budget::default())
        .place(problem, Detail::Full)
        .expect("it fits");
    assert_eq!(check(problem, &planned.plan), Ok(()), "{policy}");
    planned
}

fn starts(planned: &Planned) -> Vec<f64> {
    let placements = planned.plan.placements();
    placements.iter().map(|p| p.start.get()).collect()
}

/// Clusters without distance, joined by links that cost nothing.
fn free_instance(tasks: &[(f64, u64)], edges: &[(usize, usize, f64)], speeds: &[f64]) -> Instance {
    let edges: Vec<_> = edges
        .iter()
        .map(|(from, to, time)| (*from, *to, Transfer::Fixed(ms(*time))))
        .collect();
    Instance {
        dag: dag(tasks, &edges),
        clusters: speeds
            .iter()
            .enumerate()
            .map(|(p, speed)| Cluster::new(id(&format!("c{p}")), Speed::new(*speed), 1))
            .collect(),
        network: Network::instant(speeds.len()),
        distance: vec![Millis::ZERO; speeds.len()],
        options: Options::default(),
    }
}

/// Topcuoglu, Hariri and Wu, IEEE TPDS 13(3), 2002: HEFT 80 (figure 4a), CPOP 86 (figure 4b).
#[test]
fn ten_tasks_with_unrelated_costs() {
    let (instance, costs) = ten_tasks();
    let problem = instance.problem().with_costs(&costs).expect("costs fit");
    for (policy, latency) in [
        (Policy::Heft, 80.0),
        (Policy::Cpop, 86.0),
        (Policy::Peft, 85.0),
    ] {
        close(place(policy, &problem).plan.latency(), latency);
    }
    let planned = place(Policy::Heft, &problem);
    assert_eq!(order(&planned), [1, 3, 4, 2, 5, 6, 9, 7, 8, 10]);
    assert_eq!(clusters(&planned), [3, 1, 3, 2, 3, 2, 3, 1, 2, 2]);
    assert_eq!(
        starts(&planned),
        [0.0, 27.0, 9.0, 18.0, 28.0, 26.0, 38.0, 57.0, 56.0, 73.0]
    );
    let portfolio = place(Policy::Portfolio, &problem).plan.latency();
    assert!(
        portfolio <= ms(80.0) && portfolio >= ms(73.0),
        "{portfolio}"
    );
    assert!(lower_bound(&problem) <= ms(73.0));
}

#[test]
fn six_tasks_two_speeds() {
    let instance = six_tasks([0; 6], PLENTY, true, Score::Normal);
    let problem = instance.problem();
    let planned = place(Policy::Heft, &problem);
    close(planned.plan.latency(), 25.7);
    assert_eq!(clusters(&planned), [2; 6]);
    let inverse = place(Policy::HeuOrcheInverse, &problem);
    assert_eq!(order(&inverse), [1, 2, 4, 3, 5, 6]);
    close(inverse.plan.latency(), 26.7);
    let best = optimum(&problem).expect("feasible");
    for policy in Policy::ALL {
        assert!(
            place(policy, &problem).plan.latency().get() >= best - 1e-9,
            "{policy}"
        );
    }
    // 0.6 to the cluster, 8/2 + 10/2 + 9/2 along the longest path, 0.2 back: the path alone says 14.1. All work is 49 at a
    // speed of 3 in all, from 0.2 on: 16.53, and 0.2 back.
    close(lower_bound(&problem), 0.2 + 49.0 / 3.0 + 0.2);
}

#[test]
fn a_task_goes_into_the_gap_that_a_late_one_left() {
    // The long chain is placed first; on the only slot of the only cluster its second task waits 10 for data from afar.
    let mut instance = free_instance(
        &[(2.0, 0), (4.0, 0), (20.0, 0), (3.0, 0)],
        &[(0, 1, 5.0), (1, 2, 5.0), (0, 3, 1.0)],
        &[1.0, 1.0],
    );
    // Task 1 can run on the second cluster only, all others on the first.
    let never = Millis::INFINITY;
    let rows = [
        [ms(2.0), never],
        [never, ms(4.0)],
        [ms(20.0), never],
        [ms(3.0), never],
    ];
    let costs = Costs::new(&rows).expect("costs");
    let problem = instance.problem().with_costs(&costs).expect("they fit");
    let appended = place(Policy::HeuOrche, &problem);
    assert_eq!(starts(&appended), [0.0, 7.0, 16.0, 36.0]);
    let inserted = place(Policy::Heft, &problem);
    assert_eq!(starts(&inserted), [0.0, 7.0, 16.0, 2.0]);
    close(appended.plan.latency(), 39.0);
    close(inserted.plan.latency(), 36.0);
    // What the next job finds are the latest ends, not the ends of what was placed last.
    inserted
        .plan
        .apply(&instance.dag, instance.options.hold, &mut instance.clusters);
    assert_eq!(instance.clusters[0].slots.available(), [ms(36.0)]);
    assert_eq!(instance.clusters[1].slots.available(), [ms(11.0)]);
}

/// By hand: a fork of two on clusters of speed 1 and 2. Behind the entry each child takes 10 or 5, and moving costs 8.
#[test]
fn the_table_of_optimistic_costs_decides_for_the_whole() {
    let instance = free_instance(
        &[(4.0, 0), (10.0, 0), (10.0, 0)],
        &[(0, 1, 8.0), (0, 2, 8.0)],
        &[1.0, 2.0],
    );
    let problem = instance.problem();
    // OCT of the entry: 10 behind the slow cluster (10 there, or 8 + 5), 5 behind the fast. 4 + 10 against 2 + 5.
    let planned = place(Policy::Peft, &problem);
    assert_eq!(clusters(&planned), [2, 2, 2]);
    close(planned.plan.latency(), 12.0);
    // Its choice in HEFT's order is the same here: both orders are forced or tie.
    let mut rank = Peft::new(PeftOrder::UpwardRank);
    assert_eq!(rank.name(), "heft-oct");
    let again = rank.place(&problem, Detail::Full).expect("it fits");
    assert_eq!(again.plan, planned.plan);
    // The entry alone would end first on the fast cluster as well, so its row has nothing to explain away.
    assert!(matches!(
        planned.report.entry().expect("an entry").chosen().verdict,
        Verdict::Chosen { lead: Some(lead) } if lead == ms(2.0)
    ));
}

/// By hand: the entry would end first on a cluster from which its child cannot come away in time.
#[test]
fn who_looks_ahead_leaves_the_cluster_that_is_best_for_one_task_only() {
    let instance = free_instance(&[(4.0, 0), (30.0, 0)], &[(0, 1, 20.0)], &[1.0, 1.0]);
    let rows = [[ms(3.0), ms(4.0)], [ms(30.0), ms(10.0)]];
    let costs = Costs::new(&rows).expect("costs");
    let problem = instance.problem().with_costs(&costs).expect("they fit");
    for (policy, latency) in [
        (Policy::HeuOrche, 33.0),
        (Policy::Heft, 33.0),
        (Policy::Mct, 33.0),
        (Policy::Lookahead, 14.0),
        (Policy::Peft, 14.0),
        (Policy::Cpop, 14.0),
        (Policy::Portfolio, 14.0),
    ] {
        close(place(policy, &problem).plan.latency(), latency);
    }
    let report = place(Policy::Lookahead, &problem).report;
    let entry = report.entry().expect("an entry");
    assert_eq!(
        entry.chosen().verdict.to_string(),
        "chosen, though another would be 1.00 ms ahead for this task alone"
    );
    let lost = entry.candidate(&id("c0")).expect("a cluster");
    assert_eq!(
        lost.verdict.to_string(),
        "1.00 ms faster than c1 for this task alone: works 1.00 ms less"
    );
}

/// By hand: four independent tasks behind an entry of no work, on clusters of speed 1 and 2, then in the order of each rule.
#[test]
fn each_rule_for_ready_tasks_picks_in_its_own_order() {
    let instance = free_instance(&[(8.0, 0), (2.0, 0), (6.0, 0), (10.0, 0)], &[], &[1.0, 2.0]);
    let problem = instance.problem();
    let cases: [(Policy, [usize; 5], [usize; 4], f64); 5] = [
        // 2 first (1 on the fast), then 6 (3: 1..4), 8 (4..8 or 0..8: the smaller cluster), 10.
        (Policy::MinMin, [5, 2, 3, 1, 4], [1, 2, 2, 2], 9.0),
        // 10 first (0..5 on the fast), then 8 (0..8 slow against 5..9), 6 (5..8), 2 (8..9).
        (Policy::MaxMin, [5, 4, 1, 3, 2], [1, 2, 2, 2], 9.0),
        // In the order of the index: 8 (0..4 fast), 2 (0..2 slow), 6 (4..7), 10 (7..12 or 2..12: the smaller cluster).
        (Policy::Mct, [5, 1, 2, 3, 4], [2, 1, 2, 1], 12.0),
        // Where a slot is free first: 8 (slow), 2 (fast, 0..1), 6 (fast, 1..4), 10 (fast, 4..9).
        (Policy::Olb, [5, 1, 2, 3, 4], [1, 2, 2, 2], 9.0),
        // What starts first, the longer first: 10 (fast), 8 (slow), 6 (5..8), 2 (8..9 or 8..10).
        (Policy::Etf, [5, 4, 1, 3, 2], [1, 2, 2, 2], 9.0),
    ];
    for (policy, expected, homes, latency) in cases {
        let planned = place(policy, &problem);
        assert_eq!(order(&planned), expected, "{policy}");
        assert_eq!(clusters(&planned)[..4], homes, "{policy}");
        close(planned.plan.latency(), latency);
    }
}

#[test]
fn a_path_whose_cluster_is_full_goes_elsewhere_as_far_as_it_must() {
    // A chain of three, 4 MiB each; the fast cluster has room for two.
    let mut instance = free_instance(
        &[(10.0, 4), (10.0, 4), (10.0, 4)],
        &[(0, 1, 1.0), (1, 2, 1.0)],
        &[1.0, 5.0],
    );
    instance.clusters[1].free = crate::instance::mib(8);
    let planned = place(Policy::Cpop, &instance.problem());
    assert_eq!(clusters(&planned), [2, 2, 1]);
    close(planned.plan.latency(), 2.0 + 2.0 + 1.0 + 10.0);
}

#[test]
fn the_portfolio_is_its_best_part_and_tells_that_parts_reasons() {
    let (instance, costs) = ten_tasks();
    let problem = instance.problem().with_costs(&costs).expect("costs fit");
    let mut portfolio = Portfolio::default();
    let whole = portfolio.place(&problem, Detail::Full).expect("it fits");
    let parts: Vec<(&str, Planned)> = portfolio
        .parts()
        .into_iter()
        .map(|part| {
            (
                part.name(),
                part.place(&problem, Detail::Full).expect("it fits"),
            )
        })
        .collect();
    let names: Vec<&str> = parts.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["heft", "peft", "heft-oct", "lookahead"]);
    let best = parts
        .iter()
        .min_by_key(|(_, planned)| planned.plan.latency())
        .expect("four");
    assert_eq!(whole, best.1);
    assert_eq!(whole.report.tasks.len(), 10);
}

#[test]
fn data_that_cannot_cross_stays_for_every_policy() {
    let transfer = Transfer::Data(ByteSize::from_bytes(1));
    let instance = Instance {
        dag: dag(&[(1.0, 0), (1000.0, 0)], &[(0, 1, transfer)]),
        network: Network::uniform(2, Link::NONE),
        ..free_instance(&[(1.0, 0)], &[], &[1.0, 100.0])
    };
    for policy in Policy::ALL {
        let planned = place(policy, &instance.problem());
        let homes = clusters(&planned);
        assert_eq!(homes[0], homes[1], "{policy}");
    }
}

#[test]
fn the_bound_counts_slots_that_are_taken_distance_and_arrival() {
    // One task of 10 ms; the near slot is taken until 50, the far one is free and twice as fast.
    let mut instance = free_instance(&[(10.0, 0)], &[], &[1.0, 2.0]);
    instance.distance = vec![ms(5.0), ms(30.0)];
    instance.clusters[0].slots = [ms(50.0)].into_iter().collect();
    // Path: 50 + 10 + 5 near, 30 + 5 + 30 far.
    assert_eq!(lower_bound(&instance.problem()), ms(65.0));
    let later = instance.problem().with_arrival(ms(100.0)).expect("finite");
    assert_eq!(lower_bound(&later), ms(20.0));
    assert_eq!(
        place(Policy::Heft, &later).plan.latency(),
        ms(5.0 + 10.0 + 5.0)
    );
    instance.clusters[0].free = crate::instance::mib(0);
    instance.dag = dag(&[(10.0, 1)], &[]);
    assert_eq!(lower_bound(&instance.problem()), ms(65.0));
    instance.clusters[1].free = crate::instance::mib(0);
    assert_eq!(lower_bound(&instance.problem()), Millis::INFINITY);
    assert!(heu_orche(&instance.problem()).is_err());
    // Nor where an assignment leaves the choice open; what lacks is named.
    let open = HeuOrche::default().evaluate(&instance.problem(), |_| None);
    let rejection = open.expect_err("nothing is free");
    assert_eq!(rejection.cluster, None);
    assert!(matches!(rejection.exclusion, Exclusion::Shortage { .. }));
    let endless = instance.problem().with_arrival(Millis::INFINITY);
    assert_eq!(
        endless.expect_err("it never comes").to_string(),
        "the arrival must be finite and not negative"
    );
}

#[test]
fn an_assignment_of_heft_is_heft_without_gaps_when_evaluated_by_heu_orche() {
    let instance = six_tasks([0; 6], PLENTY, true, Score::Normal);
    let problem = instance.problem();
    let plan = Heft::default()
        .place(&problem, Detail::Nothing)
        .expect("it fits")
        .plan;
    let home = |task: TaskIndex| -> Option<ClusterIndex> { Some(plan.placement(task).cluster) };
    let again = HeuOrche::default().evaluate(&problem, home);
    assert_eq!(again, Ok(plan));
}
