//! Names and identifiers, one type each, so that a node's id cannot be passed where a cluster's is expected.
//!
//! Names that people choose (apps, functions, regions, clusters, nodes, stages) are DNS labels (RFC 1123, section 2.1): they appear in
//! host names, paths and metrics without quoting. Ids that the network generates print with a prefix that tells their kind (`msg_…`,
//! `ins_…`, `ten_…`). Nothing here draws random ids: the caller provides the UUID.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::digest::Digest;
use crate::error::ParseError;

/// The longest DNS label, in bytes (RFC 1035, section 2.3.4).
pub const LABEL_MAX: usize = 63;
/// The longest host name in text form, without a trailing dot (RFC 1035, section 2.3.4).
pub const HOST_NAME_MAX: usize = 253;

/// Whether `s` is a lower-case DNS label: 1 to 63 of `a-z 0-9 -`, no hyphen at either end.
#[must_use]
pub fn is_label(s: &str) -> bool {
    let bytes = s.as_bytes();
    (1..=LABEL_MAX).contains(&bytes.len())
        && bytes
            .iter()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
        && bytes[0] != b'-'
        && bytes[bytes.len() - 1] != b'-'
}

macro_rules! string_type {
    ($(#[$doc:meta])* $name:ident, $what:literal, $expected:literal, $pattern:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
        #[serde(try_from = "String", into = "String")]
        #[schema(value_type = String, pattern = $pattern)]
        // Names are cloned far more often than they are made.
        pub struct $name(Arc<str>);

        impl $name {
            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = ParseError;

            fn from_str(s: &str) -> Result<Self, ParseError> {
                let check: fn(&str) -> bool = $check;
                if check(s) {
                    Ok(Self(s.into()))
                } else {
                    Err(ParseError::new($what, s, $expected))
                }
            }
        }

        impl TryFrom<String> for $name {
            type Error = ParseError;

            fn try_from(s: String) -> Result<Self, ParseError> {
                s.parse()
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> String {
                value.as_str().to_owned()
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}

macro_rules! label_type {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        string_type!(
            $(#[$doc])*
            $name,
            $what,
            "1 to 63 lower-case letters, digits or hyphens, with no hyphen at either end",
            "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
            is_label
        );
    };
}

label_type!(
    /// The name of an app, unique in the network: the first label of its host name.
    AppName,
    "app name"
);
label_type!(
    /// The name of a function, unique in its tenant.
    FunctionName,
    "function name"
);
label_type!(
    /// The name of a region: a geographic area with one or more clusters.
    RegionName,
    "region name"
);
label_type!(
    /// The name of a cluster: nodes behind gateways.
    ClusterId,
    "cluster name"
);
label_type!(
    /// The name of a node or DNS server, unique in the network.
    NodeId,
    "node name"
);
label_type!(
    /// The name of a tenant, unique in the network. It can change; the tenant's id cannot.
    TenantName,
    "tenant name"
);
label_type!(
    /// The name of a stage, unique in its workflow.
    StageName,
    "stage name"
);
label_type!(
    /// The name of a form, unique in its function version; `main` is the first form.
    FormName,
    "form name"
);
label_type!(
    /// The name of a schedule, unique in its app.
    ScheduleName,
    "schedule name"
);
label_type!(
    /// The name of a tenant's public key for signatures of uploads.
    SigningKeyName,
    "signing key name"
);
label_type!(
    /// The name of a price list, unique in the network.
    PriceListName,
    "price list name"
);
label_type!(
    /// The name of a budget, unique in its tenant.
    BudgetName,
    "budget name"
);
label_type!(
    /// The name of a set of items that a tenant applies together from files.
    SetName,
    "set name"
);

string_type!(
    /// The name of a secret or environment variable, as POSIX environments accept it: 1 to 128 letters, digits or underscores, not
    /// beginning with a digit.
    SecretName,
    "environment variable name",
    "1 to 128 letters, digits or underscores, not starting with a digit",
    "^[A-Za-z_][A-Za-z0-9_]{0,127}$",
    |s| (1..=128).contains(&s.len())
        && s.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && !s.as_bytes()[0].is_ascii_digit()
);

string_type!(
    /// The name of a user: 1 to 63 printable characters without a slash, and without a space at either end.
    UserName,
    "user name",
    "1 to 63 characters that can be printed, without a slash and without a space at either end",
    "^[^/]{1,63}$",
    |s| (1..=63).contains(&s.chars().count())
        && s.trim() == s
        && s != "."
        && s != ".."
        && !s.chars().any(|c| c.is_control() || c == '/')
);

string_type!(
    /// The id of a device, as given by its driver (`GPU-…`, `MIG-…`) or by the simulation.
    DeviceId,
    "device id",
    "1 to 128 letters, digits and `- _ . / :`",
    "^[A-Za-z0-9_./:-]{1,128}$",
    |s| (1..=128).contains(&s.len())
        && s.bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_./:".contains(&b))
);

string_type!(
    /// A fully qualified host name in lower case, without the trailing dot (`hello.fn.test`).
    HostName,
    "host name",
    "labels of lower-case letters, digits and hyphens, joined by dots, 253 characters at most",
    "^[a-z0-9.-]{1,253}$",
    |s| s.len() <= HOST_NAME_MAX && s.split('.').all(is_label)
);

string_type!(
    /// The name of a DNS record in lower case, without the trailing dot: like a host name, but labels may contain underscores
    /// (`_acme-challenge.hello.fn.test`).
    RecordName,
    "record name",
    "labels of 1 to 63 lower-case letters, digits, hyphens and underscores, joined by dots, 253 characters at most",
    "^[a-z0-9_.-]{1,253}$",
    |s| s.len() <= HOST_NAME_MAX && s.split('.').all(is_record_label)
);

/// Whether `s` is a label of a record's name (RFC 2181, section 11; RFC 8552 for underscores): 1 to 63 of `a-z 0-9 - _`.
fn is_record_label(s: &str) -> bool {
    (1..=LABEL_MAX).contains(&s.len())
        && s.bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_'))
}

impl RecordName {
    /// Parses a name leniently: upper case and a trailing dot are accepted.
    ///
    /// # Errors
    /// When the rest is not a name.
    pub fn parse_lenient(s: &str) -> Result<Self, ParseError> {
        s.strip_suffix('.')
            .unwrap_or(s)
            .to_ascii_lowercase()
            .parse()
    }

    /// The part before `zone`, without the separating dot: empty for the zone's own name, `None` for names outside it.
    #[must_use]
    pub fn below(&self, zone: &HostName) -> Option<&str> {
        let left = self.as_str().strip_suffix(zone.as_str())?;
        if left.is_empty() {
            Some(left)
        } else {
            left.strip_suffix('.')
        }
    }
}

impl HostName {
    /// The host name of `app` in this zone.
    ///
    /// # Errors
    /// When label and zone together exceed the 253 characters of a name.
    pub fn of_app(app: &AppName, zone: &HostName) -> Result<Self, ParseError> {
        format!("{app}.{zone}").parse()
    }

    /// Parses a host name as it appears in a `Host` header or a DNS query: upper case, a trailing dot, and a `:port` are accepted.
    ///
    /// # Errors
    /// When the rest is not a host name.
    pub fn parse_lenient(s: &str) -> Result<Self, ParseError> {
        let host = match s.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
            _ => s,
        };
        host.strip_suffix('.')
            .unwrap_or(host)
            .to_ascii_lowercase()
            .parse()
    }
}

impl From<FunctionName> for AppName {
    /// A plain function is also an app with the same name: a workflow of one stage.
    fn from(value: FunctionName) -> Self {
        Self(value.0)
    }
}

impl From<AppName> for FunctionName {
    fn from(value: AppName) -> Self {
        Self(value.0)
    }
}

impl TenantId {
    /// The tag that nodes get instead of the id: the same for all apps of the tenant, and not reversible.
    #[must_use]
    pub fn tag(self) -> TenantTag {
        let digest = Digest::of(format!("fdn tenant tag {self}").as_bytes());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest.as_bytes()[..16]);
        TenantTag(uuid::Builder::from_custom_bytes(bytes).into_uuid())
    }
}

macro_rules! uuid_type {
    ($(#[$doc:meta])* $name:ident, $prefix:literal, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
        #[serde(try_from = "String", into = "String")]
        #[schema(value_type = String)]
        pub struct $name(Uuid);

        impl $name {
            /// Wraps a UUID provided by the caller.
            #[must_use]
            pub const fn from_uuid(uuid: Uuid) -> Self {
                Self(uuid)
            }

            /// The UUID.
            #[must_use]
            pub const fn uuid(self) -> Uuid {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "_{}"), self.0.simple())
            }
        }

        impl FromStr for $name {
            type Err = ParseError;

            fn from_str(s: &str) -> Result<Self, ParseError> {
                let error = || ParseError::new($what, s, concat!($prefix, "_ followed by 32 hexadecimal digits"));
                let rest = s.strip_prefix(concat!($prefix, "_")).ok_or_else(error)?;
                Uuid::try_parse(rest).map(Self).map_err(|_| error())
            }
        }

        impl TryFrom<String> for $name {
            type Error = ParseError;

            fn try_from(s: String) -> Result<Self, ParseError> {
                s.parse()
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> String {
                value.to_string()
            }
        }
    };
}

uuid_type!(
    /// The id of a tenant, which owns functions and apps: `ten_` and 32 hexadecimal digits.
    TenantId,
    "ten",
    "tenant id"
);
uuid_type!(
    /// The tag by which a node tells the apps of one tenant from those of others; derived from the tenant's id without revealing it.
    TenantTag,
    "tag",
    "tenant tag"
);
uuid_type!(
    /// The id of a job, an asynchronous call of an app: `job_` and 32 hexadecimal digits.
    JobId,
    "job",
    "job id"
);
uuid_type!(
    /// The id of a run of a workflow: `run_` and 32 hexadecimal digits.
    RunId,
    "run",
    "run id"
);
uuid_type!(
    /// The id of a message between processes, by which consumers recognise duplicates, or of an agent's start: `msg_` and 32 hexadecimal
    /// digits.
    MessageId,
    "msg",
    "message id"
);
uuid_type!(
    /// The id of an instance, a running copy of a function version on a node: `ins_` and 32 hexadecimal digits.
    InstanceId,
    "ins",
    "instance id"
);
uuid_type!(
    /// The id of an invocation, a call of one stage, by which it is billed: `inv_` and 32 hexadecimal digits.
    InvocationId,
    "inv",
    "invocation id"
);
uuid_type!(
    /// The id of a batch of usage sums or records, which a node sends until it is confirmed.
    BatchId,
    "bat",
    "batch id"
);

uuid_type!(
    /// The id of a join token, which is not secret: `jtk_` and 32 hexadecimal digits.
    JoinTokenId,
    "jtk",
    "join token id"
);
uuid_type!(
    /// The id of a key of an app's caller, which is not secret: `key_` and 32 hexadecimal digits.
    KeyId,
    "key",
    "key id"
);
uuid_type!(
    /// A data key, which encrypts the secrets of a tenant.
    DataKeyId,
    "dk",
    "data key id"
);
uuid_type!(
    /// The id of a session, which is not secret: `ses_` and 32 hexadecimal digits.
    SessionId,
    "ses",
    "session id"
);
uuid_type!(
    /// The id of an API token, which is not secret: `fdn_` and 32 hexadecimal digits. The token is this id, an underscore and a secret.
    ApiTokenId,
    "fdn",
    "API token id"
);
uuid_type!(
    /// One enrolment of a node: a new one is assigned whenever the node joins.
    EnrolmentId,
    "enr",
    "enrolment id"
);

/// The number of a version: 1, 2, 3 … within its function, never reused.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(try_from = "u32", into = "u32")]
#[schema(value_type = u32)]
pub struct VersionNumber(u32);

impl VersionNumber {
    /// The first version of every function.
    pub const FIRST: Self = Self(1);

    /// The version number as an integer.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl TryFrom<u32> for VersionNumber {
    type Error = ParseError;

    fn try_from(n: u32) -> Result<Self, ParseError> {
        if n == 0 {
            return Err(ParseError::new(
                "version number",
                "0",
                "a whole number from 1 up",
            ));
        }
        Ok(Self(n))
    }
}

impl From<VersionNumber> for u32 {
    fn from(value: VersionNumber) -> u32 {
        value.0
    }
}

impl FromStr for VersionNumber {
    type Err = ParseError;

    fn from_str(s: &str) -> Result<Self, ParseError> {
        s.strip_prefix('v')
            .unwrap_or(s)
            .parse::<u32>()
            .ok()
            .and_then(|n| Self::try_from(n).ok())
            .ok_or_else(|| {
                ParseError::new(
                    "version number",
                    s,
                    "a whole number from 1 up, with or without a leading v",
                )
            })
    }
}

impl fmt::Display for VersionNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_follow_rfc_1123() {
        for good in ["a", "hello", "eu-west-1", "0abc", &"x".repeat(63)] {
            assert!(good.parse::<AppName>().is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "Hello", "a_b", "a.b", "ä", &"x".repeat(64)] {
            let error = bad.parse::<AppName>().expect_err(bad);
            assert!(error.to_string().contains("app name"), "{error}");
        }
    }

    #[test]
    fn names_of_records_may_hold_underscores_and_know_their_zone() {
        let name = RecordName::parse_lenient("_ACME-challenge.Hello.fn.test.").expect("a name");
        assert_eq!(name.as_str(), "_acme-challenge.hello.fn.test");
        let below = |name: &str| {
            let name: RecordName = name.parse().expect("a name");
            let zone = "fn.test".parse().expect("zone");
            name.below(&zone).map(str::to_owned)
        };
        assert_eq!(below("_a.hello.fn.test").as_deref(), Some("_a.hello"));
        assert_eq!(below("fn.test").as_deref(), Some(""));
        assert_eq!((below("xfn.test"), below("a.example.org")), (None, None));
        let long = format!("{}.fn.test", "a".repeat(64));
        for wrong in [
            "",
            ".",
            "a..b",
            "*.fn.test",
            "A.fn.test",
            "a b.fn.test",
            long.as_str(),
        ] {
            assert!(wrong.parse::<RecordName>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn host_header_forms_are_one_name() {
        let zone: HostName = "fn.test".parse().expect("zone");
        let host = HostName::of_app(&"hello".parse().expect("app"), &zone).expect("host");
        for form in ["hello.fn.test", "HELLO.fn.test.", "hello.FN.test:8080"] {
            assert_eq!(HostName::parse_lenient(form).expect(form), host);
        }
        assert!(HostName::parse_lenient("a..b").is_err());
        assert!(HostName::parse_lenient("").is_err());
    }

    #[test]
    fn ids_print_with_their_kind_and_refuse_another_kind() {
        let uuid = Uuid::from_u128(7);
        let text = MessageId::from_uuid(uuid).to_string();
        assert_eq!(text, "msg_00000000000000000000000000000007");
        assert_eq!(text.parse::<MessageId>().expect("own kind").uuid(), uuid);
        assert!(text.parse::<TenantId>().is_err());
    }

    #[test]
    fn a_tenants_tag_is_always_the_same_and_does_not_show_its_id() {
        let tenant = |n| TenantId::from_uuid(Uuid::from_u128(n));
        let text = tenant(7).tag().to_string();
        // Nodes of two releases must agree on it, and so must controllers.
        assert_eq!(text, "tag_73f62e8e02de8053baff0ea6bbe14df8");
        assert_eq!(text.parse::<TenantTag>().expect("a tag"), tenant(7).tag());
        assert_ne!(tenant(7).tag(), tenant(8).tag());
        assert_ne!(tenant(7).tag().uuid(), tenant(7).uuid());
    }

    #[test]
    fn versions_count_from_one() {
        assert_eq!("v3".parse::<VersionNumber>().expect("v3").get(), 3);
        assert_eq!("3".parse::<VersionNumber>().expect("3").to_string(), "v3");
        assert!("0".parse::<VersionNumber>().is_err());
        assert!("latest".parse::<VersionNumber>().is_err());
    }
}
