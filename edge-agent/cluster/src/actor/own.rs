//! The tasks that this node submits: open ones, their settlement, and the instances that they started.

use std::collections::VecDeque;

use fdn_core::{Millis, Resources};
use fdn_scheduling::instance::{NodeIndex, Settled, Task, TaskId, ToSubmitter};
use tokio::sync::mpsc;

use super::{Actor, RunningInstance};
use crate::host::{Host, InstanceEvent, Outcome, Reason, ScalingTask, Settlement, StartOrder};
use crate::identity::Tag;
use crate::idmap::IdMap;
use crate::tally::TallyMap;
use crate::trace::{self, Step};
use crate::wire::convert::TaskContext;

/// The first number of tasks that this node placed by itself, relative to the first task of the process.
const LOCAL_START_BASE: u64 = 1 << 39;

/// A task that is not settled.
#[derive(Debug)]
struct OpenTask {
    task: ScalingTask,
    submitted_at: Millis,
    attempt: u32,
    issue: u64,
    outcomes: Option<mpsc::UnboundedSender<Outcome>>,
}

/// An instance that was started for a task.
#[derive(Clone, Debug)]
struct PlacedInstance {
    on: Tag,
    /// The task, to be submitted again if its node is lost; `None` if it is not idempotent.
    rerun: Option<ScalingTask>,
    lost: bool,
}

/// The tables of this node's tasks and instances.
#[derive(Debug)]
pub(super) struct OwnTasks {
    open: IdMap<OpenTask>,
    placed: TallyMap<PlacedInstance>,
    /// By age, to forget the oldest at the limit.
    order: VecDeque<u64>,
    limit: usize,
    /// The number of the next attempt, across all tasks.
    next_issue: u64,
    next_local_start: u64,
}

impl OwnTasks {
    pub(super) fn new(tag: Tag, limit: usize) -> Self {
        Self {
            open: IdMap::default(),
            placed: TallyMap::new(|placed| placed.on),
            order: VecDeque::new(),
            limit,
            next_issue: 0,
            next_local_start: tag.first_task().0 + LOCAL_START_BASE,
        }
    }

    pub(super) const fn next_issue(&self) -> u64 {
        self.next_issue
    }

    pub(super) fn is_idle(&self) -> bool {
        self.open.is_empty() && self.placed.is_empty()
    }

    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    pub(super) fn placed(&self) -> usize {
        self.placed.len()
    }

    /// The sum ([`crate::tally`]) over the instances that this node requested and believes to run on a node.
    pub(super) fn running_on(&self, tag: Tag) -> u64 {
        self.placed.sum(tag)
    }

    /// The instances that this node believes to run on a node and for which `holds` is true.
    pub(super) fn believed_on(&self, tag: Tag, holds: impl Fn(u64) -> bool) -> Vec<u64> {
        self.placed.ids(tag, |id, _| holds(id))
    }

    /// The context of a task that is sent out, for the first time or again.
    pub(super) fn submitted(&mut self, task: &Task<Resources>) -> Option<TaskContext> {
        let open = self.open.get_mut(&task.id.0)?;
        if open.attempt != task.attempt {
            open.attempt = task.attempt;
            open.issue = self.next_issue;
            self.next_issue += 1;
        }
        Some(TaskContext {
            issue: open.issue,
            payload: open.task.payload.clone(),
            hops: Vec::new(),
        })
    }

    fn insert_placed(&mut self, id: TaskId, placed: PlacedInstance) {
        while self.placed.len() >= self.limit {
            match self.order.pop_front() {
                Some(oldest) => self.placed.remove(oldest),
                None => break,
            };
        }
        self.placed.insert(id.0, placed);
        self.order.push_back(id.0);
        // Most of the oldest are already removed.
        while let Some(oldest) = self.order.front()
            && self.placed.get(*oldest).is_none()
        {
            self.order.pop_front();
        }
    }
}

