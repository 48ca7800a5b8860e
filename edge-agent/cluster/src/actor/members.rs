//! Communication between members: new streams, pings, gossip, votes, and joining.

use fdn_core::Millis;
use fdn_scheduling::instance::NodeIndex;
use tracing::{debug, info};

use super::Actor;
use crate::head::{Ballot, HeadView};
use crate::host::Host;
use crate::identity::{Key, Member};
use crate::link::{Opened, hello};
use crate::membership::{Gossip, Opinions, Refusal, Status};
use crate::wire::convert;
use crate::wire::proto::{self, Body};

impl<H: Host> Actor<H> {
    /// Handles a new stream on which the other side has identified itself.
    pub(super) fn on_opened(&mut self, opened: Opened) {
        let member = opened.member.clone();
        if member.node == self.me.node {
            // This node's own address among the seeds, or another process under its name.
            opened.closer.cancel();
            return;
        }
        if opened.peer.as_ref().is_some_and(|peer| !peer.is_welcome()) {
            // Its certificate was revoked after it had connected, and an operator's word that it is gone came before this stream.
            debug!(node = %member.node, "a node that is no longer welcome was not admitted");
            opened.closer.cancel();
            return;
        }
        if self.is_of_another(&member) {
            // Everything received on a stream counts as its tag's: the stream of the node that has it must not give way.
            debug!(node = %member.node, key = %member.key, "a node with another one's tag was not admitted");
            let rejected = rejection(Refusal::TagTaken);
            opened
                .outbox
                .push(&mut vec![Body::Rejected(rejected).into()]);
            opened.closer.cancel();
            return;
        }
        let (joined, key) = (opened.joined, member.key);
        let proper = opened.dialed == (self.me.node < member.node);
        if !self.streams.attach(opened, proper) {
            return;
        }
        if !self.members.is_joined() {
            if self.members.get(key).is_some() {
                self.on_attached(key);
            }
            return;
        }
        match self.members.admit(self.now, &member, &mut self.changes) {
            Ok(is_new) => {
                self.apply_changes();
                if is_new {
                    info!(node = %member.node, %key, "a node has joined");
                    let gossip = [Gossip::Member {
                        counts: self.members.counts(key),
                        draining: false,
                        member,
                    }];
                    self.streams
                        .send_all(&Body::Members(convert::encode_gossip(&gossip)));
                }
                let all = convert::encode_gossip(&self.members.gossip());
                self.streams.send(key.tag, Body::Members(all));
                self.on_attached(key);
            }
            Err(refusal) => {
                // The refusal may still have shown that an earlier process of that name is over.
                self.apply_changes();
                debug!(node = %member.node, %refusal, joined, "a node was not admitted");
                if joined && refusal == Refusal::Condemned {
                    // From the list it learns that it was given up. An earlier release ends the stream at the refusal, before it could ask for it.
                    let all = convert::encode_gossip(&self.members.gossip());
                    self.streams.send(key.tag, Body::Members(all));
                }
                self.streams
                    .send(key.tag, Body::Rejected(rejection(refusal)));
                self.streams.flush();
                if !joined {
                    self.streams.drop_link(key.tag);
                }
            }
        }
    }

    /// Whether a process shows the tag of another node: of a member or, if no member has it, of a stranger with a stream.
    fn is_of_another(&self, member: &Member) -> bool {
        let tag = member.key.tag;
        let own = self.me.key.tag == tag;
        if own && !self.members.is_joined() {
            // Its refusal tells this node to draw another tag.
            return false;
        }
        let mut members = self.members.members();
        let owner = members.find(|other| other.key.tag == tag);
        let owner = owner.map(|owner| &owner.node);
        owner
            .or_else(|| self.streams.node(tag))
            .is_some_and(|owner| *owner != member.node)
    }

    /// Handles a new stream to a member: both sides learn at once from which attempt on they may start each other's tasks, and exchange
    /// grants.
    pub(super) fn on_attached(&mut self, key: Key) {
        if self.number(key).is_some() {
            self.request_confirmations(key.tag);
            self.ping(key);
        }
    }

    /// The number of a member, if this incarnation has one.
    pub(super) fn number(&self, key: Key) -> Option<NodeIndex> {
        let index = self.directory.index(key.tag)?;
        (self.directory.slot(index).key == key).then_some(index)
    }

    /// Notes from which attempt on a member starts tasks of this node.
    pub(super) fn set_admits_from(&mut self, from: Key, first: Option<u64>) {
        if let (Some(index), Some(_)) = (self.number(from), first) {
            self.directory.slot_mut(index).admits_from = first;
        }
    }

    /// The first attempt of that member that may start here.
    fn admits(&self, key: Key) -> Option<u64> {
        let index = self.number(key)?;
        Some(self.directory.slot(index).admitted_from)
    }

