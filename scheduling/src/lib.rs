//! Every scheduling decision of the network as pure, deterministic code.
//!
//! Nothing here is asynchronous, does I/O, reads a clock, draws from a hidden source of randomness or depends on the order of a hash
//! table: the same input gives the same output, byte for byte. Controller, edge agent and simulator call the same functions.
//!
//! | module | answers |
//! | --- | --- |
//! | [`dag`] | the input of placement: tasks, demands, data between them |
//! | [`workflow`] | a workflow of stages as such a DAG |
//! | [`live`] | node reports as clusters to place on |
//! | [`place`] | which cluster runs each task (Heu-Orche and other list schedulers), with the reason for every cluster |
//! | [`policy`] | all ways to place a job, by name |
//! | [`online`] | which cluster and slot run each task of many users' jobs, as they arrive and end |
//! | [`fair`] | whose job is next among those that wait for a dispatcher |
//! | [`compete`] | which cluster each client group of all apps uses, when all compete for the best ones |
//! | [`record`] | the inputs and decisions of a pass of [`compete`], for replay |
//! | [`steer`] | whether a previous answer is kept or replaced (hysteresis) |
//! | [`group`] | which clients see the clusters alike and share a plan |
//! | [`form`] | which form of a function a cluster serves |
//! | [`residual`] | how predicted run times are corrected by measured ones |
//! | [`rollout`] | whether a new version meets its objective |
//! | [`resource`] | which node and which of its devices take an instance, from packed quantities |
//! | [`scale`] | how many instances a function should have, and how many to start or stop |
//! | [`commit`] | which node runs each container, with several schedulers at work at once |
//! | [`instance`] | where in a cluster an instance starts: local check, probes, the global scheduler, hints |
//! | [`invocation`] | which waiting invocation starts next, where, and which containers stay warm (FuncSched) |
//! | [`run`] | the course of one run of a workflow: what starts where, what is retried, how it ends |
//! | [`prewarm`] | which later stages of a run are announced to their gateways, and when |
//! | [`checker`] | whether a plan obeys every rule, whatever produced it |
//!
//! # From live state to an answer
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use fdn_core::latency::{LatencyEstimate, LatencySource};
//! use fdn_core::{ClusterId, MebiBytes, MilliCpu, Millis, Resources};
//! use fdn_scheduling::dag::Dag;
//! use fdn_scheduling::place::{Cluster, Network, Options, Problem, Speed};
//! use fdn_scheduling::steer::{Margin, replan};
//!
//! # fn main() -> Result<(), fdn_scheduling::Error> {
//! // One stage: 8 ms of work at speed 1, in 128 MiB.
//! let demand = Resources::new(MilliCpu(100), MebiBytes(128));
//! let dag = Dag::single("hello", Millis::new(8.0), demand)?;
//!
//! // Two clusters; `live::cluster` makes them from the nodes' statuses.
//! let (near, far): (ClusterId, ClusterId) = ("eu-west".parse().unwrap(), "us-east".parse().unwrap());
//! let room = Resources::new(MilliCpu(4000), MebiBytes(2048));
//! let clusters = [
//!     Cluster::new(near.clone(), Speed::new(1.0), 4).with_free(room),
//!     Cluster::new(far.clone(), Speed::new(2.0), 4).with_free(room),
//! ];
//!
//! // One client's distances, from `LatencyMap::view`.
//! let estimate = |rtt| LatencyEstimate { rtt: Millis::new(rtt), source: LatencySource::Located };
//! let view = BTreeMap::from([(near.clone(), estimate(20.0)), (far.clone(), estimate(90.0))]);
//! let distance: Vec<Millis> = clusters.iter().map(|c| view[&c.id].one_way()).collect();
//!
//! let network = Network::instant(clusters.len());
//! let problem = Problem::new(&dag, &clusters, &network, &distance)?
//!     .with_options(Options { exit_leg: true, ..Options::default() });
//!
//! // No answer was given before: the best cluster becomes the answer.
//! let steered = replan(&problem, None, Margin::default())?;
//! assert_eq!(steered.decision.cluster, near);
//! assert_eq!(steered.plan.latency(), Millis::new(10.0 + 8.0 + 10.0));
//!
//! // Every cluster with its terms and why it lost, as the API shows it.
//! let rows = steered.decision.rows(steered.planned.report.entry().unwrap(), &view);
//! assert_eq!(rows[0].cluster, near);
//! assert_eq!(rows[1].total, Millis::new(45.0 + 4.0 + 45.0));
//! assert_eq!(
//!     rows[1].verdict,
//!     "66.00 ms slower than eu-west: starts 35.00 ms later, works 4.00 ms less, answers over 35.00 ms more"
//! );
//! # Ok(())
//! # }
//! ```

pub mod checker;
pub mod commit;
pub mod compete;
pub mod dag;
mod error;
pub mod fair;
pub mod form;
pub mod group;
pub mod instance;
pub mod invocation;
pub mod live;
mod node;
pub mod online;
pub mod place;
pub mod policy;
pub mod prewarm;
pub mod record;
pub mod residual;
pub mod resource;
pub mod rollout;
pub mod run;
pub mod scale;
pub mod steer;
pub mod workflow;

pub use error::Error;
pub use node::NodeIndex;
