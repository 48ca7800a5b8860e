//! The context of a call: its environment, its limits, and where its output and requests may go.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use fdn_core::ByteSize;
use fdn_core::manifest::{AllowedHost, Manifest};

use crate::log::LogSink;
use crate::outbound::Network;

/// The limits of one call. Made from a manifest with [`Limits::from`]; what a manifest does not set has a default here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Memory: the sum of all linear memories and tables of the instance.
    pub memory: ByteSize,
    /// CPU time of the guest.
    pub cpu_time: Duration,
    /// Time from [`crate::Function::call`] to the last byte of the response.
    pub timeout: Duration,
    /// Size of the request body.
    pub body: ByteSize,
    /// Size of the response body.
    pub response: ByteSize,
    /// Bytes of one line of output; the rest of a longer line is cut off.
    pub log_line: usize,
    /// Bytes of all output lines of one call together; the rest is dropped, and one line says so.
    pub log_total: usize,
    /// Concurrently open outbound requests.
    pub outbound_open: u32,
    /// Outbound requests in total.
    pub outbound_total: u32,
    /// Size of the body of one outbound request, and of that of its response.
    pub outbound_body: ByteSize,
    /// The time limit for making an outbound connection.
    pub outbound_connect: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self::from(&Manifest::default())
    }
}

impl From<&Manifest> for Limits {
    fn from(manifest: &Manifest) -> Self {
        Self {
            memory: manifest.memory,
            cpu_time: manifest.cpu_time.as_duration(),
            timeout: manifest.timeout.as_duration(),
            body: manifest.body_limit,
            response: manifest.response_limit,
            log_line: 4096,
            log_total: 64 << 10,
            outbound_open: 16,
            outbound_total: 100,
            outbound_body: ByteSize::from_mib(64),
            outbound_connect: Duration::from_secs(5),
        }
    }
}

/// Everything that a call needs besides the request. Cheap to clone: make one per function version and set `log` for each call.
#[derive(Clone)]
pub struct CallContext {
    /// Environment variables, including secrets. Share one `Arc` per function version: an idle instance is only reused for
    /// a call with the same variables.
    pub env: Arc<[(String, String)]>,
    /// The limits of the call.
    pub limits: Limits,
    /// The hosts to which it may send requests.
    pub allowed_hosts: Arc<BTreeSet<AllowedHost>>,
    /// Whether it has a network at all.
    pub network: Network,
    /// The sink of its output.
    pub log: Arc<dyn LogSink>,
    /// How many calls one instance may serve, one after another; 0 and 1 both mean a fresh instance for this call.
    pub reuse: u32,
    /// What an instance made for this call occupies on the node: kept with the instance and released with it. A call that
    /// uses an idle instance releases it at once, because that instance has its own.
    pub resource_guard: Option<ResourceGuard>,
}

/// A resource that is released when it is dropped.
pub type ResourceGuard = Arc<dyn std::any::Any + Send + Sync>;

impl CallContext {
    /// The context for a manifest. `secrets` are the values of the manifest's secrets, by name.
    #[must_use]
    pub fn from_manifest(
        manifest: &Manifest,
        secrets: impl IntoIterator<Item = (String, String)>,
        log: Arc<dyn LogSink>,
    ) -> Self {
        Self {
            env: manifest
                .env
                .iter()
                .map(|(name, value)| (name.to_string(), value.clone()))
                .chain(secrets)
                .collect(),
            limits: Limits::from(manifest),
            allowed_hosts: Arc::new(manifest.allowed_hosts.clone()),
            network: Network::default(),
            log,
            reuse: manifest.reuse,
            resource_guard: None,
        }
    }
}
