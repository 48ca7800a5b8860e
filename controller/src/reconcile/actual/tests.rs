use std::sync::Arc;

use fdn_core::message::AppObserved;
use fdn_core::{Resources, VersionNumber};
use fdn_scheduling::dag::Holding;
use fdn_scheduling::place::Bandwidth;
use fdn_scheduling::steer::Margin;
use fdn_scheduling::workflow::Profile;

use super::*;
use crate::fixture;
use crate::geo::Geo;
use crate::reconcile::node_registry::NodeRegistry;
use crate::reconcile::world::{MeasuredRtts, Terms as WorldTerms};
use crate::settings::GeoSettings;

const NOW: Timestamp = Timestamp(1_000_000);

fn name() -> AppName {
    "hello".parse().expect("app")
}

fn workflow() -> Workflow {
    Workflow::single("hello".parse().expect("function"), VersionNumber::FIRST)
}

/// A node of speed 2 in a cluster, where so many calls took so long.
fn node(cluster: &str, calls: u64, execution: f64) -> NodeStatus {
    let observed = AppObserved {
        invocations: calls,
        serves: Some(true),
        phases: Some(PhaseTimes {
            queue: Millis::new(1.0),
            start: Millis::new(2.0),
            execution: Millis::new(execution),
            mean_ratio: None,
        }),
        ..fixture::observed("hello")
    };
    NodeStatus {
        speed: 2.0,
        apps: vec![observed],
        ..fixture::status(cluster, cluster)
    }
}

fn world(nodes: &[NodeStatus]) -> World {
    let mut live = NodeRegistry::new(Vec::new(), 100, NOW);
    for status in nodes {
        live.observe(status.clone(), NOW);
    }
    let terms = WorldTerms {
        margin: Margin::default(),
        bandwidth: Bandwidth::UNLIMITED,
        horizon: Millis::new(10_000.0),
    };
    let geo = Arc::new(Geo::open(&GeoSettings::default()).expect("no locations"));
    World::new(&live, geo, MeasuredRtts::default(), terms, NOW)
}

/// A call is expected to take 20 ms of work: 10 on these nodes.
fn profiles() -> Profiles {
    let profile = Profile {
        work: Millis::new(20.0),
        demand: Resources::default(),
        holding: Holding::Calls,
        mean_ratio: 1.0,
    };
    [(workflow().entry().name.clone(), profile)].into()
}

fn learn(learner: &mut Learner, nodes: &[NodeStatus]) -> PredictionAccuracy {
    let mut learnt = PredictionAccuracy::default();
    let (workflow, profiles) = (workflow(), profiles());
    let of = (&workflow, &profiles, &Variants::new());
    learner.learn(&world(nodes), &name(), of, NOW, &mut learnt);
    learnt
}

fn factors(learner: &Learner, nodes: &[NodeStatus]) -> Vec<f64> {
    let world = world(nodes);
    let all = learner.all(&world);
    let factors = all[&name()].factors(&world, (&workflow(), &profiles()), NOW);
    factors.as_slice().expect("known").to_vec()
}

#[test]
fn a_cluster_where_calls_take_longer_is_corrected_and_the_others_are_not() {
    let mut learner = Learner::new(10);
    let at = |calls| [node("a", calls, 28.0), node("b", calls, 8.0)];
    let first = learn(&mut learner, &at(10_000));
    assert_eq!(
        first.errors,
        [2.0 / 3.0, 0.0],
        "10 ms instead of 30, and of 10"
    );
    assert_eq!(first.drifted, 1);
    // The first step is bounded; a second one arrives.
    learn(&mut learner, &at(20_000));
    let known = factors(&learner, &at(0));
    assert!((known[0] - 3.0).abs() < 0.01, "{known:?}");
    assert!((known[1] - 1.0).abs() < 1e-9, "{known:?}");
    let third = learn(&mut learner, &at(30_000));
    assert!(third.errors.iter().all(|error| *error < 0.01), "{third:?}");
    assert_eq!(third.drifted, 0);
}

