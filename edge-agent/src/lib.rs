//! The edge agent: gateway, function instances, artifact cache, logs and measurements of one node.
//!
//! One [`Agent`] is one node. The way of a call and the way of a deployment meet in the route table:
//!
//! ```text
//! broker ─┐                                                        ┌─ invocations ─ fdn_runtime, fdn_instances
//!         ├─ sync ─ apps (reducer + shell) ─ artifacts ─ routes ─ gateway ─ client
//! HTTP ───┘                  │                              │
//!                          state on disk             logs, status, rtt, metrics
//! ```
//!
//! - [`apps`] holds the desired state of every app: a pure state machine decides, a shell fetches, compiles and publishes.
//! - [`artifacts`] fetches each component once, checks it, compiles it once and keeps both within a bound on disk.
//! - [`invocations`] lets calls in, lines up those that wait, and keeps as many instances as the load wants.
//! - [`peers`] starts instances on the other nodes of the cluster, and calls them there.
//! - [`gateway`] answers clients over HTTP/1.1 and HTTP/2 without TLS, and knows nothing of how an app came to be.
//! - [`policy`] lets calls in or refuses them as their app's owner wants: credentials, rates, quotas, origins, addresses.
//! - [`usage`] writes a record of each call to disk before its answer is whole, and hands it to the controller.
//! - [`traces`] exports spans of calls to an OpenTelemetry collector, if one is set.
//! - [`logs`] keeps the last lines of each app and hands them to followers.
//! - [`status`] and [`rtt`] tell the controller how the node is and how far its clients are.
//! - [`join`] makes a machine a node and keeps its certificate valid; [`fleet`] holds what operators said of nodes: drained, removed.
//!
//! With controller and broker away, everything that is deployed is served on, also after a restart.

pub mod agent;
pub mod apps;
pub mod artifacts;
pub mod disk;
pub mod error;
pub mod fleet;
pub mod gateway;
pub mod invocations;
pub mod join;
pub mod logs;
pub mod metrics;
pub mod peers;
pub mod policy;
pub mod rtt;
pub mod settings;
pub mod status;
pub mod sync;
pub mod traces;
pub mod usage;
pub mod workflows;

pub use agent::Agent;
pub use error::Error;
pub use settings::Settings;
