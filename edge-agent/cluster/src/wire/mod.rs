//! What nodes of a cluster say to each other, and how it is written: gRPC, Protocol Buffers.
//!
//! One method, `fdn.cluster.v1.Peers/Stream`, one bidirectional stream between two nodes, frame after frame, each with as many messages
//! as were waiting. The messages are those of `fdn_scheduling::instance` without the names of nodes: who says something is known from
//! the stream, so no node can speak for another, and every node numbers the others as it likes.
//!
//! There is no `.proto` file to compile: [`proto`] is the definition, field numbers and all. A field's number is never used for another thing;
//! readers skip fields they do not know.

pub(crate) mod codec;
pub(crate) mod convert;
pub(crate) mod proto;
#[cfg(test)]
mod tests;

/// The version of the protocol, the same on both sides of a stream.
pub(crate) const VERSION: u32 = 1;
