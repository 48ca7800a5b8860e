//! The messages between the processes of the network.
//!
//! Between controllers a message travels through the broker, in an [`Envelope`] with an id (by which duplicates are recognised) and a
//! schema number. Desired state carries a [`Revision`]: a receiver acts only on a revision newer than the one it holds, so messages may
//! be lost, duplicated or reordered. Machines at the edge receive desired state and send reports over their own connections
//! ([`crate::feed`]).
//!
//! | message | from | to | lost? |
//! | --- | --- | --- | --- |
//! | [`AppDesired`], [`FleetDesired`] | controller | every controller, and from there nodes | read from the database |
//! | [`BindingsDesired`], [`BindingsChanged`], [`NetworkDesired`], [`TxtDesired`] | controller | every controller, and from there DNS servers | read from the database |
//! | [`NodeStatus`] | agent | its controller | repeated by the next one |
//! | [`JobTicket`] | controller | one dispatcher | the job is in the database, where dispatchers also look for jobs without a ticket |
//! | [`DemandReport`], [`RttReport`] | DNS, agent | its controller | an estimate, seen again with the next client |
//! | [`RunReport`] | agent | its controller | the history of runs has a gap |

mod holders;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::device::DeviceStatus;
use crate::digest::Digest;
use crate::figures::Tally;
use crate::fleet::FleetDesired;
use crate::form::{FormChoices, FormSpec};
use crate::geo::GeoPoint;
use crate::id::{
    AppName, ClusterId, FormName, FunctionName, HostName, JobId, MessageId, NodeId, RecordName,
    RegionName, SecretName, StageName, TenantTag, VersionNumber,
};
use crate::manifest::Manifest;
use crate::phases::PhaseTimes;
use crate::policy::GatewaySpec;
use crate::prefix::ClientPrefix;
use crate::resources::Resources;
use crate::rollout::VersionObserved;
use crate::runs::RunReport;
use crate::serving::NodeRuntime;
use crate::unit::{ByteSize, DurationMs, Millis, Revision, Timestamp};
use crate::weight::GatewayWeight;
use crate::workflow::{RunSpec, Workflow};
pub use holders::Holders;

/// The schema number that this build writes. A reader refuses larger ones and leaves such messages to a newer process.
pub const SCHEMA: u16 = 1;

/// A message in transit through the broker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Envelope {
    /// The schema number of `message`.
    pub schema: u16,
    /// Unique; consumers recognise duplicates by it.
    pub id: MessageId,
    /// When the message was written.
    pub sent_at: Timestamp,
    /// The message itself.
    pub message: Message,
}

impl Envelope {
    /// Wraps a message in the schema of this build.
    #[must_use]
    pub const fn new(id: MessageId, sent_at: Timestamp, message: Message) -> Self {
        Self {
            schema: SCHEMA,
            id,
            sent_at,
            message,
        }
    }
}

/// A channel of the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Channel {
    /// Changes of desired state, for every controller; each has its own queue.
    Changes,
    /// Tickets for the dispatchers of jobs: one queue, each message to one dispatcher. A full queue refuses further messages.
    Jobs,
}

impl Channel {
    /// The name used for exchanges, queues and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Changes => "changes",
            Self::Jobs => "jobs",
        }
    }

    /// Whether each subscriber gets a copy of every message.
    #[must_use]
    pub const fn is_fan_out(self) -> bool {
        matches!(self, Self::Changes)
    }

    /// Whether a full queue refuses further messages, so that the sender learns of it, instead of dropping the oldest.
    #[must_use]
    pub const fn refuses_when_full(self) -> bool {
        matches!(self, Self::Jobs)
    }
}

/// The content of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Message {
    /// The desired state of an app, for nodes.
    AppDesired(AppDesired),
    /// The desired state of the machines: cordoned nodes, revoked certificates, authorities.
    FleetDesired(FleetDesired),
    /// The desired bindings of an app, for DNS servers.
    BindingsDesired(BindingsDesired),
    /// Changes to the desired bindings of an app, for DNS servers.
    BindingsChanged(BindingsChanged),
    /// The clusters, their gateways and the latency map.
    NetworkDesired(NetworkDesired),
    /// The text records of one name. A DNS server of an older release cannot read it, and keeps its answers.
    TxtDesired(TxtDesired),
    /// The report of a node about its state.
    NodeStatus(Box<NodeStatus>),
    /// The report of a DNS server about the queries it received.
    DemandReport(DemandReport),
    /// The report of a node about round-trip times it measured.
    RttReport(RttReport),
    /// The report of a gateway about runs of workflows that it leads.
    RunReport(RunReport),
    /// A job for the next free dispatcher.
    JobTicket(JobTicket),
}

