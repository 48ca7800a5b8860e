//! The report says exactly what the formulas say, and agrees with a computation by hand.

use std::collections::BTreeMap;

use fdn_core::latency::{LatencyEstimate, LatencySource};
use fdn_core::{ClusterId, Millis};
use fdn_scheduling::place::{
    Availability, Cluster, Exclusion, Hold, Network, Options, Speed, Verdict, heu_orche,
};
use fdn_scheduling::steer::{Margin, replan};
use proptest::prelude::*;

use crate::instance::{Instance, dag, id, mib, ms, raw};

/// 20 ms of work in 100 MiB, four clusters.
fn live() -> Instance {
    let slots = |times: &[f64]| times.iter().copied().map(Millis::new).collect();
    Instance {
        dag: dag(&[(20.0, 100)], &[]),
        clusters: vec![
            Cluster::new(id("ap-south"), Speed::new(1.0), 1).with_availability(Availability::Down),
            Cluster::new(id("eu-west"), Speed::new(1.0), 0).with_slots(slots(&[70.0, 45.0])),
            Cluster::new(id("us-east"), Speed::new(2.0), 2),
            Cluster::new(id("us-west"), Speed::new(4.0), 2).with_free(mib(99)),
        ],
        network: Network::instant(4),
        distance: [60.0, 10.0, 40.0, 70.0].map(ms).into(),
        options: Options {
            exit_leg: true,
            ..Options::default()
        },
    }
}

fn view(instance: &Instance) -> BTreeMap<ClusterId, LatencyEstimate> {
    instance
        .clusters
        .iter()
        .zip(&instance.distance)
        .map(|(cluster, distance)| {
            let estimate = LatencyEstimate {
                rtt: *distance * 2.0,
                source: LatencySource::Measured,
            };
            (cluster.id.clone(), estimate)
        })
        .collect()
}

#[test]
fn every_cluster_with_its_terms_as_by_hand() {
    let instance = live();
    let steered = replan(&instance.problem(), None, Margin::default()).expect("it fits");
    let entry = steered.planned.report.entry().expect("a report");
    let rows = steered.decision.rows(entry, &view(&instance));
    let names: Vec<&str> = rows.iter().map(|row| row.cluster.as_str()).collect();
    assert_eq!(names, ["eu-west", "us-east", "ap-south", "us-west"]);
    let terms = |i: usize| {
        let row = &rows[i];
        [
            row.distance,
            row.available,
            row.start,
            row.work,
            row.finish,
            row.total,
        ]
        .map(Millis::get)
    };
    // A slot is free after 45; 20 of work; 10 back.
    assert_eq!(terms(0), [10.0, 45.0, 45.0, 20.0, 65.0, 75.0]);
    // The request is there after 40; 10 of work; 40 back.
    assert_eq!(terms(1), [40.0, 0.0, 40.0, 10.0, 50.0, 90.0]);
    assert_eq!(terms(3), [70.0, 0.0, 70.0, 5.0, 75.0, 145.0]);
    let verdicts: Vec<&str> = rows.iter().map(|row| row.verdict.as_str()).collect();
    assert_eq!(
        verdicts,
        [
            "chosen: 15.00 ms ahead of the next",
            "15.00 ms slower than eu-west: starts 5.00 ms earlier, works 10.00 ms less, answers over 30.00 ms more",
            "does not answer",
            "wants 100 MiB memory, 99 MiB free",
        ]
    );
    let excluded: Vec<Option<&str>> = rows.iter().map(|row| row.excluded.as_deref()).collect();
    assert_eq!(
        excluded,
        [
            None,
            None,
            Some("does not answer"),
            Some("wants 100 MiB memory, 99 MiB free")
        ]
    );
    assert_eq!(rows[0].latency.source, LatencySource::Measured);
    assert_eq!(steered.plan.latency(), ms(75.0));
}

