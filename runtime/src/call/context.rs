//! Who calls, with what, and how far the guest may go.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use fdn_core::ByteSize;
use fdn_core::manifest::{AllowedHost, Manifest};

use crate::log::LogSink;
use crate::outbound::Network;

/// How far one call may go. Made from a manifest with [`Limits::from`]; what a manifest does not say has a default here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The sum of all linear memories and tables of the instance.
    pub memory: ByteSize,
    /// CPU time of the guest.
    pub cpu_time: Duration,
    /// From [`crate::Function::call`] to the last byte of the response.
    pub timeout: Duration,
    /// The request body.
    pub body: ByteSize,
    /// The response body.
    pub response: ByteSize,
    /// One line of output; the rest of a longer one is cut.
    pub log_line: usize,
    /// All lines of one call together; what comes after is dropped, and one line says so.
    pub log_total: usize,
    /// Outbound requests that may be open at the same time.
    pub outbound_open: u32,
    /// Outbound requests in all.
    pub outbound_total: u32,
    /// The body of one outbound request, and that of its response.
    pub outbound_body: ByteSize,
    /// How long an outbound connection may take to be made.
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

/// Everything a call needs besides the request. Cheap to clone: make one per function version and set `log` for each call.
#[derive(Clone)]
pub struct CallContext {
    /// Environment variables, secrets among them. Share one `Arc` per function version: an idle instance is only reused for
    /// a call with the same variables.
    pub env: Arc<[(String, String)]>,
    /// How far it may go.
    pub limits: Limits,
    /// Where it may send requests.
    pub allowed_hosts: Arc<BTreeSet<AllowedHost>>,
    /// Whether it may send any.
    pub network: Network,
    /// Where its output goes.
    pub log: Arc<dyn LogSink>,
    /// How many calls an instance may serve, one after another; 0 and 1 both mean a fresh instance for this call.
    pub reuse: u32,
    /// What an instance that is made for this call holds of the node: kept with the instance, and given back with it. A call that
    /// finds an idle instance gives it back at once, because that instance has its own.
    pub hold: Option<Hold>,
}

/// Something that is given back when it is dropped.
pub type Hold = Arc<dyn std::any::Any + Send + Sync>;

impl CallContext {
    /// The context that a manifest asks for. `secrets` are the values of the manifest's secrets, by name.
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
            hold: None,
        }
    }
}
