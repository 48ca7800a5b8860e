//! What holds for every policy and every instance.

use fdn_core::Millis;
use fdn_scheduling::checker::check;
use fdn_scheduling::place::{
    Availability, Cluster, Detail, Exclusion, Hold, Infeasible, Network, Options, Placement,
    Placer, Planned, Portfolio, Problem, Speed, lower_bound,
};
use fdn_scheduling::policy::{Budget, Policy};
use proptest::prelude::*;

use crate::instance::{Instance, Raw, dag, id, ms, raw};
use crate::oracle::optimum;
use crate::properties::{close, with_cluster};
use crate::random::random_job;

/// Enough to change something, and little enough for many instances.
const BUDGET: Budget = Budget {
    steps: 200,
    seed: 1,
    nodes: 5_000,
};

fn place(policy: Policy, problem: &Problem<'_>) -> Result<Planned, Infeasible> {
    policy.placer(BUDGET).place(problem, Detail::Nothing)
}

fn any_policy() -> impl Strategy<Value = Policy> {
    prop::sample::select(Policy::ALL.to_vec())
}

/// Those that bind while the job runs: they report no candidates, their entry in front of several takes no slot, and one of them
/// pauses tasks.
fn is_event_driven(policy: Policy) -> bool {
    let driven = [
        Policy::Fcfs,
        Policy::Priority,
        Policy::Distance,
        Policy::Lrtf,
    ];
    driven.contains(&policy)
}

/// The cluster of each task by name, and the latency.
fn assignment(policy: Policy, problem: &Problem<'_>) -> Option<(Vec<String>, Millis)> {
    let plan = place(policy, problem).ok()?.plan;
    let name = |p: &Placement| problem.clusters()[p.cluster.get()].id.to_string();
    Some((plan.placements().iter().map(name).collect(), plan.latency()))
}

/// The properties, for as many cases as asked.
macro_rules! properties {
    ($cases:expr) => {
        proptest! {
            #![proptest_config(ProptestConfig::with_cases($cases))]

            #[test]
            fn every_plan_passes_the_checker_and_a_refusal_is_whole(raw in raw(12, 5), policy in any_policy(), at in 0u32..400) {
                let instance = raw.build();
                let problem = instance.problem().with_arrival(ms(f64::from(at) / 8.0)).expect("finite");
                match place(policy, &problem) {
                    Ok(planned) => {
                        prop_assert_eq!(check(&problem, &planned.plan), Ok(()));
                        let bound = lower_bound(&problem).get();
                        prop_assert!(bound <= planned.plan.latency().get() * (1.0 + 1e-12) + 1e-9);
                    }
                    Err(refused) => {
                        prop_assert_eq!(refused.clusters.len(), instance.clusters.len());
                        let short = |(_, why): &(_, Exclusion)| matches!(why, Exclusion::Shortage { .. });
                        prop_assert!(refused.clusters.iter().all(short));
                    }
                }
            }
        }
    };
}

properties!(200);

mod soak {
    use super::*;

    properties!(1500);
}

