//! Nodes of a cluster as separate processes, killed and cut off; and nodes with certificates, good and bad.

mod burst;
mod drain;
mod journal;
mod nodes;
mod tls;
