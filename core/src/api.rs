//! Bodies of the controller's HTTP API, shared by controller, CLI, agents and DNS, and documented by OpenAPI.
//!
//! Paths under `/v1/` are for people and their tools (session token in `Authorization: Bearer`). A machine that joins sends its join token
//! in the body, one that renews its certificate a signature; all other requests of machines go to `/edge/v1/` on a separate listener.
//! Errors are [`crate::Problem`]s.
//!
//! [`WhoAmI`]: crate::account::WhoAmI
//! [`SessionInfo`]: crate::account::SessionInfo
//! [`ChangePassword`]: crate::account::ChangePassword
//! [`CreateApiToken`]: crate::account::CreateApiToken
//! [`CreatedApiToken`]: crate::account::CreatedApiToken
//! [`ApiTokenInfo`]: crate::account::ApiTokenInfo
//! [`CreateTenant`]: crate::account::CreateTenant
//! [`TenantInfo`]: crate::account::TenantInfo
//! [`UpdateTenant`]: crate::account::UpdateTenant
//! [`MemberInfo`]: crate::account::MemberInfo
//! [`PutMember`]: crate::account::PutMember
//! [`CreateUser`]: crate::account::CreateUser
//! [`UserInfo`]: crate::account::UserInfo
//! [`UpdateUser`]: crate::account::UpdateUser
//! [`SetPassword`]: crate::account::SetPassword
//! [`AuditRecord`]: crate::account::AuditRecord
//! [`CreateCluster`]: crate::fleet::CreateCluster
//! [`ClusterDetail`]: crate::fleet::ClusterDetail
//! [`NodeDetail`]: crate::fleet::NodeDetail
//! [`RestoreDevice`]: crate::fleet::RestoreDevice
//! [`CreateJoinToken`]: crate::fleet::CreateJoinToken
//! [`CreatedJoinToken`]: crate::fleet::CreatedJoinToken
//! [`JoinTokenInfo`]: crate::fleet::JoinTokenInfo
//! [`EnrolRequest`]: crate::enrol::EnrolRequest
//! [`EnrolResponse`]: crate::enrol::EnrolResponse
//! [`RenewRequest`]: crate::enrol::RenewRequest
//! [`RenewResponse`]: crate::enrol::RenewResponse
//! [`LeaseRequest`]: crate::enrol::LeaseRequest
//! [`LeaseResponse`]: crate::enrol::LeaseResponse
//!
//! | call | body | answer |
//! | --- | --- | --- |
//! | `POST /v1/login` | [`LoginRequest`] | [`LoginResponse`] |
//! | `GET /v1/login` | | [`LoginInfo`] |
//! | `GET /v1/oidc/login`, `GET /v1/oidc/callback` | | 303, and a cookie: a browser's login with the identity provider |
//! | `POST /v1/session` | [`LoginRequest`] | [`WhoAmI`], and a cookie |
//! | `GET /v1/session` | | [`WhoAmI`] |
//! | `DELETE /v1/session` | | 204 |
//! | `GET /v1/sessions` | | [`SessionInfo`]s |
//! | `DELETE /v1/sessions/{session}` | | 204 |
//! | `POST /v1/password` | [`ChangePassword`] | 204 |
//! | `POST /v1/tokens` | [`CreateApiToken`] | [`CreatedApiToken`] |
//! | `GET /v1/tokens` | | [`ApiTokenInfo`]s |
//! | `DELETE /v1/tokens/{api_token}` | | 204 |
//! | `POST /v1/tenants` | [`CreateTenant`] | [`TenantInfo`] |
//! | `GET /v1/tenants` | | [`TenantInfo`]s |
//! | `GET /v1/tenants/{tenant}` | | [`TenantInfo`] |
//! | `PATCH /v1/tenants/{tenant}` | [`UpdateTenant`] | [`TenantInfo`] |
//! | `GET /v1/tenants/{tenant}/members` | | [`MemberInfo`]s |
//! | `GET /v1/tenants/{tenant}/members/{user}` | | [`MemberInfo`] |
//! | `PUT /v1/tenants/{tenant}/members/{user}` | [`PutMember`] | [`MemberInfo`] |
//! | `DELETE /v1/tenants/{tenant}/members/{user}` | | 204 |
//! | `POST /v1/users` | [`CreateUser`] | [`UserInfo`] |
//! | `GET /v1/users` | | [`UserInfo`]s |
//! | `DELETE /v1/tenants/{tenant}?force=BOOL` | | 204 |
//! | `GET /v1/tenants/{tenant}/signing-keys` | | [`SigningKeyInfo`](crate::repository::SigningKeyInfo)s |
//! | `PUT /v1/tenants/{tenant}/signing-keys/{name}` | [`PutSigningKey`](crate::repository::PutSigningKey) | [`SigningKeyInfo`](crate::repository::SigningKeyInfo) |
//! | `DELETE /v1/tenants/{tenant}/signing-keys/{name}` | | 204 |
//! | `PUT /v1/tenants/{tenant}/signature-policy` | [`SetSignaturePolicy`](crate::repository::SetSignaturePolicy) | [`TenantInfo`] |
//! | `GET /v1/users/{user}` | | [`UserInfo`] |
//! | `PATCH /v1/users/{user}` | [`UpdateUser`] | [`UserInfo`] |
//! | `DELETE /v1/users/{user}` | | 204 |
//! | `PUT /v1/users/{user}/password` | [`SetPassword`] | 204 |
//! | `POST /v1/invitations` | [`InviteUser`](crate::invitation::InviteUser) | [`CreatedInvitation`](crate::invitation::CreatedInvitation) |
//! | `POST /v1/invitations/accept` | [`AcceptInvitation`](crate::invitation::AcceptInvitation) | [`AcceptedInvitation`](crate::invitation::AcceptedInvitation), and a cookie if that holds the session |
//! | `GET /v1/audit` | | [`AuditRecord`]s |
//! | `GET /v1/events?app=APP&kind=KINDS&after=ID&follow=BOOL` | | [`Event`](crate::event::Event)s as `text/event-stream` |
//! | `GET /v1/network` | | [`NetworkInfo`] |
//! | `GET /v1/clusters`, `GET /v1/nodes` | | [`ClusterInfo`]s, [`NodeInfo`]s |
//! | `POST /v1/clusters` | [`CreateCluster`] | [`ClusterInfo`] |
//! | `GET /v1/clusters/{cluster}` | | [`ClusterDetail`] |
//! | `GET /v1/nodes/{node}` | | [`NodeDetail`] |
//! | `POST /v1/nodes/{node}/drain`, `POST /v1/nodes/{node}/uncordon` | | [`NodeDetail`] |
//! | `POST /v1/nodes/{node}/restore-device` | [`RestoreDevice`] | [`NodeDetail`] |
//! | `DELETE /v1/nodes/{node}?force=BOOL` | | 204 |
//! | `POST /v1/join-tokens` | [`CreateJoinToken`] | [`CreatedJoinToken`] |
//! | `GET /v1/join-tokens` | | [`JoinTokenInfo`]s |
//! | `DELETE /v1/join-tokens/{token}` | | 204 |
//! | `POST /v1/nodes/enrol` | [`EnrolRequest`] | [`EnrolResponse`] |
//! | `GET /v1/dns-servers?cursor=CURSOR&limit=N` | | [`DnsServerInfo`](crate::fleet::DnsServerInfo)s |
//! | `DELETE /v1/dns-servers/{server}` | | 204 |
//! | `POST /v1/nodes/renew` | [`RenewRequest`] | [`RenewResponse`] |
//! | `GET /v1/apps` | | [`AppSummary`]s |
//! | `POST /v1/apps/{app}/versions` | multipart: `manifest` (TOML), `secrets` and `labels` (JSON objects), `signature` (base64), `signature_payload`, all optional, and `component` | [`DeployResponse`] |
//! | `GET /v1/apps/{app}` | | [`AppDetail`] |
//! | `PUT /v1/apps/{app}/workflow?dry_run=BOOL` | a workflow as YAML or JSON | [`WorkflowDetail`] |
//! | `GET /v1/apps/{app}/workflow` | | [`WorkflowDetail`] |
//! | `POST /v1/plan` | [`PlanRequest`](crate::preview::PlanRequest) | [`PlanPreview`](crate::preview::PlanPreview) |
//! | `GET /v1/sets/{set}` | | [`AppliedSet`](crate::applied::AppliedSet) |
//! | `PUT /v1/sets/{set}` | [`Item`](crate::applied::Item)s | [`AppliedSet`](crate::applied::AppliedSet) |
//! | `POST /v1/apps/{app}/rollback` | [`RollbackRequest`] | [`AppDetail`] |
//! | `DELETE /v1/apps/{app}`, `DELETE /v1/apps/{app}/versions/{version}` | | 204 |
//! | `GET /v1/apps/{app}/labels?version=N`, `PUT /v1/apps/{app}/labels?version=N` | [`Labels`] | [`Labels`] |
//! | `GET /v1/catalogue` | | [`CatalogueEntry`](crate::repository::CatalogueEntry)s |
//! | `POST /v1/catalogue/{name}/deploy` | [`DeployCatalogue`](crate::repository::DeployCatalogue) | [`DeployResponse`] |
//! | `GET /v1/apps/{app}/policy`, `PUT /v1/apps/{app}/policy` | [`Policy`](crate::policy::Policy) | [`PolicyInfo`](crate::policy::api::PolicyInfo) |
//! | `DELETE /v1/apps/{app}/policy` | | 204 |
//! | `POST /v1/apps/{app}/keys` | [`CreateKey`](crate::policy::api::CreateKey) | [`CreatedKey`](crate::policy::api::CreatedKey) |
//! | `GET /v1/apps/{app}/keys` | | [`KeyInfo`](crate::policy::api::KeyInfo)s |
//! | `DELETE /v1/apps/{app}/keys/{key}` | | 204 |
//! | `GET /v1/apps/{app}/traffic`, `PUT /v1/apps/{app}/traffic` | [`Traffic`] | [`TrafficInfo`](crate::policy::api::TrafficInfo) |
//! | `GET /v1/apps/{app}/dns`, `PUT /v1/apps/{app}/dns` | [`PutAppDns`](crate::app::PutAppDns) | [`AppDns`](crate::app::AppDns) |
//! | `PATCH /v1/apps/{app}/env` | [`ChangeEnv`](crate::app::ChangeEnv) | [`DeployResponse`] |
//! | `GET /v1/apps/{app}/objective`, `PUT /v1/apps/{app}/objective` | [`Objective`](crate::rollout::Objective) | [`ObjectiveInfo`](crate::rollout::ObjectiveInfo) |
//! | `DELETE /v1/apps/{app}/objective` | | 204 |
//! | `GET /v1/apps/{app}/domains` | | [`DomainInfo`](crate::domain::DomainInfo)s |
//! | `POST /v1/apps/{app}/domains` | [`AddDomain`](crate::domain::AddDomain) | [`DomainInfo`](crate::domain::DomainInfo) |
//! | `POST /v1/apps/{app}/domains/{host}/verify` | | [`DomainInfo`](crate::domain::DomainInfo) |
//! | `DELETE /v1/apps/{app}/domains/{host}` | | 204 |
//! | `GET /v1/apps/{app}/secrets` | | [`SecretInfo`](crate::app::SecretInfo)s |
//! | `PUT /v1/apps/{app}/secrets/{secret}` | [`SetSecret`](crate::app::SetSecret) | [`SecretInfo`](crate::app::SecretInfo) |
//! | `DELETE /v1/apps/{app}/secrets/{secret}` | | 204 |
//! | `GET /v1/apps/{app}/explain?client=ADDR` | | [`Explanation`] |
//! | `GET /v1/apps/{app}/bindings?cursor=CURSOR&limit=N` | | [`BindingDetail`](crate::observe::BindingDetail)s |
//! | `POST /v1/apps/{app}/try` | [`TryRequest`](crate::observe::TryRequest) | [`TryAnswer`](crate::observe::TryAnswer) |
//! | `GET /v1/apps/{app}/runs?request=ID&cursor=CURSOR&limit=N` | | [`RunInfo`](crate::runs::RunInfo)s, newest first |
//! | `GET /v1/apps/{app}/runs/{run}` | | [`RunInfo`](crate::runs::RunInfo) |
//! | `GET /v1/metrics?window=WINDOW&by=WHAT&app=APP&after=TIME&limit=N` | | [`Figures`](crate::figures::Figures) |
//! | `GET /v1/traffic?app=APP` | | [`TrafficMap`](crate::observe::TrafficMap) |
//! | `GET /v1/latencies?cursor=CURSOR&limit=N` | | [`LatencyRow`](crate::observe::LatencyRow)s |
//! | `GET /v1/dns/lookup?name=HOST&client=ADDR&type=KIND` | | [`DnsLookup`](crate::observe::DnsLookup) |
//! | `GET /v1/dns/txt?cursor=CURSOR&limit=N` | | [`TxtInfo`](crate::txt::TxtInfo)s, by name |
//! | `PUT /v1/dns/txt/{name}`, `POST /v1/dns/txt/{name}` | [`SetTxt`](crate::txt::SetTxt), [`AddTxt`](crate::txt::AddTxt) | [`TxtInfo`](crate::txt::TxtInfo) |
//! | `DELETE /v1/dns/txt/{name}?value=VALUE` | | 204 |
//! | `GET /v1/apps/{app}/calls?since=MS&until=MS&status=S&limit=N&…` | | [`CallList`](crate::usage::CallList) |
//! | `GET /v1/apps/{app}/calls/trace?request=ID&client=ADDR` | | [`CallTrace`](crate::trace::CallTrace) |
//! | `GET /v1/apps/{app}/logs?follow=BOOL&tail=N` | | [`LogLine`]s, one JSON object a line (`application/x-ndjson`) |
//! | `POST /v1/apps/{app}/jobs?priority=P&max_age=T&deadline=T&webhook=URL&target=PATH` | any bytes | 202, [`JobReceipt`](crate::job::JobReceipt) |
//! | `GET /v1/jobs?state=STATE&cursor=ID&limit=N`, `GET /v1/apps/{app}/jobs?…` | | a page of [`JobInfo`](crate::job::JobInfo)s, newest first |
//! | `POST /v1/apps/{app}/jobs/redrive` | | [`Redriven`](crate::job::Redriven) |
//! | `GET /v1/jobs/{job}`, `DELETE /v1/jobs/{job}` | | [`JobInfo`](crate::job::JobInfo) |
//! | `POST /v1/jobs/{job}/redrive` | | [`JobInfo`](crate::job::JobInfo) |
//! | `GET /v1/jobs/{job}/result` | | the bytes of the answer |
//! | `GET /v1/jobs/{job}/logs?tail=N` | | [`LogLine`]s, one JSON object a line |
//! | `GET /v1/schedules?cursor=CURSOR&limit=N`, `GET /v1/apps/{app}/schedules?…` | | [`ScheduleInfo`](crate::job::ScheduleInfo)s |
//! | `PUT /v1/apps/{app}/schedules/{name}` | [`PutSchedule`](crate::job::PutSchedule) | [`ScheduleInfo`](crate::job::ScheduleInfo) |
//! | `DELETE /v1/apps/{app}/schedules/{name}` | | 204 |
//! | `GET /v1/billing/statements?cursor=CURSOR&limit=N` | | [`StatementSummary`](crate::billing::StatementSummary)s |
//! | `GET /v1/billing/statements/{month}?cursor=CURSOR&limit=N` | | [`Statement`](crate::billing::Statement) with a page of its lines |
//! | `GET /v1/billing/statements/{month}/csv` | | `text/csv` |
//! | `GET /v1/billing/usage?month=MONTH&by=VIEW` | | [`UsageView`](crate::billing::UsageView) |
//! | `GET /v1/billing/prices` | | [`PriceList`](crate::billing::PriceList)s |
//! | `POST /v1/billing/prices` | [`PriceList`](crate::billing::PriceList) | the price list as stored |
//! | `DELETE /v1/billing/prices/{name}` | | 204 |
//! | `GET /v1/billing/budgets` | | [`Budget`](crate::billing::Budget)s |
//! | `PUT /v1/billing/budgets/{name}` | [`SetBudget`](crate::billing::SetBudget) | [`BudgetSet`](crate::billing::BudgetSet) |
//! | `DELETE /v1/billing/budgets/{name}` | | 204 |
//! | `GET /v1/billing/alerts?cursor=CURSOR&limit=N` | | [`BudgetAlert`](crate::billing::BudgetAlert)s |
//!
//! On the edge listener, by the certificate of a machine:
//!
//! | route | request | answer |
//! | --- | --- | --- |
//! | `GET /edge/v1/feed?since=REVISION&schema=N` | | [`Frame`](crate::feed::Frame)s, without an end |
//! | `POST /edge/v1/report` | [`Report`](crate::feed::Report) | 204 |
//! | `GET /edge/v1/artifacts/{digest}` | | bytes, with `Range` |
//! | `GET /edge/v1/compiled/{digest}/{engine}` | | machine code behind its [head](crate::compiled::CompiledHead) |
//! | `POST /edge/v1/usage/sums` | [`UsageSums`](crate::usage::UsageSums) | [`UsageReceipt`](crate::usage::UsageReceipt) |
//! | `POST /edge/v1/usage/records` | [`UsageBatch`](crate::usage::UsageBatch), from nodes of an earlier release | the same |
//! | `POST /edge/v1/lease` | [`LeaseRequest`] | [`LeaseResponse`] |
//! | `POST /edge/v1/renew` | [`RenewRequest`] | [`RenewResponse`] |
//!
//! An agent's admin listener answers `GET /logs/{app}?follow=BOOL&tail=N` and `GET /calls/{app}?…` the same way, besides `/healthz`, `/readyz`, `/metrics`.

