//! Membership of the cluster: joining, suspicion, condemnation, loss and leaving. A pure state machine; the actor carries its messages.
//!
//! **Problem.** The tasks of a node that is given up for lost are done elsewhere, so the node must not do them any more itself, though nobody
//! can reach it. And one bad link must not cost a node its membership.
//!
//! **Solution.** Every node pings every other, as in SWIM's first step (Das and others, DSN 2002) but without its sampling: the streams
//! exist anyway. An answer is a *grant*: the asker may act for [`Timing::lease`] from the moment it asked (a reversed leader
//! lease). A node acts only while more than half of the members, itself included, grant it.
//!
//! 1. *Suspect*: nothing was heard of it for [`Timing::suspect_after`]. An opinion, told with every ping; it is taken back when
//!    something is heard.
//! 2. *Condemned*: nothing was heard of it for [`Timing::dead_after`], and according to fresh answers more than half of the members suspect
//!    it. A member that condemns another never grants it again, and tells all members, which then condemn it too.
//! 3. *Lost*: more than half of the members have condemned it, and a lease has passed since that was known. Only now are
//!    schedulers told. The lost node has had no majority of grants since, so it does nothing any more ("fail-stop").
//!
//! A condemned node that hears of it gives up its incarnation and joins again under the next one. That is what SWIM's incarnation
//! numbers are for; here an incarnation also stands for the memory of the schedulers, which starts empty.
//!
//! A process that was killed and restarted comes back under its name with another tag. If it asks to join from the address of
//! the silent one before it, the earlier process is known to be over without any vote, because an address belongs to one process at a time: so a
//! cluster of two gets its second node back, which no majority could give up. This costs no safety: every list still holds all members that run,
//! and a majority of a list that holds them is one of theirs too, so that two majorities share a node as before. (To let the new process have the
//! old one's vote at once would go further, and be wrong: it does not know whom the old one had condemned.)
//!
//! A member is admitted by one that has its majority, but that may be the majority of a moment ago: a member that was just cut off still holds its
//! leases, and could admit so many that they outvote those it can no longer hear of. So a new node is a member at once, and makes
//! a majority larger, but it *counts* (its grants, suspicions, condemnations and votes) only once most counting members know of it, which they show
//! by having the same list; as in a membership change of Raft (Ongaro, 2014, section 4.1), the old members must agree first.
//!
//! **Assumptions.** Clocks of two nodes run equally fast within a tenth. Two majorities of one list always share a node. Whole sets of nodes that
//! join and die at the same moment on two sides of a partition are not covered; the rule that a node is the last authority over its
//! room holds even then.
//!
//! **Verification.** A model of small clusters is searched exhaustively, and clusters of up to seven are tested with random faults (this module's
//! tests); why no library does this: `docs/adr/0022-membership.md`.
//!
//! **Complexity.** A tick costs O(n) for n members, a ping and its answer O(k) for k of them that are suspect or condemned; gossip O(n log n).
//!
//! **Bounds.** [`Timing::members`]; one more is not admitted. Former members are remembered, as many as there may be members.

mod gossip;
mod record;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use fdn_core::{Millis, NodeId};

use crate::identity::{Key, Member};
pub use gossip::{Gossip, Opinions};
use record::Record;
pub use record::Status;

/// The times and bounds of membership.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// How long an answer to a ping allows its asker to act.
    pub lease: Millis,
    /// The silence after which a member is suspect.
    pub suspect_after: Millis,
    /// The silence after which a member that most suspect is condemned; longer than the lease.
    pub dead_after: Millis,
    /// How old an answer may be for its opinions of others to count.
    pub fresh: Millis,
    /// The most members.
    pub members: usize,
}

/// A change of the membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A member is new.
    Joined(Member),
    /// A member is gone for good: lost, or left by itself.
    Gone(Key),
    /// A member stops or resumes taking new instances.
    Draining(Key, bool),
    /// The others have given this node up: it must join again, under the next incarnation.
    Condemned,
}

/// Why a node is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// This node has no majority, or is not a member itself yet.
    #[error("this node has no majority of the cluster itself")]
    NoQuorum,
    /// A node of that name is a member and may be alive. If it is not, it is given up in time: by the others, if they are a majority,
    /// or in favour of a process that listens at its address.
    #[error("a node of this name is a member")]
    NameTaken,
    /// Another process has the same tag: draw another one.
    #[error("another process has this tag")]
    TagTaken,
    /// The cluster has the maximum number of members.
    #[error("the cluster is full")]
    Full,
    /// This incarnation was given up.
    #[error("this incarnation was given up by the cluster")]
    Condemned,
}

