//! Settings of the listener for machines at the edge.

use std::net::SocketAddr;

use fdn_core::{ByteSize, DurationMs, NodeId};
use serde::{Deserialize, Serialize};

/// The listener for nodes and DNS servers, who show their certificates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EdgeSettings {
    /// Where machines reach this controller.
    pub listen: SocketAddr,
    /// Where machines reach the controllers, all of them, as `HOST:PORT`: told to those that join. The host that they joined through, with the
    /// port of `listen`, if it is empty.
    pub controllers: Vec<String>,
    /// This controller's name; the machine's host name and the API's port if absent. It names its queue, so it must be its alone and stay.
    pub name: Option<NodeId>,
    /// Connections at the same time.
    pub connections: usize,
    /// Connections of one machine at the same time.
    pub per_machine: usize,
    /// Connections at the same time that have shown no certificate yet; further ones are dropped, and machines come again.
    pub handshakes: usize,
    /// Requests that one connection makes at the same time.
    pub requests: u32,
    /// Bodies of one machine's requests that are read at the same time; further ones wait.
    pub bodies: usize,
    /// Bytes of bodies in memory, of all machines; what does not fit is to come again.
    pub bodies_size: ByteSize,
    /// How long a body may take to come.
    pub body_timeout: DurationMs,
    /// How long a machine may take for 256 KiB of an artifact that it asked for; then its connection is cut.
    pub stall: DurationMs,
    /// How long showing certificates may take.
    pub handshake: DurationMs,
    /// How long a feed is silent at most. A machine that hears nothing for twice as long goes to another controller.
    pub heartbeat: DurationMs,
    /// Changes that are kept for machines that were away; one that missed more gets a snapshot.
    pub history: usize,
    /// Bytes of them.
    pub history_size: ByteSize,
    /// How often it is looked whether the database holds what no message told: changes, removed machines, a new authority.
    pub refresh: DurationMs,
    /// How often nodes are told what is used of quotas.
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
    /// The first setting that makes no sense, by its key.
    pub(super) fn nonsense(&self) -> Option<&'static str> {
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
