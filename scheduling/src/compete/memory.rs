//! How much memory of each cluster the planned placements need.
//!
//! **Model.** Calls that arrive `lambda` times a second and take `S` on average keep `L = lambda S` of them running (Little's law). How
//! many containers hold memory for them depends on the runtime:
//!
//! - containers that live as long as a call ([`Holding::Calls`]): `L / 0.95`. Many functions share a cluster's memory, so means add up;
//!   beyond [`FULL`] of it waits would be unbounded.
//! - instances that stay, for `c` concurrent calls each ([`Holding::Instances`]): `ceil((L + sqrt L) / c)`, the number that the nodes' autoscaler
//!   aims at ([`crate::scale`], the square-root staffing rule), and at least one if there are any calls.
//!
//! Client groups of one app share its instances in a cluster, so `L` is that of all of them: a second group may need no further instance.
//!
//! **Invariant.** The memory needed of a cluster is the sum over all tasks of all apps, whatever the order in which groups came and went.

use fdn_core::{MebiBytes, MilliCpu, Millis, Resources};

use super::{FULL, GroupDemand, Rate};
use crate::dag::{Holding, TaskIndex};
use crate::place::{Cluster, ClusterIndex, Memory};

/// Tolerance by which rounding errors may exceed a whole number of instances without adding one.
const EPSILON: f64 = 1e-6;
/// Loads up to this, in erlangs, count as none (one call of a millisecond in ten days): they are the rounding error left after groups have gone.
const NONE: f64 = 1e-9;

/// How many containers hold memory for calls that arrive at `rate` and run for `time` each; a fraction where it is a mean over time. Zero
/// for an infinite `time`: such a task cannot run there.
#[must_use]
pub fn containers(rate: Rate, time: Millis, holding: Holding) -> f64 {
    if time.is_finite() {
        of_erlangs(rate.erlangs(time), holding)
    } else {
        0.0
    }
}

fn of_erlangs(erlangs: f64, holding: Holding) -> f64 {
    if erlangs <= NONE {
        return 0.0;
    }
    match holding {
        Holding::Calls => erlangs / FULL,
        Holding::Instances(seats) => {
            let seats = f64::from(seats.get());
            ((erlangs + erlangs.sqrt()) / seats - EPSILON)
                .ceil()
                .max(1.0)
        }
    }
}

/// The load of the groups of one app on one cluster with one task.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    erlangs: f64,
    demands: u32,
    /// The number of containers for that load.
    count: f64,
}

/// The memory needed of each cluster, with the loads that make it up.
#[derive(Debug)]
pub(super) struct Ledger {
    clusters: usize,
    /// By app: the index of its first cell; cells are ordered by task, then by cluster. `None` for an app without a load so far.
    apps: Vec<Option<usize>>,
    cells: Vec<Cell>,
    needed: Vec<Memory>,
}

impl Ledger {
    /// No memory needed of any of `clusters` clusters.
    pub(super) fn new(clusters: usize) -> Self {
        Self {
            clusters,
            apps: Vec::new(),
            cells: Vec::new(),
            needed: vec![Memory::default(); clusters],
        }
    }

    /// The memory needed of each cluster.
    pub(super) fn needed(&self) -> &[Memory] {
        &self.needed
    }

    /// Adds a demand's tasks to the given clusters, by task.
    pub(super) fn put(
        &mut self,
        demand: &GroupDemand<'_>,
        places: &[ClusterIndex],
        clusters: &[Cluster],
    ) {
        self.change(demand, places, clusters, |cell, erlangs| {
            cell.erlangs += erlangs;
            cell.demands += 1;
        });
    }

    /// Reverts [`Ledger::put`].
    pub(super) fn take(
        &mut self,
        demand: &GroupDemand<'_>,
        places: &[ClusterIndex],
        clusters: &[Cluster],
    ) {
        self.change(demand, places, clusters, |cell, erlangs| {
            cell.demands = cell.demands.saturating_sub(1);
            // The last group's departure clears what rounding has left.
            cell.erlangs = if cell.demands == 0 {
                0.0
            } else {
                (cell.erlangs - erlangs).max(0.0)
            };
        });
    }

    fn change(
        &mut self,
        demand: &GroupDemand<'_>,
        places: &[ClusterIndex],
        clusters: &[Cluster],
        step: impl Fn(&mut Cell, f64),
    ) {
        let first = self.first(demand);
        for (task, place) in (0..demand.dag.given()).zip(places) {
            let Some(need) = MemoryDemand::of(demand, task, place.get(), clusters) else {
                continue;
            };
            let cell = &mut self.cells[first + task * self.clusters + place.get()];
            step(cell, need.erlangs);
            let count = of_erlangs(cell.erlangs, need.holding);
            let change = count - std::mem::replace(&mut cell.count, count);
            let needed = &mut self.needed[place.get()];
            *needed = *needed + need.each.times(change);
        }
    }

