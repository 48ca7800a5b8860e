//! Days and months of the calendar, in UTC: bills are by month, prices by day.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::ParseError;
use crate::unit::Timestamp;

/// Milliseconds of a day.
const DAY_MS: u64 = 86_400_000;
/// The last day of the year 9999, in days since 1970-01-01.
const LAST_DAY: u32 = 2_932_896;

/// A day in UTC, written as `2026-11-15`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, format = Date)]
pub struct Day(u32);

impl Day {
    /// The day of a moment; moments after the year 9999 count as its last day.
    #[must_use]
    pub fn of(at: Timestamp) -> Self {
        Self(u32::try_from(at.get() / DAY_MS).map_or(LAST_DAY, |day| day.min(LAST_DAY)))
    }

    /// The first moment of the day.
    #[must_use]
    pub fn start(self) -> Timestamp {
        Timestamp(u64::from(self.0) * DAY_MS)
    }

    /// The following day.
    #[must_use]
    pub fn next(self) -> Self {
        Self((self.0 + 1).min(LAST_DAY + 1))
    }

    /// The month of the day.
    #[must_use]
    pub fn month(self) -> Month {
        let (year, month, _) = self.civil();
        Month(year * 12 + month - 1)
    }

    /// Year, month (1 to 12) and day of the month, computed in eras of 400 years that begin in March.
    fn civil(self) -> (u32, u32, u32) {
        let days = self.0 + 719_468;
        let (era, of_era) = (days / 146_097, days % 146_097);
        let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let from_march = (5 * of_year + 2) / 153;
        let day = of_year - (153 * from_march + 2) / 5 + 1;
        let month = if from_march < 10 {
            from_march + 3
        } else {
            from_march - 9
        };
        (year + era * 400 + u32::from(month <= 2), month, day)
    }

    /// The number of days from 1970-01-01 to this date.
    fn from_civil(year: u32, month: u32, day: u32) -> u32 {
        let year = year - u32::from(month <= 2);
        let (era, of_era) = (year / 400, year % 400);
        let from_march = (month + 9) % 12;
        let of_year = (153 * from_march + 2) / 5 + day - 1;
        era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = self.civil();
        write!(f, "{year:04}-{month:02}-{day:02}")
    }
}

/// Digits only: `parse` alone would take a sign.
fn digits(text: &str, count: usize) -> Option<u32> {
    (text.len() == count && text.bytes().all(|b| b.is_ascii_digit()))
        .then(|| text.parse().ok())
        .flatten()
}

impl FromStr for Day {
    type Err = ParseError;

    fn from_str(s: &str) -> Result<Self, ParseError> {
        let parse = || {
            let (month, day) = s.rsplit_once('-')?;
            let (month, day) = (month.parse::<Month>().ok()?, digits(day, 2)?);
            let found = Self(Self::from_civil(month.year(), month.number(), day.max(1)));
            (day > 0 && found.month() == month).then_some(found)
        };
        parse().ok_or_else(|| ParseError::new("date", s, "a day such as 2026-11-15"))
    }
}

/// A month in UTC, written as `2026-11`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String)]
pub struct Month(u32);

impl Month {
    /// The month of a moment.
    #[must_use]
    pub fn of(at: Timestamp) -> Self {
        Day::of(at).month()
    }

    /// The month with this [`Month::index`]; `None` outside the years 1970 to 9999.
    #[must_use]
    pub fn from_index(index: u32) -> Option<Self> {
        (1970 * 12..10_000 * 12)
            .contains(&index)
            .then_some(Self(index))
    }

    /// The number of months since the beginning of year 0.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.0
    }

    const fn year(self) -> u32 {
        self.0 / 12
    }

    const fn number(self) -> u32 {
        self.0 % 12 + 1
    }

    /// The first day of the month.
    #[must_use]
    pub fn first_day(self) -> Day {
        Day(Day::from_civil(self.year(), self.number(), 1))
    }

    /// The first moment of the month.
    #[must_use]
    pub fn start(self) -> Timestamp {
        self.first_day().start()
    }

    /// The first moment after the month.
    #[must_use]
    pub fn end(self) -> Timestamp {
        self.next().start()
    }

    /// The following month.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The preceding month; January 1970 for itself.
    #[must_use]
    pub const fn previous(self) -> Self {
        if self.0 > 1970 * 12 {
            Self(self.0 - 1)
        } else {
            self
        }
    }
}

impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}", self.year(), self.number())
    }
}

impl FromStr for Month {
    type Err = ParseError;

    fn from_str(s: &str) -> Result<Self, ParseError> {
        let parse = || {
            let (year, month) = s.split_once('-')?;
            let (year, month) = (digits(year, 4)?, digits(month, 2)?);
            (1..=12).contains(&month).then_some(())?;
            Self::from_index(year * 12 + month - 1)
        };
        parse().ok_or_else(|| ParseError::new("month", s, "a month such as 2026-11"))
    }
}

macro_rules! as_text {
    ($($name:ident),*) => {$(
        impl TryFrom<String> for $name {
            type Error = ParseError;

            fn try_from(s: String) -> Result<Self, ParseError> {
                s.parse()
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.to_string()
            }
        }
    )*};
}

as_text!(Day, Month);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_has_its_date_and_back() {
        let mut before = (1969, 12, 31);
        for n in 0..=LAST_DAY {
            let (year, month, day) = Day(n).civil();
            assert!((year, month, day) > before, "{n}");
            assert_eq!(Day::from_civil(year, month, day), n);
            before = (year, month, day);
        }
        assert_eq!(before, (9999, 12, 31));
    }

    #[test]
    fn months_begin_where_the_last_one_ended() {
        let at = |text: &str| text.parse::<Month>().expect("month");
        assert_eq!(at("2026-11").start(), Timestamp(1_793_491_200_000));
        assert_eq!(at("2024-02").end(), at("2024-03").start());
        assert_eq!(at("2026-12").next(), at("2027-01"));
        assert_eq!(at("2027-01").previous(), at("2026-12"));
        assert_eq!(Month::of(Timestamp(1_793_491_199_999)), at("2026-10"));
        assert_eq!(Month::of(Timestamp(u64::MAX)), at("9999-12"));
    }

    #[test]
    fn what_is_no_date_is_refused() {
        for bad in ["", "2026-13", "2026-1", "+026-11", "1969-12", "2026-11-1"] {
            assert!(bad.parse::<Month>().is_err(), "{bad}");
        }
        for bad in [
            "2026-02-29",
            "2026-11-00",
            "2026-11-31",
            "2026-11",
            "2026-11-+1",
        ] {
            assert!(bad.parse::<Day>().is_err(), "{bad}");
        }
        assert_eq!(
            "2028-02-29".parse::<Day>().expect("a leap day").to_string(),
            "2028-02-29"
        );
    }
}
