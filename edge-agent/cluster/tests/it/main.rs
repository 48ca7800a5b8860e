//! Nodes of a cluster as separate processes, killed and cut off; and nodes with certificates, good and bad.

#![allow(clippy::unwrap_used, reason = "a test may stop where it stands")]

mod burst;
mod drain;
mod journal;
mod links;
mod nodes;
mod process;
mod tls;
