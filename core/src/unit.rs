//! One type per unit, so that no bare number crosses a function border.
//!
//! Time inside the schedulers is [`Millis`] (f64 milliseconds, never NaN, with a total order in which `-0.0 < 0.0`); limits in manifests
//! and settings are [`DurationMs`] (whole milliseconds, written `250ms`, `10s`, `5m`); points in time are [`Timestamp`] (milliseconds of
//! Unix time), always passed in by the caller. Resources are integers.

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Add, AddAssign, Mul, Sub};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use utoipa::ToSchema;

use crate::error::ParseError;

/// A duration in milliseconds.
///
/// JSON has no infinity: an infinite duration is written as `null`.
#[derive(Clone, Copy, Debug, Default, Serialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = Option<f64>)]
pub struct Millis(f64);

impl Millis {
    /// The empty span.
    pub const ZERO: Self = Self(0.0);
    /// Longer than any span; the latency of a cluster that cannot be reached.
    pub const INFINITY: Self = Self(f64::INFINITY);

    /// Wraps a number of milliseconds. NaN becomes infinity: an unknown time must never look short.
    #[inline]
    #[must_use]
    pub const fn new(ms: f64) -> Self {
        if ms.is_nan() {
            Self::INFINITY
        } else {
            Self(ms)
        }
    }

    /// The number of milliseconds.
    #[inline]
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }

    /// Whether the span is finite.
    #[inline]
    #[must_use]
    pub const fn is_finite(self) -> bool {
        self.0.is_finite()
    }

    /// The larger of two spans.
    #[inline]
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Ord::max(self, other)
    }
}

impl<'de> Deserialize<'de> for Millis {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let ms = Option::<f64>::deserialize(deserializer)?;
        Ok(ms.map_or(Self::INFINITY, Self::new))
    }
}

impl PartialEq for Millis {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Millis {}

impl PartialOrd for Millis {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Millis {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl Add for Millis {
    type Output = Self;

    #[inline]
    fn add(self, other: Self) -> Self {
        Self::new(self.0 + other.0)
    }
}

impl AddAssign for Millis {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Millis {
    type Output = Self;

    #[inline]
    fn sub(self, other: Self) -> Self {
        Self::new(self.0 - other.0)
    }
}

impl Mul<f64> for Millis {
    type Output = Self;

    #[inline]
    fn mul(self, factor: f64) -> Self {
        Self::new(self.0 * factor)
    }
}

impl From<Duration> for Millis {
    fn from(value: Duration) -> Self {
        Self::new(value.as_secs_f64() * 1e3)
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} ms", self.0)
    }
}

macro_rules! integer_unit {
    ($(#[$doc:meta])* $name:ident, $suffix:literal) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
        )]
        #[serde(transparent)]
        #[schema(value_type = u64)]
        pub struct $name(pub u64);

        impl $name {
            /// The quantity in this unit.
            #[inline]
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0
            }

            /// `self + other`; saturates instead of overflowing.
            #[inline]
            #[must_use]
            pub const fn saturating_add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }

            /// `self - other`; zero instead of negative.
            #[inline]
            #[must_use]
            pub const fn saturating_sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!("{}", $suffix), self.0)
            }
        }
    };
}

integer_unit!(
    /// Thousandths of a CPU core.
    MilliCpu,
    "m"
);
integer_unit!(
    /// Mebibytes (2^20 bytes) of memory.
    MebiBytes,
    " MiB"
);
integer_unit!(
    /// A revision of desired state, which increases with every change in the network; 0 if nothing is known yet.
    Revision,
    ""
);
integer_unit!(
    /// A point in time: milliseconds since 1970-01-01T00:00:00Z.
    Timestamp,
    ""
);

impl Revision {
    /// Older than every revision.
    pub const NONE: Self = Self(0);
}

impl Timestamp {
    /// The time from `earlier` to `self`; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// A duration in whole milliseconds, written with its unit: `250ms`, `10s`, `5m`, `1h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, ToSchema)]
#[schema(value_type = String)]
pub struct DurationMs(u64);

impl DurationMs {
    /// From whole milliseconds.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms)
    }

    /// From whole seconds.
    #[must_use]
    pub const fn from_secs(s: u64) -> Self {
        Self(s * 1000)
    }

    /// Whole milliseconds.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// As a [`Duration`].
    #[must_use]
    pub const fn as_duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl fmt::Display for DurationMs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("0s"),
            ms if ms.is_multiple_of(3_600_000) => write!(f, "{}h", ms / 3_600_000),
            ms if ms.is_multiple_of(60_000) => write!(f, "{}m", ms / 60_000),
            ms if ms.is_multiple_of(1000) => write!(f, "{}s", ms / 1000),
            ms => write!(f, "{ms}ms"),
        }
    }
}

