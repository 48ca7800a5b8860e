//! Tracks each node's latest certificate, to refuse revoked ones and to know the nodes that presented them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fdn_core::NodeId;
use fdn_service::pki::Facts;
use tracing::warn;

use crate::fleet::FleetView;

/// The maximum number of remembered nodes; further ones are refused. The authority would have to sign that many certificates.
const NODES_MAX: usize = 65_536;

/// The serial number of each node's latest certificate.
#[derive(Debug, Default)]
pub(super) struct Gate(Mutex<BTreeMap<NodeId, String>>);

impl Gate {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeId, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a node connects with this certificate (DER). Returns its serial number, or `None` if the node may not connect with it.
    pub(super) fn admit(
        &self,
        view: &FleetView,
        node: &NodeId,
        certificate: &[u8],
    ) -> Option<String> {
        let serial = match <Facts>::of_der(certificate) {
            Ok(facts) => facts.serial,
            Err(error) => {
                warn!(%node, %error, "a certificate cannot be read");
                return None;
            }
        };
        if view.is_revoked(&serial) {
            warn!(%node, %serial, "a node whose certificate was revoked is refused");
            return None;
        }
        let mut known = self.lock();
        if known.len() >= NODES_MAX && !known.contains_key(node) {
            return None;
        }
        known.insert(node.clone(), serial.clone());
        Some(serial)
    }

    /// The nodes whose latest certificate was revoked.
    pub(super) fn revoked(&self, view: &FleetView) -> Vec<NodeId> {
        let known = self.lock();
        let revoked = known.iter().filter(|(_, serial)| view.is_revoked(serial));
        revoked.map(|(node, _)| node.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use fdn_core::Timestamp;
    use fdn_core::fleet::{FleetDesired, Revoked};

    use super::*;

    /// A view in which these certificates are revoked.
    fn view(serials: &[&str]) -> FleetView {
        let revoked = |serial: &&str| Revoked {
            serial: (*serial).to_owned(),
            node: "n-2".parse().expect("node"),
            expires_at: Timestamp(u64::MAX),
        };
        let desired = FleetDesired {
            revoked: serials.iter().map(revoked).collect(),
            ..FleetDesired::default()
        };
        FleetView::new(&"n-1".parse().expect("node"), None, desired)
    }

    fn certificate(node: &str) -> (Vec<u8>, String) {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut params = rcgen::CertificateParams::default();
        let name = format!("fdn://cluster/eu-west/node/{node}");
        let name = rcgen::SanType::URI(name.try_into().expect("a name"));
        params.subject_alt_names = vec![name];
        let certificate = params.self_signed(&key).expect("a certificate");
        let bytes = certificate.der().to_vec();
        let serial = <Facts>::of_der(&bytes).expect("facts").serial;
        (bytes, serial)
    }

    #[test]
    fn a_revoked_certificate_is_refused_and_its_node_known() {
        let gate = Gate::default();
        let node: NodeId = "n-2".parse().expect("node");
        let (bytes, serial) = certificate("n-2");
        let admitted = gate.admit(&view(&[]), &node, &bytes);
        assert_eq!(admitted.as_ref(), Some(&serial));
        assert!(gate.revoked(&view(&[])).is_empty());
        let after = view(&[&serial]);
        assert_eq!(gate.revoked(&after), std::slice::from_ref(&node));
        assert_eq!(gate.admit(&after, &node, &bytes), None);
        let (again, renewed) = certificate("n-2");
        assert_eq!(gate.admit(&after, &node, &again), Some(renewed), "anew");
        assert!(gate.revoked(&after).is_empty());
        assert_eq!(gate.admit(&after, &node, b"no certificate"), None);
    }
}
