use std::sync::Arc;

use fdn_core::message::NodeStatus;
use fdn_core::{DurationMs, GeoPoint, Millis, Revision, Timestamp, VersionNumber};
use fdn_scheduling::place::Bandwidth;
use fdn_scheduling::steer::Margin;
use fdn_scheduling::workflow::Profile;

use super::*;
use crate::fixture;
use crate::geo::Geo;
use crate::reconcile::actual::Factors;
use crate::reconcile::difference::{Difference, binding_rows, difference};
use crate::reconcile::node_registry::NodeRegistry;
use crate::reconcile::prefixes::DemandCriteria;
use crate::reconcile::profile;
use crate::reconcile::world::{MeasuredRtts, Presence, Terms};
use crate::reconcile::write::plan_rows;
use crate::settings::{ClientLocation, GeoSettings};
use crate::store::demand::DemandRow;

mod demand;
mod dwell;
mod failed;

const PARIS: &str = "192.0.2.0/24";
const NEW_YORK: &str = "198.51.100.0/24";
const NOW: Timestamp = Timestamp(0);

fn prefix(text: &str) -> ClientPrefix {
    text.parse().expect("prefix")
}

fn node(name: &str, cluster: &str, lat: f64, lon: f64) -> NodeStatus {
    NodeStatus {
        location: GeoPoint::new(lat, lon).expect("position"),
        ..fixture::status(name, cluster)
    }
}

fn nodes() -> Vec<NodeStatus> {
    vec![
        node("eu-1", "eu-west", 53.35, -6.26),
        node("us-1", "us-east", 39.04, -77.49),
    ]
}

fn world(nodes: Vec<NodeStatus>, located: bool) -> World {
    world_with(nodes, located, MeasuredRtts::default())
}

fn world_with(nodes: Vec<NodeStatus>, located: bool, measured: MeasuredRtts) -> World {
    let mut live = NodeRegistry::new(Vec::new(), 100, NOW);
    for status in nodes {
        live.observe(status, NOW);
    }
    let locations = if located {
        vec![
            ClientLocation {
                prefix: prefix(PARIS),
                lat: 48.86,
                lon: 2.35,
            },
            ClientLocation {
                prefix: prefix(NEW_YORK),
                lat: 40.71,
                lon: -74.01,
            },
        ]
    } else {
        Vec::new()
    };
    let geo = Arc::new(
        Geo::open(&GeoSettings {
            locations,
            ..GeoSettings::default()
        })
        .expect("locations"),
    );
    World::new(
        &live,
        geo,
        measured,
        Terms {
            margin: Margin::default(),
            bandwidth: Bandwidth::UNLIMITED,
            horizon: Millis::new(10_000.0),
        },
        NOW,
    )
}

fn workflow() -> Workflow {
    Workflow::single("hello".parse().expect("function"), VersionNumber::FIRST)
}

fn place_hello(
    world: &World,
    before: &PreviousPlans<'_>,
    demand: &[&str],
    limit: usize,
) -> AppPlacement {
    let workflow = workflow();
    let app = "hello".parse().expect("app");
    let profiles = world.profiles(&app, &workflow, |_| {
        profile(&fdn_core::manifest::Manifest::default())
    });
    place(
        world,
        &workflow,
        &profiles,
        before,
        demand.iter().map(|p| prefix(p)),
        limit,
    )
    .expect("consistent")
}

fn cluster_of<'a>(placed: &'a AppPlacement, client: &str) -> &'a str {
    placed.bindings[&prefix(client)].0.as_str()
}

/// What was placed, as the rows it is stored in.
fn rows(placed: &AppPlacement) -> (Vec<PlanRow>, Vec<BindingRow>) {
    let app = "hello".parse().expect("app");
    let plans = plan_rows(&app, placed, Revision(1), NOW).expect("rows");
    (
        plans,
        binding_rows(&app, &PreviousPlans::default(), placed, Revision(1)),
    )
}

#[test]
fn a_new_app_is_planned_for_every_known_location() {
    let placed = place_hello(&world(nodes(), true), &PreviousPlans::default(), &[], 100);
    assert_eq!(cluster_of(&placed, PARIS), "eu-west");
    assert_eq!(cluster_of(&placed, NEW_YORK), "us-east");
    let primaries: Vec<String> = placed.primaries().iter().map(ToString::to_string).collect();
    assert_eq!(primaries, ["eu-west", "us-east"]);
    assert_eq!(placed.plans.len(), 2);
}

