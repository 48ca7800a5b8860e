//! One outbound request: name resolution, connection, and response.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use fdn_core::InstanceId;
use fdn_core::address::why_not_public;
use fdn_core::api::LogStream;
use futures::FutureExt as _;
use http_body_util::BodyExt as _;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody};

use super::body::BoundedBody;
use super::{Io, Permit, Reach, Sent};
use crate::call::Limits;
use crate::log::LogSink;

/// The destination of a request.
pub(super) struct Target {
    pub(super) host: String,
    pub(super) port: u16,
    tls: bool,
}

impl Target {
    pub(super) fn of(uri: &http::Uri) -> Result<Self, Error> {
        let authority = uri.authority().ok_or(Error::HttpRequestUriInvalid)?;
        // `http://allowed.example@inner.example/`: what precedes the at sign is not the host.
        if authority.as_str().contains('@') || authority.host().is_empty() {
            return Err(Error::HttpRequestUriInvalid);
        }
        let tls = uri.scheme() == Some(&http::uri::Scheme::HTTPS);
        let host = authority.host();
        let host = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        Ok(Self {
            host: host.to_ascii_lowercase(),
            port: authority.port_u16().unwrap_or(if tls { 443 } else { 80 }),
            tls,
        })
    }
}

pub(super) struct Timeouts {
    connect: Duration,
    first_byte: Duration,
    between_bytes: Duration,
}

impl Timeouts {
    /// The timeouts that the guest requests, limited by the time that its call has left.
    pub(super) fn new(options: Option<RequestOptions>, limits: &Limits, deadline: Instant) -> Self {
        let left = deadline.saturating_duration_since(Instant::now());
        let options = options.unwrap_or_default();
        let within = |wanted: Option<Duration>| wanted.unwrap_or(left).min(left);
        Self {
            connect: within(options.connect_timeout).min(limits.outbound_connect),
            first_byte: within(options.first_byte_timeout),
            between_bytes: within(options.between_bytes_timeout),
        }
    }
}

/// One outbound request.
pub(super) struct Job {
    pub(super) target: Target,
    pub(super) reach: Arc<Reach>,
    pub(super) log: Arc<dyn LogSink>,
    pub(super) instance: InstanceId,
    pub(super) timeouts: Timeouts,
    pub(super) body_limit: u64,
    /// Moves to the response body.
    pub(super) permit: Option<Permit>,
    pub(super) over: watch::Receiver<()>,
}

impl Job {
    pub(super) async fn run(mut self, request: http::Request<WasiBody>) -> Sent {
        let mut over = self.over.clone();
        tokio::select! {
            sent = self.send(request) => sent,
            // Nothing is ever sent: the channel closes when the call ends.
            _ = over.changed() => Err(Error::ConnectionTerminated),
        }
    }

    async fn send(&mut self, mut request: http::Request<WasiBody>) -> Sent {
        let stream = tokio::time::timeout(self.timeouts.connect, self.connect())
            .await
            .map_err(|_| Error::ConnectionTimeout)??;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        // Fused, because it may end while the response is awaited and is polled again afterwards.
        let mut connection = Box::pin(connection.fuse());
        // In a request to an origin server the target consists of path and query only (RFC 9112, section 3.2.1).
        let path = request
            .uri()
            .path_and_query()
            .map_or("/", |path| path.as_str())
            .to_owned();
        *request.uri_mut() = path.parse().map_err(|_| Error::HttpRequestUriInvalid)?;
        let limit = self.body_limit;
        let request = request
            .map(|body| BoundedBody::new(body, limit, Error::HttpRequestBodySize(Some(limit))));
        let response = {
            let answer =
                tokio::time::timeout(self.timeouts.first_byte, sender.send_request(request));
            tokio::pin!(answer);
            tokio::select! {
                answer = &mut answer => answer,
                // The connection must be polled; if it ends first, the response future has the reason.
                _ = &mut connection => answer.await,
            }
        }
        .map_err(|_| Error::ConnectionReadTimeout)??;
        let (idle, permit) = (self.timeouts.between_bytes, self.permit.take());
        let response = response.map(|incoming| {
            let too_large = Error::HttpResponseBodySize(Some(limit));
            BoundedBody::new(incoming.map_err(Error::from), limit, too_large)
                .idle_timeout(idle)
                .holding(permit)
                .boxed_unsync()
        });
        let mut over = self.over.clone();
        let io: Io = Box::new(async move {
            tokio::select! {
                ended = connection => ended.map_err(Error::from),
                _ = over.changed() => Ok(()),
            }
        });
        Ok((response, io))
    }

