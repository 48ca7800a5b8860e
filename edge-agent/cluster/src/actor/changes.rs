//! Handles changes of membership and of the head: updates the schedulers accordingly, and reports the node's status.

use fdn_core::Millis;
use fdn_scheduling::instance::{Global, Node, NodeIndex};
use tracing::{info, warn};

use super::Actor;
use super::directory::IndexAllocation;
use crate::head::{Election, ElectionAction, Epoch};
use crate::host::Host;
use crate::identity::{Key, Member, Tag};
use crate::membership::{Change, Membership, Status};
use crate::stage::PreSchedulers;
use crate::status::{ClusterStatus, GlobalStatus, MemberStatus};
use crate::wire::convert;
use crate::wire::proto::Body;

impl<H: Host> Actor<H> {
    /// Applies all pending changes of membership and of the head, and what follows from them.
    pub(super) fn apply_changes(&mut self) {
        let is_news = !self.changes.is_empty();
        if is_news {
            self.acts_until = self.members.acts_until();
        }
        while !self.changes.is_empty() || !self.election_actions.is_empty() {
            for change in std::mem::take(&mut self.changes) {
                match change {
                    Change::Joined(member) => self.on_joined(&member),
                    Change::Gone(key) => self.on_gone(key),
                    Change::Draining(key, draining) => self.on_draining(key, draining),
                    Change::Condemned => self.rejoin(),
                }
                self.acts_until = self.members.acts_until();
            }
            for action in std::mem::take(&mut self.election_actions) {
                match action {
                    ElectionAction::Broadcast(ballot) => {
                        self.streams
                            .send_all(&Body::Ballot(convert::encode_ballot(ballot)));
                    }
                    ElectionAction::Reply(key, ballot) => {
                        let body = Body::Ballot(convert::encode_ballot(ballot));
                        self.streams.send(key.tag, body);
                    }
                    ElectionAction::Changed(epoch, head) => self.on_head_changed(epoch, head),
                }
            }
        }
        if is_news {
            self.changed.send_modify(|count| *count += 1);
        }
    }

    fn on_joined(&mut self, member: &Member) {
        if self.is_registered(member.key) {
            return;
        }
        let issue = self.own.next_issue();
        let allocation = self.directory.assign(member, self.forgotten(), issue);
        self.register_in_schedulers(allocation, member);
        if self.streams.is_connected(member.key.tag) {
            self.on_attached(member.key);
        }
    }

    /// Whether this incarnation of a process already has a number.
    fn is_registered(&self, key: Key) -> bool {
        let index = self.directory.index(key.tag);
        index.is_some_and(|index| self.directory.slot(index).key == key)
    }

    fn register_in_schedulers(&mut self, allocation: IndexAllocation, member: &Member) {
        let count = self.directory.count();
        match allocation {
            IndexAllocation::New(_) => {
                self.node.grow(count);
                self.submitter.grow(count);
                if let Some(global) = &mut self.global {
                    global.grow(member.capacity);
                }
            }
            IndexAllocation::Reused(index) => {
                self.node.returned(index);
                self.submitter.returned(index);
                if let Some(global) = &mut self.global {
                    global.replaced(index, member.capacity);
                }
            }
        }
    }

    /// Handles a node that was lost or has left: the schedulers continue without it.
    pub(super) fn on_gone(&mut self, key: Key) {
        let Some(index) = self.directory.remove(self.now, key) else {
            return;
        };
        info!(node = %self.directory.slot(index).node, %key, "a node is gone");
        self.remove_from_schedulers(index);
        self.differing.retain(|tag| *tag != key.tag);
        self.differences.remove(&key.tag);
        if self.streams.key(key.tag) == Some(key) {
            self.streams.drop_link(key.tag);
        }
        self.instances_lost(key.tag);
        // If it returns, its tasks may have been settled differently meanwhile.
        self.mark_unconfirmed(key.tag);
    }

    fn remove_from_schedulers(&mut self, index: NodeIndex) {
        if index != self.index {
            self.node
                .lost(self.now, index, &mut self.rng, &mut self.node_actions);
        }
        if let Some(global) = &mut self.global {
            global.lost(index);
        }
        self.submitter.lost(
            self.now,
            index,
            &mut self.rng,
            &mut self.submitter_actions,
            &mut self.settled,
        );
        self.settle_all();
    }

    fn on_draining(&mut self, key: Key, draining: bool) {
        if key == self.me.key {
            if draining {
                self.reserve_free_room();
                self.election.resign(key, &mut self.election_actions);
            } else {
                self.release_reserved_room();
            }
            // Others learn of it from the next list of members.
            let gossip = convert::encode_gossip(&self.members.gossip());
            self.streams.send_all(&Body::Members(gossip));
        }
    }

    /// Handles a new head, or the loss of the head.
    fn on_head_changed(&mut self, epoch: Epoch, head: Option<Key>) {
        self.hand_over();
        let Some(key) = head else {
            return;
        };
        if key == self.me.key {
            info!(node = %self.me.node, epoch = epoch.0, "this node is the head");
            self.take_over(epoch.term());
        }
        self.node.headed(epoch.term());
        self.submitter.headed(
            self.now,
            epoch.term(),
            &mut self.rng,
            &mut self.submitter_actions,
            &mut self.settled,
        );
        self.settle_all();
    }