pub mod edns;
mod explain;
pub mod header;
mod log;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::account::WhoAmI;
use crate::digest::Digest;
use crate::fleet::{FleetDesired, NodeState};
use crate::form::{FormChoices, FormSpec};
use crate::geo::GeoPoint;
use crate::id::{
    AppName, ClusterId, FormName, FunctionName, HostName, NodeId, RegionName, StageName, TenantId,
    VersionNumber,
};
use crate::label::Labels;
use crate::manifest::Manifest;
use crate::message::{AppDesired, AppObserved, BindingsDesired, NetworkDesired, TxtDesired};
use crate::policy::Traffic;
use crate::policy::quota::AppQuotaUsage;
use crate::prefix::ClientPrefix;
use crate::resources::Resources;
use crate::rollout::{RolloutInfo, VersionRejection};
use crate::unit::{Millis, Revision, Timestamp};
use crate::workflow::{Definition, Workflow};

pub use explain::{Candidate, Explanation, StagePlace, StoredPlan};
pub use log::{LogLine, LogStream};

/// A request to log in with a password.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LoginRequest {
    /// The user's name.
    pub user: String,
    /// The password.
    pub password: String,
}

/// A session that was begun by a login.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct LoginResponse {
    /// The session's token, to be sent as `Authorization: Bearer TOKEN`.
    pub token: String,
    /// When the session expires.
    pub expires_at: Timestamp,
}

