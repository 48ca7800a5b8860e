//! The contract list of runtimes, run against every implementation, and what each does beyond it.

mod contract;
mod docker;
mod fake;
mod kubernetes;
mod subject;
mod wasm;
