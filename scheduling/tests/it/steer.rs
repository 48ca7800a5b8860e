//! Hysteresis: users move when it is worth it or when they must, and never back and forth.

use fdn_core::{ClusterId, Millis};
use fdn_scheduling::place::{Availability, Cluster, Exclusion, Network, Options, Speed};
use fdn_scheduling::steer::{Decision, Margin, Reason, replan, steer};
use proptest::prelude::*;

use crate::instance::{Instance, dag, id, mib, ms, raw};

fn decide(old: Result<f64, Exclusion>, new: f64) -> Decision {
    steer(
        Some((&id("old"), old.map(ms))),
        (&id("new"), ms(new)),
        Margin::default(),
    )
}

#[test]
fn more_than_the_margin_moves_exactly_the_margin_does_not() {
    assert!(!decide(Ok(100.0), 90.0).changed);
    assert!(decide(Ok(100.0), 89.99).changed);
    assert_eq!(decide(Ok(100.0), 95.0).cluster, id("old"));
    assert_eq!(
        decide(Ok(100.0), 100.0).reason,
        Reason::StillBest { time: ms(100.0) }
    );
    assert_eq!(
        decide(Ok(100.0), 80.0).reason.to_string(),
        "takes 80.00 ms instead of 100.00 ms on old, 20.0 % less"
    );
    // Nothing is a share of nothing, and anything is better than never.
    assert!(!decide(Ok(0.0), 0.0).changed);
    assert!(decide(Ok(f64::INFINITY), 1e9).changed);
}

#[test]
fn without_a_past_the_best_is_taken_and_a_failed_one_is_left() {
    let first = steer(None, (&id("new"), ms(5.0)), Margin::default());
    assert_eq!(
        (first.cluster, first.changed, first.reason),
        (id("new"), true, Reason::First)
    );
    let left = decide(Err(Exclusion::Down), 1e6);
    assert_eq!((left.cluster.clone(), left.changed), (id("new"), true));
    assert_eq!(
        left.reason.to_string(),
        "the cluster before, old, does not answer"
    );
}

#[test]
fn margins_are_shares_below_one() {
    assert!(Margin::new(0.0).is_some() && Margin::new(0.99).is_some());
    for bad in [-0.1, 1.0, f64::NAN] {
        assert!(Margin::new(bad).is_none());
    }
}

fn two_clusters(near_wait: f64) -> Instance {
    Instance {
        dag: dag(&[(20.0, 8)], &[]),
        clusters: vec![
            Cluster::new(id("near"), Speed::new(1.0), 0)
                .with_slots([ms(near_wait)].into_iter().collect()),
            Cluster::new(id("far"), Speed::new(1.0), 1),
        ],
        network: Network::instant(2),
        distance: vec![ms(10.0), ms(40.0)],
        options: Options {
            exit_leg: true,
            ..Options::default()
        },
    }
}

fn steered(instance: &Instance, previous: &str) -> (String, bool, Reason) {
    let decision = replan(
        &instance.problem(),
        Some(&[id(previous)]),
        Margin::default(),
    )
    .expect("it fits")
    .decision;
    (
        decision.cluster.to_string(),
        decision.changed,
        decision.reason,
    )
}

#[test]
fn users_leave_a_cluster_that_is_full_gone_or_slow() {
    // Near 40, far 100: stay. Near with a queue of 75: 105 against 100, stay. Of 90: 120 against 100, move.
    assert_eq!(
        steered(&two_clusters(0.0), "near").2,
        Reason::StillBest { time: ms(40.0) }
    );
    assert!(!steered(&two_clusters(75.0), "near").1);
    assert_eq!(steered(&two_clusters(90.0), "near").0, "far");
    let mut full = two_clusters(0.0);
    full.clusters[0].free = mib(7);
    let (cluster, changed, reason) = steered(&full, "near");
    assert_eq!((cluster.as_str(), changed), ("far", true));
    assert_eq!(
        reason.to_string(),
        "the cluster before, near, wants 8 MiB memory, 7 MiB free"
    );
    let mut down = two_clusters(0.0);
    down.clusters[0].availability = Availability::Down;
    assert_eq!(steered(&down, "near").0, "far");
    // A cluster that was taken out of the network altogether.
    let (cluster, changed, reason) = steered(&two_clusters(0.0), "removed");
    assert_eq!((cluster.as_str(), changed), ("near", true));
    assert_eq!(
        reason.to_string(),
        "the cluster before, removed, no longer exists"
    );
}

