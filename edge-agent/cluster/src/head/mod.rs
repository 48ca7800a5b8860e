//! Election of the head, the member that runs the global scheduler. A pure state machine; the actor carries its messages.
//!
//! **Problem.** A new head is needed soon after one is gone, also while the controller is away, and two heads at once must do no harm.
//!
//! **Solution.** A head has a number, its *epoch*, and the votes of more than half of the members for it; a member votes once per epoch, and only
//! for an epoch above all that it has seen (like terms in Raft: Ongaro and Ousterhout, USENIX ATC 2014, section 5.2). So there is
//! at most one head per epoch. Who stands for election is not left to chance: while the controller answers, it is the candidate to whom
//! its store has given the lease ([`lease::LeaseStore`]); while it is away, the candidate with the smallest name among those that were
//! heard of lately. A vote is refused while the voter still trusts another head, unless the candidate has the store's lease. A node that cannot be
//! the head, because it drains or most members no longer let it act, lets the lease go.
//!
//! **Two heads.** A head that was cut off may not know that there is another. It has no majority and decides nothing
//! ([`crate::membership`]), and what it sent before is rejected by epoch: nodes accept only placements of the highest epoch that they know.
//! Whatever a head does, each node has the last word on its own room.
//!
//! **Complexity.** O(n) for n members per tick and per vote.

pub(crate) mod keeper;
pub mod lease;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use fdn_core::Millis;
use fdn_scheduling::instance::Term;

use crate::identity::Key;
use crate::membership::{Membership, Status};

/// The number of a head: the highest one counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(pub u32);

impl Epoch {
    /// The term of the head's global scheduler.
    #[must_use]
    pub const fn term(self) -> Term {
        Term(self.0)
    }

    /// The next epoch. The very last one is its own successor: a member that names it stops all further elections, but crashes no node.
    const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// The state of the lease in the controller's store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeaseView {
    /// There is no store, or for longer than a lease lasts it has not answered or was not asked.
    #[default]
    Unavailable,
    /// This node holds the lease.
    Mine,
    /// Another node holds it, or did a moment ago; or this node has let it go.
    Others,
}

/// What a member knows about heads: part of every ping and every answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeadView {
    /// The highest epoch of which it has heard. A new member learns it together with the grants that let it act, so that it does not take an epoch
    /// that had a head before its time for a new one.
    pub epoch: Epoch,
    /// The head that it follows.
    pub head: Option<(Epoch, Key)>,
}

/// A message about heads between members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ballot {
    /// Vote for the sender; the flag says whether it holds the store's lease.
    Request(Epoch, bool),
    /// The sender votes for the receiver.
    Vote(Epoch),
    /// This is the head.
    Head(Epoch, Key),
    /// The sender has followed a head of this epoch: heads of earlier epochs are obsolete.
    Stale(Epoch),
}

/// An action for the actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElectionAction {
    /// Send to all members.
    Broadcast(Ballot),
    /// Send to one member.
    Reply(Key, Ballot),
    /// The head has changed, or there is none now: nobody must wait any longer for decisions of the old one.
    Changed(Epoch, Option<Key>),
}

#[derive(Clone, Debug)]
struct Candidacy {
    epoch: Epoch,
    /// The highest epoch known before.
    before: Epoch,
    votes: BTreeSet<Key>,
    until: Millis,
}

/// The state of the election from one member's point of view.
#[derive(Clone, Debug)]
pub struct Election {
    round_timeout: Millis,
    /// The highest epoch heard of, and the last one in which this node voted.
    seen: Epoch,
    voted: Epoch,
    /// The highest epoch whose head was followed: an older one is never followed again.
    followed: Epoch,
    head: Option<(Epoch, Key)>,
    candidacy: Option<Candidacy>,
    /// Until then this node does not stand for election.
    not_before: Millis,
}

impl Election {
    /// The initial state, without a known head. If a round of votes brings no majority within `round_timeout`, another one follows.
    #[must_use]
    pub fn new(now: Millis, round_timeout: Millis) -> Self {
        Self {
            round_timeout,
            seen: Epoch(0),
            voted: Epoch(0),
            followed: Epoch(0),
            head: None,
            candidacy: None,
            not_before: now + round_timeout,
        }
    }

    /// The head, if one is known.
    #[must_use]
    pub const fn head(&self) -> Option<(Epoch, Key)> {
        self.head
    }

    /// What this node tells about heads in pings and answers.
    #[must_use]
    pub fn head_view(&self) -> HeadView {
        // An epoch for which this node asks votes is announced only by its request: a ping that overtakes the request would cost it the votes,
        // because nobody votes in an epoch that may already have had a head.
        let round = self.candidacy.as_ref();
        let round = round.filter(|round| round.epoch == self.seen);
        HeadView {
            epoch: round.map_or(self.seen, |round| round.before),
            head: self.head,
        }
    }

    /// Handles what a member knows about heads.
    pub fn receive_view(
        &mut self,
        now: Millis,
        from: Key,
        view: HeadView,
        members: &Membership,
        election_actions: &mut Vec<ElectionAction>,
    ) {
        if members.get(from).is_none() {
            return;
        }
        self.seen = self.seen.max(view.epoch);
        if let Some((epoch, key)) = view.head {
            self.receive(
                now,
                from,
                Ballot::Head(epoch, key),
                members,
                election_actions,
            );
        }
    }

    /// Restarts as a new incarnation: the last vote is kept, because the process is the same.
    pub fn rejoin(&mut self, now: Millis, election_actions: &mut Vec<ElectionAction>) {
        self.candidacy = None;
        self.not_before = now + self.round_timeout;
        self.drop_head(election_actions);
    }

    /// Gives up being the head or a candidate.
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

    /// Handles the passage of time: drops an unfit head, and stands for election when due.
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
            self.not_before = now + self.round_timeout;
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
            LeaseView::Unavailable => {
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
            until: now + self.round_timeout,
        });
        election_actions.push(ElectionAction::Broadcast(Ballot::Request(
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
            election_actions.push(ElectionAction::Broadcast(Ballot::Head(round.epoch, me)));
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

    /// Handles a message from a member.
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
            Ballot::Request(epoch, has_lease) => {
                self.vote_requested(now, from, epoch, has_lease, members, election_actions)
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
                    // Two clusters have become one: neither head is the head of all. The next epoch is above both.
                    self.seen = epoch.next();
                    self.followed = self.seen;
                    self.drop_head(election_actions);
                }
                if epoch < self.followed {
                    election_actions
                        .push(ElectionAction::Reply(from, Ballot::Stale(self.followed)));
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

    fn vote_requested(
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
            // The candidate has not heard of the head.
            election_actions.push(ElectionAction::Reply(from, Ballot::Head(known, head)));
            return;
        }
        if epoch > self.voted && epoch > self.seen {
            self.voted = epoch;
            self.seen = epoch;
            self.candidacy = None;
            election_actions.push(ElectionAction::Reply(from, Ballot::Vote(epoch)));
        }
    }
}
