//! The input of placement: a DAG of tasks with work, demand, and data between them.
//!
//! A [`Dag`] can only be created by a [`DagBuilder`], which refuses cycles, dangling or duplicate edges, and invalid quantities; nothing
//! is checked again later. If there are several entries, a common virtual entry of zero work precedes them (its index is the last), so
//! that every job starts in one place. `petgraph` detects cycles and computes a topological order; none of its types leave this module.
//!
//! Order: tasks keep the index of their insertion; edges are sorted, so the order in which they were added has no effect.

use std::fmt;
use std::num::NonZeroU32;

use fdn_core::{ByteSize, Coded, ErrorCode, Millis, Resources};
use petgraph::Direction;
use petgraph::algo::{tarjan_scc, toposort};
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::EdgeRef;

/// The most tasks of one DAG.
pub const TASKS_MAX: usize = 1 << 20;

/// A task's position in its DAG.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskIndex(u32);

impl TaskIndex {
    /// Wraps a position; positions beyond `u32` become one that no DAG has.
    #[must_use]
    pub fn new(index: usize) -> Self {
        Self(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// The position, for indexing slices.
    #[must_use]
    pub const fn get(self) -> usize {
        self.0 as usize
    }

    fn node(self) -> NodeIndex {
        NodeIndex::new(self.0 as usize)
    }
}

impl fmt::Display for TaskIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// What holds a task's resources when its job runs repeatedly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Holding {
    /// Each call, while it runs.
    #[default]
    Calls,
    /// Instances that stay between calls, each of which serves this many calls concurrently.
    Instances(NonZeroU32),
}

/// One container to place.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// The name, for reports.
    pub name: String,
    /// `delta(c)`: the typical run time at speed 1.
    pub work: Millis,
    /// `r(c)`: the resources of one container.
    pub demand: Resources,
    /// What holds these resources. It does not affect the placement of a single job, only the needs of many calls.
    pub holding: Holding,
    /// The ratio of the mean run time to `work`, the typical one. It does not affect the placement of a single job, only the load of
    /// many calls on a cluster.
    pub mean_ratio: f64,
}

impl Task {
    /// The mean run time at speed 1.
    #[must_use]
    pub fn mean(&self) -> Millis {
        self.work * self.mean_ratio
    }
}

/// The transfer along an edge: `omega(a,b)` if the two tasks are on different clusters; within a cluster it takes no time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Transfer {
    /// Data whose transfer time depends on the link: latency + bytes / bandwidth.
    Data(ByteSize),
    /// A fixed time between any two clusters, whatever the link.
    Fixed(Millis),
}

/// Why tasks and edges do not form a valid DAG.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DagError {
    /// There are no tasks.
    #[error("there is no task; give at least one")]
    Empty,
    /// There are more tasks than [`TASKS_MAX`].
    #[error("there are {0} tasks, {TASKS_MAX} are allowed; split the job")]
    TooManyTasks(usize),
    /// A run time is negative or not finite.
    #[error("task {task} has {work} ms of work; give a finite time of zero or more")]
    Work {
        /// The task's name.
        task: String,
        /// The run time, as text.
        work: String,
    },
    /// A fixed transfer time is negative or not finite.
    #[error("the edge from {from} to {to} takes {time} ms; give a finite time of zero or more")]
    Time {
        /// The name of the task that sends.
        from: String,
        /// The name of the task that receives.
        to: String,
        /// The transfer time, as text.
        time: String,
    },
    /// An edge refers to a task that does not exist.
    #[error("an edge names task {index}, but there are only {tasks} tasks")]
    Dangling {
        /// The index it refers to.
        index: TaskIndex,
        /// The number of tasks.
        tasks: usize,
    },
    /// Two edges join the same tasks in the same direction.
    #[error("two edges go from {from} to {to}; join them into one")]
    Duplicate {
        /// The name of the task that sends.
        from: String,
        /// The name of the task that receives.
        to: String,
    },
    /// The named tasks form a cycle.
    #[error("{} for its own output: {}", if .0.len() == 1 { "a task waits" } else { "each of these tasks waits" }, .0.join(", "))]
    Cycle(Vec<String>),
}

impl Coded for DagError {
    fn code(&self) -> ErrorCode {
        ErrorCode::WorkflowInvalid
    }
}

/// Collects tasks and edges, and validates them as a DAG.
#[derive(Clone, Debug, Default)]
pub struct DagBuilder {
    tasks: Vec<Task>,
    edges: Vec<(TaskIndex, TaskIndex, Transfer)>,
}

impl DagBuilder {
    /// A builder without tasks.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a task and returns its index: 0, 1, 2 and so on.
    pub fn task(&mut self, name: impl Into<String>, work: Millis, demand: Resources) -> TaskIndex {
        self.tasks.push(Task {
            name: name.into(),
            work,
            demand,
            holding: Holding::Calls,
            mean_ratio: 1.0,
        });
        TaskIndex::new(self.tasks.len() - 1)
    }

