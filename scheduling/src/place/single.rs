//! A job of one task: the arithmetic of the [engine](super::engine) without its state.
//!
//! A planning pass evaluates every client group three times, and nearly all of them call a single function. Of what the engine prepares (a copy of
//! each cluster's slots, the order of the tasks, when their data arrives) such a job needs nothing, and on a given cluster only that cluster counts.
//!
//! **Complexity.** O(n) for the best of n clusters; O(1) for a given one where run times are given ([`Problem::with_costs`]), O(n) otherwise.
//!
//! **Invariant.** The result is that of the engine, to the last bit.

use fdn_core::Millis;

use super::engine::{Candidate, exclusion, left};
use super::infeasible::Exclusion;
use super::model::ClusterIndex;
use super::plan::{Placement, Plan};
use super::problem::{Hold, Problem};
use crate::dag::TaskIndex;

/// A problem whose job is one task.
#[derive(Clone, Copy, Debug)]
pub(super) struct Single<'a, 'p> {
    problem: &'a Problem<'p>,
    pub(super) task: TaskIndex,
}

impl<'a, 'p> Single<'a, 'p> {
    /// `None` for other jobs, and where resources are held per task: then a start may have to wait for what runs before it.
    pub(super) fn of(problem: &'a Problem<'p>) -> Option<Self> {
        let dag = problem.dag();
        (dag.len() == 1 && problem.options().hold == Hold::Job).then(|| Self {
            problem,
            task: dag.entry(),
        })
    }

    /// The task on a cluster, whether or not it is excluded from it.
    fn candidate(&self, cluster: usize, excluded: Option<Exclusion>) -> Candidate {
        let problem = self.problem;
        let ready = problem.arrival().get() + problem.distance()[cluster].get();
        let start = problem.clusters()[cluster]
            .slots
            .earliest()
            .get()
            .max(ready);
        let work = problem.work(self.task, ClusterIndex::new(cluster)).get();
        Candidate::new(problem, (cluster, true), (start, work), excluded)
    }

    /// What keeps the task from a cluster that takes part.
    fn exclusion(&self, cluster: usize) -> Option<Exclusion> {
        let problem = self.problem;
        let demand = &problem.dag().task(self.task).demand;
        let rest = (&problem.clusters()[cluster].free, &left(problem, cluster));
        exclusion(problem, (self.task.get(), demand), cluster, rest)
    }

    /// The task on a given cluster.
    pub(super) fn on(&self, cluster: usize) -> Candidate {
        let excluded = self.problem.cluster_exclusion()(cluster);
        self.candidate(cluster, excluded.or_else(|| self.exclusion(cluster)))
    }

    /// The cluster where the task finishes first, ties by the smaller index; `None` if all exclude it.
    pub(super) fn best(&self) -> Option<(usize, Candidate)> {
        let barrier = self.problem.cluster_exclusion();
        let mut best: Option<(usize, Candidate)> = None;
        for cluster in 0..self.problem.clusters().len() {
            let candidate = self.candidate(cluster, None);
            let is_later = best.is_some_and(|(_, best)| candidate.key >= best.key);
            if is_later || candidate.excluded.is_some() {
                continue;
            }
            let excluded = barrier(cluster).or_else(|| self.exclusion(cluster));
            if excluded.is_none() {
                best = Some((cluster, candidate));
            }
        }
        best
    }

    /// Writes the plan that puts the task on a cluster.
    pub(super) fn fill(&self, plan: &mut Plan, cluster: usize, candidate: &Candidate) {
        let placement = Placement {
            cluster: ClusterIndex::new(cluster),
            slot: self.problem.clusters()[cluster].slots.first(),
            start: Millis::new(candidate.start),
            finish: Millis::new(candidate.finish),
        };
        plan.fill(self.problem, &[placement], &[self.task]);
    }
}

#[cfg(test)]
mod tests {
    use fdn_core::{MebiBytes, MilliCpu, Resources};
    use proptest::prelude::*;

    use super::super::{
        Availability, Cluster, Constraints, Costs, Detail, HeuOrche, Memory, MemoryLimits, Network,
        Options, Placer, Slots, Speed,
    };
    use super::*;
    use crate::dag::Dag;

