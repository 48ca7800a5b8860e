//! The sections of the settings, each with its defaults.

use std::path::PathBuf;

use fdn_core::billing::Currency;
use fdn_core::{ByteSize, ClientPrefix, DurationMs, GeoPoint};
use serde::{Deserialize, Serialize};

use crate::Error;

/// Files shared by the processes of the network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkSettings {
    /// The file with the network token, from which machines' own tokens are derived; created if it does not exist.
    pub token_file: PathBuf,
    /// The file with the key that seals secrets, 64 hexadecimal digits; created if it does not exist.
    pub key_file: PathBuf,
}

impl Default for NetworkSettings {
    fn default() -> Self {
        Self {
            token_file: "/etc/fdn/network.token".into(),
            key_file: "/etc/fdn/network.key".into(),
        }
    }
}

/// Enrolment of machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EnrolmentSettings {
    /// The lifetime of a node's certificate; nodes renew it after two thirds.
    pub certificate_lifetime: DurationMs,
    /// How long after its expiry a node that was away may still renew its certificate.
    pub renew_grace: DurationMs,
    /// The lifetime of the authority that signs certificates.
    pub authority_lifetime: DurationMs,
    /// How long a new authority is announced before it signs.
    pub authority_settle: DurationMs,
    /// The longest life of a join token.
    pub token_ttl_max: DurationMs,
    /// The most machines that may join with one token.
    pub token_uses_max: u32,
    /// The most usable join tokens at a time.
    pub tokens_max: u64,
    /// The longest lease of a cluster's head.
    pub lease_max: DurationMs,
    /// The certificate (PEM) of the authority that issued the API's own, if that is not a public one: join tokens contain its SHA-256, and machines
    /// that join trust nobody else. The API, or the proxy in front of it, sends it at the end of its chain. Read when the controller starts.
    pub ca_file: Option<PathBuf>,
}

impl Default for EnrolmentSettings {
    fn default() -> Self {
        Self {
            certificate_lifetime: DurationMs::from_secs(720 * 3600),
            renew_grace: DurationMs::from_secs(720 * 3600),
            authority_lifetime: DurationMs::from_secs(87_600 * 3600),
            authority_settle: DurationMs::from_secs(24 * 3600),
            token_ttl_max: DurationMs::from_secs(720 * 3600),
            token_uses_max: 1000,
            tokens_max: 1000,
            lease_max: DurationMs::from_secs(60),
            ca_file: None,
        }
    }
}

/// The metadata store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DatabaseSettings {
    /// `postgres://USER@HOST/NAME` or `sqlite:///PATH`.
    pub url: String,
    /// The file with the password, if the database requires one.
    pub password_file: Option<PathBuf>,
    /// The most connections.
    pub max_connections: u32,
    /// How long to wait for a connection.
    pub acquire_timeout: DurationMs,
}

impl Default for DatabaseSettings {
    fn default() -> Self {
        Self {
            url: "sqlite:///var/lib/fdn/controller.db".to_owned(),
            password_file: None,
            max_connections: 8,
            acquire_timeout: DurationMs::from_secs(5),
        }
    }
}

/// The artifact store: a local folder, or an S3-compatible service if `s3` is set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ArtifactSettings {
    /// The local folder.
    pub local: PathBuf,
    /// The service; the folder is not used then.
    pub s3: Option<S3Settings>,
    /// How long an artifact is kept after the last version that used it. It must exceed the time of any upload, and the clocks' differences.
    pub grace: DurationMs,
    /// How often such artifacts are looked for.
    pub collect_interval: DurationMs,
    /// Whether the machine code of components is kept beside them, for nodes with an engine like this controller's. It is two to five times their
    /// size.
    pub compiled: bool,
    /// The most bytes of machine code of single functions kept in the compile cache, so that components that embed the same language engine are not
    /// compiled as a whole; as much again is used in the folder of uploads. 0 turns the cache off.
    pub compile_cache: ByteSize,
}

impl ArtifactSettings {
    /// Checks what the types alone cannot ensure.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.grace.as_millis() < 60_000 || self.collect_interval.as_millis() < 1000 {
            return Err(Error::config(
                "artifacts.grace must be at least 1m, and artifacts.collect_interval at least 1s",
            ));
        }
        Ok(())
    }
}

impl Default for ArtifactSettings {
    fn default() -> Self {
        Self {
            local: "/var/lib/fdn/artifacts".into(),
            s3: None,
            grace: DurationMs::from_secs(24 * 3600),
            collect_interval: DurationMs::from_secs(600),
            compiled: true,
            compile_cache: ByteSize::from_mib(512),
        }
    }
}

/// An S3-compatible service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct S3Settings {
    /// The bucket.
    pub bucket: String,
    /// The region; most services other than Amazon's ignore it.
    #[serde(default = "default_region")]
    pub region: String,
    /// The service's URL, such as `https://minio.example.org:9000`; Amazon's own if absent.
    #[serde(default)]
    pub endpoint: Option<String>,
    /// The prefix of object names.
    #[serde(default)]
    pub prefix: String,
    /// The file with the access key id.
    pub access_key_file: PathBuf,
    /// The file with the secret access key.
    pub secret_key_file: PathBuf,
    /// Whether plain HTTP is allowed.
    #[serde(default)]
    pub allow_http: bool,
}

