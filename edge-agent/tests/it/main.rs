//! The agent as a whole, over real sockets: a controller that is a small edge listener, components made by the
//! testkit, compiled by the real agent's binary.

mod autonomy;
mod bodies;
mod bursts;
mod calls;
mod compiled;
mod controllers;
mod deploy;
mod devices;
mod docker;
mod figures;
mod fleet;
mod forward;
mod instances;
mod logs;
mod misbehaviour;
mod operations;
mod overflow;
mod peers;
mod peers_calls;
mod peers_gateway;
mod peers_link;
mod peers_room;
mod peers_tls;
mod pods;
mod policy;
mod policy_tokens;
mod prewarm;
mod restart;
mod rotation;
mod support;
mod tls;
mod traffic;
mod usage;
mod workflows;
mod workflows_tls;