impl Message {
    /// The channel between controllers; `None` for reports, which machines send over their connections.
    #[must_use]
    pub const fn channel(&self) -> Option<Channel> {
        match self {
            Self::AppDesired(_)
            | Self::FleetDesired(_)
            | Self::BindingsDesired(_)
            | Self::BindingsChanged(_)
            | Self::NetworkDesired(_)
            | Self::TxtDesired(_) => Some(Channel::Changes),
            Self::NodeStatus(_)
            | Self::DemandReport(_)
            | Self::RttReport(_)
            | Self::RunReport(_) => None,
            Self::JobTicket(_) => Some(Channel::Jobs),
        }
    }

    /// The kind of message, for logs and metrics.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::AppDesired(_) => "app_desired",
            Self::FleetDesired(_) => "fleet_desired",
            Self::BindingsDesired(_) => "bindings_desired",
            Self::BindingsChanged(_) => "bindings_changed",
            Self::NetworkDesired(_) => "network_desired",
            Self::TxtDesired(_) => "txt_desired",
            Self::NodeStatus(_) => "node_status",
            Self::DemandReport(_) => "demand_report",
            Self::RttReport(_) => "rtt_report",
            Self::RunReport(_) => "run_report",
            Self::JobTicket(_) => "job_ticket",
        }
    }
}

/// A value encrypted under the network key: AES-256-GCM, as base64 of nonce, ciphertext and tag.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sealed(pub String);

impl std::fmt::Debug for Sealed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sealed(…)")
    }
}

/// A function version with everything that a node needs to run it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FunctionSpec {
    /// The function.
    pub function: FunctionName,
    /// Its version.
    pub version: VersionNumber,
    /// The artifact's digest.
    pub digest: Digest,
    /// The artifact's size in bytes.
    pub size: u64,
    /// The manifest of the first form: runtime, limits, environment.
    pub manifest: Manifest,
    /// The encrypted values of the manifest's secrets.
    #[serde(default)]
    pub secrets: BTreeMap<SecretName, Sealed>,
    /// The other forms, if any; digest and manifest are those of the first. Older agents know only that one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forms: Vec<FormSpec>,
}

/// The desired state of an app that exists.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppSpec {
    /// The host name that its gateways serve.
    pub host: HostName,
    /// The DAG of stages that it runs.
    pub workflow: Workflow,
    /// Every function version that the workflow refers to.
    pub functions: Vec<FunctionSpec>,
    /// The clusters that a plan uses: they load the app ahead of its first call. The other [`AppSpec::holders`] only fetch it, so
    /// that calls can move to them while no controller is available, and load it on the first call.
    pub primary: BTreeSet<ClusterId>,
    /// The clusters of `primary` that no plan uses any more: they keep the app loaded until older DNS answers have expired.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub leaving: BTreeSet<ClusterId>,
    /// The clusters that receive the app; no other gets it, its artifacts or its secrets.
    #[serde(default, skip_serializing_if = "Holders::is_everywhere")]
    pub holders: Holders,
    /// How its stages are run, and where; `None` for a plain function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Box<RunSpec>>,
    /// The configuration of its gateways: policy, callers' keys, traffic split.
    #[serde(default, skip_serializing_if = "GatewaySpec::is_empty")]
    pub gateway: Box<GatewaySpec>,
    /// The forms in which its stages are served, for functions that have several.
    #[serde(default, skip_serializing_if = "FormChoices::is_empty")]
    pub forms: FormChoices,
    /// The tag of its tenant: the apps of one tenant share the tenant's share of a node. `None` from an older controller; the app
    /// then counts as the only one of its tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantTag>,
}

/// The desired state of one app, for nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppDesired {
    /// The app.
    pub app: AppName,
    /// The version of this desired state.
    pub revision: Revision,
    /// The app's state; `None` if the app must not exist.
    pub spec: Option<AppSpec>,
}

/// The DNS answers for an app that exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppBindings {
    /// The host name.
    pub host: HostName,
    /// The time to live of the answers, in seconds.
    pub ttl_s: u32,
    /// By client prefix: the cluster to which its clients are sent.
    pub bindings: Vec<(ClientPrefix, ClusterId)>,
    /// The clusters that serve the app's clients; they are sent to no other.
    #[serde(default, skip_serializing_if = "Holders::is_everywhere")]
    pub holders: Holders,
}

