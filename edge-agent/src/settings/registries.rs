//! Registries of container images that require a user name and a password.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// One registry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegistrySettings {
    /// Its host, with the port if it has one, as in image names.
    pub host: String,
    /// The user name.
    pub username: String,
    /// The file with the password or token; read at each pull, so that it can be changed at any time.
    pub password_file: PathBuf,
}
