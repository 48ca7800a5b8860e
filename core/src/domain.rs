//! Host names that an app serves in addition to its own: bodies of `/v1/apps/{app}/domains`, and the rules that need no DNS look-up.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::{Coded, ErrorCode};
use crate::id::{AppName, HostName};
use crate::unit::Timestamp;

/// The label below which the proof record of a host is published.
pub const CHALLENGE: &str = "_fdn-challenge";
/// The prefix of the proof record's text.
pub const PROOF: &str = "fdn-domain=";

/// The host name cannot be given to an app.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{host} cannot be a domain of an app: {problem}")]
pub struct DomainError {
    host: HostName,
    problem: &'static str,
}

impl Coded for DomainError {
    fn code(&self) -> ErrorCode {
        ErrorCode::DomainInvalid
    }
}

/// Refuses names whose ownership cannot be proven, or that belong to the network.
///
/// # Errors
/// The reason, for the owner.
pub fn check(host: &HostName, zone: &HostName) -> Result<(), DomainError> {
    let wrong = |problem| {
        Err(DomainError {
            host: host.clone(),
            problem,
        })
    };
    let name = host.as_str();
    let under = name == zone.as_str()
        || name
            .strip_suffix(zone.as_str())
            .is_some_and(|left| left.ends_with('.'));
    if under {
        return wrong("names under the network's own zone are given with the names of apps");
    }
    if !name.contains('.') {
        return wrong("it must have two labels at least");
    }
    if name
        .rsplit('.')
        .next()
        .is_some_and(|last| last.bytes().all(|b| b.is_ascii_digit()))
    {
        return wrong("it must not be an address");
    }
    if CHALLENGE.len() + 1 + name.len() > 253 {
        return wrong("it leaves no room for the record that proves it");
    }
    Ok(())
}

/// The name of the record that proves ownership of a host.
#[must_use]
pub fn challenge(host: &HostName) -> String {
    format!("{CHALLENGE}.{host}")
}

/// The text of the record that proves ownership for a domain with this token.
#[must_use]
pub fn proof(token: &str) -> String {
    format!("{PROOF}{token}")
}

/// A request to add a domain to an app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddDomain {
    /// The host name, such as `shop.example.org`. It must have two labels at least and must not be in the network's own zone.
    #[schema(value_type = String)]
    pub host: HostName,
}

/// The verification state of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DomainState {
    /// Ownership has not been proven, or no longer is: the app does not serve the host name.
    Pending,
    /// Ownership is proven: the app serves the host name.
    Verified,
    /// The app still serves the host name, but the last check did not find the proof.
    Failing,
}

impl DomainState {
    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Verified => "verified",
            Self::Failing => "failing",
        }
    }
}

/// A DNS record that the owner of a host name must set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DnsRecord {
    /// The name of the record.
    pub name: String,
    /// The record type: `TXT` or `CNAME`.
    pub kind: String,
    /// The value of the record.
    pub value: String,
    /// The purpose of the record, in words.
    pub purpose: String,
}

/// A domain of an app: a host name that it serves besides its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DomainInfo {
    /// The host name.
    #[schema(value_type = String)]
    pub host: HostName,
    /// The app's name.
    pub app: AppName,
    /// The verification state.
    pub state: DomainState,
    /// The DNS records that the owner of the host name must set.
    pub records: Vec<DnsRecord>,
    /// When the domain was added.
    pub created_at: Timestamp,
    /// Who added the domain.
    pub created_by: String,
    /// Since when ownership is proven; absent while `state` is `pending`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_at: Option<Timestamp>,
    /// When the proof was last looked up; absent if never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked_at: Option<Timestamp>,
    /// When the app will stop serving the host name unless the proof is found before; only while `state` is `failing`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<Timestamp>,
    /// What was wrong at the last check; absent if nothing was, or if there was no check yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl DomainInfo {
    /// The DNS records that prove ownership of `host` and direct its calls to the app at `target`.
    #[must_use]
    pub fn records(host: &HostName, target: &HostName, token: &str) -> Vec<DnsRecord> {
        let record = |name: String, kind: &str, value: String, purpose: &str| DnsRecord {
            name,
            kind: kind.to_owned(),
            value,
            purpose: purpose.to_owned(),
        };
        vec![
            record(
                challenge(host),
                "TXT",
                proof(token),
                "proves that the name is yours; leave it there",
            ),
            record(
                host.to_string(),
                "CNAME",
                target.to_string(),
                "brings calls to the app",
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_cannot_be_an_apps_are_refused() {
        let zone: HostName = "fn.test".parse().expect("zone");
        let host = |text: &str| text.parse::<HostName>().expect("a name");
        for good in [
            "shop.example.org",
            "example.org",
            "xfn.test",
            "fn.test.example.org",
        ] {
            check(&host(good), &zone).expect(good);
        }
        let long = format!("{0}.{0}.{0}.{1}", "a".repeat(63), "b".repeat(60));
        for (bad, word) in [
            ("fn.test", "own zone"),
            ("hello.fn.test", "own zone"),
            ("a.b.fn.test", "own zone"),
            ("localhost", "two labels"),
            ("192.0.2.1", "address"),
            (long.as_str(), "room"),
        ] {
            let error = check(&host(bad), &zone).expect_err(bad).to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn the_owner_is_told_two_records() {
        let (host, target) = (
            "shop.example.org".parse().expect("name"),
            "shop.fn.test".parse().expect("name"),
        );
        let records = DomainInfo::records(&host, &target, "0123");
        assert_eq!(records[0].name, "_fdn-challenge.shop.example.org");
        assert_eq!(
            (records[0].kind.as_str(), records[0].value.as_str()),
            ("TXT", "fdn-domain=0123")
        );
        assert_eq!(
            (records[1].kind.as_str(), records[1].value.as_str()),
            ("CNAME", "shop.fn.test")
        );
    }
}
