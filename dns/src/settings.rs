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
use fdn_link::CentreSettings;
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
use crate::health::pace::Pace;
use crate::metrics::apps;
use crate::policy::WhenAllDead;

/// All settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// This server's own name in the network, under which it joins.
    pub server: String,
    /// Where the state and the server's identity are kept.
    pub data_dir: PathBuf,
    /// Addresses that are listened on, UDP and TCP on each. The first is the one told to others.
    pub listen: Vec<SocketAddr>,
    /// Where health, metrics and `/lookup` are served.
    pub admin: SocketAddr,
    /// The log.
    pub log: LogSettings,
    /// The controllers, over the one connection.
    pub centre: CentreSettings,
    /// The zone.
    pub zone: ZoneSettings,
    /// The answers.
    pub answer: AnswerSettings,
    /// What the server tells about itself.
    pub identity: IdentitySettings,
    /// Cookies.
    pub cookie: CookieSettings,
    /// Limits on answers over UDP.
    pub limit: LimitSettings,
    /// What is counted.
    pub metrics: MetricsSettings,
    /// A sample of the questions.
    pub query_log: QueryLogSettings,
    /// The UDP sockets.
    pub udp: UdpSettings,
    /// The TCP connections.
    pub tcp: TcpSettings,
    /// DNS over TLS and over HTTPS.
    pub encrypted: EncryptedSettings,
    /// Handing the zone's fixed part on.
    pub transfer: TransferSettings,
    /// Keeping up with the centre.
    pub sync: SyncSettings,
    /// Telling the controller who asks.
    pub demand: DemandSettings,
    /// Checks of the gateways.
    pub health: HealthSettings,
    /// Giving clients away from clusters with too much load.
    pub shed: ShedSettings,
    /// Where clients are.
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
            centre: CentreSettings::default(),
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
    /// Its name.
    pub name: HostName,
    /// Its name servers, the primary first. Empty: `ns1.` and the zone's name, at the first listening address.
    pub servers: Vec<NameServer>,
    /// The mailbox of whoever is responsible, as a host name. Absent: `hostmaster.` and the zone's name.
    pub contact: Option<HostName>,
    /// Time to live of SOA, NS and name servers' addresses.
    pub ttl: DurationMs,
    /// For how long a negative answer may be cached.
    pub negative_ttl: DurationMs,
    /// What is added to the zone's serial number, which otherwise follows the controller's revisions alone.
    pub serial: u32,
    /// SOA refresh.
    pub refresh: DurationMs,
    /// SOA retry.
    pub retry: DurationMs,
    /// SOA expire.
    pub expire: DurationMs,
    /// What HTTPS queries for apps are answered with; absent: that there is no such record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_service: Option<ServiceSettings>,
    /// The operator's own records.
    pub records: Vec<RecordSettings>,
    /// Whether the zone is signed, and how.
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
    /// Its name.
    pub name: HostName,
    /// Its addresses; needed if its name lies in the zone.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
}

/// The answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AnswerSettings {
    /// Addresses of one answer.
    pub max_addresses: usize,
    /// What is answered while no cluster passes its health checks.
    pub when_all_dead: WhenAllDead,
    /// The largest answer over UDP, in bytes, whatever the asker takes.
    pub udp_size: u16,
}

impl Default for AnswerSettings {
    fn default() -> Self {
        // 1232 bytes pass every IPv6 path unfragmented: 1280 less the headers of IPv6 and UDP.
        Self {
            max_addresses: 16,
            when_all_dead: WhenAllDead::ServeAll,
            udp_size: 1232,
        }
    }
}

/// What is counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsSettings {
    /// Apps whose answers have a series of their own; those of all others are counted in one.
    pub apps: usize,
}

impl Default for MetricsSettings {
    fn default() -> Self {
        Self { apps: apps::MOST }
    }
}

/// The UDP sockets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UdpSettings {
    /// Sockets for each address, between which the kernel shares the queries. 0: one for each core.
    pub sockets: usize,
    /// Bytes of queries that the kernel keeps for each socket. The kernel has a limit of its own.
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
    /// Connections at once on each address.
    pub connections: usize,
    /// Connections at once from one client.
    pub per_client: usize,
    /// How long a whole message may take to arrive, or an answer to be taken. While three quarters of the connections are in use it is
    /// a tenth of this.
    pub idle: DurationMs,
    /// The longest request that is read; a longer one ends its connection.
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

/// Keeping up with the centre.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SyncSettings {
    /// How long changes are gathered before they are answered.
    pub coalesce: DurationMs,
    /// How long changes are gathered before they are written to disk.
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

/// Telling the controller who asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DemandSettings {
    /// Pause between two reports.
    pub interval: DurationMs,
    /// Pairs of app and client prefix that are counted, and that one thread counts between two looks.
    pub capacity: usize,
    /// Pairs that are told in one report.
    pub told: usize,
    /// New pairs that are told with their first question, in one report; of all others the second one is waited for.
    pub fresh: usize,
    /// New pairs a minute of which it is remembered that they asked once, ten bits for each, twice.
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

/// Checks of the gateways.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HealthSettings {
    /// From the beginning of one check to the beginning of the next, up to a tenth less.
    pub interval: DurationMs,
    /// How long a check may take. A dead gateway has left the answers after one interval and `fall` time-outs.
    pub timeout: DurationMs,
    /// Failures in a row until a gateway leaves the answers.
    pub fall: u32,
    /// Successes in a row until it returns.
    pub rise: u32,
    /// Checks under way at once.
    pub concurrency: usize,
    /// What gateways are asked for their health over.
    pub scheme: Scheme,
    /// A file with the certificates of the authorities that are believed over HTTPS (PEM). Absent: those of the web.
    pub ca_file: Option<PathBuf>,
}

impl HealthSettings {
    /// When gateways are checked, and how many checks change what is thought of one.
    #[must_use]
    pub const fn pace(&self) -> Pace {
        Pace {
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

/// Giving clients away from clusters with too much load, as their gateways tell it: 1 is as much as they can carry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ShedSettings {
    /// Whether it is done.
    pub enabled: bool,
    /// The load above which a cluster gives clients away.
    pub above: f64,
    /// The load below which it takes them back.
    pub below: f64,
    /// The part of its clients by which that grows in a second, at twice the load at which it begins.
    pub speed: f64,
    /// The largest part that is given away.
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

/// Where clients are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GeoSettings {
    /// A database in MaxMind DB format, for clients that the network's own list of locations lacks.
    pub database: Option<PathBuf>,
}

#[cfg(test)]
mod tests;