#[test]
fn a_kept_answer_says_why_the_best_was_not_taken() {
    let mut instance = live();
    instance.distance[2] = ms(35.0);
    instance.clusters[1].slots = [ms(58.0)].into_iter().collect();
    // eu-west 58 + 20 + 10 = 88, us-east 35 + 10 + 35 = 80: 9.1 % less.
    let steered = replan(
        &instance.problem(),
        Some(&[id("eu-west")]),
        Margin::default(),
    )
    .expect("it fits");
    assert!(!steered.decision.changed);
    assert_eq!(steered.decision.cluster, id("eu-west"));
    assert_eq!(steered.plan.latency(), ms(88.0));
    assert_eq!(steered.planned.plan.latency(), ms(80.0));
    let entry = steered.planned.report.entry().expect("a report");
    let rows = steered.decision.rows(entry, &view(&instance));
    let reason = "us-east would take 80.00 ms instead of 88.00 ms, 9.1 % less; more than 10 % are needed to move";
    assert_eq!(rows[0].cluster, id("us-east"));
    assert_eq!(
        rows[0].verdict,
        format!("best now, but eu-west is kept: {reason}")
    );
    assert_eq!(rows[1].verdict, format!("kept: {reason}"));
    assert_eq!(steered.decision.reason.to_string(), reason);
}

#[test]
fn ties_go_to_the_first_and_say_so() {
    let instance = Instance {
        dag: dag(&[(20.0, 0)], &[]),
        clusters: ["a", "b", "c"]
            .map(|name| Cluster::new(id(name), Speed::new(1.0), 1))
            .into(),
        network: Network::instant(3),
        distance: [10.0, 10.0, 10.001].map(ms).into(),
        options: Options::default(),
    };
    let planned = heu_orche(&instance.problem()).expect("it fits");
    let texts: Vec<String> = planned.report.tasks[0]
        .candidates
        .iter()
        .map(|c| c.verdict.to_string())
        .collect();
    assert_eq!(
        texts,
        [
            "chosen: as fast as the next, first in order",
            "as fast as a, later in order",
            "less than 0.01 ms slower than a"
        ]
    );
}

#[test]
fn an_only_candidate_says_so() {
    let mut instance = live();
    instance.clusters[2].availability = Availability::Draining;
    let planned = heu_orche(&instance.problem()).expect("it fits");
    let entry = planned.report.entry().expect("a report");
    assert_eq!(
        entry.chosen().verdict.to_string(),
        "chosen: no other can take it"
    );
    assert_eq!(
        entry.candidate(&id("us-east")).expect("listed").excluded(),
        Some(Exclusion::Draining)
    );
    assert!(entry.candidate(&id("nowhere")).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_terms_add_up_and_the_chosen_has_the_least_key(raw in raw(8, 5)) {
        let mut instance = raw.build();
        instance.options.hold = Hold::Job;
        let problem = instance.problem();
        let Ok(planned) = heu_orche(&problem) else { return Ok(()) };
        for report in &planned.report.tasks {
            prop_assert_eq!(report.candidates.len(), instance.clusters.len());
            let chosen = report.chosen();
            let placement = planned.plan.placement(report.task);
            prop_assert_eq!(chosen.cluster, placement.cluster);
            prop_assert_eq!((chosen.terms.start, chosen.terms.finish), (placement.start, placement.finish));
            for candidate in &report.candidates {
                let t = candidate.terms;
                prop_assert_eq!(t.start, t.available.max(t.ready));
                prop_assert_eq!(t.finish, t.start + t.work);
                prop_assert_eq!(t.work, problem.work(report.task, candidate.cluster));
                let exit = instance.dag.is_exit(report.task);
                prop_assert_eq!(t.total, if exit { t.finish + t.distance } else { t.finish });
                prop_assert_eq!(t.key, if raw.exit_leg { t.total } else { t.finish });
                match &candidate.verdict {
                    Verdict::Excluded(why) => {
                        let short = matches!(why, Exclusion::Shortage { .. });
                        prop_assert!(short);
                    }
                    Verdict::Chosen { lead } => prop_assert!(lead.is_none_or(|lead| lead >= Millis::ZERO)),
                    Verdict::Lost { to, by, start, work, toll, back } => {
                        prop_assert_eq!(*toll, Millis::ZERO);
                        prop_assert_eq!(to, &chosen.id);
                        prop_assert_eq!(*by, t.key - chosen.terms.key);
                        prop_assert!(*by >= Millis::ZERO);
                        prop_assert!((by.get() - (start.get() + work.get() + back.get())).abs() < 1e-9);
                    }
                }
            }
        }
    }
}