    pub(super) fn on_rejected(&mut self, from: Key, rejected: &proto::Rejected) {
        debug!(%from, reason = rejected.reason, "not admitted");
        let is_joined = self.members.is_joined();
        if is_joined && self.members.get(from).is_some() {
            // Whether the others have given this node up is in the list that answers its next ping: it must not end the stream before.
            return;
        }
        if self.streams.key(from.tag) != Some(from) {
            // The stream was given up at an earlier message of the same frame, such as that list: what is refused is the incarnation before.
            return;
        }
        // A member of another cluster keeps what it has; streams are opened anew until one of the two takes the other in.
        if !is_joined {
            if rejected.renew {
                self.rejoin();
            }
            // Whoever refuses is a member of a cluster: there is one to join, so none is to be founded until the next attempts have failed too. The
            // next one comes this late at most.
            let timing = &self.settings.timing;
            let longest = timing.reconnect_most.as_duration() + timing.connect.as_duration();
            self.joining_since = self.now + crate::clock::millis(longest);
        }
        self.streams.drop_link(from.tag);
    }

    /// Asks all members for grants.
    pub(super) fn ping_all(&mut self) {
        let keys: Vec<Key> = self.members.members().map(|member| member.key).collect();
        for key in keys {
            if key != self.me.key && self.streams.is_connected(key.tag) {
                self.ping(key);
            }
        }
    }

    fn ping(&mut self, to: Key) {
        let opinions = self.members.opinions(self.now);
        let ping = proto::Ping {
            sent: self.now.get(),
            opinions: convert::encode_opinions(&opinions, self.election.head_view()),
            admitted: self.admits(to),
            tally: Some(self.running.sum(to.tag)),
        };
        self.streams.send(to.tag, Body::Ping(ping));
    }

    pub(super) fn on_ping(&mut self, from: Key, sent: f64, opinions: &Opinions, known: HeadView) {
        if !self.members.is_joined() || self.leaving {
            return;
        }
        let granted = self
            .members
            .on_ping(self.now, from, opinions, &mut self.changes);
        let mine = self.members.opinions(self.now);
        let ack = proto::Ack {
            sent,
            granted,
            clock: self.now.get(),
            admitted: self.admits(from),
            opinions: convert::encode_opinions(&mine, self.election.head_view()),
        };
        self.streams.send(from.tag, Body::Ack(ack));
        if self.members.get(from).is_none() {
            // The sender believes that it is a member; from the list it learns that it is not.
            let all = convert::encode_gossip(&self.members.gossip());
            self.streams.send(from.tag, Body::Members(all));
            return;
        }
        self.compare(from, opinions.digest, mine.digest);
        self.update_head(from, known);
    }

    /// Sends the list of members if the lists differ at two pings in a row: a shorter difference is only gossip in transit.
    fn compare(&mut self, from: Key, theirs: u64, mine: u64) {
        let at = self.differing.iter().position(|tag| *tag == from.tag);
        match (theirs == mine, at) {
            (true, Some(at)) => {
                self.differing.swap_remove(at);
            }
            (false, Some(at)) => {
                self.differing.swap_remove(at);
                let all = convert::encode_gossip(&self.members.gossip());
                self.streams.send(from.tag, Body::Members(all));
            }
            (false, None) => self.differing.push(from.tag),
            (true, None) => {}
        }
    }

    fn update_head(&mut self, from: Key, known: HeadView) {
        if self.members.is_joined() {
            self.election.receive_view(
                self.now,
                from,
                known,
                &self.members,
                &mut self.election_actions,
            );
        }
    }

    pub(super) fn on_ballot(&mut self, from: Key, ballot: Ballot) {
        if self.members.is_joined() {
            self.election.receive(
                self.now,
                from,
                ballot,
                &self.members,
                &mut self.election_actions,
            );
        }
    }

    pub(super) fn on_ack(
        &mut self,
        from: Key,
        (sent, granted): (Millis, bool),
        clock: Millis,
        opinions: &Opinions,
        known: HeadView,
    ) {
        let answer = (sent, granted);
        self.members
            .on_ack(self.now, from, answer, opinions, &mut self.changes);
        if granted && let Some(member) = self.members.get(from) {
            self.streams.reset_backoff(member.address);
        }
        // That sorts all leases, so it is not done for each answer: the next tick takes the new leases into account, and until then the value
        // is earlier than the truth.
        if !self.acts() || !opinions.condemned.is_empty() {
            self.acts_until = self.members.acts_until();
        }
        // The difference between its clock and the middle of the round trip.
        let apart = (clock.get() - (sent.get() + self.now.get()) / 2.0).abs() / 1000.0;
        self.metrics
            .clock_apart
            .set(apart.max(self.metrics.clock_apart.get() * 0.99));
        self.update_head(from, known);
    }

