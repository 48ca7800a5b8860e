//! The controller's API, as typed calls.
//!
//! Transport failures (no connection, silence, a [`Problem`], something that is not a controller) are converted in one place to a
//! [`CliError`] that says what to do.

mod account;
mod apply;
pub(crate) mod dns;
mod events;
mod figures;

use std::time::Duration;

use fdn_core::account::TenantRef;
use fdn_core::api::{
    AppDetail, AppSummary, ClusterInfo, DeployResponse, Explanation, LoginRequest, LoginResponse,
    NetworkInfo, NodeInfo, RollbackRequest, WorkflowDetail,
};
use fdn_core::fleet::{
    ClusterDetail, CreateCluster, CreateJoinToken, CreatedJoinToken, DnsServerInfo, JoinTokenInfo,
    NodeDetail, RestoreDevice,
};
use fdn_core::usage::{CallList, CallQuery};
use fdn_core::{
    AppName, ClientPrefix, ClusterId, DeviceId, JoinTokenId, NodeId, Problem, Timestamp,
    VersionNumber,
};
use fdn_service::secret::Secret;
use reqwest::multipart::Form;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde::de::DeserializeOwned;
use url::Url;

use crate::error::CliError;
use crate::target::Target;

mod apps;
mod job;
mod policy;
mod repository;
mod trace;

/// The read timeout of calls. Compiling a large component may take a minute.
const IDLE: Duration = Duration::from_secs(180);
/// The read timeout of a log stream, after which the client reconnects.
pub const LOG_IDLE: Duration = Duration::from_secs(60);
/// The largest answer that is read, in bytes: the detail of an app with very many versions.
const ANSWER_MAX: usize = 64 << 20;

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

    /// All clusters.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn clusters(&self) -> Result<Vec<ClusterInfo>, CliError> {
        self.list(&["v1", "clusters"], &[]).await
    }

    /// All nodes.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn nodes(&self) -> Result<Vec<NodeInfo>, CliError> {
        self.list(&["v1", "nodes"], &[]).await
    }

    /// Creates a cluster.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn create_cluster(&self, body: &CreateCluster) -> Result<ClusterInfo, CliError> {
        read(self.request(Method::POST, &["v1", "clusters"])?.json(body)).await
    }

    /// One cluster.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn cluster(&self, cluster: &ClusterId) -> Result<ClusterDetail, CliError> {
        read(self.request(Method::GET, &["v1", "clusters", cluster.as_str()])?).await
    }

    /// One node.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn node(&self, node: &NodeId) -> Result<NodeDetail, CliError> {
        read(self.request(Method::GET, &["v1", "nodes", node.as_str()])?).await
    }

    /// Drains a node: it takes no new work.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn drain(&self, node: &NodeId) -> Result<NodeDetail, CliError> {
        read(self.request(Method::POST, &["v1", "nodes", node.as_str(), "drain"])?).await
    }

    /// Lets a drained node take work again.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn uncordon(&self, node: &NodeId) -> Result<NodeDetail, CliError> {
        read(self.request(Method::POST, &["v1", "nodes", node.as_str(), "uncordon"])?).await
    }

    /// Puts a device of a node back into service.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn restore_device(
        &self,
        node: &NodeId,
        device: &DeviceId,
    ) -> Result<NodeDetail, CliError> {
        let body = RestoreDevice {
            device: device.clone(),
        };
        let path = ["v1", "nodes", node.as_str(), "restore-device"];
        read(self.request(Method::POST, &path)?.json(&body)).await
    }

    /// Removes a node.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn remove_node(&self, node: &NodeId, force: bool) -> Result<(), CliError> {
        let request = self.request(Method::DELETE, &["v1", "nodes", node.as_str()])?;
        send(request.query(&[("force", force)])).await.map(drop)
    }

    /// Creates a join token.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn create_join_token(
        &self,
        body: &CreateJoinToken,
    ) -> Result<CreatedJoinToken, CliError> {
        read(
            self.request(Method::POST, &["v1", "join-tokens"])?
                .json(body),
        )
        .await
    }

    /// All join tokens.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn join_tokens(&self) -> Result<Vec<JoinTokenInfo>, CliError> {
        self.list(&["v1", "join-tokens"], &[]).await
    }

    /// Revokes a join token.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn revoke_join_token(&self, id: JoinTokenId) -> Result<(), CliError> {
        send(self.request(Method::DELETE, &["v1", "join-tokens", &id.to_string()])?)
            .await
            .map(drop)
    }

    /// The DNS servers that have joined.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn dns_servers(&self) -> Result<Vec<DnsServerInfo>, CliError> {
        self.list(&["v1", "dns-servers"], &[]).await
    }

    /// Removes a DNS server.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn remove_dns_server(&self, server: &NodeId) -> Result<(), CliError> {
        let request = self.request(Method::DELETE, &["v1", "dns-servers", server.as_str()])?;
        send(request).await.map(drop)
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

    /// Makes an earlier version current.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn rollback(
        &self,
        app: &AppName,
        version: Option<VersionNumber>,
    ) -> Result<AppDetail, CliError> {
        let request = self.request(Method::POST, &["v1", "apps", app.as_str(), "rollback"])?;
        read(request.json(&RollbackRequest { version })).await
    }

    /// Validates a workflow, and makes it current unless it is a dry run.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn put_workflow(
        &self,
        app: &AppName,
        text: String,
        dry_run: bool,
    ) -> Result<WorkflowDetail, CliError> {
        let request = self.request(Method::PUT, &["v1", "apps", app.as_str(), "workflow"])?;
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

    fn with_token(&self, request: RequestBuilder) -> RequestBuilder {
        match &self.token {
            Some(token) => request.bearer_auth(token.expose()),
            None => request,
        }
    }
}

