//! Jobs: asynchronous runs of an app, from their submission to the one state in which they end.
//!
//! Pure rules; the controller stores jobs and executes them (`controller/src/jobs/`). [`progress`] is the state machine, robust to lost,
//! duplicated and late messages; [`attempt`] the record of each try; [`retry`] the retry policy; [`cron`] the schedules; [`webhook`] the
//! notification at the end and its allowed receivers; [`pass`] how a gateway recognises the call of a job.

mod api;
pub mod attempt;
pub mod cron;
pub mod pass;
pub mod progress;
pub mod retry;
mod state;
pub mod webhook;

pub use api::{
    JobInfo, JobReceipt, PutSchedule, Redriven, SCHEDULE_BODY_MAX, ScheduleInfo, TARGET_MAX,
    is_target,
};
pub use attempt::{AttemptEnd, JobAttempt};
pub use cron::CronExpression;
pub use pass::JobPass;
pub use progress::{AttemptResult, Event, JobProgress, JobRules, Step};
pub use retry::RetryPolicy;
pub use state::{JobPriority, JobState};
