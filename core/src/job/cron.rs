//! When a schedule submits its next job: five fields (minute, hour, day of month, month, day of week) in UTC, as in POSIX `crontab`, with
//! the usual extensions (`*/5`, `MON-FRI`, `L`, `#`, `@daily`). Parsed by the crate `croner`.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use serde::{Deserialize, Serialize};

use crate::error::ParseError;
use crate::unit::Timestamp;

/// The longest accepted expression, in bytes.
pub const EXPRESSION_MAX: usize = 200;

/// A cron expression that matches at least one future time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CronExpression {
    text: String,
    cron: Box<Cron>,
}

impl CronExpression {
    /// The first matching time after `after`; `None` if there is none within the representable years.
    #[must_use]
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        next(&self.cron, after)
    }

    /// The expression as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

fn next(cron: &Cron, after: Timestamp) -> Option<Timestamp> {
    let millis = i64::try_from(after.get()).ok()?;
    let start: DateTime<Utc> = DateTime::from_timestamp_millis(millis)?;
    let found = cron.find_next_occurrence(&start, false).ok()?;
    let found = u64::try_from(found.timestamp_millis()).ok()?;
    (found > after.get()).then_some(Timestamp(found))
}

impl FromStr for CronExpression {
    type Err = ParseError;

    fn from_str(s: &str) -> Result<Self, ParseError> {
        let bad = || {
            ParseError::new(
                "cron expression",
                s,
                "five fields in UTC (minute, hour, day, month, weekday) that come to pass, such as */5 * * * *",
            )
        };
        if s.len() > EXPRESSION_MAX {
            return Err(bad());
        }
        let parser = CronParser::builder()
            .seconds(Seconds::Disallowed)
            .year(Year::Disallowed)
            .build();
        let cron = parser.parse(s).map_err(|_| bad())?;
        // The 30th of February is a valid pattern that never matches.
        next(&cron, Timestamp(1_700_000_000_000)).ok_or_else(bad)?;
        Ok(Self {
            text: s.to_owned(),
            cron: Box::new(cron),
        })
    }
}

impl TryFrom<String> for CronExpression {
    type Error = ParseError;

    fn try_from(s: String) -> Result<Self, ParseError> {
        s.parse()
    }
}

impl From<CronExpression> for String {
    fn from(value: CronExpression) -> Self {
        value.text
    }
}

impl fmt::Display for CronExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 2026-01-01T00:00:00Z, a Thursday.
    const NEW_YEAR: u64 = 1_767_225_600_000;
    const MINUTE: u64 = 60_000;
    const DAY: u64 = 86_400_000;

    fn next(text: &str, after: u64) -> u64 {
        let expression: CronExpression = text.parse().expect(text);
        expression.next(Timestamp(after)).expect("comes").get()
    }

    #[test]
    fn the_next_moment_is_after_the_last_one() {
        assert_eq!(next("*/5 * * * *", NEW_YEAR), NEW_YEAR + 5 * MINUTE);
        assert_eq!(next("*/5 * * * *", NEW_YEAR - 1), NEW_YEAR);
        assert_eq!(
            next("30 6 * * *", NEW_YEAR),
            NEW_YEAR + 6 * 60 * MINUTE + 30 * MINUTE
        );
        assert_eq!(next("0 0 * * MON", NEW_YEAR), NEW_YEAR + 4 * DAY);
        assert_eq!(next("@daily", NEW_YEAR), NEW_YEAR + DAY);
        assert_eq!(
            next("0 0 29 2 *", NEW_YEAR),
            NEW_YEAR + (365 + 365 + 31 + 28) * DAY
        );
    }

    #[test]
    fn what_never_comes_or_is_none_is_refused() {
        for bad in [
            "",
            "* * * *",
            "61 * * * *",
            "* * * * * *",
            "0 0 30 2 *",
            "often",
        ] {
            assert!(bad.parse::<CronExpression>().is_err(), "{bad}");
        }
        assert!(
            format!("{}* * * * *", " ".repeat(300))
                .parse::<CronExpression>()
                .is_err()
        );
    }

    proptest! {
        #[test]
        fn moments_are_whole_minutes_in_order(minute in 0u32..60, hour in 0u32..24, after in NEW_YEAR..NEW_YEAR + 800 * DAY) {
            let first = next(&format!("{minute} {hour} * * *"), after);
            prop_assert!(first > after && first <= after + DAY && first.is_multiple_of(MINUTE));
            prop_assert_eq!(next(&format!("{minute} {hour} * * *"), first), first + DAY);
        }
    }
}
