//! A cluster of edge agents: who is in it, how they talk, and where one burst of instances starts.
//!
//! [`Cluster::start`] makes this process a node of a cluster. [`Cluster::scale`] asks for instances somewhere in it; the node where one is to
//! start hears of it through its [`Host`], and the room is reserved. Where that is, `fdn_scheduling::instance` decides; this crate carries
//! the messages, keeps the members together ([`membership`]), and chooses the head ([`head`]), where the global scheduler runs.
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
//! # What is promised
//! - A task starts at most one instance that lasts. When a node is cut off and given up, an instance it had started unheard of may run beside
//!   its successor until the node is back and is told to end it.
//! - A task is started, or refused with a reason, in bounded time ([`settings::TimingSettings::wanted`]), whatever is lost, cut or killed.
//! - No node has more than it has room for: its own scheduler is the last authority.
//! - Every queue and table is bounded ([`settings::LimitSettings`]), and counted ([`Metrics`]).

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

/// Certificates of nodes, also for what other clusters' nodes may ask.
pub mod tls {
    pub use crate::link::tls::{Tls, TlsSource, identity};
}

pub use cluster::{Cluster, ClusterParts, Outcomes};
pub use error::ClusterError;
pub use fdn_scheduling::instance::TaskId;
pub use host::{Host, InstanceNews, Outcome, Reason, ScalingTask, Settlement, StartOrder};
pub use metrics::Metrics;
pub use peer::{PeerDialer, Peers};
pub use settings::ClusterSettings;
pub use status::ClusterStatus;
pub use trace::{Hop, Step};