    /// The index of the first cell of a demand's app; adds its cells if it has none.
    fn first(&mut self, demand: &GroupDemand<'_>) -> usize {
        if self.apps.len() <= demand.app {
            self.apps.resize(demand.app + 1, None);
        }
        let (cells, size) = (&mut self.cells, demand.dag.given() * self.clusters);
        *self.apps[demand.app].get_or_insert_with(|| {
            let first = cells.len();
            cells.resize(first + size, Cell::default());
            first
        })
    }

    /// The resources that the demand's app holds on the demand's clusters, in whole containers, as (cluster, resources) by task.
    pub(super) fn held(
        &self,
        demand: &GroupDemand<'_>,
        places: &[ClusterIndex],
    ) -> Vec<(usize, Resources)> {
        let Some(first) = self.apps.get(demand.app).copied().flatten() else {
            return Vec::new();
        };
        let tasks = (0..demand.dag.given()).zip(places);
        let there = tasks.filter(|(_, place)| place.get() < self.clusters);
        let held = there.map(|(task, place)| {
            let count = self.cells[first + task * self.clusters + place.get()].count;
            let need = &demand.dag.task(TaskIndex::new(task)).demand;
            (place.get(), times(need, count.ceil() as u64))
        });
        held.collect()
    }

    /// The additional memory that a task with this demand would need on cluster `at`.
    pub(super) fn more(
        &self,
        (app, task): (usize, usize),
        at: usize,
        need: &MemoryDemand,
    ) -> Memory {
        let first = self.apps.get(app).copied().flatten();
        let cell = first.map_or_else(Cell::default, |first| {
            self.cells[first + task * self.clusters + at]
        });
        let count = of_erlangs(cell.erlangs + need.erlangs, need.holding);
        need.each.times(count - cell.count)
    }
}

/// A resource vector multiplied by `count`.
fn times(need: &Resources, count: u64) -> Resources {
    Resources {
        cpu_milli: MilliCpu(need.cpu_milli.get().saturating_mul(count)),
        memory_mib: MebiBytes(need.memory_mib.get().saturating_mul(count)),
        gpu_memory_mib: MebiBytes(need.gpu_memory_mib.get().saturating_mul(count)),
    }
}

/// The demand of one of a demand's tasks on a cluster.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryDemand {
    erlangs: f64,
    holding: Holding,
    /// The memory of one container.
    each: Memory,
}

