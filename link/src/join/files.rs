//! The files of a machine's identity: their layout, reading and writing.

use std::path::{Path, PathBuf};

use fdn_core::enrol::{EnrolResponse, Machine, NodeAddresses, Role};
use fdn_service::ServiceError;
use fdn_service::pki::{Facts, NodeKey};
use serde::{Deserialize, Serialize};

use super::JoinError;
use crate::{IdentityFiles, disk};

/// The paths of the files that make a machine part of the network. All but the certificates and `joined` are readable by their owner only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    folder: PathBuf,
    /// The machine's private key.
    pub key: PathBuf,
    /// The machine's certificate.
    pub certificate: PathBuf,
    /// The certificates of the network's authorities, against which peers are checked.
    pub ca: PathBuf,
    /// The certificates against which the controllers' API is checked, if other than the public authorities.
    pub api_ca: PathBuf,
    /// The machine's own token.
    pub token: PathBuf,
    /// The record of how it joined ([`Joined`]).
    pub joined: PathBuf,
}

impl Identity {
    /// The paths below a data folder.
    #[must_use]
    pub fn below(data: &Path) -> Self {
        let folder = data.join("identity");
        Self {
            key: folder.join("node.key"),
            certificate: folder.join("node.pem"),
            ca: folder.join("ca.pem"),
            api_ca: folder.join("api-ca.pem"),
            token: folder.join("node.token"),
            joined: folder.join("joined.json"),
            folder,
        }
    }

    /// The files that connections need.
    #[must_use]
    pub fn files(&self) -> IdentityFiles {
        IdentityFiles {
            ca: self.ca.clone(),
            certificate: self.certificate.clone(),
            key: self.key.clone(),
        }
    }

    /// Creates the folder.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn prepare(&self) -> Result<(), JoinError> {
        Ok(disk::folder(&self.folder)?)
    }

    /// Stores the authorities of the controllers' API with the identity, for the next certificate if this one expires while the machine is away.
    /// Returns where they are stored.
    ///
    /// # Errors
    /// When a file cannot be read or written.
    pub fn store_api_ca(&self, ca_file: Option<&Path>) -> Result<Option<PathBuf>, JoinError> {
        let Some(file) = ca_file else {
            return Ok(None);
        };
        let bytes = std::fs::read(file).map_err(|e| ServiceError::File {
            path: file.to_owned(),
            reason: e.to_string(),
        })?;
        self.write_api_ca(&bytes).map(Some)
    }

    /// Stores these authorities of the controllers' API and returns where.
    pub(super) fn write_api_ca(&self, bytes: &[u8]) -> Result<PathBuf, JoinError> {
        disk::replace_public(&self.api_ca, bytes)?;
        Ok(self.api_ca.clone())
    }

    /// The facts in the certificate; `None` if the certificate or its key does not exist.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn facts(&self) -> Result<Option<Facts<Machine>>, JoinError> {
        let text = match std::fs::read_to_string(&self.certificate) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(ServiceError::File {
                    path: self.certificate.clone(),
                    reason: error.to_string(),
                }
                .into());
            }
        };
        if !self.key.exists() {
            return Ok(None);
        }
        Ok(Some(Facts::of_pem(&text)?))
    }

    /// Stores the controller's answer; the certificate last, because its presence means that everything else is in place.
    ///
    /// # Errors
    /// When the answer is for another machine, or a file cannot be written.
    pub fn write(&self, role: Role, answer: &EnrolResponse) -> Result<Facts<Machine>, JoinError> {
        let facts = Facts::<Machine>::of_pem(&answer.identity.certificate)?;
        let meant = Machine {
            role,
            cluster: answer.cluster.clone(),
            name: answer.node.clone(),
        };
        if facts.identity != meant {
            let text = format!("the certificate is for {}", facts.identity);
            return Err(JoinError::Answer(text));
        }
        // A key that is unreadable now would be unreadable at the start as well: fail before anything is written.
        NodeKey::read(&self.key)?;
        disk::replace_public(&self.ca, bundle(&answer.identity.authorities).as_bytes())?;
        disk::replace(&self.token, answer.node_token.as_bytes())?;
        disk::replace_public(&self.certificate, answer.identity.certificate.as_bytes())?;
        Ok(facts)
    }
}

/// What a machine without a configuration file of its own must know to start; stored with its identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joined {
    /// The addresses at which machines reach the controllers.
    pub controllers: Vec<String>,
    /// The URL of the API where it joined.
    pub controller: String,
    /// The certificates against which the API is checked, if other than the public authorities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// The proxy for connections to the controllers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<String>,
    /// The addresses at which others reach this machine.
    pub addresses: NodeAddresses,
}

impl Joined {
    /// Stores the record.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, identity: &Identity) -> Result<(), JoinError> {
        let text = serde_json::to_vec_pretty(self).map_err(|e| JoinError::Answer(e.to_string()))?;
        Ok(disk::replace_public(&identity.joined, &text)?)
    }

    /// Reads the stored record.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(identity: &Identity) -> Result<Self, JoinError> {
        let unusable = |reason: String| ServiceError::File {
            path: identity.joined.clone(),
            reason: format!("{reason}; join the network first"),
        };
        let text = std::fs::read(&identity.joined).map_err(|e| unusable(e.to_string()))?;
        serde_json::from_slice(&text).map_err(|e| unusable(e.to_string()).into())
    }
}

/// Concatenates PEM certificates as in a bundle file.
#[must_use]
pub fn bundle(authorities: &[String]) -> String {
    let mut text = String::new();
    for one in authorities {
        text.push_str(one.trim_end());
        text.push('\n');
    }
    text
}
