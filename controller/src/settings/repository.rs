//! Settings of the code repository.

use std::path::PathBuf;

use fdn_core::ByteSize;
use serde::{Deserialize, Serialize};

use crate::Error;

/// The code repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RepositorySettings {
    /// The most bytes of all versions of a tenant, unless the tenant has a limit of its own.
    #[serde(alias = "tenant_octets")]
    pub tenant_bytes: ByteSize,
    /// The most versions of a tenant, unless the tenant has a limit of its own.
    pub tenant_versions: u64,
    /// The most signing keys of a tenant.
    pub signing_keys_max: usize,
    /// A folder with further functions for the catalogue: `catalogue.toml`, `CHECKSUMS` (in the format of `sha256sum`), and a folder per function.
    /// The built-in ones are offered without it.
    pub catalogue: Option<PathBuf>,
}

impl RepositorySettings {
    /// Checks what the types alone cannot ensure.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.tenant_versions == 0 || self.tenant_bytes.as_bytes() == 0 {
            return Err(Error::config(
                "repository.tenant_bytes and tenant_versions must be positive",
            ));
        }
        if self.signing_keys_max == 0 {
            return Err(Error::config(
                "repository.signing_keys_max must be at least 1",
            ));
        }
        Ok(())
    }
}

impl Default for RepositorySettings {
    fn default() -> Self {
        Self {
            tenant_bytes: ByteSize::from_mib(50 << 10),
            tenant_versions: 10_000,
            signing_keys_max: 20,
            catalogue: None,
        }
    }
}
