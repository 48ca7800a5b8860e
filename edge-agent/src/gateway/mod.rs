//! The gateway: serves clients over HTTP/1.1 and HTTP/2, with and without TLS, and passes their calls to functions.
//!
//! actix-web's server runs one thread for each core and hands every request to [`service::Gateway`] as a plain service: requests are matched by
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

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use actix_http::{Request, Response};
use actix_service::{fn_factory_with_config, fn_service};
use actix_tls::accept::rustls_0_23::TlsStream;
use actix_web::HttpServer;
use actix_web::dev::{AppConfig, ServerHandle};
use actix_web::rt::net::TcpStream;
use fdn_service::tls_listener::{CertificateReloader, TlsListener};
use tracing::error;

use self::body::GatewayBody;
use self::connection::{ClientConnection, ConnectionLimits};
use self::service::Gateway;
use crate::error::Error;
use crate::rtt::RttTable;
use crate::settings::{GatewaySettings, ReportSettings, StopSettings, cores};

/// The timeout for a client that still sends data on a connection that is being closed.
const DISCONNECT: Duration = Duration::from_secs(2);

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
        let connections = gateway.metrics.connections.clone();
        let unread = gateway.metrics.certificate_errors.clone();
        let trusted = settings.trusted_proxies.clone();
        let limits = ConnectionLimits {
            // An idle client may begin a head at the last moment, and has its time for that.
            idle: settings.keep_alive.as_duration() + settings.head_timeout.as_duration(),
            streams: settings.streams.get(),
        };
        let (at_accept, interval) = (Arc::clone(&rtt), reports.rtt_interval.as_duration());
        let factory = move || {
            let (gateway, rtt) = (Arc::clone(&gateway), Arc::clone(&rtt));
            fn_factory_with_config(move |_: AppConfig| {
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
        let mut server = HttpServer::<_, _, _, GatewayBody>::new(factory)
            .workers(workers)
            .max_connections(settings.max_connections.div_ceil(workers))
            .tcp_nodelay(true)
            .keep_alive(settings.keep_alive.as_duration())
            .client_request_timeout(settings.head_timeout.as_duration())
            .client_disconnect_timeout(DISCONNECT)
            // A client that has closed its side is treated as gone: its function need not go on.
            .h1_allow_half_closed(false)
            .shutdown_timeout(stop.grace.as_millis().div_ceil(1000))
            .disable_signals()
            .on_connect(move |stream, extensions| {
                let plain = stream.downcast_ref::<TcpStream>();
                let encrypted = stream.downcast_ref::<TlsStream<TcpStream>>();
                let inner = encrypted.map(|stream| stream.get_ref().0);
                if let Some(stream) = plain.or(inner) {
                    connections.inc();
                    let secure = encrypted.is_some();
                    let client =
                        ClientConnection::accepted(stream, secure, &trusted, &at_accept, limits);
                    extensions.insert(client);
                }
            })
            .tls_handshake_timeout(settings.tls.handshake.as_duration())
            // The limit of concurrent handshakes per worker (a process-wide setting). If it were below the worker's connection limit, clients that
            // send nothing could keep the worker from accepting connections, on the listener without TLS as well.
            .max_connection_rate(settings.max_connections.div_ceil(workers))
            .listen_auto_h2c(listener)
            .map_err(failed)?;
        let mut kept = None;
        if let Some(secure) = secure {
            let (listener, config, looked_after) = secure.split(unread);
            server = server
                .listen_rustls_0_23(listener, config)
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
