//! Preconditions of changes: the caller states which state of the resource it has read.

use fdn_core::Digest;
use serde::Serialize;

use crate::Error;

/// A condition on a resource's ETag (RFC 9110, section 13.1.1). ETags are derived from change counters or contents, and are compared inside the
/// transaction that makes the next change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Precondition {
    /// No condition: the last writer wins.
    #[default]
    None,
    /// The resource exists.
    Exists,
    /// The resource has one of these ETags.
    OneOf(Vec<String>),
}

impl Precondition {
    /// Checks the condition for an existing resource with this ETag.
    ///
    /// # Errors
    /// When it does not hold.
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

    /// Checks the condition for a resource that does not exist.
    ///
    /// # Errors
    /// When it does not hold.
    pub fn holds_for_nothing(&self) -> Result<(), Error> {
        match self {
            Self::None => Ok(()),
            Self::Exists | Self::OneOf(_) => Err(Error::Precondition {
                present: "nothing".to_owned(),
            }),
        }
    }
}

/// The ETag of a resource with a change counter.
#[must_use]
pub fn tag(count: u64) -> String {
    format!("\"{count}\"")
}

/// The ETag of a resource without a change counter: derived from its content.
///
/// # Errors
/// When the value cannot be serialized as JSON.
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
