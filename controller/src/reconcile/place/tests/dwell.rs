//! Clients that were moved for a gain stay for a while.

use fdn_core::AppName;

use super::*;
use crate::reconcile::dwell::Dwell;

#[test]
fn who_has_just_moved_dwells_although_its_distance_is_measured_now() {
    let measured = |eu: f64, us: f64| MeasuredRtts {
        clients: [("eu-west", eu), ("us-east", us)]
            .map(|(cluster, rtt)| {
                let cluster = cluster.parse().expect("cluster");
                (prefix(PARIS), cluster, Millis::new(rtt))
            })
            .to_vec(),
        ..MeasuredRtts::default()
    };
    let app: AppName = "hello".parse().expect("app");
    let workflow = workflow();
    let plan = |rtts: MeasuredRtts, before: &PreviousPlans<'_>, dwell: &Dwell| {
        let world = world_with(nodes(), false, rtts);
        let profiles = world.profiles(&app, &workflow, |_| {
            profile(&fdn_core::manifest::Manifest::default())
        });
        let planning = PlanInput {
            workflow: &workflow,
            profiles: &profiles,
            serving: &world.serving(None, &workflow, &profiles),
            factors: &Factors::default(),
            dwelling: dwell.of(&app),
            failovers: None,
            before,
            demand: DemandedPrefixes::uniform([prefix(PARIS)], 1.0),
            rate: Rate::per_second(1.0),
            fixed: false,
        };
        place_all(&world, &[planning], 1, &mut Moves::unlimited(), None).expect("consistent")
    };
    let only = |placed: &NetworkPlacement| placed.apps[0].clone().expect("planned");
    let mut dwell = Dwell::default();
    let first = only(&plan(
        measured(100.0, 200.0),
        &PreviousPlans::default(),
        &dwell,
    ));
    assert_eq!(cluster_of(&first, PARIS), "eu-west");
    let (plans, bindings) = rows(&first);
    let moved = plan(
        measured(200.0, 100.0),
        &PreviousPlans::new(&plans, &bindings),
        &dwell,
    );
    let second = only(&moved);
    assert_eq!(cluster_of(&second, PARIS), "us-east");
    for (_, who, cluster) in moved.gained {
        dwell.note(&app, who, cluster, NOW);
    }
    // Measured once more, the new cluster is a little farther than it seemed, and the old one better by more than the margin.
    let (plans, bindings) = rows(&second);
    let before = PreviousPlans::new(&plans, &bindings);
    let again = |dwell: &Dwell| plan(measured(85.0, 110.0), &before, dwell);
    let dwelling = again(&dwell);
    assert_eq!(
        (dwelling.deferred, cluster_of(&only(&dwelling), PARIS)),
        (1, "us-east")
    );
    let names = |placed: &AppPlacement| placed.plans.keys().cloned().collect::<Vec<String>>();
    assert_ne!(
        names(&second),
        names(&only(&dwelling)),
        "its group has another name"
    );
    // When the dwell time is over it moves.
    dwell.prune(Timestamp(31_000), DurationMs::from_secs(30));
    let back = again(&dwell);
    assert_eq!(
        (back.deferred, cluster_of(&only(&back), PARIS)),
        (0, "eu-west")
    );
}
