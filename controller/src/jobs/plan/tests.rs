//! The choice of clusters and gateways, over networks made by hand.

use fdn_core::Resources;
use fdn_core::manifest::RuntimeKind;
use fdn_core::message::{AppObserved, NodeStatus};
use fdn_scheduling::place::{Availability, Speed};

use super::*;
use crate::fixture;

fn snapshot(clusters: Vec<Cluster>) -> NetworkSnapshot {
    let of = |cluster: &Cluster| {
        let slots = u32::try_from(cluster.slots.len()).expect("few");
        vec![node(&format!("{}-1", cluster.id), slots)]
    };
    NetworkSnapshot {
        network: Network::instant(clusters.len()),
        nodes: clusters.iter().map(of).collect(),
        phases: Arc::default(),
        clusters,
    }
}

/// An idle node that has nothing ready.
fn node(name: &str, slots: u32) -> NodeSlots {
    let status = fixture::status(name, "any");
    let address = status.admin;
    let node = NodeIdentity {
        cluster: status.cluster,
        node: status.node,
    };
    NodeSlots {
        at: Some(NodeAddress {
            node: node.clone(),
            address,
        }),
        node,
        slots,
        used: 0,
        sequence: 1,
        ready: Vec::new(),
    }
}

/// One cluster `a` with two such nodes.
fn two_nodes(slots: u32) -> NetworkSnapshot {
    let mut snapshot = snapshot(vec![cluster("a", 1.0, 2 * slots as usize)]);
    snapshot.nodes = vec![vec![node("n-1", slots), node("n-2", slots)]];
    snapshot
}

fn cluster(name: &str, speed: f64, slots: usize) -> Cluster {
    Cluster::new(name.parse().expect("name"), Speed::new(speed), slots)
}

/// Jobs of 100 ms, of an app that a node fetches within `fetch` ms.
fn jobs_of(count: usize, fetch: f64) -> Vec<Arc<ExpectedRun>> {
    let dag = Dag::single("work", Millis::new(100.0), Resources::default()).expect("valid");
    let (kind, none) = (RuntimeKind::Wasm, Millis::ZERO);
    let runs = Arc::new(ExpectedRun {
        app: "work".parse().expect("app"),
        dag: Arc::new(dag),
        // 1 MB takes a second at 1 MB/s.
        forms: vec![ProvisioningCost::new(
            kind,
            (fetch * 1e3) as u64,
            1.0,
            none,
            none,
        )],
    });
    (0..count).map(|_| Arc::clone(&runs)).collect()
}

fn jobs(count: usize) -> Vec<Arc<ExpectedRun>> {
    jobs_of(count, 0.0)
}

/// The same clusters, each with one node that has the app in this phase; `None` for a node that does not hold it.
fn with_phases(mut snapshot: NetworkSnapshot, phases: &[Option<AppPhase>]) -> NetworkSnapshot {
    let node = |(cluster, phase): (&Cluster, &Option<AppPhase>)| {
        let mut status = fixture::status(&format!("{}-1", cluster.id), cluster.id.as_str());
        status.apps = phase.clone().into_iter().map(observed).collect();
        status
    };
    let nodes: Vec<NodeStatus> = snapshot.clusters.iter().zip(phases).map(node).collect();
    let ids: Vec<&ClusterId> = snapshot.clusters.iter().map(|c| &c.id).collect();
    let alive: Vec<&NodeStatus> = nodes.iter().collect();
    snapshot.phases = Arc::new(Phases::new(&ids, &alive));
    snapshot
}

fn observed(phase: AppPhase) -> AppObserved {
    AppObserved {
        phase,
        ..fixture::observed("work")
    }
}

fn names(places: &[Placement]) -> Vec<&str> {
    places
        .iter()
        .map(|place| match place {
            Placement::At { cluster, .. } => cluster.as_str(),
            Placement::Later => "later",
            Placement::Nowhere(_) => "nowhere",
        })
        .collect()
}

#[test]
fn a_burst_fills_the_fastest_first_and_no_slot_twice() {
    let snapshot = snapshot(vec![cluster("a", 1.0, 2), cluster("b", 2.0, 1)]);
    let own = OwnAttempts::default();
    assert_eq!(free(&snapshot, &own), 3);
    let places = place(&snapshot, &own, &jobs(5));
    let names = names(&places);
    assert_eq!(names[0], "b");
    assert_eq!(names.iter().filter(|n| **n == "a").count(), 2, "{names:?}");
    assert_eq!(
        names.iter().filter(|n| **n == "later").count(),
        2,
        "{names:?}"
    );
}

