//! A cluster of edge agents: its membership, its communication, and the placement of bursts of instances.
//!
//! [`Cluster::start`] makes this process a node of a cluster. [`Cluster::scale`] requests instances anywhere in it; the node where one is to
//! start is told through its [`Host`], with the room already reserved. `fdn_scheduling::instance` decides which node that is; this crate carries
//! the messages, maintains the membership ([`membership`]), and elects the head ([`head`]), which runs the global scheduler.
//!
//! ```text
//!              scale                                      start / end / ended
//!   gateway ───────────▶ ┌──────────── actor ────────────┐ ◀─────────────▶ Host
//!            ◀────────── │ Submitter  Node  Global          │
//!              outcomes  │ Membership  Election          │
//!                        └───────▲───────────────┬───────┘
//!                        frames, │ one channel   │ one outbox per stream
//!                                └──── link ◀────┘      gRPC, HTTP/2, mTLS
//! ```
//!
//! # Guarantees
//! - A task starts at most one lasting instance. When a node is cut off and given up, an instance whose start was not reported may run beside
//!   its successor until the node is back and is told to end it.
//! - A task is started, or refused with a reason, in bounded time ([`settings::TimingSettings::wanted`]), whatever is lost, cut or killed.
//! - No node exceeds its capacity: its own scheduler is the last authority.
//! - Every queue and table is bounded ([`settings::LimitSettings`]) and counted ([`Metrics`]).

mod actor;
mod clock;
mod cluster;
pub mod error;
pub mod head;
pub mod host;
pub mod identity;
mod idmap;
mod link;
pub mod membership;
pub mod metrics;
pub mod peer;
pub mod settings;
mod stage;
pub mod status;
mod tally;
mod trace;
mod wire;

/// Certificates of nodes, and what nodes of other clusters may request.
pub mod tls {
    pub use crate::link::tls::{Tls, TlsSource, identity};
}

pub use cluster::{Cluster, ClusterParts, Outcomes};
pub use error::ClusterError;
pub use fdn_scheduling::instance::TaskId;
pub use host::{Host, InstanceEvent, Outcome, Reason, ScalingTask, Settlement, StartOrder};
pub use metrics::Metrics;
pub use peer::{PeerDialer, Peers};
pub use settings::ClusterSettings;
pub use status::ClusterStatus;
pub use trace::{Hop, Step};
