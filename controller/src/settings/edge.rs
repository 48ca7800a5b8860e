//! Settings of the listener for machines at the edge.

use std::net::SocketAddr;

use fdn_core::{ByteSize, DurationMs, NodeId};
use serde::{Deserialize, Serialize};

/// The listener for nodes and DNS servers, which authenticate with certificates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EdgeSettings {
    /// The address on which this controller listens for machines.
    pub listen: SocketAddr,
    /// The addresses of all controllers for machines, as `HOST:PORT`, as told to machines that join. If empty: the host that they joined through,
    /// with the port of `listen`.
    pub controllers: Vec<String>,
    /// This controller's name; host name and API port if absent. It names the controller's queue, so it must be unique and must not change.
    pub name: Option<NodeId>,
    /// The most concurrent connections.
    pub connections: usize,
    /// The most concurrent connections of one machine.
    pub per_machine: usize,
    /// The most concurrent connections in the handshake; further ones are dropped, and machines try again.
    pub handshakes: usize,
    /// The most concurrent requests of one connection.
    pub requests: u32,
    /// The most request bodies of one machine read at the same time; further ones wait.
    pub bodies: usize,
    /// The most bytes of bodies in memory, over all machines; requests beyond it have to be sent again.
    pub bodies_size: ByteSize,
    /// How long a body may take to arrive.
    pub body_timeout: DurationMs,
    /// How long a machine may take to read 256 KiB of an artifact; after that its connection is cut.
    pub stall: DurationMs,
    /// How long the TLS handshake may take.
    pub handshake: DurationMs,
    /// The longest silence of a feed. A machine that hears nothing for twice as long connects to another controller.
    pub heartbeat: DurationMs,
    /// The most changes kept for machines that were away; one that missed more gets a snapshot.
    pub history: usize,
    /// The most bytes of these changes.
    pub history_size: ByteSize,
    /// How often the database is checked for what no message told: changes, removed machines, a new authority.
    pub refresh: DurationMs,
    /// How often nodes are told the calls counted towards quotas.
    pub quotas: DurationMs,
    /// The largest report.
    pub report_limit: ByteSize,
}

impl Default for EdgeSettings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8601)),
            controllers: Vec::new(),
            name: None,
            connections: 20_000,
            per_machine: 4,
            handshakes: 1000,
            requests: 64,
            bodies: 4,
            bodies_size: ByteSize::from_mib(256),
            body_timeout: DurationMs::from_secs(30),
            stall: DurationMs::from_secs(60),
            handshake: DurationMs::from_secs(10),
            heartbeat: DurationMs::from_secs(2),
            history: 10_000,
            history_size: ByteSize::from_mib(64),
            refresh: DurationMs::from_millis(500),
            quotas: DurationMs::from_secs(30),
            report_limit: ByteSize::from_mib(8),
        }
    }
}

impl EdgeSettings {
    /// The first setting that is not valid, named by its key.
    pub(super) fn problem(&self) -> Option<&'static str> {
        let counts = [
            self.connections,
            self.per_machine,
            self.handshakes,
            self.bodies,
            self.history,
        ];
        if counts.contains(&0) || self.requests == 0 {
            return Some(
                "edge.connections, per_machine, handshakes, requests, bodies and history must be at least 1",
            );
        }
        let times = [
            self.handshake,
            self.heartbeat,
            self.refresh,
            self.quotas,
            self.body_timeout,
            self.stall,
        ];
        if times.iter().any(|time| time.as_millis() < 10) {
            return Some(
                "edge.handshake, heartbeat, refresh, quotas, body_timeout and stall must be at least 10ms",
            );
        }
        if self.history_size.as_bytes() == 0 || self.report_limit.as_bytes() == 0 {
            return Some("edge.history_size and edge.report_limit must be at least 1B");
        }
        if self.bodies_size < self.report_limit {
            return Some("edge.bodies_size must hold a report, edge.report_limit");
        }
        None
    }
}
