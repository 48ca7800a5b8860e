//! The contract list of runtimes, run against every implementation, and tests of what each guarantees beyond it.

mod contract;
mod docker;
mod fake;
mod kubernetes;
mod subject;
mod wasm;
