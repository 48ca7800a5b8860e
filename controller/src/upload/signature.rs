//! Signatures of uploads, as made by `cosign` with a key.
//!
//! - Of a component or an image archive: the signature of its bytes, in base64 (`cosign sign-blob --key`).
//! - Of the name of an image in a registry: the signature of a *simple signing* payload that names the image's digest, and the payload (`cosign
//!   generate`, <https://github.com/containers/image/blob/main/docs/containers-signature.5.md>). Names in the payload are ignored: the digest alone
//!   determines what runs.
//!
//! Keys are ECDSA on P-256 with SHA-256, as cosign generates them, and Ed25519: plain, or over the SHA-512 of the bytes (Ed25519ph), as newer
//! versions of cosign sign files. Large files are read in chunks. Signatures prove who vouched for the bytes, not when: removing a key only
//! affects new uploads.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::pkcs8::{DecodePublicKey, EncodePublicKey};
use fdn_core::repository::{SigningAlgorithm, SigningKeyInfo};
use fdn_core::{Coded, Digest, ErrorCode, SigningKeyName};
use p256::ecdsa::signature::hazmat::PrehashVerifier;
use serde::Deserialize;
use sha2::{Digest as _, Sha512};

/// The largest text of a public key, in bytes.
pub const KEY_TEXT_MAX: usize = 4096;
/// The largest text of a signature, in bytes.
pub const SIGNATURE_TEXT_MAX: usize = 1024;
/// The largest payload, in bytes.
pub const PAYLOAD_MAX: usize = 16 << 10;
/// The number of bytes read at a time.
const PIECE: usize = 64 << 10;
/// The accepted types of a payload: that of cosign, and that of other tools with this format.
const TYPES: [&str; 2] = [
    "cosign container image signature",
    "atomic container signature",
];

/// Why a signature or a key is rejected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SignatureError {
    /// A required signature is missing.
    #[error(
        "the tenant takes signed uploads only: sign the file with `cosign sign-blob --key KEY FILE` and send the signature along (`fdn deploy --signature FILE`)"
    )]
    Missing,
    /// The signature cannot be parsed.
    #[error("the signature cannot be read: {0}")]
    Unreadable(&'static str),
    /// The tenant has no signing keys.
    #[error(
        "the upload is signed, and the tenant has no signing key; add the public key with `fdn signing-key add`"
    )]
    NoKeys,
    /// None of the keys has made the signature.
    #[error("the signature is by none of the tenant's {0} signing keys over what was uploaded")]
    Wrong(usize),
    /// The payload is not valid or names another image.
    #[error("the signed payload is not about this image: {0}")]
    Payload(String),
    /// A public key cannot be used.
    #[error("the public key cannot be used: {0}")]
    Key(String),
    /// The file cannot be read.
    #[error("the upload cannot be read")]
    Read(#[source] std::io::Error),
}

impl Coded for SignatureError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Missing => ErrorCode::SignatureMissing,
            Self::Unreadable(_) | Self::NoKeys | Self::Wrong(_) | Self::Payload(_) => {
                ErrorCode::SignatureInvalid
            }
            Self::Key(_) => ErrorCode::SigningKeyInvalid,
            Self::Read(_) => ErrorCode::Internal,
        }
    }
}

/// A public key.
#[derive(Clone, Debug)]
pub enum PublicKey {
    /// ECDSA on P-256.
    EcdsaP256(p256::ecdsa::VerifyingKey),
    /// Ed25519.
    Ed25519(ed25519_dalek::VerifyingKey),
}

impl PublicKey {
    /// Reads a key from PEM.
    ///
    /// # Errors
    /// When it is not a public key of a supported kind.
    pub fn from_pem(text: &str) -> Result<Self, SignatureError> {
        let bad = |reason: &str| Err(SignatureError::Key(reason.to_owned()));
        if text.len() > KEY_TEXT_MAX {
            return bad("it is longer than 4096 bytes");
        }
        let text = text.trim();
        if text.contains("PRIVATE KEY") {
            return bad(
                "this is a private key, which nobody else should ever see: make another pair, and send the public key",
            );
        }
        if let Ok(key) = p256::ecdsa::VerifyingKey::from_public_key_pem(text) {
            return Ok(Self::EcdsaP256(key));
        }
        match ed25519_dalek::VerifyingKey::from_public_key_pem(text) {
            Ok(key) if key.is_weak() => bad("it is one of the weak keys of Ed25519"),
            Ok(key) => Ok(Self::Ed25519(key)),
            Err(_) => bad(
                "expected PEM with -----BEGIN PUBLIC KEY-----, of ECDSA on P-256 (`cosign generate-key-pair`) or Ed25519",
            ),
        }
    }

    /// The key's algorithm.
    #[must_use]
    pub const fn algorithm(&self) -> SigningAlgorithm {
        match self {
            Self::EcdsaP256(_) => SigningAlgorithm::EcdsaP256,
            Self::Ed25519(_) => SigningAlgorithm::Ed25519,
        }
    }

