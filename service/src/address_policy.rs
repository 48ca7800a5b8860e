//! Requests to addresses given by tenants: they may reach only the public internet, and what the operator allows besides.
//!
//! A literal address in a URL is checked before the request; a name is checked each time it is resolved, by the very addresses that are connected
//! to, so
//! a different answer to a second lookup does not help an attacker. Redirects are checked like the first request, and none may lead from https to
//! http.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use fdn_core::ClientPrefix;
use fdn_core::address::is_public;
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::{Attempt, Policy};

use crate::error::ServiceError;
use crate::http_client;

/// The most redirects that are followed.
const REDIRECTS: usize = 5;

/// The set of addresses that may be reached.
#[derive(Clone, Debug)]
pub struct AddressPolicy {
    private: Arc<[ClientPrefix]>,
}

impl AddressPolicy {
    /// The public internet, and of all other addresses those in `private`.
    #[must_use]
    pub fn new(private: impl Into<Arc<[ClientPrefix]>>) -> Self {
        Self {
            private: private.into(),
        }
    }

    /// The public internet only.
    #[must_use]
    pub fn public() -> Self {
        Self::new([])
    }

    /// Whether an address may be reached.
    #[must_use]
    pub fn allows(&self, address: IpAddr) -> bool {
        is_public(address) || self.private.iter().any(|prefix| prefix.contains(address))
    }

    /// Checks the host of a URL if it is an address, in whatever notation; names are checked when they are resolved.
    ///
    /// # Errors
    /// Why it may not be reached: the rest of a sentence.
    pub fn check(&self, url: &Url) -> Result<(), &'static str> {
        let host = url.host_str().ok_or("names no host")?;
        let number = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host)
            .parse::<IpAddr>();
        match number {
            Ok(address) if !self.allows(address) => Err("is not on the public internet"),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// A client that can reach nothing else. Like [`http_client::build`], but redirects are checked.
    ///
    /// # Errors
    /// When the TLS settings are refused.
    pub fn client(&self, idle: Duration) -> Result<reqwest::Client, ServiceError> {
        let policy = self.clone();
        let builder = http_client::builder()?
            .read_timeout(idle)
            .redirect(Policy::custom(move |attempt| policy.follow(attempt)));
        let built = self.restrict(builder).build();
        built.map_err(ServiceError::HttpClient)
    }

    /// Lets a client connect only to names that resolve to allowed addresses. Literal addresses need [`Self::check`].
    pub fn restrict(&self, builder: reqwest::ClientBuilder) -> reqwest::ClientBuilder {
        builder.dns_resolver(Arc::new(self.clone()))
    }

    fn follow(&self, attempt: Attempt<'_>) -> reqwest::redirect::Action {
        let encrypted = |url: &Url| url.scheme() == "https";
        if attempt.previous().len() > REDIRECTS {
            return attempt.error("it is redirected too often");
        }
        if attempt.previous().iter().any(encrypted) && !encrypted(attempt.url()) {
            return attempt.error("it is redirected from https to http");
        }
        match self.check(attempt.url()) {
            Ok(()) => attempt.follow(),
            Err(why) => attempt.error(format!("it is redirected to an address that {why}")),
        }
    }
}

impl Resolve for AddressPolicy {
    fn resolve(&self, name: Name) -> Resolving {
        let policy = self.clone();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let reached: Vec<SocketAddr> = found.filter(|at| policy.allows(at.ip())).collect();
            if reached.is_empty() {
                return Err("it has no address on the public internet".into());
            }
            Ok(Box::new(reached.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    fn loopback() -> AddressPolicy {
        AddressPolicy::new(["127.0.0.0/8".parse().expect("prefix")])
    }

    #[test]
    fn numbers_are_judged_in_every_spelling() {
        let check =
            |policy: &AddressPolicy, url: &str| policy.check(&Url::parse(url).expect("a URL"));
        for url in [
            "http://169.254.169.254/latest",
            "http://2852039166/",
            "http://0xa9fea9fe/",
            "http://0251.0376.0251.0376/",
            "https://127.1/keys",
            "https://[::1]/",
            "https://[::ffff:10.0.0.1]:8443/",
        ] {
            assert!(check(&AddressPolicy::public(), url).is_err(), "{url}");
        }
        assert_eq!(check(&AddressPolicy::public(), "https://1.1.1.1/"), Ok(()));
        assert_eq!(
            check(&AddressPolicy::public(), "https://id.example/"),
            Ok(())
        );
        assert_eq!(check(&loopback(), "http://127.1:8080/"), Ok(()));
        assert!(check(&loopback(), "http://10.0.0.1/").is_err());
    }

    fn text(error: &reqwest::Error) -> String {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(inner) = cause {
            text.push_str(": ");
            text.push_str(&inner.to_string());
            cause = inner.source();
        }
        text
    }

    #[tokio::test]
    async fn a_name_that_leads_inside_is_not_connected_to() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let client = AddressPolicy::public()
            .client(Duration::from_secs(30))
            .expect("a client");
        let sent = client.get(format!("http://localhost:{port}/")).send().await;
        let refused = text(&sent.expect_err("loopback"));
        assert!(
            refused.contains("no address on the public internet"),
            "{refused}"
        );
        listener.set_nonblocking(true).expect("set");
        assert!(listener.accept().is_err(), "nobody connected");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_redirect_inside_is_not_followed() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut request = [0; 1024];
            assert!(stream.read(&mut request).expect("a request") > 0);
            let answer = "HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(answer.as_bytes()).expect("an answer");
        });
        let client = loopback()
            .client(Duration::from_secs(30))
            .expect("a client");
        let sent = client.get(format!("http://{address}/")).send().await;
        let refused = text(&sent.expect_err("redirected inside"));
        assert!(
            refused.contains("redirected to an address that is not on the public internet"),
            "{refused}"
        );
        server.join().expect("answered");
    }
}
