//! What a caller says about the state it changes: that it is still the one the caller has read.

use fdn_core::Digest;
use serde::Serialize;

use crate::Error;

/// A condition on a resource's tag (RFC 9110, section 13.1.1). Tags follow from what counts a resource's changes, and are compared inside
/// the transaction that makes the next one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Precondition {
    /// None: the last writer wins.
    #[default]
    None,
    /// It exists.
    Exists,
    /// It has one of these tags.
    OneOf(Vec<String>),
}

impl Precondition {
    /// Whether it holds for a resource that exists with this tag.
    ///
    /// # Errors
    /// When it does not.
    pub fn holds(&self, tag: &str) -> Result<(), Error> {
        match self {
            Self::OneOf(tags) if !tags.iter().any(|wanted| wanted == tag) => {
                Err(Error::Precondition {
                    present: tag.to_owned(),
                })
            }
            Self::None | Self::Exists | Self::OneOf(_) => Ok(()),
        }
    }

    /// Whether it holds for a resource that does not exist.
    ///
    /// # Errors
    /// When it does not.
    pub fn holds_for_nothing(&self) -> Result<(), Error> {
        match self {
            Self::None => Ok(()),
            Self::Exists | Self::OneOf(_) => Err(Error::Precondition {
                present: "nothing".to_owned(),
            }),
        }
    }
}

/// The tag of a resource whose changes are counted.
#[must_use]
pub fn tag(count: u64) -> String {
    format!("\"{count}\"")
}

/// The tag of a resource whose changes nothing counts: it follows from what it is.
///
/// # Errors
/// When it cannot be written as JSON.
pub fn tag_of(value: &impl Serialize) -> Result<String, Error> {
    let text = serde_json::to_vec(value);
    let text = text.map_err(|e| Error::Internal(format!("what a tag is of: {e}")))?;
    Ok(format!("\"{}\"", Digest::of(&text).short()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_the_tags_must_be_the_present_one() {
        let one = Precondition::OneOf(vec![tag(1), tag(2)]);
        assert!(one.holds(&tag(2)).is_ok() && one.holds(&tag(3)).is_err());
        assert!(Precondition::None.holds(&tag(3)).is_ok());
        assert!(Precondition::Exists.holds(&tag(3)).is_ok());
        assert!(Precondition::None.holds_for_nothing().is_ok());
        assert!(Precondition::Exists.holds_for_nothing().is_err());
        assert!(one.holds_for_nothing().is_err());
        let of = |value: Option<u8>| tag_of(&value).expect("a tag");
        assert_eq!(of(Some(1)), of(Some(1)));
        assert_ne!(of(Some(1)), of(None));
    }
}
