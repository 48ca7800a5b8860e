//! Exchange of opinions and gossip between members, and the periodic tick.

use std::collections::BTreeSet;

use fdn_core::Millis;

use super::record::Status;
use super::{Change, Membership};
use crate::identity::{Key, Member};

/// A member's opinions of others: part of every ping and every answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opinions {
    /// Members not heard of for some time.
    pub suspects: Vec<Key>,
    /// Members that it has condemned.
    pub condemned: Vec<Key>,
    /// A digest of its list of members: a member with a different one is sent the list.
    pub digest: u64,
}

/// What a member passes on about one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gossip {
    /// It is a member.
    Member {
        /// The member.
        member: Member,
        /// Whether it takes no more instances.
        draining: bool,
        /// Whether most counting members know of it.
        counts: bool,
    },
    /// It is no longer a member.
    Gone(Key),
}

impl Membership {
    /// Notes that something was received from a member.
    pub fn record_contact(&mut self, now: Millis, from: Key) {
        if let Some(record) = self.records.get_mut(&from) {
            record.last_contact = now.max(record.last_contact);
            let suspects = &mut self.opinions.suspects;
            if let Some(at) = suspects.iter().position(|suspect| *suspect == from) {
                suspects.remove(at);
                self.quiet_until = self.quiet_until.min(now + self.timing.suspect_after);
            }
        }
    }

    fn compare(&mut self, from: Key, opinions: &Opinions) {
        if self.records.contains_key(&from) && opinions.digest == self.digest() {
            self.mark_agreed(from);
        }
    }

    /// Handles a ping; returns whether it may be answered with a grant.
    pub fn on_ping(
        &mut self,
        now: Millis,
        from: Key,
        opinions: &Opinions,
        changes: &mut Vec<Change>,
    ) -> bool {
        self.record_contact(now, from);
        self.compare(from, opinions);
        self.apply_condemned(now, from, &opinions.condemned, changes);
        match self.records.get_mut(&from) {
            Some(record) if !record.is_condemned() => {
                record.granted = Some(now);
                true
            }
            Some(_) | None => false,
        }
    }

    /// Handles the answer to a ping that was sent at time `sent`.
    pub fn on_ack(
        &mut self,
        now: Millis,
        from: Key,
        (sent, granted): (Millis, bool),
        opinions: &Opinions,
        changes: &mut Vec<Change>,
    ) {
        self.record_contact(now, from);
        self.compare(from, opinions);
        self.apply_condemned(now, from, &opinions.condemned, changes);
        let lease = sent + self.timing.lease;
        let Some(record) = self.records.get_mut(&from) else {
            return;
        };
        if granted && sent <= now {
            record.lease = lease.max(record.lease);
        }
        let before = std::mem::take(&mut record.suspects);
        let mut suspects: BTreeSet<Key> = opinions.suspects.iter().copied().collect();
        for key in &suspects {
            if let Some(record) = self.records.get_mut(key) {
                let asked = record.suspected_by.entry(from).or_insert(sent);
                *asked = sent.max(*asked);
            }
        }
        // The answer to an earlier ping takes nothing back that a later one said.
        let mut later = Vec::new();
        for key in before.difference(&suspects) {
            let Some(record) = self.records.get_mut(key) else {
                continue;
            };
            match record.suspected_by.get(&from) {
                Some(at) if *at > sent => later.push(*key),
                Some(_) => _ = record.suspected_by.remove(&from),
                None => {}
            }
        }
        suspects.extend(later);
        suspects.retain(|key| self.records.contains_key(key));
        if let Some(record) = self.records.get_mut(&from) {
            record.suspects = suspects;
        }
    }

    /// Condemns every member that another member has condemned.
    fn apply_condemned(
        &mut self,
        now: Millis,
        from: Key,
        condemned: &[Key],
        changes: &mut Vec<Change>,
    ) {
        if !self.records.contains_key(&from) {
            return;
        }
        for key in condemned {
            if let Some(record) = self.records.get_mut(key) {
                record.condemned_by.insert(from);
                self.condemn(now, *key, changes);
            }
        }
    }

    fn condemn(&mut self, now: Millis, key: Key, changes: &mut Vec<Change>) {
        let (me, majority) = (self.me, self.majority());
        let counting = self.counting();
        let Some(record) = self.records.get_mut(&key) else {
            return;
        };
        let is_news = record.condemned_by.insert(me);
        if is_news {
            self.opinions.suspects.retain(|suspect| *suspect != key);
            self.opinions.condemned.push(key);
        }
        if key == me {
            if is_news {
                changes.push(Change::Condemned);
            }
            return;
        }
        let condemning = record.condemned_by.intersection(&counting).count();
        if condemning >= majority && record.condemned_since.is_none() {
            record.condemned_since = Some(now);
        }
    }

    /// The opinions of this node for pings and answers.
    #[must_use]
    pub fn opinions(&self, now: Millis) -> Opinions {
        if now <= self.quiet_until {
            self.opinions.clone()
        } else {
            self.compute_opinions(now)
        }
    }