/// The ways to log in, and the present session. Needs no credentials, and contains no secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoginInfo {
    /// Whether an identity provider is configured; browsers can then log in at `/v1/oidc/login`.
    pub oidc: bool,
    /// The session of the cookie or token that was sent; absent without a valid one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<WhoAmI>,
}

/// Basic facts about the network, for its clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NetworkInfo {
    /// The controller's version.
    pub version: String,
    /// The DNS zone below which apps get their host names.
    #[schema(value_type = String)]
    pub zone: HostName,
    /// The address of the Smart DNS, if it is not served at the public address; otherwise null.
    #[schema(value_type = Option<String>)]
    pub dns: Option<SocketAddr>,
    /// The TCP port on which gateways serve calls.
    pub gateway_port: u16,
    /// The largest component that can be uploaded, in bytes.
    pub upload_limit: u64,
}

/// The state of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClusterInfo {
    /// The cluster's name.
    pub cluster: ClusterId,
    /// The region that the cluster belongs to.
    pub region: RegionName,
    /// The cluster's position.
    pub location: GeoPoint,
    /// The number of its nodes that are alive: they have reported within the last 10 s.
    pub nodes_alive: u32,
    /// The number of all its nodes.
    pub nodes_total: u32,
    /// The speed of its fastest living node relative to the reference machine (1.0); 0 if no node is alive.
    pub speed: f64,
    /// The resources of its living nodes together.
    pub capacity: Resources,
    /// The free part of `capacity`.
    pub free: Resources,
    /// The number of calls that its living nodes can run at the same time.
    pub slots: u32,
    /// The number of calls that its living nodes are running.
    pub busy: u32,
    /// The addresses of its gateways, as `IP:PORT`.
    #[schema(value_type = Vec<String>)]
    pub gateways: Vec<SocketAddr>,
}

