//! Use cases: what the controller does for a caller, without a word about HTTP.

pub mod access;
pub mod authority;
pub mod change;
pub mod deploy;
pub mod describe;
pub mod enrol;
pub mod explain;
pub mod fleet;
pub mod join_token;
pub mod lease;
pub mod login;
pub mod logs;
mod secrets;
pub mod snapshot;
pub mod usage;
