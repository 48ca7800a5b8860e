//! Settings of what guards the server and those it answers: what it tells about itself, cookies, and limits on answers.

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

/// Bytes of a character string (RFC 1035, section 3.3).
const STRING_MAX: usize = 255;
/// The largest table of buckets: 1 GiB.
const BUCKETS_MAX: usize = 1 << 26;

/// What the server tells about itself to whoever asks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IdentitySettings {
    /// Which of several servers this is (NSID, `id.server`).
    pub nsid: Option<String>,
    /// What runs here (`version.server`).
    pub version: Option<String>,
}

/// Cookies (RFC 7873).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CookieSettings {
    /// Whether they are given out.
    pub enabled: bool,
    /// A file with the keys, one of 32 hexadecimal digits in each line, the one in use first. Absent: a key of this process's own.
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

/// Limits on answers over UDP to one network. For rates 0 is no limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitSettings {
    /// An answer is shorter than so many times its request. 0: no such bound.
    pub amplification: u16,
    /// Answers for one name, each second.
    pub names_per_second: u32,
    /// Answers that a name does not exist, or made of a wildcard, each second.
    pub zone_per_second: u32,
    /// Errors, each second.
    pub errors_per_second: u32,
    /// Answers of all kinds, each second.
    pub total_per_second: u32,
    /// For how long a network may save up what it did not use.
    pub burst: DurationMs,
    /// One in so many requests beyond a limit is sent to TCP. 0: none.
    pub slip: u16,
    /// Leading bits of an IPv4 address that make a network.
    pub ipv4_prefix: u8,
    /// Leading bits of an IPv6 address that make a network.
    pub ipv6_prefix: u8,
    /// Networks without limits.
    pub exempt: Vec<ClientPrefix>,
    /// Counters in each of two tables, of 8 bytes each.
    pub buckets: usize,
}

impl Default for LimitSettings {
    fn default() -> Self {
        // The loopback addresses cannot be forged from outside.
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
    /// Checks what guards the server, apart from files.
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

    /// What guards the server, with the cookies' keys read.
    ///
    /// # Errors
    /// When the file of keys cannot be read or holds something else.
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
