//! The hosts that a function may call.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::ParseError;

/// A host that a function may call: `api.example.com`, `api.example.com:8443`, or `*.example.com`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AllowedHost {
    name: String,
    wildcard: bool,
    port: Option<u16>,
}

impl AllowedHost {
    /// Whether the entry allows a request to `host` (without port) on `port`. An entry without a port allows 80 and 443.
    #[must_use]
    pub fn covers(&self, host: &str, port: u16) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        let name_fits = if self.wildcard {
            host.strip_suffix(&self.name)
                .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
        } else {
            host == self.name
        };
        name_fits
            && self
                .port
                .map_or(port == 80 || port == 443, |own| own == port)
    }
}

impl fmt::Display for AllowedHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.wildcard {
            f.write_str("*.")?;
        }
        f.write_str(&self.name)?;
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}

impl FromStr for AllowedHost {
    type Err = ParseError;

    fn from_str(s: &str) -> Result<Self, ParseError> {
        let error = || {
            ParseError::new(
                "allowed host",
                s,
                "a host name or *.domain, with an optional :port, and no scheme or path",
            )
        };
        let (host, port) = match s.rsplit_once(':') {
            Some((host, port)) => (host, Some(port.parse::<u16>().map_err(|_| error())?)),
            None => (s, None),
        };
        let (name, wildcard) = match host.strip_prefix("*.") {
            Some(rest) => (rest, true),
            None => (host, false),
        };
        let plain = name.split('.').all(|l| {
            !l.is_empty()
                && l.len() <= 63
                && l.bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        });
        if !plain || name.len() > 253 || port == Some(0) {
            return Err(error());
        }
        Ok(Self {
            name: name.to_ascii_lowercase(),
            wildcard,
            port,
        })
    }
}

impl TryFrom<String> for AllowedHost {
    type Error = ParseError;

    fn try_from(s: String) -> Result<Self, ParseError> {
        s.parse()
    }
}

impl From<AllowedHost> for String {
    fn from(value: AllowedHost) -> String {
        value.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowed_hosts_cover_what_they_say_and_no_more() {
        let host = |s: &str| s.parse::<AllowedHost>().expect("allowed host");
        assert!(host("api.example.com").covers("API.example.com.", 443));
        assert!(!host("api.example.com").covers("api.example.com", 8080));
        assert!(!host("api.example.com").covers("evil-api.example.com", 443));
        assert!(host("*.example.com").covers("a.b.example.com", 80));
        assert!(!host("*.example.com").covers("example.com", 80));
        assert!(!host("*.example.com").covers("notexample.com", 80));
        assert!(host("127.0.0.1:9000").covers("127.0.0.1", 9000));
        assert!("".parse::<AllowedHost>().is_err());
        assert!("*".parse::<AllowedHost>().is_err());
        assert!("a:99999".parse::<AllowedHost>().is_err());
    }
}
