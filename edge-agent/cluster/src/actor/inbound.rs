//! Handles messages from other nodes, and from this node to itself.

use fdn_core::{Millis, Resources};
use fdn_scheduling::instance::{NodeIndex, Probe, TaskId, Term, ToGlobal, ToNode, ToSubmitter};
use tracing::debug;

use super::{Actor, HeldContext};
use crate::host::Host;
use crate::identity::{Key, Tag};
use crate::link::{LinkEvent, SessionId};
use crate::wire::convert::{
    self, Unreadable, decode_fence, decode_refusal, decode_report, decode_task, time,
};
use crate::wire::proto::{self, Body, Frame, TaskDelivery};

/// Why a message was ignored.
enum Ignored {
    Unreadable(Unreadable),
    Because(&'static str),
}

impl From<Unreadable> for Ignored {
    fn from(unreadable: Unreadable) -> Self {
        Self::Unreadable(unreadable)
    }
}

impl<H: Host> Actor<H> {
    pub(super) fn on_link_event(&mut self, event: LinkEvent) {
        match event {
            LinkEvent::Opened(opened) => self.on_opened(*opened),
            LinkEvent::Frame(session, frame) => self.frame(session, frame),
            LinkEvent::Closed(session) => {
                self.streams.closed(session);
            }
            LinkEvent::Unreached(address) => self.streams.on_disconnected(address, &mut self.rng),
        }
    }

    fn frame(&mut self, session: SessionId, frame: Frame) {
        let Some(from) = self.streams.peer(session) else {
            return;
        };
        self.metrics.messages_in.inc_by(frame.items.len() as u64);
        self.members.record_contact(self.now, from);
        for item in frame.items {
            match item.body {
                Some(body) => self.handle(from, body),
                None => self.metrics.ignored.with_label_values(&["unknown"]).inc(),
            }
            // The stream may have been given up meanwhile, and the changes affect how the following messages are handled.
            if !self.changes.is_empty() {
                self.apply_changes();
            }
        }
    }

    /// Handles one message from a process.
    pub(super) fn handle(&mut self, from: Key, body: Body) {
        let result = if self.is_between_members(&body) {
            self.between_members(from, body)
        } else {
            match self.directory.index(from.tag) {
                Some(index) if self.directory.slot(index).key == from => {
                    self.scheduling(index, body)
                }
                Some(_) | None => Err(Ignored::Because("stranger")),
            }
        };
        // Before the next message, which may be a repetition of this one: two pending actions for one task would need its context twice.
        self.do_actions();
        match result {
            Ok(()) => {}
            Err(Ignored::Because(reason)) => {
                self.metrics.ignored.with_label_values(&[reason]).inc();
            }
            Err(Ignored::Unreadable(unreadable)) => {
                debug!(%from, %unreadable, "a message was not understood");
                self.metrics
                    .ignored
                    .with_label_values(&["unreadable"])
                    .inc();
            }
        }
    }

    const fn is_between_members(&self, body: &Body) -> bool {
        matches!(
            body,
            Body::Hello(_)
                | Body::Rejected(_)
                | Body::Ping(_)
                | Body::Ack(_)
                | Body::Members(_)
                | Body::Ballot(_)
                | Body::Leave(_)
        )
    }

    fn between_members(&mut self, from: Key, body: Body) -> Result<(), Ignored> {
        match body {
            Body::Ping(ping) => {
                let (opinions, known) = convert::decode_opinions(&ping.opinions);
                self.set_admits_from(from, ping.admitted);
                self.on_ping(from, ping.sent, &opinions, known);
                if let Some(sum) = ping.tally {
                    self.check_tally(from, sum);
                }
            }
            Body::Ack(ack) => {
                let (opinions, known) = convert::decode_opinions(&ack.opinions);
                self.set_admits_from(from, ack.admitted);
                let (sent, clock) = (time(ack.sent)?, time(ack.clock)?);
                self.on_ack(from, (sent, ack.granted), clock, &opinions, known);
            }
            Body::Members(members) => {
                let gossip = convert::decode_gossip(&members)?;
                self.on_members(from, &gossip);
            }
            Body::Ballot(ballot) => {
                let ballot = convert::decode_ballot(&ballot)?;
                self.on_ballot(from, ballot);
            }
            Body::Rejected(rejected) => self.on_rejected(from, &rejected),
            Body::Leave(key) => {
                if Key::from(key) == from {
                    self.members.left(from, &mut self.changes);
                }
            }
            _ => return Err(Ignored::Because("out of place")),
        }
        Ok(())
    }

