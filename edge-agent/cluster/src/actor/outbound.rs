//! Executes the actions of the schedulers: locally, or by sending messages.

use std::time::Duration;

use fdn_core::{Millis, Resources};
use fdn_scheduling::instance::{
    Action, NodeIndex, Running, Stage, Task, TaskId, ToGlobal, ToNode, ToSubmitter,
};

use super::{Actor, HeldContext, RunningInstance};
use crate::host::{Host, StartOrder};
use crate::identity::Tag;
use crate::trace::{self, Step};
use crate::wire::convert::{TaskContext, encode_refusal, encode_task};
use crate::wire::proto::{
    Attempt, Body, Fenced, Notice, Probe, Refused, Reply, Started, TaskDelivery,
};

/// The time from `then` to `now`.
fn since(now: Millis, then: Millis) -> Duration {
    Duration::from_secs_f64((now - then).get().max(0.0) / 1000.0)
}

impl<H: Host> Actor<H> {
    /// Executes all pending actions.
    pub(super) fn do_actions(&mut self) {
        let mut actions = std::mem::take(&mut self.node_actions);
        for action in actions.drain(..) {
            self.apply_node_action(action);
        }
        self.node_actions = actions;
        let mut actions = std::mem::take(&mut self.global_actions);
        for action in actions.drain(..) {
            self.apply_global_action(action);
        }
        self.global_actions = actions;
        let mut actions = std::mem::take(&mut self.submitter_actions);
        for action in actions.drain(..) {
            self.apply_submitter_action(action);
        }
        self.submitter_actions = actions;
    }

    /// Sends to a node, perhaps this one.
    fn send(&mut self, to: NodeIndex, body: Body) {
        if to == self.index {
            self.local.push_back(body);
        } else if self.directory.slot(to).gone.is_none() {
            let tag = self.directory.slot(to).key.tag;
            self.streams.send(tag, body);
        }
    }

    /// Sends to a process, perhaps this one.
    pub(super) fn send_to(&mut self, tag: Tag, body: Body) {
        if tag == self.me.key.tag {
            self.local.push_back(body);
        } else {
            self.streams.send(tag, body);
        }
    }

    /// Sends to the head; if there is none, the message is dropped, and whoever waits for an answer asks again.
    pub(super) fn send_to_head(&mut self, body: Body) {
        match self.election.head() {
            Some((_, key)) => self.send_to(key.tag, body),
            None => self.metrics.dropped.inc(),
        }
    }

    fn apply_node_action(&mut self, action: Action<Resources>) {
        match action {
            Action::Start {
                task,
                stage,
                running,
                ..
            } => self.start(&task, stage, running),
            Action::Node(to, message) => self.node_to_node(to, message),
            Action::Global(ToGlobal::Forward(task, term)) => {
                if let Some(mut body) =
                    self.task_body(TaskDelivery::Forward, &task, Step::Forwarded, 0)
                {
                    body.epoch = term.0;
                    self.send_to_head(Body::Task(body));
                }
            }
            Action::Global(ToGlobal::Bounce(task, report)) => {
                if let Some(mut body) =
                    self.task_body(TaskDelivery::Bounce, &task, Step::Bounced, 0)
                {
                    body.epoch = report.term.0;
                    body.report = Some(report.into());
                    self.send_to_head(Body::Task(body));
                }
            }
            Action::Global(ToGlobal::Notice(report)) => {
                self.send_to_head(Body::Notice(Notice {
                    report: report.into(),
                    epoch: report.term.0,
                }));
            }
            // Only submitters send fences.
            Action::Global(ToGlobal::Fence(_)) => {}
            Action::Submitter(message) => self.send_to_submitter(&message, false),
        }
    }

    fn node_to_node(&mut self, to: NodeIndex, message: ToNode<Resources>) {
        let body = match message {
            ToNode::Hint(task, hops) => {
                let body = self.task_body(TaskDelivery::Hint, &task, Step::Hinted, hops.into());
                body.map(Body::Task)
            }
            ToNode::Assign(task) => {
                let body = self.task_body(TaskDelivery::Assign, &task, Step::Probed, 0);
                body.map(Body::Task)
            }
            ToNode::Probe(probe) => Some(Body::Probe(Probe {
                id: probe.id.0,
                attempt: probe.attempt,
                leg: probe.leg,
                demand: probe.demand.into(),
                deadline: probe.deadline.get(),
                wait: probe.wait,
                issue: self
                    .contexts
                    .get(&probe.id.0)
                    .map_or(0, |kept| kept.context.issue),
            })),
            ToNode::Reply {
                id, attempt, yes, ..
            } => Some(Body::Reply(Reply {
                id: id.0,
                attempt,
                yes,
            })),
            ToNode::Release { id, attempt } => Some(Body::Release(Attempt { id: id.0, attempt })),
            // Nodes do not submit, place or fence.
            ToNode::Submit(_) | ToNode::Place(..) | ToNode::Fence(_) => None,
        };
        if let Some(body) = body {
            self.send(to, body);
        }
    }