impl MemoryDemand {
    /// `None` where the task would never end, since an infinite load could not be subtracted again.
    pub(super) fn of(
        demand: &GroupDemand<'_>,
        task: usize,
        at: usize,
        clusters: &[Cluster],
    ) -> Option<Self> {
        let factor = demand.factor(task, at, clusters.len());
        let task = demand.dag.task(TaskIndex::new(task));
        // The same time as the load is counted with.
        let time = clusters.get(at)?.speed.time(task.mean()) * factor;
        time.is_finite().then(|| Self {
            erlangs: demand.rate.erlangs(time),
            holding: task.holding,
            each: Memory::of(&task.demand),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use proptest::prelude::*;

    use super::*;
    use crate::dag::{Dag, DagBuilder};
    use crate::place::Speed;

    fn seats(count: u32) -> Holding {
        Holding::Instances(NonZeroU32::new(count).expect("some"))
    }

    fn count(rate: f64, time: f64, holding: Holding) -> f64 {
        containers(Rate::per_second(rate), Millis::new(time), holding)
    }

    #[test]
    fn instances_are_what_the_autoscaler_asks_for() {
        // L = 4, and two beside it.
        assert_eq!(count(40.0, 100.0, seats(1)), 6.0);
        assert_eq!(count(40.0, 100.0, seats(3)), 2.0);
        assert_eq!(count(40.0, 100.0, seats(4)), 2.0);
        assert_eq!(count(40.0, 100.0, seats(6)), 1.0);
        assert_eq!(count(0.001, 1.0, seats(1)), 1.0, "one for any call");
        assert_eq!(count(0.0, 100.0, seats(1)), 0.0);
        assert_eq!(count(1.0, f64::INFINITY, seats(1)), 0.0);
    }

    #[test]
    fn calls_hold_memory_while_they_run() {
        assert!((count(9.5, 100.0, Holding::Calls) - 1.0).abs() < 1e-12);
        assert!(count(0.001, 1.0, Holding::Calls) < 1e-5);
    }

    fn dag(holding: Holding, memory: u64) -> Dag {
        let mut builder = DagBuilder::new();
        let need = Resources::new(MilliCpu(100), MebiBytes(memory));
        let task = builder.task("f", Millis::new(100.0), need);
        builder.holding(task, holding);
        builder.build().expect("a task")
    }

    fn demand(app: usize, dag: &Dag, rate: f64) -> GroupDemand<'_> {
        GroupDemand {
            app,
            dag,
            distance: &[],
            rate: Rate::per_second(rate),
            before: None,
            constraints: None,
            factors: None,
            dwells: false,
        }
    }

    fn clusters(speeds: &[f64]) -> Vec<Cluster> {
        let cluster = |speed: &f64| {
            let id = "c".parse().expect("a name");
            Cluster::new(id, Speed::new(*speed), 1)
        };
        speeds.iter().map(cluster).collect()
    }

    #[test]
    fn groups_of_an_app_share_its_instances_and_apps_do_not() {
        let (dag, clusters) = (dag(seats(10), 512), clusters(&[1.0, 4.0]));
        let mut ledger = Ledger::new(2);
        let here = [ClusterIndex::new(0)];
        let (one, other) = (demand(3, &dag, 20.0), demand(5, &dag, 20.0));
        ledger.put(&one, &here, &clusters);
        assert_eq!(ledger.needed()[0].main, 512.0);
        let more = |demand: &GroupDemand<'_>, at: usize| {
            let need = MemoryDemand::of(demand, 0, at, &clusters).expect("it ends");
            ledger.more((demand.app, 0), at, &need).main
        };
        assert_eq!(more(&one, 0), 0.0, "L = 4 of ten seats");
        assert_eq!((more(&other, 0), more(&one, 1)), (512.0, 512.0));
        let huge = demand(3, &dag, 400.0);
        // L = 42 here; a fast cluster holds fewer: L = 10 there.
        assert_eq!((more(&huge, 0), more(&huge, 1)), (4.0 * 512.0, 2.0 * 512.0));
        ledger.put(&other, &here, &clusters);
        ledger.take(&one, &here, &clusters);
        assert_eq!(ledger.needed()[0].main, 512.0);
        ledger.take(&other, &here, &clusters);
        assert_eq!(ledger.needed(), [Memory::default(); 2]);
    }

    #[test]
    fn a_place_that_is_slower_than_its_speed_says_needs_more() {
        let (dag, clusters) = (dag(seats(10), 512), clusters(&[1.0, 1.0]));
        let slow = GroupDemand {
            factors: Some(&[10.0, 1.0]),
            ..demand(3, &dag, 20.0)
        };
        let mut ledger = Ledger::new(2);
        let more = |ledger: &Ledger, at: usize| {
            let need = MemoryDemand::of(&slow, 0, at, &clusters).expect("it ends");
            ledger.more((slow.app, 0), at, &need).main
        };
        // L = 20 and 2, of ten seats each.
        assert_eq!((more(&ledger, 0), more(&ledger, 1)), (3.0 * 512.0, 512.0));
        ledger.put(&slow, &[ClusterIndex::new(0)], &clusters);
        assert_eq!(ledger.needed()[0].main, 3.0 * 512.0);
        ledger.take(&slow, &[ClusterIndex::new(0)], &clusters);
        assert_eq!(ledger.needed(), [Memory::default(); 2]);
    }

    #[test]
    fn what_is_gone_or_never_ends_needs_nothing() {
        let (dag, clusters) = (dag(seats(1), 512), clusters(&[0.0]));
        let mut ledger = Ledger::new(1);
        for at in [0, 7] {
            let place = [ClusterIndex::new(at)];
            ledger.put(&demand(0, &dag, 20.0), &place, &clusters);
            ledger.take(&demand(0, &dag, 20.0), &place, &clusters);
        }
        assert_eq!(ledger.needed(), [Memory::default()]);
    }

    proptest! {
        /// Whatever comes and goes in whatever order: what is needed is what is there, counted afresh.
        #[test]
        fn needs_are_the_sum_over_what_is_there(
            steps in prop::collection::vec((0usize..4, 0usize..3, 0.0f64..200.0), 1..60),
            concurrency in 0u32..4,
        ) {
            let holding = NonZeroU32::new(concurrency).map_or(Holding::Calls, Holding::Instances);
            let (dag, clusters) = (dag(holding, 100), clusters(&[0.5, 1.0, 2.0]));
            let mut ledger = Ledger::new(3);
            let mut sums = [[0.0_f64; 3]; 4];
            for (app, at, rate) in &steps {
                ledger.put(&demand(*app, &dag, *rate), &[ClusterIndex::new(*at)], &clusters);
            }
            for (number, (app, at, rate)) in steps.iter().enumerate() {
                if number % 2 == 0 {
                    ledger.take(&demand(*app, &dag, *rate), &[ClusterIndex::new(*at)], &clusters);
                } else {
                    sums[*app][*at] += rate;
                }
            }
            for (at, needed) in ledger.needed().iter().enumerate() {
                let fresh: f64 = sums
                    .iter()
                    .map(|row| {
                        let time = clusters[at].speed.time(Millis::new(100.0));
                        containers(Rate::per_second(row[at]), time, holding) * 100.0
                    })
                    .sum();
                // Sums in another order may round to one instance more or less where that is exactly between.
                prop_assert!((needed.main - fresh).abs() <= 1e-6 * (1.0 + fresh) , "{} {}", needed.main, fresh);
            }
        }

        /// More calls never need fewer containers, and together they need no more than apart.
        #[test]
        fn containers_grow_with_calls_and_sharing_saves(a in 0.0f64..1e4, b in 0.0f64..1e4, concurrency in 0u32..50) {
            let holding = NonZeroU32::new(concurrency).map_or(Holding::Calls, Holding::Instances);
            let at = |rate: f64| count(rate, 10.0, holding);
            prop_assert!(at(a) <= at(a + b) && at(b) <= at(a + b));
            prop_assert!(at(a + b) <= at(a) + at(b) + 1e-6);
        }
    }
}
