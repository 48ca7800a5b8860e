//! Authoritative Smart DNS: answers each client with the cluster its calls run on.
//!
//! | module | what |
//! | --- | --- |
//! | [`policy`] | pure: question, client and state → answer and how far it holds |
//! | [`dnssec`] | keys, signatures and proofs that something does not exist |
//! | [`handler`] | bytes → question → bytes; the loops of UDP, TCP, TLS and HTTPS |
//! | [`published`] | the state of the moment, behind two pointers that are swapped |
//! | [`member`] | the server as a machine of a network: joining, its connection |
//! | [`sync`] | state from the feed and from disk; demand to the controller |
//! | [`admin`] | the routes that explain an answer and show the zone's keys |
//! | [`notify`] | tells secondaries of a new version of the zone's fixed part |
//! | [`health`] | checks of the gateways |
//! | [`server`] | all of it as one component, [`Dns`] |
//! | [`privileges`] | giving up what only binding takes |
//!
//! What must hold: a query is answered from memory, waits for nothing and writes no log line; no answer names a cluster whose
//! gateways all fail their checks while another one lives; the scope of an answer (RFC 7871) is never wider than the truth; with
//! all controllers away, and after a restart without them, answers go on.

pub mod admin;
pub mod dnssec;
mod error;
mod geo;
pub mod handler;
pub mod health;
pub mod member;
pub mod metrics;
pub mod notify;
pub mod policy;
pub mod privileges;
pub mod published;
pub mod query_log;
pub mod server;
pub mod settings;
pub mod sync;

pub use error::Error;
pub use geo::GeoDatabase;
pub use server::{Dns, Listeners};
pub use settings::Settings;