    async fn connect(&self) -> Result<Box<dyn Stream>, Error> {
        let mut last = Error::DestinationUnavailable;
        // Resolved once: the connection is made to an address that was checked, whatever the name resolves to afterwards.
        let Target { host, port, .. } = &self.target;
        let found = self.reach.lookups.look_up(host, *port);
        for address in self.resolve(found).await? {
            match TcpStream::connect(address).await {
                Ok(stream) => {
                    // Small requests should not wait for more data to be sent with them.
                    let _ = stream.set_nodelay(true);
                    return if self.target.tls {
                        self.encrypt(stream).await
                    } else {
                        Ok(Box::new(stream))
                    };
                }
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                    last = Error::ConnectionRefused;
                }
                Err(error) => last = Error::Connect(error),
            }
        }
        Err(last)
    }

    /// The addresses that may be connected to. If a name has permitted and refused addresses, only the permitted ones are used. `looked_up` finds
    /// those of a name, and is not polled for an address.
    async fn resolve(
        &self,
        looked_up: impl Future<Output = std::io::Result<Vec<SocketAddr>>>,
    ) -> Result<Vec<SocketAddr>, Error> {
        let Target { host, port, .. } = &self.target;
        let found = match host.parse::<IpAddr>() {
            Ok(address) => vec![SocketAddr::new(address, *port)],
            Err(_) => looked_up.await.map_err(|_| Error::DnsError {
                rcode: None,
                info_code: None,
            })?,
        };
        let refusal = found
            .iter()
            .find_map(|at| Some((at.ip(), self.refusal_reason(at.ip())?)));
        let mut permitted = found;
        permitted.retain(|at| self.refusal_reason(at.ip()).is_none());
        match (permitted.is_empty(), refusal) {
            (true, Some((address, why))) => {
                self.log.line(
                    self.instance,
                    LogStream::System,
                    &format!(
                        "outbound request to {host}:{port} denied: {address} is {why}, which this node does not let functions reach"
                    ),
                );
                Err(Error::DestinationIpProhibited)
            }
            (true, None) => Err(Error::DestinationNotFound),
            (false, _) => Ok(permitted),
        }
    }

    fn refusal_reason(&self, address: IpAddr) -> Option<&'static str> {
        let is_named = self
            .reach
            .private
            .iter()
            .any(|prefix| prefix.contains(address));
        why_not_public(address).filter(|_| !is_named)
    }

    async fn encrypt(&self, stream: TcpStream) -> Result<Box<dyn Stream>, Error> {
        let name = ServerName::try_from(self.target.host.clone())
            .map_err(|_| Error::HttpRequestUriInvalid)?;
        let stream = TlsConnector::from(TLS.clone())
            .connect(name, stream)
            .await
            .map_err(Error::Tls)?;
        Ok(Box::new(stream))
    }
}

