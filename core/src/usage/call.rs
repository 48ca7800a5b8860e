//! Single calls: what a node records of each and keeps for some time, and the search for them.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{UsageOutcome, UsageRecord};
use crate::error::ParseError;
use crate::id::{
    AppName, ClusterId, FormName, FunctionName, InvocationId, NodeId, StageName, VersionNumber,
};
use crate::prefix::ClientPrefix;
use crate::unit::{MebiBytes, Revision, Timestamp};

/// A node's record of a call: what is billed, and what a search for the call should show.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallRecord {
    /// What is billed. It is in the same position as in records of the previous release, so that either release reads what the other has left.
    #[serde(flatten)]
    pub used: UsageRecord,
    /// Other facts. `None` in a record of the previous release; its segment is then handed over as records, not as sums.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallFacts>,
    /// What an earlier record of the same call has counted, which this record replaces; `None` for a call's first record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noted: Option<InterimUsage>,
}

/// What was counted of a call while it was running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterimUsage {
    /// How long it had occupied an instance, in microseconds.
    pub duration_us: u64,
    /// Its CPU time, in microseconds.
    pub cpu_us: u64,
    /// The bytes of its response that had been sent.
    pub egress_bytes: u64,
}

impl InterimUsage {
    /// What a record has counted, if it is not the final one of its call.
    #[must_use]
    pub fn of(record: &UsageRecord) -> Option<Self> {
        (record.outcome == UsageOutcome::Running).then_some(Self {
            duration_us: record.duration_us,
            cpu_us: record.cpu_us,
            egress_bytes: record.egress_bytes,
        })
    }

    /// Reconstructs the record that counted this; `later` is a later record of the same call.
    #[must_use]
    pub fn record(&self, later: &UsageRecord) -> UsageRecord {
        UsageRecord {
            duration_us: self.duration_us,
            cpu_us: self.cpu_us,
            egress_bytes: self.egress_bytes,
            outcome: UsageOutcome::Running,
            ..later.clone()
        }
    }
}

/// What is known of a call besides its usage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallFacts {
    /// The request id, which lines of the function's log have too.
    pub request: String,
    /// The W3C trace id, 32 hexadecimal digits.
    pub trace: String,
    /// The request's method.
    pub method: String,
    /// The status of the response, if one was begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The time from the request's arrival until it was admitted, in microseconds.
    #[serde(default)]
    pub wait_us: u64,
    /// The time from there until it had an instance, in microseconds.
    #[serde(default)]
    pub start_us: u64,
    /// The time from there until the function had set the head of the response, in microseconds.
    #[serde(default)]
    pub head_us: u64,
    /// The time from the request's arrival until this was written, in microseconds.
    #[serde(default)]
    pub total_us: u64,
    /// How the call was routed; empty in records of older agents.
    #[serde(flatten)]
    pub routed: Routed,
}

/// How a call reached the node that served it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Routed {
    /// The revision of the app's desired state by which the gateway served the call; absent from older agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<Revision>,
    /// Whether plans that the gateway knew sent clients to its cluster; absent for `used`.
    #[serde(default, skip_serializing_if = "PlanUse::is_used")]
    pub plan_use: PlanUse,
    /// The client's address prefix, /24 for IPv4 and /56 for IPv6; absent if the address is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientPrefix>,
    /// The node at which the client's call arrived and which forwarded it; absent if it arrived at this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<NodeId>,
    /// The stage of the workflow that was called; absent for a plain function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<StageName>,
    /// The form of the function that ran; absent for a function with one form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<FormName>,
}

/// Whether the plans that a gateway knew used its cluster when a client's call arrived there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlanUse {
    /// A plan uses the cluster. This is also the value before there is any plan, and for calls that were not caused by a client's DNS
    /// answer: stages, jobs, forwarded calls.
    #[default]
    Used,
    /// No plan uses the cluster any more, but the app is still loaded there for clients with older DNS answers.
    Leaving,
    /// No plan uses the cluster.
    Unused,
}

