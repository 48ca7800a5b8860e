//! Bodies of the controller's HTTP API, shared by controller, CLI, agents and DNS, and documented by OpenAPI.
//!
//! Paths under `/v1/` are for people and their tools (session token in `Authorization: Bearer`). A machine that joins brings its join token in
//! the body, one that renews its certificate a signature; what else machines ask, they ask under `/edge/v1/` on a listener of their own. Errors
//! are [`crate::Problem`]s.
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
//! | `POST /v1/billing/prices` | [`PriceList`](crate::billing::PriceList) | the same as it is kept |
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
//! | `POST /edge/v1/usage/records` | [`UsageBatch`](crate::usage::UsageBatch), from nodes of before | the same |
//! | `POST /edge/v1/lease` | [`LeaseRequest`] | [`LeaseResponse`] |
//! | `POST /edge/v1/renew` | [`RenewRequest`] | [`RenewResponse`] |
//!
//! An agent's admin listener answers `GET /logs/{app}?follow=BOOL&tail=N` and `GET /calls/{app}?…` the same way, besides `/healthz`, `/readyz`, `/metrics`.

pub mod edns;
pub mod header;
mod log;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::account::WhoAmI;
use crate::digest::Digest;
use crate::fleet::{FleetDesired, NodeState};
use crate::form::{FormChoices, FormSpec, FormTerms};
use crate::geo::GeoPoint;
use crate::id::{
    AppName, ClusterId, FormName, FunctionName, HostName, NodeId, RegionName, StageName, TenantId,
    VersionNumber,
};
use crate::label::Labels;
use crate::latency::LatencyEstimate;
use crate::manifest::Manifest;
use crate::message::{AppDesired, AppObserved, BindingsDesired, NetworkDesired, TxtDesired};
use crate::policy::Traffic;
use crate::policy::quota::AppUsed;
use crate::predicted::StageCompared;
use crate::prefix::ClientPrefix;
use crate::resources::Resources;
use crate::rollout::{BadMark, RolloutInfo};
use crate::unit::{Millis, Revision, Timestamp};
use crate::workflow::{Definition, Workflow};

pub use log::{LogLine, LogStream};

/// Credentials.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LoginRequest {
    /// The user's name.
    pub user: String,
    /// The password.
    pub password: String,
}

/// A session.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct LoginResponse {
    /// Sent from now on as `Authorization: Bearer TOKEN`.
    pub token: String,
    /// When it ends.
    pub expires_at: Timestamp,
}

/// How one can log in, and who has. What a page shows to somebody whom it does not know yet; nothing of it is secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoginInfo {
    /// Whether an identity provider is set up: then browsers may go to `/v1/oidc/login`.
    pub oidc: bool,
    /// Who is logged in already with the cookie or token that was sent; nobody, if it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<WhoAmI>,
}

/// What a client must know of the network to use it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NetworkInfo {
    /// The controller's version.
    pub version: String,
    /// The zone under which apps get their host names.
    #[schema(value_type = String)]
    pub zone: HostName,
    /// Where the Smart DNS listens, if it is not the public one.
    #[schema(value_type = Option<String>)]
    pub dns: Option<SocketAddr>,
    /// The port of the gateways.
    pub gateway_port: u16,
    /// The largest component that can be uploaded, in bytes.
    pub upload_limit: u64,
}

/// How a cluster is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClusterInfo {
    /// The cluster.
    pub cluster: ClusterId,
    /// Its region.
    pub region: RegionName,
    /// Where it is.
    pub location: GeoPoint,
    /// Nodes that told how they are within the last seconds.
    pub nodes_alive: u32,
    /// All its nodes.
    pub nodes_total: u32,
    /// Speed of its fastest node relative to the reference machine.
    pub speed: f64,
    /// What its living nodes have.
    pub capacity: Resources,
    /// What is free of it.
    pub free: Resources,
    /// Calls that its living nodes can run at once.
    pub slots: u32,
    /// Calls that run now.
    pub busy: u32,
    /// Its gateways.
    #[schema(value_type = Vec<String>)]
    pub gateways: Vec<SocketAddr>,
}

