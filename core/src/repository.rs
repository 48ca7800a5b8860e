//! Bodies of the API for the code repository: storage quota, signing keys and policy, and the catalogue of ready-made functions.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::digest::Digest;
use crate::error::ParseError;
use crate::id::{AppName, FunctionName, SigningKeyName};
use crate::label::Labels;
use crate::unit::{ByteSize, Timestamp};

/// The storage that a tenant uses, and its limits. Every version counts with its own size, as on the bill, even if two have the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StorageUse {
    /// The size of all versions, in bytes.
    #[serde(alias = "octets")]
    pub bytes: u64,
    /// The limit of `bytes`.
    #[serde(alias = "octets_limit")]
    pub bytes_limit: u64,
    /// The number of versions.
    pub versions: u64,
    /// The limit of `versions`.
    pub versions_limit: u64,
    /// Whether any of the limits is the tenant's own; otherwise both are the network's defaults.
    pub own_limit: bool,
}

impl StorageUse {
    /// Checks whether one more version of `size` bytes is within the quota.
    ///
    /// # Errors
    /// The limit that would be exceeded, in words.
    pub fn admit(&self, size: u64) -> Result<(), String> {
        let bytes = self.bytes.saturating_add(size);
        if bytes > self.bytes_limit {
            return Err(format!(
                "{size} bytes more than the {} that are stored would be above the tenant's limit of {} bytes",
                self.bytes, self.bytes_limit
            ));
        }
        if self.versions >= self.versions_limit {
            return Err(format!(
                "{} versions are stored and the tenant's limit is {}",
                self.versions, self.versions_limit
            ));
        }
        Ok(())
    }
}

/// Storage limits of a tenant, in place of the network's defaults. An absent limit is the network's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StorageLimit {
    /// The most bytes of all versions together, such as `20GiB`; absent for the network's default.
    #[serde(default, alias = "octets", skip_serializing_if = "Option::is_none")]
    pub bytes: Option<ByteSize>,
    /// The most versions; absent for the network's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions: Option<u64>,
}

impl StorageLimit {
    /// Whether no limit is set.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_none() && self.versions.is_none()
    }
}

/// Whether a tenant's uploads must be signed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SignaturePolicy {
    /// Not required, but a signature that is given must be valid.
    #[default]
    Optional,
    /// Required: uploads without a valid signature by one of the tenant's keys are refused.
    Required,
}

impl SignaturePolicy {
    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Optional => "optional",
            Self::Required => "required",
        }
    }
}

impl std::str::FromStr for SignaturePolicy {
    type Err = ParseError;

    fn from_str(s: &str) -> Result<Self, ParseError> {
        match s {
            "optional" => Ok(Self::Optional),
            "required" => Ok(Self::Required),
            _ => Err(ParseError::new(
                "signature policy",
                s,
                "optional or required",
            )),
        }
    }
}

/// A request to set a tenant's signature policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetSignaturePolicy {
    /// Whether uploads must be signed.
    pub policy: SignaturePolicy,
}

/// A request to add a public key, or to replace the one of the same name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutSigningKey {
    /// The key as PEM (`-----BEGIN PUBLIC KEY-----`): Ed25519, or ECDSA on P-256 as created by `cosign generate-key-pair`.
    pub public_key: String,
}

/// The algorithm of a signing key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum SigningAlgorithm {
    /// ECDSA on P-256 with SHA-256 (FIPS 186-5).
    #[serde(rename = "ecdsa-p256")]
    EcdsaP256,
    /// Ed25519 (RFC 8032), of the message itself or of its SHA-512 (Ed25519ph).
    #[serde(rename = "ed25519")]
    Ed25519,
}

impl SigningAlgorithm {
    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::EcdsaP256 => "ecdsa-p256",
            Self::Ed25519 => "ed25519",
        }
    }
}

impl std::str::FromStr for SigningAlgorithm {
    type Err = ParseError;

    fn from_str(s: &str) -> Result<Self, ParseError> {
        match s {
            "ecdsa-p256" => Ok(Self::EcdsaP256),
            "ed25519" => Ok(Self::Ed25519),
            _ => Err(ParseError::new(
                "signing algorithm",
                s,
                "ecdsa-p256 or ed25519",
            )),
        }
    }
}

/// A public key of a tenant, for the signatures of its uploads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SigningKeyInfo {
    /// The key's name, unique in the tenant.
    pub name: SigningKeyName,
    /// The key's algorithm.
    pub algorithm: SigningAlgorithm,
    /// The SHA-256 digest of the key's `SubjectPublicKeyInfo` in DER.
    pub fingerprint: Digest,
    /// The public key as PEM.
    pub public_key: String,
    /// When the key was added.
    pub created_at: Timestamp,
    /// Who added the key.
    pub created_by: String,
}

/// A ready-made function of the catalogue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CatalogueEntry {
    /// The function's name.
    pub name: FunctionName,
    /// What the function does, in one line.
    pub summary: String,
    /// The language in which it is written.
    pub language: String,
    /// The digest of its component.
    pub digest: Digest,
    /// The size of its component, in bytes.
    pub size: u64,
}

/// A request to deploy a function of the catalogue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeployCatalogue {
    /// The app to deploy it as; the function's own name if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<AppName>,
    /// The labels of the new version.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// A signature over the component, in base64; required if the tenant's policy says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_release_before_are_taken() {
        let limit: StorageLimit = serde_json::from_str(r#"{"octets": "20GiB"}"#).expect("a limit");
        assert_eq!(limit.bytes.map(ByteSize::as_bytes), Some(20 << 30));
        let old = r#"{"octets": 1, "octets_limit": 2, "versions": 3, "versions_limit": 4, "own_limit": false}"#;
        let used: StorageUse = serde_json::from_str(old).expect("a quota");
        assert_eq!((used.bytes, used.bytes_limit), (1, 2));
    }

    #[test]
    fn a_limit_may_be_reached_and_not_passed() {
        let used = StorageUse {
            bytes: 60,
            bytes_limit: 100,
            versions: 1,
            versions_limit: 2,
            own_limit: false,
        };
        assert_eq!(used.admit(40), Ok(()));
        let refusal = used.admit(41).expect_err("one byte too many");
        assert!(
            refusal.contains("60") && refusal.contains("limit of 100"),
            "{refusal}"
        );
        let full = StorageUse {
            versions: 2,
            ..used
        };
        let refusal = full.admit(1).expect_err("one version too many");
        assert!(
            refusal.contains("2 versions") && refusal.contains("limit is 2"),
            "{refusal}"
        );
        assert!(used.admit(u64::MAX).is_err(), "nothing overflows");
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for policy in [SignaturePolicy::Optional, SignaturePolicy::Required] {
            assert_eq!(policy.as_str().parse(), Ok(policy));
        }
        for algorithm in [SigningAlgorithm::EcdsaP256, SigningAlgorithm::Ed25519] {
            assert_eq!(algorithm.as_str().parse(), Ok(algorithm));
        }
    }
}
