//! The edge agent: gateway, function instances, artifact cache, logs and measurements of one node.
//!
//! One [`Agent`] is one node. The path of a call and the path of a deployment meet in the route table:
//!
//! ```text
//!                                                                   ┌─ invocations ─ fdn_runtime, fdn_instances
//! controllers ─ sync ─ apps (reducer + shell) ─ artifacts ─ routes ─ gateway ─ client
//!                             │                              │
//!                          state on disk             logs, status, rtt, metrics
//! ```
//!
//! - [`sync`] receives the desired state from the controllers' feed.
//! - [`apps`] holds the desired state of every app: a pure state machine decides, a shell fetches, compiles and publishes.
//! - [`artifacts`] fetches each component once, verifies it, compiles it once and keeps both within a size limit on disk.
//! - [`invocations`] admits calls, queues those that must wait, and scales the number of instances with the load.
//! - [`peers`] starts instances on the other nodes of the cluster, and calls them there.
//! - [`gateway`] answers clients over HTTP/1.1 and HTTP/2, with or without TLS, and does not depend on how an app was deployed.
//! - [`policy`] admits or refuses calls by the rules of the app's owner: credentials, rates, quotas, origins, addresses.
//! - [`usage`] writes a record of each call to disk before its answer is complete, and sends it to the controller.
//! - [`traces`] exports spans of calls to an OpenTelemetry collector, if one is configured.
//! - [`logs`] keeps the last lines of each app and streams them to followers.
//! - [`status`] and [`rtt`] report to the controller the state of the node and the round-trip times to its clients.
//! - [`join`] makes a machine a node and keeps its certificate valid; [`fleet`] holds what operators decided about nodes: drained, removed.
//!
//! With all controllers unreachable, everything that is deployed is still served, also after a restart.

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
