//! API keys of an app's callers.
//!
//! A key is `fdnk_ID_SECRET`: the id finds the record, the secret (256 random bits) proves possession. The network stores only the
//! SHA-256 of the whole text: a secret with that many random bits needs no slow hash. The comparison takes constant time.

use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;
use utoipa::ToSchema;

use crate::digest::Digest;
use crate::error::ParseError;
use crate::id::KeyId;
use crate::unit::Timestamp;

/// The prefix of every key, by which leaked keys can be recognised.
const PREFIX: &str = "fdnk_";
/// The most bytes of a presented key.
const LENGTH_MAX: usize = 256;

/// The stored form of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApiKey {
    /// The key's id.
    pub id: KeyId,
    /// The key's name, which identifies the caller.
    pub name: KeyName,
    /// The SHA-256 of the key's text.
    pub hash: Digest,
    /// When the key expires; absent if never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// The name of a key's caller, which appears in a header and in logs: 1 to 64 letters, digits or `-_.@`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String)]
pub struct KeyName(String);

impl KeyName {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for KeyName {
    type Err = ParseError;

    fn from_str(s: &str) -> Result<Self, ParseError> {
        let fits = (1..=64).contains(&s.len())
            && s.bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_.@".contains(&b));
        if fits {
            Ok(Self(s.to_owned()))
        } else {
            Err(ParseError::new(
                "key name",
                s,
                "1 to 64 letters, digits or -_.@",
            ))
        }
    }
}

impl TryFrom<String> for KeyName {
    type Error = ParseError;

    fn try_from(s: String) -> Result<Self, ParseError> {
        s.parse()
    }
}

impl From<KeyName> for String {
    fn from(value: KeyName) -> Self {
        value.0
    }
}

impl std::fmt::Display for KeyName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// The text of a new key, which is shown once.
#[must_use]
pub fn text(id: KeyId, secret: &str) -> String {
    format!("{PREFIX}{}_{secret}", id.uuid().simple())
}

/// Whether a text has the prefix of a key.
#[must_use]
pub fn looks_like_key(text: &str) -> bool {
    text.starts_with(PREFIX)
}

/// The key in `keys` that `presented` matches, if it has not expired; `None` otherwise.
#[must_use]
pub fn find<'a>(keys: &'a [ApiKey], presented: &str, now: Timestamp) -> Option<&'a ApiKey> {
    if presented.len() > LENGTH_MAX {
        return None;
    }
    let (id, _) = presented.strip_prefix(PREFIX)?.split_once('_')?;
    let id = KeyId::from_uuid(uuid::Uuid::try_parse(id).ok()?);
    // Ids are not secret, so this search need not take constant time.
    let key = keys.iter().find(|key| key.id == id)?;
    let same = key
        .hash
        .as_bytes()
        .ct_eq(Digest::of(presented.as_bytes()).as_bytes());
    let lives = key.expires_at.is_none_or(|end| now < end);
    (bool::from(same) && lives).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u128, secret: &str) -> (ApiKey, String) {
        let id = KeyId::from_uuid(uuid::Uuid::from_u128(n));
        let text = text(id, secret);
        let key = ApiKey {
            id,
            name: "caller".parse().expect("name"),
            hash: Digest::of(text.as_bytes()),
            expires_at: None,
        };
        (key, text)
    }

    #[test]
    fn only_the_whole_key_is_found() {
        let ((one, text_one), (two, text_two)) = (key(1, "abc"), key(2, "abc"));
        let keys = [one.clone(), two.clone()];
        let now = Timestamp(10);
        assert_eq!(find(&keys, &text_one, now), Some(&one));
        assert_eq!(find(&keys, &text_two, now), Some(&two));
        assert_eq!(find(&keys[..1], &text_two, now), None);
        let cut = &text_one[..text_one.len() - 1];
        let longer = format!("{text_one}x");
        for wrong in ["", "fdnk_", "abc", cut, &longer, &"x".repeat(1000)] {
            assert_eq!(find(&keys, wrong, now), None, "{wrong}");
        }
    }

    #[test]
    fn a_key_ends_when_it_says() {
        let (mut one, text) = key(1, "abc");
        one.expires_at = Some(Timestamp(100));
        let keys = [one];
        assert!(find(&keys, &text, Timestamp(99)).is_some());
        assert!(find(&keys, &text, Timestamp(100)).is_none());
    }

    #[test]
    fn names_stand_in_headers() {
        assert!("billing@acme".parse::<KeyName>().is_ok());
        for bad in ["", "a b", "a\n", "é", &"x".repeat(65)] {
            assert!(bad.parse::<KeyName>().is_err(), "{bad}");
        }
    }
}