    /// Sets what holds a task's resources ([`Holding::Calls`] by default). An unknown task is ignored.
    pub fn holding(&mut self, task: TaskIndex, holding: Holding) -> &mut Self {
        if let Some(task) = self.tasks.get_mut(task.get()) {
            task.holding = holding;
        }
        self
    }

    /// Sets the ratio of a task's mean run time to its work (1 by default). A ratio that is not a positive finite number and an
    /// unknown task are ignored.
    pub fn mean_ratio(&mut self, task: TaskIndex, ratio: f64) -> &mut Self {
        let task = self.tasks.get_mut(task.get());
        if let Some(task) = task.filter(|_| ratio.is_finite() && ratio > 0.0) {
            task.mean_ratio = ratio;
        }
        self
    }

    /// Adds an edge; [`DagBuilder::build`] checks it.
    pub fn edge(&mut self, from: TaskIndex, to: TaskIndex, transfer: Transfer) -> &mut Self {
        self.edges.push((from, to, transfer));
        self
    }

    /// Validates tasks and edges and creates the DAG.
    ///
    /// # Errors
    /// The first defect, naming the tasks.
    pub fn build(mut self) -> Result<Dag, DagError> {
        if self.tasks.is_empty() {
            return Err(DagError::Empty);
        }
        if self.tasks.len() >= TASKS_MAX {
            return Err(DagError::TooManyTasks(self.tasks.len()));
        }
        self.check_tasks()?;
        self.check_edges()?;
        let virtual_entry = self.join_entries();
        let mut graph = DiGraph::with_capacity(self.tasks.len(), self.edges.len());
        for task in self.tasks {
            graph.add_node(task);
        }
        for (from, to, transfer) in self.edges {
            graph.add_edge(from.node(), to.node(), transfer);
        }
        Dag::from_graph(graph, virtual_entry)
    }

    fn check_tasks(&mut self) -> Result<(), DagError> {
        for task in &mut self.tasks {
            task.work = amount(task.work).ok_or_else(|| DagError::Work {
                task: task.name.clone(),
                work: task.work.get().to_string(),
            })?;
        }
        Ok(())
    }

    fn check_edges(&mut self) -> Result<(), DagError> {
        let tasks = self.tasks.len();
        let name = |index: TaskIndex| self.tasks[index.get()].name.clone();
        self.edges.sort_by_key(|(from, to, _)| (*from, *to));
        for (from, to, transfer) in &mut self.edges {
            if let Some(index) = [*from, *to].into_iter().find(|i| i.get() >= tasks) {
                return Err(DagError::Dangling { index, tasks });
            }
            if let Transfer::Fixed(time) = transfer {
                *time = amount(*time).ok_or_else(|| DagError::Time {
                    from: name(*from),
                    to: name(*to),
                    time: time.get().to_string(),
                })?;
            }
        }
        let twice = self
            .edges
            .windows(2)
            .find(|pair| (pair[0].0, pair[0].1) == (pair[1].0, pair[1].1));
        match twice {
            Some(pair) => Err(DagError::Duplicate {
                from: name(pair[0].0),
                to: name(pair[0].1),
            }),
            None => Ok(()),
        }
    }

    /// Puts a virtual entry of zero work before several entries; returns its index if there is one. Its edges carry the request,
    /// which crosses links like any other data.
    fn join_entries(&mut self) -> Option<TaskIndex> {
        let mut is_entry = vec![true; self.tasks.len()];
        for (_, to, _) in &self.edges {
            is_entry[to.get()] = false;
        }
        let entries: Vec<usize> = (0..is_entry.len()).filter(|&i| is_entry[i]).collect();
        if entries.len() < 2 {
            return None;
        }
        let front = self.task("(entry)", Millis::ZERO, Resources::default());
        for entry in entries {
            self.edge(
                front,
                TaskIndex::new(entry),
                Transfer::Data(ByteSize::default()),
            );
        }
        Some(front)
    }
}

/// A finite time of zero or more; `None` otherwise. `-0.0` becomes `0.0`.
fn amount(time: Millis) -> Option<Millis> {
    (time.is_finite() && time.get() >= 0.0).then(|| Millis::new(time.get() + 0.0))
}

/// The edges of each task in one direction, contiguous in memory: placement iterates over them for every task and cluster.
#[derive(Clone, Debug)]
struct Neighbours {
    /// The position of each task's first edge, with the total number at the end.
    first: Vec<usize>,
    edges: Vec<(TaskIndex, Transfer)>,
}

