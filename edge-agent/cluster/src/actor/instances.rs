//! Instances that run here: ended, held after this node was given up, or kept from.

use fdn_core::Resources;
use fdn_scheduling::instance::{NodeIndex, TaskId};
use tracing::warn;

use super::{Actor, End};
use crate::host::Host;
use crate::identity::Tag;
use crate::wire::convert::Unreadable;
use crate::wire::proto::{self, Body, Word};

impl<H: Host> Actor<H> {
    /// The host says that an instance is gone.
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

    /// A word about an instance, from where it runs or from where it was asked for.
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
                    // Who asks twice is told twice: it is ended once.
                    here.unconfirmed = false;
                    self.metrics.surplus.inc();
                    self.host.end(TaskId(id));
                }
            }
        }
        Ok(())
    }

    /// The process that asked for these instances is gone: if it is back, it may not want them.
    pub(super) fn ask_later(&mut self, submitter: Tag) {
        self.running
            .values_mut()
            .filter(|here| here.submitter == submitter)
            .for_each(|here| {
                here.unconfirmed = true;
            });
    }

    /// One of the two was given up and is a member again: does that process still want what runs here for it?
    pub(super) fn ask_about_instances(&mut self, submitter: Tag) {
        for id in self.running.ids(submitter, |_, here| here.unconfirmed) {
            self.say(submitter, id, Word::Held);
        }
    }

    /// Hands the instances that run to the scheduler of a new incarnation.
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

    /// While the node drains, what is free is kept from instances.
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

    /// Room that was kept is there again.
    pub(super) fn give_room(&mut self) {
        for kept in self.kept.drain(..) {
            self.node.ended(kept);
        }
    }
}
