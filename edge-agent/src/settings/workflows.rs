//! Settings for running workflows: limits of a run, and calls of stages in other clusters.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use fdn_cluster::settings::TlsSettings as ClusterTls;
use fdn_core::{ByteSize, ClusterId, DurationMs};
use serde::{Deserialize, Serialize};

use super::{GatewaySettings, TlsSettings};
use crate::error::Error;

/// Running workflows. A node that does not take part in calls between clusters runs all stages itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WorkflowSettings {
    /// Whether this node calls stages in other clusters, and accepts such calls.
    pub enabled: bool,
    /// The address to listen on for controllers and gateways of other clusters.
    pub listen: SocketAddr,
    /// The address at which gateways reach this node, if different; controllers use its port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advertise: Option<SocketAddr>,
    /// Communicate without encryption, and authenticate callers by a token only: on loopback addresses only.
    pub plaintext: bool,
    /// Threads for stage calls; 0 means one for each core, at most four.
    pub workers: usize,
    /// The most runs that this gateway coordinates at the same time; further ones are refused.
    pub runs: usize,
    /// The most bytes that one run may hold: the request, outputs that other stages still need, and inputs and answers made of several outputs.
    pub run_data: ByteSize,
    /// The number of connections to each gateway of another cluster.
    pub connections: usize,
    /// The most connections of other gateways that are open at the same time.
    pub served_connections: usize,
    /// The most concurrent stage calls on one connection.
    pub served_calls: u32,
    /// The timeout for connecting.
    pub connect: DurationMs,
    /// How long a gateway that could not be reached is tried only after the others.
    pub avoid: DurationMs,
    /// The interval at which an idle connection is probed, and the timeout of a probe: a gateway that has vanished is noticed after both.
    pub keep_alive: DurationMs,
    /// How long before its call an instance of a later stage may be started, and how long it waits for a late call; 0 disables this.
    pub prewarm: DurationMs,
    /// The most later stages that are being announced to gateways at a time.
    pub prewarm_tells: usize,
    /// One-way delays that are emulated towards other clusters, for benchmarks on one machine.
    pub emulate_delay: BTreeMap<ClusterId, DurationMs>,
}

impl Default for WorkflowSettings {
    fn default() -> Self {
        Self {
            enabled: false,
            listen: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 8444)),
            advertise: None,
            plaintext: false,
            workers: 0,
            runs: 256,
            run_data: ByteSize::from_mib(64),
            connections: 2,
            served_connections: 1024,
            served_calls: 256,
            connect: DurationMs::from_secs(1),
            avoid: DurationMs::from_secs(2),
            keep_alive: DurationMs::from_secs(2),
            prewarm: DurationMs::from_secs(10),
            prewarm_tells: 64,
            emulate_delay: BTreeMap::new(),
        }
    }
}

impl WorkflowSettings {
    /// The certificate files that protect calls between clusters, if any.
    #[must_use]
    pub fn tls(&self, tls: &TlsSettings) -> Option<ClusterTls> {
        if self.plaintext {
            return None;
        }
        Some(ClusterTls {
            ca: tls.ca.clone()?,
            certificate: tls.certificate.clone()?,
            key: tls.key.clone()?,
        })
    }

    /// Whether to listen: for gateways, or for controllers, which show certificates.
    #[must_use]
    pub fn listens(&self, tls: &TlsSettings) -> bool {
        self.enabled || self.tls(tls).is_some()
    }

    /// The address at which other clusters reach this node when it listens at `bound`.
    #[must_use]
    pub fn address(&self, bound: SocketAddr, gateway: &GatewaySettings) -> SocketAddr {
        if let Some(known) = self.advertise {
            return known;
        }
        if !bound.ip().is_unspecified() {
            return bound;
        }
        let known = gateway.advertise.unwrap_or(gateway.listen).ip();
        SocketAddr::new(known, bound.port())
    }

    /// Checks that the values can work.
    ///
    /// # Errors
    /// Names the key and what it must be.
    pub fn check(&self, tls: &TlsSettings) -> Result<(), Error> {
        let rules = [
            (self.runs > 0, "workflows.runs must be at least 1"),
            (
                self.run_data.as_bytes() > 0,
                "workflows.run_data must be more than 0",
            ),
            (
                self.connections > 0 && self.served_connections > 0 && self.served_calls > 0,
                "workflows.connections, served_connections and served_calls must be at least 1",
            ),
            (
                self.connect.as_millis() > 0 && self.keep_alive.as_millis() > 0,
                "workflows.connect and workflows.keep_alive must be more than 0",
            ),
            (
                !self.enabled || self.plaintext || tls.certificate.is_some(),
                "workflows.enabled needs the certificates of [tls], or workflows.plaintext for a network on one machine",
            ),
            (
                !self.plaintext || self.listen.ip().is_loopback(),
                "workflows.plaintext is for loopback addresses only: workflows.listen",
            ),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            Some((_, rule)) => Err(Error::Settings((*rule).to_owned())),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_protected_stays_on_the_machine() {
        let check = |settings: &WorkflowSettings| settings.check(&TlsSettings::default());
        let mut settings = WorkflowSettings::default();
        check(&settings).expect("off");
        settings.enabled = true;
        let error = check(&settings).expect_err("no certificates").to_string();
        assert!(error.contains("workflows.enabled"), "{error}");
        settings.plaintext = true;
        let error = check(&settings).expect_err("all addresses").to_string();
        assert!(error.contains("workflows.plaintext"), "{error}");
        settings.listen = "127.0.1.1:8444".parse().expect("address");
        check(&settings).expect("loopback");
        settings.runs = 0;
        assert!(check(&settings).is_err());
    }

    #[test]
    fn others_are_told_an_address_that_they_can_reach() {
        let gateway = GatewaySettings {
            advertise: Some("192.0.2.7:80".parse().expect("address")),
            ..GatewaySettings::default()
        };
        let mut settings = WorkflowSettings::default();
        let told = |settings: &WorkflowSettings, bound: &str| {
            let bound = bound.parse().expect("address");
            settings.address(bound, &gateway).to_string()
        };
        assert_eq!(told(&settings, "0.0.0.0:8444"), "192.0.2.7:8444");
        assert_eq!(told(&settings, "127.0.1.1:5"), "127.0.1.1:5");
        settings.advertise = Some("198.51.100.1:1".parse().expect("address"));
        assert_eq!(told(&settings, "0.0.0.0:8444"), "198.51.100.1:1");
    }
}