    fn scheduling(&mut self, from: NodeIndex, body: Body) -> Result<(), Ignored> {
        match body {
            Body::Started(started) => {
                let message = ToSubmitter::Started {
                    id: TaskId(started.id),
                    attempt: started.attempt,
                    by: from,
                };
                self.submitter_receive(message, &started.hops);
            }
            Body::Refused(refused) => {
                let message = ToSubmitter::Refused {
                    id: TaskId(refused.id),
                    attempt: refused.attempt,
                    refusal: decode_refusal(refused.refusal)?,
                };
                self.submitter_receive(message, &[]);
            }
            Body::Broken(broken) => {
                let message = ToSubmitter::Broken {
                    id: TaskId(broken.id),
                    attempt: broken.attempt,
                };
                self.submitter_receive(message, &[]);
            }
            Body::Fenced(fenced) => {
                let message = ToSubmitter::Fenced {
                    id: TaskId(fenced.id),
                    attempt: fenced.attempt,
                    by: (!fenced.global).then_some(from),
                    started: fenced.started,
                };
                self.submitter_receive(message, &[]);
            }
            Body::Instance(instance) => self.instance_message(from, &instance)?,
            Body::Recount(_) => self.send_running(from),
            Body::Running(running) => self.apply_running(from, &running),
            _ if !self.acts() => return Err(Ignored::Because("no majority")),
            Body::Task(task) => self.task(from, task)?,
            Body::Probe(probe) => self.probe(from, &probe)?,
            Body::Reply(reply) => self.node_receive(ToNode::Reply {
                id: TaskId(reply.id),
                attempt: reply.attempt,
                from,
                yes: reply.yes,
            }),
            Body::Release(release) => self.node_receive(ToNode::Release {
                id: TaskId(release.id),
                attempt: release.attempt,
            }),
            Body::Fence(fence) if fence.epoch == 0 => {
                let fence = decode_fence(&fence)?;
                self.node_receive(ToNode::Fence(fence));
            }
            Body::Fence(fence) => {
                self.is_for_this_head(fence.epoch)?;
                let fence = decode_fence(&fence)?;
                self.global_receive(ToGlobal::Fence(fence));
            }
            Body::Notice(notice) => {
                self.is_for_this_head(notice.epoch)?;
                let report = decode_report(&notice.report, from, notice.epoch);
                self.global_receive(ToGlobal::Notice(report));
            }
            Body::Loads(loads) => {
                let head = self.election.head();
                let sender = self.directory.slot(from).key;
                if head.is_some_and(|(epoch, key)| epoch.0 == loads.epoch && key == sender) {
                    self.apply_loads(&loads);
                }
            }
            _ => return Err(Ignored::Because("out of place")),
        }
        Ok(())
    }

    fn node_receive(&mut self, message: ToNode<Resources>) {
        self.node
            .receive(self.now, message, &mut self.rng, &mut self.node_actions);
    }

    fn global_receive(&mut self, message: ToGlobal<Resources>) {
        if let Some(global) = &mut self.global {
            global.receive(self.now, message, &mut self.global_actions);
        }
    }

    /// Fails unless this node is the head of that epoch.
    fn is_for_this_head(&self, epoch: u32) -> Result<(), Ignored> {
        let is_it = self.global.is_some()
            && self
                .election
                .head()
                .is_some_and(|(known, _)| known.0 == epoch);
        is_it.then_some(()).ok_or(Ignored::Because("other head"))
    }

    fn task(&mut self, from: NodeIndex, body: proto::Task) -> Result<(), Ignored> {
        let delivery = TaskDelivery::try_from(body.delivery).map_err(|_| Unreadable("way"))?;
        let (number, report, epoch) = (body.number, body.report, body.epoch);
        let (task, context) = decode_task(body, self.settings.limits.payload.as_usize())?;
        let (id, attempt) = (task.id, task.attempt);
        let is_for_global = matches!(delivery, TaskDelivery::Forward | TaskDelivery::Bounce);
        if is_for_global {
            self.is_for_this_head(epoch)?;
        } else {
            self.may_start(id, attempt, context.issue)?;
        }
        let kept = HeldContext {
            context,
            since: self.now,
            deadline: task.deadline,
        };
        if is_for_global {
            self.global_contexts.insert(id.0, kept);
        } else {
            self.contexts.insert(id.0, kept);
        }
        match delivery {
            TaskDelivery::Submit => self.node_receive(ToNode::Submit(task)),
            TaskDelivery::Hint => {
                let hops = u8::try_from(number).map_err(|_| Unreadable("hops"))?;
                self.node_receive(ToNode::Hint(task, hops));
            }
            TaskDelivery::Assign => self.node_receive(ToNode::Assign(task)),
            TaskDelivery::Place => self.node_receive(ToNode::Place(task, Term(epoch), number)),
            TaskDelivery::Forward => self.global_receive(ToGlobal::Forward(task, Term(epoch))),
            TaskDelivery::Bounce => {
                let report = report.ok_or(Unreadable("report"))?;
                let report = decode_report(&report, from, epoch);
                self.global_receive(ToGlobal::Bounce(task, report));
            }
        }
        Ok(())
    }

    /// Fails if an attempt may not start here: it must have begun when its submitter knew of this node, because else the submitter's fence
    /// would not ask here.
    fn may_start(&mut self, id: TaskId, attempt: u32, issue: u64) -> Result<(), Ignored> {
        let submitter = Tag::of_task(id);
        let index = self.directory.index(submitter);
        let admits = index.and_then(|index| self.directory.slot(index).admits_from);
        match admits {
            Some(first) if issue >= first => Ok(()),
            Some(_) => {
                let broken = proto::Attempt { id: id.0, attempt };
                self.send_to(submitter, Body::Broken(broken));
                Err(Ignored::Because("older than this node"))
            }
            None => Err(Ignored::Because("unknown submitter")),
        }
    }

    fn probe(&mut self, from: NodeIndex, probe: &proto::Probe) -> Result<(), Ignored> {
        let id = TaskId(probe.id);
        let index = self.directory.index(Tag::of_task(id));
        let admits = index.and_then(|index| self.directory.slot(index).admits_from);
        if admits.is_none_or(|first| probe.issue < first) {
            let reply = proto::Reply {
                id: probe.id,
                attempt: probe.attempt,
                yes: false,
            };
            let tag = self.directory.slot(from).key.tag;
            self.send_to(tag, Body::Reply(reply));
            return Err(Ignored::Because("older than this node"));
        }
        let deadline: Millis = time(probe.deadline)?;
        self.node_receive(ToNode::Probe(Probe {
            id,
            attempt: probe.attempt,
            leg: probe.leg,
            demand: probe.demand.into(),
            deadline,
            home: from,
            wait: probe.wait,
        }));
        Ok(())
    }
}
