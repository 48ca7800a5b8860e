//! Authoritative Smart DNS: answers each client with the gateways of the cluster that its calls run on.
//!
//! | module | what |
//! | --- | --- |
//! | [`policy`] | pure: question, client and state → answer and scope |
//! | [`dnssec`] | keys, signatures and denial of existence |
//! | [`handler`] | bytes → question → bytes; the UDP, TCP, TLS and HTTPS servers |
//! | [`published`] | the current state, behind two pointers that are swapped |
//! | [`member`] | the server as a machine of a network: joining, and its connection to the controllers |
//! | [`sync`] | state from the feed and from disk; demand reports to the controller |
//! | [`admin`] | the routes that explain an answer and show the zone's keys |
//! | [`notify`] | notices to secondaries of a new version of the zone's fixed part |
//! | [`health`] | health checks of the gateways |
//! | [`server`] | all of it as one component, [`Dns`] |
//! | [`privileges`] | dropping the capabilities that only binding needs |
//!
//! Invariants: a query is answered from memory, never waits and writes no log line; no answer names a cluster whose gateways all fail their
//! checks while another one is alive; the scope of an answer (RFC 7871) is never wider than it is valid; without any controller, and after
//! a restart without one, the server goes on answering.

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