    /// Handles a list of members.
    pub(super) fn on_members(&mut self, from: Key, gossip: &[Gossip]) {
        let was_joined = self.members.is_joined();
        self.members
            .learn(self.now, from, gossip, &mut self.changes);
        self.apply_changes();
        if !was_joined && self.members.is_joined() {
            info!(node = %self.me.node, key = %self.me.key, members = self.members.len(), "joined the cluster");
            self.on_self_joined();
        }
    }

    /// Handles that this node has become a member: nodes that it knew before and that are not members are gone.
    pub(super) fn on_self_joined(&mut self) {
        self.renew_hello();
        self.acts_until = self.members.acts_until();
        let present = self.directory.present();
        let known: Vec<Key> = present.map(|(_, slot)| slot.key).collect();
        for key in known {
            if self.members.get(key).is_none() {
                self.on_gone(key);
            } else if self.streams.is_connected(key.tag) {
                self.on_attached(key);
            }
        }
        self.request_confirmations(self.me.key.tag);
    }

    /// Handles an operator's statement that a node is dead for good.
    pub(super) fn forget(&mut self, node: &fdn_core::NodeId) {
        let members = self.members.members();
        let named = members.filter(|member| member.node == *node);
        let keys: Vec<Key> = named.map(|member| member.key).collect();
        for key in &keys {
            self.members.left(*key, &mut self.changes);
        }
        if !keys.is_empty() {
            self.apply_changes();
            let gossip = convert::encode_gossip(&self.members.gossip());
            self.streams.send_all(&Body::Members(gossip));
        }
        // Also those of its processes that are no members.
        self.streams.drop_node(node);
    }

    pub(super) fn renew_hello(&self) {
        let message = hello(&self.cluster, &self.me, self.members.is_joined());
        let shared = self.streams.shared();
        *shared
            .hello
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = message;
    }

    /// Does the periodic work.
    pub(super) fn tick(&mut self) {
        self.members.tick(self.now, &mut self.changes);
        self.apply_changes();
        self.acts_until = self.members.acts_until();
        self.tell_fitness();
        self.connect_to_members();
        if self.members.is_joined() {
            self.election.tick(
                self.now,
                &self.members,
                self.lease,
                &mut self.election_actions,
            );
            if self.now >= self.next_ping {
                self.ping_all();
                let every = self.settings.timing.ping_every.as_duration();
                self.next_ping = self.now + crate::clock::millis(every);
            }
        }
        self.update_gauges();
    }

    /// Tells whether this node could be the head. A majority that was lost a moment ago may be back in the next: a second member that has just
    /// joined the first one, for example, has not granted it anything yet.
    fn tell_fitness(&mut self) {
        if self.acts() {
            self.had_majority = Some(self.now);
        }
        let lease = crate::clock::millis(self.settings.timing.lease.as_duration());
        let is_fit = self.members.is_joined()
            && !self.members.is_draining(self.me.key)
            && self.had_majority.is_some_and(|at| self.now < at + lease);
        self.fit
            .send_if_modified(|fit| std::mem::replace(fit, is_fit) != is_fit);
    }

    /// Connects to the nodes to which this node should be connected.
    fn connect_to_members(&mut self) {
        let own = self.me.address;
        let seeds = self.settings.seeds.clone();
        if !self.members.is_joined() {
            let known: Vec<_> = self
                .directory
                .present()
                .map(|(_, slot)| slot.address)
                .collect();
            for address in seeds
                .iter()
                .chain(&known)
                .filter(|address| **address != own)
            {
                self.streams.dial(*address);
            }
            let found_after = crate::clock::millis(self.settings.timing.found_after.as_duration());
            if self.settings.founder && self.now > self.joining_since + found_after {
                info!(node = %self.me.node, "no seed has answered: this node begins a cluster");
                self.members.found_cluster();
                // A node is admitted when its stream is opened: those whose streams were opened before this one could admit anybody must open new ones.
                self.streams.drop_all();
                self.on_self_joined();
            }
            return;
        }
        let mut wanted = Vec::new();
        for member in self.members.members() {
            let silent = self.members.status(self.now, member.key) != Status::Alive;
            let mine = self.me.node < member.node || silent;
            if member.key != self.me.key && mine && !self.streams.is_connected(member.key.tag) {
                wanted.push(member.address);
            }
        }
        // A cluster that was split, or founded twice, is reunited through its seeds.
        let strange = seeds.iter().filter(|seed| {
            **seed != own
                && !self
                    .members
                    .members()
                    .any(|member| member.address == **seed)
        });
        wanted.extend(strange.copied());
        for address in &wanted {
            self.streams.dial(*address);
        }
        self.streams
            .forget_addresses(|address| wanted.contains(address) || seeds.contains(address));
    }
}

fn rejection(refusal: Refusal) -> proto::Rejected {
    proto::Rejected {
        reason: refusal.to_string(),
        renew: matches!(refusal, Refusal::Condemned | Refusal::TagTaken),
    }
}
