//! A plan with a report from an order and a cluster for each task, the form in which searches return their result.

use super::Detail;
use super::engine::Engine;
use super::explain::{Report, TaskReport};
use super::plan::{Plan, Planned};
use super::problem::Problem;
use super::rank::scores;
use super::timeline::Timeline;
use crate::dag::TaskIndex;

/// Sorts the tasks of a plan by their starts, into `order`.
///
/// Scheduled again in this order on their clusters, each at the earliest time, gaps included, no task starts later than in the plan: the
/// earlier ones run no longer than they did, so by induction the slots and resources it used are still free. That holds for every plan
/// that the checker accepts, however it was made.
pub(super) fn by_start(plan: &Plan, order: &mut Vec<TaskIndex>) {
    order.clear();
    order.extend_from_slice(plan.order());
    // Stable, so that a parent of no duration stays before its children.
    order.sort_by_key(|task| plan.placement(*task).start);
}

/// Places the tasks in a topological order, each on its cluster at the earliest time, gaps included.
///
/// # Panics
/// If a cluster cannot take the task assigned to it.
pub(super) fn replay(
    problem: &Problem<'_>,
    engine: &mut Engine<Timeline>,
    order: &[TaskIndex],
    cluster: impl Fn(TaskIndex) -> usize,
    detail: Detail,
) -> Planned {
    let scores = match detail {
        Detail::Nothing => Vec::new(),
        Detail::Full => scores(problem),
    };
    let mut report = Report::default();
    engine.begin(problem);
    for &task in order {
        let chosen = cluster(task);
        engine.take_up(problem, task);
        if let Some(&score) = scores.get(task.get()) {
            let explained = TaskReport::new(problem, engine, task, score, chosen);
            report.tasks.push(explained);
        }
        engine.put(problem, task, chosen);
    }
    Planned {
        plan: Plan::new(problem, engine.placements().to_vec(), order.to_vec()),
        report,
    }
}
