//! The identity of a machine on disk.

use std::path::{Path, PathBuf};

use fdn_core::enrol::{EnrolResponse, Machine, NodeAddresses, Role};
use fdn_service::ServiceError;
use fdn_service::pki::{Facts, NodeKey};
use serde::{Deserialize, Serialize};

use super::JoinError;
use crate::{IdentityFiles, disk};

/// The files that make a machine one of the network. All but the certificates can be read by their owner only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    folder: PathBuf,
    /// The machine's key.
    pub key: PathBuf,
    /// The machine's certificate.
    pub certificate: PathBuf,
    /// The certificates that others are checked against.
    pub ca: PathBuf,
    /// The certificates that the controllers' API is checked against, if it was joined with a file of them.
    pub api_ca: PathBuf,
    /// The machine's own token.
    pub token: PathBuf,
    /// How it joined ([`Joined`]).
    pub joined: PathBuf,
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
            api_ca: folder.join("api-ca.pem"),
            token: folder.join("node.token"),
            joined: folder.join("joined.json"),
            folder,
        }
    }

    /// Those that connections need.
    #[must_use]
    pub fn files(&self) -> IdentityFiles {
        IdentityFiles {
            ca: self.ca.clone(),
            certificate: self.certificate.clone(),
            key: self.key.clone(),
        }
    }

    /// Makes the folder.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn prepare(&self) -> Result<(), JoinError> {
        Ok(disk::folder(&self.folder)?)
    }

    /// Keeps the authorities of the controllers' API beside the rest, for the next certificate if this one ends while the machine is away; where.
    ///
    /// # Errors
    /// When a file cannot be read or written.
    pub fn keep_api_ca(&self, ca_file: Option<&Path>) -> Result<Option<PathBuf>, JoinError> {
        let Some(file) = ca_file else {
            return Ok(None);
        };
        let bytes = std::fs::read(file).map_err(|e| ServiceError::File {
            path: file.to_owned(),
            reason: e.to_string(),
        })?;
        self.write_api_ca(&bytes).map(Some)
    }

    /// Keeps these authorities of the controllers' API; where.
    pub(super) fn write_api_ca(&self, bytes: &[u8]) -> Result<PathBuf, JoinError> {
        disk::replace_public(&self.api_ca, bytes)?;
        Ok(self.api_ca.clone())
    }

    /// What the certificate says; nothing if there is none that fits the key.
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

    /// Keeps what the controller answered; the certificate last, because its presence means that everything is there.
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
        // A key that cannot be read now could not be read at the start either.
        NodeKey::read(&self.key)?;
        disk::replace_public(&self.ca, bundle(&answer.identity.authorities).as_bytes())?;
        disk::replace(&self.token, answer.node_token.as_bytes())?;
        disk::replace_public(&self.certificate, answer.identity.certificate.as_bytes())?;
        Ok(facts)
    }
}

/// What a machine without a configuration file of its own must know to start: kept beside its identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joined {
    /// Where machines reach the controllers.
    pub controllers: Vec<String>,
    /// The API that it joined at.
    pub controller: String,
    /// The certificates that the API is checked against, if they are not the web's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// The proxy that carries connections to the controllers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<String>,
    /// Where others reach it.
    pub addresses: NodeAddresses,
}

impl Joined {
    /// Keeps it.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, identity: &Identity) -> Result<(), JoinError> {
        let text = serde_json::to_vec_pretty(self).map_err(|e| JoinError::Answer(e.to_string()))?;
        Ok(disk::replace_public(&identity.joined, &text)?)
    }

    /// What was kept.
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

/// Certificates one after another, as files hold them.
#[must_use]
pub fn bundle(authorities: &[String]) -> String {
    let mut text = String::new();
    for one in authorities {
        text.push_str(one.trim_end());
        text.push('\n');
    }
    text
}
