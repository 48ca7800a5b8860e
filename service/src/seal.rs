//! Seals secret values that pass through the broker, under the network key that controllers share, and those stored on nodes' disks, under a
//! key of each node: AES-256-GCM (NIST SP 800-38D) with a random 96-bit nonce per value.
//!
//! A sealed value is bound to its purpose (the *context*: app and name), so that one app's secret cannot be passed off as another's.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fdn_core::message::Sealed;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use crate::error::ServiceError;
use crate::secret::{Secret, random_bytes};

/// A key for sealing values.
pub struct SealKey(LessSafeKey);

impl std::fmt::Debug for SealKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SealKey(…)")
    }
}

impl SealKey {
    /// The key from a secret: 64 hexadecimal digits.
    ///
    /// # Errors
    /// When the text is not in this form.
    pub fn from_secret(secret: &Secret) -> Result<Self, ServiceError> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(secret.expose(), &mut bytes).map_err(|_| {
            ServiceError::Config("the key must be 64 hexadecimal digits".to_owned())
        })?;
        let key = UnboundKey::new(&AES_256_GCM, &bytes).map_err(|_| ServiceError::Sealed)?;
        Ok(Self(LessSafeKey::new(key)))
    }

    /// Seals `text` for `context`.
    ///
    /// # Errors
    /// When the operating system provides no random numbers.
    pub fn seal(&self, context: &str, text: &str) -> Result<Sealed, ServiceError> {
        let nonce = random_bytes::<NONCE_LEN>()?;
        let mut buffer = text.as_bytes().to_vec();
        self.0
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(context.as_bytes()),
                &mut buffer,
            )
            .map_err(|_| ServiceError::Sealed)?;
        let mut out = nonce.to_vec();
        out.append(&mut buffer);
        Ok(Sealed(STANDARD.encode(out)))
    }

    /// Opens a value that was sealed for the same `context`.
    ///
    /// # Errors
    /// [`ServiceError::Sealed`] when key or context are wrong, or the value was changed.
    pub fn open(&self, context: &str, sealed: &Sealed) -> Result<String, ServiceError> {
        let mut buffer = STANDARD
            .decode(&sealed.0)
            .map_err(|_| ServiceError::Sealed)?;
        let (nonce, text) = buffer
            .split_at_mut_checked(NONCE_LEN)
            .ok_or(ServiceError::Sealed)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| ServiceError::Sealed)?;
        let text = self
            .0
            .open_in_place(nonce, Aad::from(context.as_bytes()), text)
            .map_err(|_| ServiceError::Sealed)?;
        String::from_utf8(text.to_vec()).map_err(|_| ServiceError::Sealed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> SealKey {
        SealKey::from_secret(&Secret::random().expect("random")).expect("key")
    }

    #[test]
    fn only_the_same_key_and_context_open() {
        let (key, other) = (key(), self::key());
        let sealed = key.seal("app/NAME", "s3cret").expect("sealed");
        assert_eq!(key.open("app/NAME", &sealed).expect("opened"), "s3cret");
        assert!(key.open("app/OTHER", &sealed).is_err());
        assert!(other.open("app/NAME", &sealed).is_err());
        let mut changed = sealed.clone();
        changed
            .0
            .replace_range(20..21, if &sealed.0[20..21] == "A" { "B" } else { "A" });
        assert!(key.open("app/NAME", &changed).is_err());
        assert!(key.open("app/NAME", &Sealed("AA==".into())).is_err());
        assert_ne!(
            key.seal("app/NAME", "s3cret").expect("again"),
            sealed,
            "each seal has its own nonce"
        );
    }
}
