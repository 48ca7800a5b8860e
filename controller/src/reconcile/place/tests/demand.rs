//! What the prefixes with demand weigh.

use super::*;

/// Plans `hello` alone for these prefixes at this rate, with at most four bindings.
fn planned(world: &World, demand: DemandedPrefixes, rate: Rate) -> NetworkPlacement {
    let workflow = workflow();
    let app = "hello".parse().expect("app");
    let profiles = world.profiles(&app, &workflow, |_| Profile {
        work: Millis::new(10.0),
        ..profile(&fdn_core::manifest::Manifest::default())
    });
    let planning = PlanInput {
        workflow: &workflow,
        profiles: &profiles,
        serving: &world.serving(None, &workflow, &profiles),
        factors: &Factors::default(),
        dwelling: None,
        failovers: None,
        before: &PreviousPlans::default(),
        demand,
        rate,
        fixed: false,
    };
    place_all(world, &[planning], 4, &mut Moves::unlimited(), None).expect("consistent")
}

#[test]
fn who_asked_once_comes_after_the_places_that_are_known() {
    let world = world(nodes(), true);
    let row = |text: &str, queries| DemandRow {
        app: "hello".parse().expect("app"),
        prefix: prefix(text),
        queries,
        recent: 1.0,
        last_seen: NOW,
    };
    // The newest first, as they are stored.
    let rows = [
        row("10.0.0.0/24", 1),
        row("10.0.1.0/24", 1),
        row("10.0.2.0/24", 2),
    ];
    let criteria = DemandCriteria {
        called: world.called(),
        limit: 4,
        memory: DurationMs::from_secs(600),
        now: NOW,
    };
    let demand = DemandedPrefixes::of(&rows, &criteria);
    assert_eq!(demand.all[0].0, prefix("10.0.2.0/24"));
    let placed = planned(&world, demand, Rate::default());
    let bound = placed.apps[0].as_ref().expect("planned").bindings.keys();
    let bound: Vec<String> = bound.map(ToString::to_string).collect();
    assert_eq!(bound, ["10.0.0.0/24", "10.0.2.0/24", PARIS, NEW_YORK]);
}

#[test]
fn a_rate_that_nobody_asked_for_lately_is_shared_by_the_known_prefixes() {
    // Clients keep a name for as long as they hold its address: calls go on while DNS hears of nobody.
    let world = world(nodes(), true);
    let loads = |demand: DemandedPrefixes| -> Vec<(String, f64)> {
        let placed = planned(&world, demand, Rate::per_second(700.0));
        let loads = placed.loads.iter().filter(|(_, a)| a.load.erlangs() > 0.0);
        loads
            .map(|(cluster, loads)| (cluster.to_string(), loads.load.erlangs()))
            .collect()
    };
    let both = |eu: f64, us: f64| vec![("eu-west".to_owned(), eu), ("us-east".to_owned(), us)];
    let silent = DemandedPrefixes::uniform([prefix(PARIS), prefix(NEW_YORK)], 0.0);
    assert_eq!(loads(silent), both(3.5, 3.5));
    // Nobody was ever heard of: the known locations count alike.
    assert_eq!(loads(DemandedPrefixes::default()), both(3.5, 3.5));
    let mut uneven = DemandedPrefixes::uniform([prefix(PARIS), prefix(NEW_YORK)], 1.0);
    uneven.all[0].1 = 6.0;
    assert_eq!(loads(uneven), both(6.0, 1.0));
}

#[test]
fn a_rate_of_clients_that_nobody_knows_counts_whole() {
    let placed = planned(
        &world(nodes(), false),
        DemandedPrefixes::default(),
        Rate::per_second(700.0),
    );
    let load: f64 = placed.loads.values().map(|a| a.load.erlangs()).sum();
    assert!((load - 7.0).abs() < 1e-9, "{load}");
}
