//! The controller: API, metadata store, planner, dispatcher and artifact store.
//!
//! | module | holds |
//! | --- | --- |
//! | `http` | thin handlers; the only place with HTTP statuses |
//! | [`app`] | use cases: deploy, rollback, delete, describe, explain, login, logs, snapshots |
//! | [`store`] | the metadata store; the only place with SQL |
//! | [`artifacts`] | components by digest: a folder or S3 |
//! | [`upload`] | temporary files and the checks of `fdn-runtime` |
//! | [`reconcile`] | the planner: compares desired and observed state |
//! | [`dispatch`] | the outbox's publisher |
//! | [`edge`] | machines at the edge: their listener, their feeds, what each may report |
//! | [`jobs`] | execution of jobs: dispatchers, sweeps, schedules, webhooks |
//! | [`vault`], [`keys`] | secrets at rest, and the master keys that decrypt them |
//! | [`backup`] | all state that cannot be recreated, to one file and back |
//! | [`proofs`] | proofs of host names in the DNS |
//! | [`geo`] | client locations, and measured round trip times |
//! | [`figures`] | what callers saw, as time series in memory |
//!
//! A change of desired state is one transaction: rows, revision, audit entry and the messages about it. The publisher sends the messages
//! afterwards. Node reports are kept in memory and stored periodically. Everything that was committed survives a crash of this process;
//! everything else is reported again.

pub mod app;
pub mod artifacts;
pub mod backup;
pub mod dispatch;
pub mod edge;
mod error;
pub mod figures;
#[cfg(test)]
mod fixture;
pub mod geo;
mod http;
pub mod jobs;
pub mod keys;
mod metrics;
pub mod proofs;
pub mod reconcile;
mod run;
pub mod settings;
pub mod singleton;
mod state;
pub mod store;
pub mod upload;
pub mod vault;

pub use error::Error;
pub use http::{built_in, openapi_json};
pub use metrics::Metrics;
pub use run::Controller;
pub use settings::Settings;
pub use state::State;
