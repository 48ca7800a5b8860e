//! Events: changes in the network, streamed to those who may see them (`GET /v1/events`).
//!
//! An event says that something changed and where, not what it is now: readers fetch that. Events are numbered in the order in which they
//! were recorded, whichever controller recorded them, so that a reader that was away resumes after the last number it saw.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::ParseError;
use crate::id::{AppName, TenantId};
use crate::unit::Timestamp;

/// The subject area of an event.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// An app was deployed, rolled back, deleted or changed in a way that has no kind of its own, such as a new domain.
    App,
    /// All living nodes of the clusters that hold an app serve its current version.
    Ready,
    /// The clusters to which an app's clients are sent have changed.
    Plan,
    /// An app's policy or its callers' keys have changed.
    Policy,
    /// The split of an app's calls between versions has changed.
    Traffic,
    /// A tenant or its members have changed.
    Tenant,
    /// A budget or a price list has changed, or spending has reached a threshold of a budget.
    Billing,
    /// A node, a cluster or a join token has changed.
    Node,
    /// Any other change recorded in the audit log.
    Other,
}

impl EventKind {
    /// All kinds.
    pub const ALL: [Self; 9] = [
        Self::App,
        Self::Ready,
        Self::Plan,
        Self::Policy,
        Self::Traffic,
        Self::Tenant,
        Self::Billing,
        Self::Node,
        Self::Other,
    ];

    /// The name used in JSON and queries.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::App => "app",
            Self::Ready => "ready",
            Self::Plan => "plan",
            Self::Policy => "policy",
            Self::Traffic => "traffic",
            Self::Tenant => "tenant",
            Self::Billing => "billing",
            Self::Node => "node",
            Self::Other => "other",
        }
    }

    /// The kind of a change that the audit log records as `action` on `subject`; `None` for users' sessions, tokens and accounts,
    /// which are private to them.
    #[must_use]
    pub fn of_change(action: &str, subject: &str) -> Option<Self> {
        let (what, _) = subject.split_once('/').unwrap_or((subject, ""));
        let (family, _) = action.split_once('.').unwrap_or((action, ""));
        Some(match (what, family) {
            ("session" | "token" | "user", _) => return None,
            ("app", "policy" | "key") => Self::Policy,
            ("app", "traffic") => Self::Traffic,
            ("app", _) => Self::App,
            ("tenant" | "member", _) => Self::Tenant,
            ("budget" | "price", _) => Self::Billing,
            ("node" | "cluster" | "join-token", _) => Self::Node,
            _ => Self::Other,
        })
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for EventKind {
    type Err = ParseError;

    fn from_str(s: &str) -> Result<Self, ParseError> {
        let found = Self::ALL.into_iter().find(|kind| kind.as_str() == s);
        found.ok_or_else(|| {
            ParseError::new(
                "kind of event",
                s,
                "app, ready, plan, policy, traffic, tenant, billing, node or other",
            )
        })
    }
}

/// An event: a change in the network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// The event's number; later events have larger ones.
    pub id: u64,
    /// When it happened, by the clock of the controller that recorded it.
    pub at: Timestamp,
    /// The subject area.
    pub kind: EventKind,
    /// What happened, such as `deploy`, `policy.set` or `node.lost`.
    pub action: String,
    /// What it happened to, such as `app/hello`.
    pub subject: String,
    /// The tenant that it belongs to; absent for the network's own events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// The app that it is about; absent if it is about none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<AppName>,
    /// Additional facts in a few words, such as the version that is ready or the clusters of a plan; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// The name of the event that tells a reader that older events are no longer kept; its data is a [`Missed`].
pub const MISSED: &str = "missed";

/// A gap: events that the reader asked for and that are no longer kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Missed {
    /// The number of the last event that the reader received.
    pub after: u64,
    /// The number of the oldest event that is still kept.
    pub oldest: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_one_word_everywhere() {
        for kind in EventKind::ALL {
            assert_eq!(kind.as_str().parse::<EventKind>().expect("known"), kind);
            let json = serde_json::to_string(&kind).expect("JSON");
            assert_eq!(json, format!("{:?}", kind.as_str()));
        }
        assert!("apps".parse::<EventKind>().is_err());
    }

    #[test]
    fn what_is_in_the_audit_log_becomes_an_event_of_its_kind() {
        let kind = EventKind::of_change;
        assert_eq!(kind("deploy", "app/hello"), Some(EventKind::App));
        assert_eq!(kind("key.create", "app/hello"), Some(EventKind::Policy));
        assert_eq!(kind("traffic.set", "app/hello"), Some(EventKind::Traffic));
        assert_eq!(kind("member.put", "member/ann"), Some(EventKind::Tenant));
        assert_eq!(kind("price.apply", "price/first"), Some(EventKind::Billing));
        assert_eq!(kind("node.enrol", "node/eu-1"), Some(EventKind::Node));
        assert_eq!(kind("anything", "else/x"), Some(EventKind::Other));
        for own in ["session/1", "token/1", "user/ann"] {
            assert_eq!(kind("login", own), None, "{own} is a person's own");
        }
    }
}