static TLS: LazyLock<Arc<ClientConfig>> = LazyLock::new(|| {
    let roots = RootCertStore {
        roots: webpki_roots::TLS_SERVER_ROOTS.into(),
    };
    let mut config =
        ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("ring speaks the default protocol versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
});

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

#[cfg(test)]
mod tests {
    use tokio::runtime::Handle;

    use super::*;
    use crate::log::MemoryLog;
    use crate::outbound::Lookups;

    /// A job for `uri` on a node whose operator permits these prefixes.
    fn job(uri: &str, private: &[&str]) -> (Job, Arc<MemoryLog>) {
        let log = Arc::new(MemoryLog::default());
        let deadline = Instant::now() + Duration::from_secs(60);
        let prefixes = private.iter().map(|text| text.parse().expect("a prefix"));
        let job = Job {
            target: target(uri).expect("a target"),
            reach: Arc::new(Reach {
                private: prefixes.collect(),
                lookups: Lookups::new(Handle::current(), Lookups::of_all()),
            }),
            log: log.clone(),
            instance: InstanceId::from_uuid(uuid::Uuid::nil()),
            timeouts: Timeouts::new(None, &Limits::default(), deadline),
            body_limit: 0,
            permit: None,
            over: watch::channel(()).1,
        };
        (job, log)
    }

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[tokio::test]
    async fn inner_addresses_are_refused_however_they_are_written() {
        for uri in [
            "http://169.254.169.254/latest/meta-data/",
            "http://127.0.0.1:8600/",
            "http://0.0.0.0/",
            "http://224.0.0.1/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::ffff:169.254.169.254]/",
            "http://[::1]/",
            "http://[::]/",
            "http://[fe80::1]/",
            "http://[fd00:ec2::254]/",
            "http://[64:ff9b::a9fe:a9fe]/",
            "http://[2002:7f00:1::]/",
            // The system's resolver takes these for numbers.
            "http://2130706433/",
            "http://0x7f000001/",
            "http://0177.0.0.1/",
            "http://127.1/",
            "http://localhost/",
        ] {
            let (job, log) = job(uri, &[]);
            let Target { host, port, .. } = &job.target;
            let found = job.resolve(job.reach.lookups.look_up(host, *port)).await;
            assert!(
                matches!(found, Err(Error::DestinationIpProhibited)),
                "{uri}: {found:?}"
            );
            let (_, line) = log.lines().pop().expect("it is logged");
            assert!(line.contains("does not let functions reach"), "{line}");
        }
    }

    #[tokio::test]
    async fn a_name_is_looked_up_once_and_reached_where_it_was_checked() {
        let (job, _) = job("http://rebound.example:8080/", &[]);
        // A resolver controlled by the function's owner could answer a second query otherwise; but there is only this one lookup.
        let answer = async { Ok(vec![at("93.184.216.34:8080")]) };
        let checked = job.resolve(answer).await.expect("a public address");
        assert_eq!(checked, [at("93.184.216.34:8080")]);
    }

    #[tokio::test]
    async fn of_a_name_only_the_addresses_that_may_be_reached_are_used() {
        let (job, log) = job("http://mixed.example/", &["10.1.0.0/16"]);
        let answers = async {
            Ok([
                "10.2.0.1:80",
                "[::ffff:10.1.0.7]:80",
                "169.254.169.254:80",
                "1.1.1.1:80",
            ]
            .map(at)
            .to_vec())
        };
        let permitted = job.resolve(answers).await.expect("some");
        assert_eq!(permitted, [at("[::ffff:10.1.0.7]:80"), at("1.1.1.1:80")]);
        assert!(log.lines().is_empty());
        let nothing = job.resolve(async { Ok(Vec::new()) }).await;
        assert!(matches!(nothing, Err(Error::DestinationNotFound)));
    }

    fn target(uri: &str) -> Result<Target, Error> {
        Target::of(&uri.parse().expect("a URI"))
    }

    #[test]
    fn targets_are_what_a_server_would_take_them_for() {
        let plain = target("http://API.example.com/x").expect("a target");
        assert_eq!(
            (plain.host.as_str(), plain.port, plain.tls),
            ("api.example.com", 80, false)
        );
        let tls = target("https://api.example.com:8443/x").expect("a target");
        assert_eq!((tls.port, tls.tls), (8443, true));
        let v6 = target("http://[::1]:8080/").expect("a target");
        assert_eq!((v6.host.as_str(), v6.port), ("::1", 8080));
        assert!(target("http://api.example.com@10.0.0.1/").is_err());
        assert!(target("/path").is_err());
    }
}