#[test]
fn what_was_started_since_a_cluster_spoke_counts_until_it_ends() {
    let mut snapshot = snapshot(vec![cluster("a", 1.0, 2)]);
    let id = snapshot.nodes[0][0].node.clone();
    let says = |snapshot: &mut NetworkSnapshot, used, sequence| {
        let node = &mut snapshot.nodes[0][0];
        (node.used, node.sequence) = (used, sequence);
    };
    let mut own = OwnAttempts::default();
    own.observe(&snapshot);
    own.started(&id);
    own.started(&id);
    assert_eq!(
        (
            free(&snapshot, &own),
            names(&place(&snapshot, &own, &jobs(1)))
        ),
        (0, vec!["later"])
    );
    // The next status counts them too: they are not counted twice.
    says(&mut snapshot, 2, 2);
    own.observe(&snapshot);
    assert_eq!(free(&snapshot, &own), 0);
    own.ended(&id);
    assert_eq!(free(&snapshot, &own), 1, "free before the cluster says so");
    // The slots that others use stay counted.
    says(&mut snapshot, 2, 3);
    own.observe(&snapshot);
    assert_eq!(free(&snapshot, &own), 0);
}

#[test]
fn a_burst_is_spread_over_the_nodes_of_a_cluster() {
    let snapshot = two_nodes(4);
    let mut own = OwnAttempts::default();
    own.observe(&snapshot);
    let (cluster, app) = ("a".parse().expect("name"), "work".parse().expect("app"));
    let mut hits: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..8 {
        let gateway = snapshot.gateway(&cluster, &app, &own).expect("a gateway");
        own.started(&gateway.node);
        *hits.entry(gateway.node.to_string()).or_default() += 1;
    }
    let hits: Vec<usize> = hits.into_values().collect();
    assert_eq!(hits, [4, 4]);
    assert_eq!(free(&snapshot, &own), 0);
}

#[test]
fn one_that_has_the_app_is_called_however_full_it_is() {
    let mut snapshot = two_nodes(4);
    let (cluster, app): (ClusterId, AppName) =
        ("a".parse().expect("name"), "work".parse().expect("app"));
    snapshot.nodes[0][0].ready = vec![app.clone()];
    snapshot.nodes[0][0].used = 4;
    let gateway = snapshot.gateway(&cluster, &app, &OwnAttempts::default());
    assert_eq!(gateway, snapshot.nodes[0][0].at);
    // One that cannot be called is not chosen.
    snapshot.nodes[0][0].at = None;
    let gateway = snapshot.gateway(&cluster, &app, &OwnAttempts::default());
    assert_eq!(gateway, snapshot.nodes[0][1].at);
}

#[test]
fn a_status_of_one_node_says_nothing_of_calls_at_another() {
    // The first node is full of the calls of others.
    let mut snapshot = two_nodes(8);
    snapshot.nodes[0][0].used = 8;
    let mut own = OwnAttempts::default();
    own.observe(&snapshot);
    let second = snapshot.nodes[0][1].node.clone();
    for _ in 0..8 {
        own.started(&second);
    }
    assert_eq!(free(&snapshot, &own), 0);
    snapshot.nodes[0][0].sequence += 1;
    own.observe(&snapshot);
    assert_eq!(free(&snapshot, &own), 0, "the second has not spoken yet");
    // Its status was written before the calls came.
    snapshot.nodes[0][1].sequence += 1;
    own.observe(&snapshot);
    assert_eq!(free(&snapshot, &own), 0);
    snapshot.nodes[0][1].used = 8;
    snapshot.nodes[0][1].sequence += 1;
    own.observe(&snapshot);
    assert_eq!(free(&snapshot, &own), 0, "none is counted twice");
    (0..8).for_each(|_| own.ended(&second));
    assert_eq!(free(&snapshot, &own), 8);
}

#[test]
fn without_a_cluster_that_can_take_it_a_job_says_so() {
    let down = cluster("a", 1.0, 4).with_availability(Availability::Down);
    assert_eq!(
        names(&place(
            &snapshot(vec![down]),
            &OwnAttempts::default(),
            &jobs(1)
        )),
        ["nowhere"]
    );
    assert_eq!(
        place(&snapshot(Vec::new()), &OwnAttempts::default(), &jobs(1)).len(),
        1
    );
}

#[test]
fn a_cluster_that_has_the_app_wins_over_one_as_fast_that_must_fetch_it() {
    let two = || snapshot(vec![cluster("a", 1.0, 2), cluster("b", 1.0, 2)]);
    let own = OwnAttempts::default();
    let phases = [Some(AppPhase::Fetching), Some(AppPhase::Ready)];
    let snapshot = with_phases(two(), &phases);
    let placed = place(&snapshot, &own, &jobs_of(1, 30.0));
    let ready = Millis::ZERO;
    let cluster = "b".parse().expect("name");
    assert_eq!(placed, [Placement::At { cluster, ready }]);
    // `b` is full: a cluster that gets the app before a slot of `b` is free is used, one that gets it later is not.
    let names = |fetch| names(&place(&snapshot, &own, &jobs_of(4, fetch))).join(" ");
    assert_eq!(names(30.0), "b b a a");
    assert_eq!(names(9_000.0), "b b later later");
    // A cluster that does not hold the app never becomes ready.
    let untold = with_phases(two(), &[None, Some(AppPhase::Ready)]);
    let placed = place(&untold, &own, &jobs_of(3, 0.0));
    assert_eq!(self::names(&placed), ["b", "b", "later"]);
}

