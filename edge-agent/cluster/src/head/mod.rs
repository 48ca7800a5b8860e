//! Who is the head, where the global scheduler runs. A pure state machine; the shell carries its messages.
//!
//! **Problem.** There must be a head soon after one is gone, also with the controller away, and two at once must do no harm.
//!
//! **Way.** A head has a number, its *epoch*, and the votes of more than half of the members for it; a member votes once per epoch, and never for
//! one that is not above all it has seen (as terms in Raft: Ongaro and Ousterhout, USENIX ATC 2014, section 5.2). So there is
//! at most one head per epoch. Who stands for election is not left to chance: while the controller answers, the candidate to whom
//! its store has given the lease ([`lease::LeaseStore`]); while it is away, the candidate with the smallest name among those that were
//! heard of lately. A vote is refused while the voter still trusts another head, unless the candidate has the store's lease.
//!
//! **Two heads.** One that was cut off may not know that there is another. It has no majority and decides nothing
//! ([`crate::membership`]), and what it sent before is refused by epoch: nodes take placements of the highest epoch they know only.
//! Whatever a head does, a node has the last word on its own room.
//!
//! **Complexity.** O(n) for n members per tick and per vote.

pub mod lease;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use fdn_core::Millis;
use fdn_scheduling::instance::Term;

use crate::identity::Key;
use crate::membership::{Membership, Status};

/// The number of a head: the higher one counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(pub u32);

impl Epoch {
    /// As the schedulers call it.
    #[must_use]
    pub const fn term(self) -> Term {
        Term(self.0)
    }

    /// The one after it. The last of all has none: whoever names it ends elections, and no node with them.
    const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// What the controller's store says of the lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeaseView {
    /// There is no store, or it has not answered for longer than a lease lasts.
    #[default]
    Away,
    /// This node has it.
    Mine,
    /// Another node has it, or had it a moment ago.
    Others,
}

/// What a member knows of heads: part of every ping and every answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The highest epoch it has heard of. Who is let into a cluster learns it with the grants that let it act, so that an epoch in which there was
    /// a head before its time is not taken for a new one.
    pub epoch: Epoch,
    /// The head it follows.
    pub head: Option<(Epoch, Key)>,
}

/// What members tell each other about heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ballot {
    /// Vote for the sender; it has the store's lease or not.
    Ask(Epoch, bool),
    /// The sender votes for the receiver.
    Vote(Epoch),
    /// This is the head.
    Head(Epoch, Key),
    /// A head of this epoch was followed by the sender: one of an earlier epoch is none any more.
    Stale(Epoch),
}

/// What the shell must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElectionAction {
    /// Tell all members.
    Tell(Ballot),
    /// Tell one.
    Answer(Key, Ballot),
    /// There is another head, or none: who waited for the old one's decisions must not wait any longer.
    Changed(Epoch, Option<Key>),
}

#[derive(Clone, Debug)]
struct Candidacy {
    epoch: Epoch,
    /// The highest epoch heard of before.
    before: Epoch,
    votes: BTreeSet<Key>,
    until: Millis,
}

/// The election as one member sees it.
#[derive(Clone, Debug)]
pub struct Election {
    patience: Millis,
    /// The highest epoch that was heard of, and the one voted in last.
    seen: Epoch,
    voted: Epoch,
    /// The highest epoch whose head was followed: an older one never is again.
    followed: Epoch,
    head: Option<(Epoch, Key)>,
    candidacy: Option<Candidacy>,
    /// Before that, this node does not stand (again).
    not_before: Millis,
}

impl Election {
    /// With no head known. A round of votes that brings no majority within `patience` is followed by another.
    #[must_use]
    pub fn new(now: Millis, patience: Millis) -> Self {
        Self {
            patience,
            seen: Epoch(0),
            voted: Epoch(0),
            followed: Epoch(0),
            head: None,
            candidacy: None,
            not_before: now + patience,
        }
    }

    /// The head, if one is known and a member.
    #[must_use]
    pub const fn head(&self) -> Option<(Epoch, Key)> {
        self.head
    }

    /// What this node tells of heads with pings and answers.
    #[must_use]
    pub fn known(&self) -> Known {
        // An epoch that this node asks votes for is told by its question alone: a ping that overtakes that would cost it the votes, for nobody votes in an
        // epoch of which there may have been a head.
        let asked = self.candidacy.as_ref();
        let asked = asked.filter(|round| round.epoch == self.seen);
        Known {
            epoch: asked.map_or(self.seen, |round| round.before),
            head: self.head,
        }
    }

    /// A member says what it knows of heads.
    pub fn told(
        &mut self,
        now: Millis,
        from: Key,
        known: Known,
        members: &Membership,
        election_actions: &mut Vec<ElectionAction>,
    ) {
        if members.get(from).is_none() {
            return;
        }
        self.seen = self.seen.max(known.epoch);
        if let Some((epoch, key)) = known.head {
            self.receive(
                now,
                from,
                Ballot::Head(epoch, key),
                members,
                election_actions,
            );
        }
    }

    /// As a new incarnation: what was voted for stays, for the process is the same.
    pub fn rejoin(&mut self, now: Millis, election_actions: &mut Vec<ElectionAction>) {
        self.candidacy = None;
        self.not_before = now + self.patience;
        self.drop_head(election_actions);
    }

    /// This node does not want to be the head any more.
    pub fn resign(&mut self, me: Key, election_actions: &mut Vec<ElectionAction>) {
        self.candidacy = None;
        if self.head.is_some_and(|(_, key)| key == me) {
            self.drop_head(election_actions);
        }
    }