    /// The digest of the key's `SubjectPublicKeyInfo`.
    ///
    /// # Errors
    /// When the key cannot be encoded, which does not happen for keys that were parsed.
    pub fn fingerprint(&self) -> Result<Digest, SignatureError> {
        let der = match self {
            Self::EcdsaP256(key) => key.to_public_key_der(),
            Self::Ed25519(key) => key.to_public_key_der(),
        };
        let der = der.map_err(|e| SignatureError::Key(e.to_string()))?;
        Ok(Digest::of(der.as_bytes()))
    }

    /// Whether `signature` is this key's signature of the message.
    fn has_signed(
        &self,
        signature: &[u8],
        message: &mut Message<'_>,
    ) -> Result<bool, SignatureError> {
        match self {
            Self::EcdsaP256(key) => {
                let Ok(signature) = p256::ecdsa::Signature::from_der(signature) else {
                    return Ok(false);
                };
                let hash = message.sha256;
                Ok(key.verify_prehash(hash.as_bytes(), &signature).is_ok())
            }
            Self::Ed25519(key) => {
                let Ok(signature) = ed25519_dalek::Signature::from_slice(signature) else {
                    return Ok(false);
                };
                let Ok(mut plain) = key.verify_stream(&signature) else {
                    return Ok(false);
                };
                let mut hash = Sha512::new();
                message.each(&mut |piece| {
                    plain.update(piece);
                    hash.update(piece);
                })?;
                Ok(plain.finalize_and_verify().is_ok()
                    || key.verify_prehashed_strict(hash, None, &signature).is_ok())
            }
        }
    }
}

/// The signed bytes, with their SHA-256.
struct Message<'a> {
    sha256: Digest,
    bytes: Bytes<'a>,
}

enum Bytes<'a> {
    File(&'a Path),
    Here(&'a [u8]),
}

impl Message<'_> {
    /// Passes all bytes to `take`, in chunks.
    fn each(&self, take: &mut dyn FnMut(&[u8])) -> Result<(), SignatureError> {
        let path = match self.bytes {
            Bytes::Here(bytes) => {
                take(bytes);
                return Ok(());
            }
            Bytes::File(path) => path,
        };
        let mut file = File::open(path).map_err(SignatureError::Read)?;
        let mut piece = vec![0; PIECE];
        loop {
            match file.read(&mut piece).map_err(SignatureError::Read)? {
                0 => return Ok(()),
                read => take(&piece[..read]),
            }
        }
    }
}

/// A signature as it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The signature in base64.
    pub text: String,
    /// The payload that was signed, for an image in a registry.
    pub payload: Option<Vec<u8>>,
}

/// The subject of a signature.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    /// The bytes of a file, with their digest.
    File(&'a Path, Digest),
    /// An image in a registry, by the digest of its manifest.
    Image(Digest),
}

/// The key that made a signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signer {
    /// The key's name.
    pub name: SigningKeyName,
    /// Its algorithm.
    pub algorithm: SigningAlgorithm,
    /// Its fingerprint.
    pub fingerprint: Digest,
}

/// Verifies a signature with each of the keys. Blocking: it may read the whole file.
///
/// # Errors
/// When it cannot be parsed, is for another subject, or was made by none of the keys.
pub fn verify(
    subject: Subject<'_>,
    signature: &Signature,
    keys: &[SigningKeyInfo],
) -> Result<Signer, SignatureError> {
    let bytes = STANDARD
        .decode(signature.text.trim())
        .map_err(|_| SignatureError::Unreadable("expected base64, as cosign writes it"))?;
    let mut message = match subject {
        Subject::File(path, sha256) => Message {
            sha256,
            bytes: Bytes::File(path),
        },
        Subject::Image(digest) => {
            let payload = signature.payload.as_deref().ok_or_else(|| {
                SignatureError::Payload(
                    "an image in a registry needs the payload that was signed, too (`fdn deploy --signature-payload FILE`)".to_owned(),
                )
            })?;
            names(payload, &digest)?;
            Message {
                sha256: Digest::of(payload),
                bytes: Bytes::Here(payload),
            }
        }
    };
    if keys.is_empty() {
        return Err(SignatureError::NoKeys);
    }
    for info in keys {
        let key = PublicKey::from_pem(&info.public_key)?;
        if key.has_signed(&bytes, &mut message)? {
            return Ok(Signer {
                name: info.name.clone(),
                algorithm: info.algorithm,
                fingerprint: info.fingerprint,
            });
        }
    }
    Err(SignatureError::Wrong(keys.len()))
}

/// The relevant parts of a simple signing payload.
#[derive(Deserialize)]
struct Payload {
    critical: Critical,
}

#[derive(Deserialize)]
struct Critical {
    image: Image,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct Image {
    #[serde(rename = "docker-manifest-digest")]
    digest: Digest,
}

/// Checks that a payload names the image of this digest.
fn names(payload: &[u8], digest: &Digest) -> Result<(), SignatureError> {
    let payload: Payload = serde_json::from_slice(payload)
        .map_err(|e| SignatureError::Payload(format!("it is no simple signing payload: {e}")))?;
    if !TYPES.contains(&payload.critical.kind.as_str()) {
        return Err(SignatureError::Payload(format!(
            "its type is {:?}",
            payload.critical.kind
        )));
    }
    if payload.critical.image.digest != *digest {
        return Err(SignatureError::Payload(format!(
            "it names {}, and the upload {digest}",
            payload.critical.image.digest
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
