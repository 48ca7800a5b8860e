//! Verifies a plan against every rule, independently of the placer that made it.
//!
//! It shares no arithmetic with the placers: transfer times come from the network pair by pair, slots and resources are replayed from the
//! placements alone, and the latency is recomputed. All violations are returned, not only the first.
//!
//! Rules: one placement for each task, on a cluster that takes work; it lasts exactly `w(c,p)`, or, if the plan has pre-empted tasks
//! ([`Plan::runs`]), its runs do together, the first of which starts and the last of which ends with it; the entry starts no earlier than
//! the request arrives, every other task no earlier than each parent's finish plus transfer; no slot runs two tasks at once, nor one
//! before it is free; no cluster holds more than it has free, pre-empted tasks included, no container more than the largest node has; the
//! latency is the last exit's finish plus the way back. Times may differ by one part in 10^9.
//!
//! O(m log m + |E|); O(m^2) where resources are held per task.

use fdn_core::{ClusterId, Millis, Resources};

use crate::dag::{TaskIndex, Transfer};
use crate::place::{ClusterIndex, Exclusion, Hold, Placement, Plan, Problem, Run};

/// The relative tolerance within which times are equal.
const TOLERANCE: f64 = 1e-9;

/// A violated rule.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// The number of placements is not the number of tasks.
    #[error("{placements} placements for {tasks} tasks")]
    Count {
        /// The number of placements.
        placements: usize,
        /// The number of tasks.
        tasks: usize,
    },
    /// A task is on an unknown cluster.
    #[error("task {task} is on cluster {cluster}, which does not exist")]
    NoSuchCluster {
        /// The task.
        task: TaskIndex,
        /// The cluster.
        cluster: ClusterIndex,
    },
    /// A task is in an unknown slot.
    #[error("task {task} is in slot {slot} of {cluster}, which does not exist")]
    NoSuchSlot {
        /// The task.
        task: TaskIndex,
        /// The cluster.
        cluster: ClusterId,
        /// The slot.
        slot: u32,
    },
    /// A task is on a cluster that takes no work.
    #[error("task {task} is on {cluster}, which {why}")]
    Barred {
        /// The task.
        task: TaskIndex,
        /// The cluster.
        cluster: ClusterId,
        /// Why the cluster takes none.
        why: Exclusion,
    },
    /// A task's duration is wrong.
    #[error("task {task} lasts {lasts} instead of {work}")]
    Duration {
        /// The task.
        task: TaskIndex,
        /// Its duration in the plan.
        lasts: Millis,
        /// Its required duration.
        work: Millis,
    },
    /// The runs of a task do not match its placement, or overlap.
    #[error("task {task} is placed from {start} to {finish}, but its runs say otherwise")]
    Runs {
        /// The task.
        task: TaskIndex,
        /// The start of the offending run.
        start: Millis,
        /// The end of the offending run.
        finish: Millis,
    },
    /// A task starts before its request or its parents' data has arrived.
    #[error("task {task} starts at {start}, what it needs is there at {ready}")]
    Early {
        /// The task.
        task: TaskIndex,
        /// Its start in the plan.
        start: Millis,
        /// The earliest time at which it could start.
        ready: Millis,
    },
    /// A slot runs two tasks at once, or one before the slot is free.
    #[error("slot {slot} of {cluster} starts task {task} at {start}, but is busy until {until}")]
    Overlap {
        /// The cluster.
        cluster: ClusterId,
        /// The slot.
        slot: u32,
        /// The later task.
        task: TaskIndex,
        /// Its start in the plan.
        start: Millis,
        /// Until when the slot is busy.
        until: Millis,
    },
    /// A cluster holds more than it has free.
    #[error("{cluster} has {free} free but holds {held}")]
    Overcommitted {
        /// The cluster.
        cluster: ClusterId,
        /// The cluster's free resources.
        free: Resources,
        /// The resources held at one moment.
        held: Resources,
    },
    /// A container exceeds what any node of its cluster has.
    #[error("task {task} wants {wanted}, the largest node of {cluster} has {largest}")]
    TooLarge {
        /// The task.
        task: TaskIndex,
        /// The cluster.
        cluster: ClusterId,
        /// The container's demand.
        wanted: Resources,
        /// The bound of a single container.
        largest: Resources,
    },
    /// The plan's latency does not follow from its placements.
    #[error("the latency is said to be {said}, but is {actual}")]
    Latency {
        /// The latency that the plan states.
        said: Millis,
        /// The latency that follows from its placements.
        actual: Millis,
    },
}