/// How a node is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeInfo {
    /// The node.
    pub node: NodeId,
    /// Its cluster.
    pub cluster: ClusterId,
    /// Its gateway.
    #[schema(value_type = String)]
    pub gateway: SocketAddr,
    /// Where it serves health and metrics.
    #[schema(value_type = String)]
    pub admin: SocketAddr,
    /// The agent's version.
    pub version: String,
    /// Whether it told how it is within the last seconds.
    pub alive: bool,
    /// How it is, in one word.
    pub state: NodeState,
    /// Whether it is to take no new work; `state` tells how far that is.
    pub cordoned: bool,
    /// When it last did.
    pub seen_at: Timestamp,
    /// What it has.
    pub capacity: Resources,
    /// What is free of it.
    pub free: Resources,
    /// Calls that can run at once.
    pub slots: u32,
    /// Calls that run now.
    pub busy: u32,
    /// Its apps.
    pub apps: Vec<AppObserved>,
}

/// One step of the validation of an upload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ValidationStep {
    /// What was checked: `size`, `format`, `exports`, `imports`, `compile`, `probe`, `signature`.
    pub step: String,
    /// What was found.
    pub result: String,
    /// How long it took.
    pub took: Millis,
}

/// A version that was accepted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DeployResponse {
    /// The app.
    pub app: AppName,
    /// The version's number.
    pub version: VersionNumber,
    /// The component's digest.
    pub digest: Digest,
    /// Its size in bytes.
    pub size: u64,
    /// The app's host name.
    pub host: HostName,
    /// The revision of desired state that makes it current.
    pub revision: Revision,
    /// Whether this version existed before with the same component, manifest and secrets: nothing was changed.
    pub unchanged: bool,
    /// What was checked.
    pub validation: Vec<ValidationStep>,
}

/// A line of the app list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AppSummary {
    /// The app.
    pub app: AppName,
    /// The tenant whose it is.
    pub tenant: TenantId,
    /// Its host name.
    pub host: HostName,
    /// The current version.
    pub version: VersionNumber,
    /// The current component's digest.
    pub digest: Digest,
    /// The revision of desired state.
    pub revision: Revision,
    /// When the current version was made current.
    pub deployed_at: Timestamp,
    /// Living nodes that serve the current revision.
    pub nodes_ready: u32,
    /// Living nodes.
    pub nodes_total: u32,
    /// Labels of the function and of its current version; where both have a key, the version's.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// Of a workflow, what each of its stages runs, in the order of the stages; absent for a plain function.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<FunctionName>,
}

/// One immutable version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VersionInfo {
    /// Its number.
    pub version: VersionNumber,
    /// The component's digest.
    pub digest: Digest,
    /// Its size in bytes.
    pub size: u64,
    /// When it was uploaded.
    pub created_at: Timestamp,
    /// Its manifest.
    pub manifest: Manifest,
    /// Why it must not be used, if it broke the app's objective.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bad: Option<BadMark>,
    /// Its labels, which can be changed.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// What was checked when it was uploaded; nothing of versions that are older than this record.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub validation: Vec<ValidationStep>,
    /// Its other forms, if it has any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forms: Vec<FormSpec>,
}

/// Where the clients of a group are sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BindingInfo {
    /// The clients.
    pub prefix: ClientPrefix,
    /// The cluster.
    pub cluster: ClusterId,
    /// The plan's revision.
    pub revision: Revision,
}

/// Everything about an app.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AppDetail {
    /// The line of the list.
    #[serde(flatten)]
    pub summary: AppSummary,
    /// The DAG.
    pub workflow: Workflow,
    /// All versions, newest first.
    pub versions: Vec<VersionInfo>,
    /// Which versions calls are split between; all go to the current one if it is empty.
    #[serde(default, skip_serializing_if = "Traffic::is_empty")]
    pub traffic: Traffic,
    /// The newest version that was or is held to the app's objective.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutInfo>,
    /// Host names it answers to beside its own.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub domains: BTreeSet<HostName>,
    /// Where known client prefixes are sent.
    pub bindings: Vec<BindingInfo>,
    /// How far each living node is.
    pub nodes: Vec<NodeProgress>,
    /// The forms that clusters serve its stages in, of functions that have several.
    #[serde(default, skip_serializing_if = "FormChoices::is_empty")]
    #[schema(value_type = BTreeMap<ClusterId, BTreeMap<StageName, FormName>>)]
    pub forms: FormChoices,
}

