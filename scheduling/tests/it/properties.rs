//! What holds for every instance.

use fdn_core::{MebiBytes, Millis, Resources};
use fdn_scheduling::checker::check;
use fdn_scheduling::dag::TaskIndex;
use fdn_scheduling::place::{
    Availability, Cluster, Detail, Exclusion, HeuOrche, Hold, Link, Network, Placement, Placer,
    Problem, Score, Speed, heu_orche, scores,
};
use proptest::prelude::*;

use crate::instance::{Instance, Raw, id, mib, ms, raw};
use crate::random::random_job;

/// Adds a cluster in front of or behind the others.
pub(crate) fn with_cluster(
    instance: &Instance,
    cluster: Cluster,
    distance: Millis,
    front: bool,
) -> Instance {
    let mut wider = instance.clone();
    let n = instance.clusters.len();
    let at = if front { 0 } else { n };
    wider.clusters.insert(at, cluster);
    wider.distance.insert(at, distance);
    let old = |p: usize| p.checked_sub(usize::from(front)).filter(|p| *p < n);
    wider.network = Network::from_fn(n + 1, |from, to| match (old(from), old(to)) {
        (Some(from), Some(to)) => {
            let latency = instance.network.time(from, to, 0);
            let ms_per_mb = instance.network.time(from, to, 1_000_000) - latency;
            let bandwidth = fdn_scheduling::place::Bandwidth::from_mb_per_s(1e3 / ms_per_mb.get())
                .expect("a positive rate");
            Link { latency, bandwidth }
        }
        _ => Link::INSTANT,
    });
    wider
}

fn assignment(problem: &Problem<'_>) -> Option<(Vec<String>, Millis)> {
    let plan = heu_orche(problem).ok()?.plan;
    let names = plan
        .placements()
        .iter()
        .map(|p| problem.clusters()[p.cluster.get()].id.to_string())
        .collect();
    Some((names, plan.latency()))
}

pub(crate) fn close(a: Millis, b: Millis) -> bool {
    (a.get() - b.get()).abs() <= 1e-9 * a.get().abs().max(1.0)
}

