//! Clusters that are told of an app ahead of its clients.
//!
//! **Problem.** Nobody is sent to a cluster that is not ready to serve an app while another one serves it; and only the clusters of an app's plans, and
//! some more, are told of it and so come to be ready. For clients who come later, or from elsewhere, the best cluster may be none of these: one that
//! joined, one that came back, one nearer to a place where nobody asked before. It would never be told.
//!
//! **Way.** With each plan it is asked which cluster that lacks nothing but time would serve these clients better by the margin, with its load as it
//! is. The time until it is ready costs nobody anything, since they are served meanwhile, so it decides nothing but when they are moved. The clusters that
//! would save an app's clients most, a few at a time, are told of it, and fetch and compile it. Once one is ready it is like any other to the planner.
//!
//! **Reading.** For an app of several stages a cluster counts by what it takes if it runs all of them; data that passes between two clusters is the
//! planner's to weigh.
//!
//! **Complexity.** O(clusters x stages) for each crowd of clients.

use std::collections::BTreeMap;

use fdn_core::Millis;
use fdn_scheduling::compete::Rate;
use fdn_scheduling::dag::TaskIndex;
use fdn_scheduling::place::{Availability, ClusterIndex, HeuOrche, Problem};
use fdn_scheduling::steer::{Margin, justifies};

/// Clusters that one app comes to at a time.
const AT_ONCE: usize = 2;
/// What clients count who have not called yet, in calls a second.
const NOBODY_YET: f64 = 1e-3;

/// The clusters that would serve an app's clients better, and what they would save: milliseconds of waiting in a second.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gains(BTreeMap<ClusterIndex, f64>);

impl Gains {
    /// Takes in some clients, whose calls cost `latency` as they are planned now ([`cost`]): the best for them among the clusters that are to `come`.
    pub fn note(
        &mut self,
        problem: &Problem<'_>,
        come: &[usize],
        (latency, rate): (Millis, Rate),
        margin: Margin,
    ) {
        let timed = come.iter().filter_map(|at| {
            let cluster = ClusterIndex::new(*at);
            Some((alone(problem, cluster)?, cluster))
        });
        let Some((time, cluster)) = timed.min() else {
            return;
        };
        if latency.is_finite() && justifies(latency, time, margin) {
            let calls = rate.get().max(NOBODY_YET);
            *self.0.entry(cluster).or_default() += (latency - time).get() * calls;
        }
    }

    /// The few that would save most.
    #[must_use]
    pub fn best(&self) -> Vec<ClusterIndex> {
        let mut all: Vec<(ClusterIndex, f64)> =
            self.0.iter().map(|(at, gain)| (*at, *gain)).collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        all.into_iter().take(AT_ONCE).map(|(at, _)| at).collect()
    }
}

/// What a call costs there, by what decides: tolls are in it.
#[must_use]
pub fn cost(problem: &Problem<'_>, placed: &[ClusterIndex]) -> Millis {
    let assigned = |task: TaskIndex| placed.get(task.get()).copied();
    let plan = HeuOrche::default().evaluate(problem, assigned);
    plan.map_or(Millis::INFINITY, |plan| plan.latency())
}

/// What a call takes that a cluster serves alone, from the client and back; nothing if it takes no work.
fn alone(problem: &Problem<'_>, cluster: ClusterIndex) -> Option<Millis> {
    let (at, dag) = (cluster.get(), problem.dag());
    let (there, way) = (problem.clusters().get(at)?, problem.distance().get(at)?);
    let slot = there.slots.earliest();
    if there.availability != Availability::Up || !way.is_finite() || !slot.is_finite() {
        return None;
    }
    let mut ends = vec![(*way).max(slot); dag.len()];
    let mut last = Millis::ZERO;
    for &task in dag.topological() {
        let parents = dag.parents(task).map(|(parent, _)| ends[parent.get()]);
        let start = parents.max().unwrap_or(ends[task.get()]);
        let end = start + problem.work(task, cluster);
        ends[task.get()] = end;
        last = last.max(end);
    }
    let back = if problem.options().exit_leg {
        *way
    } else {
        Millis::ZERO
    };
    Some(last + back).filter(|time| time.is_finite())
}

#[cfg(test)]
mod tests {
    use fdn_core::Resources;
    use fdn_scheduling::dag::{DagBuilder, Transfer};
    use fdn_scheduling::place::{Cluster, Network, Options, Speed};

    use super::*;

    fn ms(value: f64) -> Millis {
        Millis::new(value)
    }

    /// Clusters at these distances, each twice as fast as the reference.
    fn noted(distances: &[f64], come: &[usize], latency: f64, rate: f64, gains: &mut Gains) {
        let mut builder = DagBuilder::new();
        let names = ["in", "left", "right"];
        let [entry, left, right] =
            names.map(|name| builder.task(name, ms(20.0), Resources::default()));
        builder.edge(entry, left, Transfer::Fixed(ms(500.0)));
        builder.edge(entry, right, Transfer::Fixed(ms(500.0)));
        let dag = builder.build().expect("a DAG");
        let clusters: Vec<Cluster> = (0..distances.len())
            .map(|at| {
                Cluster::new(
                    format!("c-{at}").parse().expect("cluster"),
                    Speed::new(2.0),
                    4,
                )
            })
            .collect();
        let network = Network::instant(clusters.len());
        let distance: Vec<Millis> = distances.iter().map(|one| ms(*one)).collect();
        let problem = Problem::new(&dag, &clusters, &network, &distance).expect("consistent");
        let problem = problem.with_options(Options {
            exit_leg: true,
            ..Options::default()
        });
        gains.note(
            &problem,
            come,
            (ms(latency), Rate::per_second(rate)),
            Margin::default(),
        );
    }

    fn best(gains: &Gains) -> Vec<usize> {
        gains.best().into_iter().map(ClusterIndex::get).collect()
    }

    #[test]
    fn a_cluster_that_would_serve_better_by_the_margin_is_told() {
        // There alone: twice the way, and two stages after one another.
        for (latency, told) in [(44.0, vec![]), (45.0, vec![1])] {
            let mut gains = Gains::default();
            noted(&[0.0, 10.0, 11.0], &[1, 2], latency, 1.0, &mut gains);
            assert_eq!(best(&gains), told, "{latency}");
        }
        let mut gains = Gains::default();
        noted(&[0.0, 10.0], &[], 1000.0, 1.0, &mut gains);
        noted(&[0.0, f64::INFINITY], &[1], 1000.0, 1.0, &mut gains);
        assert_eq!(gains, Gains::default());
    }

    #[test]
    fn those_that_save_most_are_told_and_a_few_at_a_time() {
        let mut gains = Gains::default();
        let come = [1, 2, 3];
        noted(&[0.0, 10.0, 90.0, 90.0], &come, 200.0, 1.0, &mut gains);
        noted(&[0.0, 90.0, 10.0, 90.0], &come, 200.0, 5.0, &mut gains);
        noted(&[0.0, 90.0, 90.0, 10.0], &come, 200.0, 3.0, &mut gains);
        assert_eq!(best(&gains), [2, 3]);
        // Many clients who save little each count together.
        for _ in 0..6 {
            noted(&[0.0, 10.0, 90.0, 90.0], &come, 200.0, 1.0, &mut gains);
        }
        assert_eq!(best(&gains), [1, 2]);
        // Who has not called yet counts after all who have.
        noted(&[0.0, 90.0, 90.0, 1.0], &come, 9000.0, 0.0, &mut gains);
        assert_eq!(best(&gains), [1, 2]);
    }
}
