//! The state machine: what is kept, how jobs enter and leave, and what each event does.

use std::collections::VecDeque;

use fdn_core::{Millis, Resources};

use super::job::{Job, Phase, State, Work};
use super::lane::Lane;
use super::message::{Action, Event, Handled, JobRef, Refused, RunRef};
use super::settings::Settings;
use crate::dag::TaskIndex;
use crate::place::{Cluster, Hold, Network, ProblemError, SLOWEST_RATIO};

/// Places the jobs of many users while they arrive. See the module.
#[derive(Debug)]
pub struct Online<W> {
    pub(super) settings: Settings,
    pub(super) network: Network,
    pub(super) lanes: Vec<Lane>,
    pub(super) jobs: Vec<Job<W>>,
    pub(super) vacant: Vec<u32>,
    /// Jobs that wait until resources can be kept for them, in the order of their arrival.
    pub(super) held: VecDeque<u32>,
    /// Containers that could start and fit nowhere, by their jobs' arrival.
    pub(super) stranded: Vec<(u64, u32, TaskIndex)>,
    /// Jobs so far.
    pub(super) arrivals: u64,
    /// Entries into queues so far.
    pub(super) entries: u64,
    /// Whose turn it is, of the clusters one after the other.
    pub(super) turn: usize,
    pub(super) under_way: usize,
    pub(super) tasks: usize,
    /// Of the container that is being bound: when its data is on each cluster.
    pub(super) ready: Vec<f64>,
    /// Whether some container of a job that holds its resources to the end has none kept.
    pub(super) claims_lost: bool,
    /// Buffers.
    pub(super) children: Vec<TaskIndex>,
    pub(super) moved: Vec<(u64, u32, TaskIndex)>,
    pub(super) room: Vec<Resources>,
    pub(super) moved_claims: Vec<(TaskIndex, usize)>,
    /// Of the container that is being bound: which clusters may take it.
    pub(super) open: Vec<bool>,
    /// Clusters where something may start.
    pub(super) touched: Vec<usize>,
}

impl<W: Work> Online<W> {
    /// Clusters as they are, joined by a network. Slots that are busy until some time are so until [`Event::SlotFreed`].
    ///
    /// # Errors
    /// When the network joins another number of clusters.
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
            lanes: clusters
                .iter()
                .map(|cluster| Lane::new(cluster, settings.hold))
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

    /// Jobs that are not done.
    #[must_use]
    pub const fn jobs(&self) -> usize {
        self.under_way
    }

    /// Containers that could start and fit nowhere at present.
    #[must_use]
    pub const fn stranded(&self) -> usize {
        self.stranded.len()
    }

    /// Jobs that wait until resources can be kept for all their containers.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// A user, `distance` from each cluster, has sent a job. It is taken whole or not at all.
    ///
    /// # Errors
    /// When too much is under way, or a container fits nowhere even if nothing else ran.
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

    /// Something has happened; what is to be done is appended to `actions`.
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

    /// The place of a job that is still under way.
    pub(super) fn place(&self, job: JobRef) -> Option<u32> {
        let kept = self.jobs.get(job.place())?;
        (kept.generation == job.generation && kept.state != State::Vacant).then_some(job.place)
    }

    /// The place of a run's job, if the run is the present attempt and as far as said.
    pub(super) fn current(&self, run: RunRef, phase: Phase) -> Option<u32> {
        let place = self.place(run.job)?;
        let task = self.jobs[place as usize].tasks.get(run.task.get())?;
        (task.attempt == run.attempt && task.phase == phase).then_some(place)
    }

    /// Starts what can start where something has changed.
    fn dispatch_touched(&mut self, now: Millis, actions: &mut Vec<Action>) {
        self.touched.sort_unstable();
        self.touched.dedup();
        for at in 0..self.touched.len() {
            self.dispatch(now, self.touched[at], actions);
        }
        self.touched.clear();
    }

    /// Finds the clusters that are so much slower than the fastest that they count as absent.
    pub(super) fn find_slow(&mut self) {
        let open = self.lanes.iter().filter(|lane| lane.is_open());
        let fastest = open.fold(0.0, |fastest: f64, lane| fastest.max(lane.speed.get()));
        for lane in &mut self.lanes {
            let speed = lane.speed.get();
            lane.slow = speed == 0.0 || speed < fastest * SLOWEST_RATIO;
        }
    }
}
