//! Apps that cannot be planned.

use super::*;

#[test]
fn an_app_that_cannot_be_planned_does_not_keep_others_from_being_planned() {
    let (world, workflow) = (eight_slots(), workflow());
    let app = "hello".parse().expect("app");
    let usual = profile(&fdn_core::manifest::Manifest::default());
    let profiles = |work: f64| {
        let work = Millis::new(work);
        world.profiles(&app, &workflow, |_| Profile { work, ..usual })
    };
    let (good, bad) = (profiles(10.0), profiles(f64::INFINITY));
    let serving = world.serving(None, &workflow, &good);
    let (none, factors) = (PreviousPlans::default(), Factors::default());
    let planning = |profiles| PlanInput {
        workflow: &workflow,
        profiles,
        serving: &serving,
        factors: &factors,
        dwelling: None,
        failovers: None,
        before: &none,
        demand: DemandedPrefixes::uniform([prefix(PARIS)], 1.0),
        rate: Rate::per_second(1.0),
        fixed: false,
    };
    let plannings = [planning(&good), planning(&bad), planning(&good)];
    let placed = place_all(&world, &plannings, 4, &mut Moves::unlimited(), None).expect("planned");
    let failed: Vec<usize> = placed.failed.iter().map(|(at, _)| *at).collect();
    assert_eq!(failed, [1]);
    let bindings = |at: usize| placed.apps[at].as_ref().map(|app| app.bindings.len());
    assert_eq!([0, 1, 2].map(bindings), [Some(2), None, Some(2)]);
    // Alone, it is an error.
    let before = PreviousPlans::default();
    assert!(place(&world, &workflow, &bad, &before, [prefix(PARIS)], 4).is_err());
}
