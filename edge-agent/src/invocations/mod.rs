//! Invocations on this node: who runs, who waits and in which order, and how many instances there are.
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
//! [`ledger`] is what the node has, shared by both; [`admission`] is the admission queue, behind which [`share`] lets no app take every place; [`pool`] decides about instances as a pure state
//! machine and [`instances`] performs what it says; [`placer`] starts them, here or on another node, within what an app and a tenant may hold of a node (`app_memory`), in what [`containers`] opened; [`retry`] says when a call
//! that failed is made again; [`standby`] keeps started ones frozen. Every decision about order, keeping and numbers is the scheduling crate's.

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