#[test]
fn without_locations_or_demand_there_is_a_plan_but_no_binding() {
    let placed = place_hello(&world(nodes(), false), &PreviousPlans::default(), &[], 100);
    assert_eq!(
        (
            placed.plans.len(),
            placed.bindings.len(),
            placed.primaries().len()
        ),
        (1, 0, 1)
    );
}

#[test]
fn clients_that_see_the_clusters_alike_share_a_plan() {
    let placed = place_hello(
        &world(nodes(), true),
        &PreviousPlans::default(),
        &["192.0.2.0/25", "192.0.2.128/26"],
        100,
    );
    assert_eq!((placed.plans.len(), placed.bindings.len()), (2, 4));
    let group = |client: &str| placed.bindings[&prefix(client)].1.clone();
    assert_eq!(group("192.0.2.0/25"), group(PARIS));
}

#[test]
fn planning_twice_changes_nothing() {
    let world = world(nodes(), true);
    let first = place_hello(&world, &PreviousPlans::default(), &["10.0.0.0/24"], 100);
    let (plans, bindings) = rows(&first);
    let before = PreviousPlans::new(&plans, &bindings);
    let second = place_hello(&world, &before, &["10.0.0.0/24"], 100);
    assert_eq!(difference(&before, &second), Difference::default());
    assert_eq!(
        binding_rows(
            &"hello".parse().expect("app"),
            &before,
            &second,
            Revision(9)
        ),
        bindings,
        "revisions stay"
    );
}

#[test]
fn a_dead_cluster_is_left_at_once_and_a_small_gain_moves_nobody() {
    let first = place_hello(&world(nodes(), true), &PreviousPlans::default(), &[], 100);
    let (plans, bindings) = rows(&first);
    let before = PreviousPlans::new(&plans, &bindings);
    let mut drained = nodes();
    drained[0].draining = true;
    let placed = place_hello(&world(drained, true), &before, &[], 100);
    assert_eq!(cluster_of(&placed, PARIS), "us-east");
    let found = difference(&before, &placed);
    assert_eq!((found.bindings, found.moved, found.plans), (1, 1, true));
    // Paris: eu-west takes about 9 + 10 + 9 ms. A wait of a millisecond there is no reason to cross the ocean.
    let mut busy = nodes();
    busy[0].busy = busy[0].slots;
    busy[0].queued_work = Millis::new(40.0);
    let placed = place_hello(&world(busy, true), &before, &[], 100);
    assert_eq!(difference(&before, &placed).moved, 0);
}

#[test]
fn slots_that_are_all_busy_for_a_moment_move_nobody_and_a_queue_that_lasts_does() {
    let first = place_hello(&world(nodes(), true), &PreviousPlans::default(), &[], 100);
    let (plans, bindings) = rows(&first);
    let before = PreviousPlans::new(&plans, &bindings);
    let moved = |queued: f64| {
        let mut busy = nodes();
        busy[0].busy = busy[0].slots;
        busy[0].queued_work = Millis::new(queued * f64::from(busy[0].slots));
        let placed = place_hello(&world(busy, true), &before, &[], 100);
        difference(&before, &placed).moved
    };
    assert_eq!(
        moved(400.0),
        0,
        "for calls that come within ten seconds that is 8 ms"
    );
    assert_eq!(moved(60_000.0), 1);
}

#[test]
fn when_nothing_fits_everything_stays() {
    let first = place_hello(&world(nodes(), true), &PreviousPlans::default(), &[], 100);
    let (plans, bindings) = rows(&first);
    let before = PreviousPlans::new(&plans, &bindings);
    let mut drained = nodes();
    drained.iter_mut().for_each(|node| node.draining = true);
    let placed = place_hello(&world(drained, true), &before, &[], 100);
    assert_eq!(difference(&before, &placed), Difference::default());
    assert!(
        placed.unplaced[0].contains("is draining"),
        "{:?}",
        placed.unplaced
    );
    let fresh = place_hello(
        &world(Vec::new(), true),
        &PreviousPlans::default(),
        &[],
        100,
    );
    assert_eq!((fresh.plans.len(), fresh.bindings.len()), (0, 0));
}

