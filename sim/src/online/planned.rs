//! Jobs planned whole when they arrive, and the plans carried out.
//!
//! A plan is made with what is expected: nothing late, every container as long as its work says. Then the world is as it is. The
//! plan's clusters and slots stand, and so does the order in each slot: a container starts when the one before it in its slot
//! has ended and its data is there. Times are as they come; as expected, they are those of the plan. That is what a plan is:
//! what lies between two reservations stays unused, and a container that is late makes those behind it late.
//!
//! Resources other than slots are left aside: the clusters must have them without limit.

use fdn_core::{Millis, Resources};
use fdn_scheduling::dag::TaskIndex;
use fdn_scheduling::place::{
    Cluster, ClusterIndex, Detail, Heft, HeuOrche, Options, Placement, Placer, Plan, Problem, Score,
};

use super::{End, Ran, Scenario, Schedule};
use crate::Error;

/// How jobs are planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planner {
    /// Heu-Orche: after everything that was planned before.
    Append,
    /// Heu-Orche with the order that the article's prose suggests.
    AppendInverse,
    /// HEFT: into the gaps between all that was planned before.
    Insert,
}

/// Plans every job when it arrives, and carries the plans out.
///
/// # Errors
/// When a job cannot be placed, or the scenario has changes of clusters or limited resources, which are left aside here.
pub fn run(scenario: &Scenario, planner: Planner) -> Result<Schedule, Error> {
    let limited = |cluster: &Cluster| cluster.free != Resources::UNLIMITED;
    if !scenario.changes.is_empty() || scenario.clusters.iter().any(limited) {
        return Err(Error::Usage(
            "plans are carried out as they are; leave out changes of clusters and limits of their resources".to_owned(),
        ));
    }
    let plans = plan(scenario, planner)?;
    Ok(carry_out(scenario, &plans))
}

fn plan(scenario: &Scenario, planner: Planner) -> Result<Vec<Plan>, Error> {
    let mut clusters = scenario.clusters.clone();
    let (mut append, mut insert) = (HeuOrche::default(), Heft::default());
    let options = Options {
        score: match planner {
            Planner::AppendInverse => Score::Inverse,
            Planner::Append | Planner::Insert => Score::Normal,
        },
        ..Options::default()
    };
    let mut plans = Vec::with_capacity(scenario.jobs.len());
    for job in &scenario.jobs {
        let usage = |error: &dyn std::error::Error| Error::Usage(error.to_string());
        let problem = Problem::new(&job.dag, &clusters, &scenario.network, &job.distance)
            .and_then(|problem| problem.with_arrival(job.at))
            .map_err(|error| usage(&error))?
            .with_options(options);
        let planned = match planner {
            Planner::Append | Planner::AppendInverse => append.place(&problem, Detail::Nothing),
            Planner::Insert => insert.place_next(&problem, Detail::Nothing),
        };
        let plan = planned
            .map_err(|error| Error::Infeasible(error.to_string()))?
            .plan;
        reserve(&plan, &mut clusters);
        plans.push(plan);
    }
    Ok(plans)
}

/// Notes until when each slot is taken. The slots keep their numbers, which the plans to come go by.
fn reserve(plan: &Plan, clusters: &mut [Cluster]) {
    for (p, cluster) in clusters.iter_mut().enumerate() {
        let mut free = cluster.slots.available();
        for placement in plan.placements() {
            if placement.cluster.get() == p {
                let free = &mut free[placement.slot as usize];
                *free = (*free).max(placement.finish);
            }
        }
        cluster.slots = free.into_iter().collect();
    }
}

fn carry_out(scenario: &Scenario, plans: &[Plan]) -> Schedule {
    let clusters = scenario.clusters.iter();
    let mut slots: Vec<Vec<Millis>> = clusters.map(|c| c.slots.available()).collect();
    let mut ended: Vec<Vec<(ClusterIndex, Millis)>> = plans
        .iter()
        .map(|plan| vec![(ClusterIndex::new(0), Millis::ZERO); plan.placements().len()])
        .collect();
    let mut schedule = Schedule {
        latency: vec![Some(Millis::ZERO); plans.len()],
        ..Schedule::default()
    };
    for (job, task) in by_start(plans) {
        let Placement { cluster, slot, .. } = *plans[job].placement(task);
        let dag = &scenario.jobs[job].dag;
        let ready = if task == dag.entry() {
            scenario.request(job, scenario.jobs[job].at, cluster)
        } else {
            scenario.data(job, task, cluster, |parent| ended[job][parent.get()])
        };
        let free = &mut slots[cluster.get()][slot as usize];
        let start = ready.max(*free);
        let end = start + scenario.duration(job, task, cluster);
        *free = end;
        ended[job][task.get()] = (cluster, end);
        schedule.bindings += 1;
        schedule.runs.push(Ran {
            job,
            task,
            cluster,
            slot,
            start,
            end,
            how: End::Finished,
        });
        if dag.is_exit(task) {
            let latency = end + scenario.leg(job, task, cluster) - scenario.jobs[job].at;
            let last = &mut schedule.latency[job];
            *last = last.map(|last| last.max(latency));
        }
    }
    schedule.runs.sort_by_key(|ran| ran.end);
    schedule
}

/// All tasks in the order of their planned starts; those that start together in the order in which they were planned, which has
/// parents first.
fn by_start(plans: &[Plan]) -> Vec<(usize, TaskIndex)> {
    let mut all: Vec<(Millis, usize, usize, TaskIndex)> = plans
        .iter()
        .enumerate()
        .flat_map(|(job, plan)| {
            let tasks = plan.order().iter().enumerate();
            tasks.map(move |(at, task)| (plan.placement(*task).start, job, at, *task))
        })
        .collect();
    all.sort_unstable();
    all.into_iter()
        .map(|(_, job, _, task)| (job, task))
        .collect()
}