/// The members from one member's point of view.
#[derive(Clone, Debug)]
pub struct Membership {
    me: Key,
    timing: Timing,
    /// Whether this node is a member itself, and does not only ask to be.
    joined: bool,
    /// The present members, alive or condemned.
    records: BTreeMap<Key, Record>,
    /// Former members, the latest last.
    gone: VecDeque<Key>,
    /// This node's opinions of the others, valid until `quiet_until`: updated only for what changes.
    opinions: Opinions,
    /// Until then no further member can become suspect.
    quiet_until: Millis,
    /// Whether there are members that do not count yet.
    has_pending: bool,
}

impl Membership {
    /// A cluster of one: of a founder, or of a node that is to join another cluster and does not act before that.
    #[must_use]
    pub fn new(now: Millis, me: Member, timing: Timing, is_founder: bool) -> Self {
        let key = me.key;
        let mut membership = Self {
            me: key,
            timing,
            joined: is_founder,
            records: BTreeMap::from([(key, Record::new(now, me, is_founder))]),
            gone: VecDeque::new(),
            opinions: Opinions::default(),
            quiet_until: Millis::INFINITY,
            has_pending: !is_founder,
        };
        membership.opinions.digest = membership.digest_of_list();
        membership
    }

    /// This node's key.
    #[must_use]
    pub const fn me(&self) -> Key {
        self.me
    }

    /// Whether this node is a member, and does not only ask to be.
    #[must_use]
    pub const fn is_joined(&self) -> bool {
        self.joined
    }

    /// Founds a cluster, because there is none to join: this node is its first member.
    pub fn found_cluster(&mut self) {
        self.joined = true;
        self.count();
    }