    /// Numbers of one cluster: speed, slots, free memory, distance, run time, whether it drains, excludes the task, needs more memory than is left.
    type Raw = (f64, Vec<f64>, u64, f64, f64, u8);

    fn raw() -> impl Strategy<Value = Raw> {
        (
            prop_oneof![Just(0.0), 0.1f64..4.0],
            prop::collection::vec(prop_oneof![Just(0.0), 0.0f64..50.0], 0..4),
            prop_oneof![Just(1000u64), 0u64..200],
            prop_oneof![Just(f64::INFINITY), Just(10.0), 0.0f64..100.0],
            prop_oneof![Just(f64::INFINITY), Just(20.0), 0.0f64..100.0],
            0u8..12,
        )
    }

    fn memory(main: f64) -> Memory {
        Memory { main, gpu: 0.0 }
    }

    proptest! {
        /// Whatever the clusters are like: the plan, or why there is none, is that of the engine, for the best cluster and for each.
        #[test]
        fn one_task_is_placed_as_by_the_engine(
            raw in prop::collection::vec(raw(), 1..7),
            (costs, limits, constraints, exit_leg, arrival) in (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), 0.0f64..9.0),
        ) {
            let demand = Resources::new(MilliCpu(0), MebiBytes(100));
            let dag = Dag::single("f", Millis::new(15.0), demand).expect("one task");
            let clusters: Vec<Cluster> = raw
                .iter()
                .enumerate()
                .map(|(n, (speed, slots, free, _, _, odd))| {
                    let slots: Slots = slots.iter().copied().map(Millis::new).collect();
                    let id = format!("c{n}").parse().expect("a name");
                    let mut cluster = Cluster::new(id, Speed::new(*speed), 0)
                        .with_slots(slots)
                        .with_free(Resources::new(MilliCpu(0), MebiBytes(*free)));
                    if *odd == 0 {
                        cluster.availability = Availability::Draining;
                    }
                    cluster
                })
                .collect();
            let distance: Vec<Millis> = raw.iter().map(|one| Millis::new(one.3)).collect();
            let network = Network::instant(clusters.len());
            let mut table = Costs::default();
            table.refill(1, clusters.len(), |_, at| Millis::new(raw[at].4));
            let mut memory_limits = MemoryLimits::default();
            let need = |_: usize, at: usize| memory(if raw[at].5 == 1 { 90.0 } else { 10.0 });
            memory_limits.refill((1, clusters.len()), need, |_| memory(50.0));
            let bars = Constraints::from_fn((1, clusters.len()), |_, at| {
                (raw[at].5 == 2).then_some(Exclusion::Draining)
            });
            let options = Options { exit_leg, ..Options::default() };
            let mut problem = Problem::new(&dag, &clusters, &network, &distance)
                .expect("consistent")
                .with_options(options)
                .with_arrival(Millis::new(arrival))
                .expect("finite");
            if costs {
                problem = problem.with_costs(&table).expect("consistent");
            }
            if limits {
                problem = problem.with_memory_limits(&memory_limits).expect("consistent");
            }
            if constraints {
                problem = problem.with_constraints(&bars).expect("consistent");
            }
            let chosen = Single::of(&problem).map(|single| single.best().is_some());
            let (mut placer, mut plan) = (HeuOrche::default(), Plan::default());
            let placed = placer.place_into(&problem, &mut plan);
            let by_engine = HeuOrche::default().place(&problem, Detail::Nothing);
            prop_assert_eq!(chosen, Some(by_engine.is_ok()));
            match by_engine {
                Ok(planned) => {
                    prop_assert_eq!(placed, Ok(()));
                    prop_assert_eq!(&plan, &planned.plan);
                }
                Err(why) => prop_assert_eq!(placed, Err(why)),
            }
            for at in 0..=clusters.len() {
                let assigned = |_: TaskIndex| Some(ClusterIndex::new(at));
                let evaluated = placer.evaluate_into(&problem, assigned, &mut plan);
                let plain = HeuOrche::default().evaluate(&problem, assigned);
                prop_assert_eq!(evaluated.map(|()| plan.clone()), plain);
            }
        }
    }
}