    pub(super) fn compute_opinions(&self, now: Millis) -> Opinions {
        let mut opinions = Opinions {
            digest: self.opinions.digest,
            ..Opinions::default()
        };
        for key in self.records.keys() {
            match self.status(now, *key) {
                Status::Suspect => opinions.suspects.push(*key),
                Status::Condemned => opinions.condemned.push(*key),
                Status::Alive | Status::Gone => {}
            }
        }
        opinions
    }

    /// Determines which members are suspect, and when the next one may become so.
    fn refresh_opinions(&mut self, now: Millis) {
        self.opinions = self.compute_opinions(now);
        let alive = self
            .records
            .iter()
            .filter(|(key, _)| **key != self.me && self.status(now, **key) == Status::Alive);
        let first = alive.map(|(_, record)| record.last_contact + self.timing.suspect_after);
        self.quiet_until = first.fold(Millis::INFINITY, Millis::min);
    }

    /// A number that almost surely differs when two lists of members differ.
    #[must_use]
    pub const fn digest(&self) -> u64 {
        self.opinions.digest
    }

    /// The FNV-1a hash of keys and draining flags.
    pub(super) fn digest_of_list(&self) -> u64 {
        let mut hash = 0xCBF2_9CE4_8422_2325_u64;
        for (key, record) in &self.records {
            for number in [
                key.tag.get(),
                key.incarnation,
                u32::from(record.draining) + 1,
            ] {
                hash = (hash ^ u64::from(number)).wrapping_mul(0x0000_0100_0000_01B3);
            }
        }
        hash
    }

    /// All members and former members, to be passed on.
    #[must_use]
    pub fn gossip(&self) -> Vec<Gossip> {
        let members = self.records.values();
        let members = members.map(|record| Gossip::Member {
            member: record.member.clone(),
            draining: record.draining,
            counts: record.counts,
        });
        let gone = self.gone.iter().map(|key| Gossip::Gone(*key));
        members.chain(gone).collect()
    }

    /// Takes over the gossip of a member.
    pub fn learn(&mut self, now: Millis, from: Key, gossip: &[Gossip], changes: &mut Vec<Change>) {
        for item in gossip {
            match item {
                Gossip::Gone(key) if *key == self.me => self.condemn(now, *key, changes),
                Gossip::Gone(key) => self.mark_gone(*key, changes),
                Gossip::Member {
                    member,
                    draining,
                    counts,
                } => {
                    self.learn_member(now, member, *counts, changes);
                    if member.key == from {
                        self.drained(from, *draining, changes);
                    }
                }
            }
        }
    }

    fn learn_member(
        &mut self,
        now: Millis,
        member: &Member,
        counts: bool,
        changes: &mut Vec<Change>,
    ) {
        let key = member.key;
        // A member that passes this node on as a member has admitted it, or heard of one that has.
        self.joined |= key == self.me;
        if let Some(record) = self.records.get_mut(&key) {
            // A member known to most stays known to most.
            if counts && !record.counts {
                record.counts = true;
                self.count();
            }
            return;
        }
        if self.is_gone(key) {
            return;
        }
        self.supersede(member, changes);
        let is_outdated =
            |other: &Member| other.key.tag == key.tag && other.key.incarnation > key.incarnation;
        if self.members().any(is_outdated) || self.records.len() >= self.timing.members {
            return;
        }
        self.add(now, member.clone(), counts, changes);
    }

    /// Condemns members that are silent and suspected by most, and buries those that most condemned a lease ago.
    pub fn tick(&mut self, now: Millis, changes: &mut Vec<Change>) {
        let majority = self.majority();
        let counting = self.counting();
        let (timing, me) = (self.timing, self.me);
        let mut to_condemn = Vec::new();
        let mut to_remove = Vec::new();
        for (key, record) in &self.records {
            if *key == me {
                continue;
            }
            let granted_long_ago = record
                .granted
                .is_none_or(|granted| now > granted + timing.lease);
            if !record.is_condemned()
                && now > record.last_contact + timing.dead_after
                && granted_long_ago
            {
                let fresh = |at: &&Millis| now <= **at + timing.fresh;
                let suspects = record.suspected_by.iter();
                let suspects = suspects.filter(|(who, at)| counting.contains(who) && fresh(at));
                if suspects.count() + usize::from(counting.contains(&me)) >= majority {
                    to_condemn.push(*key);
                }
            }
            // A tenth longer, because clocks may run at different speeds.
            if record
                .condemned_since
                .is_some_and(|since| now > since + timing.lease * 1.1)
            {
                to_remove.push(*key);
            }
        }
        for key in to_condemn {
            self.condemn(now, key, changes);
        }
        for key in to_remove {
            self.mark_gone(key, changes);
        }
        // When members are gone, a majority is smaller.
        let keys: Vec<Key> = self.condemned().collect();
        for key in keys {
            self.condemn(now, key, changes);
        }
        self.refresh_opinions(now);
    }

    /// The members that are condemned and not yet gone.
    pub fn condemned(&self) -> impl Iterator<Item = Key> + '_ {
        let records = self.records.iter();
        records
            .filter(|(key, record)| **key != self.me && record.is_condemned())
            .map(|(key, _)| *key)
    }
}
