//! Jobs planned one after the other into the gaps between those before.

use fdn_core::{Millis, Resources};
use fdn_scheduling::checker::check;
use fdn_scheduling::place::{Detail, Heft, Hold, Placement, Placer, Plan};
use proptest::prelude::*;

use crate::instance::{Instance, ms, raw};

/// No two of these overlap in a slot, and together they hold no more than there is.
fn compatible(instances: &[&Instance], plans: &[Plan]) {
    let mut all: Vec<(Placement, Resources)> = plans
        .iter()
        .zip(instances)
        .flat_map(|(plan, instance)| {
            let demand = |task: usize| {
                let task = fdn_scheduling::dag::TaskIndex::new(task);
                instance.dag.task(task).demand
            };
            let placed = plan.placements().iter().enumerate();
            placed.map(move |(task, placement)| (*placement, demand(task)))
        })
        .filter(|(placement, _)| placement.start < placement.finish)
        .collect();
    all.sort_by_key(|(p, _)| (p.cluster, p.slot, p.start));
    for pair in all.windows(2) {
        let (a, b) = (pair[0].0, pair[1].0);
        let apart = (a.cluster, a.slot) != (b.cluster, b.slot) || a.finish <= b.start;
        assert!(apart, "{a:?} and {b:?}");
    }
    for (at, _) in &all {
        let held = all
            .iter()
            .filter(|(p, _)| p.cluster == at.cluster && p.start <= at.start && at.start < p.finish)
            .fold(Resources::default(), |sum, (_, demand)| {
                sum.saturating_add(demand)
            });
        assert!(
            held.fits(&instances[0].clusters[at.cluster.get()].free),
            "{held}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn jobs_share_the_slots_and_none_takes_what_another_has(
        place in raw(6, 3), jobs in prop::collection::vec((0u16..60, raw(8, 1)), 1..6)
    ) {
        let mut first = place.build();
        first.options.hold = Hold::Task;
        let mut now = 0.0;
        let mut placer = Heft::default();
        let (mut taken, mut plans) = (Vec::new(), Vec::new());
        let instances: Vec<Instance> = jobs
            .iter()
            .map(|(_, raw)| Instance { dag: raw.build().dag, ..first.clone() })
            .collect();
        for ((gap, _), instance) in jobs.iter().zip(&instances) {
            now += f64::from(*gap) / 8.0;
            let problem = instance.problem().with_arrival(ms(now)).expect("a time");
            if let Ok(planned) = placer.place_next(&problem, Detail::Nothing) {
                prop_assert_eq!(check(&problem, &planned.plan), Ok(()));
                taken.push(instance);
                plans.push(planned.plan);
            }
        }
        if !taken.is_empty() {
            compatible(&taken, &plans);
        }
    }

    #[test]
    fn the_first_job_is_placed_as_if_alone_and_a_refused_one_leaves_nothing(
        place in raw(8, 3), large in raw(8, 1)
    ) {
        let first = place.build();
        let mut large = Instance { dag: large.build().dag, ..first.clone() };
        let alone = Heft::default().place(&first.problem(), Detail::Nothing);
        let mut placer = Heft::default();
        // Too large at its end: some of its tasks have been placed when that is found.
        for cluster in &mut large.clusters {
            cluster.free = crate::instance::mib(9);
        }
        if placer.place_next(&large.problem(), Detail::Nothing).is_err() {
            let next = placer.place_next(&first.problem(), Detail::Nothing);
            prop_assert_eq!(alone.map(|p| p.plan.latency()), next.map(|p| p.plan.latency()));
        }
    }
}

#[test]
fn a_gap_between_two_jobs_serves_a_third() {
    let one = |work: f64| crate::instance::dag(&[(work, 0)], &[]);
    let base = |work: f64| Instance {
        dag: one(work),
        clusters: vec![fdn_scheduling::place::Cluster::new(
            crate::instance::id("a"),
            fdn_scheduling::place::Speed::new(1.0),
            1,
        )],
        network: fdn_scheduling::place::Network::instant(1),
        distance: vec![Millis::ZERO],
        options: fdn_scheduling::place::Options::default(),
    };
    let mut placer = Heft::default();
    let mut start = |instance: &Instance, arrival: f64| {
        let problem = instance
            .problem()
            .with_arrival(ms(arrival))
            .expect("a time");
        let planned = placer.place_next(&problem, Detail::Nothing).expect("room");
        planned.plan.placements()[0].start
    };
    assert_eq!(start(&base(4.0), 0.0), ms(0.0));
    let far = Instance {
        distance: vec![ms(20.0)],
        ..base(5.0)
    };
    assert_eq!(start(&far, 0.0), ms(20.0), "reserved for later");
    assert_eq!(
        start(&base(16.0), 0.0),
        ms(4.0),
        "the gap is just long enough"
    );
    assert_eq!(start(&base(1.0), 0.0), ms(25.0), "no gap is left");
    assert_eq!(
        start(&base(1.0), 30.0),
        ms(30.0),
        "what has ended is forgotten"
    );
}