    /// All present members, including this node.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.records.values().map(|record| &record.member)
    }

    /// The number of present members.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there are no members; there is always one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// A present member; `None` if the key is not one.
    #[must_use]
    pub fn get(&self, key: Key) -> Option<&Member> {
        self.records.get(&key).map(|record| &record.member)
    }

    /// The status of a member at this time, as seen by this node.
    #[must_use]
    pub fn status(&self, now: Millis, key: Key) -> Status {
        match self.records.get(&key) {
            None => Status::Gone,
            Some(record) => record.status(now, key == self.me, self.timing.suspect_after),
        }
    }

    /// Whether a member has declared that it takes no more instances.
    #[must_use]
    pub fn is_draining(&self, key: Key) -> bool {
        self.records.get(&key).is_some_and(|record| record.draining)
    }

    /// The number of members that form a majority: more than half.
    #[must_use]
    pub fn majority(&self) -> usize {
        self.records.len() / 2 + 1
    }

    /// Whether a member's votes count: most counting members know of it.
    #[must_use]
    pub fn counts(&self, key: Key) -> bool {
        self.records.get(&key).is_some_and(|record| record.counts)
    }

    /// Whether this node may act: it is not condemned, and most members grant it.
    #[must_use]
    pub fn has_quorum(&self, now: Millis) -> bool {
        self.joined && self.granted(now) >= self.majority()
    }

    /// Until when [`Self::has_quorum`] holds if nobody answers any more; cheap to check often.
    #[must_use]
    pub fn acts_until(&self) -> Millis {
        if !self.joined || self.records.get(&self.me).is_none_or(Record::is_condemned) {
            return Millis::ZERO;
        }
        let others = self
            .records
            .iter()
            .filter(|(key, record)| **key != self.me && record.counts && !record.is_condemned());
        let mut leases: Vec<Millis> = others.map(|(_, record)| record.lease).collect();
        leases.sort_unstable_by(|a, b| b.cmp(a));
        match self.majority() - usize::from(self.counts(self.me)) {
            0 => Millis::INFINITY,
            needed => leases.get(needed - 1).copied().unwrap_or(Millis::ZERO),
        }
    }

    fn granted(&self, now: Millis) -> usize {
        let holds = |(key, record): (&Key, &Record)| {
            record.counts && !record.is_condemned() && (*key == self.me || record.lease > now)
        };
        let me = self.records.get(&self.me).is_some_and(Record::is_condemned);
        if me {
            return 0;
        }
        self.records.iter().filter(|entry| holds(*entry)).count()
    }

    /// Admits a node that asks to join. `Ok(true)`: admitted now; all members must be told. `Ok(false)`: it is a member already.
    ///
    /// # Errors
    /// Why it is not admitted.
    pub fn admit(
        &mut self,
        now: Millis,
        member: &Member,
        changes: &mut Vec<Change>,
    ) -> Result<bool, Refusal> {
        if let Some(known) = self.records.get(&member.key) {
            return if known.is_condemned() {
                Err(Refusal::Condemned)
            } else if known.member.node == member.node {
                Ok(false)
            } else {
                Err(Refusal::TagTaken)
            };
        }
        if self.is_gone(member.key) {
            return Err(Refusal::Condemned);
        }
        self.supersede(member, changes);
        self.succeed(now, member, changes);
        let taken = self.members().find_map(|other| {
            let same_tag = other.key.tag == member.key.tag;
            match (same_tag, other.node == member.node) {
                (true, _) => Some(Refusal::TagTaken),
                (_, true) => Some(Refusal::NameTaken),
                _ => None,
            }
        });
        if let Some(refusal) = taken {
            return Err(refusal);
        }
        if !self.has_quorum(now) {
            return Err(Refusal::NoQuorum);
        }
        if self.records.len() >= self.timing.members {
            return Err(Refusal::Full);
        }
        self.add(now, member.clone(), false, changes);
        Ok(true)
    }

    /// Buries the earlier incarnations of a process when a later one appears.
    fn supersede(&mut self, member: &Member, changes: &mut Vec<Change>) {
        let older: Vec<Key> = self
            .members()
            .filter(|other| {
                other.node == member.node
                    && other.key.tag == member.key.tag
                    && other.key.incarnation < member.key.incarnation
            })
            .map(|other| other.key)
            .collect();
        for key in older {
            self.mark_gone(key, changes);
        }
    }

    /// Buries a silent process when a new one of its name listens at its address.
    fn succeed(&mut self, now: Millis, member: &Member, changes: &mut Vec<Change>) {
        let before = self.members().find(|other| {
            other.node == member.node
                && other.address == member.address
                && other.key.tag != member.key.tag
                && other.key != self.me
        });
        let Some(key) = before.map(|other| other.key) else {
            return;
        };
        // A process that still answers is another process, whatever the new one says of its address.
        if self.status(now, key) != Status::Alive {
            self.mark_gone(key, changes);
        }
    }

    fn add(&mut self, now: Millis, member: Member, counts: bool, changes: &mut Vec<Change>) {
        changes.push(Change::Joined(member.clone()));
        self.records
            .insert(member.key, Record::new(now, member, counts));
        self.quiet_until = self.quiet_until.min(now + self.timing.suspect_after);
        self.opinions.digest = self.digest_of_list();
        self.count();
    }

    /// The members that count.
    fn counting(&self) -> BTreeSet<Key> {
        let counting = self.records.iter().filter(|(_, record)| record.counts);
        counting.map(|(key, _)| *key).collect()
    }

    /// Makes those members count that most counting members know of, until there are no further ones.
    fn count(&mut self) {
        loop {
            let counting = self.counting();
            let me = self.me;
            let mut is_news = false;
            for record in self.records.values_mut().filter(|record| !record.counts) {
                let known = counting
                    .iter()
                    .filter(|key| **key == me || record.known_by.contains(key));
                // If all that counted are gone for good, nobody is left who could know better.
                if counting.is_empty() || known.count() > counting.len() / 2 {
                    record.counts = true;
                    is_news = true;
                }
            }
            if !is_news {
                self.has_pending = self.records.values().any(|record| !record.counts);
                return;
            }
        }
    }

    /// Notes that a member has the same list as this node: it knows of all members on it.
    fn mark_agreed(&mut self, from: Key) {
        if self.has_pending {
            for record in self.records.values_mut().filter(|record| !record.counts) {
                record.known_by.insert(from);
            }
            self.count();
        }
    }

    fn mark_gone(&mut self, key: Key, changes: &mut Vec<Change>) {
        let was_member = self.records.remove(&key).is_some();
        if !was_member && self.is_gone(key) {
            return;
        }
        for record in self.records.values_mut() {
            record.condemned_by.remove(&key);
            record.suspected_by.remove(&key);
        }
        self.opinions.suspects.retain(|suspect| *suspect != key);
        self.opinions
            .condemned
            .retain(|condemned| *condemned != key);
        self.opinions.digest = self.digest_of_list();
        self.count();
        self.gone.push_back(key);
        while self.gone.len() > self.timing.members {
            self.gone.pop_front();
        }
        if was_member {
            changes.push(Change::Gone(key));
        }
    }

    fn is_gone(&self, key: Key) -> bool {
        self.gone.contains(&key)
    }

    /// Removes a member that leaves by itself and has stopped acting before it said so, or that an operator declared dead.
    pub fn left(&mut self, key: Key, changes: &mut Vec<Change>) {
        if key != self.me {
            self.mark_gone(key, changes);
        }
    }

    /// Makes this node stop or resume taking new instances.
    pub fn set_draining(&mut self, draining: bool, changes: &mut Vec<Change>) {
        self.drained(self.me, draining, changes);
    }

    fn drained(&mut self, key: Key, draining: bool, changes: &mut Vec<Change>) {
        if let Some(record) = self.records.get_mut(&key)
            && record.draining != draining
        {
            record.draining = draining;
            self.opinions.digest = self.digest_of_list();
            changes.push(Change::Draining(key, draining));
        }
    }

    /// The members that are neither condemned nor suspect, with their names, for choosing among them.
    pub fn trusted(&self, now: Millis) -> impl Iterator<Item = (&NodeId, &Member)> {
        self.records
            .iter()
            .filter(move |(key, _)| self.status(now, **key) == Status::Alive)
            .map(|(_, record)| (&record.member.node, &record.member))
    }
}
