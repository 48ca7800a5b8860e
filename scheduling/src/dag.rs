//! What is to be placed: a DAG of tasks with work, demand, and data between them.
//!
//! A [`Dag`] is made by a [`DagBuilder`] only, which refuses cycles, edges to nowhere, double edges and amounts that are no
//! amounts; past it nothing checks again. Several entries get a common virtual one of zero work in front (its index is the last),
//! so that every job starts in one place. `petgraph` finds cycles and an order; no type of petgraph leaves this module.
//!
//! Order: tasks keep the index of their insertion; edges are sorted, so the order in which they were added cannot show.

use std::fmt;
use std::num::NonZeroU32;

use fdn_core::{ByteSize, Coded, ErrorCode, Millis, Resources};
use petgraph::Direction;
use petgraph::algo::{tarjan_scc, toposort};
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::EdgeRef;

/// The most tasks one DAG may have.
pub const TASKS_MAX: usize = 1 << 20;

/// A task's position in its DAG.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskIndex(u32);

impl TaskIndex {
    /// The position as an index; positions beyond [`TASKS_MAX`] all become the same one, which no DAG has.
    #[must_use]
    pub fn new(index: usize) -> Self {
        Self(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// As an index into a slice.
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

/// Who holds what a task demands, if its job is called again and again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Holding {
    /// Each call, while it runs.
    #[default]
    Calls,
    /// Instances that stay between calls, each of which serves so many calls at once.
    Instances(NonZeroU32),
}

/// One container to place.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// Its name, for people.
    pub name: String,
    /// `delta(c)`: run time at speed 1.
    pub work: Millis,
    /// `r(c)`: what it occupies.
    pub demand: Resources,
    /// Who occupies that. Placing one job does not depend on it; what many calls need does.
    pub holding: Holding,
    /// By what its mean run time differs from `work`, which is what a job typically takes. Placing one job does not depend on it; what many
    /// calls ask of a cluster does.
    pub mean_ratio: f64,
}

impl Task {
    /// The mean run time at speed 1.
    #[must_use]
    pub fn mean(&self) -> Millis {
        self.work * self.mean_ratio
    }
}

/// What passes along an edge: `omega(a,b)` when the two tasks sit on different clusters. Nothing is paid within a cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Transfer {
    /// Data whose time follows from the link it crosses: bytes / bandwidth + latency.
    Data(ByteSize),
    /// The same time between any two clusters, whatever the link.
    Fixed(Millis),
}

/// Why tasks and edges are no DAG.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DagError {
    /// There is no task.
    #[error("there is no task; give at least one")]
    Empty,
    /// There are too many tasks.
    #[error("there are {0} tasks, {TASKS_MAX} are allowed; split the job")]
    TooManyTasks(usize),
    /// A run time is negative or not finite.
    #[error("task {task} has {work} ms of work; give a finite time of zero or more")]
    Work {
        /// The task.
        task: String,
        /// What it was given.
        work: String,
    },
    /// A fixed transfer time is negative or not finite.
    #[error("the edge from {from} to {to} takes {time} ms; give a finite time of zero or more")]
    Time {
        /// Where it starts.
        from: String,
        /// Where it ends.
        to: String,
        /// What it was given.
        time: String,
    },
    /// An edge names a task that does not exist.
    #[error("an edge names task {index}, but there are only {tasks} tasks")]
    Dangling {
        /// What it names.
        index: TaskIndex,
        /// How many there are.
        tasks: usize,
    },
    /// Two edges join the same tasks in the same direction.
    #[error("two edges go from {from} to {to}; join them into one")]
    Duplicate {
        /// Where they start.
        from: String,
        /// Where they end.
        to: String,
    },
    /// Tasks wait for each other.
    #[error("{} for its own output: {}", if .0.len() == 1 { "a task waits" } else { "each of these tasks waits" }, .0.join(", "))]
    Cycle(Vec<String>),
}

impl Coded for DagError {
    fn code(&self) -> ErrorCode {
        ErrorCode::WorkflowInvalid
    }
}

/// Collects tasks and edges.
#[derive(Clone, Debug, Default)]
pub struct DagBuilder {
    tasks: Vec<Task>,
    edges: Vec<(TaskIndex, TaskIndex, Transfer)>,
}

impl DagBuilder {
    /// Nothing yet.
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

    /// Says who holds what a task demands; calls do, unless this is said. A task that does not exist is passed over.
    pub fn holding(&mut self, task: TaskIndex, holding: Holding) -> &mut Self {
        if let Some(task) = self.tasks.get_mut(task.get()) {
            task.holding = holding;
        }
        self
    }

    /// Says by what the mean run time of a task differs from its work; by nothing, unless this is said. What is no positive finite number says
    /// nothing; a task that does not exist is passed over.
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

    /// Checks everything and makes the DAG.
    ///
    /// # Errors
    /// The first thing that is wrong, by name.
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

    /// Puts a task of zero work in front of several entries. Its edges carry the request, which crosses a link like any data.
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

/// A finite time of zero or more; `-0.0` becomes `0.0`.
fn amount(time: Millis) -> Option<Millis> {
    (time.is_finite() && time.get() >= 0.0).then(|| Millis::new(time.get() + 0.0))
}

/// The neighbours of each task in one direction, side by side in memory: placement walks along them for every task and cluster.
#[derive(Clone, Debug)]
struct Neighbours {
    /// Where each task's begin; one more at the end.
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

/// Tasks without cycles, with one entry.
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

    /// How many tasks there are, the virtual entry included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Always false: a DAG has at least one task.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many edges there are, those of the virtual entry included.
    #[must_use]
    pub fn edge_count(&self) -> usize {
        self.children.edges.len()
    }

    /// How many tasks were given, the virtual entry not included.
    #[must_use]
    pub fn given(&self) -> usize {
        self.len() - usize::from(self.virtual_entry.is_some())
    }

    /// All indices, ascending.
    pub fn indices(&self) -> impl DoubleEndedIterator<Item = TaskIndex> + use<> {
        (0..self.len()).map(TaskIndex::new)
    }

    /// One task.
    ///
    /// # Panics
    /// If `index` is of another DAG and too large.
    #[must_use]
    pub fn task(&self, index: TaskIndex) -> &Task {
        &self.tasks[index.get()]
    }

    /// The tasks in an order in which parents come before children.
    #[must_use]
    pub fn topological(&self) -> &[TaskIndex] {
        &self.order
    }

    /// The one task without parents.
    #[must_use]
    pub const fn entry(&self) -> TaskIndex {
        self.entry
    }

    /// The virtual entry, if there is one.
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

    /// Whom a task waits for, and what it gets from each.
    pub fn parents(&self, index: TaskIndex) -> impl Iterator<Item = (TaskIndex, Transfer)> + '_ {
        self.parents.of(index).iter().copied()
    }

    /// Who waits for a task, and what each gets from it.
    pub fn children(&self, index: TaskIndex) -> impl Iterator<Item = (TaskIndex, Transfer)> + '_ {
        self.children.of(index).iter().copied()
    }
}

/// The names of the tasks of one cycle's component, ascending by index.
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
