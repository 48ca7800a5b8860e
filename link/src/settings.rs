//! Settings of the connection to the controllers, and the files of a machine's identity.

use std::path::{Path, PathBuf};

use fdn_core::{ByteSize, DurationMs};
use fdn_service::ServiceError;
use fdn_service::pki::tls::Credentials;
use fdn_service::secret;
use serde::{Deserialize, Serialize};

use crate::error::LinkError;
use crate::proxy;

/// How edge machines reach the controllers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ControllerLinkSettings {
    /// The edge listeners of all controllers, as `HOST:PORT`; joining provides them. The machine connects to one of them, and to another if
    /// that one dies.
    pub controllers: Vec<String>,
    /// The proxy for connections to them, as `http://HOST:PORT`, if this network allows no direct ones.
    pub proxy: Option<String>,
    /// The time limit for connecting, including the TLS handshake.
    pub connect_timeout: DurationMs,
    /// The time limit for an answer.
    pub answer_timeout: DurationMs,
    /// When a controller dies, its machines move to the others within this time, each at a random moment.
    pub spread: DurationMs,
    /// The pause after all controllers were tried without success; it doubles each time.
    pub retry_first: DurationMs,
    /// The longest such pause.
    pub retry_max: DurationMs,
    /// The most bytes of a snapshot, and of a single message.
    pub snapshot_limit: ByteSize,
}

impl Default for ControllerLinkSettings {
    fn default() -> Self {
        Self {
            controllers: Vec::new(),
            proxy: None,
            connect_timeout: DurationMs::from_secs(2),
            answer_timeout: DurationMs::from_secs(15),
            spread: DurationMs::from_millis(500),
            retry_first: DurationMs::from_millis(500),
            retry_max: DurationMs::from_secs(30),
            snapshot_limit: ByteSize::from_mib(512),
        }
    }
}

impl ControllerLinkSettings {
    /// Checks the settings.
    ///
    /// # Errors
    /// The first invalid setting, by its key.
    pub fn check(&self) -> Result<(), LinkError> {
        let bad = |text: String| Err(LinkError::Settings(text));
        for controller in &self.controllers {
            if host_of(controller).is_none() {
                return bad(format!(
                    "centre.controllers: `{controller}` is no HOST:PORT of a controller's edge listener"
                ));
            }
        }
        if let Some(proxy) = &self.proxy
            && proxy::address(proxy).is_none()
        {
            return bad(format!(
                "centre.proxy: `{proxy}` is no http://HOST:PORT of a proxy"
            ));
        }
        let times = [
            self.connect_timeout,
            self.answer_timeout,
            self.retry_first,
            self.retry_max,
        ];
        if times.iter().any(|time| time.as_millis() < 10) {
            return bad(
                "centre.connect_timeout, answer_timeout, retry_first and retry_max must be at least 10ms"
                    .to_owned(),
            );
        }
        if self.snapshot_limit.as_bytes() == 0 {
            return bad("centre.snapshot_limit must be positive".to_owned());
        }
        Ok(())
    }
}

/// The host of `HOST:PORT`; `None` if the text has another form.
pub(crate) fn host_of(controller: &str) -> Option<&str> {
    let (host, port) = controller.rsplit_once(':')?;
    let port: u16 = port.parse().ok()?;
    let host = host
        .strip_prefix('[')
        .map_or(Some(host), |host| host.strip_suffix(']'))?;
    (port > 0 && !host.is_empty()).then_some(host)
}

/// The paths of the files of a machine's identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityFiles {
    /// The certificates of the network's authorities.
    pub ca: PathBuf,
    /// The machine's certificate.
    pub certificate: PathBuf,
    /// The machine's private key.
    pub key: PathBuf,
}

impl IdentityFiles {
    /// Reads the files afresh: certificates are renewed while the machine runs.
    ///
    /// # Errors
    /// When one of them cannot be read.
    pub fn read(&self) -> Result<Credentials, ServiceError> {
        let text = |path: &Path| {
            std::fs::read_to_string(path).map_err(|e| ServiceError::File {
                path: path.to_owned(),
                reason: format!("{e}; join the network first"),
            })
        };
        Ok(Credentials {
            authorities: text(&self.ca)?,
            certificate: text(&self.certificate)?,
            key: secret::read(&self.key)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_hosts_with_ports() {
        for (text, host) in [
            ("10.0.0.1:8601", Some("10.0.0.1")),
            (
                "controller.example.org:8601",
                Some("controller.example.org"),
            ),
            ("[2001:db8::1]:8601", Some("2001:db8::1")),
            ("controller.example.org", None),
            (
                "https://controller.example.org:8601",
                Some("https://controller.example.org"),
            ),
            (":8601", None),
            ("a:0", None),
        ] {
            assert_eq!(host_of(text), host, "{text}");
        }
        let with = |controllers: &[&str]| ControllerLinkSettings {
            controllers: controllers.iter().map(|&one| one.to_owned()).collect(),
            ..ControllerLinkSettings::default()
        };
        assert!(with(&["a:1", "b:2"]).check().is_ok());
        assert!(with(&["a"]).check().is_err());
        let through = |proxy: &str| ControllerLinkSettings {
            proxy: Some(proxy.to_owned()),
            ..ControllerLinkSettings::default()
        };
        assert!(through("http://proxy.example.org:3128").check().is_ok());
        assert!(through("proxy.example.org:3128").check().is_err());
    }
}
