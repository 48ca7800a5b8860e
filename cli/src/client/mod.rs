//! The controller's API, as typed calls.
//!
//! Transport failures (no connection, silence, a [`Problem`](fdn_core::Problem), something that is not a controller) are converted in one place to
//! a [`CliError`] that says what to do.

mod account;
mod apply;
pub(crate) mod dns;
mod events;
mod exchange;
mod figures;
mod fleet;

use std::time::Duration;

use fdn_core::account::TenantRef;
use fdn_core::api::{
    AppDetail, AppSummary, DeployResponse, Explanation, LoginRequest, LoginResponse, NetworkInfo,
    RollbackRequest, WorkflowDetail,
};
use fdn_core::usage::{CallList, CallQuery};
use fdn_core::{AppName, ClientPrefix, Timestamp, VersionNumber};
use fdn_service::secret::Secret;
use reqwest::multipart::Form;
use reqwest::{Method, RequestBuilder, Response};
use serde::de::DeserializeOwned;
use url::Url;

pub(crate) use exchange::{collect, date_header, read, read_part, send};
pub use exchange::{connection_error, root_cause};

use crate::error::CliError;
use crate::target::Target;
use exchange::{body, next_cursor, without_query};

mod apps;
mod job;
mod policy;
mod repository;
mod trace;

/// The read timeout of calls. Compiling a large component may take a minute.
const IDLE: Duration = Duration::from_secs(180);
/// The read timeout of a log stream, after which the client reconnects.
pub const LOG_IDLE: Duration = Duration::from_secs(60);

/// A connection to a controller, with the caller's token.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    controller: Url,
    token: Option<Secret>,
}

impl Client {
    /// A client of the target's controller.
    ///
    /// # Errors
    /// When the target's file of authorities cannot be used.
    pub fn new(target: &Target) -> Result<Self, CliError> {
        Self::with_idle(target, IDLE)
    }

    /// A client with this read timeout.
    ///
    /// # Errors
    /// As for [`Self::new`].
    pub fn with_idle(target: &Target, idle: Duration) -> Result<Self, CliError> {
        let ca_file = target.ca_file.as_deref();
        Ok(Self {
            http: fdn_service::http_client::build_trusting(idle, ca_file)?,
            controller: target.controller.clone(),
            token: target.token.clone(),
        })
    }

    /// The controller's URL.
    #[must_use]
    pub const fn controller(&self) -> &Url {
        &self.controller
    }

    /// The controller's URL for display.
    #[must_use]
    pub fn place(&self) -> String {
        self.controller.as_str().trim_end_matches('/').to_owned()
    }

    /// Creates a session for a user.
    ///
    /// # Errors
    /// As every call: [`CliError::Problem`], [`CliError::Unreachable`], [`CliError::Timeout`], [`CliError::Foreign`] or
    /// [`CliError::Answer`].
    pub async fn login(&self, body: &LoginRequest) -> Result<LoginResponse, CliError> {
        read(self.open(Method::POST, &["v1", "login"]).json(body)).await
    }

    /// Information about the network that clients need.
    ///
    /// # Errors
    /// As for [`Self::login`], and [`CliError::NotLoggedIn`].
    pub async fn network(&self) -> Result<NetworkInfo, CliError> {
        read(self.request(Method::GET, &["v1", "network"])?).await
    }

    /// Information about the network, requested with a token if there is one, and the time by the controller's clock if the answer has it.
    ///
    /// # Errors
    /// As for [`Self::login`].
    pub async fn network_and_clock(&self) -> Result<(NetworkInfo, Option<Timestamp>), CliError> {
        let response = send(self.with_token(self.open(Method::GET, &["v1", "network"]))).await?;
        let clock = response
            .headers()
            .get("date")
            .and_then(|v| v.to_str().ok())
            .and_then(date_header);
        Ok((body(response).await?, clock))
    }

