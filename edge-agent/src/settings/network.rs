//! Settings of the listeners, of admission, and of access to other processes of the network.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;

use fdn_core::device::Percent;
use fdn_core::{ByteSize, ClientPrefix, DurationMs, GatewayWeight};
use fdn_service::ServiceError;
use fdn_service::certificate::CertificateFiles;
use fdn_service::tls_listener::TlsListener;
use serde::{Deserialize, Serialize};

/// The listener for clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GatewaySettings {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The address at which clients reach it, if different.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advertise: Option<SocketAddr>,
    /// Its weight among the gateways of its cluster, in percent of a usual one: DNS sends it clients in proportion.
    pub weight: GatewayWeight,
    /// Threads that serve clients; 0 means one for each core.
    pub workers: usize,
    /// The most connections; further ones wait in the kernel.
    pub max_connections: usize,
    /// How long an idle connection is kept.
    pub keep_alive: DurationMs,
    /// The timeout for receiving a request's head, and before the first one for a new connection's first byte.
    pub head_timeout: DurationMs,
    /// The most calls that run at once on one HTTP/2 connection; further ones are refused.
    pub streams: NonZeroU32,
    /// The largest request body on this node, whatever a manifest permits.
    pub body_limit: ByteSize,
    /// Request bodies up to this size are read completely before the function starts, which is fastest.
    pub inline_body: ByteSize,
    /// Proxies whose `x-forwarded-host` and `x-forwarded-proto` are trusted, and the last entry of whose `x-forwarded-for` is taken as the
    /// client's address.
    pub trusted_proxies: Vec<ClientPrefix>,
    /// The listener with TLS.
    pub tls: GatewayTlsSettings,
}

/// The listener for clients with TLS 1.2 and 1.3, in addition to the one without.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GatewayTlsSettings {
    /// The address to listen on; there is no TLS listener if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// The certificates: a client gets the one for the host that it requests, or else the first.
    pub certificates: Vec<CertificateFiles>,
    /// The interval at which their files are checked for changes.
    pub check_interval: DurationMs,
    /// The timeout of a handshake.
    pub handshake: DurationMs,
}

impl Default for GatewayTlsSettings {
    fn default() -> Self {
        Self {
            listen: None,
            certificates: Vec::new(),
            check_interval: DurationMs::from_secs(10),
            handshake: DurationMs::from_secs(5),
        }
    }
}

impl GatewayTlsSettings {
    /// Binds the listener, if one is configured.
    ///
    /// # Errors
    /// When the address is taken or a certificate cannot be used.
    pub fn open(&self) -> Result<Option<TlsListener>, ServiceError> {
        let bind = |address| {
            TlsListener::open(
                (address, "gateway.tls.listen"),
                (&self.certificates, "gateway.tls.certificates"),
                self.check_interval.as_duration(),
            )
        };
        self.listen.map(bind).transpose()
    }
}

/// More than browsers and other clients open on one connection, yet few enough that one client cannot hold a node's memory with bodies.
const STREAMS: NonZeroU32 = match NonZeroU32::new(256) {
    Some(streams) => streams,
    None => NonZeroU32::MIN,
};

impl Default for GatewaySettings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            advertise: None,
            weight: GatewayWeight::default(),
            workers: 0,
            max_connections: 20_000,
            keep_alive: DurationMs::from_secs(75),
            head_timeout: DurationMs::from_secs(10),
            streams: STREAMS,
            body_limit: ByteSize::from_mib(512),
            inline_body: ByteSize::from_bytes(64 << 10),
            trusted_proxies: Vec::new(),
            tls: GatewayTlsSettings::default(),
        }
    }
}

/// The listener for operators and DNS servers: health and metrics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdminSettings {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The address at which the network reaches it, if different.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advertise: Option<SocketAddr>,
}

impl Default for AdminSettings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8081)),
            advertise: None,
        }
    }
}

/// How many calls may run, wait and be held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdmissionSettings {
    /// The most running calls.
    pub slots: u32,
    /// The share of the slots that the calls of one app may take, in percent; also the share of the memory for instances in containers that one
    /// app may hold.
    pub app_share: Percent,
    /// The share that all apps of one tenant may take of the slots that other tenants leave, in percent; also of the memory for instances in
    /// containers.
    pub tenant_share: Percent,
    /// The most calls that wait for a slot; further ones are refused.
    pub waiting: u32,
    /// How long a call waits for a slot.
    pub wait: DurationMs,
    /// The most calls held because their app is being made ready; further ones are refused.
    pub held: u32,
    /// How long such a call is held.
    pub hold: DurationMs,
}

/// An app that is alone on a node gets most of it, and another one still finds room at once.
const APP_SHARE: u8 = 75;
/// More than an app's share, so that a tenant's other apps have room beside one that hangs.
const TENANT_SHARE: u8 = 90;

impl Default for AdmissionSettings {
    fn default() -> Self {
        Self {
            slots: 256,
            app_share: Percent::try_from(APP_SHARE).unwrap_or(Percent::WHOLE),
            tenant_share: Percent::try_from(TENANT_SHARE).unwrap_or(Percent::WHOLE),
            waiting: 1024,
            wait: DurationMs::from_secs(2),
            held: 256,
            hold: DurationMs::from_secs(15),
        }
    }
}

/// The controllers' API, where the machine joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ControllerSettings {
    /// The URL of the API: a node whose certificate expired while it was away gets the next one there.
    pub url: String,
    /// The authorities for verifying the API's certificate, instead of the public ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
}

impl Default for ControllerSettings {
    fn default() -> Self {
        Self {
            url: "http://127.0.0.1:8600".to_owned(),
            ca_file: None,
        }
    }
}

/// How processes of the network authenticate each other without certificates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkSettings {
    /// The file with this node's own token: gateways that call stages without certificates, on loopback only, authenticate each other with it.
    pub token_file: PathBuf,
}

impl Default for NetworkSettings {
    fn default() -> Self {
        Self {
            token_file: PathBuf::from("/var/lib/fdn/edge-agent/identity/node.token"),
        }
    }
}
