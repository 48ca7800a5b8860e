//! The server's metrics. Label sets are fixed, or bounded by the network's own clusters and gateways, or by a setting.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fdn_core::ClusterId;
use fdn_service::ServiceError;
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use prometheus::{
    GaugeVec, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
};

pub use self::apps::AppMetrics;
pub use self::bindings::BindingMetrics;
pub use self::encrypted::EncryptedMetrics;
pub use self::sampled::SampledMetrics;
pub use self::signing::SigningMetrics;
pub use self::transfers::TransferMetrics;
use crate::policy::fleet::{Network, Share};

pub mod apps;
mod bindings;
pub mod encrypted;
mod sampled;
mod signing;
mod steering;
mod transfers;

/// How a query arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A UDP datagram.
    Udp,
    /// A TCP connection.
    Tcp,
    /// DNS over TLS (RFC 7858).
    Tls,
    /// DNS over HTTPS (RFC 8484), in HTTP/2.
    Https,
}

impl Transport {
    /// The transport's name in metrics and logs.
    #[must_use]
    pub const fn label(self) -> &'static str {
        TRANSPORTS[self as usize]
    }

    /// Whether the peer's address cannot be forged and an answer may have any length.
    #[must_use]
    pub const fn is_stream(self) -> bool {
        !matches!(self, Self::Udp)
    }

    /// Whether nobody else can read the answer.
    #[must_use]
    pub const fn is_encrypted(self) -> bool {
        matches!(self, Self::Tls | Self::Https)
    }
}

/// Query types with a counter of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryKind {
    /// A.
    A,
    /// AAAA.
    Aaaa,
    /// NS.
    Ns,
    /// SOA.
    Soa,
    /// ANY.
    Any,
    /// All other types, and requests whose type was not read.
    Other,
}

impl QueryKind {
    /// The kind that a type counts as.
    #[must_use]
    pub const fn of(kind: RecordType) -> Self {
        match kind {
            RecordType::A => Self::A,
            RecordType::AAAA => Self::Aaaa,
            RecordType::NS => Self::Ns,
            RecordType::SOA => Self::Soa,
            RecordType::ANY => Self::Any,
            _ => Self::Other,
        }
    }
}

const KINDS: [&str; 6] = ["A", "AAAA", "NS", "SOA", "ANY", "other"];
const TRANSPORTS: [&str; 4] = ["udp", "tcp", "tls", "https"];
const CODES: [(ResponseCode, &str); 8] = [
    (ResponseCode::NoError, "NOERROR"),
    (ResponseCode::NXDomain, "NXDOMAIN"),
    (ResponseCode::Refused, "REFUSED"),
    (ResponseCode::ServFail, "SERVFAIL"),
    (ResponseCode::FormErr, "FORMERR"),
    (ResponseCode::NotImp, "NOTIMP"),
    (ResponseCode::BADVERS, "BADVERS"),
    (ResponseCode::NotAuth, "NOTAUTH"),
];
/// The label of all other codes.
const OTHER_CODE: &str = "other";

/// The name of a code in metrics and logs.
#[must_use]
pub fn rcode_label(code: ResponseCode) -> &'static str {
    let known = CODES.iter().find(|(known, _)| *known == code);
    known.map_or(OTHER_CODE, |(_, label)| label)
}

#[derive(Debug, Default)]
struct Labelled {
    clusters: BTreeSet<ClusterId>,
    gateways: BTreeSet<(ClusterId, SocketAddr)>,
}

