//! Text records that are set through the API, for example to prove control of a name to a certificate authority (ACME DNS-01, RFC 8555,
//! section 8.4): bodies of `/v1/dns/txt`, and their validation.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::id::{AppName, RecordName};
use crate::unit::{DurationMs, Revision, Timestamp};

/// The most values of one name that a DNS server accepts; the upper bound of the controller's setting.
pub const VALUES_MAX: usize = 32;
/// The most bytes of one value: one character string (RFC 1035, section 3.3).
pub const VALUE_MAX: usize = 255;
/// The shortest time to live of a record.
pub const TTL_MIN: DurationMs = DurationMs::from_secs(10);
/// The longest time to live of a record.
pub const TTL_MAX: DurationMs = DurationMs::from_secs(3600);
/// The default time to live.
pub const TTL_DEFAULT: DurationMs = DurationMs::from_secs(60);
/// The shortest lifetime of records that expire.
pub const EXPIRES_MIN: DurationMs = DurationMs::from_secs(10);
/// The longest lifetime of records that expire: 30 days.
pub const EXPIRES_MAX: DurationMs = DurationMs::from_secs(30 * 86_400);

/// A request to set all text records of a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetTxt {
    /// The values, one record each, without duplicates: at least one, each 1 to 255 bytes without control characters.
    pub values: Vec<String>,
    /// The time to live of the records, whole seconds from `10s` to `1h`; `60s` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<DurationMs>,
    /// The time after which the records expire, from `10s` to `720h`; never if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<DurationMs>,
}

/// A request to add a text record to a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddTxt {
    /// The value of the record: 1 to 255 bytes without control characters.
    pub value: String,
    /// The time to live of all records of the name, whole seconds from `10s` to `1h`. If absent, it is unchanged, or `60s` for the first
    /// record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<DurationMs>,
    /// The time after which all records of the name expire, from `10s` to `720h`. Of the present and the new end the later one holds;
    /// existing records that never expire stay so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<DurationMs>,
}

/// The text records of a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TxtInfo {
    /// The name of the records.
    pub name: RecordName,
    /// The values, one record each, in the order in which they were given.
    pub values: Vec<String>,
    /// The time to live of the records.
    pub ttl: DurationMs,
    /// The app below whose host name the name is; absent for names that belong to the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<AppName>,
    /// The revision of the records that DNS servers are sent.
    pub revision: Revision,
    /// When the records were last changed.
    pub updated_at: Timestamp,
    /// Who last changed the records.
    pub updated_by: String,
    /// When the records expire; absent if never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// The label below which ACME clients put temporary values (RFC 8555, section 8.4).
pub const CHALLENGE_LABEL: &str = "_acme-challenge";

/// Whether the records of this name are set by an ACME client: one of its labels is [`CHALLENGE_LABEL`]. Usually it is the first, but an
/// account-specific label may precede it.
#[must_use]
pub fn is_challenge(name: &RecordName) -> bool {
    name.as_str()
        .split('.')
        .any(|label| label == CHALLENGE_LABEL)
}

/// Why a value is not allowed; `None` if it is. `limit` is in bytes.
#[must_use]
pub fn value_problem(value: &str, limit: usize) -> Option<String> {
    if value.is_empty() {
        Some("a value must not be empty".to_owned())
    } else if value.len() > limit {
        Some(format!(
            "a value has {} bytes, more than {limit} are not allowed",
            value.len()
        ))
    } else if value.chars().any(char::is_control) {
        Some("a value must not hold control characters".to_owned())
    } else {
        None
    }
}

/// Why a time to live is not allowed; `None` if it is.
#[must_use]
pub fn ttl_problem(ttl: DurationMs) -> Option<String> {
    let whole = ttl.as_millis().is_multiple_of(1000);
    (!whole || !(TTL_MIN..=TTL_MAX).contains(&ttl))
        .then(|| format!("ttl: whole seconds from {TTL_MIN} to {TTL_MAX}, not {ttl}"))
}

/// Why a lifetime is not allowed; `None` if it is.
#[must_use]
pub fn expiry_problem(expires_in: DurationMs) -> Option<String> {
    (!(EXPIRES_MIN..=EXPIRES_MAX).contains(&expires_in))
        .then(|| format!("expires_in: from {EXPIRES_MIN} to {EXPIRES_MAX}, not {expires_in}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_challenges_are_known() {
        let is = |name: &str| is_challenge(&name.parse().expect("a name"));
        assert!(is("_acme-challenge.hello.fn.test"));
        assert!(is("_ujmmovf2vn55tgye._acme-challenge.hello.fn.test"));
        assert!(!is("_acme-challenges.hello.fn.test") && !is("_dmarc.hello.fn.test"));
    }

    #[test]
    fn values_and_times_have_bounds() {
        assert_eq!(value_problem("a b", VALUE_MAX), None);
        assert_eq!(value_problem(&"x".repeat(255), VALUE_MAX), None);
        let (long, wide) = ("x".repeat(256), "ä".repeat(128));
        for wrong in ["", "a\nb", "\u{7f}", long.as_str(), wide.as_str()] {
            assert!(value_problem(wrong, VALUE_MAX).is_some(), "{wrong:?}");
        }
        let millis = DurationMs::from_millis;
        for good in [TTL_MIN, TTL_DEFAULT, TTL_MAX] {
            assert_eq!(ttl_problem(good), None);
        }
        for wrong in [millis(0), millis(9_000), millis(10_500), millis(3_601_000)] {
            assert!(ttl_problem(wrong).is_some(), "{wrong}");
        }
        assert_eq!(expiry_problem(EXPIRES_MAX), None);
        assert!(expiry_problem(millis(9_999)).is_some());
        assert!(expiry_problem(millis(EXPIRES_MAX.as_millis() + 1)).is_some());
    }
}
