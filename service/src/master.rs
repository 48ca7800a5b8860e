//! Master keys, which wrap data keys, so that stored values can be read only with a key that is not stored with them.
//!
//! Envelope encryption in two layers, both AES-256-GCM ([`crate::seal`]): a value is sealed under a *data key*, and the data key is wrapped under a
//! *master key*, which is in a file or an environment variable and never in the database. Changing the master key rewraps the data keys and changes
//! no values.
//!
//! A ring holds several master keys: the first one wraps, all of them unwrap. A key's id is derived from the key alone, so no list of names
//! is needed; wrapped data is stored with the id of its key.

use std::fmt;
use std::str::FromStr;

use fdn_core::ParseError;
use fdn_core::message::Sealed;

use crate::error::ServiceError;
use crate::seal::SealKey;
use crate::secret::Secret;

/// The most keys of a ring.
const KEYS_MAX: usize = 16;
/// The number of hexadecimal digits of an id.
const ID_DIGITS: usize = 16;
const PREFIX: &str = "mk-";

/// The id of a master key: `mk-` and 16 hexadecimal digits, derived from the key without revealing it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MasterKeyId(String);

impl MasterKeyId {
    /// The id of a key.
    #[must_use]
    pub fn of(key: &Secret) -> Self {
        let mut digits = key.derive("fdn master key id").expose().to_owned();
        digits.truncate(ID_DIGITS);
        Self(format!("{PREFIX}{digits}"))
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MasterKeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for MasterKeyId {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let digits = text.strip_prefix(PREFIX).unwrap_or_default();
        let good = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if digits.len() == ID_DIGITS && digits.bytes().all(good) {
            Ok(Self(text.to_owned()))
        } else {
            let expected = "mk- and 16 hexadecimal digits, as `fdn-controller keys list` shows";
            Err(ParseError::new("master key id", text, expected))
        }
    }
}

/// The master keys; the first one wraps.
#[derive(Debug)]
pub struct MasterKeys {
    keys: Vec<(MasterKeyId, SealKey)>,
}

impl MasterKeys {
    /// Parses keys of 64 hexadecimal digits each, separated by white space.
    ///
    /// # Errors
    /// When there is none, there are more than 16, or one is invalid or a duplicate; the message does not quote it.
    pub fn parse(text: &Secret) -> Result<Self, ServiceError> {
        let mut keys: Vec<(MasterKeyId, SealKey)> = Vec::new();
        for (at, line) in text.expose().split_whitespace().enumerate() {
            let wrong =
                |problem: &str| ServiceError::Config(format!("master key {}: {problem}", at + 1));
            let secret = Secret::new(line.to_ascii_lowercase());
            let key = SealKey::from_secret(&secret)
                .map_err(|_| wrong("it must be 64 hexadecimal digits"))?;
            let id = MasterKeyId::of(&secret);
            if keys.iter().any(|(known, _)| *known == id) {
                return Err(wrong("it stands there twice"));
            }
            keys.push((id, key));
        }
        match keys.len() {
            0 => Err(ServiceError::Config("there is no master key".to_owned())),
            1..=KEYS_MAX => Ok(Self { keys }),
            _ => Err(ServiceError::Config(format!(
                "at most {KEYS_MAX} master keys can be held; drop those that wrap nothing: fdn-controller keys drop"
            ))),
        }
    }

    /// The id of the key that wraps.
    #[must_use]
    pub fn current(&self) -> &MasterKeyId {
        &self.keys[0].0
    }

    /// The ids of all keys, the one that wraps first.
    pub fn ids(&self) -> impl Iterator<Item = &MasterKeyId> {
        self.keys.iter().map(|(id, _)| id)
    }

    /// Wraps a data key for `context` under the first key.
    ///
    /// # Errors
    /// When the operating system provides no random numbers.
    pub fn wrap(
        &self,
        context: &str,
        data_key: &Secret,
    ) -> Result<(MasterKeyId, Sealed), ServiceError> {
        let (id, key) = &self.keys[0];
        Ok((id.clone(), key.seal(context, data_key.expose())?))
    }

    /// Unwraps a data key; `None` if the ring does not have the master key that wrapped it.
    ///
    /// # Errors
    /// When it was tampered with, or wrapped for another context.
    pub fn unwrap_key(
        &self,
        master: &MasterKeyId,
        context: &str,
        wrapped: &Sealed,
    ) -> Result<Option<Secret>, ServiceError> {
        let known = self.keys.iter().find(|(id, _)| id == master);
        let text = known
            .map(|(_, key)| key.open(context, wrapped))
            .transpose()?;
        Ok(text.map(Secret::new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(keys: &[&Secret]) -> MasterKeys {
        let lines: Vec<&str> = keys.iter().map(|key| key.expose()).collect();
        MasterKeys::parse(&Secret::new(lines.join("\n"))).expect("a ring")
    }

    #[test]
    fn the_first_key_wraps_and_all_of_them_unwrap() {
        let (old, new) = (
            Secret::random().expect("random"),
            Secret::random().expect("random"),
        );
        let data = Secret::random().expect("random");
        let before = ring(&[&old]);
        let (id, wrapped) = before.wrap("tenant", &data).expect("wrapped");
        assert_eq!(&id, before.current());
        assert!(!wrapped.0.contains(data.expose()));
        let both = ring(&[&new, &old]);
        assert_eq!(both.ids().count(), 2);
        assert_ne!(both.current(), before.current());
        let opened = both.unwrap_key(&id, "tenant", &wrapped).expect("good");
        assert_eq!(opened.expect("known"), data);
        let alone = ring(&[&new]);
        assert!(
            alone
                .unwrap_key(&id, "tenant", &wrapped)
                .expect("asked")
                .is_none()
        );
        assert!(
            both.unwrap_key(&id, "other", &wrapped).is_err(),
            "bound to its context"
        );
        assert!(both.unwrap_key(both.current(), "tenant", &wrapped).is_err());
    }

    #[test]
    fn an_id_follows_from_the_key_and_tells_nothing_of_it() {
        let key = Secret::random().expect("random");
        let id = MasterKeyId::of(&key);
        assert_eq!(id, MasterKeyId::of(&key));
        assert!(!key.expose().contains(&id.as_str()[PREFIX.len()..]));
        assert_eq!(id.to_string().parse::<MasterKeyId>().expect("itself"), id);
        for bad in ["", "mk-", "mk-0123456789abcdeg", "0123456789abcdef"] {
            assert!(bad.parse::<MasterKeyId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_bad_ring_is_refused_without_quoting_it() {
        let key = Secret::random().expect("random");
        let twice = format!("{0} {0}", key.expose());
        let many: Vec<String> = (0..17)
            .map(|_| Secret::random().expect("random").expose().to_owned())
            .collect();
        for (text, word) in [
            ("", "no master key"),
            ("5ecret", "64 hexadecimal"),
            (&twice, "twice"),
            (&many.join(" "), "at most 16"),
        ] {
            let error = MasterKeys::parse(&Secret::new(text))
                .expect_err(word)
                .to_string();
            assert!(error.contains(word) && !error.contains("5ecret"), "{error}");
            assert!(!error.contains(key.expose()));
        }
    }
}