    /// The message for a task that leaves this node's scheduler, with its context.
    fn task_body(
        &mut self,
        delivery: TaskDelivery,
        task: &Task<Resources>,
        step: Step,
        number: u64,
    ) -> Option<crate::wire::proto::Task> {
        let context = self.packed(task.id, step)?;
        Some(encode_task(delivery, task, context, number))
    }

    /// Takes the context of a task and adds a step to its trace; `None` if the task came without one, which its repetition corrects.
    fn packed(&mut self, id: TaskId, step: Step) -> Option<TaskContext> {
        let Some(kept) = self.contexts.remove(&id.0) else {
            self.metrics
                .ignored
                .with_label_values(&["no context"])
                .inc();
            return None;
        };
        Some(self.with_hop(kept, step))
    }

    fn with_hop(&self, kept: HeldContext, step: Step) -> TaskContext {
        let held = since(self.now, kept.since);
        self.metrics.held[step as usize].observe(held.as_secs_f64());
        let mut context = kept.context;
        trace::push(&mut context.hops, self.me.key.tag, step, held);
        context
    }

    fn start(&mut self, task: &Task<Resources>, stage: Stage, running: Running) {
        let step = match stage {
            Stage::Local => Step::Local,
            Stage::Probe => Step::Probe,
            Stage::Hint => Step::Hint,
            Stage::Global => Step::Global,
        };
        // A context is missing only if its time is over; with an empty payload the host then reports that it cannot start the instance.
        let context = self.packed(task.id, step).unwrap_or_default();
        self.started = Some((task.id.0, context.hops));
        let entry = RunningInstance {
            running,
            demand: task.demand,
            submitter: Tag::of_task(task.id),
            unconfirmed: false,
        };
        self.running.insert(task.id.0, entry);
        self.host.start(StartOrder {
            task: task.id,
            demand: task.demand,
            payload: context.payload,
            step,
        });
    }

    /// Sends news to the submitter of a task.
    fn send_to_submitter(&mut self, message: &ToSubmitter, global: bool) {
        let (id, body) = match *message {
            ToSubmitter::Started { id, attempt, .. } => {
                self.contexts.remove(&id.0);
                let hops = match self.started.take() {
                    Some((started, hops)) if started == id.0 => hops,
                    _ => Vec::new(),
                };
                let started = Started {
                    id: id.0,
                    attempt,
                    hops,
                };
                (id, Body::Started(started))
            }
            ToSubmitter::Refused {
                id,
                attempt,
                refusal,
            } => {
                let refused = Refused {
                    id: id.0,
                    attempt,
                    refusal: encode_refusal(refusal),
                };
                (id, Body::Refused(refused))
            }
            ToSubmitter::Broken { id, attempt } => {
                (id, Body::Broken(Attempt { id: id.0, attempt }))
            }
            ToSubmitter::Fenced {
                id,
                attempt,
                started,
                ..
            } => {
                let fenced = Fenced {
                    id: id.0,
                    attempt,
                    global,
                    started,
                };
                (id, Body::Fenced(fenced))
            }
        };
        self.send_to(Tag::of_task(id), body);
    }

    fn apply_global_action(&mut self, action: Action<Resources>) {
        match action {
            Action::Node(to, ToNode::Place(task, term, serial)) => {
                let Some(kept) = self.global_contexts.remove(&task.id.0) else {
                    self.metrics
                        .ignored
                        .with_label_values(&["no context"])
                        .inc();
                    return;
                };
                let context = self.with_hop(kept, Step::Placed);
                let mut body = encode_task(TaskDelivery::Place, &task, context, serial);
                body.epoch = term.0;
                self.send(to, Body::Task(body));
            }
            Action::Submitter(message) => self.send_to_submitter(&message, true),
            // The global scheduler has no other actions.
            Action::Start { .. } | Action::Node(..) | Action::Global(_) => {}
        }
    }

    fn apply_submitter_action(&mut self, action: Action<Resources>) {
        match action {
            Action::Node(to, ToNode::Submit(task)) => {
                if let Some(context) = self.own.submitted(&task) {
                    self.send(
                        to,
                        Body::Task(encode_task(TaskDelivery::Submit, &task, context, 0)),
                    );
                }
            }
            Action::Global(ToGlobal::Forward(task, term)) => {
                if let Some(context) = self.own.submitted(&task) {
                    let mut body = encode_task(TaskDelivery::Forward, &task, context, 0);
                    body.epoch = term.0;
                    self.send_to_head(Body::Task(body));
                }
            }
            Action::Node(to, ToNode::Fence(fence)) => self.send(to, Body::Fence(fence.into())),
            Action::Global(ToGlobal::Fence(fence)) => {
                if let Some((epoch, _)) = self.election.head() {
                    let mut body = crate::wire::proto::Fence::from(fence);
                    body.epoch = epoch.0;
                    self.send_to_head(Body::Fence(body));
                }
            }
            // The submitter has no other actions.
            Action::Start { .. } | Action::Node(..) | Action::Global(_) | Action::Submitter(_) => {}
        }
    }
}
