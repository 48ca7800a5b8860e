//! Settings of the DNS server. `deploy/config/dns.toml` describes every key.

mod dnssec;
mod encrypted;
mod guard;
mod query_log;
mod records;
mod transfer;
mod validate;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use fdn_core::{ByteSize, DurationMs, HostName};
use fdn_link::ControllerLinkSettings;
use fdn_service::logs::LogSettings;
use serde::{Deserialize, Serialize};

pub use self::dnssec::DnssecSettings;
pub use self::encrypted::EncryptedSettings;
pub use self::guard::{CookieSettings, IdentitySettings, LimitSettings};
pub use self::query_log::QueryLogSettings;
pub use self::records::{CaaSettings, RecordName, RecordSettings, ServiceSettings};
pub use self::transfer::{NotifySettings, TransferKey, TransferSettings};
use crate::health::client::Scheme;
use crate::health::machine::Thresholds;
use crate::health::schedule::CheckSchedule;
use crate::metrics::apps;
use crate::policy::WhenAllDead;

/// All settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// This server's own name in the network, under which it joins.
    pub server: String,
    /// The directory of the state and of the server's identity.
    pub data_dir: PathBuf,
    /// The listening addresses, UDP and TCP on each. The first is the one announced to others.
    pub listen: Vec<SocketAddr>,
    /// The address of health, metrics and `/lookup`.
    pub admin: SocketAddr,
    /// Logging.
    pub log: LogSettings,
    /// The connection to the controllers.
    pub centre: ControllerLinkSettings,
    /// The zone.
    pub zone: ZoneSettings,
    /// The answers.
    pub answer: AnswerSettings,
    /// The server's identification (version, name, revision) in answers.
    pub identity: IdentitySettings,
    /// DNS cookies.
    pub cookie: CookieSettings,
    /// Limits on answers over UDP.
    pub limit: LimitSettings,
    /// Metrics.
    pub metrics: MetricsSettings,
    /// The query log.
    pub query_log: QueryLogSettings,
    /// The UDP sockets.
    pub udp: UdpSettings,
    /// The TCP connections.
    pub tcp: TcpSettings,
    /// DNS over TLS and over HTTPS.
    pub encrypted: EncryptedSettings,
    /// Transfers of the zone's fixed part.
    pub transfer: TransferSettings,
    /// Synchronization with the controllers.
    pub sync: SyncSettings,
    /// Demand reports to the controller.
    pub demand: DemandSettings,
    /// Health checks of the gateways.
    pub health: HealthSettings,
    /// Load shedding by overloaded clusters.
    pub shed: ShedSettings,
    /// Client locations.
    pub geo: GeoSettings,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            server: "dns-1".to_owned(),
            data_dir: PathBuf::from("/var/lib/fdn-dns"),
            listen: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 5300))],
            admin: SocketAddr::from((Ipv4Addr::LOCALHOST, 8602)),
            log: LogSettings::default(),
            centre: ControllerLinkSettings::default(),
            zone: ZoneSettings::default(),
            answer: AnswerSettings::default(),
            identity: IdentitySettings::default(),
            cookie: CookieSettings::default(),
            limit: LimitSettings::default(),
            metrics: MetricsSettings::default(),
            query_log: QueryLogSettings::default(),
            udp: UdpSettings::default(),
            tcp: TcpSettings::default(),
            encrypted: EncryptedSettings::default(),
            transfer: TransferSettings::default(),
            sync: SyncSettings::default(),
            demand: DemandSettings::default(),
            health: HealthSettings::default(),
            shed: ShedSettings::default(),
            geo: GeoSettings::default(),
        }
    }
}

/// The zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ZoneSettings {
    /// The zone's name.
    pub name: HostName,
    /// Its name servers, the primary first. Empty: `ns1.` and the zone's name, at the first listening address.
    pub servers: Vec<NameServer>,
    /// The mailbox of the responsible person, as a host name. Absent: `hostmaster.` and the zone's name.
    pub contact: Option<HostName>,
    /// The time to live of SOA, NS and the name servers' addresses.
    pub ttl: DurationMs,
    /// How long a negative answer may be cached.
    pub negative_ttl: DurationMs,
    /// An offset to the zone's serial number, which otherwise follows the controller's revisions alone.
    pub serial: u32,
    /// SOA refresh.
    pub refresh: DurationMs,
    /// SOA retry.
    pub retry: DurationMs,
    /// SOA expire.
    pub expire: DurationMs,
    /// The HTTPS record of apps; absent: apps have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_service: Option<ServiceSettings>,
    /// The operator's own records.
    pub records: Vec<RecordSettings>,
    /// DNSSEC.
    pub dnssec: DnssecSettings,
}

impl Default for ZoneSettings {
    fn default() -> Self {
        Self {
            name: "fn.test".parse().expect("a host name"),
            servers: Vec::new(),
            contact: None,
            ttl: DurationMs::from_secs(3600),
            negative_ttl: DurationMs::from_secs(30),
            serial: 0,
            refresh: DurationMs::from_secs(3600),
            retry: DurationMs::from_secs(600),
            expire: DurationMs::from_secs(604_800),
            app_service: None,
            records: Vec::new(),
            dnssec: DnssecSettings::default(),
        }
    }
}

/// A name server of the zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NameServer {
    /// The name server's host name.
    pub name: HostName,
    /// Its addresses; required if its name is in the zone.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
}

