//! Read access to the scheduler's state, for operators, metrics and tests.

use fdn_core::Millis;

use super::container::State;
use super::id::{ContainerId, FunctionIndex, WorkerIndex};
use super::learn::LiveProfile;
use super::order::Rank;
use super::profile::Profile;
use super::queue::Queue;
use super::scheduler::Scheduler;
use super::weight::Weight;

/// The activity of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// It is being loaded for an invocation.
    Loading,
    /// It executes an invocation.
    Running,
    /// It is being loaded without an invocation.
    Warming,
    /// It is warm and free.
    Idle,
}

/// A snapshot of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainerView {
    /// The container's id.
    pub id: ContainerId,
    /// The container's function.
    pub function: FunctionIndex,
    /// The container's worker.
    pub worker: WorkerIndex,
    /// What it holds of the worker.
    pub memory: Weight,
    /// Its activity.
    pub activity: Activity,
}

/// A snapshot of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerView {
    /// Its capacity.
    pub memory: Weight,
    /// What its containers hold; above the capacity if that was reduced under busy ones.
    pub held: Weight,
}

impl Scheduler {
    /// The number of waiting invocations.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// The queue of waiting invocations.
    #[must_use]
    pub const fn queue(&self) -> &Queue {
        &self.queue
    }

    /// The time of the latest event.
    #[must_use]
    pub const fn now(&self) -> Millis {
        self.now
    }

    /// `W(j)`: the number of idle containers of a function; 0 if it is not registered.
    #[must_use]
    pub fn warm(&self, function: FunctionIndex) -> usize {
        let row = self.functions.get(function.get());
        row.map_or(0, |row| row.idle.len())
    }

    /// The profile by which a function is scheduled; `None` if it is not registered.
    #[must_use]
    pub fn profile(&self, function: FunctionIndex) -> Option<Profile> {
        let row = self.functions.get(function.get())?;
        (!row.is_retired).then(|| *self.queue.profile(function))
    }

    /// The live profile of a function; `None` if it is not registered or [`super::Settings::learn`] is off.
    #[must_use]
    pub fn live(&self, function: FunctionIndex) -> Option<&LiveProfile> {
        let row = self.functions.get(function.get())?;
        row.live.as_ref().filter(|_| !row.is_retired)
    }

    /// The number of containers, in any state but gone.
    #[must_use]
    pub const fn container_count(&self) -> usize {
        self.containers.alive()
    }

    /// All containers.
    pub fn containers(&self) -> impl Iterator<Item = ContainerView> {
        self.containers
            .rows()
            .map(|(row, container)| ContainerView {
                id: self.containers.id(row),
                function: FunctionIndex::from_raw(container.function),
                worker: WorkerIndex::from_raw(container.worker),
                memory: Weight(container.memory),
                activity: match container.state {
                    State::Loading(_) => Activity::Loading,
                    State::Running { .. } => Activity::Running,
                    State::Warming | State::Ahead | State::Gone => Activity::Warming,
                    State::Idle => Activity::Idle,
                },
            })
    }

    /// All idle containers in order of eviction: by eviction priority, then the least recently used first.
    ///
    /// Complexity: O(n log n), n containers.
    #[must_use]
    pub fn idle_in_eviction_order(&self) -> Vec<ContainerId> {
        let idle = self.containers.rows();
        let mut idle: Vec<_> = idle
            .filter(|(_, container)| container.state == State::Idle)
            .map(|(row, container)| (Rank(container.rank), container.used, row))
            .collect();
        idle.sort_unstable();
        idle.iter()
            .map(|(.., row)| self.containers.id(*row))
            .collect()
    }

    /// All workers.
    pub fn workers(&self) -> impl Iterator<Item = WorkerView> {
        (0..self.workers.len() as u32).map(|worker| WorkerView {
            memory: Weight(self.workers.capacity(worker)),
            held: Weight(self.workers.held(worker)),
        })
    }
}
