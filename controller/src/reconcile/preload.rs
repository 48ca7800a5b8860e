//! Clusters that receive an app ahead of its clients.
//!
//! **Problem.** Clients are not sent to a cluster that is not ready to serve an app while another one serves it; and only the clusters of
//! an app's plans, and some more, receive it and thus become ready. For later clients, or clients from elsewhere, the best cluster may be
//! none of these: one that joined, one that returned, one nearer to a place from which nobody called before. It would never receive the
//! app.
//!
//! **Method.** With each plan, the clusters that lack nothing but time are checked for one that would serve these clients better by more
//! than the margin, under its present load. The time until it is ready costs nothing, since the clients are served meanwhile, so it only
//! decides when they are moved. The clusters that would save an app's clients most, a few at a time, receive the app, and fetch and
//! compile it. Once ready, such a cluster is like any other to the planner.
//!
//! **Reading.** For an app of several stages a cluster is judged as if it ran all of them; transfers between clusters are left to the planner.
//!
//! **Complexity.** O(clusters x stages) for each set of clients.

use std::collections::BTreeMap;

use fdn_core::Millis;
use fdn_scheduling::compete::Rate;
use fdn_scheduling::dag::TaskIndex;
use fdn_scheduling::place::{Availability, ClusterIndex, HeuOrche, Problem};
use fdn_scheduling::steer::{Margin, justifies};

/// How many clusters receive one app ahead of its clients at a time.
const AT_ONCE: usize = 2;
/// The call rate, per second, that stands for clients that have not called yet.
const NOBODY_YET: f64 = 1e-3;

/// By cluster that would serve an app's clients better: the waiting time saved, in ms per second.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gains(BTreeMap<ClusterIndex, f64>);

impl Gains {
    /// Adds a set of clients whose calls now cost `latency` ([`cost`]) at this rate: the gain goes to the best of the candidates in
    /// `come`, if it exceeds the margin.
    pub fn note(
        &mut self,
        problem: &Problem<'_>,
        come: &[usize],
        (latency, rate): (Millis, Rate),
        margin: Margin,
    ) {
        let timed = come.iter().filter_map(|at| {
            let cluster = ClusterIndex::new(*at);
            Some((single_cluster_latency(problem, cluster)?, cluster))
        });
        let Some((time, cluster)) = timed.min() else {
            return;
        };
        if latency.is_finite() && justifies(latency, time, margin) {
            let calls = rate.get().max(NOBODY_YET);
            *self.0.entry(cluster).or_default() += (latency - time).get() * calls;
        }
    }

    /// The few clusters that would save most, best first.
    #[must_use]
    pub fn best(&self) -> Vec<ClusterIndex> {
        let mut all: Vec<(ClusterIndex, f64)> =
            self.0.iter().map(|(at, gain)| (*at, *gain)).collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        all.into_iter().take(AT_ONCE).map(|(at, _)| at).collect()
    }
}

/// The cost of a call with its tasks on these clusters: the latency including the congestion toll; infinite if it cannot be served.
#[must_use]
pub fn cost(problem: &Problem<'_>, placed: &[ClusterIndex]) -> Millis {
    let assigned = |task: TaskIndex| placed.get(task.get()).copied();
    let plan = HeuOrche::default().evaluate(problem, assigned);
    plan.map_or(Millis::INFINITY, |plan| plan.latency())
}

/// The latency of a call served by one cluster alone, from the client and back; `None` if the cluster takes no work.
fn single_cluster_latency(problem: &Problem<'_>, cluster: ClusterIndex) -> Option<Millis> {
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
        // Alone there: the way there and back, and both stages in sequence.
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
        // The small gains of many clients add up.
        for _ in 0..6 {
            noted(&[0.0, 10.0, 90.0, 90.0], &come, 200.0, 1.0, &mut gains);
        }
        assert_eq!(best(&gains), [1, 2]);
        // Clients that have not called yet count less than all that have.
        noted(&[0.0, 90.0, 90.0, 1.0], &come, 9000.0, 0.0, &mut gains);
        assert_eq!(best(&gains), [1, 2]);
    }
}
