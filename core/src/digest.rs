//! SHA-256 digests, which identify artifacts everywhere (`sha256:…`, as in OCI descriptors).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use utoipa::ToSchema;

use crate::error::ParseError;

/// The SHA-256 digest (FIPS 180-4) of a component or image, as `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = DigestBuilder::default();
        hasher.update(bytes);
        hasher.finish()
    }

    /// The 64 hexadecimal digits without the `sha256:` prefix, for file names and object keys.
    #[must_use]
    pub fn hex(&self) -> String {
        hex::encode(self.0)
    }

    /// The 32 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first 12 hexadecimal digits, for display.
    #[must_use]
    pub fn short(&self) -> String {
        hex::encode(&self.0[..6])
    }
}

/// Computes the digest of a stream incrementally.
#[derive(Clone, Default)]
pub struct DigestBuilder(Sha256);

impl DigestBuilder {
    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of everything added.
    #[must_use]
    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = ParseError;

    fn from_str(s: &str) -> Result<Self, ParseError> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(s.strip_prefix("sha256:").unwrap_or(s), &mut bytes).map_err(|_| {
            ParseError::new("digest", s, "sha256: followed by 64 hexadecimal digits")
        })?;
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for Digest {
    type Error = ParseError;

    fn try_from(s: String) -> Result<Self, ParseError> {
        s.parse()
    }
}

impl From<Digest> for String {
    fn from(value: Digest) -> String {
        value.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fips_180_example_and_text_form() {
        let digest = Digest::of(b"abc");
        assert_eq!(
            digest.hex(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(
            digest.to_string().parse::<Digest>().expect("own text"),
            digest
        );
        assert!("sha256:12".parse::<Digest>().is_err());
        assert!("../../etc/passwd".parse::<Digest>().is_err());
    }

    #[test]
    fn pieces_make_the_same_digest() {
        let mut builder = DigestBuilder::default();
        builder.update(b"a");
        builder.update(b"bc");
        assert_eq!(builder.finish(), Digest::of(b"abc"));
    }
}
