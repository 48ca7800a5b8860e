//! What a node knows of one member.

use std::collections::{BTreeMap, BTreeSet};

use fdn_core::Millis;
use serde::Serialize;

use crate::identity::{Key, Member};

/// How a member stands with this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It was heard of lately.
    Alive,
    /// It has been silent for some time.
    Suspect,
    /// It is being given up: it gets no more grants.
    Condemned,
    /// It is no member any more, or never was one.
    Gone,
}

#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) member: Member,
    /// When something was heard of it.
    pub(super) heard: Millis,
    /// When it was last granted to act.
    pub(super) granted: Option<Millis>,
    /// Until when it has granted this node to act.
    pub(super) lease: Millis,
    /// Who suspects it, and when this node had asked.
    pub(super) suspected_by: BTreeMap<Key, Millis>,
    /// Whom it suspects by its last answers: where [`Record::suspected_by`] may name it.
    pub(super) suspects: BTreeSet<Key>,
    /// Who has condemned it, this node perhaps among them.
    pub(super) condemned_by: BTreeSet<Key>,
    /// Since when most have.
    pub(super) condemned_since: Option<Millis>,
    pub(super) draining: bool,
    /// Whether most of those that count know of it. It is one of the members before, but gives no vote.
    pub(super) counts: bool,
    /// Until then: who has said that it knows of it.
    pub(super) known_by: BTreeSet<Key>,
}

impl Record {
    pub(super) const fn new(now: Millis, member: Member, counts: bool) -> Self {
        Self {
            member,
            heard: now,
            granted: None,
            lease: Millis::ZERO,
            suspected_by: BTreeMap::new(),
            suspects: BTreeSet::new(),
            condemned_by: BTreeSet::new(),
            condemned_since: None,
            draining: false,
            counts,
            known_by: BTreeSet::new(),
        }
    }

    /// Whether this node has condemned it: whoever hears of a condemnation joins in at once.
    pub(super) fn is_condemned(&self) -> bool {
        !self.condemned_by.is_empty()
    }

    pub(super) fn status(&self, now: Millis, is_me: bool, suspect_after: Millis) -> Status {
        if self.is_condemned() {
            Status::Condemned
        } else if !is_me && now > self.heard + suspect_after {
            Status::Suspect
        } else {
            Status::Alive
        }
    }
}
