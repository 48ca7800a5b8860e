//! Bodies of the API about jobs and schedules.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::attempt::JobAttempt;
use super::cron::CronExpression;
use super::state::{JobPriority, JobState};
use crate::id::{AppName, ClusterId, JobId, ScheduleName};
use crate::unit::{ByteSize, DurationMs, Timestamp};

/// The most bytes of the path and query to which a job is sent.
pub const TARGET_MAX: usize = 1024;
/// The largest input of a schedule's jobs, in bytes.
pub const SCHEDULE_BODY_MAX: usize = 16 << 10;

/// Whether a text is a path, with or without a query, to which a job can be sent.
#[must_use]
pub fn is_target(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_graphic() && !b"\"<>\\^`{|}#".contains(&b);
    text.starts_with('/') && text.len() <= TARGET_MAX && text.bytes().all(plain)
}

/// The receipt of an accepted job. The job will end in exactly one of the final states.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobReceipt {
    /// The job's id.
    pub id: JobId,
    /// The app that is called.
    pub app: AppName,
    /// The state of the job.
    pub state: JobState,
    /// The key with which webhook requests are signed, the same for all jobs of the app; absent if the job has no webhook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook_secret: Option<String>,
}

/// A job: an asynchronous call of an app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobInfo {
    /// The job's id.
    pub id: JobId,
    /// The app that is called.
    pub app: AppName,
    /// The state of the job.
    pub state: JobState,
    /// Why the job is in this state, in words; absent where the state says everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The priority among the jobs of the same tenant, from 0 to 9; higher is more urgent.
    pub priority: JobPriority,
    /// The number of attempts so far, the present one included.
    pub attempts: u32,
    /// The number of attempts that were cut short and may be repeated, since the job was submitted or last redriven.
    pub failures: u32,
    /// The cluster of the last attempt; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterId>,
    /// The path and query to which the job is sent.
    pub target: String,
    /// When the job was submitted.
    pub submitted_at: Timestamp,
    /// Who submitted the job: a user or a schedule.
    pub submitted_by: String,
    /// The earliest time of the next attempt, while the job is queued.
    pub due_at: Timestamp,
    /// When the job is dropped unless an attempt has begun.
    pub expires_at: Timestamp,
    /// When the last attempt began; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When the job ended; absent before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// The size of the job's input.
    pub input_size: ByteSize,
    /// The HTTP status of the app's answer with which the job ended; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The size of the kept result; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_size: Option<ByteSize>,
    /// Until when the job and its result are kept; absent until the job ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_until: Option<Timestamp>,
    /// The last attempts, at most 32, oldest first. Only where a single job is requested; absent in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<JobAttempt>,
}

/// The result of running dead letters again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Redriven {
    /// The number of jobs that were queued again.
    pub jobs: u32,
    /// Whether there are more; repeat the request for them.
    pub more: bool,
}

/// A request to set a schedule, which submits jobs repeatedly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutSchedule {
    /// When jobs are submitted: a cron expression of five fields in UTC, such as `*/5 * * * *`.
    #[schema(value_type = String)]
    pub cron: CronExpression,
    /// The input of each job, at most 16 KiB; empty if absent.
    #[serde(default)]
    pub input: String,
    /// The media type of the input; absent for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// The path and query to which each job is sent; `/` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The priority of the jobs, from 0 to 9; 5 if absent.
    #[serde(default)]
    pub priority: JobPriority,
    /// How long a job may wait before it is dropped; the network's default if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_age: Option<DurationMs>,
    /// Whether the schedule is paused and submits no jobs.
    #[serde(default)]
    pub paused: bool,
}

/// A schedule, which submits jobs repeatedly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScheduleInfo {
    /// The schedule's name, unique in the app.
    pub name: ScheduleName,
    /// The app whose jobs it submits.
    pub app: AppName,
    /// The schedule as it was set.
    pub schedule: PutSchedule,
    /// When the next job is submitted; absent if none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// The last scheduled time for which a job was submitted; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_at: Option<Timestamp>,
    /// The id of that job; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_job: Option<JobId>,
    /// When the schedule was last changed.
    pub updated_at: Timestamp,
    /// Who last changed it.
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
