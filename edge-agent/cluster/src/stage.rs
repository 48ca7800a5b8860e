//! The pre-schedulers of the global stage: threads that score nodes on copies of what the head believes of them, and name the best few.
//!
//! The copies are updated by messages: each job carries what has changed since the previous one. Nothing is shared, so the head's own
//! task, which contains the committer, never waits for a thread. What is decided, and how, is in `fdn_scheduling::instance::Global` and
//! `fdn_scheduling::commit`; this module only runs the threads.
//!
//! Everything is bounded: tasks handed out by the committer; jobs waiting for one thread by [`JOBS`]; what does not fit stays pending.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use fdn_scheduling::NodeIndex;
use fdn_scheduling::commit::{
    Choice, List, ListRequest, NodeRecord, NodeSelection, PreScheduler, Store, Ties, View,
};
use fdn_scheduling::instance::{ByRoom, Term};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tokio::sync::mpsc;

use crate::metrics::Metrics;
use crate::settings::GlobalStageSettings;

/// The most jobs waiting for one thread.
const JOBS: usize = 4;

/// The work for a pre-scheduler.
struct Job {
    /// Records that changed since its last job.
    news: Vec<(NodeIndex, NodeRecord)>,
    wanted: Vec<ListRequest>,
}

/// Lists made for the global scheduler of a term.
#[derive(Debug)]
pub(crate) struct ListBatch {
    pub(crate) term: Term,
    worker: usize,
    pub(crate) lists: Vec<List>,
}

#[derive(Debug)]
struct Worker {
    jobs: SyncSender<Job>,
    /// The number of the change up to which its copy of the records is current.
    seen: u64,
    /// Tasks given to it but not sent yet.
    pending: Vec<ListRequest>,
    /// The number of tasks sent to it and not yet returned.
    at_work: usize,
}

/// The threads of one head. They end when it is dropped.
#[derive(Debug)]
pub(crate) struct PreSchedulers {
    workers: Vec<Worker>,
    metrics: Metrics,
}

impl PreSchedulers {
    /// Starts the threads; their lists go to `batches`.
    pub(crate) fn start(
        term: Term,
        settings: &GlobalStageSettings,
        batches: &mpsc::Sender<ListBatch>,
        metrics: Metrics,
    ) -> std::io::Result<Self> {
        let start = |at: usize| {
            let (jobs, inbox) = sync_channel(JOBS);
            let (batches, choice) = (batches.clone(), choice(settings));
            std::thread::Builder::new()
                .name(format!("fdn-pre-{at}"))
                .spawn(move || work(&inbox, &batches, term, at, choice))?;
            Ok(Worker {
                jobs,
                seen: 0,
                pending: Vec::new(),
                at_work: 0,
            })
        };
        let workers: std::io::Result<Vec<Worker>> =
            (0..settings.pre_schedulers).map(start).collect();
        Ok(Self {
            workers: workers?,
            metrics,
        })
    }

    /// The number of pre-schedulers.
    pub(crate) const fn count(&self) -> usize {
        self.workers.len()
    }

    /// Gives a task to the pre-scheduler with the fewest tasks.
    pub(crate) fn enqueue(&mut self, wanted: ListRequest) {
        let load = |worker: &&mut Worker| worker.at_work + worker.pending.len();
        if let Some(worker) = self.workers.iter_mut().min_by_key(load) {
            worker.pending.push(wanted);
        }
    }

    /// Sends the given tasks, with the changed records. A thread that is gone gets nothing: its tasks are handed out again after their lease.
    pub(crate) fn send(&mut self, records: &Store) {
        for worker in self
            .workers
            .iter_mut()
            .filter(|one| !one.pending.is_empty())
        {
            let job = Job {
                news: records.since(worker.seen).collect(),
                wanted: std::mem::take(&mut worker.pending),
            };
            let count = job.wanted.len();
            match worker.jobs.try_send(job) {
                Ok(()) => {
                    worker.seen = records.changes();
                    worker.at_work += count;
                    self.metrics.jobs.inc();
                }
                Err(TrySendError::Full(job)) => worker.pending = job.wanted,
                Err(TrySendError::Disconnected(_)) => self.metrics.jobs_failed.inc(),
            }
        }
    }

