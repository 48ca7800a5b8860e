//! HEFT with insertion against the plainest arithmetic: every moment at which a task could start is tried.

use fdn_core::Millis;
use fdn_scheduling::dag::{TaskIndex, Transfer};
use fdn_scheduling::place::{
    ClusterIndex, Detail, Hold, Placement, Problem, Slots, heu_orche, scores,
};
use fdn_scheduling::policy::{Budget, Policy};
use proptest::prelude::*;

use crate::instance::{Instance, dag, id, mib, ms, raw};

/// What is on the clusters so far.
struct Board<'p> {
    problem: &'p Problem<'p>,
    placed: Vec<Option<Placement>>,
}

impl Board<'_> {
    fn on(&self, p: usize) -> impl Iterator<Item = (usize, &Placement)> {
        self.placed
            .iter()
            .enumerate()
            .filter_map(move |(task, at)| {
                at.as_ref()
                    .filter(|at| at.cluster.get() == p)
                    .map(|at| (task, at))
            })
    }

    fn memory(&self, task: usize) -> u64 {
        self.problem
            .dag()
            .task(TaskIndex::new(task))
            .demand
            .memory_mib
            .get()
    }

    fn ready(&self, task: TaskIndex, p: usize) -> f64 {
        let problem = self.problem;
        let arrives = |(parent, transfer): (TaskIndex, Transfer)| {
            let from = self.placed[parent.get()].expect("parents first");
            let omega = match transfer {
                _ if from.cluster.get() == p => 0.0,
                Transfer::Fixed(time) => time.get(),
                Transfer::Data(size) => {
                    let home = from.cluster.get();
                    problem.network().time(home, p, size.as_bytes()).get()
                }
            };
            from.finish.get() + omega
        };
        let request = problem.arrival().get();
        let mut parents = problem.dag().parents(task).peekable();
        if parents.peek().is_none() {
            return request + problem.distance()[p].get();
        }
        parents.map(arrives).fold(request, f64::max)
    }

    /// Whether some slot is idle during `[start, start + work)`.
    fn idle(&self, p: usize, start: f64, work: f64) -> bool {
        let free = self.problem.clusters()[p].slots.available();
        (0..free.len()).any(|slot| {
            let busy = |run: &Placement| {
                let (from, to) = (run.start.get(), run.finish.get());
                from < to && from < start + work && start < to || from < start && start < to
            };
            let mine = self.on(p).filter(|(_, run)| run.slot as usize == slot);
            free[slot].get() <= start && !mine.map(|(_, run)| run).any(busy)
        })
    }

    /// Whether the memory suffices at `start`, and whenever another task starts during the run.
    fn fits(&self, task: TaskIndex, p: usize, start: f64, work: f64) -> bool {
        let has = self.problem.clusters()[p].free.memory_mib.get();
        let wants = self.memory(task.get());
        let held = |at: f64| -> u64 {
            let running = |run: &Placement| run.start.get() <= at && at < run.finish.get();
            let tasks = self.on(p).filter(|(_, run)| running(run));
            tasks.map(|(task, _)| self.memory(task)).sum()
        };
        match self.problem.options().hold {
            Hold::Job => self.on(p).map(|(task, _)| self.memory(task)).sum::<u64>() + wants <= has,
            Hold::Task if work == 0.0 => wants <= has,
            Hold::Task => self
                .on(p)
                .map(|(_, run)| run.start.get())
                .filter(|at| start < *at && *at < start + work)
                .chain([start])
                .all(|at| held(at) + wants <= has),
        }
    }

    /// The earliest start and finish of a task on a cluster.
    fn times(&self, task: TaskIndex, p: usize) -> Option<(f64, f64)> {
        let work = self.problem.work(task, ClusterIndex::new(p)).get();
        let ready = self.ready(task, p);
        let free = self.problem.clusters()[p].slots.available();
        let ends = self.on(p).map(|(_, run)| run.finish.get());
        let mut moments: Vec<f64> = ends
            .chain(free.iter().map(|at| at.get()))
            .chain([ready])
            .collect();
        moments.retain(|at| *at >= ready);
        moments.sort_by(f64::total_cmp);
        let start = moments
            .into_iter()
            .find(|&at| self.idle(p, at, work) && self.fits(task, p, at, work))?;
        Some((start, start + work))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// Every choice is the first of the least finishes over all gaps (with the way back for exits, if asked).
    #[test]
    fn each_choice_of_heft_is_the_earliest_finish_over_all_gaps(raw in raw(10, 3)) {
        let instance = raw.build();
        let problem = instance.problem();
        let Ok(planned) = Policy::Heft.placer(Budget::default()).place(&problem, Detail::Nothing) else {
            return Ok(());
        };
        let plan = planned.plan;
        let mut board = Board { problem: &problem, placed: vec![None; problem.dag().len()] };
        for &task in plan.order() {
            let key = |p: usize, finish: f64| {
                let exit = raw.exit_leg && problem.dag().is_exit(task);
                if exit { finish + problem.distance()[p].get() } else { finish }
            };
            let (_, p, start) = (0..instance.clusters.len())
                .filter_map(|p| board.times(task, p).map(|(start, finish)| (key(p, finish), p, start)))
                .min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)))
                .expect("the placer found one");
            let placement = *plan.placement(task);
            prop_assert_eq!((placement.cluster.get(), placement.start.get()), (p, start));
            board.placed[task.get()] = Some(placement);
        }
    }

    /// On one slot and cluster nothing has to wait for anything, so there are no gaps, and HEFT is Heu-Orche.
    #[test]
    fn without_gaps_heft_is_heu_orche(raw in raw(10, 1)) {
        let mut raw = raw;
        raw.clusters[0].slots.truncate(1);
        for (work, _) in &mut raw.tasks {
            *work += 1;
        }
        let instance = raw.build();
        let problem = instance.problem();
        let heft = Policy::Heft.placer(Budget::default()).place(&problem, Detail::Nothing);
        match (heft, heu_orche(&problem)) {
            (Ok(heft), Ok(appended)) => prop_assert_eq!(heft.plan, appended.plan),
            (heft, appended) => prop_assert_eq!(heft, appended),
        }
    }

    #[test]
    fn heft_orders_by_score(raw in raw(10, 3)) {
        let instance = raw.build();
        let problem = instance.problem();
        let Ok(planned) = Policy::Heft.placer(Budget::default()).place(&problem, Detail::Nothing) else {
            return Ok(());
        };
        let scores = scores(&problem);
        // Scores that differ by rounding alone may stand in either order.
        for pair in planned.plan.order().windows(2) {
            let (first, second) = (scores[pair[0].get()].get(), scores[pair[1].get()].get());
            prop_assert!(first >= second * (1.0 - 1e-9), "{} {}", first, second);
        }
    }
}