impl<H: Host> Actor<H> {
    pub(super) fn scale(
        &mut self,
        tasks: Vec<ScalingTask>,
        outcomes: &mpsc::UnboundedSender<Outcome>,
    ) {
        for task in tasks {
            self.submit(task, Some(outcomes.clone()));
        }
    }

    fn submit(
        &mut self,
        task: ScalingTask,
        outcomes: Option<mpsc::UnboundedSender<Outcome>>,
    ) -> Option<TaskId> {
        if task.payload.len() > self.settings.limits.payload.as_usize() {
            return self.refuse(&task, outcomes.as_ref(), Reason::PayloadTooLong);
        }
        if !self.acts() {
            return self.start_locally(&task, outcomes.as_ref());
        }
        let submitted = self.submitter.submit(
            self.now,
            task.demand,
            task.expected,
            &mut self.rng,
            &mut self.submitter_actions,
        );
        let Ok(id) = submitted else {
            return self.refuse(&task, outcomes.as_ref(), Reason::TooManyOpen);
        };
        let open = OpenTask {
            task,
            submitted_at: self.now,
            attempt: 0,
            issue: 0,
            outcomes,
        };
        self.own.open.insert(id.0, open);
        Some(id)
    }

    fn refuse(
        &self,
        task: &ScalingTask,
        outcomes: Option<&mpsc::UnboundedSender<Outcome>>,
        reason: Reason,
    ) -> Option<TaskId> {
        self.metrics.settled.with_label_values(&["refused"]).inc();
        send_outcome(
            outcomes,
            task,
            TaskId(0),
            Settlement::Refused(reason),
            Millis::ZERO,
        );
        None
    }

    /// Reserves room for an instance that already runs here, without a task.
    pub(super) fn hold(&mut self, demand: Resources) -> Option<TaskId> {
        let running = self.node.adopt(demand)?;
        let id = TaskId(self.own.next_local_start);
        self.own.next_local_start += 1;
        let entry = RunningInstance {
            running,
            demand,
            submitter: self.me.key.tag,
            unconfirmed: false,
        };
        self.running.insert(id.0, entry);
        Some(id)
    }

    /// Starts an instance on this node, without the schedulers: a node that is cut off still has its own room, which nobody else allocates.
    fn start_locally(
        &mut self,
        task: &ScalingTask,
        outcomes: Option<&mpsc::UnboundedSender<Outcome>>,
    ) -> Option<TaskId> {
        let Some(id) = self.hold(task.demand) else {
            return self.refuse(task, outcomes, Reason::CutOff);
        };
        self.place(id, self.me.key.tag, task);
        self.host.start(StartOrder {
            task: id,
            demand: task.demand,
            payload: task.payload.clone(),
            step: Step::Local,
        });
        self.metrics.settled.with_label_values(&["started"]).inc();
        let result = Settlement::Started {
            node: self.me.node.clone(),
            trace: Vec::new(),
        };
        send_outcome(outcomes, task, id, result, Millis::ZERO);
        Some(id)
    }

    fn place(&mut self, id: TaskId, on: Tag, task: &ScalingTask) {
        let rerun = task.idempotent.then(|| task.clone());
        let placed = PlacedInstance {
            on,
            rerun,
            lost: false,
        };
        self.own.insert_placed(id, placed);
    }

    /// Handles news of a task of this node.
    pub(super) fn submitter_receive(&mut self, message: ToSubmitter, hops: &[u64]) {
        let settled = self.submitter.receive(
            self.now,
            message,
            &mut self.rng,
            &mut self.submitter_actions,
        );
        if let Some(settled) = settled {
            self.settle(settled, hops);
        }
    }

    pub(super) fn settle_all(&mut self) {
        let mut all = std::mem::take(&mut self.settled);
        for settled in all.drain(..) {
            self.settle(settled, &[]);
        }
        self.settled = all;
    }