/// The answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AnswerSettings {
    /// The most addresses in one answer.
    pub max_addresses: usize,
    /// The answer while no cluster passes its health checks.
    pub when_all_dead: WhenAllDead,
    /// The largest answer over UDP, in bytes, whatever the client accepts.
    pub udp_size: u16,
}

impl Default for AnswerSettings {
    fn default() -> Self {
        // 1232 bytes fit every IPv6 path without fragmentation: 1280 minus the headers of IPv6 and UDP.
        Self {
            max_addresses: 16,
            when_all_dead: WhenAllDead::ServeAll,
            udp_size: 1232,
        }
    }
}

/// Metrics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsSettings {
    /// The number of apps whose answers have a series of their own; all others are counted in one.
    pub apps: usize,
}

impl Default for MetricsSettings {
    fn default() -> Self {
        Self {
            apps: apps::MAX_NAMED,
        }
    }
}

/// The UDP sockets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UdpSettings {
    /// The number of sockets per address, among which the kernel distributes the queries. 0: one per core.
    pub sockets: usize,
    /// The kernel's receive buffer of each socket, in bytes. The kernel has a limit of its own.
    pub receive_buffer: ByteSize,
}

impl Default for UdpSettings {
    fn default() -> Self {
        Self {
            sockets: 0,
            receive_buffer: ByteSize::from_mib(1),
        }
    }
}

/// The TCP connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TcpSettings {
    /// The most concurrent connections per address.
    pub connections: usize,
    /// The most concurrent connections of one client.
    pub per_client: usize,
    /// How long a whole message may take to arrive, or an answer to be accepted. A tenth of this while three quarters of the connections are
    /// in use.
    pub idle: DurationMs,
    /// The longest request that is read; a longer one closes its connection.
    pub request: ByteSize,
}

impl Default for TcpSettings {
    fn default() -> Self {
        Self {
            connections: 1000,
            per_client: 64,
            idle: DurationMs::from_secs(10),
            request: ByteSize::from_bytes(4096),
        }
    }
}

/// Synchronization with the controllers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SyncSettings {
    /// How long changes are collected before they take effect in answers.
    pub coalesce: DurationMs,
    /// How long changes are collected before they are written to disk.
    pub save_after: DurationMs,
}

impl Default for SyncSettings {
    fn default() -> Self {
        Self {
            coalesce: DurationMs::from_millis(10),
            save_after: DurationMs::from_millis(500),
        }
    }
}

/// Demand reports: which clients ask for which apps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DemandSettings {
    /// The pause between two reports.
    pub interval: DurationMs,
    /// The most pairs of app and client prefix that are counted, and that one thread counts between two collections.
    pub capacity: usize,
    /// The most pairs in one report.
    pub told: usize,
    /// The most new pairs in one report that are reported with their first question; all others are reported with their second one.
    pub fresh: usize,
    /// The number of new pairs per minute that are remembered to have asked once; takes ten bits each, twice.
    pub strangers: usize,
}

impl Default for DemandSettings {
    fn default() -> Self {
        Self {
            interval: DurationMs::from_secs(1),
            capacity: 65_536,
            told: 4000,
            fresh: 32,
            strangers: 1_000_000,
        }
    }
}

/// Health checks of the gateways.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HealthSettings {
    /// The time from the beginning of one check to the beginning of the next, minus up to a tenth.
    pub interval: DurationMs,
    /// The timeout of a check. A dead gateway has left the answers after one interval and `fall` timeouts.
    pub timeout: DurationMs,
    /// The number of consecutive failures after which a gateway leaves the answers.
    pub fall: u32,
    /// The number of consecutive successes after which it returns.
    pub rise: u32,
    /// The most checks that run at once.
    pub concurrency: usize,
    /// The protocol of health checks.
    pub scheme: Scheme,
    /// A file with the certificates of the authorities that are trusted over HTTPS (PEM). Absent: the public authorities.
    pub ca_file: Option<PathBuf>,
}

impl HealthSettings {
    /// The timing and the thresholds of the checks.
    #[must_use]
    pub const fn schedule(&self) -> CheckSchedule {
        CheckSchedule {
            interval: self.interval.as_duration(),
            timeout: self.timeout.as_duration(),
            thresholds: Thresholds {
                fall: self.fall,
                rise: self.rise,
            },
        }
    }
}

impl Default for HealthSettings {
    fn default() -> Self {
        Self {
            interval: DurationMs::from_secs(1),
            timeout: DurationMs::from_millis(500),
            fall: 2,
            rise: 2,
            concurrency: 256,
            scheme: Scheme::Http,
            ca_file: None,
        }
    }
}

/// Load shedding by overloaded clusters. Gateways report their load; 1 is as much as they can carry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ShedSettings {
    /// Whether load is shed.
    pub enabled: bool,
    /// The load above which a cluster sends clients elsewhere.
    pub above: f64,
    /// The load below which it takes them back.
    pub below: f64,
    /// How much the share of its clients grows per second, at twice the load `above` or more.
    pub speed: f64,
    /// The largest share that is sent elsewhere.
    pub most: f64,
}

impl Default for ShedSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            above: 1.0,
            below: 0.8,
            speed: 0.01,
            most: 0.9,
        }
    }
}

/// Client locations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GeoSettings {
    /// A database in MaxMind DB format, for clients that the network's own latency map does not locate.
    pub database: Option<PathBuf>,
}

#[cfg(test)]
mod tests;
