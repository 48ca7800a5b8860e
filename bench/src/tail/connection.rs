//! One connection to a server: HTTP/1.1 or HTTP/2, with TLS 1.3 or without, and nothing pooled, so that a benchmark knows which of its connections does what.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, HandshakeKind, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::PATIENCE;

/// What a request carries.
pub(super) type Payload = UnsyncBoxBody<Bytes, Infallible>;

/// Nothing.
pub(super) fn nothing() -> Payload {
    Empty::new().boxed_unsync()
}

/// Which version of HTTP is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Http {
    One,
    Two,
}

/// How a connection is secured, and whether it may go on with an earlier one's session.
#[derive(Clone)]
pub(super) struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl Tls {
    /// TLS 1.3 with a server that shows a certificate of this authority for this name. With `resume`, connections of this value and its clones resume each
    /// other's sessions.
    pub(super) fn new(
        authority: &CertificateDer<'static>,
        name: &str,
        version: Http,
        resume: bool,
    ) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone())?;
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![match version {
            Http::One => b"http/1.1".to_vec(),
            Http::Two => b"h2".to_vec(),
        }];
        if !resume {
            config.resumption = Resumption::disabled();
        }
        Ok(Self {
            connector: TlsConnector::from(Arc::new(config)),
            name: ServerName::try_from(name.to_owned())?,
        })
    }
}

trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

enum Sender {
    One(http1::SendRequest<Payload>),
    Two(http2::SendRequest<Payload>),
}

/// A connection; dropping it ends it.
pub(super) struct Connection {
    sender: Sender,
    scheme: &'static str,
    /// Whether it went on with an earlier session.
    pub(super) resumed: bool,
}

impl Connection {
    /// Opens one within [`PATIENCE`].
    pub(super) async fn open(
        address: SocketAddr,
        version: Http,
        tls: Option<&Tls>,
    ) -> Result<Self> {
        let opened = timeout(PATIENCE, Self::set_up(address, version, tls));
        opened.await.context("no connection in time")?
    }

    async fn set_up(address: SocketAddr, version: Http, tls: Option<&Tls>) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let Some(tls) = tls else {
            return Self::over(Box::new(stream), version, "http", false).await;
        };
        let stream = tls.connector.connect(tls.name.clone(), stream).await?;
        let resumed = stream.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed);
        Self::over(Box::new(stream), version, "https", resumed).await
    }

    async fn over(
        wire: Box<dyn Wire>,
        version: Http,
        scheme: &'static str,
        resumed: bool,
    ) -> Result<Self> {
        let wire = TokioIo::new(wire);
        let sender = match version {
            Http::One => {
                let (sender, connection) = http1::handshake(wire).await?;
                // Whoever called is told of its failure.
                tokio::spawn(async move { drop(connection.await) });
                Sender::One(sender)
            }
            Http::Two => {
                let (sender, connection) = http2::handshake(TokioExecutor::new(), wire).await?;
                tokio::spawn(async move { drop(connection.await) });
                Sender::Two(sender)
            }
        };
        Ok(Self {
            sender,
            scheme,
            resumed,
        })
    }

    /// The same connection for another caller; only HTTP/2 has that.
    pub(super) fn shared(&self) -> Option<Self> {
        let Sender::Two(sender) = &self.sender else {
            return None;
        };
        Some(Self {
            sender: Sender::Two(sender.clone()),
            scheme: self.scheme,
            resumed: self.resumed,
        })
    }

    /// Whether the other side has ended it.
    pub(super) fn is_closed(&self) -> bool {
        match &self.sender {
            Sender::One(sender) => sender.is_closed(),
            Sender::Two(sender) => sender.is_closed(),
        }
    }

    /// A call without a body, which must be answered with 2xx within [`PATIENCE`]; until the answer's last byte.
    pub(super) async fn get(&mut self, host: &str) -> Result<()> {
        let answer = self.exchange(Method::GET, (host, "/"), (nothing(), None), u64::MAX);
        let answer = timeout(PATIENCE, answer)
            .await
            .context("no answer in time")?;
        answer.map(drop)
    }

    /// A call of a host's path with a body and, if it is known, its length; it must be answered with 2xx. How many bytes of the answer's body came, of which
    /// no more are read than `most` (what comes afterwards is never read on this connection), and the first of them.
    pub(super) async fn exchange(
        &mut self,
        method: Method,
        (host, path): (&str, &str),
        (payload, length): (Payload, Option<u64>),
        most: u64,
    ) -> Result<(u64, Bytes)> {
        let mut request = Request::builder().method(method);
        if let Some(length) = length {
            request = request.header(header::CONTENT_LENGTH, length);
        }
        let response = match &mut self.sender {
            Sender::One(sender) => {
                let request = request.uri(path).header(header::HOST, host);
                sender.ready().await?;
                sender.send_request(request.body(payload)?).await?
            }
            Sender::Two(sender) => {
                let request = request.uri(format!("{}://{host}{path}", self.scheme));
                sender.ready().await?;
                sender.send_request(request.body(payload)?).await?
            }
        };
        let status = response.status();
        ensure!(status.is_success(), "{host}{path} ended {status}");
        let (mut body, mut bytes, mut first) = (response.into_body(), 0, Bytes::new());
        while bytes < most {
            let Some(frame) = body.frame().await else {
                break;
            };
            let Ok(data) = frame.context("the answer was cut")?.into_data() else {
                continue;
            };
            bytes += data.len() as u64;
            if first.is_empty() {
                first = data;
            }
        }
        Ok((bytes, first))
    }
}