    fn settle(&mut self, settled: Settled, hops: &[u64]) {
        let (id, result, label) = match settled {
            Settled::Started(id, index) => {
                let slot = self.directory.slot(index);
                let name = |tag| {
                    let index = self.directory.index(tag)?;
                    Some(self.directory.slot(index).node.clone())
                };
                let result = Settlement::Started {
                    node: slot.node.clone(),
                    trace: trace::read(hops, name),
                };
                (id, result, "started")
            }
            Settled::Refused(id, refusal) => {
                let reason = Reason::Scheduler(refusal);
                (id, Settlement::Refused(reason), "refused")
            }
            // The node that has started it asks when this node is back, and is told to end it.
            Settled::Unresolved(id) if !self.acts() => {
                (id, Settlement::Refused(Reason::CutOff), "refused")
            }
            Settled::Unresolved(id) => (id, Settlement::Unresolved, "unresolved"),
        };
        self.metrics.settled.with_label_values(&[label]).inc();
        let Some(open) = self.own.open.remove(&id.0) else {
            return;
        };
        let took = self.now - open.submitted_at;
        if let Settled::Started(_, index) = settled {
            self.metrics.scheduled.observe(took.get().max(0.0) / 1000.0);
            let on = self.directory.slot(index).key.tag;
            self.place(id, on, &open.task);
        }
        if open.outcomes.is_none() && !matches!(settled, Settled::Started(..)) {
            // It was to be run again, and nobody waits for the outcome.
            self.host.instance_event(InstanceEvent::Failed(id));
        }
        send_outcome(open.outcomes.as_ref(), &open.task, id, result, took);
    }

    /// Handles the instances of a lost node: those declared idempotent are requested again.
    pub(super) fn instances_lost(&mut self, on: Tag) {
        for id in self.own.placed.ids(on, |_, placed| !placed.lost) {
            let Some(placed) = self.own.placed.get_mut(id) else {
                continue;
            };
            placed.lost = true;
            match placed.rerun.take() {
                Some(task) => {
                    self.own.placed.remove(id);
                    if let Some(rerun) = self.submit(task, None) {
                        self.metrics.reruns.inc();
                        self.host
                            .instance_event(InstanceEvent::Rerun(TaskId(id), rerun));
                    } else {
                        self.host.instance_event(InstanceEvent::Lost(TaskId(id)));
                    }
                }
                None => self.host.instance_event(InstanceEvent::Lost(TaskId(id))),
            }
        }
    }

    /// Handles the end of an instance that this node requested.
    pub(super) fn instance_ended(&mut self, id: u64, failed: bool) {
        if self.own.placed.remove(id).is_some() {
            self.host.instance_event(if failed {
                InstanceEvent::Failed(TaskId(id))
            } else {
                InstanceEvent::Ended(TaskId(id))
            });
        }
    }

    /// Whether a node that had been given up should keep an instance that it still has.
    pub(super) fn should_keep(&mut self, id: u64, index: NodeIndex) -> bool {
        let tag = self.directory.slot(index).key.tag;
        if self.own.open.contains_key(&id) {
            // The message about its start was lost.
            let started = ToSubmitter::Started {
                id: TaskId(id),
                attempt: 0,
                by: index,
            };
            self.submitter_receive(started, &[]);
            return true;
        }
        match self.own.placed.get_mut(id) {
            Some(placed) if placed.on == tag => {
                if std::mem::take(&mut placed.lost) {
                    let node = self.directory.slot(index).node.clone();
                    self.host
                        .instance_event(InstanceEvent::Returned(TaskId(id), node));
                }
                true
            }
            Some(_) | None => false,
        }
    }
}

fn send_outcome(
    outcomes: Option<&mpsc::UnboundedSender<Outcome>>,
    task: &ScalingTask,
    id: TaskId,
    result: Settlement,
    took: Millis,
) {
    if let Some(outcomes) = outcomes {
        // The receiver may be gone.
        let _ = outcomes.send(Outcome {
            label: task.label,
            task: id.0,
            result,
            took: std::time::Duration::from_secs_f64(took.get().max(0.0) / 1000.0),
        });
    }
}