/// An entry in front of several tasks takes no slot: where it arrives, none need be free.
#[test]
fn the_bound_does_not_wait_for_a_slot_that_an_entry_in_front_of_several_does_not_take() {
    let cluster = |name: &str, speed, free| {
        let slots = std::iter::once(ms(free)).collect();
        Cluster::new(id(name), Speed::new(speed), 0).with_slots(slots)
    };
    let instance = Instance {
        dag: dag(&[(20.0, 0), (1.0, 0)], &[]),
        clusters: vec![cluster("a", 5.0, 0.0), cluster("b", 1.0, 9.0)],
        network: Network::instant(2),
        distance: vec![ms(10.0), ms(0.0)],
        options: Options::default(),
    };
    // The request is at b at once, its larger task starts on a, and is back after 4 + 10.
    let problem = instance.problem();
    let latency = place(Policy::Lrtf, &problem)
        .expect("it fits")
        .plan
        .latency();
    assert!(
        lower_bound(&problem) <= latency,
        "{} > {latency}",
        lower_bound(&problem)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn held_for_its_task_only_what_fits_alone_is_never_refused(raw in raw(10, 3), policy in any_policy()) {
        let mut instance = raw.build();
        instance.options.hold = Hold::Task;
        let problem = instance.problem();
        let fits_somewhere = |task| instance.clusters.iter().any(|c| instance.dag.task(task).demand.fits(&c.free));
        let fits = instance.dag.indices().all(fits_somewhere);
        prop_assert_eq!(place(policy, &problem).is_ok(), fits);
        prop_assert_eq!(lower_bound(&problem).is_finite(), fits);
    }

    #[test]
    fn scaling_all_times_scales_the_latency(raw in raw(10, 4), policy in any_policy(), power in -3i32..6) {
        let scale = 2.0f64.powi(power);
        let (small, large) = (raw.build(), raw.build_scaled(scale));
        match (assignment(policy, &small.problem()), assignment(policy, &large.problem())) {
            (Some((a, short)), Some((b, long))) => {
                prop_assert_eq!(a, b);
                prop_assert!(close(short * scale, long), "{} {}", short, long);
            }
            (a, b) => prop_assert_eq!(a, b),
        }
        let bounds = (lower_bound(&small.problem()), lower_bound(&large.problem()));
        prop_assert!(!bounds.0.is_finite() || close(bounds.0 * scale, bounds.1));
    }

    #[test]
    fn on_one_cluster_with_one_slot_the_latency_is_all_work_and_both_ways(raw in raw(10, 1), policy in any_policy()) {
        let mut raw = raw;
        raw.clusters[0].slots = vec![0];
        raw.clusters[0].free = 1 << 40;
        let instance = raw.build();
        let problem = instance.problem();
        let planned = place(policy, &problem).expect("unlimited");
        let speed = instance.clusters[0].speed;
        let work = instance.dag.indices().fold(Millis::ZERO, |sum, task| sum + speed.time(instance.dag.task(task).work));
        prop_assert!(close(planned.plan.latency(), work + instance.distance[0] * 2.0));
        let empty = work == Millis::ZERO;
        prop_assert!(empty || close(lower_bound(&problem), planned.plan.latency()));
    }

    #[test]
    fn a_cluster_that_cannot_be_used_changes_nothing(raw in raw(8, 3), policy in any_policy(), front in any::<bool>(), kind in 0u8..5) {
        let instance = raw.build();
        let extra = || Cluster::new(id("extra"), Speed::new(1000.0), 8);
        let (cluster, distance) = match kind {
            0 => (extra(), Millis::INFINITY),
            1 => (Cluster::new(id("extra"), Speed::new(1e-7), 8), Millis::ZERO),
            2 => (Cluster::new(id("extra"), Speed::new(0.0), 8), Millis::ZERO),
            3 => (extra().with_availability(Availability::Down), Millis::ZERO),
            _ => (Cluster::new(id("extra"), Speed::new(1000.0), 0), Millis::ZERO),
        };
        let wider = with_cluster(&instance, cluster, distance, front);
        match (assignment(policy, &instance.problem()), assignment(policy, &wider.problem())) {
            (Some((before, latency)), Some((after, wider_latency))) => {
                prop_assert!(close(latency, wider_latency));
                prop_assert_eq!(before, after);
            }
            (before, after) => prop_assert_eq!(before, after),
        }
        let (narrow, wide) = (lower_bound(&instance.problem()), lower_bound(&wider.problem()));
        prop_assert!(narrow == wide || close(narrow, wide));
    }

    #[test]
    fn nothing_depends_on_what_was_placed_before_or_on_the_report(first in raw(8, 4), second in raw(8, 4), policy in any_policy()) {
        let (first, second) = (first.build(), second.build());
        let mut used = policy.placer(BUDGET);
        let _ = used.place(&first.problem(), Detail::Full);
        let quiet = used.place(&second.problem(), Detail::Nothing);
        let fresh = policy.placer(BUDGET).place(&second.problem(), Detail::Full);
        match (quiet, fresh) {
            (Ok(quiet), Ok(fresh)) => {
                prop_assert_eq!(&quiet.plan, &fresh.plan);
                prop_assert!(quiet.report.tasks.is_empty());
                let explained = if is_event_driven(policy) { 0 } else { second.dag.len() };
                prop_assert_eq!(fresh.report.tasks.len(), explained);
                for report in &fresh.report.tasks {
                    let home = fresh.plan.placement(report.task).cluster;
                    prop_assert_eq!(report.chosen().cluster, home);
                    prop_assert_eq!(report.chosen().terms.finish, fresh.plan.placement(report.task).finish);
                }
            }
            (quiet, fresh) => prop_assert_eq!(quiet, fresh),
        }
    }

    #[test]
    fn the_portfolio_is_never_worse_than_a_part(raw in raw(12, 4)) {
        let instance = raw.build();
        let problem = instance.problem();
        let mut portfolio = Portfolio::default();
        let best = portfolio.place(&problem, Detail::Nothing).map(|planned| planned.plan.latency());
        for part in portfolio.parts() {
            if let Ok(planned) = part.place(&problem, Detail::Nothing) {
                prop_assert!(best.as_ref().is_ok_and(|best| *best <= planned.plan.latency()));
            }
        }
    }

    /// What several jobs' plans take together, applied one after the other: never more slots, never more of what is there.
    #[test]
    fn jobs_one_after_the_other_share_slots_and_resources(
        raws in prop::collection::vec(raw(7, 2), 1..6),
        policies in prop::collection::vec(any_policy(), 6),
        hold in prop_oneof![Just(Hold::Job), Just(Hold::Task)],
    ) {
        let first = raws[0].build().clusters;
        let mut clusters = first.clone();
        let mut runs = Vec::new();
        for (raw, policy) in raws.iter().zip(policies) {
            let Some(job) = on_clusters(raw, &clusters, hold) else { continue };
            let problem = job.problem();
            let Ok(planned) = place(policy, &problem) else { continue };
            prop_assert_eq!(check(&problem, &planned.plan), Ok(()));
            planned.plan.apply(&job.dag, hold, &mut clusters);
            if !planned.plan.runs().is_empty() {
                // Paused tasks do not run from start to finish; the next jobs' plans say enough.
                continue;
            }
            for task in job.dag.indices() {
                runs.push((*planned.plan.placement(task), job.dag.task(task).demand.memory_mib.get()));
            }
        }
        runs.retain(|(run, _)| run.start < run.finish);
        for (at, _) in &runs {
            let running = |p: &Placement| p.cluster == at.cluster && p.start <= at.start && at.start < p.finish;
            let cluster = &first[at.cluster.get()];
            let taken = cluster.slots.available().iter().filter(|until| **until > at.start).count();
            let together = runs.iter().filter(|(run, _)| running(run));
            prop_assert!(together.clone().count() + taken <= cluster.slots.len());
            let held: u64 = together.map(|(_, demand)| demand).sum();
            prop_assert!(hold == Hold::Job || held <= cluster.free.memory_mib.get());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn no_policy_beats_the_optimum_and_the_optimum_does_not_beat_the_bound(raw in raw(5, 3)) {
        let mut instance = raw.build();
        instance.options.hold = Hold::Job;
        // One slot each, as the oracle needs it under held resources.
        for cluster in &mut instance.clusters {
            cluster.slots = [cluster.slots.earliest()].into_iter().collect();
        }
        let problem = instance.problem();
        let optimum = optimum(&problem);
        if let Some(optimum) = optimum {
            let bound = lower_bound(&problem).get();
            prop_assert!(bound <= optimum + 1e-9, "{} {}", bound, optimum);
        }
        let fair = |policy: &Policy| instance.dag.virtual_entry().is_none() || !is_event_driven(*policy);
        for policy in Policy::ALL.into_iter().filter(fair).filter(|policy| *policy != Policy::Lrtf) {
            if let Ok(planned) = place(policy, &problem) {
                let optimum = optimum.expect("a schedule exists");
                let latency = planned.plan.latency().get();
                prop_assert!(optimum <= latency + 1e-9, "{}: {} {}", policy, optimum, latency);
            }
        }
    }
}

/// The job of `raw` on clusters that earlier jobs have used; `None` if it was drawn for another number of them.
fn on_clusters(raw: &Raw, clusters: &[Cluster], hold: Hold) -> Option<Instance> {
    let mut job = raw.build();
    if job.clusters.len() != clusters.len() {
        return None;
    }
    job.clusters = clusters.to_vec();
    job.options.hold = hold;
    Some(job)
}

#[test]
fn large_jobs_pass_the_checker_and_repeat_exactly() {
    let searches_small_jobs_only = |policy: &Policy| *policy == Policy::Exact;
    let policies = Policy::ALL
        .into_iter()
        .filter(|policy| !searches_small_jobs_only(policy));
    for (seed, policy) in (0..).zip(policies) {
        let clusters = 1 + seed as usize % 5;
        let (job, again) = (
            random_job(300, clusters, seed),
            random_job(300, clusters, seed),
        );
        let problem =
            Problem::new(&job.dag, &job.clusters, &job.network, &job.distance).expect("fits");
        let twin = Problem::new(&again.dag, &again.clusters, &again.network, &again.distance)
            .expect("fits");
        let plan = place(policy, &problem).expect("unlimited").plan;
        assert_eq!(check(&problem, &plan), Ok(()));
        let repeated = place(policy, &twin).expect("unlimited").plan;
        let bits = |plan: &fdn_scheduling::place::Plan| -> Vec<u64> {
            let finish = |p: &Placement| p.finish.get().to_bits();
            plan.placements().iter().map(finish).collect()
        };
        assert_eq!(bits(&plan), bits(&repeated), "{policy}");
    }
}
