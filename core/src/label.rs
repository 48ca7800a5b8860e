//! Labels: key-value pairs on functions and their versions, to organise and find them. They have no effect on the network.
//!
//! A key is 1 to 63 lower-case letters, digits, `.`, `_`, `-` or `/`, beginning and ending with a letter or digit; a value is at most 63
//! letters, digits, `.`, `_` or `-`, and may be empty. (Kubernetes' syntax without the domain, so that labels can be carried over.)

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::ParseError;

/// The most labels of one object.
pub const LABELS_MAX: usize = 32;
/// The most bytes of a key, and of a value.
pub const LABEL_TEXT_MAX: usize = 63;
/// The most conditions of one selector.
pub const SELECTORS_MAX: usize = 8;

/// The labels of a function or version, at most 32. Keys have 1 to 63 lower-case letters, digits, `.`, `_`, `-` or `/`, with a letter or
/// digit at both ends; values have at most 63 letters, digits, `.`, `_` or `-`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(
    try_from = "BTreeMap<String, String>",
    into = "BTreeMap<String, String>"
)]
#[schema(value_type = BTreeMap<String, String>)]
pub struct Labels(BTreeMap<String, String>);

impl Labels {
    /// Validates keys, values and their number.
    ///
    /// # Errors
    /// The first key or value that is not valid, or too many labels.
    pub fn new(labels: BTreeMap<String, String>) -> Result<Self, ParseError> {
        if labels.len() > LABELS_MAX {
            return Err(ParseError::new(
                "labels",
                format!("{} of them", labels.len()),
                "32 at most",
            ));
        }
        for (key, value) in &labels {
            check_key(key)?;
            check_value(value)?;
        }
        Ok(Self(labels))
    }

    /// Whether there are no labels.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keys and values, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// The value of a key; `None` if it is not set.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// These labels, overridden by those of `other`. May exceed [`LABELS_MAX`]: for display only.
    #[must_use]
    pub fn overlaid(mut self, other: &Self) -> Self {
        self.0.extend(other.0.clone());
        self
    }

    /// Adds a label, or replaces its value.
    ///
    /// # Errors
    /// When the label is not valid or there would be too many.
    pub fn with(mut self, label: &Label) -> Result<Self, ParseError> {
        self.0.insert(label.key.clone(), label.value.clone());
        Self::new(self.0)
    }

    /// Removes a label.
    #[must_use]
    pub fn without(mut self, key: &str) -> Self {
        self.0.remove(key);
        self
    }
}

impl TryFrom<BTreeMap<String, String>> for Labels {
    type Error = ParseError;

    fn try_from(labels: BTreeMap<String, String>) -> Result<Self, ParseError> {
        Self::new(labels)
    }
}

impl From<Labels> for BTreeMap<String, String> {
    fn from(labels: Labels) -> Self {
        labels.0
    }
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (key, value)) in self.0.iter().enumerate() {
            let comma = if n == 0 { "" } else { "," };
            write!(f, "{comma}{key}={value}")?;
        }
        Ok(())
    }
}

/// One label: `KEY=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    key: String,
    value: String,
}

impl FromStr for Label {
    type Err = ParseError;

    fn from_str(s: &str) -> Result<Self, ParseError> {
        let pair = s.split_once('=');
        let (key, value) = pair.ok_or_else(|| ParseError::new("label", s, "KEY=VALUE"))?;
        check_key(key)?;
        check_value(value)?;
        Ok(Self {
            key: key.to_owned(),
            value: value.to_owned(),
        })
    }
}

/// A condition on labels: the key exists, or has a given value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelCondition {
    /// The key.
    pub key: String,
    /// The required value; `None` for any.
    pub value: Option<String>,
}

/// Conditions that must all hold: `KEY` or `KEY=VALUE`, separated by commas.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct LabelSelector(Vec<LabelCondition>);

impl LabelSelector {
    /// The conditions.
    #[must_use]
    pub fn conditions(&self) -> &[LabelCondition] {
        &self.0
    }
}

impl FromStr for LabelSelector {
    type Err = ParseError;

