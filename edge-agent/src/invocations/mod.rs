//! Invocations on this node: which calls run, which wait and in which order, and how many instances there are.
//!
//! ```text
//!                      ┌── room, nobody waits: one compare-and-swap ──────────────▶ sandbox in this process
//! call ── WebAssembly ─┤
//!                      └── full: AdmissionQueue (order of FuncSched) ── something is given back ──▲
//!
//! call ── instances ── a free place in a warm instance ─────────────────────────────▶ instance (docker, kubernetes)
//!              └───── Pool: Scheduler (FuncSched, queue or cold, keep-alive) + Autoscaler ── Placer ──▲
//! ```
//!
//! [`ledger`] accounts for the node's resources, for both kinds; [`admission`] is the admission queue, in front of which [`share`] keeps any app
//! from taking every place; [`pool`] decides about instances as a pure state machine and [`instances`] performs its decisions; [`placer`] starts
//! them, here or on another node, within the memory shares of apps and tenants (`app_memory`), with the runtime that [`containers`] connected to;
//! [`retry`] decides when a failed call is retried; [`standby`] keeps started instances frozen. Every decision about order, keep-alive and
//! scaling is made by the scheduling crate.

pub mod admission;
mod app_memory;
pub mod containers;
pub mod instances;
pub mod ledger;
mod place_error;
pub mod placer;
pub mod policy;
pub mod pool;
pub mod retry;
pub mod share;
pub mod slices;
pub mod standby;
mod stop;
mod unclaimed;

pub use admission::{Admission, FunctionQueue, Refused, Slot};
pub use instances::{InFlight, Instances};
pub use ledger::Ledger;
pub(crate) use stop::stopped;
