//! Settings of jobs: acceptance, dispatch, retention, webhooks.

use fdn_core::job::RetryPolicy;
use fdn_core::{ByteSize, DurationMs};
use serde::{Deserialize, Serialize};

use crate::Error;

/// Jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JobSettings {
    /// Whether this controller dispatches jobs. One that does not still accepts them for other controllers.
    pub dispatch: bool,
    /// The largest input.
    pub input_limit: ByteSize,
    /// The largest result; a larger answer fails the job.
    pub result_limit: ByteSize,
    /// Inputs and results up to this size are stored in the database, larger ones in the artifact store.
    pub inline_limit: ByteSize,
    /// The most inputs received or sent at the same time; further submitters are asked to retry.
    pub submissions: usize,
    /// The most waiting jobs of one app; further ones are refused.
    pub waiting_per_app: u32,
    /// The most concurrent attempts of one app, over all dispatchers.
    pub running_per_app: u32,
    /// The most concurrent attempts of this controller.
    pub parallel: usize,
    /// The most unacknowledged tickets it may hold.
    pub prefetch: u16,
    /// The most jobs waiting in its memory, over all tenants; all others wait in the database.
    pub buffer: usize,
    /// The most of these of one tenant.
    pub tenant_buffer: usize,
    /// How often it looks for jobs without a ticket, ended leases and expired jobs.
    pub interval: DurationMs,
    /// The most rows of each kind that it looks at each time.
    pub batch: u32,
    /// For how long an attempt is its dispatcher's, which extends it every third. It counts as lost when this has ended and was not extended for half
    /// as long again.
    pub lease: DurationMs,
    /// How long a submission may take, from its first row to the broker's confirmation.
    pub accept_within: DurationMs,
    /// The longest that an answer may take beyond the app's own timeout.
    pub answer_slack: DurationMs,
    /// How long attempts that run may continue when the controller stops. Those that have not ended by then are cut short.
    pub stop_grace: DurationMs,
    /// The number of failed attempts after which the job is a dead letter.
    pub attempts: u32,
    /// The pause after the first failure; it doubles with each further one.
    pub retry_first: DurationMs,
    /// The longest pause.
    pub retry_longest: DurationMs,
    /// How long a job may wait to begin before it is dropped, unless it was submitted with a limit of its own.
    pub max_age: DurationMs,
    /// The longest such limit that a job may be submitted with.
    pub max_age_limit: DurationMs,
    /// How long a job that ended is kept, with its result.
    pub keep: DurationMs,
    /// How long a dead letter is kept.
    pub dead_keep: DurationMs,
    /// The most schedules of an app.
    pub schedules_per_app: u32,
    /// Notifications of ended jobs.
    pub webhooks: WebhookSettings,
}

/// Notifications of ended jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WebhookSettings {
    /// Whether URLs in private and local networks are allowed. Only for networks where everybody who submits jobs may reach these anyway.
    pub private: bool,
    /// How long an answer may take.
    pub timeout: DurationMs,
    /// The most concurrent requests.
    pub parallel: usize,
    /// The number of attempts for one event before it is given up.
    pub attempts: u32,
    /// The pause after the first failure; it doubles with each further one.
    pub retry_first: DurationMs,
    /// The longest pause.
    pub retry_longest: DurationMs,
}

impl Default for JobSettings {
    fn default() -> Self {
        Self {
            dispatch: true,
            input_limit: ByteSize::from_mib(8),
            result_limit: ByteSize::from_mib(16),
            inline_limit: ByteSize::from_bytes(16 << 10),
            submissions: 32,
            waiting_per_app: 100_000,
            running_per_app: 32,
            parallel: 64,
            prefetch: 256,
            buffer: 1024,
            tenant_buffer: 128,
            interval: DurationMs::from_secs(1),
            batch: 500,
            lease: DurationMs::from_secs(30),
            accept_within: DurationMs::from_secs(60),
            answer_slack: DurationMs::from_secs(30),
            stop_grace: DurationMs::from_secs(45),
            attempts: 5,
            retry_first: DurationMs::from_secs(1),
            retry_longest: DurationMs::from_secs(300),
            max_age: DurationMs::from_secs(24 * 3600),
            max_age_limit: DurationMs::from_secs(7 * 24 * 3600),
            keep: DurationMs::from_secs(3 * 24 * 3600),
            dead_keep: DurationMs::from_secs(14 * 24 * 3600),
            schedules_per_app: 100,
            webhooks: WebhookSettings::default(),
        }
    }
}

impl Default for WebhookSettings {
    fn default() -> Self {
        Self {
            private: false,
            timeout: DurationMs::from_secs(10),
            parallel: 16,
            attempts: 10,
            retry_first: DurationMs::from_secs(5),
            retry_longest: DurationMs::from_secs(3600),
        }
    }
}

impl JobSettings {
    /// The retry policy of jobs.
    #[must_use]
    pub const fn retry(&self) -> RetryPolicy {
        RetryPolicy {
            attempts: self.attempts,
            first: self.retry_first,
            longest: self.retry_longest,
        }
    }

    /// Checks what the types alone cannot ensure.
    pub(super) fn check(&self) -> Result<(), Error> {
        let rule = |ok: bool, text: &str| match ok {
            true => Ok(()),
            false => Err(Error::config(text.to_owned())),
        };
        rule(
            self.submissions > 0 && self.parallel > 0 && self.prefetch > 0 && self.batch > 0,
            "jobs.submissions, parallel, prefetch and batch must be at least 1",
        )?;
        rule(
            self.tenant_buffer > 0 && self.buffer >= self.tenant_buffer,
            "jobs.tenant_buffer must be at least 1, and jobs.buffer no less than that",
        )?;
        rule(
            self.waiting_per_app > 0 && self.running_per_app > 0 && self.attempts > 0,
            "jobs.waiting_per_app, running_per_app and attempts must be at least 1",
        )?;
        rule(
            self.interval.as_millis() >= 10 && self.lease.as_millis() >= 1000,
            "jobs.interval must be at least 10ms, and jobs.lease at least 1s",
        )?;
        rule(
            self.retry_first.as_millis() > 0 && self.retry_longest >= self.retry_first,
            "jobs.retry_first must be positive, and jobs.retry_longest no less than that",
        )?;
        rule(
            self.max_age.as_millis() > 0 && self.max_age_limit >= self.max_age,
            "jobs.max_age must be positive, and jobs.max_age_limit no less than that",
        )?;
        let webhooks = &self.webhooks;
        rule(
            webhooks.parallel > 0 && webhooks.attempts > 0 && webhooks.timeout.as_millis() > 0,
            "jobs.webhooks.parallel, attempts and timeout must be positive",
        )
    }
}