/// How far one node is with the app.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeProgress {
    /// The node.
    pub node: NodeId,
    /// Its cluster.
    pub cluster: ClusterId,
    /// What it knows of the app; nothing yet if absent.
    pub observed: Option<AppObserved>,
}

/// Which version to go back to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RollbackRequest {
    /// The version; the one before the current if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<VersionNumber>,
}

/// Why a client's calls go where they go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Explanation {
    /// The app.
    pub app: AppName,
    /// The client asked about.
    pub client: ClientPrefix,
    /// The cluster that the plan chooses now.
    pub chosen: Option<ClusterId>,
    /// Why there is none, or why the chosen one is kept although another would be a little better.
    pub reason: String,
    /// The binding that DNS has been given for the client, if any; without one DNS answers with the nearest cluster.
    pub bound: Option<BindingInfo>,
    /// Every cluster, best first.
    pub candidates: Vec<Candidate>,
    /// Where each stage of a workflow would run, in the order of the stages; empty for a plain function.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<StagePlace>,
    /// The plan by which the client is sent now, as it was made and explained then; nothing, if there is none for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<StoredPlan>,
    /// What the plan counts with where the client is sent, beside what calls took; empty while nothing was measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actual: Vec<StageCompared>,
    /// What each form comes to in each cluster, of functions that have several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forms: Vec<FormTerms>,
}

/// A plan that is in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StoredPlan {
    /// The group of clients that it was made for.
    pub group: String,
    /// The revision that brought it.
    pub revision: Revision,
    /// When it was made.
    pub planned_at: Timestamp,
    /// Why it was made so.
    pub reason: String,
    /// Every cluster as it was then, best first.
    pub candidates: Vec<Candidate>,
    /// Where each stage runs.
    pub stages: BTreeMap<StageName, ClusterId>,
}

/// Where a stage runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StagePlace {
    /// The stage.
    pub stage: StageName,
    /// The function it runs.
    pub function: FunctionName,
    /// The function's version.
    pub version: VersionNumber,
    /// The cluster.
    pub cluster: ClusterId,
}

/// A workflow as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WorkflowDetail {
    /// The app.
    pub app: AppName,
    /// The app's host name.
    pub host: HostName,
    /// The workflow's version.
    pub version: VersionNumber,
    /// The revision of desired state that made it current; nothing if it was only judged.
    pub revision: Option<Revision>,
    /// Whether this was the current version before: nothing was changed.
    pub unchanged: bool,
    /// What it is.
    pub definition: Definition,
    /// Where its stages run for each cluster that clients are sent to.
    pub placement: BTreeMap<ClusterId, Vec<StagePlace>>,
}

/// One cluster's terms for the entry stage: `EFT = max(avail, d) + w`, latency = EFT + d (algorithm Heu-Orche, equations 3 to 5).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Candidate {
    /// The cluster.
    pub cluster: ClusterId,
    /// The client's distance; one way, `d`, is half the round trip.
    pub latency: LatencyEstimate,
    /// `d(u,p)`: one way.
    pub distance: Millis,
    /// `avail[p]`: until a slot is free.
    pub available: Millis,
    /// `EST`: earliest start.
    pub start: Millis,
    /// `w(c,p)`: the work at this cluster's speed.
    pub work: Millis,
    /// How much longer all others would wait there, for each of the client's calls: the choice goes by it too.
    #[serde(default)]
    pub toll: Millis,
    /// `EFT`: earliest finish.
    pub finish: Millis,
    /// The whole call as the client feels it, way back included.
    pub total: Millis,
    /// `None`: the cluster may be chosen. Otherwise why not.
    pub excluded: Option<String>,
    /// Why it lost against the chosen one, or that it won.
    pub verdict: String,
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
    pub used: Vec<AppUsed>,
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
