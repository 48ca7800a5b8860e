//! Pre-schedulers, the queue of their lists, and the committer: who works on what, and until when.
//!
//! The world that uses it keeps the clock: it is told at which time which [`Step`] comes, and brings it then.

use std::collections::VecDeque;

use fdn_core::Millis;
use fdn_scheduling::commit::{
    Choice, Commit, Committer, Entry, LeastRequested, List, PreScheduler, View,
};

use crate::Error;
use crate::seed::Rng;

/// What comes at a time that was told.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// A pre-scheduler has made its list.
    Listed(usize),
    /// The committer is through with the list at hand.
    Committed,
    /// The committer is through with a scan of all nodes.
    Scanned,
}

/// How long things take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs {
    /// t: a pre-scheduler's work on a container.
    pub(crate) scoring: Millis,
    /// What a list costs the committer.
    pub(crate) list: Millis,
    /// What each changed entry of it costs more.
    pub(crate) changed: Millis,
}

/// A list that was committed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) commit: Commit,
    /// Whether the node of its first entry had changed.
    pub(crate) top_changed: bool,
    /// From the reading of the nodes to the commit.
    pub(crate) age: Millis,
}

/// A pre-scheduler and the list it is making.
#[derive(Debug)]
struct Worker {
    scheduler: PreScheduler<LeastRequested>,
    view: View,
    rng: Rng,
    list: List,
    read: Millis,
}

#[derive(Debug)]
struct UnderWay {
    list: List,
    read: Millis,
}

/// Pre-schedulers and committer.
#[derive(Debug)]
pub(crate) struct SchedulerPool {
    pub(crate) committer: Committer<LeastRequested>,
    costs: Costs,
    workers: Vec<Worker>,
    idle: VecDeque<usize>,
    queue: VecDeque<UnderWay>,
    at_hand: Option<UnderWay>,
    scanning: bool,
    spare: Vec<List>,
}

impl SchedulerPool {
    /// All pre-schedulers are idle, each with its way of choosing and its stream of randomness.
    pub(crate) fn new(
        committer: Committer<LeastRequested>,
        costs: Costs,
        workers: impl Iterator<Item = (Choice, Rng)>,
    ) -> Self {
        let worker = |(choice, rng)| Worker {
            scheduler: PreScheduler::new(LeastRequested, choice),
            view: View::default(),
            rng,
            list: List::default(),
            read: Millis::ZERO,
        };
        let workers: Vec<Worker> = workers.map(worker).collect();
        Self {
            committer,
            costs,
            idle: (0..workers.len()).collect(),
            workers,
            queue: VecDeque::new(),
            at_hand: None,
            scanning: false,
            spare: Vec::new(),
        }
    }

    /// Idle pre-schedulers take containers, as long as there are any and more may be in flight; at most `most` of them.
    pub(crate) fn wake(&mut self, now: Millis, most: usize, mut tell: impl FnMut(Millis, Step)) {
        for _ in 0..most {
            let Some(&worker) = self.idle.front() else {
                return;
            };
            let Some(assignment) = self.committer.take(now) else {
                return;
            };
            self.idle.pop_front();
            let at_work = &mut self.workers[worker];
            at_work.view.read(self.committer.store());
            at_work.read = now;
            at_work.scheduler.list(
                &assignment,
                at_work.view.records(),
                &mut at_work.rng,
                &mut at_work.list,
            );
            tell(now + self.costs.scoring, Step::Listed(worker));
        }
    }

    /// A step that was told comes. The pre-scheduler that becomes idle by it is not woken here.
    pub(crate) fn step(
        &mut self,
        now: Millis,
        step: Step,
        tell: impl FnMut(Millis, Step),
    ) -> Result<Option<Done>, Error> {
        let mut tell = tell;
        let mut done = None;
        match step {
            Step::Listed(worker) => {
                let empty = self.spare.pop().unwrap_or_default();
                let made = &mut self.workers[worker];
                let list = std::mem::replace(&mut made.list, empty);
                let read = made.read;
                self.queue.push_back(UnderWay { list, read });
                self.idle.push_back(worker);
            }
            Step::Committed => {
                let finished = self.finish(now)?;
                if finished.commit.scanned {
                    // Scoring all nodes takes the committer as long as a pre-scheduler.
                    self.scanning = true;
                    tell(now + self.costs.scoring, Step::Scanned);
                }
                done = Some(finished);
            }
            Step::Scanned => self.scanning = false,
        }
        self.serve(now, tell);
        Ok(done)
    }

    /// The committer takes the next list, if it has none at hand.
    fn serve(&mut self, now: Millis, mut tell: impl FnMut(Millis, Step)) {
        if self.at_hand.is_some() || self.scanning {
            return;
        }
        let Some(next) = self.queue.pop_front() else {
            return;
        };
        let changed = next
            .list
            .entries
            .iter()
            .filter(|entry| self.has_changed(entry));
        let cost = self.costs.list + self.costs.changed * changed.count() as f64;
        tell(now + cost, Step::Committed);
        self.at_hand = Some(next);
    }

    fn finish(&mut self, now: Millis) -> Result<Done, Error> {
        let Some(UnderWay { list, read }) = self.at_hand.take() else {
            return Err(Error::Broken("the committer has no list".to_owned()));
        };
        let top = list.entries.first();
        let top_changed = top.is_some_and(|top| self.has_changed(top));
        let commit = self.committer.commit(&list);
        self.spare.push(list);
        Ok(Done {
            commit,
            top_changed,
            age: now - read,
        })
    }

    fn has_changed(&self, entry: &Entry) -> bool {
        let record = self.committer.store().get(entry.node);
        record.is_none_or(|record| record.version() != entry.version)
    }
}