impl PlanUse {
    /// Whether this is the default, which need not be stated.
    #[must_use]
    pub const fn is_used(&self) -> bool {
        matches!(self, Self::Used)
    }

    /// The use of `cluster`: those in `primary` have the app loaded, those in `leaving` only for older answers.
    #[must_use]
    pub fn of(
        cluster: &ClusterId,
        primary: &BTreeSet<ClusterId>,
        leaving: &BTreeSet<ClusterId>,
    ) -> Self {
        if leaving.contains(cluster) {
            Self::Leaving
        } else if primary.is_empty() || primary.contains(cluster) {
            Self::Used
        } else {
            Self::Unused
        }
    }

    /// The name used in JSON and headers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Used => "used",
            Self::Leaving => "leaving",
            Self::Unused => "unused",
        }
    }
}

/// A call, as recorded by the node that served it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CallLine {
    /// The id of the invocation.
    pub invocation: InvocationId,
    /// The app that was called.
    pub app: AppName,
    /// The function that ran.
    pub function: FunctionName,
    /// The function's version.
    pub version: VersionNumber,
    /// The node whose gateway served the call, and which keeps this record.
    pub node: NodeId,
    /// When the request arrived.
    pub started_at: Timestamp,
    /// How the call ended; `running` if its end is unknown.
    pub outcome: UsageOutcome,
    /// The HTTP status of the response; absent if none was begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The HTTP method of the request.
    pub method: String,
    /// The request id, which lines of the function's log have too.
    pub request: String,
    /// The trace id (W3C Trace Context), 32 hexadecimal digits.
    pub trace: String,
    /// The time from the request's arrival until it was admitted, in microseconds.
    pub wait_us: u64,
    /// The time from there until it had an instance, in microseconds.
    pub start_us: u64,
    /// The time from there until the function had set the head of the response, in microseconds.
    pub head_us: u64,
    /// The time from the request's arrival until the response had been sent and the function had ended, in microseconds; as far as known.
    pub total_us: u64,
    /// How long the call occupied an instance, in microseconds.
    pub duration_us: u64,
    /// The CPU time of the call, in microseconds.
    pub cpu_us: u64,
    /// The memory that the instance held for the call, in MiB.
    pub memory_mib: MebiBytes,
    /// The GPU memory that the instance held, on all devices together, in MiB.
    pub gpu_memory_mib: MebiBytes,
    /// The bytes of the response body that were sent.
    pub egress_bytes: u64,
    /// How the call reached the node.
    #[serde(flatten)]
    pub routed: Routed,
}

impl CallLine {
    /// The search result for a node's record.
    #[must_use]
    pub fn new(node: NodeId, record: CallRecord) -> Self {
        let CallRecord { used, call, .. } = record;
        let facts = call.unwrap_or_default();
        Self {
            invocation: used.invocation,
            app: used.app,
            function: used.function,
            version: used.version,
            node,
            started_at: used.started_at,
            outcome: used.outcome,
            status: facts.status,
            method: facts.method,
            request: facts.request,
            trace: facts.trace,
            wait_us: facts.wait_us,
            start_us: facts.start_us,
            head_us: facts.head_us,
            total_us: facts.total_us,
            duration_us: used.duration_us,
            cpu_us: used.cpu_us,
            memory_mib: used.memory_mib,
            gpu_memory_mib: used.gpu_memory_mib,
            egress_bytes: used.egress_bytes,
            routed: facts.routed,
        }
    }
}

/// The calls found by a search.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CallList {
    /// The calls, newest first.
    pub calls: Vec<CallLine>,
    /// Whether there are more than requested.
    pub more: bool,
    /// Living nodes that did not answer in time: calls that they served are missing. Absent if all answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<NodeId>,
}

