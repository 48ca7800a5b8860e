//! Settings of the operator's own records, and their conversion to records of the zone.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use fdn_core::{DurationMs, HostName};
use hickory_proto::rr::{LowerName, Name};
use serde::{Deserialize, Serialize};

use super::ZoneSettings;
use crate::error::Error;
use crate::policy::records::{NamedRecords, Service, caa, text};
use crate::policy::zone::{address, name_of};

/// The most bytes of text at one name: far below the limit of a message.
const TEXT_MAX: usize = 4096;

/// A name of the zone as written by an operator: like a host name, but labels may contain underscores, and the first may be `*`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RecordName(Name);

impl RecordName {
    /// The name as a DNS name.
    #[must_use]
    pub const fn name(&self) -> &Name {
        &self.0
    }
}

impl TryFrom<String> for RecordName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let labels: Vec<&str> = text.strip_suffix('.').unwrap_or(&text).split('.').collect();
        let fine = labels.iter().enumerate().all(|(index, label)| {
            (index == 0 && *label == "*")
                || (!label.is_empty() && label.as_bytes().iter().all(allowed))
        });
        let name = Name::from_labels(labels.iter().map(|label| label.as_bytes()))
            .map_err(|cause| cause.to_string());
        match name {
            Ok(mut name) if fine => {
                name.set_fqdn(true);
                Ok(Self(name.to_lowercase()))
            }
            _ => Err(format!(
                "{text:?} is no name: labels of 1 to 63 letters, digits, hyphens and underscores, the first may be *"
            )),
        }
    }
}

impl From<RecordName> for String {
    fn from(name: RecordName) -> Self {
        name.to_string()
    }
}

impl fmt::Display for RecordName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Displayed as it was parsed: the library's `Display` escapes a hyphen at the beginning of a label.
        for (index, label) in self.0.iter().enumerate() {
            let dot = if index == 0 { "" } else { "." };
            write!(f, "{dot}{}", String::from_utf8_lossy(label))?;
        }
        Ok(())
    }
}

/// The records of one name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordSettings {
    /// The name, in the zone.
    pub name: RecordName,
    /// The time to live; absent: the zone's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<DurationMs>,
    /// The texts, each in a TXT record of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub txt: Vec<String>,
    /// The addresses, in A and AAAA records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
    /// The certificate authorities that may issue certificates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caa: Vec<CaaSettings>,
    /// HTTPS records: how its web service is reached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub https: Vec<ServiceSettings>,
    /// SVCB records: how another service is reached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub svcb: Vec<ServiceSettings>,
}

/// A certificate authority that may issue certificates (RFC 8659).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaaSettings {
    /// `issue`, `issuewild`, `iodef` or another.
    pub tag: String,
    /// The authority's domain with its parameters, or what else the tag requires.
    pub value: String,
    /// Whether an authority that does not know the tag must refuse to issue.
    #[serde(default)]
    pub critical: bool,
}

/// How a service is reached (RFC 9460).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceSettings {
    /// The order in which alternatives are tried, lowest first; 0 makes it an alias.
    #[serde(default = "one")]
    pub priority: u16,
    /// The host of the service; absent: the queried name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<HostName>,
    /// Protocols besides the scheme's default, preferred ones first, such as `h2` and `h3`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alpn: Vec<String>,
    /// The port, unless it is the scheme's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

const fn one() -> u16 {
    1
}

impl ServiceSettings {
    fn service(&self, key: &'static str) -> Result<Service, Error> {
        let fail = |reason: &str| {
            Err(Error::Setting {
                key,
                reason: reason.to_owned(),
            })
        };
        if self.priority == 0 && (!self.alpn.is_empty() || self.port.is_some()) {
            return fail(
                "an alias (priority 0) has neither alpn nor port (RFC 9460, section 2.4.2)",
            );
        }
        if self.priority == 0 && self.target.is_none() {
            return fail("an alias (priority 0) needs a target");
        }
        if self.alpn.iter().any(|id| id.is_empty() || id.len() > 255) {
            return fail("a protocol of alpn has 1 to 255 bytes");
        }
        Ok(Service {
            priority: self.priority,
            target: self.target.as_ref().map_or_else(Name::root, name_of),
            alpn: self.alpn.clone(),
            port: self.port,
        })
    }
}

impl ZoneSettings {
    /// The operator's own records. `servers` are the zone's name servers, `ttl` its time to live in seconds.
    pub(super) fn named_records(
        &self,
        servers: &[(HostName, Vec<IpAddr>)],
        ttl: u32,
    ) -> Result<Vec<NamedRecords>, Error> {
        let apex = LowerName::new(&name_of(&self.name));
        let mut seen = BTreeSet::new();
        self.records
            .iter()
            .map(|record| {
                let fail = |reason: String| Error::Setting {
                    key: "zone.records",
                    reason,
                };
                let name = &record.name;
                if !apex.zone_of(&LowerName::new(name.name())) {
                    return Err(fail(format!("has {name}, which is not in the zone")));
                }
                if !seen.insert(name.to_string()) {
                    return Err(fail(format!("has {name} twice")));
                }
                let server = servers
                    .iter()
                    .any(|(host, _)| name_of(host) == *name.name());
                if server && !record.addresses.is_empty() {
                    return Err(fail(format!(
                        "has addresses for {name}; those of name servers stand in zone.servers"
                    )));
                }
                record.named(ttl)
            })
            .collect()
    }

    /// The HTTPS record of apps, if there is one.
    pub(super) fn service_of_apps(&self) -> Result<Option<Service>, Error> {
        self.app_service
            .as_ref()
            .map(|service| service.service("zone.app_service"))
            .transpose()
    }
}

impl RecordSettings {
    fn named(&self, zone_ttl: u32) -> Result<NamedRecords, Error> {
        const KEY: &str = "zone.records";
        let name = &self.name;
        let fail = |reason: String| Error::Setting { key: KEY, reason };
        let bad_tag = |caa: &&CaaSettings| {
            !(1..=15).contains(&caa.tag.len())
                || !caa.tag.bytes().all(|byte| byte.is_ascii_alphanumeric())
        };
        if let Some(caa) = self.caa.iter().find(bad_tag) {
            return Err(fail(format!(
                "has the CAA tag {:?} for {name}; a tag is 1 to 15 letters and digits",
                caa.tag
            )));
        }
        if self.txt.iter().map(String::len).sum::<usize>() > TEXT_MAX {
            return Err(fail(format!(
                "has over {TEXT_MAX} bytes of text for {name}"
            )));
        }
        let ttl = match self.ttl {
            // RFC 2181, section 8: a TTL is at most 2^31 - 1.
            Some(ttl) => i32::try_from(ttl.as_millis() / 1000)
                .map_err(|_| fail(format!("has a ttl of 2^31 seconds or more for {name}")))?
                .unsigned_abs(),
            None => zone_ttl,
        };
        let mut data: Vec<_> = self.txt.iter().map(|value| text(value)).collect();
        data.extend(self.addresses.iter().map(|addr| address(*addr)));
        data.extend(self.caa.iter().map(|c| caa(c.critical, &c.tag, &c.value)));
        for service in &self.https {
            data.push(service.service(KEY)?.https());
        }
        for service in &self.svcb {
            data.push(service.service(KEY)?.svcb());
        }
        if data.is_empty() {
            return Err(fail(format!("has {name} without any record")));
        }
        Ok(NamedRecords {
            name: name.name().clone(),
            ttl,
            data,
        })
    }
}