/// Checks all rules.
///
/// # Errors
/// All violations.
pub fn check(problem: &Problem<'_>, plan: &Plan) -> Result<(), Vec<Violation>> {
    let mut found = Vec::new();
    shape(problem, plan, &mut found);
    if found.is_empty() {
        durations(problem, plan, &mut found);
        precedence(problem, plan, &mut found);
        slots(problem, plan, &mut found);
        resources(problem, plan, &mut found);
        latency(problem, plan, &mut found);
    }
    if found.is_empty() { Ok(()) } else { Err(found) }
}

/// Whether `a` is before `b` by more than the tolerance.
fn before(a: Millis, b: Millis) -> bool {
    a.get() < b.get() - TOLERANCE * b.get().abs().max(1.0)
}

fn differ(a: Millis, b: Millis) -> bool {
    before(a, b) || before(b, a)
}

fn placed(plan: &Plan) -> impl Iterator<Item = (TaskIndex, &Placement)> {
    plan.placements()
        .iter()
        .enumerate()
        .map(|(task, placement)| (TaskIndex::new(task), placement))
}

/// All runs, by task: those of the plan, and one for each task that is not pre-empted.
fn runs(plan: &Plan) -> Vec<Run> {
    let mut runs = plan.runs().to_vec();
    if runs.is_empty() {
        runs.extend(placed(plan).map(|(task, placement)| Run {
            task,
            slot: placement.slot,
            start: placement.start,
            finish: placement.finish,
        }));
    }
    runs.sort_by_key(|run| (run.task, run.start, run.finish));
    runs
}

fn shape(problem: &Problem<'_>, plan: &Plan, found: &mut Vec<Violation>) {
    let (placements, tasks) = (plan.placements().len(), problem.dag().len());
    if placements != tasks {
        found.push(Violation::Count { placements, tasks });
        return;
    }
    let barred = problem.cluster_exclusions();
    for (task, placement) in placed(plan) {
        let Some(cluster) = problem.clusters().get(placement.cluster.get()) else {
            found.push(Violation::NoSuchCluster {
                task,
                cluster: placement.cluster,
            });
            continue;
        };
        if let Some(why) = barred[placement.cluster.get()] {
            found.push(Violation::Barred {
                task,
                cluster: cluster.id.clone(),
                why,
            });
        }
    }
    for Run { task, slot, .. } in runs(plan) {
        let placement = plan.placements().get(task.get());
        let cluster = placement.and_then(|p| problem.clusters().get(p.cluster.get()));
        if let Some(cluster) = cluster.filter(|cluster| slot as usize >= cluster.slots.len()) {
            found.push(Violation::NoSuchSlot {
                task,
                cluster: cluster.id.clone(),
                slot,
            });
        }
        if placement.is_none() {
            found.push(Violation::Count {
                placements: task.get() + 1,
                tasks,
            });
        }
    }
}

fn durations(problem: &Problem<'_>, plan: &Plan, found: &mut Vec<Violation>) {
    let runs = runs(plan);
    let mut rest = runs.as_slice();
    for (task, placement) in placed(plan) {
        let own;
        (own, rest) = rest.split_at(rest.partition_point(|run| run.task == task));
        let (start, finish) = (placement.start, placement.finish);
        let ends = own.first().zip(own.last());
        let spans = ends.is_some_and(|(a, b)| !differ(a.start, start) && !differ(b.finish, finish));
        let overlaps = |pair: &[Run]| before(pair[1].start, pair[0].finish);
        if !spans || own.windows(2).any(overlaps) {
            found.push(Violation::Runs {
                task,
                start,
                finish,
            });
            continue;
        }
        // Compared as finish times, because late times have larger rounding errors than short durations.
        let lasts = own
            .iter()
            .fold(Millis::ZERO, |sum, run| sum + (run.finish - run.start));
        let work = problem.work(task, placement.cluster);
        if differ(start + work, start + lasts) {
            found.push(Violation::Duration { task, lasts, work });
        }
    }
}

