//! Jobs: asynchronous runs of an app, from their submission to the one state in which they end.
//!
//! Pure rules; the controller stores jobs and performs them (`controller/src/jobs/`). [`course`] says how a job goes on, whatever is lost,
//! doubled or late; [`attempt`] what is kept of each try; [`retry`] when it is tried again; [`cron`] when a schedule submits the next one; [`webhook`] what is sent at its end and
//! to whom it may be; [`pass`] how a gateway knows the call of a job.

mod api;
pub mod attempt;
pub mod course;
pub mod cron;
pub mod pass;
pub mod retry;
mod state;
pub mod webhook;

pub use api::{
    JobInfo, JobReceipt, PutSchedule, Redriven, SCHEDULE_BODY_MAX, ScheduleInfo, TARGET_MAX,
    is_target,
};
pub use attempt::{AttemptEnd, JobAttempt};
pub use course::{Course, Ending, Event, Step, Terms};
pub use cron::CronExpression;
pub use pass::JobPass;
pub use retry::RetryPolicy;
pub use state::{JobPriority, JobState};