impl Neighbours {
    fn new(graph: &DiGraph<Task, Transfer>, direction: Direction) -> Self {
        let mut first = vec![0];
        let mut edges = Vec::with_capacity(graph.edge_count());
        for node in graph.node_indices() {
            edges.extend(graph.edges_directed(node, direction).map(|edge| {
                let other = match direction {
                    Direction::Incoming => edge.source(),
                    Direction::Outgoing => edge.target(),
                };
                (TaskIndex::new(other.index()), *edge.weight())
            }));
            first.push(edges.len());
        }
        Self { first, edges }
    }

    fn of(&self, index: TaskIndex) -> &[(TaskIndex, Transfer)] {
        &self.edges[self.first[index.get()]..self.first[index.get() + 1]]
    }
}

/// A valid DAG with a single entry.
#[derive(Clone, Debug)]
pub struct Dag {
    tasks: Vec<Task>,
    parents: Neighbours,
    children: Neighbours,
    order: Vec<TaskIndex>,
    entry: TaskIndex,
    exits: Vec<TaskIndex>,
    virtual_entry: Option<TaskIndex>,
}

impl Dag {
    /// A DAG of one task.
    ///
    /// # Errors
    /// When `work` is negative or not finite.
    pub fn single(
        name: impl Into<String>,
        work: Millis,
        demand: Resources,
    ) -> Result<Self, DagError> {
        let mut builder = DagBuilder::new();
        builder.task(name, work, demand);
        builder.build()
    }

    fn from_graph(
        graph: DiGraph<Task, Transfer>,
        virtual_entry: Option<TaskIndex>,
    ) -> Result<Self, DagError> {
        let Ok(order) = toposort(&graph, None) else {
            return Err(DagError::Cycle(cycle_names(&graph)));
        };
        let order: Vec<TaskIndex> = order
            .into_iter()
            .map(|node| TaskIndex::new(node.index()))
            .collect();
        let exits = graph
            .externals(Direction::Outgoing)
            .map(|node| TaskIndex::new(node.index()))
            .collect();
        Ok(Self {
            entry: order[0],
            exits,
            order,
            parents: Neighbours::new(&graph, Direction::Incoming),
            children: Neighbours::new(&graph, Direction::Outgoing),
            tasks: graph
                .into_nodes_edges()
                .0
                .into_iter()
                .map(|node| node.weight)
                .collect(),
            virtual_entry,
        })
    }

    /// The number of tasks, including a virtual entry.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Always false: a DAG has at least one task.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of edges, including those of a virtual entry.
    #[must_use]
    pub fn edge_count(&self) -> usize {
        self.children.edges.len()
    }

    /// The number of tasks given to the builder, without a virtual entry.
    #[must_use]
    pub fn given(&self) -> usize {
        self.len() - usize::from(self.virtual_entry.is_some())
    }

    /// All indices, ascending.
    pub fn indices(&self) -> impl DoubleEndedIterator<Item = TaskIndex> + use<> {
        (0..self.len()).map(TaskIndex::new)
    }

    /// The task with this index.
    ///
    /// # Panics
    /// If the DAG has no such task.
    #[must_use]
    pub fn task(&self, index: TaskIndex) -> &Task {
        &self.tasks[index.get()]
    }

    /// A topological order: parents precede children.
    #[must_use]
    pub fn topological(&self) -> &[TaskIndex] {
        &self.order
    }

    /// The only task without parents.
    #[must_use]
    pub const fn entry(&self) -> TaskIndex {
        self.entry
    }

    /// The virtual entry, if several entries required one.
    #[must_use]
    pub const fn virtual_entry(&self) -> Option<TaskIndex> {
        self.virtual_entry
    }

    /// The tasks without children, ascending.
    #[must_use]
    pub fn exits(&self) -> &[TaskIndex] {
        &self.exits
    }

    /// Whether a task has no children.
    #[must_use]
    pub fn is_exit(&self, index: TaskIndex) -> bool {
        self.children.of(index).is_empty()
    }

    /// The parents of a task, with the transfer from each.
    pub fn parents(&self, index: TaskIndex) -> impl Iterator<Item = (TaskIndex, Transfer)> + '_ {
        self.parents.of(index).iter().copied()
    }

    /// The children of a task, with the transfer to each.
    pub fn children(&self, index: TaskIndex) -> impl Iterator<Item = (TaskIndex, Transfer)> + '_ {
        self.children.of(index).iter().copied()
    }
}

/// The names of the tasks in one strongly connected component, ascending by index.
fn cycle_names(graph: &DiGraph<Task, Transfer>) -> Vec<String> {
    let mut cycles: Vec<Vec<NodeIndex>> = tarjan_scc(graph)
        .into_iter()
        .filter(|component| component.len() > 1 || graph.contains_edge(component[0], component[0]))
        .map(|mut component| {
            component.sort_unstable();
            component
        })
        .collect();
    cycles.sort_unstable();
    cycles
        .first()
        .into_iter()
        .flatten()
        .take(16)
        .map(|node| graph[*node].name.clone())
        .collect()
}

#[cfg(test)]
mod tests;