    /// The caller's apps, optionally only those of one tenant or with certain labels.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn apps(
        &self,
        tenant: Option<&TenantRef>,
        label: Option<&str>,
    ) -> Result<Vec<AppSummary>, CliError> {
        let tenant = tenant.map(|tenant| ("tenant", tenant.to_string()));
        let label = label.map(|label| ("label", label.to_owned()));
        let query: Vec<_> = tenant.into_iter().chain(label).collect();
        self.list(&["v1", "apps"], &query).await
    }

    /// One app.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn app(&self, app: &AppName) -> Result<AppDetail, CliError> {
        read(self.request(Method::GET, &["v1", "apps", app.as_str()])?).await
    }

    /// Uploads a version.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn deploy(
        &self,
        app: &AppName,
        tenant: Option<&TenantRef>,
        form: Form,
    ) -> Result<DeployResponse, CliError> {
        let request = self.request(Method::POST, &["v1", "apps", app.as_str(), "versions"])?;
        let query = tenant.map(|tenant| ("tenant", tenant.to_string()));
        read(request.query(query.as_slice()).multipart(form)).await
    }

    /// The entity tag of an app, which each deploy and each rollback changes.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn app_tag(&self, app: &AppName) -> Result<Option<String>, CliError> {
        let request = self.request(Method::GET, &["v1", "apps", app.as_str()])?;
        Ok(repository::tag(&send(request).await?))
    }

    /// Makes an earlier version current, if the app still has the entity tag `tag`.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn rollback(
        &self,
        app: &AppName,
        version: Option<VersionNumber>,
        tag: Option<String>,
    ) -> Result<AppDetail, CliError> {
        let request = self.request(Method::POST, &["v1", "apps", app.as_str(), "rollback"])?;
        let mut request = request.json(&RollbackRequest { version });
        if let Some(tag) = tag {
            request = request.header("if-match", tag);
        }
        read(request).await
    }

    /// Validates a workflow, and makes it current unless it is a dry run. A new app belongs to `tenant`, else to the caller's only one.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn put_workflow(
        &self,
        app: &AppName,
        tenant: Option<&TenantRef>,
        text: String,
        dry_run: bool,
    ) -> Result<WorkflowDetail, CliError> {
        let path = ["v1", "apps", app.as_str(), "workflow"];
        let request = self.request_of(tenant, Method::PUT, &path)?;
        let request = request.query(&[("dry_run", dry_run)]);
        read(
            request
                .header("content-type", "application/yaml")
                .body(text),
        )
        .await
    }

    /// An app's workflow.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn workflow(&self, app: &AppName) -> Result<WorkflowDetail, CliError> {
        read(self.request(Method::GET, &["v1", "apps", app.as_str(), "workflow"])?).await
    }

    /// Deletes an app.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn delete(&self, app: &AppName) -> Result<(), CliError> {
        send(self.request(Method::DELETE, &["v1", "apps", app.as_str()])?)
            .await
            .map(drop)
    }

    /// Deletes one version of an app.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn delete_version(
        &self,
        app: &AppName,
        version: VersionNumber,
    ) -> Result<(), CliError> {
        let number = version.get().to_string();
        let path = ["v1", "apps", app.as_str(), "versions", &number];
        send(self.request(Method::DELETE, &path)?).await.map(drop)
    }

    /// Explains where a client's calls go, and why.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn explain(
        &self,
        app: &AppName,
        client: ClientPrefix,
    ) -> Result<Explanation, CliError> {
        let request = self.request(Method::GET, &["v1", "apps", app.as_str(), "explain"])?;
        read(request.query(&[("client", client.to_string())])).await
    }

    /// Recorded calls of an app.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn calls(&self, app: &AppName, query: &CallQuery) -> Result<CallList, CliError> {
        let request = self.request(Method::GET, &["v1", "apps", app.as_str(), "calls"])?;
        read(request.query(query)).await
    }

    /// The log stream of an app.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn logs(&self, app: &AppName, follow: bool, tail: u32) -> Result<Response, CliError> {
        let request = self.request(Method::GET, &["v1", "apps", app.as_str(), "logs"])?;
        send(request.query(&[("follow", follow.to_string()), ("tail", tail.to_string())])).await
    }

    /// A list from all its pages.
    pub(crate) async fn list<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, String)],
    ) -> Result<Vec<T>, CliError> {
        let (mut rows, mut cursor): (Vec<T>, Option<String>) = (Vec::new(), None);
        loop {
            let mut request = self.request(Method::GET, path)?.query(query);
            if let Some(cursor) = &cursor {
                request = request.query(&[("cursor", cursor)]);
            }
            let response = send(request).await?;
            let next = next_cursor(&response);
            let url = without_query(response.url());
            let page: Vec<T> = body(response).await?;
            // A page without rows, or with the same cursor again, would result in an endless loop.
            let ends = page.is_empty() || next == cursor;
            rows.extend(page);
            match next {
                Some(_) if ends => {
                    return Err(CliError::Answer {
                        url,
                        reason: "its pages do not end".to_owned(),
                    });
                }
                Some(_) => cursor = next,
                None => return Ok(rows),
            }
        }
    }

    fn open(&self, method: Method, path: &[&str]) -> RequestBuilder {
        let mut url = self.controller.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        self.http.request(method, url)
    }

    pub(crate) fn request(
        &self,
        method: Method,
        path: &[&str],
    ) -> Result<RequestBuilder, CliError> {
        if self.token.is_none() {
            return Err(CliError::NotLoggedIn {
                controller: self.place(),
            });
        }
        Ok(self.with_token(self.open(method, path)))
    }

    /// A request about what a tenant has: the named one, else the caller's only one.
    pub(crate) fn request_of(
        &self,
        tenant: Option<&TenantRef>,
        method: Method,
        path: &[&str],
    ) -> Result<RequestBuilder, CliError> {
        let query = tenant.map(|tenant| ("tenant", tenant.to_string()));
        Ok(self.request(method, path)?.query(query.as_slice()))
    }

    fn with_token(&self, request: RequestBuilder) -> RequestBuilder {
        match &self.token {
            Some(token) => request.bearer_auth(token.expose()),
            None => request,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_appended_to_the_controllers_own() {
        let url: Url = "https://x.test/fdn/".parse().expect("url");
        let client = Client::new(&Target::of(url, None, None)).expect("client");
        let request = client
            .open(Method::GET, &["v1", "apps", "a"])
            .build()
            .expect("request");
        assert_eq!(request.url().as_str(), "https://x.test/fdn/v1/apps/a");
        assert!(matches!(
            client.request(Method::GET, &["v1"]),
            Err(CliError::NotLoggedIn { .. })
        ));
    }
}
