//! Outbound HTTP requests of functions: to allowed hosts only, within limits, each over its own connection.

mod body;
mod job;
mod lookup;

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

use fdn_core::api::LogStream;
use fdn_core::manifest::AllowedHost;
use fdn_core::{ClientPrefix, InstanceId};
use http::HeaderName;
use tokio::sync::watch;
use wasmtime_wasi_http::{
    DEFAULT_FORBIDDEN_HEADERS, Error, ForbiddenHeaderFilter, RequestOptions, WasiBody,
    WasiHttpHooks,
};

use crate::call::{CallContext, Limits};
use crate::log::LogSink;
use job::{Job, Target, Timeouts};
pub(crate) use lookup::Lookups;

/// The most writes to a response or request body that wait for the other side. With fewer, a small answer in a few writes could not
/// be finished in one go; with more, slow readers would hold more memory.
const BODY_CHUNKS: usize = 7;
const BODY_CHUNK_SIZE: usize = 64 << 10;
/// The most bytes that wait in a body; the channel has one place more than was asked for.
pub(crate) const BODY_MAX: usize = (BODY_CHUNKS + 1) * BODY_CHUNK_SIZE;

/// The most lines about denied requests per call: a guest may retry any number of times.
const DENIED_LINES: u32 = 10;

pub(super) type Io = Box<dyn Future<Output = Result<(), Error>> + Send>;
pub(super) type Sent = Result<(http::Response<WasiBody>, Io), Error>;

/// Whether a call has a network.
#[derive(Clone, Debug, Default)]
pub enum Network {
    /// It reaches what its manifest and the node's operator allow.
    #[default]
    Filtered,
    /// It reaches nothing; the flag records whether it tried.
    Absent(Arc<AtomicBool>),
}

/// How the calls of a function reach the network.
pub(crate) struct Reach {
    /// Non-public addresses that may be reached nevertheless: set by the operator, regardless of any manifest.
    pub(crate) private: Arc<[ClientPrefix]>,
    pub(crate) lookups: Lookups,
}

/// The outbound policy of a call, and what it has sent so far.
pub(crate) struct Hooks {
    network: Network,
    reach: Arc<Reach>,
    allowed: Arc<BTreeSet<AllowedHost>>,
    log: Arc<dyn LogSink>,
    instance: InstanceId,
    limits: Limits,
    deadline: Instant,
    open: Option<Arc<AtomicU32>>,
    total: u32,
    denied: u32,
    /// Dropped when the call ends; connections that wait on the receiver then close.
    over: Option<watch::Sender<()>>,
}

impl Hooks {
    pub(crate) fn new(
        context: &CallContext,
        reach: Arc<Reach>,
        instance: InstanceId,
        deadline: Instant,
    ) -> Self {
        Self {
            network: context.network.clone(),
            reach,
            allowed: context.allowed_hosts.clone(),
            log: context.log.clone(),
            instance,
            limits: context.limits,
            deadline,
            open: None,
            total: 0,
            denied: 0,
            over: None,
        }
    }

    /// Closes the connections of the call.
    pub(crate) fn end_call(&mut self) {
        self.over = None;
    }

    fn deny(&mut self, target: &Target, why: &str) {
        self.denied += 1;
        if self.denied > DENIED_LINES {
            return;
        }
        self.log.line(
            self.instance,
            LogStream::System,
            &format!(
                "outbound request to {}:{} denied: {why}",
                target.host, target.port
            ),
        );
    }

    /// All checks that need no connection: the call has a network, the host is allowed, and the call's limits are not reached.
    fn admit(&mut self, uri: &http::Uri) -> Result<(Target, Permit), Error> {
        let target = Target::of(uri)?;
        if let Network::Absent(asked) = &self.network {
            asked.store(true, Ordering::Relaxed);
            self.deny(&target, "this call has no network");
            return Err(Error::HttpRequestDenied);
        }
        if !self
            .allowed
            .iter()
            .any(|host| host.covers(&target.host, target.port))
        {
            self.deny(&target, "the host is not among `allowed_hosts` in fdn.toml");
            return Err(Error::HttpRequestDenied);
        }
        let open = self.open.get_or_insert_default().clone();
        if self.total >= self.limits.outbound_total
            || open.load(Ordering::Relaxed) >= self.limits.outbound_open
        {
            self.deny(&target, "the call has sent too many requests");
            return Err(Error::ConnectionLimitReached);
        }
        self.total += 1;
        Ok((target, Permit::new(open)))
    }
}

/// Counts one open request.
pub(crate) struct Permit(Arc<AtomicU32>);

impl Permit {
    fn new(open: Arc<AtomicU32>) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self(open)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl WasiHttpHooks for Hooks {
    fn is_forbidden_header(&mut self, name: &HeaderName) -> bool {
        // The default method allocates an `Arc` for each header.
        is_forbidden(name)
    }

    fn forbidden_header_filter(&mut self) -> ForbiddenHeaderFilter {
        Arc::new(is_forbidden)
    }

    fn p2_outgoing_body_buffer_chunks(&mut self) -> usize {
        BODY_CHUNKS
    }

    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        BODY_CHUNK_SIZE
    }

    fn send_request(
        &mut self,
        request: http::Request<WasiBody>,
        options: Option<RequestOptions>,
        _processed: Io,
    ) -> Box<dyn Future<Output = Sent> + Send> {
        let (target, permit) = match self.admit(request.uri()) {
            Ok(admitted) => admitted,
            Err(error) => return Box::new(std::future::ready(Err(error))),
        };
        let over = self
            .over
            .get_or_insert_with(|| watch::channel(()).0)
            .subscribe();
        let job = Job {
            target,
            reach: self.reach.clone(),
            log: self.log.clone(),
            instance: self.instance,
            timeouts: Timeouts::new(options, &self.limits, self.deadline),
            body_limit: self.limits.outbound_body.as_bytes(),
            permit: Some(permit),
            over,
        };
        Box::new(job.run(request))
    }
}

fn is_forbidden(name: &HeaderName) -> bool {
    DEFAULT_FORBIDDEN_HEADERS.contains(name)
}
