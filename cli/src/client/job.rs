//! Jobs and schedules, as typed calls.

use fdn_core::job::{JobInfo, JobReceipt, JobState, PutSchedule, Redriven, ScheduleInfo};
use fdn_core::{AppName, JobId, ScheduleName};
use reqwest::{Method, Response};

use super::{Client, read, send};
use crate::error::CliError;

impl Client {
    /// Submits a job; `query` holds the API's query parameters.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn submit_job(
        &self,
        app: &AppName,
        query: &[(&str, String)],
        (key, content_type): (Option<&str>, &str),
        input: Vec<u8>,
    ) -> Result<JobReceipt, CliError> {
        let request = self.request(Method::POST, &["v1", "apps", app.as_str(), "jobs"])?;
        let request = request.query(query).header("content-type", content_type);
        let request = match key {
            Some(key) => request.header("idempotency-key", key),
            None => request,
        };
        read(request.body(input)).await
    }

    /// One job.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn job(&self, job: JobId) -> Result<JobInfo, CliError> {
        read(self.request(Method::GET, &["v1", "jobs", &job.to_string()])?).await
    }

    /// The jobs of an app, or of all apps, newest first.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn jobs(
        &self,
        app: Option<&AppName>,
        state: Option<JobState>,
        limit: u32,
    ) -> Result<Vec<JobInfo>, CliError> {
        let mut query = vec![("limit", limit.to_string())];
        query.extend(state.map(|state| ("state", state.to_string())));
        let request = match app {
            Some(app) => self.request(Method::GET, &["v1", "apps", app.as_str(), "jobs"])?,
            None => self.request(Method::GET, &["v1", "jobs"])?,
        };
        read(request.query(&query)).await
    }

    /// The answer of the app to a job.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn job_result(&self, job: JobId) -> Result<Response, CliError> {
        let path = ["v1", "jobs", &job.to_string(), "result"];
        send(self.request(Method::GET, &path)?).await
    }

    /// The log lines of a job.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn job_logs(&self, job: JobId, tail: u32) -> Result<Response, CliError> {
        let path = ["v1", "jobs", &job.to_string(), "logs"];
        let request = self.request(Method::GET, &path)?;
        send(request.query(&[("tail", tail)])).await
    }

    /// Cancels a job.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn cancel_job(&self, job: JobId) -> Result<JobInfo, CliError> {
        read(self.request(Method::DELETE, &["v1", "jobs", &job.to_string()])?).await
    }

    /// Runs a job again.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn redrive_job(&self, job: JobId) -> Result<JobInfo, CliError> {
        let path = ["v1", "jobs", &job.to_string(), "redrive"];
        read(self.request(Method::POST, &path)?).await
    }

    /// Runs dead letters of an app again.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn redrive_jobs(&self, app: &AppName) -> Result<Redriven, CliError> {
        let path = ["v1", "apps", app.as_str(), "jobs", "redrive"];
        read(self.request(Method::POST, &path)?).await
    }

    /// The schedules of an app, or of all apps.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn schedules(&self, app: Option<&AppName>) -> Result<Vec<ScheduleInfo>, CliError> {
        match app {
            Some(app) => {
                let path = ["v1", "apps", app.as_str(), "schedules"];
                self.list(&path, &[]).await
            }
            None => self.list(&["v1", "schedules"], &[]).await,
        }
    }

    /// Sets a schedule.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn set_schedule(
        &self,
        app: &AppName,
        name: &ScheduleName,
        schedule: &PutSchedule,
    ) -> Result<ScheduleInfo, CliError> {
        let path = ["v1", "apps", app.as_str(), "schedules", name.as_str()];
        read(self.request(Method::PUT, &path)?.json(schedule)).await
    }

    /// Removes a schedule.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn remove_schedule(
        &self,
        app: &AppName,
        name: &ScheduleName,
    ) -> Result<(), CliError> {
        let path = ["v1", "apps", app.as_str(), "schedules", name.as_str()];
        send(self.request(Method::DELETE, &path)?).await.map(drop)
    }
}
