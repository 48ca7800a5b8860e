//! The gateway: serves clients over HTTP/1.1 and HTTP/2, with and without TLS, and passes their calls to functions.
//!
//! actix's server runs one thread for each core and hands every request to [`service::Gateway`] as a plain service: requests are matched by
//! host only, never by path, so actix's router would be unused overhead. [`head`] and [`body`] translate between actix and the guest, [`routes`]
//! finds the app of a host, [`crate::invocations`] decides where and when a call runs, and [`problem`] builds the gateway's own error answers.

mod answer;
pub mod body;
pub mod connection;
mod end;
mod forward;
pub mod head;
pub(crate) mod instance;
pub mod problem;
pub mod routes;
pub mod service;
pub mod split;
pub(crate) mod stage;
pub mod trace;
mod traced;
pub(crate) mod upload;

use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use actix_http::body::BoxBody;
use actix_http::{HttpServiceBuilder, Request, Response, TlsAcceptorConfig};
use actix_service::{
    Service, ServiceFactory, ServiceFactoryExt as _, fn_factory_with_config, fn_service,
};
use actix_tls::accept::max_concurrent_tls_connect;
use actix_tls::accept::rustls_0_23::TlsStream;
use actix_web::dev::{Server, ServerHandle};
use actix_web::rt::net::TcpStream;
use fdn_core::ClientPrefix;
use fdn_service::tls_listener::{CertificateReloader, TlsListener};
use prometheus::IntCounter;
use tracing::error;

use self::body::GatewayBody;
use self::connection::{ClientConnection, ConnectionLimits};
use self::service::Gateway;
use crate::error::Error;
use crate::rtt::RttTable;
use crate::settings::{GatewaySettings, ReportSettings, StopSettings, cores};

/// The timeout for a client that still sends data on a connection that is being closed.
const DISCONNECT: Duration = Duration::from_secs(2);

/// How both listeners treat their connections.
#[derive(Clone)]
struct Connections {
    /// Counts them.
    accepted: IntCounter,
    trusted: Vec<ClientPrefix>,
    rtt: Arc<RttTable>,
    limits: ConnectionLimits,
    keep_alive: Duration,
    head_timeout: Duration,
}

impl Connections {
    /// HTTP on connections of type `T`, whose socket `socket` finds; `stopping` is awaited for the server's orderly stop.
    fn http<T, S, F, W>(
        &self,
        socket: fn(&T) -> &TcpStream,
        is_secure: bool,
        stopping: F,
    ) -> HttpServiceBuilder<T, S>
    where
        T: 'static,
        S: ServiceFactory<Request, Config = ()>,
        S::Error: Into<Response<BoxBody>> + 'static,
        S::InitError: fmt::Debug,
        <S::Service as Service<Request>>::Future: 'static,
        F: Fn() -> W + 'static,
        W: Future<Output = ()> + 'static,
    {
        let all = self.clone();
        HttpServiceBuilder::<T, S>::default()
            .graceful_shutdown_signal(stopping)
            .tcp_nodelay(true)
            .keep_alive(self.keep_alive)
            .client_request_timeout(self.head_timeout)
            .client_disconnect_timeout(DISCONNECT)
            // A client that has closed its side is treated as gone: its function need not go on.
            .h1_allow_half_closed(false)
            .on_connect_ext(move |stream: &T, extensions| {
                all.accepted.inc();
                let (stream, trusted) = (socket(stream), all.trusted.as_slice());
                let client =
                    ClientConnection::accepted(stream, is_secure, trusted, &all.rtt, all.limits);
                extensions.insert(client);
            })
    }
}

fn plain_socket(stream: &TcpStream) -> &TcpStream {
    stream
}

fn secure_socket(stream: &TlsStream<TcpStream>) -> &TcpStream {
    stream.get_ref().0
}

/// A running gateway.
#[derive(Debug)]
pub struct GatewayServer {
    address: SocketAddr,
    handle: ServerHandle,
    secure: Option<CertificateReloader>,
}

