//! Instances that run on this node: their ends, their confirmation after this node was given up, and room kept free while it drains.

use fdn_core::Resources;
use fdn_scheduling::instance::{NodeIndex, TaskId};
use tracing::warn;

use super::{Actor, End};
use crate::host::Host;
use crate::identity::Tag;
use crate::wire::convert::Unreadable;
use crate::wire::proto::{self, Body, Word};

impl<H: Host> Actor<H> {
    /// Handles the host's report that an instance is gone.
    pub(super) fn ended(&mut self, end: End) {
        let id = end.task.0;
        let Some(here) = self.running.remove(id) else {
            return;
        };
        self.node.ended(here.running);
        self.keep_room();
        if here.submitter == self.me.key.tag {
            self.instance_ended(id, end.failed);
        } else {
            let word = if end.failed {
                Word::Failed
            } else {
                Word::Ended
            };
            self.say(here.submitter, id, word);
        }
    }

    fn say(&mut self, to: Tag, id: u64, word: Word) {
        let instance = proto::Instance {
            id,
            word: word.into(),
        };
        self.send_to(to, Body::Instance(instance));
    }

    /// Handles a message about an instance, from the node where it runs or from its submitter.
    pub(super) fn instance_word(
        &mut self,
        from: NodeIndex,
        instance: &proto::Instance,
    ) -> Result<(), Unreadable> {
        let tag = self.directory.slot(from).key.tag;
        let id = instance.id;
        match Word::try_from(instance.word).map_err(|_| Unreadable("word"))? {
            Word::Ended => self.instance_ended(id, false),
            Word::Failed => self.instance_ended(id, true),
            Word::Held => {
                let word = if self.keeps(id, from) {
                    Word::Keep
                } else {
                    Word::Surplus
                };
                self.say(tag, id, word);
            }
            Word::Keep => {
                if let Some(here) = self
                    .running
                    .get_mut(id)
                    .filter(|here| here.submitter == tag)
                {
                    here.unconfirmed = false;
                }
            }
            Word::Surplus => {
                let here = self.running.get_mut(id);
                if let Some(here) = here.filter(|here| here.submitter == tag && here.unconfirmed) {
                    // The submitter may answer several questions: the instance is ended only once.
                    here.unconfirmed = false;
                    self.metrics.surplus.inc();
                    self.host.end(TaskId(id));
                }
            }
        }
        Ok(())
    }

    /// The process that requested these instances is gone: if it returns, it must be asked whether it still wants them.
    pub(super) fn ask_later(&mut self, submitter: Tag) {
        self.running
            .values_mut()
            .filter(|here| here.submitter == submitter)
            .for_each(|here| {
                here.unconfirmed = true;
            });
    }

    /// After one of the two was given up and is a member again: asks the submitter whether it still wants its instances here.
    pub(super) fn ask_about_instances(&mut self, submitter: Tag) {
        for id in self.running.ids(submitter, |_, here| here.unconfirmed) {
            self.say(submitter, id, Word::Held);
        }
    }

    /// Passes the running instances to the scheduler of a new incarnation.
    pub(super) fn adopt_instances(&mut self) {
        self.kept.clear();
        for id in self.running.all() {
            let Some(here) = self.running.get_mut(id) else {
                continue;
            };
            if let Some(running) = self.node.adopt(here.demand) {
                here.running = running;
                here.unconfirmed = true;
            } else {
                self.running.remove(id);
                warn!(task = id, "an instance has no room any more and is ended");
                self.host.end(TaskId(id));
            }
        }
        self.keep_room();
    }

    /// While the node drains, keeps all free room from being used for instances.
    pub(super) fn keep_room(&mut self) {
        if self.members.is_draining(self.me.key) {
            let free = self.node.free();
            if free != Resources::default()
                && let Some(kept) = self.node.adopt(free)
            {
                self.kept.push(kept);
            }
        }
    }

    /// Releases the room that was kept.
    pub(super) fn give_room(&mut self) {
        for kept in self.kept.drain(..) {
            self.node.ended(kept);
        }
    }
}