/// The server's metrics.
#[derive(Debug)]
pub struct Metrics {
    /// One counter for each type, code and transport, so that counting needs no lookup.
    queries: Vec<IntCounter>,
    ignored: IntCounter,
    with_subnet: IntCounter,
    seconds: Histogram,
    /// Metrics of the sampled queries.
    pub sampled: SampledMetrics,
    /// Answers by app.
    pub by_app: AppMetrics,
    answers: IntCounterVec,
    health: IntGaugeVec,
    shed: GaugeVec,
    /// The labels in use, so that they can be removed with their cluster or gateway. No query locks this.
    labelled: Mutex<Labelled>,
    /// Queries not counted as demand because the table was full or locked.
    pub demand_dropped: IntCounter,
    /// Queries of prefixes that were seen for the first time and are not reported yet.
    pub demand_first: IntCounter,
    /// Demand reports that could not be sent.
    pub demand_unsent: IntCounter,
    /// TCP connections closed at once because a limit was reached.
    pub tcp_refused: IntCounter,
    /// Open TCP connections.
    pub tcp_open: IntGauge,
    /// Requests over UDP beyond a limit that were sent to TCP.
    pub limited_slipped: IntCounter,
    /// Requests over UDP beyond a limit that got no answer.
    pub limited_dropped: IntCounter,
    /// The newest revision of desired state held.
    pub revision: IntGauge,
    /// Seconds since the controller last confirmed the state.
    pub age: IntGauge,
    /// The number of apps in the zone.
    pub apps: IntGauge,
    /// Names with text records that were set through the API.
    pub texts: IntGauge,
    /// Messages ignored because a newer revision is held.
    pub stale: IntCounter,
    /// Gateway checks that were inconclusive because this machine was late.
    pub inconclusive_checks: IntCounter,
    /// Metrics of the bindings held.
    pub bindings: BindingMetrics,
    /// Metrics of the signatures made and cached.
    pub signing: SigningMetrics,
    /// Metrics of the encrypted connections.
    pub encrypted: EncryptedMetrics,
    /// Metrics of signed requests, zone transfers and notices.
    pub transfers: TransferMetrics,
}

/// The counters of all types, codes ([`CODES`], then all others) and transports, nested in this order.
fn by_label(queries: &IntCounterVec) -> Vec<IntCounter> {
    let codes = CODES.map(|(_, label)| label);
    let mut counters = Vec::with_capacity(KINDS.len() * (codes.len() + 1) * TRANSPORTS.len());
    for kind in KINDS {
        for code in codes.into_iter().chain([OTHER_CODE]) {
            for transport in TRANSPORTS {
                counters.push(queries.with_label_values(&[kind, code, transport]));
            }
        }
    }
    counters
}

/// Registers the histogram of answer times.
fn seconds(registry: &Registry) -> Result<Histogram, ServiceError> {
    let buckets = vec![2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 1e-2];
    let seconds = Histogram::with_opts(
        HistogramOpts::new(
            "fdn_dns_answer_seconds",
            "Time from bytes to bytes, of one query in 16.",
        )
        .buckets(buckets),
    )?;
    registry.register(Box::new(seconds.clone()))?;
    Ok(seconds)
}

impl Metrics {
    /// Creates and registers the metrics.
    ///
    /// # Errors
    /// When a name is already registered.
    pub fn new(registry: &Registry) -> Result<Self, ServiceError> {
        let counter = |name: &str, help: &str| {
            let counter = IntCounter::new(name, help)?;
            registry.register(Box::new(counter.clone()))?;
            Ok::<_, prometheus::Error>(counter)
        };
        let gauge = |name: &str, help: &str| {
            let gauge = IntGauge::new(name, help)?;
            registry.register(Box::new(gauge.clone()))?;
            Ok::<_, prometheus::Error>(gauge)
        };
        let queries = IntCounterVec::new(
            Opts::new(
                "fdn_dns_queries_total",
                "Queries answered, by type, code and transport.",
            ),
            &["type", "rcode", "transport"],
        )?;
        registry.register(Box::new(queries.clone()))?;
        let answers = IntCounterVec::new(
            Opts::new(
                "fdn_dns_answers_total",
                "Answers that named a living cluster, by cluster.",
            ),
            &["cluster"],
        )?;
        registry.register(Box::new(answers.clone()))?;
        let health = steering::health(registry)?;
        let shed = steering::shed(registry)?;
        Ok(Self {
            queries: by_label(&queries),
            ignored: counter(
                "fdn_dns_ignored_total",
                "Packets that got no answer: no requests, or too short.",
            )?,
            with_subnet: counter(
                "fdn_dns_client_subnet_total",
                "Queries that carried a client subnet.",
            )?,
            seconds: seconds(registry)?,
            sampled: SampledMetrics::new(registry)?,
            by_app: AppMetrics::new(registry)?,
            answers,
            health,
            shed,
            labelled: Mutex::default(),
            demand_dropped: counter(
                "fdn_dns_demand_dropped_total",
                "Queries not counted as demand: table full or busy.",
            )?,
            demand_first: counter(
                "fdn_dns_demand_first_total",
                "Queries of prefixes that asked for the first time, among many: told with the second.",
            )?,
            demand_unsent: counter(
                "fdn_dns_demand_unsent_total",
                "Demand reports that no controller took.",
            )?,
            tcp_refused: counter(
                "fdn_dns_tcp_refused_total",
                "Connections closed at once because a cap was reached.",
            )?,
            tcp_open: gauge("fdn_dns_tcp_open", "Connections open now.")?,
            limited_slipped: counter(
                "fdn_dns_limited_slipped_total",
                "Requests over UDP beyond a limit that were sent to TCP.",
            )?,
            limited_dropped: counter(
                "fdn_dns_limited_dropped_total",
                "Requests over UDP beyond a limit that got no answer.",
            )?,
            revision: gauge(
                "fdn_dns_revision",
                "The newest revision of desired state held.",
            )?,
            age: gauge(
                "fdn_dns_state_age_seconds",
                "Seconds since the controller last confirmed the state; -1: never.",
            )?,
            apps: gauge("fdn_dns_apps", "Apps answered for.")?,
            texts: gauge(
                "fdn_dns_txt_names",
                "Names with text records set through the API.",
            )?,
            stale: counter(
                "fdn_dns_stale_messages_total",
                "Messages ignored because a newer revision is held.",
            )?,
            inconclusive_checks: counter(
                "fdn_dns_checks_inconclusive_total",
                "Checks of gateways repeated because this machine itself was late.",
            )?,
            bindings: BindingMetrics::new(registry)?,
            signing: SigningMetrics::new(registry)?,
            encrypted: EncryptedMetrics::new(registry)?,
            transfers: TransferMetrics::new(registry)?,
        })
    }

