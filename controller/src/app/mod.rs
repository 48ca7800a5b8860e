//! Use cases: what the controller does for a caller, without a word about HTTP.

pub mod access;
pub mod change;
pub mod deploy;
pub mod describe;
pub mod explain;
pub mod login;
pub mod logs;
mod secrets;
pub mod snapshot;
pub mod usage;