fn precedence(problem: &Problem<'_>, plan: &Plan, found: &mut Vec<Violation>) {
    for (task, placement) in placed(plan) {
        let here = placement.cluster.get();
        let entry = (task == problem.dag().entry()).then(|| problem.distance()[here]);
        let request = problem.arrival() + entry.unwrap_or(Millis::ZERO);
        let arrives = |(parent, transfer): (TaskIndex, Transfer)| {
            let from = plan.placement(parent);
            let there = from.cluster.get();
            let omega = match transfer {
                _ if there == here => Millis::ZERO,
                Transfer::Fixed(time) => time,
                Transfer::Data(size) => problem.network().time(there, here, size.as_bytes()),
            };
            from.finish + omega
        };
        let ready = problem
            .dag()
            .parents(task)
            .map(arrives)
            .fold(request, Millis::max);
        if before(placement.start, ready) {
            found.push(Violation::Early {
                task,
                start: placement.start,
                ready,
            });
        }
    }
}

/// Checks the slots; tasks of no duration occupy none.
fn slots(problem: &Problem<'_>, plan: &Plan, found: &mut Vec<Violation>) {
    let mut runs: Vec<(ClusterIndex, u32, Millis, Millis, TaskIndex)> = runs(plan)
        .into_iter()
        .filter(|run| run.start < run.finish)
        .map(|run| {
            let cluster = plan.placement(run.task).cluster;
            (cluster, run.slot, run.start, run.finish, run.task)
        })
        .collect();
    runs.sort_unstable();
    let mut last = None;
    let mut until = Millis::ZERO;
    for (cluster, slot, start, finish, task) in runs {
        let state = &problem.clusters()[cluster.get()];
        if last != Some((cluster, slot)) {
            last = Some((cluster, slot));
            until = state.slots.available()[slot as usize];
        }
        if before(start, until) {
            found.push(Violation::Overlap {
                cluster: state.id.clone(),
                slot,
                task,
                start,
                until,
            });
        }
        until = until.max(finish);
    }
}

fn resources(problem: &Problem<'_>, plan: &Plan, found: &mut Vec<Violation>) {
    let demand = |task| &problem.dag().task(task).demand;
    for (p, cluster) in problem.clusters().iter().enumerate() {
        let here: Vec<(TaskIndex, &Placement)> = placed(plan)
            .filter(|(_, placement)| placement.cluster.get() == p)
            .collect();
        for (task, _) in &here {
            if !demand(*task).fits(&cluster.largest) {
                found.push(Violation::TooLarge {
                    task: *task,
                    cluster: cluster.id.clone(),
                    wanted: *demand(*task),
                    largest: cluster.largest,
                });
            }
        }
        if let Some(held) = overcommitment(problem, cluster.free, &here) {
            found.push(Violation::Overcommitted {
                cluster: cluster.id.clone(),
                free: cluster.free,
                held,
            });
        }
    }
}

/// Checks the resources held. They grow only when a task starts, so checking those moments suffices. Under [`Hold::Task`], a task of no
/// duration must only fit by itself.
fn overcommitment(
    problem: &Problem<'_>,
    free: Resources,
    here: &[(TaskIndex, &Placement)],
) -> Option<Resources> {
    let held = |running: &dyn Fn(&Placement) -> bool| {
        here.iter()
            .filter(|(_, placement)| running(placement))
            .fold(Resources::default(), |sum, (task, _)| {
                sum.saturating_add(&problem.dag().task(*task).demand)
            })
    };
    let moments: Vec<Resources> = match problem.options().hold {
        Hold::Job => vec![held(&|_| true)],
        Hold::Task => here
            .iter()
            .map(|(_, at)| {
                let brief = at.start == at.finish;
                held(&|other| {
                    let running = !before(at.start, other.start) && before(at.start, other.finish);
                    std::ptr::eq(*at, other) || (!brief && running)
                })
            })
            .collect(),
    };
    moments.into_iter().find(|held| !held.fits(&free))
}

fn latency(problem: &Problem<'_>, plan: &Plan, found: &mut Vec<Violation>) {
    let actual = placed(plan)
        .filter(|(task, _)| problem.dag().is_exit(*task))
        .map(|(_, p)| p.finish + problem.distance()[p.cluster.get()] - problem.arrival())
        .fold(Millis::ZERO, Millis::max);
    if differ(actual, plan.latency()) {
        found.push(Violation::Latency {
            said: plan.latency(),
            actual,
        });
    }
}
