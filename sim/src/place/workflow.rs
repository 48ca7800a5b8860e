//! Workflows in WfFormat 1.5, the form in which executions of workflows are published.
//!
//! **Source.** Coleman et al., "WfCommons: A Framework for Enabling Scientific Workflow Research and Development", FGCS 128, 2022,
//! and the JSON schema of WfFormat 1.5. Of it are read `workflow.specification.tasks[]` (`id`, `parents`, `children`, `inputFiles`,
//! `outputFiles`), `workflow.specification.files[]` (`id`, `sizeInBytes`) and `workflow.execution.tasks[]` (`id`, `runtimeInSeconds`,
//! `memoryInBytes`); all else is passed over.
//!
//! **Readings.** Work is the recorded run time, as if measured at speed 1. An edge carries the files that the parent writes and the
//! child reads, each once; without any it is precedence alone. Memory, where known, is what the task occupies, in whole MiB. Tasks are
//! in topological order, of those whose parents are through the one that is first in the file.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::path::Path;

use fdn_core::{ByteSize, MebiBytes, MilliCpu, Millis, Resources};
use fdn_scheduling::dag::{Dag, DagBuilder, TaskIndex, Transfer};
use serde::Deserialize;

use crate::{Error, input};

/// Where the tasks stand in a file.
const TASKS: &str = "workflow.specification.tasks";
const FILES: &str = "workflow.specification.files";
const RUNS: &str = "workflow.execution.tasks";

#[derive(Debug, Deserialize)]
struct File {
    workflow: Sections,
}

#[derive(Debug, Deserialize)]
struct Sections {
    specification: Specification,
    execution: Execution,
}

#[derive(Debug, Deserialize)]
struct Specification {
    tasks: Vec<Task>,
    #[serde(default)]
    files: Vec<Data>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Task {
    id: String,
    parents: Vec<String>,
    children: Vec<String>,
    #[serde(default)]
    input_files: Vec<String>,
    #[serde(default)]
    output_files: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data {
    id: String,
    size_in_bytes: u64,
}

#[derive(Debug, Deserialize)]
struct Execution {
    tasks: Vec<Recorded>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Recorded {
    id: String,
    runtime_in_seconds: f64,
    memory_in_bytes: Option<f64>,
}

/// A fault: the JSON path, and what was expected there.
type Fault = (String, String);

fn fault<T>(at: impl Into<String>, expected: impl Into<String>) -> Result<T, Fault> {
    Err((at.into(), expected.into()))
}

/// A recorded workflow.
#[derive(Clone, Debug)]
pub struct Workflow {
    dag: Dag,
}

impl Workflow {
    /// Reads a file, plain or gzip.
    ///
    /// # Errors
    /// When it cannot be read, or is no workflow: with the JSON path of the fault and what was expected there.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let file: File = input::json(path)?;
        let dag =
            build(&file.workflow).map_err(|(at, expected)| Error::input(path, at, expected))?;
        Ok(Self { dag })
    }

    /// Its tasks, by the ids of the file, and the data between them.
    #[must_use]
    pub const fn dag(&self) -> &Dag {
        &self.dag
    }
}

fn build(sections: &Sections) -> Result<Dag, Fault> {
    let Specification { tasks, files } = &sections.specification;
    let position = positions(TASKS, tasks.iter().map(|task| &task.id), "task")?;
    let file = positions(FILES, files.iter().map(|file| &file.id), "file")?;
    let parents = parents(tasks, &position)?;
    let data = Files::new(tasks, &file)?;
    let profiles = profiles(&sections.execution.tasks, tasks, &position)?;

    let order = order(&parents);
    let mut builder = DagBuilder::new();
    let mut index = vec![TaskIndex::new(0); tasks.len()];
    for &at in &order {
        let (work, demand) = profiles[at];
        index[at] = builder.task(tasks[at].id.as_str(), work, demand);
    }
    for &at in &order {
        for &parent in &parents[at] {
            let common = data.written[parent].intersection(&data.read[at]);
            let size = common.fold(0u64, |sum, &file| {
                sum.saturating_add(files[file].size_in_bytes)
            });
            let transfer = Transfer::Data(ByteSize::from_bytes(size));
            builder.edge(index[parent], index[at], transfer);
        }
    }
    builder
        .build()
        .or_else(|error| fault(TASKS, error.to_string()))
}

/// Where each id stands in a list; none may stand there twice.
fn positions<'a>(
    list: &str,
    ids: impl Iterator<Item = &'a String>,
    what: &str,
) -> Result<BTreeMap<&'a str, usize>, Fault> {
    let mut position = BTreeMap::new();
    for (at, id) in ids.enumerate() {
        if let Some(first) = position.insert(id.as_str(), at) {
            let expected = format!("{what} {id} is there already, as [{first}]; each id once");
            return fault(format!("{list}[{at}].id"), expected);
        }
    }
    Ok(position)
}