/// The desired bindings of one app, for DNS servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BindingsDesired {
    /// The app.
    pub app: AppName,
    /// The version of this desired state.
    pub revision: Revision,
    /// The bindings; `None` if the name must not exist.
    pub state: Option<AppBindings>,
}

/// Changes of one app's bindings, for DNS servers that hold the state before them. A server that does not has missed a message and
/// requests a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BindingsChanged {
    /// The app.
    pub app: AppName,
    /// The revision to which the changes apply.
    pub base: Revision,
    /// The revision that results.
    pub revision: Revision,
    /// The changed prefixes with their new clusters; `None` removes a prefix. Host and time to live are unchanged.
    pub changes: Vec<(ClientPrefix, Option<ClusterId>)>,
    /// The new set of clusters that serve clients; `None` if it is unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holders: Option<Holders>,
}

/// A cluster, as DNS servers and clients need it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClusterSpec {
    /// The cluster's name.
    pub cluster: ClusterId,
    /// The region that the cluster belongs to.
    pub region: RegionName,
    /// The cluster's position.
    pub location: GeoPoint,
    /// The addresses on which its gateways listen, as `IP:PORT`.
    #[schema(value_type = Vec<String>)]
    pub gateways: Vec<SocketAddr>,
    /// The address of each gateway's health endpoint (`GET /healthz` over HTTP), in the order of `gateways`.
    #[schema(value_type = Vec<String>)]
    pub health: Vec<SocketAddr>,
    /// The relative share of clients of each gateway, in the order of `gateways`; missing entries have the default weight.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<u16>)]
    pub weights: Vec<GatewayWeight>,
}

/// The clusters and the latency map.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NetworkDesired {
    /// The version of this desired state.
    pub revision: Revision,
    /// All clusters, by name.
    pub clusters: Vec<ClusterSpec>,
    /// The locations of client prefixes.
    pub locations: Vec<(ClientPrefix, GeoPoint)>,
    /// Round-trip times measured by gateways, by client prefix and cluster.
    pub measured: Vec<(ClientPrefix, ClusterId, Millis)>,
}

/// The text records of one name that were set through the API, for DNS servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TxtDesired {
    /// The name, which is in the zone.
    pub name: RecordName,
    /// The version of this desired state.
    pub revision: Revision,
    /// The records; `None` if they must not exist.
    pub state: Option<TxtRecords>,
}

/// The text records of a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TxtRecords {
    /// The time to live in seconds, common to all records of the name (RFC 2181, section 5.2).
    pub ttl_s: u32,
    /// The values, one record each.
    pub values: Vec<String>,
    /// When the records expire; DNS servers enforce it even while no controller is available. `None`: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// The progress of a node in serving an app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub enum AppPhase {
    /// The node is fetching the artifact.
    Fetching,
    /// The node is compiling the artifact.
    Compiling,
    /// The node serves calls.
    Ready,
    /// The node cannot serve the app; it tries again after a pause.
    Failed {
        /// Why, in words.
        reason: String,
    },
}

/// The state of an app on a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AppObserved {
    /// The app's name.
    pub app: AppName,
    /// The revision of desired state that the node has or prepares.
    pub revision: Revision,
    /// The node's progress with that revision.
    pub phase: AppPhase,
    /// The number of calls since the agent started.
    pub invocations: u64,
    /// The number of those that ended with a 5xx caused by the function.
    pub errors: u64,
    /// The moving mean of the time that a call spends inside the function; 0 before the first call.
    pub execution_mean: Millis,
    /// The number of its instances; 0 where functions do not run in instances.
    #[serde(default)]
    pub instances: u32,
    /// Why its instances do not start or do not stay, with their last lines of output; absent while all is well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub degraded: Option<String>,
    /// The calls of each version; absent unless calls are split between versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<VersionObserved>,
    /// The measurements of the stages that the node ran; absent for a plain function.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<StageObserved>,
    /// The calls as their callers experienced them, since the agent started; absent from older agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figures: Option<Box<Tally>>,
    /// Whether the node answers calls, by this revision or an earlier one; absent from older agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serves: Option<bool>,
    /// The typical times of its calls in each phase; absent from older agents, or before the first call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phases: Option<PhaseTimes>,
    /// The form in which the node serves it, to which `phases` refers; absent for a function with one form, or a workflow of several
    /// stages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<FormName>,
}