#[test]
fn bindings_are_bounded_and_demand_comes_first() {
    let placed = place_hello(
        &world(nodes(), true),
        &PreviousPlans::default(),
        &["10.0.0.0/24", "10.0.1.0/24"],
        3,
    );
    let bound: Vec<String> = placed.bindings.keys().map(ToString::to_string).collect();
    assert_eq!(bound, ["10.0.0.0/24", "10.0.1.0/24", PARIS]);
}

#[test]
fn members_of_a_group_with_different_pasts_are_steered_apart() {
    // Two prefixes see the clusters alike, but one was sent to us-east when it was seen differently.
    let world = world(nodes(), false);
    let mut first = place_hello(
        &world,
        &PreviousPlans::default(),
        &["10.0.0.0/24", "10.0.1.0/24"],
        100,
    );
    let group = first.bindings[&prefix("10.0.0.0/24")].1.clone();
    let mut other = first.plans[&group].clone();
    other
        .stages
        .values_mut()
        .for_each(|cluster| *cluster = "us-east".parse().expect("cluster"));
    first.plans.insert("other".to_owned(), other);
    first.bindings.insert(
        prefix("10.0.1.0/24"),
        ("us-east".parse().expect("cluster"), "other".to_owned()),
    );
    let (plans, bindings) = rows(&first);
    let before = PreviousPlans::new(&plans, &bindings);
    let placed = place_hello(&world, &before, &["10.0.0.0/24", "10.0.1.0/24"], 100);
    // Both clusters are as far from an unknown client: nobody gains by moving.
    assert_eq!(cluster_of(&placed, "10.0.0.0/24"), "eu-west");
    assert_eq!(cluster_of(&placed, "10.0.1.0/24"), "us-east");
    assert_eq!(placed.plans.len(), 2);
    assert_eq!(difference(&before, &placed).moved, 0);
}

#[test]
fn a_chain_of_stages_goes_through_the_same_path() {
    use fdn_core::ByteSize;
    use fdn_core::workflow::{Edge, Stage};
    let stage = |name: &str| Stage {
        name: name.parse().expect("stage"),
        function: name.parse().expect("function"),
        version: VersionNumber::FIRST,
    };
    let edge = Edge {
        from: "first".parse().expect("stage"),
        to: "second".parse().expect("stage"),
        size: ByteSize::from_mib(10),
    };
    let workflow =
        Workflow::new(vec![stage("first"), stage("second")], vec![edge]).expect("workflow");
    let world = world(nodes(), true);
    let profiles = workflow
        .stages()
        .iter()
        .map(|s| {
            (
                s.name.clone(),
                Profile {
                    work: Millis::new(5.0),
                    ..profile(&fdn_core::manifest::Manifest::default())
                },
            )
        })
        .collect();
    let placed = place(
        &world,
        &workflow,
        &profiles,
        &PreviousPlans::default(),
        [],
        100,
    )
    .expect("consistent");
    let plan = &placed.plans[&placed.bindings[&prefix(PARIS)].1];
    assert_eq!(plan.stages.len(), 2);
    assert!(
        plan.stages
            .values()
            .all(|cluster| cluster.as_str() == "eu-west"),
        "{:?}",
        plan.stages
    );
    let (plans, bindings) = rows(&placed);
    let again = PreviousPlans::new(&plans, &bindings);
    assert_eq!(
        again.stages(&workflow, prefix(PARIS)).expect("known").len(),
        2
    );
}