/// Splits a text such as `10MiB` into its number and its unit.
fn split_unit(s: &str) -> Option<(u64, &str)> {
    let s = s.trim();
    let end = s.find(|c: char| !c.is_ascii_digit()).unwrap_or(s.len());
    Some((s[..end].parse().ok()?, s[end..].trim()))
}

impl FromStr for DurationMs {
    type Err = ParseError;

    fn from_str(s: &str) -> Result<Self, ParseError> {
        let error = || {
            ParseError::new(
                "duration",
                s,
                "a whole number with ms, s, m or h, such as 250ms or 10s",
            )
        };
        let (number, unit) = split_unit(s).ok_or_else(error)?;
        let factor = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return Err(error()),
        };
        number.checked_mul(factor).map(Self).ok_or_else(error)
    }
}

/// A number of bytes, written with or without a unit: `512`, `64KiB`, `10MiB`, `2GiB` (also kB, MB, GB for powers of ten).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, ToSchema)]
#[schema(value_type = String)]
pub struct ByteSize(u64);

impl ByteSize {
    /// From bytes.
    #[must_use]
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// From mebibytes.
    #[must_use]
    pub const fn from_mib(mib: u64) -> Self {
        Self(mib << 20)
    }

    /// Bytes.
    #[must_use]
    pub const fn as_bytes(self) -> u64 {
        self.0
    }

    /// The number of bytes as `usize`; `usize::MAX` if it does not fit.
    #[must_use]
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }

    /// Whole mebibytes, rounded up.
    #[must_use]
    pub const fn to_mebibytes(self) -> MebiBytes {
        MebiBytes(self.0.div_ceil(1 << 20))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("0"),
            b if b.is_multiple_of(1 << 30) => write!(f, "{}GiB", b >> 30),
            b if b.is_multiple_of(1 << 20) => write!(f, "{}MiB", b >> 20),
            b if b.is_multiple_of(1 << 10) => write!(f, "{}KiB", b >> 10),
            b => write!(f, "{b}"),
        }
    }
}

impl FromStr for ByteSize {
    type Err = ParseError;

    fn from_str(s: &str) -> Result<Self, ParseError> {
        let error = || {
            ParseError::new(
                "size",
                s,
                "a whole number with KiB, MiB, GiB, kB, MB or GB, such as 64MiB",
            )
        };
        let (number, unit) = split_unit(s).ok_or_else(error)?;
        let factor = match unit {
            "" | "B" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            "kB" => 1000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            _ => return Err(error()),
        };
        number.checked_mul(factor).map(Self).ok_or_else(error)
    }
}

macro_rules! serde_as_text {
    ($name:ident, $expecting:literal) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;

                impl de::Visitor<'_> for Visitor {
                    type Value = $name;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expecting)
                    }

                    fn visit_str<E: de::Error>(self, s: &str) -> Result<$name, E> {
                        s.parse().map_err(E::custom)
                    }
                }

                deserializer.deserialize_str(Visitor)
            }
        }
    };
}

serde_as_text!(
    DurationMs,
    "a duration in quotes, such as \"250ms\" or \"10s\""
);
serde_as_text!(ByteSize, "a size in quotes, such as \"64MiB\"");

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn unknown_time_is_never_short() {
        assert_eq!(Millis::new(f64::NAN), Millis::INFINITY);
        assert!(Millis::new(f64::NAN) > Millis::new(1e300));
        assert_eq!(Millis::INFINITY - Millis::INFINITY, Millis::INFINITY);
    }

    #[test]
    fn what_never_ends_survives_json() {
        for span in [Millis::INFINITY, Millis::new(2.5), Millis::ZERO] {
            let json = serde_json::to_string(&span).expect("json");
            assert_eq!(
                serde_json::from_str::<Millis>(&json).expect("own json"),
                span
            );
        }
    }

    #[test]
    fn sizes_and_durations_read_as_people_write_them() {
        assert_eq!(
            "64MiB".parse::<ByteSize>().expect("size").as_bytes(),
            64 << 20
        );
        assert_eq!(
            "2 GB".parse::<ByteSize>().expect("size").as_bytes(),
            2_000_000_000
        );
        assert_eq!(
            "5m".parse::<DurationMs>().expect("duration").as_millis(),
            300_000
        );
        for bad in [
            "",
            "ten",
            "-1s",
            "1.5s",
            "10",
            "10 parsecs",
            "99999999999999999999s",
            "18446744073709551615h",
        ] {
            assert!(bad.parse::<DurationMs>().is_err(), "{bad}");
        }
        assert!("18446744073709551615GiB".parse::<ByteSize>().is_err());
    }

    proptest! {
        #[test]
        fn text_form_round_trips(n in 0u64..1 << 50) {
            prop_assert_eq!(ByteSize(n).to_string().parse::<ByteSize>().unwrap(), ByteSize(n));
            prop_assert_eq!(DurationMs(n).to_string().parse::<DurationMs>().unwrap(), DurationMs(n));
        }
    }
}
