//! Usage: each call's record is in the spool before its answer is whole, and counts towards the sums that go to the controller from there.
//!
//! [`Meter`] is what a call carries from before it runs, with its room in the spool, to its end. [`Controller`] is where sums go. [`routes`] let
//! controllers look for single calls.

mod http;

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use fdn_core::manifest::Manifest;
use fdn_core::usage::{CallFacts, CallRecord, Noted, UsageOutcome, UsageReceipt, UsageRecord};
use fdn_core::{AppName, FunctionName, InvocationId, MebiBytes, Timestamp, VersionNumber};
use fdn_runtime::CallStats;
use fdn_service::secret::Secret;
use fdn_spool::{Batch, DeliverError, Place, Receipt, Sink, Spool, SpoolError};
use rand::RngExt;
use tracing::error;

use crate::artifacts::without_url;
use crate::metrics::Outcome;

pub use http::{CallAccess, routes};

/// The most of a method that is kept: a record has a bound.
const METHOD_MAX: usize = 16;

/// What of a function version is billed by, the same for all its calls.
#[derive(Clone, Debug)]
pub struct Billed {
    app: AppName,
    function: FunctionName,
    version: VersionNumber,
    memory: MebiBytes,
    gpu_memory: MebiBytes,
}

impl Billed {
    /// Of this version.
    #[must_use]
    pub fn new(
        app: &AppName,
        function: &FunctionName,
        version: VersionNumber,
        manifest: &Manifest,
    ) -> Arc<Self> {
        let resources = manifest.resources();
        Arc::new(Self {
            app: app.clone(),
            function: function.clone(),
            version,
            memory: resources.memory_mib,
            gpu_memory: resources.gpu_memory_mib,
        })
    }
}

/// What a call is known by, for who looks for it.
#[derive(Clone, Debug)]
pub struct Known {
    /// The request id.
    pub request: Bytes,
    /// The trace id.
    pub trace: Bytes,
    /// The request's method.
    pub method: actix_http::Method,
    /// When the request arrived.
    pub arrived: Instant,
}

/// How far a call has come.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// The status of the answer, if one was begun.
    pub status: Option<u16>,
    /// From the request's arrival until it was let in.
    pub waited: Duration,
    /// Since the request's arrival.
    pub total: Duration,
}

/// Measures one call.
pub struct Meter {
    place: Place,
    billed: Arc<Billed>,
    known: Known,
    invocation: InvocationId,
    started_at: Timestamp,
    /// What was written while it ran: the next record takes its place.
    noted: Option<Noted>,
}

impl Meter {
    /// Room for the record of a call that is about to run.
    ///
    /// # Errors
    /// When there is none: the call must not run.
    pub fn start(spool: &Spool, billed: &Arc<Billed>, known: Known) -> Result<Self, SpoolError> {
        let place = spool.reserve()?;
        let since = u64::try_from(known.arrived.elapsed().as_millis()).unwrap_or(u64::MAX);
        let now = fdn_service::now().get();
        Ok(Self {
            place,
            billed: Arc::clone(billed),
            known,
            invocation: invocation(now),
            started_at: Timestamp(now.saturating_sub(since)),
            noted: None,
        })
    }

    /// Writes what is known now: `outcome` nothing while the call still runs.
    ///
    /// # Errors
    /// When the disk fails: no more of the answer must be sent.
    pub fn record(
        &mut self,
        stats: &CallStats,
        egress: u64,
        outcome: Option<Outcome>,
        progress: Progress,
    ) -> Result<Receipt, SpoolError> {
        let billed = &self.billed;
        let used = UsageRecord {
            invocation: self.invocation,
            app: billed.app.clone(),
            function: billed.function.clone(),
            version: billed.version,
            started_at: self.started_at,
            duration_us: micros(stats.instantiate + stats.exec),
            cpu_us: micros(stats.cpu),
            memory_mib: billed.memory,
            gpu_memory_mib: billed.gpu_memory,
            egress_bytes: egress,
            outcome: outcome.map_or(UsageOutcome::Running, billed_as),
        };
        let noted = Noted::of(&used);
        let receipt = self.place.record(&CallRecord {
            used,
            call: Some(self.known.facts(stats, progress)),
            noted: self.noted,
        })?;
        self.noted = noted;
        Ok(receipt)
    }
}

