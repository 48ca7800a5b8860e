//! Tokens and keys: random, stored in files that only their owner can read, and never shown by `Debug`.

use std::fmt;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};

use crate::error::ServiceError;

/// A secret text. `Debug` hides it, and there is no `Display`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself: for comparing, hashing and sending, never for logs.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// A new secret of 256 random bits, in hexadecimal.
    ///
    /// # Errors
    /// When the operating system provides no random numbers.
    pub fn random() -> Result<Self, ServiceError> {
        Ok(Self(hex::encode(random_bytes::<32>()?)))
    }

    /// A secret derived from this one and `context`, which reveals neither: HMAC-SHA-256 (RFC 2104), in hexadecimal.
    #[must_use]
    pub fn derive(&self, context: &str) -> Self {
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, self.0.as_bytes());
        Self(hex::encode(ring::hmac::sign(&key, context.as_bytes())))
    }

    /// Whether `other` is the same text, compared in a time that does not depend on where they differ.
    #[must_use]
    pub fn matches(&self, other: &str) -> bool {
        let digest = |text: &str| ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
        digest(&self.0).as_ref() == digest(other).as_ref()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// `N` random bytes from the operating system.
///
/// # Errors
/// When it provides none.
pub fn random_bytes<const N: usize>() -> Result<[u8; N], ServiceError> {
    let mut bytes = [0; N];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| ServiceError::Random)?;
    Ok(bytes)
}

/// Reads the secret in `path`, without surrounding white space.
///
/// # Errors
/// When the file cannot be read or is empty; the message says what to do.
pub fn read(path: &Path) -> Result<Secret, ServiceError> {
    let error = |reason: String| ServiceError::File {
        path: path.to_owned(),
        reason,
    };
    let text = fs::read_to_string(path)
        .map_err(|e| error(format!("{e}; the file must hold the secret")))?;
    let text = text.trim();
    if text.is_empty() {
        return Err(error(
            "it is empty; the file must hold the secret".to_owned(),
        ));
    }
    Ok(Secret::new(text))
}

/// Reads the secret in `path`; if the file does not exist, it is created with a random one (mode 0600).
///
/// # Errors
/// When the file can be neither read nor created.
pub fn read_or_create(path: &Path) -> Result<Secret, ServiceError> {
    let secret = Secret::random()?;
    if write_new(path, &secret)? {
        Ok(secret)
    } else {
        read(path)
    }
}

/// Writes a secret to a new file of mode 0600; returns `false` if the file already exists.
///
/// # Errors
/// When the file cannot be created.
pub fn write_new(path: &Path, secret: &Secret) -> Result<bool, ServiceError> {
    let error = |e: std::io::Error| ServiceError::File {
        path: path.to_owned(),
        reason: e.to_string(),
    };
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(error)?;
    }
    match OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
    {
        Ok(mut file) => {
            file.write_all(secret.expose().as_bytes())
                .and_then(|()| file.sync_all())
                .map_err(error)?;
            Ok(true)
        }
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(e) => Err(error(e)),
    }
}

/// Atomically replaces the content of `path` with a secret, mode 0600.
///
/// # Errors
/// When the file cannot be written.
pub fn write(path: &Path, secret: &Secret) -> Result<(), ServiceError> {
    let fresh = path.with_extension(format!("new{}", std::process::id()));
    let error = |e: std::io::Error| ServiceError::File {
        path: path.to_owned(),
        reason: e.to_string(),
    };
    drop(fs::remove_file(&fresh));
    write_new(&fresh, secret)?;
    fs::set_permissions(&fresh, Permissions::from_mode(0o600)).map_err(error)?;
    fs::rename(&fresh, path).map_err(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_made_once_and_only_its_owner_can_read_it() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("deep/token");
        let first = read_or_create(&path).expect("made");
        assert_eq!(read_or_create(&path).expect("read"), first);
        assert_eq!(
            fs::metadata(&path).expect("metadata").permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(first.expose().len(), 64);
        assert_eq!(format!("{first:?}"), "Secret(…)");
        write(&path, &Secret::new("next")).expect("written");
        assert_eq!(read(&path).expect("read").expose(), "next");
        assert!(first.matches(first.expose()) && !first.matches("next"));
        assert_eq!(first.derive("a"), first.derive("a"));
        assert_ne!(first.derive("a"), first.derive("b"));
        assert_ne!(first.derive("a"), Secret::new("next").derive("a"));
    }

    #[test]
    fn a_missing_or_empty_file_says_what_it_should_hold() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("token");
        assert!(
            read(&path)
                .expect_err("missing")
                .to_string()
                .contains("must hold the secret")
        );
        fs::write(&path, "\n").expect("write");
        assert!(
            read(&path)
                .expect_err("empty")
                .to_string()
                .contains("it is empty")
        );
    }
}