/// Apps that a client near eu-west calls so often, planned together: where each is sent.
fn together(
    world: &World,
    apps: &[(f64, Option<&PreviousPlans<'_>>, bool)],
    moves: &mut Moves,
) -> NetworkPlacement {
    let usual = Profile {
        work: Millis::new(10.0),
        ..profile(&fdn_core::manifest::Manifest::default())
    };
    together_as(world, usual, apps, moves)
}

/// The same for functions that run like this.
fn together_as(
    world: &World,
    profile: Profile,
    apps: &[(f64, Option<&PreviousPlans<'_>>, bool)],
    moves: &mut Moves,
) -> NetworkPlacement {
    let workflow = workflow();
    let app = "hello".parse().expect("app");
    let profiles = world.profiles(&app, &workflow, |_| profile);
    let none = PreviousPlans::default();
    let serving = world.serving(None, &workflow, &profiles);
    let factors = Factors::default();
    let plannings: Vec<PlanInput<'_>> = apps
        .iter()
        .map(|(rate, before, fixed)| PlanInput {
            workflow: &workflow,
            profiles: &profiles,
            serving: &serving,
            factors: &factors,
            dwelling: None,
            failovers: None,
            before: before.unwrap_or(&none),
            demand: DemandedPrefixes::uniform([prefix(PARIS)], 1.0),
            rate: Rate::per_second(*rate),
            fixed: *fixed,
        })
        .collect();
    place_all(world, &plannings, 1, moves, None).expect("consistent")
}

/// Eight slots in each of two clusters.
fn eight_slots() -> World {
    let mut nodes = nodes();
    nodes.iter_mut().for_each(|node| node.slots = 8);
    world(nodes, true)
}

#[test]
fn apps_make_room_for_each_other() {
    let world = eight_slots();
    let placed = together(
        &world,
        &[(600.0, None, false), (700.0, None, false)],
        &mut Moves::unlimited(),
    );
    let sent: Vec<&str> = placed
        .apps
        .iter()
        .map(|app| cluster_of(app.as_ref().expect("planned"), PARIS))
        .collect();
    // The one with more work has the cluster nearby, though it comes second.
    assert_eq!(sent, ["us-east", "eu-west"]);
    let loads = &placed.loads;
    let load = |cluster: &str| {
        let cluster: ClusterId = cluster.parse().expect("cluster");
        loads[&cluster].load.erlangs()
    };
    assert!((load("us-east") - 6.0).abs() < 1e-9 && (load("eu-west") - 7.0).abs() < 1e-9);
    let quiet = together(
        &world,
        &[(6.0, None, false), (700.0, None, false)],
        &mut Moves::unlimited(),
    );
    assert_eq!(
        cluster_of(quiet.apps[0].as_ref().expect("planned"), PARIS),
        "eu-west"
    );
    // Explanations know of the waits that there are.
    let known = eight_slots().with_loads(&placed.loads);
    let profiles = Profiles::new();
    let view = known.view(prefix(PARIS)).estimates;
    let work = |world: &World| {
        let steering = world
            .steer(
                &workflow(),
                &profiles,
                &view,
                None,
                &presence(&|_, _| false, &Serving::default()),
            )
            .expect("room");
        steering.candidates[0].total
    };
    assert!(work(&known) > work(&world) + Millis::new(1.0));
}

/// Of an app that is not called now.
fn presence<'a>(
    runs: &'a dyn Fn(&StageName, &ClusterId) -> bool,
    serving: &'a Serving,
) -> Presence<'a> {
    static NONE: std::sync::LazyLock<Factors> = std::sync::LazyLock::new(Factors::default);
    Presence {
        runs,
        serving,
        factors: &NONE,
        is_called: false,
    }
}

#[test]
fn memory_that_is_promised_to_others_keeps_apps_out_and_is_told() {
    // Instances of 3000 MiB; a cluster has 4096.
    let manifest = fdn_core::manifest::Manifest {
        runtime: fdn_core::manifest::RuntimeKind::Docker,
        memory: fdn_core::ByteSize::from_mib(3000),
        concurrency: 10,
        ..fdn_core::manifest::Manifest::default()
    };
    let world = eight_slots();
    let apps = [(1.0, None, false), (2.0, None, false), (0.5, None, false)];
    let placed = together_as(&world, profile(&manifest), &apps, &mut Moves::unlimited());
    let of = |at: usize| placed.apps[at].as_ref().expect("planned");
    assert_eq!(cluster_of(of(1), PARIS), "eu-west");
    assert_eq!(cluster_of(of(0), PARIS), "us-east");
    // For the third there is none.
    assert!(of(2).bindings.is_empty());
    let full = "has its memory promised to others: wants 3000 MiB memory, 1096 MiB free";
    assert!(of(2).unplaced[0].contains(full), "{:?}", of(2).unplaced);
    assert_eq!(placed.unplaced, 1);
    assert_eq!(world.memory(&placed.loads), (6000.0, 8192.0));
    // The one in us-east is told why it is not nearer.
    let plan = of(0).plans.values().next().expect("a plan");
    let told = &plan.explanation.as_ref().expect("explained").candidates;
    let near = told.iter().find(|c| c.cluster.as_str() == "eu-west");
    assert_eq!(near.expect("listed").excluded.as_deref(), Some(full));
    // So is whoever asks later; where the app runs already, one client more needs nothing more.
    let known = eight_slots().with_loads(&placed.loads);
    let profiles: Profiles = [(workflow().entry().name.clone(), profile(&manifest))].into();
    let view = known.view(prefix(PARIS)).estimates;
    let loads = |runs: bool| {
        let runs = |_: &StageName, _: &ClusterId| runs;
        let serving = Serving::default();
        known.steer(
            &workflow(),
            &profiles,
            &view,
            None,
            &presence(&runs, &serving),
        )
    };
    assert!(loads(false).is_err());
    assert_eq!(loads(true).expect("room").entry.as_str(), "eu-west");
}

#[test]
fn what_stays_as_it_is_still_counts() {
    let world = eight_slots();
    let first = place_hello(&world, &PreviousPlans::default(), &[PARIS], 1);
    let (plans, bindings) = rows(&first);
    let before = PreviousPlans::new(&plans, &bindings);
    let apps = [(700.0, Some(&before), true), (700.0, None, false)];
    let placed = together(&world, &apps, &mut Moves::unlimited());
    assert!(placed.apps[0].is_none(), "nothing is planned for it");
    assert_eq!(
        cluster_of(placed.apps[1].as_ref().expect("planned"), PARIS),
        "us-east"
    );
}

#[test]
fn moves_for_a_gain_are_put_off_and_told() {
    let world = eight_slots();
    let far = place_hello(&world, &PreviousPlans::default(), &[PARIS], 1);
    let (mut plans, mut bindings) = rows(&far);
    let elsewhere: ClusterId = "us-east".parse().expect("cluster");
    plans[0]
        .stages
        .values_mut()
        .for_each(|c| *c = elsewhere.clone());
    bindings[0].cluster = elsewhere;
    let before = PreviousPlans::new(&plans, &bindings);
    let apps = [(1.0, Some(&before), false); 4];
    let mut moves = Moves::new(0.5, Millis::new(1000.0)).expect("settings");
    let placed = together(&world, &apps, &mut moves);
    assert_eq!(placed.deferred, 2);
    let moved = placed
        .apps
        .iter()
        .flatten()
        .map(|app| difference(&before, app).moved);
    assert_eq!(moved.collect::<Vec<_>>(), [1, 1, 0, 0]);
    // Only what moved is explained anew.
    let explained = placed.apps.iter().flatten().map(|app| {
        let plan = app.plans.values().next().expect("a plan");
        plan.explanation.is_some()
    });
    assert_eq!(explained.collect::<Vec<_>>(), [true, true, false, false]);
}

proptest::proptest! {
    #[test]
    fn whatever_the_load_planning_is_repeatable_bounded_and_only_on_living_clusters(
        loads in proptest::collection::vec((0u32..8, 0.0f64..500.0, proptest::bool::ANY), 1..6),
        clients in proptest::collection::vec(0u8..=255, 0..20),
        limit in 1usize..12,
    ) {
        let nodes: Vec<NodeStatus> = loads
            .iter()
            .enumerate()
            .map(|(i, (busy, queued, draining))| NodeStatus {
                busy: *busy,
                queued_work: Millis::new(*queued),
                draining: *draining,
                ..node(&format!("node-{i}"), &format!("cluster-{}", i % 3), i as f64 * 20.0, i as f64 * 30.0)
            })
            .collect();
        let serving: BTreeSet<String> =
            nodes.iter().filter(|node| !node.draining).map(|node| node.cluster.to_string()).collect();
        let world = world(nodes, true);
        let demand: Vec<String> = clients.iter().map(|n| format!("10.0.{n}.0/24")).collect();
        let demand: Vec<&str> = demand.iter().map(String::as_str).collect();
        let placed = place_hello(&world, &PreviousPlans::default(), &demand, limit);
        proptest::prop_assert!(placed.bindings.len() <= limit);
        proptest::prop_assert!(placed.bindings.values().all(|(cluster, _)| serving.contains(cluster.as_str())));
        proptest::prop_assert!(placed.bindings.values().all(|(_, group)| placed.plans.contains_key(group)));
        let (plans, bindings) = rows(&placed);
        let before = PreviousPlans::new(&plans, &bindings);
        let again = place_hello(&world, &before, &demand, limit);
        proptest::prop_assert_eq!(difference(&before, &again), Difference::default());
    }
}