    fn drop_head(&mut self, election_actions: &mut Vec<ElectionAction>) {
        if let Some((epoch, _)) = self.head.take() {
            election_actions.push(ElectionAction::Changed(epoch, None));
        }
    }

    /// Time passes.
    pub fn tick(
        &mut self,
        now: Millis,
        members: &Membership,
        lease: LeaseView,
        election_actions: &mut Vec<ElectionAction>,
    ) {
        if let Some((_, key)) = self.head {
            let is_me_without = key == members.me() && lease == LeaseView::Others;
            let is_unfit = members.is_draining(key)
                || matches!(members.status(now, key), Status::Condemned | Status::Gone);
            if is_unfit || is_me_without {
                self.drop_head(election_actions);
                self.not_before = now;
            }
        }
        if self
            .candidacy
            .as_ref()
            .is_some_and(|round| now > round.until)
        {
            self.candidacy = None;
            self.not_before = now + self.patience;
        }
        if self.candidacy.is_none()
            && now >= self.not_before
            && self.should_stand(now, members, lease)
        {
            self.stand(now, members, lease, election_actions);
        }
    }

    fn should_stand(&self, now: Millis, members: &Membership, lease: LeaseView) -> bool {
        let me = members.me();
        let is_candidate = members.get(me).is_some_and(|member| member.candidate);
        if !is_candidate || members.is_draining(me) || !members.has_quorum(now) {
            return false;
        }
        let is_head = self.head.is_some_and(|(_, key)| key == me);
        match lease {
            LeaseView::Mine => !is_head,
            LeaseView::Others => false,
            LeaseView::Away => {
                let trusted = members.trusted(now);
                let fit = trusted
                    .filter(|(_, member)| member.candidate && !members.is_draining(member.key));
                let first = fit.min_by_key(|(name, _)| *name);
                self.head.is_none() && first.is_some_and(|(_, member)| member.key == me)
            }
        }
    }

    fn stand(
        &mut self,
        now: Millis,
        members: &Membership,
        lease: LeaseView,
        election_actions: &mut Vec<ElectionAction>,
    ) {
        let before = self.seen.max(self.voted);
        let epoch = before.next();
        self.seen = epoch;
        self.voted = epoch;
        self.candidacy = Some(Candidacy {
            epoch,
            before,
            votes: BTreeSet::from([members.me()]),
            until: now + self.patience,
        });
        election_actions.push(ElectionAction::Tell(Ballot::Ask(
            epoch,
            lease == LeaseView::Mine,
        )));
        self.count(members, election_actions);
    }

    fn count(&mut self, members: &Membership, election_actions: &mut Vec<ElectionAction>) {
        let is_elected = |round: &Candidacy| {
            let votes = round.votes.iter();
            votes.filter(|key| members.counts(**key)).count() >= members.majority()
        };
        if let Some(round) = self.candidacy.take_if(|round| is_elected(round)) {
            let me = members.me();
            self.follow(round.epoch, me, election_actions);
            election_actions.push(ElectionAction::Tell(Ballot::Head(round.epoch, me)));
        }
    }

    fn follow(&mut self, epoch: Epoch, key: Key, election_actions: &mut Vec<ElectionAction>) {
        self.seen = self.seen.max(epoch);
        self.followed = epoch;
        if self.head != Some((epoch, key)) {
            self.head = Some((epoch, key));
            election_actions.push(ElectionAction::Changed(epoch, Some(key)));
        }
    }

    /// A message from a member.
    pub fn receive(
        &mut self,
        now: Millis,
        from: Key,
        ballot: Ballot,
        members: &Membership,
        election_actions: &mut Vec<ElectionAction>,
    ) {
        if members.get(from).is_none() {
            return;
        }
        match ballot {
            Ballot::Ask(epoch, has_lease) => {
                self.asked(now, from, epoch, has_lease, members, election_actions)
            }
            Ballot::Vote(epoch) => {
                if let Some(round) = &mut self.candidacy
                    && round.epoch == epoch
                {
                    round.votes.insert(from);
                    self.count(members, election_actions);
                }
            }
            Ballot::Head(epoch, key) => {
                if self
                    .head
                    .is_some_and(|(known, head)| known == epoch && head != key)
                {
                    // Two clusters have become one: neither head is the head of all. The next one is above both.
                    self.seen = epoch.next();
                    self.followed = self.seen;
                    self.drop_head(election_actions);
                }
                if epoch < self.followed {
                    election_actions
                        .push(ElectionAction::Answer(from, Ballot::Stale(self.followed)));
                }
                let is_newer = self.head.is_none_or(|(known, _)| epoch > known);
                if is_newer && epoch >= self.followed && members.get(key).is_some() {
                    self.candidacy = None;
                    self.follow(epoch, key, election_actions);
                }
                self.seen = self.seen.max(epoch);
            }
            Ballot::Stale(epoch) => {
                self.seen = self.seen.max(epoch);
                if self.head.is_some_and(|(known, _)| known < epoch) {
                    self.followed = self.followed.max(epoch);
                    self.drop_head(election_actions);
                }
            }
        }
    }

    fn asked(
        &mut self,
        now: Millis,
        from: Key,
        epoch: Epoch,
        has_lease: bool,
        members: &Membership,
        election_actions: &mut Vec<ElectionAction>,
    ) {
        if let Some((known, head)) = self.head
            && head != from
            && !has_lease
            && members.status(now, head) == Status::Alive
        {
            // It has not heard of the head.
            election_actions.push(ElectionAction::Answer(from, Ballot::Head(known, head)));
            return;
        }
        if epoch > self.voted && epoch > self.seen {
            self.voted = epoch;
            self.seen = epoch;
            self.candidacy = None;
            election_actions.push(ElectionAction::Answer(from, Ballot::Vote(epoch)));
        }
    }
}