/// The measurements of a stage that a node ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StageObserved {
    /// The stage's name.
    pub stage: StageName,
    /// The number of runs of the stage since the agent started.
    pub runs: u64,
    /// The moving mean of the time that a call spends inside the function.
    pub execution_mean: Millis,
    /// The moving mean of the size of the stage's output.
    pub output_mean: ByteSize,
    /// The typical times of its calls in each phase; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phases: Option<PhaseTimes>,
    /// The form in which the node runs the stage; absent for a function with one form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<FormName>,
}

/// A report of a node about its state. Nodes send one every few seconds; the newest counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeStatus {
    /// The node's name.
    pub node: NodeId,
    /// The cluster that the node belongs to.
    pub cluster: ClusterId,
    /// The region that the node belongs to.
    pub region: RegionName,
    /// The node's position.
    pub location: GeoPoint,
    /// The address at which clients reach the node's gateway, as `IP:PORT`.
    #[schema(value_type = String)]
    pub gateway: SocketAddr,
    /// The address on which the node serves health checks and metrics, as `IP:PORT`.
    #[schema(value_type = String)]
    pub admin: SocketAddr,
    /// An id that changes whenever the agent starts.
    pub boot: MessageId,
    /// The number of the report since the agent started; an older report than the one held is ignored.
    pub sequence: u64,
    /// The version of the agent.
    pub version: String,
    /// The node's speed relative to the reference machine (1.0): `theta(p)`.
    pub speed: f64,
    /// The node's resources.
    pub capacity: Resources,
    /// The free part of `capacity`.
    pub free: Resources,
    /// The number of calls that the node can run at the same time.
    pub slots: u32,
    /// The number of calls that are running.
    pub busy: u32,
    /// The number of calls that wait for a slot, an instance or their app.
    #[serde(default)]
    pub waiting: u32,
    /// The expected work of the calls that run or wait, at speed 1.
    pub queued_work: Millis,
    /// Whether new calls should be sent elsewhere.
    pub draining: bool,
    /// By stage of the scheduler: the number of scaling tasks that arrived at this node and ended there; absent if the node schedules no
    /// instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stages: Option<StageCounts>,
    /// The state of each app on the node.
    pub apps: Vec<AppObserved>,
    /// The node's GPU devices, with their allocated slices.
    #[serde(default)]
    pub devices: Vec<DeviceStatus>,
    /// The address at which gateways of other clusters call stages of workflows, as `IP:PORT`; absent if the node accepts no such calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub stage_calls: Option<SocketAddr>,
    /// The port, at the host of `admin`, on which controllers query the node and send it calls; absent from older agents, which they cannot
    /// query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller_port: Option<u16>,
    /// The share of its cluster's clients that the gateway should get, in hundredths of the default share, from 1 to 1000; absent for 100.
    #[serde(default, skip_serializing_if = "GatewayWeight::is_usual")]
    #[schema(value_type = u16)]
    pub weight: GatewayWeight,
    /// The runtimes in which the node runs functions; absent from older agents, which may have any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtimes: Option<BTreeSet<NodeRuntime>>,
}

/// The number of scaling tasks (requests for an instance) by the stage at which they ended, since the agent started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StageCounts {
    /// Placed on the node at which they arrived.
    pub local: u64,
    /// Placed on one of the other nodes that were probed.
    pub probe: u64,
    /// Placed by the global stage, at the head of the cluster.
    pub global: u64,
    /// Refused, with a reason.
    pub refused: u64,
}

impl StageCounts {
    /// The sum, stage by stage.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            local: self.local.saturating_add(other.local),
            probe: self.probe.saturating_add(other.probe),
            global: self.global.saturating_add(other.global),
            refused: self.refused.saturating_add(other.refused),
        }
    }
}

/// The queries that a DNS server received.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DemandReport {
    /// The name of the DNS server.
    pub server: String,
    /// App, client prefix ([`ClientPrefix::to_demand`]), and number of queries since the last report.
    pub entries: Vec<(AppName, ClientPrefix, u64)>,
}

/// Round-trip times that a node's gateway measured on its clients' connections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RttReport {
    /// The cluster from which they were measured.
    pub cluster: ClusterId,
    /// The node.
    pub node: NodeId,
    /// Client prefix ([`ClientPrefix::to_demand`]), smallest smoothed round trip, and number of connections.
    pub samples: Vec<(ClientPrefix, Millis, u32)>,
    /// Round trips to one node each of other clusters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<(ClusterId, Millis)>,
}

/// A submitted job that needs a dispatcher. The receiver reads the job itself from the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobTicket {
    /// The job.
    pub job: JobId,
}

/// How long a node's status is taken for its present state.
pub const STATUS_LIFETIME: DurationMs = DurationMs::from_secs(10);

#[cfg(test)]
mod tests;
