//! The other nodes of the cluster.

use std::net::SocketAddr;

use fdn_cluster::ClusterSettings;
use fdn_cluster::settings as cluster;
use fdn_core::DurationMs;
use serde::{Deserialize, Serialize};

use super::{GatewaySettings, TlsSettings};
use crate::error::Error;

/// Whether and how the nodes of a cluster start instances for each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PeerSettings {
    /// Whether this node communicates with the others; if not, it starts instances on itself only.
    pub enabled: bool,
    /// The most attempts of a start, on one node after another, including the first.
    pub attempts: u32,
    /// When an instance that runs for another node becomes this node's own, after nothing is heard of that node any more.
    pub orphan_after: DurationMs,
    /// Instances that another node has not called for this long give way to this node's own if the cluster has no room.
    pub spare_after: DurationMs,
    /// How long room that turned out not to exist is not assigned again.
    pub refused_room: DurationMs,
    /// How long there must be no room for an instance before idle ones are made to give way.
    pub full_after: DurationMs,
    /// How long this node requests no more than it has, after the cluster had no room for it.
    pub full_pause: DurationMs,
    /// The settings of the cluster protocol.
    pub cluster: ClusterSettings,
}

impl Default for PeerSettings {
    fn default() -> Self {
        Self {
            enabled: false,
            attempts: 6,
            orphan_after: DurationMs::from_secs(15),
            spare_after: DurationMs::from_secs(5),
            refused_room: DurationMs::from_millis(1000),
            full_after: DurationMs::from_millis(500),
            full_pause: DurationMs::from_secs(2),
            cluster: ClusterSettings::default(),
        }
    }
}

impl PeerSettings {
    /// The settings of the cluster protocol, completed from the node's own: certificates, and the address known to others.
    #[must_use]
    pub fn cluster(&self, tls: &TlsSettings, gateway: &GatewaySettings) -> ClusterSettings {
        let mut settings = self.cluster.clone();
        if settings.tls.is_none()
            && !settings.plaintext
            && let (Some(ca), Some(certificate), Some(key)) = (&tls.ca, &tls.certificate, &tls.key)
        {
            settings.tls = Some(cluster::TlsSettings {
                ca: ca.clone(),
                certificate: certificate.clone(),
                key: key.clone(),
            });
        }
        if settings.advertise.is_none() && settings.listen.ip().is_unspecified() {
            let known = gateway.advertise.unwrap_or(gateway.listen);
            let known = Some(known).filter(|known| !known.ip().is_unspecified());
            let port = settings.listen.port();
            settings.advertise = known.map(|known| SocketAddr::new(known.ip(), port));
        }
        settings
    }

    /// The address at which others reach this node, as far as it is configured: for certificates, and as a seed.
    #[must_use]
    pub fn address(&self, tls: &TlsSettings, gateway: &GatewaySettings) -> Option<SocketAddr> {
        let settings = self.cluster(tls, gateway);
        let address = settings.advertise.unwrap_or(settings.listen);
        (self.enabled && address.port() != 0).then_some(address)
    }

    /// Checks that the values can work.
    ///
    /// # Errors
    /// Names the key and what it must be.
    pub fn check(&self, tls: &TlsSettings, gateway: &GatewaySettings) -> Result<(), Error> {
        if !self.enabled {
            return Ok(());
        }
        let timing = &self.cluster.timing;
        let rules = [
            (self.attempts > 0, "peers.attempts must be at least 1"),
            (
                self.orphan_after > timing.dead_after,
                "peers.orphan_after must be above peers.cluster.timing.dead_after",
            ),
            (
                self.refused_room <= DurationMs::from_secs(60),
                "peers.refused_room must be at most 1m",
            ),
            (
                self.full_after.as_millis() > 0 && self.full_pause.as_millis() > 0,
                "peers.full_after and peers.full_pause must be more than 0",
            ),
        ];
        if let Some((_, rule)) = rules.iter().find(|(holds, _)| !holds) {
            return Err(Error::Settings((*rule).to_owned()));
        }
        self.cluster(tls, gateway)
            .check()
            .map_err(|error| Error::Settings(format!("peers.cluster: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tls() -> TlsSettings {
        TlsSettings {
            ca: Some("ca.pem".into()),
            certificate: Some("node.pem".into()),
            key: Some("node.key".into()),
            ..TlsSettings::default()
        }
    }

    #[test]
    fn a_node_that_has_joined_need_not_say_more_than_that_it_takes_part() {
        let peers = PeerSettings {
            enabled: true,
            ..PeerSettings::default()
        };
        let gateway = GatewaySettings {
            advertise: Some("192.0.2.7:8080".parse().expect("address")),
            ..GatewaySettings::default()
        };
        peers.check(&tls(), &gateway).expect("it can work");
        let cluster = peers.cluster(&tls(), &gateway);
        assert_eq!(
            cluster.tls.expect("the node's own").key,
            tls().key.expect("key")
        );
        let address = peers.address(&tls(), &gateway);
        assert_eq!(address, Some("192.0.2.7:8443".parse().expect("address")));
        let error = peers.check(&TlsSettings::default(), &gateway);
        assert!(
            error
                .expect_err("no certificate")
                .to_string()
                .contains("tls")
        );
    }

    #[test]
    fn what_cannot_work_is_named() {
        let mut peers = PeerSettings {
            attempts: 0,
            ..PeerSettings::default()
        };
        let check = |peers: &PeerSettings| peers.check(&tls(), &GatewaySettings::default());
        check(&peers).expect("nothing matters while it is off");
        peers.enabled = true;
        let error = check(&peers).expect_err("attempts").to_string();
        assert!(error.contains("peers.attempts"), "{error}");
        peers.attempts = 1;
        peers.orphan_after = DurationMs::from_millis(1);
        let error = check(&peers).expect_err("orphans").to_string();
        assert!(error.contains("peers.orphan_after"), "{error}");
    }
}