/// The parents of each task by position, ascending; what tasks say about their children must agree.
fn parents(tasks: &[Task], position: &BTreeMap<&str, usize>) -> Result<Vec<Vec<usize>>, Fault> {
    let edges = |field: &str, list: fn(&Task) -> &Vec<String>| {
        let mut edges = BTreeSet::new();
        for (at, task) in tasks.iter().enumerate() {
            for (i, id) in list(task).iter().enumerate() {
                let here = || format!("{TASKS}[{at}].{field}[{i}]");
                let Some(&other) = position.get(id.as_str()) else {
                    return fault(here(), format!("{id} is no task; expected the id of one"));
                };
                let edge = if field == "parents" {
                    (other, at)
                } else {
                    (at, other)
                };
                if !edges.insert(edge) {
                    return fault(here(), format!("{id} is there already; each id once"));
                }
            }
        }
        Ok(edges)
    };
    let up = edges("parents", |task| &task.parents)?;
    let down = edges("children", |task| &task.children)?;
    if let Some(&(parent, child)) = up.symmetric_difference(&down).next() {
        let (field, at, missing) = if up.contains(&(parent, child)) {
            ("children", parent, child)
        } else {
            ("parents", child, parent)
        };
        let (missing, id) = (&tasks[missing].id, &tasks[at].id);
        let expected = format!("expected {missing} as well, which names {id} on its side");
        return fault(format!("{TASKS}[{at}].{field}"), expected);
    }
    let mut parents = vec![Vec::new(); tasks.len()];
    for (parent, child) in up {
        parents[child].push(parent);
    }
    Ok(parents)
}

/// The files that each task reads and writes.
struct Files {
    read: Vec<BTreeSet<usize>>,
    written: Vec<BTreeSet<usize>>,
}

impl Files {
    fn new(tasks: &[Task], position: &BTreeMap<&str, usize>) -> Result<Self, Fault> {
        Ok(Self {
            read: file_sets(tasks, position, "inputFiles", |task| &task.input_files)?,
            written: file_sets(tasks, position, "outputFiles", |task| &task.output_files)?,
        })
    }
}

/// The files in one of each task's lists; one that is there twice is there.
fn file_sets(
    tasks: &[Task],
    position: &BTreeMap<&str, usize>,
    field: &str,
    list: fn(&Task) -> &Vec<String>,
) -> Result<Vec<BTreeSet<usize>>, Fault> {
    let mut sets = vec![BTreeSet::new(); tasks.len()];
    for (at, (task, set)) in tasks.iter().zip(&mut sets).enumerate() {
        for (i, id) in list(task).iter().enumerate() {
            let Some(&file) = position.get(id.as_str()) else {
                let expected = format!("{id} is no file; expected the id of one of {FILES}");
                return fault(format!("{TASKS}[{at}].{field}[{i}]"), expected);
            };
            set.insert(file);
        }
    }
    Ok(sets)
}

/// What was recorded of each task.
fn profiles(
    runs: &[Recorded],
    tasks: &[Task],
    position: &BTreeMap<&str, usize>,
) -> Result<Vec<(Millis, Resources)>, Fault> {
    positions(RUNS, runs.iter().map(|run| &run.id), "task")?;
    let mut profiles = vec![None; tasks.len()];
    for (at, run) in runs.iter().enumerate() {
        let here = |field: &str| format!("{RUNS}[{at}].{field}");
        let Some(&task) = position.get(run.id.as_str()) else {
            let expected = format!("{} is no task; expected the id of one of {TASKS}", run.id);
            return fault(here("id"), expected);
        };
        if run.runtime_in_seconds < 0.0 {
            let expected = format!("{}; expected seconds, 0 or more", run.runtime_in_seconds);
            return fault(here("runtimeInSeconds"), expected);
        }
        let bytes = run.memory_in_bytes.unwrap_or(0.0);
        if bytes < 0.0 {
            let expected = format!("{bytes}; expected bytes, 0 or more");
            return fault(here("memoryInBytes"), expected);
        }
        let memory = MebiBytes((bytes / f64::from(1 << 20)).ceil() as u64);
        let work = Millis::new(run.runtime_in_seconds * 1e3);
        profiles[task] = Some((work, Resources::new(MilliCpu(0), memory)));
    }
    let known = |(profile, task): (Option<_>, &Task)| match profile {
        Some(profile) => Ok(profile),
        None => fault(
            RUNS,
            format!(
                "nothing about task {}; expected its runtimeInSeconds",
                task.id
            ),
        ),
    };
    profiles.into_iter().zip(tasks).map(known).collect()
}

/// The tasks in topological order, the first in the file first; those of a cycle behind all others.
fn order(parents: &[Vec<usize>]) -> Vec<usize> {
    let mut children = vec![Vec::new(); parents.len()];
    let mut missing: Vec<usize> = parents.iter().map(Vec::len).collect();
    for (child, parents) in parents.iter().enumerate() {
        for &parent in parents {
            children[parent].push(child);
        }
    }
    let mut free: BinaryHeap<Reverse<usize>> = (0..parents.len())
        .filter(|&at| missing[at] == 0)
        .map(Reverse)
        .collect();
    let mut order = Vec::with_capacity(parents.len());
    while let Some(Reverse(at)) = free.pop() {
        order.push(at);
        for &child in &children[at] {
            missing[child] -= 1;
            if missing[child] == 0 {
                free.push(Reverse(child));
            }
        }
    }
    order.extend((0..parents.len()).filter(|&at| missing[at] > 0));
    order
}

#[cfg(test)]
mod tests;
