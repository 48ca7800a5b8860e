//! The state machine: its state, how jobs enter and leave, and how each event is handled.

use std::collections::VecDeque;

use fdn_core::{Millis, Resources};

use super::cluster_state::ClusterState;
use super::job::{Job, Phase, State, Work};
use super::message::{Action, Event, Handled, JobRef, Refused, RunRef};
use super::settings::Settings;
use crate::dag::TaskIndex;
use crate::place::{Cluster, Hold, Network, ProblemError, SLOWEST_RATIO};

/// Places the jobs of many users as they arrive and run. See the module.
#[derive(Debug)]
pub struct Online<W> {
    pub(super) settings: Settings,
    pub(super) network: Network,
    pub(super) cluster_states: Vec<ClusterState>,
    pub(super) jobs: Vec<Job<W>>,
    pub(super) vacant: Vec<u32>,
    /// Jobs that wait until resources can be reserved for them, in the order of arrival.
    pub(super) held: VecDeque<u32>,
    /// Containers that are ready and fit nowhere, by their jobs' arrival.
    pub(super) stranded: Vec<(u64, u32, TaskIndex)>,
    /// The number of jobs accepted so far.
    pub(super) arrivals: u64,
    /// The number of entries into queues so far.
    pub(super) entries: u64,
    /// The next cluster of [`super::Choice::RoundRobin`].
    pub(super) turn: usize,
    pub(super) under_way: usize,
    pub(super) tasks: usize,
    /// Of the container being bound: when its data arrives on each cluster, in ms.
    pub(super) ready: Vec<f64>,
    /// Whether some container has lost its claim ([`Hold::Job`]).
    pub(super) claims_lost: bool,
    /// Buffers for sets of containers.
    pub(super) children: Vec<TaskIndex>,
    pub(super) moved: Vec<(u64, u32, TaskIndex)>,
    pub(super) room: Vec<Resources>,
    pub(super) moved_claims: Vec<(TaskIndex, usize)>,
    /// Of the container being bound: which clusters may take it.
    pub(super) open: Vec<bool>,
    /// Clusters on which something may start now.
    pub(super) touched: Vec<usize>,
}

impl<W: Work> Online<W> {
    /// A state machine for `clusters` joined by a network. Slots that are busy at the beginning stay so until [`Event::SlotFreed`].
    ///
    /// # Errors
    /// When the network has another number of clusters.
    pub fn new(
        settings: Settings,
        clusters: &[Cluster],
        network: Network,
    ) -> Result<Self, ProblemError> {
        if network.clusters() != clusters.len() {
            return Err(ProblemError::Size {
                what: "clusters in the network",
                given: network.clusters(),
                wanted: clusters.len(),
            });
        }
        let mut machine = Self {
            settings,
            network,
            cluster_states: clusters
                .iter()
                .map(|cluster| ClusterState::new(cluster, settings.hold))
                .collect(),
            jobs: Vec::new(),
            vacant: Vec::new(),
            held: VecDeque::new(),
            stranded: Vec::new(),
            arrivals: 0,
            entries: 0,
            turn: 0,
            under_way: 0,
            tasks: 0,
            ready: Vec::new(),
            claims_lost: false,
            children: Vec::new(),
            moved: Vec::new(),
            room: Vec::new(),
            moved_claims: Vec::new(),
            open: Vec::new(),
            touched: Vec::new(),
        };
        machine.find_slow();
        Ok(machine)
    }

    /// The number of jobs that are not done.
    #[must_use]
    pub const fn jobs(&self) -> usize {
        self.under_way
    }

    /// The number of containers that are ready and fit nowhere at present.
    #[must_use]
    pub const fn stranded(&self) -> usize {
        self.stranded.len()
    }

    /// The number of jobs that wait until resources can be reserved for all their containers.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Accepts a job from a user at `distance` (one way, by cluster), completely or not at all.
    ///
    /// # Errors
    /// When a bound would be exceeded, or a container fits nowhere even if nothing else ran.
    pub fn arrive(
        &mut self,
        now: Millis,
        work: W,
        distance: &[Millis],
        actions: &mut Vec<Action>,
    ) -> Result<JobRef, Refused> {
        self.check(&work, distance)?;
        let place = self.vacant.pop().unwrap_or_else(|| {
            self.jobs.push(Job::default());
            u32::try_from(self.jobs.len() - 1).unwrap_or(u32::MAX)
        });
        self.under_way += 1;
        self.tasks += work.dag().len();
        self.fill(now, place, work, distance);
        if self.settings.hold == Hold::Job {
            if let Err(infeasible) = self.could_claim_all(place) {
                self.vacate_place(place);
                return Err(infeasible.into());
            }
            self.jobs[place as usize].state = State::Held;
            self.held.push_back(place);
            if self.held.len() == 1 && self.claim_again() {
                self.admit_held(now, actions);
            }
        } else {
            self.activate(now, place, actions);
        }
        self.dispatch_touched(now, actions);
        Ok(self.jobs[place as usize].job_ref(place))
    }

    /// Handles an event; the resulting actions are appended to `actions`.
    pub fn apply(&mut self, now: Millis, event: Event, actions: &mut Vec<Action>) -> Handled {
        let applied = match event {
            Event::Delivered(run) => self.delivered(now, run, actions),
            Event::Finished(run) => self.finished(now, run, actions),
            Event::SlotFreed { cluster, slot } => self.slot_freed(now, cluster, slot),
            Event::Lost(cluster) => self.lose(now, cluster.get(), actions),
            Event::Drained(cluster) => self.drain(now, cluster.get(), actions),
            Event::Returned(cluster) => self.take_back(now, cluster.get(), actions),
            Event::SpeedChanged(cluster, speed) => {
                self.change_speed(now, cluster.get(), speed, actions)
            }
            Event::Cancelled(job) => self.cancel(now, job, actions),
        };
        self.dispatch_touched(now, actions);
        if applied {
            Handled::Applied
        } else {
            Handled::Stale
        }
    }

    /// The place of a job; `None` if it is no longer in progress.
    pub(super) fn place(&self, job: JobRef) -> Option<u32> {
        let kept = self.jobs.get(job.place())?;
        (kept.generation == job.generation && kept.state != State::Vacant).then_some(job.place)
    }

    /// The place of a run's job, if the run is the present attempt and the container is in `phase`.
    pub(super) fn current(&self, run: RunRef, phase: Phase) -> Option<u32> {
        let place = self.place(run.job)?;
        let task = self.jobs[place as usize].tasks.get(run.task.get())?;
        (task.attempt == run.attempt && task.phase == phase).then_some(place)
    }

    /// Starts what can start on the clusters that have changed.
    fn dispatch_touched(&mut self, now: Millis, actions: &mut Vec<Action>) {
        self.touched.sort_unstable();
        self.touched.dedup();
        for at in 0..self.touched.len() {
            self.dispatch(now, self.touched[at], actions);
        }
        self.touched.clear();
    }

    /// Marks the clusters that are so much slower than the fastest that they take no part.
    pub(super) fn find_slow(&mut self) {
        let open = self
            .cluster_states
            .iter()
            .filter(|cluster_state| cluster_state.is_open());
        let fastest = open.fold(0.0, |fastest: f64, cluster_state| {
            fastest.max(cluster_state.speed.get())
        });
        for cluster_state in &mut self.cluster_states {
            let speed = cluster_state.speed.get();
            cluster_state.slow = speed == 0.0 || speed < fastest * SLOWEST_RATIO;
        }
    }
}