    /// The same metrics, with at most `most` apps that have a series of their own.
    #[must_use]
    pub fn naming_apps(self, most: usize) -> Self {
        Self {
            by_app: self.by_app.naming(most),
            ..self
        }
    }

    /// Counts a query.
    pub fn query(&self, kind: QueryKind, code: ResponseCode, transport: Transport) {
        let code = CODES
            .iter()
            .position(|(known, _)| *known == code)
            .unwrap_or(CODES.len());
        let row = kind as usize * (CODES.len() + 1) + code;
        let index = row * TRANSPORTS.len() + transport as usize;
        self.queries[index].inc();
    }

    /// Counts a packet that got no answer.
    pub fn ignored(&self) {
        self.ignored.inc();
    }

    /// Counts a query with a client subnet.
    pub fn with_subnet(&self) {
        self.with_subnet.inc();
    }

    /// Records how long an answer took.
    pub fn timed(&self, took: Duration) {
        self.seconds.observe(took.as_secs_f64());
    }

    fn labelled(&self) -> MutexGuard<'_, Labelled> {
        // Both sets are valid after every single change.
        self.labelled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counter of answers that named `cluster`.
    #[must_use]
    pub fn answers(&self, cluster: &ClusterId) -> IntCounter {
        self.labelled().clusters.insert(cluster.clone());
        self.answers.with_label_values(&[cluster.as_str()])
    }

    /// Records a gateway's health.
    pub fn gateway(&self, cluster: &ClusterId, gateway: SocketAddr, up: bool) {
        self.labelled().gateways.insert((cluster.clone(), gateway));
        let labels = [cluster.as_str(), &gateway.to_string()];
        self.health.with_label_values(&labels).set(i64::from(up));
    }

    /// Records the share of its clients that a cluster sends elsewhere.
    pub fn shed(&self, cluster: &ClusterId, share: Share) {
        self.labelled().clusters.insert(cluster.clone());
        let part = f64::from(share) / 65_536.0;
        self.shed.with_label_values(&[cluster.as_str()]).set(part);
    }

    /// Removes the labels of clusters and gateways that no longer exist.
    pub fn forget_all_except(&self, network: &Network) {
        let present: BTreeSet<(ClusterId, SocketAddr)> = network
            .gateways()
            .map(|(cluster, gateway, _)| (cluster.clone(), gateway))
            .collect();
        let mut labelled = self.labelled();
        // Removing fails only for a label that does not exist.
        labelled.gateways.retain(|entry| {
            let kept = present.contains(entry);
            if !kept {
                drop(
                    self.health
                        .remove_label_values(&[entry.0.as_str(), &entry.1.to_string()]),
                );
            }
            kept
        });
        labelled.clusters.retain(|cluster| {
            let kept = network
                .clusters()
                .iter()
                .any(|spec| spec.cluster == *cluster);
            if !kept {
                drop(self.answers.remove_label_values(&[cluster.as_str()]));
                drop(self.shed.remove_label_values(&[cluster.as_str()]));
            }
            kept
        });
    }
}
