//! The agent as a whole, over real sockets: a controller that is a small HTTP server, the broker in memory, components made by the
//! testkit, compiled by the real agent's binary.

mod autonomy;
mod bodies;
mod bursts;
mod calls;
mod deploy;
mod devices;
mod fleet;
mod instances;
mod logs;
mod misbehaviour;
mod operations;
mod restart;
mod support;
mod usage;
