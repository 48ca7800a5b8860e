//! The identity of a node on disk.

use std::path::{Path, PathBuf};

use fdn_core::enrol::EnrolResponse;
use fdn_core::fleet::FleetDesired;
use fdn_service::pki::{Facts, NodeKey};

use super::JoinError;
use crate::disk;
use crate::error::Error;
use crate::fleet::bundle;

/// The files that make a machine a node. All but the certificates can be read by their owner only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    folder: PathBuf,
    /// The node's key.
    pub key: PathBuf,
    /// The node's certificate.
    pub certificate: PathBuf,
    /// The certificates that other nodes are checked against.
    pub ca: PathBuf,
    /// The token by which the controller knows the node.
    pub token: PathBuf,
    /// The key that functions' secrets are sealed with.
    pub network_key: PathBuf,
    /// The broker's password.
    pub broker_password: PathBuf,
}

impl Identity {
    /// The files below a data folder.
    #[must_use]
    pub fn below(data: &Path) -> Self {
        let folder = data.join("identity");
        Self {
            key: folder.join("node.key"),
            certificate: folder.join("node.pem"),
            ca: folder.join("ca.pem"),
            token: folder.join("node.token"),
            network_key: folder.join("network.key"),
            broker_password: folder.join("broker.password"),
            folder,
        }
    }

    /// Makes the folder.
    pub(super) fn prepare(&self) -> Result<(), Error> {
        disk::folder(&self.folder)
    }

    /// What the certificate says; nothing if there is none that fits the key.
    pub(super) fn facts(&self) -> Result<Option<Facts>, Error> {
        let text = match std::fs::read_to_string(&self.certificate) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => {
                return Err(Error::Data {
                    path: self.certificate.clone(),
                    source,
                });
            }
        };
        if !self.key.exists() {
            return Ok(None);
        }
        Ok(Some(Facts::of_pem(&text)?))
    }

    /// Whether the node has heard that its certificate was revoked.
    pub(super) fn was_removed(&self, data: &Path, facts: &Facts) -> bool {
        let kept = std::fs::read(data.join("state/fleet.json")).ok();
        let kept = kept.and_then(|octets| serde_json::from_slice::<FleetDesired>(&octets).ok());
        kept.is_some_and(|fleet| fleet.revoked.iter().any(|one| one.serial == facts.serial))
    }

    /// Keeps what the controller answered; the certificate last, because its presence means that everything is there.
    pub(super) fn write(&self, answer: &EnrolResponse) -> Result<(), Error> {
        let facts = Facts::of_pem(&answer.identity.certificate)?;
        if facts.identity.node != answer.node || facts.identity.cluster != answer.cluster {
            let text = format!("the certificate is for {}", facts.identity);
            return Err(JoinError::Answer(text).into());
        }
        // A key that cannot be read now could not be read at the start either.
        NodeKey::read(&self.key)?;
        disk::replace_public(&self.ca, bundle(&answer.identity.authorities).as_bytes())?;
        disk::replace(&self.token, answer.node_token.as_bytes())?;
        disk::replace(&self.network_key, answer.network_key.as_bytes())?;
        if let Some(password) = &answer.broker.password {
            disk::replace(&self.broker_password, password.as_bytes())?;
        }
        disk::replace_public(&self.certificate, answer.identity.certificate.as_bytes())
    }
}