fn free_memory(clusters: &[Cluster]) -> Vec<u64> {
    clusters.iter().map(|c| c.free.memory_mib.get()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn every_plan_passes_the_checker(raw in raw(12, 5), inverse in any::<bool>()) {
        let mut instance = raw.build();
        if inverse {
            instance.options.score = Score::Inverse;
        }
        let problem = instance.problem();
        match heu_orche(&problem) {
            Ok(planned) => prop_assert_eq!(check(&problem, &planned.plan), Ok(())),
            Err(refused) => {
                prop_assert_eq!(refused.clusters.len(), instance.clusters.len());
                let short = |(_, why): &(_, Exclusion)| matches!(why, Exclusion::Shortage { .. });
                prop_assert!(refused.clusters.iter().all(short));
            }
        }
    }

    #[test]
    fn a_parent_scores_more_than_its_child(raw in raw(10, 4)) {
        let instance = raw.build();
        let problem = instance.problem();
        let scores = scores(&problem);
        for task in instance.dag.indices() {
            for (child, _) in instance.dag.children(task) {
                prop_assert!(scores[task.get()] >= scores[child.get()]);
                if instance.dag.task(task).work > Millis::ZERO {
                    prop_assert!(scores[task.get()] > scores[child.get()]);
                }
            }
        }
    }

    #[test]
    fn parents_are_placed_before_children(raw in raw(10, 3), inverse in any::<bool>()) {
        let mut instance = raw.build();
        instance.options.score = if inverse { Score::Inverse } else { Score::Normal };
        if let Ok(planned) = heu_orche(&instance.problem()) {
            let position = |task: TaskIndex| planned.plan.order().iter().position(|t| *t == task);
            for task in instance.dag.indices() {
                for (child, _) in instance.dag.children(task) {
                    prop_assert!(position(task) < position(child));
                }
            }
        }
    }

    #[test]
    fn a_cluster_that_cannot_be_used_changes_nothing(raw in raw(8, 3), front in any::<bool>(), kind in 0u8..5) {
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
        match (assignment(&instance.problem()), assignment(&wider.problem())) {
            (Some((before, latency)), Some((after, wider_latency))) => {
                prop_assert!(close(latency, wider_latency));
                prop_assert_eq!(before, after);
            }
            (before, after) => prop_assert_eq!(before, after),
        }
    }

    #[test]
    fn scaling_all_times_scales_the_latency(raw in raw(10, 4), power in -3i32..6) {
        let scale = 2.0f64.powi(power);
        let (small, large) = (raw.build(), raw.build_scaled(scale));
        match (assignment(&small.problem()), assignment(&large.problem())) {
            (Some((a, short)), Some((b, long))) => {
                prop_assert_eq!(a, b);
                prop_assert!(close(short * scale, long), "{} {}", short, long);
            }
            (a, b) => prop_assert_eq!(a, b),
        }
    }

    #[test]
    fn on_one_cluster_with_one_slot_the_latency_is_all_work_and_both_ways(raw in raw(10, 1)) {
        let mut raw = raw;
        raw.clusters[0].slots = vec![0];
        raw.clusters[0].free = 1 << 40;
        raw.hold_task = false;
        let instance = raw.build();
        let problem = instance.problem();
        let planned = heu_orche(&problem).expect("unlimited");
        let speed = instance.clusters[0].speed;
        let work = instance.dag.indices().fold(Millis::ZERO, |sum, task| sum + speed.time(instance.dag.task(task).work));
        prop_assert!(close(planned.plan.latency(), work + instance.distance[0] * 2.0));
    }

    #[test]
    fn nothing_depends_on_what_was_placed_before_or_on_the_report(first in raw(8, 4), second in raw(8, 4)) {
        let (first, second) = (first.build(), second.build());
        let mut used = HeuOrche::default();
        let _ = used.place(&first.problem(), Detail::Full);
        let quiet = used.place(&second.problem(), Detail::Nothing);
        let fresh = heu_orche(&second.problem());
        match (quiet, fresh) {
            (Ok(quiet), Ok(fresh)) => {
                prop_assert_eq!(&quiet.plan, &fresh.plan);
                prop_assert!(quiet.report.tasks.is_empty());
                prop_assert_eq!(fresh.report.tasks.len(), second.dag.len());
            }
            (quiet, fresh) => prop_assert_eq!(quiet, fresh),
        }
    }

    #[test]
    fn job_after_job_no_resource_goes_below_zero_and_all_come_back(raws in prop::collection::vec(raw(6, 3), 1..6)) {
        let mut clusters = raws[0].build().clusters;
        let before = free_memory(&clusters);
        let mut running = Vec::new();
        let mut held = vec![0; clusters.len()];
        for raw in &raws {
            let Some(job) = on_clusters(raw, &clusters) else { continue };
            let problem = job.problem();
            let Ok(planned) = heu_orche(&problem) else { continue };
            prop_assert_eq!(check(&problem, &planned.plan), Ok(()));
            planned.plan.apply(&job.dag, Hold::Job, &mut clusters);
            for task in job.dag.indices() {
                held[planned.plan.placement(task).cluster.get()] += job.dag.task(task).demand.memory_mib.get();
            }
            for ((free, held), before) in free_memory(&clusters).iter().zip(&held).zip(&before) {
                prop_assert!(held <= before);
                prop_assert_eq!(free + held, *before);
            }
            running.push((job.dag.clone(), planned.plan));
        }
        for (dag, plan) in running {
            plan.release(&dag, Hold::Job, &mut clusters);
        }
        prop_assert_eq!(free_memory(&clusters), before);
    }

    /// Held while each container runs only, the running containers of all jobs together never exceed what is there.
    #[test]
    fn jobs_that_hold_while_they_run_share_what_is_there(raws in prop::collection::vec(raw(6, 2), 1..6)) {
        let mut clusters = raws[0].build().clusters;
        let mut runs = Vec::new();
        for raw in &raws {
            let Some(mut job) = on_clusters(raw, &clusters) else { continue };
            job.options.hold = Hold::Task;
            let Ok(planned) = heu_orche(&job.problem()) else { continue };
            planned.plan.apply(&job.dag, Hold::Task, &mut clusters);
            for task in job.dag.indices() {
                runs.push((*planned.plan.placement(task), job.dag.task(task).demand.memory_mib.get()));
            }
        }
        for (at, _) in runs.iter().filter(|(at, _)| at.start < at.finish) {
            let running = |p: &Placement| p.cluster == at.cluster && p.start <= at.start && at.start < p.finish;
            let held: u64 = runs.iter().filter(|(p, _)| running(p)).map(|(_, demand)| demand).sum();
            prop_assert!(held <= clusters[at.cluster.get()].free.memory_mib.get());
        }
    }

    #[test]
    fn evaluating_a_plan_gives_the_same_plan(raw in raw(9, 4)) {
        let instance = raw.build();
        let problem = instance.problem();
        if let Ok(planned) = heu_orche(&problem) {
            let again = HeuOrche::default()
                .evaluate(&problem, |task| Some(planned.plan.placement(task).cluster));
            prop_assert_eq!(again, Ok(planned.plan));
        }
    }

    #[test]
    fn held_for_its_task_only_what_fits_alone_is_never_refused(raw in raw(10, 3)) {
        let mut instance = raw.build();
        instance.options.hold = Hold::Task;
        let problem = instance.problem();
        let fits_somewhere = |task| instance.clusters.iter().any(|c| instance.dag.task(task).demand.fits(&c.free));
        prop_assert_eq!(heu_orche(&problem).is_ok(), instance.dag.indices().all(fits_somewhere));
    }
}

/// The job of `raw` on clusters that earlier jobs have used; `None` if it was drawn for another number of them.
fn on_clusters(raw: &Raw, clusters: &[Cluster]) -> Option<Instance> {
    let mut job = raw.build();
    if job.clusters.len() != clusters.len() {
        return None;
    }
    job.clusters = clusters.to_vec();
    job.options.hold = Hold::Job;
    Some(job)
}

#[test]
fn what_keeps_a_job_out_is_said_for_each_cluster() {
    let cluster = |name: &str| Cluster::new(id(name), Speed::new(1.0), 1);
    let instance = Instance {
        dag: crate::instance::dag(&[(10.0, 64)], &[]),
        clusters: vec![
            cluster("gone").with_availability(Availability::Down),
            cluster("leaving").with_availability(Availability::Draining),
            cluster("full").with_free(mib(63)),
            // Enough in all, but no single node has room.
            cluster("split").with_free(mib(500)).with_largest(mib(50)),
            Cluster::new(id("empty"), Speed::new(1.0), 0),
            cluster("beyond"),
            Cluster::new(id("slow"), Speed::new(1e-9), 1),
        ],
        network: Network::instant(7),
        distance: [1.0, 1.0, 1.0, 1.0, 1.0, f64::INFINITY, 1.0].map(ms).into(),
        options: fdn_scheduling::place::Options::default(),
    };
    let refused = heu_orche(&instance.problem()).expect_err("nowhere to go");
    assert_eq!(
        refused.to_string(),
        "no cluster can take t0: gone (does not answer), leaving (is draining), \
         full (wants 64 MiB memory, 63 MiB free), split (wants 64 MiB memory, 50 MiB free), \
         empty (has no slot for calls), beyond (cannot be reached by the client), \
         slow (is too slow to count)"
    );
    let nowhere = Instance {
        clusters: Vec::new(),
        network: Network::instant(0),
        distance: Vec::new(),
        ..instance
    };
    let refused = heu_orche(&nowhere.problem()).expect_err("no cluster");
    assert_eq!(refused.to_string(), "no cluster can take t0: there is none");
}

#[test]
fn a_long_refusal_names_some_and_counts_the_rest() {
    let clusters: Vec<Cluster> = (0..60)
        .map(|i| Cluster::new(id(&format!("c{i}")), Speed::new(1.0), 0))
        .collect();
    let instance = Instance {
        dag: crate::instance::dag(&[(1.0, 0)], &[]),
        network: Network::instant(60),
        distance: vec![Millis::ZERO; 60],
        clusters,
        options: fdn_scheduling::place::Options::default(),
    };
    let text = heu_orche(&instance.problem())
        .expect_err("no slots")
        .to_string();
    assert!(
        text.ends_with("c7 (has no slot for calls) and 52 more"),
        "{text}"
    );
}

#[test]
fn data_that_cannot_cross_stays() {
    use fdn_core::ByteSize;
    use fdn_scheduling::dag::Transfer;
    // The second task would run a hundred times faster elsewhere, but there is no link.
    let mut instance = Instance {
        dag: crate::instance::dag(
            &[(1.0, 0), (1000.0, 0)],
            &[(0, 1, Transfer::Data(ByteSize::from_bytes(1)))],
        ),
        clusters: vec![
            Cluster::new(id("near"), Speed::new(1.0), 1),
            Cluster::new(id("fast"), Speed::new(100.0), 1),
        ],
        network: Network::uniform(2, Link::NONE),
        distance: vec![ms(0.0), ms(50.0)],
        options: fdn_scheduling::place::Options::default(),
    };
    let (names, _) = assignment(&instance.problem()).expect("it fits");
    assert_eq!(names, ["near", "near"]);
    instance.network = Network::instant(2);
    let (names, _) = assignment(&instance.problem()).expect("it fits");
    assert_eq!(names, ["near", "fast"]);
}

#[test]
fn large_jobs_pass_the_checker_and_repeat_exactly() {
    for seed in 0..6 {
        let job = random_job(400, 1 + seed as usize, seed);
        let again = random_job(400, 1 + seed as usize, seed);
        let problem =
            Problem::new(&job.dag, &job.clusters, &job.network, &job.distance).expect("fits");
        let twin = Problem::new(&again.dag, &again.clusters, &again.network, &again.distance)
            .expect("fits");
        let plan = heu_orche(&problem).expect("unlimited").plan;
        assert_eq!(check(&problem, &plan), Ok(()));
        let repeated = heu_orche(&twin).expect("unlimited").plan;
        let bits = |plan: &fdn_scheduling::place::Plan| -> Vec<u64> {
            let finish = |p: &fdn_scheduling::place::Placement| p.finish.get().to_bits();
            plan.placements().iter().map(finish).collect()
        };
        assert_eq!(bits(&plan), bits(&repeated));
    }
}

#[test]
fn what_runs_already_can_be_counted_as_free() {
    let mut cluster = Cluster::new(id("c"), Speed::new(1.0), 1)
        .with_free(mib(10))
        .with_largest(mib(10));
    cluster.give_back(&mib(54));
    assert_eq!(cluster.free.memory_mib, MebiBytes(64));
    assert_eq!(cluster.largest.memory_mib, MebiBytes(64));
    cluster.give_back(&Resources::UNLIMITED);
    assert_eq!(cluster.free.memory_mib, MebiBytes(u64::MAX));
}
