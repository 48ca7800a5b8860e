//! How the clients of a cluster are distributed among its gateways.

use serde::{Deserialize, Serialize};

use crate::error::ParseError;

/// The relative share of its cluster's clients that a gateway gets, in hundredths of the default: from 1 to 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct GatewayWeight(u16);

impl GatewayWeight {
    /// The largest weight: ten times the default.
    pub const MAX: Self = Self(1000);

    /// A weight in hundredths of the default.
    ///
    /// # Errors
    /// When it is 0 or above [`Self::MAX`].
    pub fn new(weight: u16) -> Result<Self, ParseError> {
        if (1..=Self::MAX.0).contains(&weight) {
            Ok(Self(weight))
        } else {
            let expected = "a whole number from 1 to 1000";
            Err(ParseError::new("weight", weight.to_string(), expected))
        }
    }

    /// The weight in hundredths of the default.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }

    /// Whether this is the default weight, which need not be stated.
    #[must_use]
    pub fn is_usual(&self) -> bool {
        *self == Self::default()
    }
}

/// The default weight, 100.
impl Default for GatewayWeight {
    fn default() -> Self {
        Self(100)
    }
}

impl TryFrom<u16> for GatewayWeight {
    type Error = ParseError;

    fn try_from(weight: u16) -> Result<Self, ParseError> {
        Self::new(weight)
    }
}

impl From<GatewayWeight> for u16 {
    fn from(weight: GatewayWeight) -> Self {
        weight.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_is_a_number_within_bounds() {
        let read = |text: &str| serde_json::from_str::<GatewayWeight>(text);
        for (text, weight) in [("1", 1), ("100", 100), ("1000", 1000)] {
            let read = read(text).expect("a weight");
            assert_eq!(read.get(), weight);
            assert_eq!(serde_json::to_string(&read).expect("json"), text);
        }
        for text in ["0", "1001", "-1", "1.5", "70000", "\"100\""] {
            assert!(read(text).is_err(), "{text}");
        }
        let error = read("0").expect_err("too small").to_string();
        assert!(error.contains("from 1 to 1000"), "{error}");
        assert!(read("100").expect("a weight").is_usual());
    }
}
