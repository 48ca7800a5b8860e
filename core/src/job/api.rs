//! Bodies of the API about jobs and schedules.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::attempt::JobAttempt;
use super::cron::CronExpression;
use super::state::{JobPriority, JobState};
use crate::id::{AppName, ClusterId, JobId, ScheduleName};
use crate::unit::{ByteSize, DurationMs, Timestamp};

/// The longest path and query, in bytes, to which a job is sent.
pub const TARGET_MAX: usize = 1024;
/// The largest input of a schedule's jobs, in bytes.
pub const SCHEDULE_BODY_MAX: usize = 16 << 10;

/// Whether a text is a path, with or without a query, to which a job can be sent.
#[must_use]
pub fn is_target(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_graphic() && !b"\"<>\\^`{|}#".contains(&b);
    text.starts_with('/') && text.len() <= TARGET_MAX && text.bytes().all(plain)
}

/// A job was accepted: it will end in one of the final states, once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobReceipt {
    /// The job.
    pub id: JobId,
    /// The app.
    pub app: AppName,
    /// Where it stands.
    pub state: JobState,
    /// The key of the signature of what the webhook gets, the same for all jobs of the app; only where a webhook was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook_secret: Option<String>,
}

/// One job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobInfo {
    /// The job.
    pub id: JobId,
    /// The app.
    pub app: AppName,
    /// Where it stands.
    pub state: JobState,
    /// Why it stands there, where that does not follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How urgent it is among its tenant's.
    pub priority: JobPriority,
    /// Attempts so far.
    pub attempts: u32,
    /// Attempts that began and did not end well, since it was submitted or redriven.
    pub failures: u32,
    /// Where the last attempt ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterId>,
    /// The path and query it is sent to.
    pub target: String,
    /// When it was submitted.
    pub submitted_at: Timestamp,
    /// By whom: a user, or a schedule.
    pub submitted_by: String,
    /// While it waits: when it may begin.
    pub due_at: Timestamp,
    /// From then on it is dropped if it has not begun.
    pub expires_at: Timestamp,
    /// When the last attempt began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// The size of the input.
    pub input_size: ByteSize,
    /// The HTTP status that the app answered with last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The size of the result, if one is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_size: Option<ByteSize>,
    /// Until when job and result are kept, once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_until: Option<Timestamp>,
    /// The last attempts, the first of them first. Where a job is asked for by its id; lists do without.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<JobAttempt>,
}

/// Dead letters were sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Redriven {
    /// How many.
    pub jobs: u32,
    /// Whether there are more: ask again.
    pub more: bool,
}

/// A schedule as it is set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutSchedule {
    /// When: five fields in UTC, such as `*/5 * * * *`.
    #[schema(value_type = String)]
    pub cron: CronExpression,
    /// The input of each job.
    #[serde(default)]
    pub input: String,
    /// Its media type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// The path and query that each job is sent to; `/` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// How urgent its jobs are.
    #[serde(default)]
    pub priority: JobPriority,
    /// How long a job may wait before it is dropped; the network's default if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_age: Option<DurationMs>,
    /// Whether it submits nothing for now.
    #[serde(default)]
    pub paused: bool,
}

/// A schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScheduleInfo {
    /// Its name in the app.
    pub name: ScheduleName,
    /// The app.
    pub app: AppName,
    /// As it was set.
    pub schedule: PutSchedule,
    /// When it submits the next job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// The last moment for which it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_at: Option<Timestamp>,
    /// The job of that moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_job: Option<JobId>,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// By whom.
    pub updated_by: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_path() {
        for good in ["/", "/a/b?c=d%20e&f", "/~x/(1)"] {
            assert!(is_target(good), "{good}");
        }
        for bad in [
            "",
            "a",
            "/a b",
            "/a\nb",
            "/a#b",
            "http://x/",
            &"/".repeat(2000),
        ] {
            assert!(!is_target(bad), "{bad}");
        }
    }

    #[test]
    fn a_schedule_is_read_with_defaults_and_refused_with_unknown_keys() {
        let read = serde_json::from_str::<PutSchedule>;
        let schedule = read(r#"{"cron":"0 * * * *"}"#).expect("enough");
        assert_eq!(schedule.priority, JobPriority::default());
        assert!(read(r#"{"cron":"0 * * * *","timezone":"x"}"#).is_err());
        assert!(read(r#"{"cron":"sometimes"}"#).is_err());
    }
}