    fn from_str(s: &str) -> Result<Self, ParseError> {
        let mut conditions = Vec::new();
        for part in s.split(',').filter(|part| !part.is_empty()) {
            let (key, value) = part
                .split_once('=')
                .map_or((part, None), |(key, value)| (key, Some(value)));
            check_key(key)?;
            value.map(check_value).transpose()?;
            conditions.push(LabelCondition {
                key: key.to_owned(),
                value: value.map(str::to_owned),
            });
        }
        if conditions.len() > SELECTORS_MAX {
            return Err(ParseError::new("label selector", s, "8 conditions at most"));
        }
        Ok(Self(conditions))
    }
}

impl TryFrom<String> for LabelSelector {
    type Error = ParseError;

    fn try_from(s: String) -> Result<Self, ParseError> {
        s.parse()
    }
}

fn check_key(key: &str) -> Result<(), ParseError> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = key.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    let fits = bytes.len() <= LABEL_TEXT_MAX
        && ends.into_iter().all(|end| end.is_some_and(|b| plain(*b)))
        && bytes.iter().all(|b| plain(*b) || b"._-/".contains(b));
    if fits {
        Ok(())
    } else {
        Err(ParseError::new(
            "label key",
            key,
            "1 to 63 lower-case letters, digits or . _ - / between them",
        ))
    }
}

fn check_value(value: &str) -> Result<(), ParseError> {
    let fits = value.len() <= LABEL_TEXT_MAX
        && value
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    if fits {
        Ok(())
    } else {
        Err(ParseError::new(
            "label value",
            value,
            "at most 63 letters, digits or . _ -",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Result<Labels, ParseError> {
        let pairs = pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        Labels::new(pairs.collect())
    }

    #[test]
    fn labels_are_short_plain_and_few() {
        let fine = labels(&[("team", "shop"), ("app.kubernetes.io/part-of", "")]).expect("valid");
        assert_eq!(fine.to_string(), "app.kubernetes.io/part-of=,team=shop");
        let long = "x".repeat(64);
        for (key, value) in [
            ("", ""),
            ("-a", ""),
            ("a-", ""),
            ("A", ""),
            ("a b", ""),
            (long.as_str(), ""),
            ("a", "b c"),
            ("a", "b=c"),
            ("a", long.as_str()),
        ] {
            assert!(labels(&[(key, value)]).is_err(), "{key}={value}");
        }
        let many = (0..33).map(|n| (format!("k{n}"), String::new())).collect();
        assert!(Labels::new(many).is_err());
    }

    #[test]
    fn json_is_an_object_and_is_checked() {
        let parsed: Labels = serde_json::from_str(r#"{"team":"shop"}"#).expect("valid");
        assert_eq!(parsed.get("team"), Some("shop"));
        assert!(serde_json::from_str::<Labels>(r#"{"Team":"shop"}"#).is_err());
        let text = serde_json::to_string(&parsed).expect("JSON");
        assert_eq!(text, r#"{"team":"shop"}"#);
    }

    #[test]
    fn a_selector_is_conditions_with_commas() {
        let selector: LabelSelector = "team=shop,tier,empty=".parse().expect("valid");
        let of = |n: usize| {
            let condition = &selector.conditions()[n];
            (condition.key.as_str(), condition.value.as_deref())
        };
        assert_eq!(of(0), ("team", Some("shop")));
        assert_eq!(of(1), ("tier", None));
        assert_eq!(of(2), ("empty", Some("")));
        assert!("Team=x".parse::<LabelSelector>().is_err());
        assert!("a,".repeat(9).parse::<LabelSelector>().is_err());
        let none: LabelSelector = "".parse().expect("valid");
        assert!(none.conditions().is_empty());
    }

    #[test]
    fn labels_are_set_and_taken_one_by_one() {
        let one = Labels::default()
            .with(&"a=1".parse().expect("label"))
            .expect("fits");
        let two = one
            .clone()
            .with(&"a=2".parse().expect("label"))
            .expect("fits");
        assert_eq!(two.to_string(), "a=2");
        assert_eq!(one.clone().overlaid(&two).to_string(), "a=2");
        assert!(two.without("a").is_empty());
        assert!("a".parse::<Label>().is_err());
    }
}