/// A search for calls of an app; all conditions must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallQuery {
    /// The earliest arrival time of the request.
    #[serde(default)]
    pub since: Timestamp,
    /// The end of the arrival times, exclusive; `None` for no end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The status of the response; `None` for any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<StatusFilter>,
    /// The outcome of the call; `None` for any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<UsageOutcome>,
    /// The version that served the call; `None` for any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<VersionNumber>,
    /// The request id; `None` for any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// The trace id; `None` for any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// The most calls in the result.
    pub limit: u32,
}

impl CallQuery {
    /// The most calls in one result.
    pub const LIMIT_MAX: u32 = 1000;

    /// Whether a record of the right app matches.
    #[must_use]
    pub fn takes(&self, record: &CallRecord) -> bool {
        let (used, facts) = (&record.used, record.call.as_ref());
        let at = used.started_at;
        let is = |wanted: &Option<String>, of: fn(&CallFacts) -> &String| {
            wanted
                .as_ref()
                .is_none_or(|wanted| facts.is_some_and(|facts| of(facts) == wanted))
        };
        at >= self.since
            && self.until.is_none_or(|until| at < until)
            && self.outcome.is_none_or(|outcome| outcome == used.outcome)
            && self.version.is_none_or(|version| version == used.version)
            && self.status.is_none_or(|status| {
                facts
                    .and_then(|facts| facts.status)
                    .is_some_and(|answered| status.takes(answered))
            })
            && is(&self.request, |facts| &facts.request)
            && is(&self.trace, |facts| &facts.trace)
    }
}

/// A status code, or a class of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum StatusFilter {
    /// This status code.
    One(u16),
    /// All status codes with this first digit.
    Class(u16),
}

impl StatusFilter {
    /// Whether a status code matches.
    #[must_use]
    pub const fn takes(self, status: u16) -> bool {
        match self {
            Self::One(one) => status == one,
            Self::Class(digit) => status / 100 == digit,
        }
    }
}

impl FromStr for StatusFilter {
    type Err = ParseError;

    fn from_str(s: &str) -> Result<Self, ParseError> {
        let wrong = || ParseError::new("status", s, "100 to 599, or 1xx to 5xx");
        let (number, is_class) = match s.strip_suffix("xx") {
            Some(digit) => (digit, true),
            None => (s, false),
        };
        let number: u16 = number.parse().map_err(|_| wrong())?;
        match (is_class, number) {
            (true, 1..=5) => Ok(Self::Class(number)),
            (false, 100..=599) => Ok(Self::One(number)),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for StatusFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(status) => write!(f, "{status}"),
            Self::Class(digit) => write!(f, "{digit}xx"),
        }
    }
}

impl TryFrom<String> for StatusFilter {
    type Error = ParseError;

    fn try_from(s: String) -> Result<Self, ParseError> {
        s.parse()
    }
}