#[test]
fn a_workflow_is_weighed_as_a_whole() {
    // Two stages; the second stage's cluster fills up, so the plan changes although the entry stays.
    let transfer = fdn_scheduling::dag::Transfer::Fixed(ms(1.0));
    let mut instance = Instance {
        dag: dag(&[(10.0, 1), (100.0, 1)], &[(0, 1, transfer)]),
        clusters: vec![
            Cluster::new(id("near"), Speed::new(1.0), 1),
            Cluster::new(id("fast"), Speed::new(10.0), 1),
        ],
        network: Network::instant(2),
        distance: vec![ms(1.0), ms(50.0)],
        options: Options {
            exit_leg: true,
            ..Options::default()
        },
    };
    let first = replan(&instance.problem(), None, Margin::default()).expect("it fits");
    assert_eq!(first.plan.latency(), ms(1.0 + 10.0 + 1.0 + 10.0 + 50.0));
    let previous = [id("near"), id("fast")];
    let same = replan(&instance.problem(), Some(&previous), Margin::default()).expect("it fits");
    assert!(!same.decision.changed);
    instance.clusters[1].free = mib(0);
    let moved = replan(&instance.problem(), Some(&previous), Margin::default()).expect("it fits");
    assert!(moved.decision.changed);
    assert_eq!(moved.decision.cluster, id("near"));
    assert_eq!(
        moved.decision.reason.to_string(),
        "the cluster before, fast, wants 1 MiB memory, 0 MiB free"
    );
    assert_eq!(moved.plan.latency(), ms(1.0 + 10.0 + 100.0 + 1.0));
}

proptest! {
    /// Two clusters of about equal time, estimates that vary by less than 5 % to either side: nobody ever moves.
    #[test]
    fn noise_within_the_margin_never_moves_anyone(
        base in 1.0..1e4f64,
        noise in prop::collection::vec((0.951..1.049f64, 0.951..1.049f64), 1..50),
    ) {
        let names = [id("a"), id("b")];
        let mut current = 0;
        for (a, b) in noise {
            let times = [ms(base * a), ms(base * b)];
            let best = usize::from(times[1] < times[0]);
            let decision = steer(Some((&names[current], Ok(times[current]))), (&names[best], times[best]), Margin::default());
            prop_assert!(!decision.changed);
            current = usize::from(decision.cluster == names[1]);
        }
        prop_assert_eq!(current, 0);
    }

    /// Every move gains more than the margin at that moment, and with estimates at rest there is at most one.
    #[test]
    fn moves_pay_and_then_stop(
        rounds in prop::collection::vec(prop::collection::vec(1.0..1e3f64, 4), 1..20),
        share in 0.0..0.9f64,
    ) {
        let margin = Margin::new(share).expect("a share");
        let names: Vec<ClusterId> = (0..4).map(|i| id(&format!("c{i}"))).collect();
        let mut current = 0;
        for times in &rounds {
            let best = (0..4).min_by(|a, b| times[*a].total_cmp(&times[*b])).expect("four");
            let step = |current: usize| steer(Some((&names[current], Ok(ms(times[current])))), (&names[best], ms(times[best])), margin);
            let decision = step(current);
            let next = names.iter().position(|n| *n == decision.cluster).expect("one of them");
            prop_assert_eq!(decision.changed, next != current);
            if decision.changed {
                prop_assert!(times[next] < times[current] * (1.0 - share) + 1e-9);
            } else {
                prop_assert!(times[best] >= times[current] * (1.0 - share) - 1e-9);
            }
            current = next;
            prop_assert!(!step(current).changed);
        }
    }

    /// Planning again under the same conditions changes nothing, whatever was planned before.
    #[test]
    fn planning_twice_changes_nothing(raw in raw(7, 4), before in prop::collection::vec(0usize..4, 7)) {
        let instance = raw.build();
        let problem = instance.problem();
        let name = |p: usize| instance.clusters[p % instance.clusters.len()].id.clone();
        let previous: Vec<ClusterId> = before.into_iter().take(instance.dag.given()).map(name).collect();
        let Ok(once) = replan(&problem, Some(&previous), Margin::default()) else { return Ok(()) };
        let kept: Vec<ClusterId> = once.plan.placements()[..instance.dag.given()].iter().map(|p| name(p.cluster.get())).collect();
        let twice = replan(&problem, Some(&kept), Margin::default()).expect("it was feasible");
        prop_assert!(!twice.decision.changed, "{:?}", twice.decision);
        prop_assert_eq!(&twice.plan, &once.plan);
        prop_assert!(once.plan.latency() * 0.9 <= once.planned.plan.latency() + Millis::new(1e-9));
    }
}
