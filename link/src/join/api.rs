//! The two calls of the controllers' API by which a machine gets and renews its certificate.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fdn_core::Problem;
use fdn_core::enrol::{EnrolRequest, EnrolResponse, JoinToken, RenewRequest, RenewResponse};
use fdn_service::ServiceError;
use fdn_service::http_client::{based_on, builder_trusting, without_url};
use fdn_service::pki::pin::AuthorityPin;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::warn;

use super::{Identity, JoinError};
use crate::proxy;

/// The read timeout: the longest silence of the controller.
const IDLE: Duration = Duration::from_secs(30);
/// The largest answer that is read, in bytes.
const ANSWER_MAX: usize = 4 << 20;

/// A client of the controllers' API.
#[derive(Clone, Debug)]
pub struct Controller {
    url: reqwest::Url,
    client: reqwest::Client,
    access: ApiAccess,
    /// The pinned authority, from a join token.
    pin: Option<Arc<AuthorityPin>>,
}

/// How the controllers' API is reached, and how its certificate is verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiAccess {
    /// The certificate authorities for its https certificate, in place of the public ones.
    pub ca_file: Option<PathBuf>,
    /// The proxy for connections to it, as `http://HOST:PORT`.
    pub proxy: Option<String>,
}

impl ApiAccess {
    fn finish(&self, builder: reqwest::ClientBuilder) -> Result<reqwest::Client, JoinError> {
        let mut builder = builder.read_timeout(IDLE);
        if let Some(url) = &self.proxy {
            proxy::address(url).ok_or_else(|| JoinError::Proxy { url: url.clone() })?;
            let proxy = reqwest::Proxy::all(url).map_err(ServiceError::HttpClient)?;
            builder = builder.proxy(proxy);
        }
        Ok(builder.build().map_err(ServiceError::HttpClient)?)
    }
}

impl Controller {
    /// This machine's source address for packets to the controller. Sends nothing: connecting a datagram socket only looks up the route.
    ///
    /// # Errors
    /// When there is no route.
    pub fn own_address(&self) -> Result<IpAddr, JoinError> {
        let (mut host, mut port) = self.host_and_port();
        // Behind a proxy, the controller's name may not resolve here, and all traffic to it goes through the proxy.
        let proxy = self.access.proxy.as_deref();
        let proxy = proxy.and_then(|url| reqwest::Url::parse(url).ok());
        if let Some(proxy) = proxy {
            host = plain(&proxy);
            port = proxy.port_or_known_default().unwrap_or(port);
        }
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
            let source = UdpSocket::bind(any).and_then(|socket| {
                socket.connect(address)?;
                socket.local_addr()
            });
            match source {
                Ok(local) => return Ok(local.ip()),
                Err(error) => last = error.to_string(),
            }
        }
        Err(unreachable(last))
    }

    /// A client for the controller at `url`.
    ///
    /// # Errors
    /// When `url` is not a valid address, the file contains no authorities, or the proxy's address is not valid.
    pub fn new(url: &str, access: ApiAccess) -> Result<Self, JoinError> {
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
            client: access.finish(builder_trusting(access.ca_file.as_deref())?)?,
            access,
            pin: None,
        })
    }

    /// The same client, pinned to the authority that the join token names, unless a file of authorities was given.
    ///
    /// # Errors
    /// When the TLS settings are refused.
    pub fn pinned_to(mut self, token: &JoinToken) -> Result<Self, JoinError> {
        if self.access.ca_file.is_none()
            && let Some(authority) = token.authority
        {
            let pin = AuthorityPin::new(authority);
            self.client = self.access.finish(based_on(pin.client()?))?;
            self.pin = Some(pin);
        }
        Ok(self)
    }

    /// Stores with the identity the authorities against which the API is checked from now on: the given ones, or that of the join token. They are
    /// needed for the next certificate if this one expires while the machine is away. Returns where they are stored.
    ///
    /// # Errors
    /// When a file cannot be read or written.
    pub fn store_api_ca(&self, identity: &Identity) -> Result<Option<PathBuf>, JoinError> {
        match self.pin.as_ref().and_then(|pin| pin.authority_pem()) {
            Some(authority) => identity.write_api_ca(authority.as_bytes()).map(Some),
            None => identity.store_api_ca(self.access.ca_file.as_deref()),
        }
    }

    /// The client of a machine that has joined; `None`, with a log message that says what to do, if the file of authorities cannot be
    /// used. The machine needs this client only when its certificate is about to expire and it has no connection to a controller, so it runs
    /// without it. `join` is the command that takes another file.
    ///
    /// # Errors
    /// When `url` is not a valid address.
    pub fn of_member(url: &str, access: ApiAccess, join: &str) -> Result<Option<Self>, JoinError> {
        let without = Self::new(
            url,
            ApiAccess {
                ca_file: None,
                ..access.clone()
            },
        )?;
        let Some(path) = access.ca_file.clone() else {
            return Ok(Some(without));
        };
        match Self::new(url, access) {
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

    /// The controller's URL as people write it.
    #[must_use]
    pub fn url(&self) -> String {
        self.url.as_str().trim_end_matches('/').to_owned()
    }

    /// The controller's host and port.
    #[must_use]
    pub fn host_and_port(&self) -> (String, u16) {
        (
            plain(&self.url),
            self.url.port_or_known_default().unwrap_or(443),
        )
    }

    /// Refuses to send secrets over a connection that others could read.
    ///
    /// # Errors
    /// When the address is not https, not on this machine, and plain HTTP was not allowed.
    pub fn check_safety(&self, allowed: bool) -> Result<(), JoinError> {
        let (host, _) = self.host_and_port();
        let here = host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
        if self.url.scheme() == "https" || here || allowed {
            Ok(())
        } else {
            Err(JoinError::Insecure { url: self.url() })
        }
    }

    /// Asks the controller to enrol this machine.
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
        let unreachable = |error| match &self.pin {
            Some(pin) if pin.mismatched() => JoinError::Impostor { url: self.url() },
            _ => JoinError::Unreachable {
                url: self.url(),
                reason: without_url(error),
            },
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
        let mut bytes = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(unreachable)? {
            if bytes.len() + chunk.len() > ANSWER_MAX {
                return Err(self.foreign("the answer is too long"));
            }
            bytes.extend_from_slice(&chunk);
        }
        if status.is_success() {
            return serde_json::from_slice(&bytes).map_err(|e| self.foreign(&e.to_string()));
        }
        match serde_json::from_slice::<Problem>(&bytes) {
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

/// The host of a URL, without brackets.
fn plain(url: &reqwest::Url) -> String {
    let host = url.host_str().unwrap_or_default();
    host.trim_matches(['[', ']']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_the_controller_says_who_we_are() {
        let own = |url: &str, proxy: Option<&str>| {
            let access = ApiAccess {
                proxy: proxy.map(str::to_owned),
                ..ApiAccess::default()
            };
            let controller = Controller::new(url, access).expect("an address");
            controller.own_address().expect("loopback")
        };
        let here = IpAddr::from([127, 0, 0, 1]);
        assert_eq!(own("http://127.0.0.1:9", None), here);
        // That name does not resolve here.
        let far = "https://controller.fdn.invalid";
        assert_eq!(own(far, Some("http://127.0.0.1:9")), here);
    }
}
