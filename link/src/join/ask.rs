//! The two calls by which a machine gets and renews its certificate at the controllers' API.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::path::Path;
use std::time::Duration;

use fdn_core::Problem;
use fdn_core::enrol::{EnrolRequest, EnrolResponse, RenewRequest, RenewResponse};
use fdn_service::http_client::without_url;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::warn;

use super::JoinError;

/// The longest silence of the controller.
const IDLE: Duration = Duration::from_secs(30);
/// The largest answer that is read.
const ANSWER_MAX: usize = 4 << 20;

/// The controller.
#[derive(Clone, Debug)]
pub struct Controller {
    url: reqwest::Url,
    client: reqwest::Client,
}

impl Controller {
    /// This machine's address that packets to the controller leave from. Nothing is sent: connecting a datagram socket only looks the way up.
    ///
    /// # Errors
    /// When there is no way.
    pub fn own_address(&self) -> Result<IpAddr, JoinError> {
        let (host, port) = self.host_and_port();
        let unreachable = |reason: String| JoinError::Unreachable {
            url: self.url(),
            reason,
        };
        let found = (host.as_str(), port).to_socket_addrs();
        let found = found.map_err(|e| unreachable(e.to_string()))?;
        let mut last = "its name has no address".to_owned();
        for address in found {
            let any: SocketAddr = if address.is_ipv4() {
                ([0, 0, 0, 0], 0).into()
            } else {
                ([0_u16; 8], 0).into()
            };
            let way = UdpSocket::bind(any).and_then(|socket| {
                socket.connect(address)?;
                socket.local_addr()
            });
            match way {
                Ok(local) => return Ok(local.ip()),
                Err(error) => last = error.to_string(),
            }
        }
        Err(unreachable(last))
    }

    /// The controller at `url`, whose certificate is checked against the authorities in `ca_file`, or without one those of the web.
    ///
    /// # Errors
    /// When that is no address, or the file holds no authorities.
    pub fn new(url: &str, ca_file: Option<&Path>) -> Result<Self, JoinError> {
        let parsed = reqwest::Url::parse(url).ok();
        let usable = parsed.filter(|parsed| {
            matches!(parsed.scheme(), "http" | "https")
                && parsed.host_str().is_some()
                && parsed.username().is_empty()
                && parsed.password().is_none()
        });
        let url = usable.ok_or_else(|| JoinError::Url {
            url: url.to_owned(),
        })?;
        Ok(Self {
            url,
            client: fdn_service::http_client::build_trusting(IDLE, ca_file)?,
        })
    }

    /// The same for a machine that has joined: nothing, with a word of what to do, if the file cannot be used. It asks there only when its certificate is
    /// about to end and it has no connection to a controller, so it goes on without. `join` is the command that takes another file.
    ///
    /// # Errors
    /// When that is no address.
    pub fn of_member(
        url: &str,
        ca_file: Option<&Path>,
        join: &str,
    ) -> Result<Option<Self>, JoinError> {
        let without = Self::new(url, None)?;
        let Some(path) = ca_file else {
            return Ok(Some(without));
        };
        match Self::new(url, Some(path)) {
            Ok(controller) => Ok(Some(controller)),
            Err(error) => {
                warn!(
                    file = %path.display(), %error,
                    "the authorities of the controllers' API cannot be used: certificates are renewed over the connection to a controller alone; \
                     give the file anew with `{join} {} --ca-file FILE --token-file FILE` (the token is not used), and start this program again",
                    without.url()
                );
                Ok(None)
            }
        }
    }

    /// Its address as people write it.
    #[must_use]
    pub fn url(&self) -> String {
        self.url.as_str().trim_end_matches('/').to_owned()
    }

    /// Its host and port.
    #[must_use]
    pub fn host_and_port(&self) -> (String, u16) {
        let host = self.url.host_str().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        (
            host.to_owned(),
            self.url.port_or_known_default().unwrap_or(443),
        )
    }

    /// Refuses to send secrets where they could be read on the way.
    ///
    /// # Errors
    /// When the address is not https, not on this machine, and nobody said that it is fine.
    pub fn check_safety(&self, allowed: bool) -> Result<(), JoinError> {
        let (host, _) = self.host_and_port();
        let here = host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
        if self.url.scheme() == "https" || here || allowed {
            Ok(())
        } else {
            Err(JoinError::Insecure { url: self.url() })
        }
    }

    /// Asks to be let in.
    ///
    /// # Errors
    /// When the controller refuses or cannot be reached.
    pub async fn enrol(&self, request: &EnrolRequest) -> Result<EnrolResponse, JoinError> {
        self.post("enrol", request).await
    }

    /// Asks for the next certificate.
    ///
    /// # Errors
    /// When the controller refuses or cannot be reached.
    pub async fn renew(&self, request: &RenewRequest) -> Result<RenewResponse, JoinError> {
        self.post("renew", request).await
    }

    async fn post<Q: Serialize, A: DeserializeOwned>(
        &self,
        what: &str,
        body: &Q,
    ) -> Result<A, JoinError> {
        let unreachable = |error| JoinError::Unreachable {
            url: self.url(),
            reason: without_url(error),
        };
        let url = format!("{}/v1/nodes/{what}", self.url());
        let mut answer = self
            .client
            .post(url)
            .json(body)
            .send()
            .await
            .map_err(unreachable)?;
        let status = answer.status();
        let mut octets = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(unreachable)? {
            if octets.len() + chunk.len() > ANSWER_MAX {
                return Err(self.foreign("the answer is too long"));
            }
            octets.extend_from_slice(&chunk);
        }
        if status.is_success() {
            return serde_json::from_slice(&octets).map_err(|e| self.foreign(&e.to_string()));
        }
        match serde_json::from_slice::<Problem>(&octets) {
            Ok(problem) => Err(JoinError::Refused(Box::new(problem))),
            Err(_) => Err(self.foreign(&format!("status {}", status.as_u16()))),
        }
    }

    fn foreign(&self, reason: &str) -> JoinError {
        JoinError::Foreign {
            url: self.url(),
            reason: reason.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_the_controller_says_who_we_are() {
        let controller = Controller::new("http://127.0.0.1:9", None).expect("an address");
        let own = controller.own_address().expect("loopback");
        assert_eq!(own, IpAddr::from([127, 0, 0, 1]));
    }
}