#[test]
fn only_calls_since_the_last_time_teach_anything() {
    let mut learner = Learner::new(10);
    learn(&mut learner, &[node("a", 10_000, 8.0)]);
    assert_eq!(
        learn(&mut learner, &[node("a", 10_000, 99.0)]),
        PredictionAccuracy::default()
    );
    // An agent that started anew counts from nothing.
    let again = learn(&mut learner, &[node("a", 3, 8.0)]);
    assert_eq!(again.errors.len(), 1);
    let place = Place {
        app: name(),
        stage: workflow().entry().name.clone(),
        cluster: "a".parse().expect("cluster"),
        form: None,
    };
    assert_eq!(learner.error(&place), Some(0.0));
    learner.retain(|_| false);
    assert_eq!((learner.places(), learner.error(&place)), (0, None));
}

#[test]
fn a_node_counts_by_its_new_calls_and_a_broken_one_says_little() {
    let named = |name: &str, calls, execution| NodeStatus {
        node: name.parse().expect("node"),
        ..node("a", calls, execution)
    };
    let mut learner = Learner::new(10);
    // One that joins has had one call, which was cold: it took 200 times as long.
    for n in 1..4 {
        let nodes = [named("n-1", n * 1_000_000, 8.0), named("n-2", 1, 1998.0)];
        learn(&mut learner, &nodes);
    }
    let known = factors(&learner, &[named("n-1", 0, 8.0)]);
    assert!((known[0] - 1.0).abs() < 0.002, "{known:?}");
    // One that was slow long ago and has no calls any more counts no more.
    let mut learner = Learner::new(10);
    learn(&mut learner, &[named("n-2", 500, 998.0)]);
    for n in 1..100 {
        learn(
            &mut learner,
            &[named("n-1", n * 1_000, 8.0), named("n-2", 500, 998.0)],
        );
    }
    let known = factors(&learner, &[named("n-1", 0, 8.0)]);
    assert!((known[0] - 1.0).abs() < 0.001, "{known:?}");
    // One of three says what cannot be.
    let mut learner = Learner::new(10);
    for n in 1..100 {
        let nodes = [
            named("n-1", n * 1_000, 8.0),
            named("n-2", n * 1_000, 8.0),
            named("n-3", n * 1_000, 1e9),
        ];
        learn(&mut learner, &nodes);
    }
    let known = factors(&learner, &[named("n-1", 0, 8.0)]);
    assert!(known[0] < 1.6, "{known:?}");
    // However many calls it says it had.
    let mut learner = Learner::new(10);
    for n in 1..100 {
        let nodes = [
            named("n-1", n * 1_000, 8.0),
            named("n-2", n * 1_000, 8.0),
            named("n-3", n * 1_000_000_000_000, 1e9),
        ];
        learn(&mut learner, &nodes);
    }
    let known = factors(&learner, &[named("n-1", 0, 8.0)]);
    assert!(known[0] < 1.6, "{known:?}");
}

#[test]
fn a_node_that_has_just_started_says_no_more_than_its_few_calls() {
    let named = |name: &str, calls, execution| NodeStatus {
        node: name.parse().expect("node"),
        ..node("a", calls, execution)
    };
    let mut learner = Learner::new(10);
    learn(&mut learner, &[named("n-1", 1_000, 8.0)]);
    // Each has one call between two passes; those of the newcomer take 200 times as long.
    for n in 1..4 {
        let nodes = [named("n-1", 1_000 + n, 8.0), named("n-2", n, 1998.0)];
        learn(&mut learner, &nodes);
    }
    let known = factors(&learner, &[named("n-1", 0, 8.0)]);
    assert!((1.0..1.1).contains(&known[0]), "{known:?}");
}

#[test]
fn figures_that_are_none_count_for_nothing() {
    let mut odd = node("a", 10, f64::NAN);
    assert_eq!(
        learn(&mut Learner::new(1), &[odd.clone()]),
        PredictionAccuracy::default()
    );
    odd.apps[0].phases = None;
    assert_eq!(
        learn(&mut Learner::new(1), &[odd]),
        PredictionAccuracy::default()
    );
    let idle = node("a", 0, 10.0);
    assert_eq!(
        learn(&mut Learner::new(1), &[idle]),
        PredictionAccuracy::default()
    );
    let never = node("a", 10, 1e300);
    assert_eq!(
        learn(&mut Learner::new(1), &[never]),
        PredictionAccuracy::default()
    );
}
