//! A node's knowledge of one member.

use std::collections::{BTreeMap, BTreeSet};

use fdn_core::Millis;
use serde::Serialize;

use crate::identity::{Key, Member};

/// The status of a member from this node's point of view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Something was heard of it lately.
    Alive,
    /// It has been silent for some time.
    Suspect,
    /// It is being given up: it gets no more grants.
    Condemned,
    /// It is no longer a member, or never was one.
    Gone,
}

#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) member: Member,
    /// When it was last heard of.
    pub(super) last_contact: Millis,
    /// When it was last granted to act.
    pub(super) granted: Option<Millis>,
    /// Until when it has granted this node to act.
    pub(super) lease: Millis,
    /// The members that suspect it, and when this node sent them the ping that they answered so.
    pub(super) suspected_by: BTreeMap<Key, Millis>,
    /// The members that it suspects by its last answers: those whose [`Record::suspected_by`] may name it.
    pub(super) suspects: BTreeSet<Key>,
    /// The members that have condemned it, perhaps including this node.
    pub(super) condemned_by: BTreeSet<Key>,
    /// Since when most members have condemned it.
    pub(super) condemned_since: Option<Millis>,
    pub(super) draining: bool,
    /// Whether most counting members know of it. Before that it is a member, but has no vote.
    pub(super) counts: bool,
    /// Until it counts: the members that have shown that they know of it.
    pub(super) known_by: BTreeSet<Key>,
}

impl Record {
    pub(super) const fn new(now: Millis, member: Member, counts: bool) -> Self {
        Self {
            member,
            last_contact: now,
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

    /// Whether this node has condemned it, which it does as soon as it hears of another's condemnation.
    pub(super) fn is_condemned(&self) -> bool {
        !self.condemned_by.is_empty()
    }

    pub(super) fn status(&self, now: Millis, is_me: bool, suspect_after: Millis) -> Status {
        if self.is_condemned() {
            Status::Condemned
        } else if !is_me && now > self.last_contact + suspect_after {
            Status::Suspect
        } else {
            Status::Alive
        }
    }
}