/// The state of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeInfo {
    /// The node's name.
    pub node: NodeId,
    /// The cluster that the node belongs to.
    pub cluster: ClusterId,
    /// The address of the node's gateway, as `IP:PORT`.
    #[schema(value_type = String)]
    pub gateway: SocketAddr,
    /// The address on which the node serves health checks and metrics, as `IP:PORT`.
    #[schema(value_type = String)]
    pub admin: SocketAddr,
    /// The version of the node's agent; empty before its first report.
    pub version: String,
    /// Whether the node is alive: it has reported within the last 10 s.
    pub alive: bool,
    /// The node's state.
    pub state: NodeState,
    /// Whether the node was ordered to accept no new work; `state` says how far that is.
    pub cordoned: bool,
    /// When the node last reported; before its first report, when it joined.
    pub seen_at: Timestamp,
    /// The node's resources.
    pub capacity: Resources,
    /// The free part of `capacity`.
    pub free: Resources,
    /// The number of calls that the node can run at the same time.
    pub slots: u32,
    /// The number of calls that the node is running.
    pub busy: u32,
    /// The state of each app on the node.
    pub apps: Vec<AppObserved>,
}

/// One step of the validation of an upload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ValidationStep {
    /// The step: `size`, `format`, `exports`, `imports`, `compile`, `probe` or `signature`.
    pub step: String,
    /// The finding, as text.
    pub result: String,
    /// How long the step took.
    pub took: Millis,
}