/// An answer, and the cursor of the next part.
pub(crate) async fn read_part<T: DeserializeOwned>(
    request: RequestBuilder,
) -> Result<(T, Option<String>), CliError> {
    let response = send(request).await?;
    let next = next_cursor(&response);
    Ok((body(response).await?, next))
}

/// The cursor of the next page of a list, from the header `link` (RFC 8288).
fn next_cursor(response: &Response) -> Option<String> {
    let link = response.headers().get("link")?.to_str().ok()?;
    let target = link.strip_prefix('<')?.strip_suffix(">; rel=\"next\"")?;
    let url = response.url().join(target).ok()?;
    url.query_pairs()
        .find(|(key, _)| key == "cursor")
        .map(|(_, cursor)| cursor.into_owned())
}

pub(crate) async fn read<T: DeserializeOwned>(request: RequestBuilder) -> Result<T, CliError> {
    body(send(request).await?).await
}

/// Sends a request; fails unless the response has a success status.
pub(crate) async fn send(request: RequestBuilder) -> Result<Response, CliError> {
    let response = request.send().await.map_err(|e| connection_error(&e))?;
    if response.status().is_success() {
        return Ok(response);
    }
    let (url, status) = (without_query(response.url()), response.status());
    let text = collect(response).await?;
    if let Ok(problem) = serde_json::from_slice::<Problem>(&text) {
        return Err(CliError::Problem(Box::new(problem)));
    }
    // A proxy or load balancer in front of a controller that is down.
    if matches!(
        status,
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT
    ) {
        return Err(CliError::Unreachable {
            what: "the controller",
            place: url,
            reason: format!("status {status}"),
        });
    }
    Err(CliError::Foreign {
        url,
        status: status.as_u16(),
    })
}

async fn body<T: DeserializeOwned>(response: Response) -> Result<T, CliError> {
    let url = without_query(response.url());
    let bytes = collect(response).await?;
    serde_json::from_slice(&bytes).map_err(|e| CliError::Answer {
        url,
        reason: e.to_string(),
    })
}

pub(crate) async fn collect(mut response: Response) -> Result<Vec<u8>, CliError> {
    let url = without_query(response.url());
    let mut all = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|e| connection_error(&e))? {
        if all.len() + chunk.len() > ANSWER_MAX {
            return Err(CliError::Answer {
                url,
                reason: format!("it is longer than {ANSWER_MAX} bytes"),
            });
        }
        all.extend_from_slice(&chunk);
    }
    Ok(all)
}

fn without_query(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.into()
}

/// The error for a failed exchange.
#[must_use]
pub fn connection_error(error: &reqwest::Error) -> CliError {
    let place = error.url().map(origin).unwrap_or_default();
    if error.is_timeout() && !error.is_connect() {
        return CliError::Timeout(format!("the controller at {place} was silent for too long"));
    }
    let mut reason = root_cause(error);
    if reason.contains("UnknownIssuer") {
        reason.push_str("; if its authority is a private one, --ca-file names its certificate");
    }
    CliError::Unreachable {
        what: "the controller",
        place,
        reason,
    }
}

fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

/// The innermost cause: "connection refused" rather than "error sending request".
#[must_use]
pub fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Reads the `Date` header (RFC 9110, section 5.6.7): `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(crate) fn date_header(text: &str) -> Option<Timestamp> {
    let time = httpdate::parse_http_date(text).ok()?;
    let since = time.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(Timestamp(u64::try_from(since.as_millis()).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_header_is_read() {
        assert_eq!(
            date_header("Sun, 06 Nov 1994 08:49:37 GMT"),
            Some(Timestamp(784_111_777_000))
        );
        assert_eq!(date_header("yesterday"), None);
        assert_eq!(date_header("Sun, 06 ovD 1994 08:49:37 GMT"), None);
    }

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
