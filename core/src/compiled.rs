//! Machine code that was compiled centrally: of whole components, and packs of single functions. Their heads and what is signed.
//!
//! ```text
//! compiled = head "\n" code      head: CompiledHead as JSON on one line of at most 4096 bytes
//! pack     = head "\n" pack      head: PackHead, likewise
//! ```
//!
//! Loading machine code is as dangerous as running a native program, so a node accepts none unless its head is signed by an authority of
//! its network.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::digest::Digest;

/// The longest head in bytes, including its line break.
pub const HEAD_MAX: usize = 4096;
/// The longest engine key in bytes.
const ENGINE_MAX: usize = 64;

/// The head of a component's machine code, with its signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompiledHead {
    /// The component that was compiled.
    pub component: Digest,
    /// The engine it was compiled for: version, settings, features of the processor.
    pub engine: EngineKey,
    /// The digest of the machine code.
    pub code: Digest,
    /// The size of the machine code in bytes.
    pub size: u64,
    /// The authority's signature of [`CompiledHead::signed_text`]: ECDSA on P-256 with SHA-256 (ASN.1), base64.
    pub signature: String,
}

impl CompiledHead {
    /// The text that is signed.
    #[must_use]
    pub fn signed_text(component: &Digest, engine: &EngineKey, code: &Digest, size: u64) -> String {
        format!(
            "fdn compiled v1\ncomponent {component}\nengine {engine}\ncode {code}\nsize {size}\n"
        )
    }

    /// The text that this head's signature must match.
    #[must_use]
    pub fn text(&self) -> String {
        Self::signed_text(&self.component, &self.engine, &self.code, self.size)
    }
}

/// The head of a pack of single functions, with its signature. A controller uses only packs that an authority of its network has signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackHead {
    /// The engine it was compiled for.
    pub engine: EngineKey,
    /// The digest of the pack, by which it is stored.
    pub pack: Digest,
    /// The size of the pack in bytes.
    pub size: u64,
    /// The authority's signature of [`PackHead::signed_text`], as in [`CompiledHead`].
    pub signature: String,
}

impl PackHead {
    /// The text that is signed.
    #[must_use]
    pub fn signed_text(engine: &EngineKey, pack: &Digest, size: u64) -> String {
        format!("fdn pack v1\nengine {engine}\npack {pack}\nsize {size}\n")
    }

    /// The text that this head's signature must match.
    #[must_use]
    pub fn text(&self) -> String {
        Self::signed_text(&self.engine, &self.pack, self.size)
    }
}

/// Identifies a compilation engine: everything that machine code depends on besides the component.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EngineKey(String);

/// The text is not an engine key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the name of an engine has 1 to {ENGINE_MAX} lower-case hexadecimal digits")]
pub struct NoEngineKey;

impl EngineKey {
    /// The key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for EngineKey {
    type Error = NoEngineKey;

    fn try_from(text: String) -> Result<Self, NoEngineKey> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if (1..=ENGINE_MAX).contains(&text.len()) && text.bytes().all(is_digit) {
            Ok(Self(text))
        } else {
            Err(NoEngineKey)
        }
    }
}

impl std::str::FromStr for EngineKey {
    type Err = NoEngineKey;

    fn from_str(text: &str) -> Result<Self, NoEngineKey> {
        text.to_owned().try_into()
    }
}

impl From<EngineKey> for String {
    fn from(key: EngineKey) -> Self {
        key.0
    }
}

impl std::fmt::Display for EngineKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_is_named_by_hexadecimal_digits() {
        assert!("0123456789abcdef".parse::<EngineKey>().is_ok());
        for bad in ["", "..", "a/b", "ABC", "0 ", &"a".repeat(65)] {
            assert!(bad.parse::<EngineKey>().is_err(), "{bad}");
        }
    }

    #[test]
    fn everything_but_the_signature_is_signed() {
        let engine = |text: &str| text.parse::<EngineKey>().expect("an engine");
        let base = (Digest::of(b"a"), engine("01"), Digest::of(b"b"), 7);
        let text = |of: &(Digest, EngineKey, Digest, u64)| {
            CompiledHead::signed_text(&of.0, &of.1, &of.2, of.3)
        };
        let others = [
            (Digest::of(b"x"), base.1.clone(), base.2, base.3),
            (base.0, engine("02"), base.2, base.3),
            (base.0, base.1.clone(), Digest::of(b"x"), base.3),
            (base.0, base.1.clone(), base.2, 8),
        ];
        for other in &others {
            assert_ne!(text(other), text(&base));
        }
        let pack = PackHead::signed_text(&base.1, &base.2, base.3);
        for other in [
            PackHead::signed_text(&engine("02"), &base.2, base.3),
            PackHead::signed_text(&base.1, &base.0, base.3),
            PackHead::signed_text(&base.1, &base.2, 8),
            text(&base),
        ] {
            assert_ne!(other, pack);
        }
    }
}