impl From<StatusFilter> for String {
    fn from(value: StatusFilter) -> Self {
        value.to_string()
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn record() -> CallRecord {
        CallRecord {
            used: UsageRecord {
                invocation: InvocationId::from_uuid(Uuid::from_u128(1)),
                app: "thumbs".parse().expect("app"),
                function: "thumbs".parse().expect("function"),
                version: VersionNumber::FIRST,
                started_at: Timestamp(1_000),
                duration_us: 2_000,
                cpu_us: 10,
                memory_mib: MebiBytes(128),
                gpu_memory_mib: MebiBytes(0),
                egress_bytes: 7,
                outcome: UsageOutcome::FunctionError,
            },
            call: Some(CallFacts {
                request: "r-1".to_owned(),
                trace: "t-1".to_owned(),
                method: "GET".to_owned(),
                status: Some(503),
                ..CallFacts::default()
            }),
            noted: None,
        }
    }

    #[test]
    fn either_revision_reads_what_the_other_wrote() {
        let json = serde_json::to_string(&record()).expect("json");
        let before: UsageRecord = serde_json::from_str(&json).expect("as the revision before");
        assert_eq!(before, record().used);
        let left = serde_json::to_string(&before).expect("json");
        let read: CallRecord = serde_json::from_str(&left).expect("of the revision before");
        assert_eq!((read.used, read.call, read.noted), (before, None, None));
        let own: CallRecord = serde_json::from_str(&json).expect("own json");
        assert_eq!(own, record());
    }

    #[test]
    fn how_a_call_was_routed_is_kept_and_need_not_be_known() {
        let mut routed = record();
        let facts = routed.call.as_mut().expect("facts");
        facts.routed = Routed {
            revision: Some(Revision(7)),
            plan_use: PlanUse::Leaving,
            client: Some("192.0.2.0/24".parse().expect("prefix")),
            via: Some("eu-1".parse().expect("node")),
            stage: Some("resize".parse().expect("stage")),
            form: Some("gpu".parse().expect("form")),
        };
        let json = serde_json::to_string(&routed).expect("json");
        assert!(
            json.contains(r#""revision":7,"plan_use":"leaving""#),
            "{json}"
        );
        let read: CallRecord = serde_json::from_str(&json).expect("own json");
        assert_eq!(read, routed);
        let line = CallLine::new("eu-2".parse().expect("node"), routed);
        let json = serde_json::to_string(&line).expect("json");
        assert_eq!(serde_json::from_str::<CallLine>(&json).expect("line"), line);
        let plain = serde_json::to_string(&record()).expect("json");
        assert!(!plain.contains("plan_use") && !plain.contains("revision"));
        assert!(!plain.contains("form"), "{plain}");
    }

    #[test]
    fn a_cluster_is_used_until_its_clients_leave() {
        let set = |names: &[&str]| -> BTreeSet<ClusterId> {
            let name = |name: &&str| name.parse().expect("cluster");
            names.iter().map(name).collect()
        };
        let of = |primary: &[&str], leaving: &[&str]| {
            let eu: ClusterId = "eu".parse().expect("cluster");
            PlanUse::of(&eu, &set(primary), &set(leaving))
        };
        assert_eq!(of(&["eu", "us"], &[]), PlanUse::Used);
        assert_eq!(of(&["eu", "us"], &["eu"]), PlanUse::Leaving);
        assert_eq!(of(&["us"], &[]), PlanUse::Unused);
        assert_eq!(of(&[], &[]), PlanUse::Used, "there is no plan");
    }

    #[test]
    fn every_part_of_a_question_counts() {
        let all = CallQuery::default();
        assert!(all.takes(&record()));
        let with = |change: fn(&mut CallQuery)| {
            let mut query = all.clone();
            change(&mut query);
            query.takes(&record())
        };
        assert!(with(|q| q.since = Timestamp(1_000)) && !with(|q| q.since = Timestamp(1_001)));
        assert!(!with(|q| q.until = Some(Timestamp(1_000))));
        assert!(with(|q| q.status = Some(StatusFilter::Class(5))));
        assert!(!with(|q| q.status = Some(StatusFilter::One(500))));
        assert!(!with(|q| q.outcome = Some(UsageOutcome::Ok)));
        assert!(!with(|q| q.version = VersionNumber::try_from(2).ok()));
        assert!(with(|q| q.request = Some("r-1".to_owned())));
        assert!(!with(|q| q.trace = Some("r-1".to_owned())));
        let unknown = CallRecord {
            call: None,
            ..record()
        };
        assert!(all.takes(&unknown));
        let by_request = CallQuery {
            request: Some("r-1".to_owned()),
            ..all
        };
        assert!(!by_request.takes(&unknown));
    }

    #[test]
    fn a_status_or_a_class_of_them() {
        for (text, takes, takes_not) in [("5xx", 599, 499), ("404", 404, 403)] {
            let filter: StatusFilter = text.parse().expect("a status");
            assert_eq!(filter.to_string(), text);
            assert!(filter.takes(takes) && !filter.takes(takes_not), "{text}");
        }
        for wrong in ["", "6xx", "xx", "99", "600", "5x", "all"] {
            assert!(wrong.parse::<StatusFilter>().is_err(), "{wrong}");
        }
    }
}