fn default_region() -> String {
    "us-east-1".to_owned()
}

/// The message broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BrokerSettings {
    /// `amqp://USER@HOST:PORT/VHOST`.
    pub url: String,
    /// The file with the password.
    pub password_file: Option<PathBuf>,
    /// The prefix of the names of exchanges and queues.
    pub namespace: String,
}

impl Default for BrokerSettings {
    fn default() -> Self {
        Self {
            url: "amqp://fdn@127.0.0.1:5672/%2f".to_owned(),
            password_file: None,
            namespace: "fdn".to_owned(),
        }
    }
}

/// Users and tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AccountSettings {
    /// The first user's name.
    pub admin: String,
    /// The file to which the first user's password is written at the first start; if it exists, its password is used.
    pub initial_password_file: Option<PathBuf>,
    /// How long a session of the command line lasts.
    pub token_lifetime: DurationMs,
    /// How long a session of the console lasts.
    pub console_lifetime: DurationMs,
    /// How long a session of the console may be idle.
    pub console_idle: DurationMs,
    /// The most sessions of one user; the least recently used make room.
    pub tokens_per_user: u32,
    /// The longest lifetime of an API token.
    pub api_token_ttl_max: DurationMs,
    /// The most valid API tokens of one user.
    pub api_tokens_per_user: u64,
    /// The longest lifetime of an invitation.
    pub invitation_ttl_max: DurationMs,
    /// The least number of characters of a password.
    pub password_min: usize,
    /// The number of unknown tokens from one address, within `login_window`, after which the next one must wait.
    pub token_attempts: u32,
    /// The number of failed logins of one user or from one address, within `login_window`, after which the next one must wait.
    pub login_attempts: u32,
    /// How long failures count.
    pub login_window: DurationMs,
    /// The most users and addresses whose failures are remembered, and as many addresses with unknown tokens.
    pub login_tracked: usize,
    /// The most passwords checked at the same time (19 MiB of memory each).
    pub login_parallel: usize,
}

impl Default for AccountSettings {
    fn default() -> Self {
        Self {
            admin: "admin".to_owned(),
            initial_password_file: None,
            token_lifetime: DurationMs::from_secs(7 * 24 * 3600),
            console_lifetime: DurationMs::from_secs(12 * 3600),
            console_idle: DurationMs::from_secs(3600),
            tokens_per_user: 100,
            api_token_ttl_max: DurationMs::from_secs(366 * 86_400),
            api_tokens_per_user: 100,
            invitation_ttl_max: DurationMs::from_secs(720 * 3600),
            password_min: 12,
            token_attempts: 200,
            login_attempts: 5,
            login_window: DurationMs::from_secs(15 * 60),
            login_tracked: 10_000,
            login_parallel: 2,
        }
    }
}

/// Uploads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UploadSettings {
    /// The largest component.
    pub limit: ByteSize,
    /// The largest image archive. Nodes accept up to their `cache.artifact_limit`.
    pub image_limit: ByteSize,
    /// The most bytes that an image archive and its layers may unpack to, together.
    pub image_unfolded: ByteSize,
    /// The folder of uploads that are being checked; the system's temporary folder if absent.
    pub folder: Option<PathBuf>,
    /// The most concurrent uploads, of which a tenant leaves one to others; further ones are asked to retry.
    pub parallel: usize,
    /// How long a client may be silent while it sends a body, of an upload or of any other request.
    pub idle_timeout: DurationMs,
    /// The memory limit of the compiling process.
    pub compile_memory: ByteSize,
    /// The time limit of the compiling process.
    pub compile_time: DurationMs,
    /// The largest of all other request bodies.
    pub body_limit: ByteSize,
}

impl Default for UploadSettings {
    fn default() -> Self {
        Self {
            limit: ByteSize::from_mib(64),
            image_limit: ByteSize::from_mib(512),
            image_unfolded: fdn_runtime::image::UNPACKED_MAX,
            folder: None,
            parallel: 4,
            idle_timeout: DurationMs::from_secs(30),
            compile_memory: ByteSize::from_mib(2048),
            compile_time: DurationMs::from_secs(120),
            body_limit: ByteSize::from_bytes(256 << 10),
        }
    }
}

/// Locations of clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GeoSettings {
    /// Client prefixes with their locations.
    pub locations: Vec<ClientLocation>,
    /// A database in MaxMind's format with `location.latitude` and `location.longitude` (City or larger), for all other clients.
    pub database: Option<PathBuf>,
    /// The most round-trip times to clients that are kept.
    pub rtt_entries: usize,
    /// The most round-trip times between clusters that are kept.
    pub link_entries: usize,
    /// The weight of a new measurement in the mean.
    pub rtt_weight: f64,
    /// The share by which a smoothed round-trip time must change before DNS servers are told.
    pub rtt_change: f64,
    /// The shortest interval at which DNS servers are told round-trip times.
    pub rtt_interval: DurationMs,
    /// How long a round-trip time to clients counts after it was last measured; then their location is used again.
    pub rtt_keep: DurationMs,
}