impl GatewayServer {
    /// Serves `gateway` on `listener`, and with TLS on `secure` if given.
    ///
    /// # Errors
    /// When the listener cannot be used.
    pub fn start(
        listener: TcpListener,
        secure: Option<TlsListener>,
        gateway: Arc<Gateway>,
        rtt: Arc<RttTable>,
        settings: &GatewaySettings,
        reports: &ReportSettings,
        stop: &StopSettings,
    ) -> Result<Self, Error> {
        let failed = |source| Error::Listener {
            what: "gateway",
            source,
        };
        let address = listener.local_addr().map_err(failed)?;
        let workers = if settings.workers > 0 {
            settings.workers
        } else {
            cores()
        };
        let unread = gateway.metrics.certificate_errors.clone();
        let connections = Connections {
            accepted: gateway.metrics.connections.clone(),
            trusted: settings.trusted_proxies.clone(),
            rtt: Arc::clone(&rtt),
            limits: ConnectionLimits {
                // An idle client may begin a head at the last moment, and has its time for that.
                idle: settings.keep_alive.as_duration() + settings.head_timeout.as_duration(),
                streams: settings.streams.get(),
            },
            keep_alive: settings.keep_alive.as_duration(),
            head_timeout: settings.head_timeout.as_duration(),
        };
        let interval = reports.rtt_interval.as_duration();
        let calls = move || {
            let (gateway, rtt) = (Arc::clone(&gateway), Arc::clone(&rtt));
            fn_factory_with_config(move |(): ()| {
                let (gateway, rtt) = (Arc::clone(&gateway), Arc::clone(&rtt));
                let service = fn_service(move |request: Request| {
                    if let Some(connection) = request.conn_data::<ClientConnection>() {
                        connection.sample(&rtt, interval);
                    }
                    Arc::clone(&gateway).serve(request)
                });
                async move { Ok::<_, ()>(service) }
            })
        };
        let per_worker = settings.max_connections.div_ceil(workers);
        // The limit of concurrent handshakes per worker (a process-wide setting). If it were below the worker's connection limit, clients that
        // send nothing could keep the worker from accepting connections, on the listener without TLS as well.
        max_concurrent_tls_connect(per_worker);
        let server = Server::build()
            .workers(workers)
            .max_concurrent_connections(per_worker)
            .shutdown_timeout(stop.grace.as_millis().div_ceil(1000))
            .disable_signals();
        let signal = server.graceful_shutdown_signal();
        let stopping = move || {
            let signal = signal.clone();
            async move { signal.notified().await }
        };
        let (plain, plain_calls, plain_stopping) =
            (connections.clone(), calls.clone(), stopping.clone());
        let mut server = server
            .listen("gateway", listener, move || {
                let limit = plain.head_timeout;
                let http = plain.http(plain_socket, false, plain_stopping.clone());
                fn_service(move |stream: TcpStream| connection::begun(stream, limit))
                    .and_then(http.finish::<_, GatewayBody>(plain_calls()).tcp_auto_h2c())
            })
            .map_err(failed)?;
        let mut kept = None;
        if let Some(secure) = secure {
            let (listener, config, looked_after) = secure.split(unread);
            let handshake = settings.tls.handshake.as_duration();
            server = server
                .listen("gateway with TLS", listener, move || {
                    let within = TlsAcceptorConfig::default().handshake_timeout(handshake);
                    let http = connections.http(secure_socket, true, stopping.clone());
                    http.finish::<_, GatewayBody>(calls())
                        .rustls_0_23_with_config(config.clone(), within)
                })
                .map_err(failed)?;
            kept = Some(looked_after);
        }
        let server = server.run();
        let handle = server.handle();
        tokio::spawn(async move {
            if let Err(failure) = server.await {
                error!(%failure, "the gateway has ended");
            }
        });
        Ok(Self {
            address,
            handle,
            secure: kept,
        })
    }

    /// The address of the listener without TLS.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of the listener with TLS, if there is one.
    #[must_use]
    pub fn secure_address(&self) -> Option<SocketAddr> {
        self.secure.as_ref().map(CertificateReloader::address)
    }

    /// Stops accepting, lets running calls end within the grace period, then ends.
    pub async fn stop(&self) {
        self.handle.stop(true).await;
    }
}

impl Drop for GatewayServer {
    fn drop(&mut self) {
        // Has no effect after an orderly stop; otherwise it keeps a dropped agent from continuing to serve.
        drop(self.handle.stop(false));
    }
}

/// The response type of the server's service.
pub type GatewayResponse = Response<GatewayBody>;