/// The result of a deploy: an accepted version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DeployResponse {
    /// The app's name.
    pub app: AppName,
    /// The number of the version.
    pub version: VersionNumber,
    /// The SHA-256 digest of the component or image.
    pub digest: Digest,
    /// The size of the component or image, in bytes.
    pub size: u64,
    /// The host name under which the app is called.
    pub host: HostName,
    /// The revision of desired state at which the version is current.
    pub revision: Revision,
    /// Whether the current version already had the same component, manifest and secrets; then nothing was changed.
    pub unchanged: bool,
    /// The steps of the validation, in order.
    pub validation: Vec<ValidationStep>,
}

/// An app in a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AppSummary {
    /// The app's name.
    pub app: AppName,
    /// The tenant that owns the app.
    pub tenant: TenantId,
    /// The host name under which the app is called.
    pub host: HostName,
    /// The current version.
    pub version: VersionNumber,
    /// The digest of the current version's component or image.
    pub digest: Digest,
    /// The revision of the app's desired state.
    pub revision: Revision,
    /// When the current version became current.
    pub deployed_at: Timestamp,
    /// The number of living nodes that serve the current revision, in the clusters that hold the app.
    pub nodes_ready: u32,
    /// The number of living nodes in the clusters that hold the app: all that should serve it.
    pub nodes_total: u32,
    /// The labels of the function, and those of its current version, which take precedence.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// The functions of a workflow's stages, in the order of the stages; absent for a plain function.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<FunctionName>,
}

