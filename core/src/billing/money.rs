//! Amounts of money, in integer millionths of a currency's unit.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::BillingError;
use crate::error::ParseError;

/// Micro-units in a unit.
pub(super) const MICROS: i64 = 1_000_000;

/// A currency, as its three capital letters (ISO 4217), such as `EUR`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String)]
pub struct Currency([u8; 3]);

impl Currency {
    /// The euro.
    pub const EUR: Self = Self(*b"EUR");
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|letter| write!(f, "{}", char::from(*letter)))
    }
}

impl FromStr for Currency {
    type Err = ParseError;

    fn from_str(s: &str) -> Result<Self, ParseError> {
        let letters = s.as_bytes().try_into().ok();
        letters
            .filter(|letters: &[u8; 3]| letters.iter().all(u8::is_ascii_uppercase))
            .map(Self)
            .ok_or_else(|| ParseError::new("currency", s, "three capital letters, such as EUR"))
    }
}

impl TryFrom<String> for Currency {
    type Error = ParseError;

    fn try_from(s: String) -> Result<Self, ParseError> {
        s.parse()
    }
}

impl From<Currency> for String {
    fn from(value: Currency) -> Self {
        value.to_string()
    }
}

/// An amount of money; negative for credits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Money {
    /// The amount in millionths of the currency's unit.
    pub micros: i64,
    /// The currency.
    pub currency: Currency,
}

impl Money {
    /// An amount of `micros` millionths.
    #[must_use]
    pub const fn new(micros: i64, currency: Currency) -> Self {
        Self { micros, currency }
    }

    /// `self + other`.
    ///
    /// # Errors
    /// When the currencies differ or the sum does not fit.
    pub fn plus(self, other: Self) -> Result<Self, BillingError> {
        if self.currency != other.currency {
            return Err(BillingError::Currencies(self.currency, other.currency));
        }
        let micros = self.micros.checked_add(other.micros);
        let micros = micros.ok_or(BillingError::Overflow("a sum of money"))?;
        Ok(Self { micros, ..self })
    }

    /// The amount without its currency: `12.345678`.
    #[must_use]
    pub fn decimal(self) -> String {
        decimal(self.micros)
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.decimal(), self.currency)
    }
}

/// `12.345678` for 12345678 micro-units.
pub(super) fn decimal(micros: i64) -> String {
    let (sign, all) = (if micros < 0 { "-" } else { "" }, micros.unsigned_abs());
    let unit = MICROS.unsigned_abs();
    format!("{sign}{}.{:06}", all / unit, all % unit)
}

/// Micro-units of `12.345678`: no sign, at most six decimals, nothing rounded.
pub(super) fn parse_decimal(text: &str) -> Option<i64> {
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || rest.len() > 6 || !digits(whole) || !digits(rest) || text.ends_with('.')
    {
        return None;
    }
    let micros: i64 = format!("{rest:0<6}").parse().ok()?;
    whole
        .parse::<i64>()
        .ok()?
        .checked_mul(MICROS)?
        .checked_add(micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact_or_refused() {
        for (text, micros) in [("0.20", 200_000), ("12", 12_000_000), ("0.000001", 1)] {
            assert_eq!(parse_decimal(text), Some(micros), "{text}");
        }
        for bad in [
            "",
            ".5",
            "1.",
            "0.0000001",
            "-1",
            "+1",
            "1e3",
            "1,5",
            "99999999999999",
        ] {
            assert_eq!(parse_decimal(bad), None, "{bad}");
        }
        assert_eq!(
            Money::new(-1_500_000, Currency::EUR).to_string(),
            "-1.500000 EUR"
        );
        assert_eq!(decimal(i64::MIN), "-9223372036854.775808");
    }

    #[test]
    fn only_like_is_added_to_like_and_never_wraps() {
        let euro = Money::new(i64::MAX, Currency::EUR);
        let dollar = Money::new(1, "USD".parse().expect("currency"));
        assert!(matches!(
            euro.plus(dollar),
            Err(BillingError::Currencies(..))
        ));
        assert_eq!(
            euro.plus(Money::new(1, Currency::EUR)),
            Err(BillingError::Overflow("a sum of money"))
        );
        for bad in ["eur", "EURO", "E1R", ""] {
            assert!(bad.parse::<Currency>().is_err(), "{bad}");
        }
    }
}