#[test]
fn a_ready_cluster_loses_to_one_that_is_faster_by_more_than_the_rest_of_the_way() {
    let (slow, fast) = (cluster("a", 1.0, 1), cluster("b", 4.0, 1));
    let phases = [Some(AppPhase::Ready), Some(AppPhase::Fetching)];
    let snapshot = with_phases(snapshot(vec![slow, fast]), &phases);
    let at = |fetch| place(&snapshot, &OwnAttempts::default(), &jobs_of(1, fetch));
    // 100 ms on `a`, 25 on `b`.
    let cluster = "b".parse().expect("name");
    let ready = Millis::new(70.0);
    assert_eq!(at(70.0), [Placement::At { cluster, ready }]);
    assert_eq!(names(&at(80.0)), ["a"]);
}

#[test]
fn where_it_is_ready_nowhere_the_nearest_to_it_takes_it_and_who_cannot_says_why() {
    let failed = || {
        Some(AppPhase::Failed {
            reason: "no".to_owned(),
        })
    };
    let three = ["a", "b", "c"].map(|name| cluster(name, 1.0, 1));
    let phases = [
        failed(),
        Some(AppPhase::Fetching),
        Some(AppPhase::Compiling),
    ];
    let all = with_phases(snapshot(three.to_vec()), &phases);
    let placed = place(&all, &OwnAttempts::default(), &jobs_of(1, 500.0));
    assert_eq!(names(&placed), ["c"]);
    let none = with_phases(snapshot(three.to_vec()), &[failed(), None, None]);
    let placed = place(&none, &OwnAttempts::default(), &jobs_of(1, 500.0));
    let Placement::Nowhere(why) = &placed[0] else {
        panic!("{placed:?}")
    };
    for words in [
        "a (has no node that could make it ready)",
        "b (is not ready yet to serve it)",
    ] {
        assert!(why.contains(words), "{why}");
    }
}

#[test]
fn a_cold_start_in_a_free_slot_is_not_passed_over_for_a_full_cluster() {
    let cold = Millis::new(30_000.0);
    let none = Millis::ZERO;
    let runs = ExpectedRun {
        forms: vec![ProvisioningCost::new(
            RuntimeKind::Docker,
            1_000_000,
            1.0,
            none,
            cold,
        )],
        ..(*jobs(1)[0]).clone()
    };
    let mut two = snapshot(vec![cluster("a", 1.0, 2), cluster("b", 1.0, 2)]);
    let warm = with_phases(two.clone(), &[Some(AppPhase::Ready), Some(AppPhase::Ready)]);
    two.nodes[0][0].used = 2;
    let full = NetworkSnapshot {
        nodes: two.nodes,
        ..warm
    };
    let placed = place(&full, &OwnAttempts::default(), &[Arc::new(runs)]);
    let cluster = "b".parse().expect("name");
    let ready = cold;
    assert_eq!(placed, [Placement::At { cluster, ready }]);
}

proptest::proptest! {
    #[test]
    fn when_all_is_full_or_nothing_is_known_readiness_changes_nothing(
        speeds in proptest::collection::vec(0.25f64..4.0, 1..5),
        fetch in 0.0f64..900.0,
        used in proptest::collection::vec(0u32..4, 5),
        full in proptest::bool::ANY,
    ) {
        let clusters: Vec<Cluster> = speeds
            .iter()
            .enumerate()
            .map(|(at, speed)| cluster(&format!("c-{at}"), *speed, 3))
            .collect();
        let mut plain = snapshot(clusters);
        for (node, used) in plain.nodes.iter_mut().flatten().zip(&used) {
            node.used = if full { 3 } else { *used };
        }
        let own = OwnAttempts::default();
        let all: Vec<Option<AppPhase>> = speeds.iter().map(|_| Some(AppPhase::Ready)).collect();
        let mixed: Vec<Option<AppPhase>> = (0..speeds.len())
            .map(|at| Some(if at % 2 == 0 { AppPhase::Fetching } else { AppPhase::Ready }))
            .collect();
        let placed = |snapshot: &NetworkSnapshot| place(snapshot, &own, &jobs_of(4, fetch));
        let before = placed(&plain);
        let where_to = |places: &[Placement]| names(places).join(" ");
        proptest::prop_assert_eq!(where_to(&placed(&with_phases(plain.clone(), &all))), where_to(&place(&plain, &own, &jobs(4))));
        let after = placed(&with_phases(plain.clone(), &mixed));
        if full {
            proptest::prop_assert!(before.iter().chain(&after).all(|place| *place == Placement::Later));
        }
        // No slot is used twice, and nothing is sent where none is free.
        let free: Vec<usize> = plain.nodes.iter().flatten().map(|node| 3 - node.used.min(3) as usize).collect();
        for (cluster, free) in plain.clusters.iter().zip(free) {
            let sent = after.iter().filter(|place| matches!(place, Placement::At { cluster: at, .. } if *at == cluster.id));
            proptest::prop_assert!(sent.count() <= free);
        }
    }
}