/// One version of an app. It never changes, except for its labels and its mark as bad.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VersionInfo {
    /// The number of the version.
    pub version: VersionNumber,
    /// The digest of its component or image.
    pub digest: Digest,
    /// The size of its component or image, in bytes.
    pub size: u64,
    /// When the version was uploaded.
    pub created_at: Timestamp,
    /// The version's manifest.
    pub manifest: Manifest,
    /// Why the version must not be used: it broke the app's objective. Absent if it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bad: Option<VersionRejection>,
    /// The version's labels.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// The steps of the validation at its upload; absent for versions that are older than this record.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub validation: Vec<ValidationStep>,
    /// The version's forms besides the first, which `manifest` describes; absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forms: Vec<FormSpec>,
}

/// A binding: the cluster to which DNS sends clients of a prefix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BindingInfo {
    /// The clients' address prefix.
    pub prefix: ClientPrefix,
    /// The cluster to which they are sent.
    pub cluster: ClusterId,
    /// The revision at which they were first sent there.
    pub revision: Revision,
}

/// All details of an app.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AppDetail {
    /// The app as in the list.
    #[serde(flatten)]
    pub summary: AppSummary,
    /// The app's stages and the data flow between them; a plain function has one stage.
    pub workflow: Workflow,
    /// All versions, newest first.
    pub versions: Vec<VersionInfo>,
    /// The split of the app's calls between versions; absent if all calls go to the current version.
    #[serde(default, skip_serializing_if = "Traffic::is_empty")]
    pub traffic: Traffic,
    /// The newest version that is or was watched for the app's objective; absent if none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutInfo>,
    /// The host names that the app serves besides its own.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub domains: BTreeSet<HostName>,
    /// The bindings of client prefixes to clusters.
    pub bindings: Vec<BindingInfo>,
    /// The progress of each living node of the clusters that hold the app.
    pub nodes: Vec<NodeProgress>,
    /// By cluster and stage: the form in which the stage is served there. Only for functions that have several forms.
    #[serde(default, skip_serializing_if = "FormChoices::is_empty")]
    #[schema(value_type = BTreeMap<ClusterId, BTreeMap<StageName, FormName>>)]
    pub forms: FormChoices,
}