/// An id of version 7 (RFC 9562, section 5.7) from the thread's own generator: asking the kernel for random octets would be a system call for each call.
fn invocation(now: u64) -> InvocationId {
    let id = uuid::Builder::from_unix_timestamp_millis(now, &rand::rng().random());
    InvocationId::from_uuid(id.into_uuid())
}

impl Known {
    fn facts(&self, stats: &CallStats, progress: Progress) -> CallFacts {
        let text = |octets: &Bytes| String::from_utf8_lossy(octets).into_owned();
        CallFacts {
            request: text(&self.request),
            trace: text(&self.trace),
            method: self.method.as_str().chars().take(METHOD_MAX).collect(),
            status: progress.status,
            wait_us: micros(progress.waited),
            start_us: micros(stats.instantiate),
            head_us: micros(stats.first_byte.saturating_sub(stats.instantiate)),
            total_us: micros(progress.total),
        }
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// An outcome as it is billed. Calls that never reached a function have no record.
const fn billed_as(outcome: Outcome) -> UsageOutcome {
    match outcome {
        Outcome::Ok => UsageOutcome::Ok,
        Outcome::FunctionError => UsageOutcome::FunctionError,
        Outcome::FunctionEnded => UsageOutcome::FunctionEnded,
        Outcome::Client => UsageOutcome::Client,
        Outcome::Overloaded | Outcome::NotReady | Outcome::Internal => UsageOutcome::Internal,
    }
}

/// A record that an answer waits for.
pub struct Pending(Result<Receipt, SpoolError>);

impl Pending {
    /// Of a record that was written, or could not be.
    #[must_use]
    pub const fn new(written: Result<Receipt, SpoolError>) -> Self {
        Self(written)
    }

    /// Whether there is nothing to wait for.
    #[must_use]
    pub fn is_safe(&self) -> bool {
        self.0.as_ref().is_ok_and(Receipt::is_ready)
    }

    /// Whether the record is safe, once that is known. If it is not, the answer must not be sent.
    pub async fn safe(self) -> bool {
        let safe = match self.0 {
            Ok(receipt) => receipt.wait().await,
            Err(failure) => Err(failure),
        };
        if let Err(failure) = &safe {
            error!(%failure, "an answer is not sent, because its record cannot be kept");
        }
        safe.is_ok()
    }
}

/// The controller, as it takes usage. One of the revision before knows nothing of sums: its 404 makes them wait in the spool until it is of this one.
pub struct Controller {
    /// The HTTP client.
    pub client: reqwest::Client,
    /// The address of the controller.
    pub url: String,
    /// The network token.
    pub token: Secret,
    /// The longest that one batch may take.
    pub timeout: Duration,
}

#[async_trait]
impl Sink for Controller {
    async fn deliver(&self, batch: &Batch) -> Result<(), DeliverError> {
        let later = |reason: String| DeliverError::Later(reason);
        let post = |path: &str| self.client.post(format!("{}{path}", self.url));
        let request = match batch {
            Batch::Sums(sums) => post("/agent/v1/usage/sums").json(sums),
            Batch::Records(records) => post("/agent/v1/usage").json(records),
        };
        let answer = request
            .bearer_auth(self.token.expose())
            .timeout(self.timeout)
            .send()
            .await
            .map_err(|e| later(without_url(e)))?;
        let status = answer.status().as_u16();
        match status {
            // An answer of something else than a controller is no receipt.
            200 => match answer.json::<UsageReceipt>().await {
                Ok(_) => Ok(()),
                Err(e) => Err(later(without_url(e))),
            },
            // It was understood, and is no batch for whoever is there: sending it again would change nothing.
            400 | 413 | 422 => Err(DeliverError::Never(format!("status {status}"))),
            _ => Err(later(format!("status {status}"))),
        }
    }
}
