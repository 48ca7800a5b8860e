//! Whether a schedule keeps the rules, whoever made it.
//!
//! It looks at what ran, not at why: each container that was taken finishes once and not again; it runs only after each parent's
//! finish plus transfer, the entry only after the request could be there; a slot runs one container at a time; what runs at
//! once, or is paused, fits the cluster; runs of one container do not overlap and last as long as its work. Times may differ by
//! one part in 10^9. O(r log r + |E|) for r runs, and O(r k) for resources.

use std::collections::BTreeMap;

use fdn_core::{Millis, Resources};
use fdn_scheduling::dag::TaskIndex;
use fdn_scheduling::place::{ClusterIndex, Hold};

use super::{Change, End, Ran, Scenario, Schedule};
use crate::Error;

/// Times that differ by no more than this share are equal.
const TOLERANCE: f64 = 1e-9;

/// Checks every rule.
///
/// # Errors
/// The first that is broken.
pub fn check(scenario: &Scenario, schedule: &Schedule, hold: Hold) -> Result<(), Error> {
    let jobs = by_job(scenario, schedule)?;
    for (job, runs) in jobs.iter().enumerate() {
        if schedule.latency[job].is_some() {
            containers(scenario, job, runs)?;
        } else if !runs.is_empty() {
            return Err(broken(format!("job {job} was refused, but ran")));
        }
    }
    slots(scenario, schedule)?;
    resources(scenario, schedule, hold)
}

fn broken(what: String) -> Error {
    Error::Broken(what)
}

/// Whether `a` is before `b` by more than rounding.
fn before(a: Millis, b: Millis) -> bool {
    a.get() < b.get() - TOLERANCE * b.get().abs().max(1.0)
}

/// The runs of each job's tasks, by start.
type Runs<'a> = BTreeMap<TaskIndex, Vec<&'a Ran>>;

fn by_job<'a>(scenario: &Scenario, schedule: &'a Schedule) -> Result<Vec<Runs<'a>>, Error> {
    let mut jobs = vec![Runs::new(); scenario.jobs.len()];
    for ran in &schedule.runs {
        if before(ran.end, ran.start) {
            return Err(broken(format!("{ran:?} ends before it starts")));
        }
        jobs[ran.job].entry(ran.task).or_default().push(ran);
    }
    for runs in jobs.iter_mut().flat_map(BTreeMap::values_mut) {
        runs.sort_by_key(|ran| (ran.start, ran.end));
    }
    Ok(jobs)
}

fn containers(scenario: &Scenario, job: usize, runs: &Runs<'_>) -> Result<(), Error> {
    let dag = &scenario.jobs[job].dag;
    let mut ended: Vec<Option<(ClusterIndex, Millis)>> = vec![None; dag.len()];
    for &task in dag.topological() {
        if dag.virtual_entry() == Some(task) {
            continue;
        }
        let what = || format!("task {task} of job {job}");
        let runs = runs.get(&task).map_or(&[] as &[&Ran], Vec::as_slice);
        let last = match runs.iter().filter(|ran| ran.how == End::Finished).count() {
            1 => runs[runs.len() - 1],
            times => return Err(broken(format!("{} finishes {times} times", what()))),
        };
        if last.how != End::Finished {
            return Err(broken(format!("{} runs after it has finished", what())));
        }
        if runs
            .windows(2)
            .any(|pair| before(pair[1].start, pair[0].end))
        {
            return Err(broken(format!("{} runs twice at once", what())));
        }
        for ran in runs {
            let ready = ready(scenario, job, task, ran.cluster, &ended);
            if before(ran.start, ready) {
                let start = ran.start;
                return Err(broken(format!(
                    "{} starts at {start}, before {ready}",
                    what()
                )));
            }
        }
        duration(scenario, job, task, runs)?;
        ended[task.get()] = Some((last.cluster, last.end));
    }
    Ok(())
}

/// When a task's data can be on a cluster. A virtual entry is nowhere: what follows it waits for the request alone.
fn ready(
    scenario: &Scenario,
    job: usize,
    task: TaskIndex,
    cluster: ClusterIndex,
    ended: &[Option<(ClusterIndex, Millis)>],
) -> Millis {
    let sent = scenario.jobs[job].at;
    let dag = &scenario.jobs[job].dag;
    if task == dag.entry() {
        return scenario.request(job, sent, cluster);
    }
    scenario.data(job, task, cluster, |parent| {
        ended[parent.get()].unwrap_or((cluster, sent))
    })
}

/// What ran since the container's cluster was lost last, running or paused, together.
fn duration(scenario: &Scenario, job: usize, task: TaskIndex, runs: &[&Ran]) -> Result<(), Error> {
    let lost = runs
        .windows(2)
        .rposition(|pair| lost_between(scenario, pair[0], Some(pair[1])).is_some());
    let counted = &runs[lost.map_or(0, |lost| lost + 1)..];
    let cluster = counted[0].cluster;
    if counted.iter().any(|ran| ran.cluster != cluster) {
        return Err(broken(format!(
            "task {task} of job {job} moves while it is paused"
        )));
    }
    let whole = scenario.duration(job, task, cluster);
    let ran = counted
        .iter()
        .fold(Millis::ZERO, |sum, ran| sum + (ran.end - ran.start));
    // The difference of two late times is only as exact as these are.
    let exact = TOLERANCE * counted[counted.len() - 1].end.get().max(1.0);
    if (ran.get() - whole.get()).abs() > exact {
        return Err(broken(format!(
            "task {task} of job {job} ran for {ran} instead of {whole}"
        )));
    }
    Ok(())
}

