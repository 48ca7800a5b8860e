//! Instances that run on this node: their ends, their confirmation after this node was given up, and room kept free while it drains.

use fdn_core::Resources;
use fdn_scheduling::instance::{NodeIndex, TaskId};
use tracing::warn;

use super::{Actor, End};
use crate::host::Host;
use crate::identity::Tag;
use crate::wire::convert::Unreadable;
use crate::wire::proto::{self, Body, InstanceMessage};

impl<H: Host> Actor<H> {
    /// Handles the host's report that an instance is gone.
    pub(super) fn ended(&mut self, end: End) {
        let id = end.task.0;
        let Some(entry) = self.running.remove(id) else {
            return;
        };
        self.node.ended(entry.running);
        self.reserve_free_room();
        if entry.submitter == self.me.key.tag {
            self.instance_ended(id, end.failed);
        } else {
            let message = if end.failed {
                InstanceMessage::Failed
            } else {
                InstanceMessage::Ended
            };
            self.send_instance_message(entry.submitter, id, message);
        }
    }

    fn send_instance_message(&mut self, to: Tag, id: u64, message: InstanceMessage) {
        let instance = proto::Instance {
            id,
            message: message.into(),
        };
        self.send_to(to, Body::Instance(instance));
    }

    /// Handles a message about an instance, from the node where it runs or from its submitter.
    pub(super) fn instance_message(
        &mut self,
        from: NodeIndex,
        instance: &proto::Instance,
    ) -> Result<(), Unreadable> {
        let tag = self.directory.slot(from).key.tag;
        let id = instance.id;
        match InstanceMessage::try_from(instance.message).map_err(|_| Unreadable("word"))? {
            InstanceMessage::Ended => self.instance_ended(id, false),
            InstanceMessage::Failed => self.instance_ended(id, true),
            InstanceMessage::Held => {
                let message = if self.should_keep(id, from) {
                    InstanceMessage::Keep
                } else {
                    InstanceMessage::Surplus
                };
                self.send_instance_message(tag, id, message);
            }
            InstanceMessage::Keep => {
                if let Some(entry) = self
                    .running
                    .get_mut(id)
                    .filter(|entry| entry.submitter == tag)
                {
                    entry.unconfirmed = false;
                }
            }
            InstanceMessage::Surplus => {
                let entry = self.running.get_mut(id);
                if let Some(entry) =
                    entry.filter(|entry| entry.submitter == tag && entry.unconfirmed)
                {
                    // The submitter may answer several questions: the instance is ended only once.
                    entry.unconfirmed = false;
                    self.metrics.surplus.inc();
                    self.host.end(TaskId(id));
                }
            }
        }
        Ok(())
    }

    /// The process that requested these instances is gone: if it returns, it must be asked whether it still wants them.
    pub(super) fn mark_unconfirmed(&mut self, submitter: Tag) {
        self.running
            .values_mut()
            .filter(|entry| entry.submitter == submitter)
            .for_each(|entry| {
                entry.unconfirmed = true;
            });
    }

    /// After one of the two was given up and is a member again: asks the submitter whether it still wants its instances here.
    pub(super) fn request_confirmations(&mut self, submitter: Tag) {
        for id in self.running.ids(submitter, |_, entry| entry.unconfirmed) {
            self.send_instance_message(submitter, id, InstanceMessage::Held);
        }
    }

    /// Passes the running instances to the scheduler of a new incarnation.
    pub(super) fn adopt_instances(&mut self) {
        self.drain_reservations.clear();
        for id in self.running.all() {
            let Some(entry) = self.running.get_mut(id) else {
                continue;
            };
            if let Some(running) = self.node.adopt(entry.demand) {
                entry.running = running;
                entry.unconfirmed = true;
            } else {
                self.running.remove(id);
                warn!(task = id, "an instance has no room any more and is ended");
                self.host.end(TaskId(id));
            }
        }
        self.reserve_free_room();
    }

    /// While the node drains, keeps all free room from being used for instances.
    pub(super) fn reserve_free_room(&mut self) {
        if self.members.is_draining(self.me.key) {
            let free = self.node.free();
            if free != Resources::default()
                && let Some(kept) = self.node.adopt(free)
            {
                self.drain_reservations.push(kept);
            }
        }
    }

    /// Releases the room that was kept.
    pub(super) fn release_reserved_room(&mut self) {
        for kept in self.drain_reservations.drain(..) {
            self.node.ended(kept);
        }
    }
}
