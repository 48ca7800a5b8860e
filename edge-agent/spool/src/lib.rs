//! The usage spool: records calls on disk before their responses leave, hands the records over as sums at least once, and keeps them for a time
//! for searches.
//!
//! ```text
//! call ends ─ RecordPermit::record ─▶ segment being written ─ fsync by batch ─▶ sealed segments ─ Shipper: sums ─▶ Sink (the controller)
//!    ▲                                                                               │ kept once confirmed, up to a bound ─▶ Spool::search
//!    └── Spool::reserve, before the call runs: no room, no call
//! ```
//!
//! - [`frame`]: the format of a record in a file: length, checksum, JSON.
//! - [`disk`]: the few file operations that are needed, so that tests can simulate a power loss.
//! - [`log`]: segments: what is written, synced, sealed, recovered. Synchronous, without a thread or a clock.
//! - [`Spool`]: the log shared by the threads of a process, and the thread that syncs it.
//! - [`Shipper`]: hands over the sums of sealed segments, with a growing pause while the receiver is unavailable.
//! - [`Spool::search`]: finds single calls.
//!
//! **Guarantees.** A record whose [`Receipt`] has been waited for survives the process, and with [`AnswerAfter::Synced`] a power loss too. It is
//! handed over at least once, always in the same [`BatchId`](fdn_core::BatchId), so the receiver counts it once. The spool never grows over its
//! limit and never drops a record to stay below it: without room, a new call is refused before it runs.

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
pub use search::SearchResult;
pub use settings::{AnswerAfter, SpoolSettings};
pub use ship::{Batch, DeliverError, Shipper, Sink};
pub use spool::{Receipt, RecordPermit, Spool};