/// The progress of a node in serving an app.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeProgress {
    /// The node's name.
    pub node: NodeId,
    /// The node's cluster.
    pub cluster: ClusterId,
    /// What the node reports about the app; null if nothing yet.
    pub observed: Option<AppObserved>,
}

/// A request to make an earlier version current again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RollbackRequest {
    /// The version to make current; absent for the one that was current before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<VersionNumber>,
}

/// A deployed workflow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WorkflowDetail {
    /// The app's name.
    pub app: AppName,
    /// The host name under which the app is called.
    pub host: HostName,
    /// The version of the workflow.
    pub version: VersionNumber,
    /// The revision of desired state at which it became current; null if it was only checked (`dry_run`).
    pub revision: Option<Revision>,
    /// Whether the same workflow was already the current version; then nothing was changed.
    pub unchanged: bool,
    /// The workflow's stages and rules.
    pub definition: Definition,
    /// By cluster to which clients are sent: where the stages run for calls that arrive there, in the order of the stages.
    pub placement: BTreeMap<ClusterId, Vec<StagePlace>>,
}

/// The desired state of all apps, for a node that may have missed messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppsSnapshot {
    /// The snapshot is complete up to this revision; an app that a node holds at an older revision and that is not listed has been deleted.
    pub revision: Revision,
    /// The apps that exist.
    pub apps: Vec<AppDesired>,
    /// The desired state of the machines; `None` from a controller that does not manage them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetDesired>,
    /// The calls counted so far, over all nodes, for apps with a quota.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub used: Vec<AppQuotaUsage>,
}

/// The complete state from which a DNS server answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DnsSnapshot {
    /// The snapshot is complete up to this revision.
    pub revision: Revision,
    /// The clusters and the latency map.
    pub network: NetworkDesired,
    /// The bindings of the apps that exist.
    pub apps: Vec<BindingsDesired>,
    /// The text records; `None` from a controller that does not manage them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub txt: Option<Vec<TxtDesired>>,
}

/// The header that a browser's request must have to change anything: it proves that the request comes from the console's own page (CSRF
/// protection).
pub const CSRF_HEADER: &str = "x-fdn-csrf";