/// What containers of earlier jobs hold while they run is there for insertion as it is for appending.
#[test]
fn gaps_beside_what_earlier_jobs_hold() {
    let mut instance = Instance {
        dag: dag(&[(10.0, 60), (4.0, 60)], &[]),
        clusters: vec![
            fdn_scheduling::place::Cluster::new(id("a"), fdn_scheduling::place::Speed::new(1.0), 2)
                .with_free(mib(100)),
        ],
        network: fdn_scheduling::place::Network::instant(1),
        distance: vec![ms(3.0)],
        options: fdn_scheduling::place::Options {
            hold: Hold::Task,
            ..fdn_scheduling::place::Options::default()
        },
    };
    let place = |instance: &Instance| {
        let placer = Policy::Heft
            .placer(Budget::default())
            .place(&instance.problem(), Detail::Nothing);
        placer.expect("each fits alone").plan
    };
    let starts = |plan: &fdn_scheduling::place::Plan| -> Vec<f64> {
        plan.placements()[..2]
            .iter()
            .map(|at| at.start.get())
            .collect()
    };
    let first = place(&instance);
    assert_eq!(starts(&first), [3.0, 13.0]);
    first.apply(&instance.dag, Hold::Task, &mut instance.clusters);
    // One slot is free from the start, but until 13 the first container holds the memory, and until 17 the second; the moment
    // before the first starts is too short.
    let second = place(&instance);
    assert_eq!(starts(&second), [17.0, 27.0]);
    let mut slots: Vec<Millis> = instance.clusters[0].slots.available();
    slots.sort_unstable();
    assert_eq!(slots, [13.0, 17.0].map(ms));
    instance.clusters[0].slots = Slots::idle(2);
    assert_eq!(place(&instance), first);
}