    /// Handles the end of a job.
    pub(crate) fn done(&mut self, batch: &ListBatch) {
        self.metrics.jobs.dec();
        if let Some(worker) = self.workers.get_mut(batch.worker) {
            worker.at_work = worker.at_work.saturating_sub(batch.lists.len());
        }
    }
}

impl Drop for PreSchedulers {
    fn drop(&mut self) {
        self.metrics.jobs.set(0);
    }
}

fn choice(settings: &GlobalStageSettings) -> Choice {
    Choice {
        length: settings.list,
        selection: NodeSelection::Sample(settings.sample),
        ties: Ties::Random,
    }
}

fn work(
    inbox: &Receiver<Job>,
    batches: &mpsc::Sender<ListBatch>,
    term: Term,
    worker: usize,
    choice: Choice,
) {
    let mut rng = ChaCha8Rng::from_rng(&mut rand::rng());
    let mut scheduler = PreScheduler::new(ByRoom, choice);
    let mut view = View::default();
    while let Ok(job) = inbox.recv() {
        for (node, record) in job.news {
            view.apply(node, record);
        }
        let mut make = |wanted: &ListRequest| {
            let mut list = List::default();
            scheduler.list_for(wanted, view.records(), &mut rng, &mut list);
            list
        };
        let batch = ListBatch {
            term,
            worker,
            lists: job.wanted.iter().map(&mut make).collect(),
        };
        if batches.blocking_send(batch).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use fdn_core::{MebiBytes, MilliCpu, Millis, Resources};
    use fdn_scheduling::instance::{
        Action, Global, GlobalSettings, ListSettings, Task, TaskId, ToGlobal, ToNode, Verdict,
    };

    use super::*;

    #[tokio::test]
    async fn lists_of_threads_place_every_task_within_the_room_there_is() {
        let term = Term(3);
        let capacity = Resources::new(MilliCpu(1000), MebiBytes(1000));
        let settings = GlobalSettings::for_round_trip(Millis::new(1e6));
        let mut global = Global::new(&[capacity; 20], settings).with_lists(ListSettings {
            in_flight: 16,
            lease: Millis::new(1e9),
            ..ListSettings::default()
        });
        let (sender, mut batches) = mpsc::channel(16);
        let metrics = Metrics::new(&prometheus::Registry::new()).unwrap();
        let stage = GlobalStageSettings {
            pre_schedulers: 3,
            ..GlobalStageSettings::default()
        };
        let mut pool = PreSchedulers::start(term, &stage, &sender, metrics.clone()).unwrap();
        let (now, mut actions) = (Millis::ZERO, Vec::new());
        // Ten fit on each node.
        for id in 0..200 {
            let task = Task {
                id: TaskId(id),
                attempt: 1,
                leg: 1,
                demand: Resources::new(MilliCpu(100), MebiBytes(100)),
                remaining: Millis::new(1.0),
                deadline: Millis::new(1e9),
            };
            global.receive(now, ToGlobal::Forward(task, Term(0)), &mut actions);
        }
        let mut placed = 0;
        while placed < 200 {
            while let Some(wanted) = global.take(now, &mut actions) {
                pool.enqueue(wanted);
            }
            pool.send(global.records().unwrap());
            let lists = batches.recv().await.unwrap();
            assert_eq!(lists.term, term);
            pool.done(&lists);
            for list in &lists.lists {
                let verdict = global.commit(now, list, &mut actions).verdict;
                placed += u32::from(matches!(verdict, Verdict::Listed(_) | Verdict::Scanned));
            }
        }
        let mut on = [0; 20];
        for action in &actions {
            if let Action::Node(node, ToNode::Place(..)) = action {
                on[node.get()] += 1;
            }
        }
        assert_eq!(on, [10; 20], "each is full");
        assert_eq!(metrics.jobs.get(), 0);
        drop(pool);
        drop(sender);
        assert!(batches.recv().await.is_none(), "the threads have ended");
    }
}
