//! Settings that protect the server and its clients: identification, cookies, and rate limits.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fdn_core::{ClientPrefix, DurationMs};
use fdn_service::secret;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::handler::Guard;
use crate::handler::cookie::CookieKeys;
use crate::handler::identity::Identity;
use crate::handler::limit::{Limiter, Limits};

use super::Settings;

/// The longest character string in bytes (RFC 1035, section 3.3).
const STRING_MAX: usize = 255;
/// The largest number of buckets per table: 1 GiB for both tables.
const BUCKETS_MAX: usize = 1 << 26;

/// The server's identification in answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IdentitySettings {
    /// The name of this server among several (NSID, `id.server`).
    pub nsid: Option<String>,
    /// The software version (`version.server`).
    pub version: Option<String>,
}

/// DNS cookies (RFC 7873).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CookieSettings {
    /// Whether cookies are used.
    pub enabled: bool,
    /// A file with the keys, one per line of 32 hexadecimal digits, the current one first. Absent: a random key of this process.
    pub key_file: Option<PathBuf>,
}

impl Default for CookieSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            key_file: None,
        }
    }
}

/// Rate limits on answers over UDP to one network. A rate of 0 means no limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitSettings {
    /// An answer must be shorter than this many times its request. 0: no such limit.
    pub amplification: u16,
    /// Answers about one name, per second.
    pub names_per_second: u32,
    /// Negative answers (no such name) and wildcard answers, per second.
    pub zone_per_second: u32,
    /// Errors, per second.
    pub errors_per_second: u32,
    /// Answers of all kinds, per second.
    pub total_per_second: u32,
    /// The period for which a network's unused allowance accumulates.
    pub burst: DurationMs,
    /// One in this many requests beyond a limit is sent to TCP. 0: none.
    pub slip: u16,
    /// The prefix length of an IPv4 network, in bits.
    pub ipv4_prefix: u8,
    /// The prefix length of an IPv6 network, in bits.
    pub ipv6_prefix: u8,
    /// Networks without rate limits.
    pub exempt: Vec<ClientPrefix>,
    /// The number of counters in each of the two tables, of 8 bytes each.
    pub buckets: usize,
}

impl Default for LimitSettings {
    fn default() -> Self {
        // Loopback addresses cannot be forged from outside.
        let exempt = ["127.0.0.0/8", "::1/128"].map(|p| p.parse().expect("a prefix"));
        Self {
            amplification: 10,
            names_per_second: 1000,
            zone_per_second: 500,
            errors_per_second: 50,
            total_per_second: 5000,
            burst: DurationMs::from_secs(5),
            slip: 2,
            ipv4_prefix: 24,
            ipv6_prefix: 56,
            exempt: exempt.into(),
            buckets: 65_536,
        }
    }
}

impl Settings {
    /// Checks these settings, without reading files.
    pub(super) fn validate_guard(&self) -> Result<(), Error> {
        let fail = |key, reason: &str| {
            Err(Error::Setting {
                key,
                reason: reason.to_owned(),
            })
        };
        for (key, text) in [
            ("identity.nsid", &self.identity.nsid),
            ("identity.version", &self.identity.version),
        ] {
            if text
                .as_ref()
                .is_some_and(|t| t.is_empty() || t.len() > STRING_MAX)
            {
                return fail(key, "must be 1 to 255 bytes long, or be absent");
            }
        }
        if self.limit.amplification == 1 {
            return fail(
                "limit.amplification",
                "must be 0 or at least 2: an answer repeats its question",
            );
        }
        if self.limit.ipv4_prefix > 32 {
            return fail("limit.ipv4_prefix", "must be at most 32");
        }
        if self.limit.ipv6_prefix > 128 {
            return fail("limit.ipv6_prefix", "must be at most 128");
        }
        if !(1..=BUCKETS_MAX).contains(&self.limit.buckets) {
            return fail("limit.buckets", "must be between 1 and 67108864");
        }
        Ok(())
    }

    /// The protections, with the cookie keys and transfer keys read from their files.
    ///
    /// # Errors
    /// When a key file cannot be read or has an invalid format.
    pub fn guard(&self) -> Result<Guard, Error> {
        let limit = &self.limit;
        let cookies = match (&self.cookie.enabled, &self.cookie.key_file) {
            (false, _) => None,
            (true, None) => Some(CookieKeys::random()),
            (true, Some(path)) => Some(keys(path)?),
        };
        let limits = Limits {
            names: limit.names_per_second,
            zone: limit.zone_per_second,
            errors: limit.errors_per_second,
            total: limit.total_per_second,
            burst: Duration::from_millis(limit.burst.as_millis()),
            slip: limit.slip,
            ipv4_len: limit.ipv4_prefix,
            ipv6_len: limit.ipv6_prefix,
            exempt: limit.exempt.clone(),
            buckets: limit.buckets,
        };
        Ok(Guard {
            identity: Identity {
                name: self.identity.nsid.clone(),
                version: self.identity.version.clone(),
            },
            cookies,
            limiter: Some(Limiter::new(limits)),
            amplification: limit.amplification,
            transfers: self.transfers()?,
        })
    }
}

fn keys(path: &Path) -> Result<CookieKeys, Error> {
    let text = secret::read(path)?;
    CookieKeys::parse(text.expose()).ok_or_else(|| Error::Setting {
        key: "cookie.key_file",
        reason: format!(
            "must name a file with 32 hexadecimal digits in each line; {} is not one",
            path.display()
        ),
    })
}