/// Runs of no duration occupy nothing.
fn slots(scenario: &Scenario, schedule: &Schedule) -> Result<(), Error> {
    let mut runs: Vec<&Ran> = schedule
        .runs
        .iter()
        .filter(|ran| ran.start < ran.end)
        .collect();
    runs.sort_by_key(|ran| (ran.cluster, ran.slot, ran.start, ran.end));
    for ran in &runs {
        let slots = &scenario.clusters[ran.cluster.get()].slots;
        let free = slots.available().get(ran.slot as usize).copied();
        if free.is_none_or(|free| before(ran.start, free)) {
            return Err(broken(format!("{ran:?} has no such slot")));
        }
    }
    for pair in runs.windows(2) {
        let same = (pair[0].cluster, pair[0].slot) == (pair[1].cluster, pair[1].slot);
        if same && before(pair[1].start, pair[0].end) {
            return Err(broken(format!("{:?} and {:?} overlap", pair[0], pair[1])));
        }
    }
    Ok(())
}

/// Sweeps over the times at which something is taken or given back; what is given back at a time is free at that time.
fn resources(scenario: &Scenario, schedule: &Schedule, hold: Hold) -> Result<(), Error> {
    let mut steps: Vec<(Millis, bool, ClusterIndex, Resources)> = Vec::new();
    for (job, task, cluster, start, end) in holdings(scenario, schedule, hold) {
        let demand = scenario.jobs[job].dag.task(task).demand;
        if demand != Resources::default() && start < end {
            steps.push((start, true, cluster, demand));
            steps.push((end, false, cluster, demand));
        }
    }
    steps.sort_by_key(|(at, takes, cluster, _)| (*at, *takes, *cluster));
    let mut held = vec![Resources::default(); scenario.clusters.len()];
    for (at, takes, cluster, demand) in steps {
        let held = &mut held[cluster.get()];
        if takes {
            *held = held.saturating_add(&demand);
        } else {
            *held = held.checked_sub(&demand).unwrap_or_default();
        }
        let state = &scenario.clusters[cluster.get()];
        if !held.fits(&state.free) || !demand.fits(&state.largest) {
            return Err(broken(format!("{} holds {held} at {at}", state.id)));
        }
    }
    Ok(())
}

/// What each container holds: from its first start, or the first after its cluster was lost, to its end, or to that of its job
/// or cluster. One that is paused holds what it has, until it goes on or its cluster is lost.
fn holdings(
    scenario: &Scenario,
    schedule: &Schedule,
    hold: Hold,
) -> Vec<(usize, TaskIndex, ClusterIndex, Millis, Millis)> {
    let mut ends: BTreeMap<usize, Millis> = BTreeMap::new();
    let mut runs: Vec<&Ran> = schedule.runs.iter().collect();
    runs.sort_by_key(|ran| (ran.job, ran.task, ran.start, ran.end));
    for ran in &runs {
        let end = ends.entry(ran.job).or_default();
        *end = (*end).max(ran.end);
    }
    let mut held = Vec::new();
    let mut since = None;
    for (at, ran) in runs.iter().enumerate() {
        let start = *since.get_or_insert(ran.start);
        let next = runs.get(at + 1).copied();
        let next = next.filter(|next| (next.job, next.task) == (ran.job, ran.task));
        let lost = lost_between(scenario, ran, next);
        let end = match (hold, ran.how) {
            (Hold::Job | Hold::Task, End::Paused) if lost.is_none() && next.is_some() => continue,
            (Hold::Task, End::Finished) => ran.end,
            (Hold::Job, End::Finished) => {
                lost.map_or(ends[&ran.job], |lost| lost.min(ends[&ran.job]))
            }
            (Hold::Job | Hold::Task, End::Paused | End::Lost) => lost.unwrap_or(ran.end),
        };
        since = None;
        held.push((ran.job, ran.task, ran.cluster, start, end));
    }
    held
}

/// When what a run left on its cluster was lost with the cluster, if that was before the container's next run.
///
/// At one time clusters change before anything else happens: what ended then ended after the loss.
fn lost_between(scenario: &Scenario, ran: &Ran, next: Option<&Ran>) -> Option<Millis> {
    if ran.how == End::Lost {
        return Some(ran.end);
    }
    let lost = |(at, cluster, change): &&(Millis, ClusterIndex, Change)| {
        *cluster == ran.cluster && *change == Change::Lost && *at > ran.end
    };
    let lost = scenario.changes.iter().find(lost).map(|(at, ..)| *at);
    lost.filter(|lost| next.is_none_or(|next| *lost <= next.start))
}

#[cfg(test)]
mod tests;