impl Default for GeoSettings {
    fn default() -> Self {
        Self {
            locations: Vec::new(),
            database: None,
            rtt_entries: 20_000,
            link_entries: 10_000,
            rtt_weight: 0.25,
            rtt_change: 0.2,
            rtt_interval: DurationMs::from_secs(10),
            rtt_keep: DurationMs::from_secs(3600),
        }
    }
}

/// The location of the clients of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientLocation {
    /// The clients.
    pub prefix: ClientPrefix,
    /// Latitude in degrees.
    pub lat: f64,
    /// Longitude in degrees.
    pub lon: f64,
}

impl ClientLocation {
    /// The position.
    ///
    /// # Errors
    /// When it is not on the earth.
    pub fn point(&self) -> Result<GeoPoint, Error> {
        GeoPoint::new(self.lat, self.lon)
            .map_err(|e| Error::config(format!("geo.locations, {}: {e}", self.prefix)))
    }
}

/// Messages between controllers through the broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DispatchSettings {
    /// How often the outbox is checked when nothing woke the publisher.
    pub interval: DurationMs,
    /// The most messages read from the outbox at a time.
    pub batch: u32,
    /// How long the broker may take to confirm a message.
    pub confirm_timeout: DurationMs,
    /// The longest pause after a failure.
    pub backoff: DurationMs,
    /// The most messages taken from the broker before they are handled.
    pub prefetch: u16,
}

impl Default for DispatchSettings {
    fn default() -> Self {
        Self {
            interval: DurationMs::from_secs(1),
            batch: 100,
            confirm_timeout: DurationMs::from_secs(10),
            backoff: DurationMs::from_secs(5),
            prefetch: 200,
        }
    }
}

/// Logs of functions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FunctionLogSettings {
    /// The most past lines requested from each node.
    pub tail: u32,
    /// The longest line that is passed on.
    pub line: ByteSize,
    /// The most lines that wait for a slow reader, over all nodes; beyond it the nodes wait.
    pub buffer: usize,
    /// The most concurrent readers.
    pub readers: usize,
    /// How long a node may take to answer.
    pub node_timeout: DurationMs,
    /// The most concurrent searches for single calls.
    pub searches: usize,
    /// How long a node may search for calls.
    pub search_timeout: DurationMs,
}

impl Default for FunctionLogSettings {
    fn default() -> Self {
        Self {
            tail: 1000,
            line: ByteSize::from_bytes(64 << 10),
            buffer: 1000,
            readers: 64,
            node_timeout: DurationMs::from_secs(3),
            searches: 4,
            search_timeout: DurationMs::from_secs(10),
        }
    }
}

/// Bills.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BillingSettings {
    /// The currency of all prices and bills, by its three letters. It cannot be changed once there is a price list.
    pub currency: Currency,
    /// How often months are closed, statements issued and budgets checked.
    pub interval: DurationMs,
    /// How long after its end a month is closed; usage that arrives later is on a later statement.
    pub close_after: DurationMs,
    /// The most price lists.
    pub price_lists_max: u32,
    /// The most budgets of a tenant.
    pub budgets_max: u32,
}

impl BillingSettings {
    /// Checks what the types alone cannot ensure.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.interval.as_millis() < 10 || self.close_after.as_millis() < 3_600_000 {
            return Err(Error::config(
                "billing.interval must be at least 10ms, and billing.close_after at least 1h",
            ));
        }
        if self.price_lists_max == 0 || self.budgets_max == 0 {
            return Err(Error::config(
                "billing.price_lists_max and budgets_max must be at least 1",
            ));
        }
        Ok(())
    }
}

impl Default for BillingSettings {
    fn default() -> Self {
        Self {
            currency: Currency::EUR,
            interval: DurationMs::from_secs(60),
            close_after: DurationMs::from_secs(72 * 3600),
            price_lists_max: 1000,
            budgets_max: 20,
        }
    }
}

/// Usage reports of nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UsageSettings {
    /// The largest batch.
    pub body_limit: ByteSize,
    /// How long a batch is remembered, so that it is not counted twice; the newest of each node stays until another one comes.
    pub remember: DurationMs,
    /// How long hourly sums are kept, and records of calls from nodes of the release before. Daily sums stay.
    pub keep: DurationMs,
}

impl Default for UsageSettings {
    fn default() -> Self {
        Self {
            body_limit: ByteSize::from_mib(16),
            remember: DurationMs::from_secs(3 * 86_400),
            keep: DurationMs::from_secs(400 * 86_400),
        }
    }
}

/// Coordination of several controllers on one database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SingletonSettings {
    /// How long another controller waits before it takes over the work of one that has died. One that stops hands over at once.
    pub lease: DurationMs,
    /// How long a stopping controller continues to serve while `/readyz` fails: longer than a load balancer takes to notice.
    pub linger: DurationMs,
}

impl Default for SingletonSettings {
    fn default() -> Self {
        Self {
            lease: DurationMs::from_secs(10),
            linger: DurationMs::from_millis(0),
        }
    }
}