    /// Makes a fresh start after the others have given this node up or refused it as it is: it joins again as the next incarnation. Its
    /// instances keep running; its scheduler starts without memory. It still drains if it did: the host says so only when that changes.
    pub(super) fn rejoin(&mut self) {
        warn!(node = %self.me.node, key = %self.me.key, "the cluster has given this node up; it joins anew");
        self.metrics.rejoins.inc();
        let old = self.index;
        self.directory.remove(self.now, self.me.key);
        let was_draining = self.members.is_draining(self.me.key);
        self.renew_key();
        self.joining_since = self.now;
        let timing = self.settings.membership();
        self.members = Membership::new(self.now, self.me.clone(), timing, false);
        self.members.set_draining(was_draining, &mut self.changes);
        self.acts_until = Millis::ZERO;
        self.had_majority = None;
        self.election.rejoin(self.now, &mut self.election_actions);
        self.hand_over();
        self.streams.drop_all();
        self.renew_hello();
        let issue = self.own.next_issue();
        let me = self.me.clone();
        let allocation = self.directory.assign(&me, self.forgotten(), issue);
        let (IndexAllocation::New(index) | IndexAllocation::Reused(index)) = allocation;
        self.index = index;
        let node = Node::new(
            index,
            self.directory.count(),
            me.capacity,
            self.settings.node(),
        );
        self.node = node.expect("these settings were used before");
        self.register_in_schedulers(allocation, &me);
        self.remove_from_schedulers(old);
        self.node_actions.clear();
        self.contexts.clear();
        let gone: Vec<u32> = (0..)
            .zip(self.directory.all())
            .filter(|(_, slot)| slot.gone.is_some())
            .map(|(index, _)| index)
            .collect();
        for index in gone {
            self.node.lost(
                self.now,
                NodeIndex(index),
                &mut self.rng,
                &mut self.node_actions,
            );
        }
        let all: Vec<NodeIndex> = self.directory.present().map(|(index, _)| index).collect();
        for other in all {
            self.directory.slot_mut(other).admits_from = None;
        }
        self.directory.slot_mut(index).admits_from = Some(issue);
        self.adopt_instances();
    }

    /// Takes the next incarnation. A process that nobody knows yet may as well become a new process, with a new tag.
    fn renew_key(&mut self) {
        if self.own.is_idle() && self.running.is_empty() && self.me.key.incarnation == 1 {
            self.me.key.tag = Tag::new(rand::Rng::next_u32(&mut self.rng));
            let count = self.directory.count();
            let first = self.me.key.tag.first_task();
            let submitter =
                fdn_scheduling::instance::Submitter::new(count, first, self.settings.submitter());
            self.submitter = submitter;
            for (slot, index) in self.directory.all().iter().zip(0..) {
                if slot.gone.is_some() {
                    self.submitter.lost(
                        self.now,
                        NodeIndex(index),
                        &mut self.rng,
                        &mut self.submitter_actions,
                        &mut self.settled,
                    );
                }
            }
            let limit = self.settings.limits.placed;
            self.own = super::own::OwnTasks::new(self.me.key.tag, limit);
            let patience = crate::clock::millis(self.settings.timing.election.as_duration());
            self.election = Election::new(self.now, patience);
        } else {
            self.me.key.incarnation += 1;
        }
    }

    /// Tells all members that this node leaves; from now on it no longer acts.
    pub(super) fn announce_leave(&mut self) {
        self.leaving = true;
        if self.members.is_joined() {
            self.streams.send_all(&Body::Leave(self.me.key.into()));
        }
    }

    pub(super) fn status(&self) -> ClusterStatus {
        let member = |member: &Member| MemberStatus {
            node: member.node.clone(),
            key: member.key,
            address: member.address,
            status: self.members.status(self.now, member.key),
            draining: self.members.is_draining(member.key),
            connected: self.streams.is_connected(member.key.tag) || member.key == self.me.key,
            capacity: member.capacity,
        };
        let head = self.election.head();
        ClusterStatus {
            node: self.me.node.clone(),
            joined: self.members.is_joined(),
            quorum: self.members.has_quorum(self.now),
            head: head.and_then(|(_, key)| Some(self.members.get(key)?.node.clone())),
            epoch: head.map_or(0, |(epoch, _)| epoch.0),
            members: self.members.members().map(member).collect(),
            capacity: self.node.capacity(),
            used: self.node.used(),
            reserved: self.node.reserved(),
            running: self.running.len(),
            open: self.own.open(),
            placed: self.own.placed(),
            waiting: self.global.as_ref().map_or(0, Global::waiting),
            held: self.submitter.held(),
            stages: self.metrics.stages(),
            global: self.global.as_ref().map(|global| GlobalStatus {
                pre_schedulers: self.pre_schedulers.as_ref().map_or(0, PreSchedulers::count),
                waiting: global.waiting(),
                out: global.out(),
                lists: self.metrics.lists_by_result(),
                conflicts: self.metrics.conflicts.get(),
            }),
        }
    }

    /// Updates the gauges.
    pub(super) fn update_gauges(&self) {
        let gauge = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let metrics = &self.metrics;
        let mut counts = [
            (Status::Alive, "alive", 0),
            (Status::Suspect, "suspect", 0),
            (Status::Condemned, "condemned", 0),
        ];
        for member in self.members.members() {
            let status = self.members.status(self.now, member.key);
            for count in counts.iter_mut().filter(|count| count.0 == status) {
                count.2 += 1;
            }
        }
        for (_, label, count) in counts {
            metrics.members.with_label_values(&[label]).set(count);
        }
        metrics.quorum.set(self.acts().into());
        metrics.head.set(self.global.is_some().into());
        metrics.epoch.set(self.election.head_view().epoch.0.into());
        metrics.open.set(gauge(self.own.open()));
        metrics.held_back.set(gauge(self.submitter.held()));
        metrics
            .out
            .set(gauge(self.global.as_ref().map_or(0, Global::out)));
        metrics.placed.set(gauge(self.own.placed()));
        metrics.running.set(gauge(self.running.len()));
        metrics
            .waiting
            .set(gauge(self.global.as_ref().map_or(0, Global::waiting)));
    }
}
