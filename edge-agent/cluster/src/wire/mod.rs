//! The protocol between nodes of a cluster: gRPC with Protocol Buffers.
//!
//! It has one method, `fdn.cluster.v1.Peers/Stream`: one bidirectional stream of frames between two nodes, each frame with as many messages
//! as were waiting. The messages are those of `fdn_scheduling::instance` without the names of nodes: the sender is known from
//! the stream, so no node can speak for another, and every node may number the others as it likes.
//!
//! There is no `.proto` file to compile: [`proto`] is the definition, including field numbers. A field number is never reused;
//! readers skip unknown fields.

pub(crate) mod codec;
pub(crate) mod convert;
pub(crate) mod proto;
#[cfg(test)]
mod tests;

/// The version of the protocol, which must be the same on both sides of a stream.
pub(crate) const VERSION: u32 = 1;
