//! Listeners, admission, and the other processes of the network.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use fdn_core::device::Percent;
use fdn_core::{ByteSize, ClientPrefix, DurationMs, GatewayWeight};
use fdn_service::ServiceError;
use fdn_service::certificate::CertificateFiles;
use fdn_service::secure::Secure;
use serde::{Deserialize, Serialize};

/// The listener for clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GatewaySettings {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Where clients reach it, if that is another address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advertise: Option<SocketAddr>,
    /// How many of the cluster's clients it is to have beside its other gateways, in hundredths of a usual one.
    pub weight: GatewayWeight,
    /// Threads that answer clients; 0 means one for each core.
    pub workers: usize,
    /// Connections in all; beyond it new ones wait in the kernel.
    pub max_connections: usize,
    /// How long an idle connection is kept.
    pub keep_alive: DurationMs,
    /// How long a client may take to send a request's head.
    pub head_timeout: DurationMs,
    /// The largest request body on this node, whatever a manifest allows.
    pub body_limit: ByteSize,
    /// Request bodies up to this size are read whole before the function starts, which is fastest.
    pub inline_body: ByteSize,
    /// Peers whose `x-forwarded-host` and `x-forwarded-proto` are believed.
    pub trusted_proxies: Vec<ClientPrefix>,
    /// The same with TLS.
    pub tls: GatewayTlsSettings,
}

/// The listener for clients with TLS 1.2 and 1.3, beside the one without.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GatewayTlsSettings {
    /// Where it listens; nowhere if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// What it shows: to each client the one that names the host it asks for, else the first.
    pub certificates: Vec<CertificateFiles>,
    /// The pause between two looks at their files.
    pub check_interval: DurationMs,
    /// How long a handshake may take.
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
    /// Binds the listener, if there is to be one.
    ///
    /// # Errors
    /// When the address is taken or a certificate cannot be used.
    pub fn open(&self) -> Result<Option<Secure>, ServiceError> {
        let bind = |address| {
            Secure::open(
                (address, "gateway.tls.listen"),
                (&self.certificates, "gateway.tls.certificates"),
                self.check_interval.as_duration(),
            )
        };
        self.listen.map(bind).transpose()
    }
}

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
    /// Where it listens.
    pub listen: SocketAddr,
    /// Where the network reaches it, if that is another address.
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

/// How many calls run, wait and are held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdmissionSettings {
    /// Calls that run at the same time.
    pub slots: u32,
    /// Of these, how many hundredths the calls of one app may take; and of the memory for instances in containers, those of one app.
    pub app_share: Percent,
    /// How many hundredths the calls of all apps of one tenant may take, of the slots that other tenants leave to it; and its instances in
    /// containers, of the memory.
    pub tenant_share: Percent,
    /// Calls that wait for a slot; one more is refused.
    pub waiting: u32,
    /// How long a call waits for a slot.
    pub wait: DurationMs,
    /// Calls held because their app is being made ready; one more is refused.
    pub held: u32,
    /// How long such a call is held.
    pub hold: DurationMs,
}

/// An app that is alone on a node has most of it, and another one finds room at once.
const APP_SHARE: u8 = 75;
/// More than that, so that beside an app that hangs its tenant's others have room.
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

/// Where the machine joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ControllerSettings {
    /// The address of the API: a node whose certificate ended while it was away gets the next one there.
    pub url: String,
    /// The certificates of the authorities that it is checked against, in place of the web's.
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

/// By what the network's processes know each other, beside certificates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkSettings {
    /// The file with this node's own token: gateways that call stages without certificates, on loopback alone, know each other by it.
    pub token_file: PathBuf,
}

impl Default for NetworkSettings {
    fn default() -> Self {
        Self {
            token_file: PathBuf::from("/var/lib/fdn/edge-agent/identity/node.token"),
        }
    }
}
