//! The usage spool: records of calls on disk before their answers leave, handed over as sums at least once, and kept for a time to be searched.
//!
//! ```text
//! call ends ─ Place::record ─▶ segment being written ─ fsync by batch ─▶ sealed segments ─ Shipper: sums ─▶ Sink (the controller)
//!    ▲                                                                        │ kept once confirmed, up to a bound ─▶ Spool::search
//!    └── Spool::reserve, before the call runs: no room, no call
//! ```
//!
//! - [`frame`]: how a record lies in a file: length, checksum, JSON.
//! - [`disk`]: the few operations on files that are needed, so that tests can lose power.
//! - [`log`]: segments: what is written, synced, sealed, recovered. Synchronous, without a thread or a clock.
//! - [`Spool`]: the log shared by the threads of a process, and the thread that syncs.
//! - [`Shipper`]: hands the sums of sealed segments over, with a pause that grows while the receiver is away.
//! - [`Spool::search`]: single calls.
//!
//! **What is promised.** A record whose [`Receipt`] has been waited for outlives the process, and with
//! [`AnswerAfter::Synced`] the power supply, too. It is handed over at least once, always in the same [`BatchId`](fdn_core::BatchId), so
//! the receiver counts it once. The spool never grows over its bound and never drops a record to keep to it: where there is no room,
//! a new call is refused before it runs.

pub mod disk;
mod error;
pub mod frame;
pub mod log;
mod metrics;
mod search;
mod settings;
mod ship;
mod spool;

pub use error::SpoolError;
pub use metrics::SpoolMetrics;
pub use search::Found;
pub use settings::{AnswerAfter, SpoolSettings};
pub use ship::{Batch, DeliverError, Shipper, Sink};
pub use spool::{Place, Receipt, Spool};
