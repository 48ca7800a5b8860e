//! Usage: each call's record is in the spool before its response is complete, and from there counts towards the sums that go to the controller.
//!
//! A call carries a [`Meter`], with its reserved room in the spool, from before it runs to its end. [`Controller`] receives the sums.
//! [`CallAccess`] lets controllers search for single calls.

mod http;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use fdn_core::manifest::Manifest;
use fdn_core::usage::{
    CallFacts, CallRecord, InterimUsage, Routed, UsageOutcome, UsageReceipt, UsageRecord,
};
use fdn_core::{AppName, BatchId, FunctionName, InvocationId, MebiBytes, Timestamp, VersionNumber};
use fdn_link::{LinkError, SharedControllerLink, post_json};
use fdn_runtime::CallStats;
use fdn_spool::{Batch, DeliverError, Receipt, RecordPermit, Sink, Spool, SpoolError};
use rand::RngExt;
use tracing::error;

use crate::metrics::Outcome;
use crate::peers::Placement;
use crate::traces::Traced;
use crate::traces::spans::{EndedWork, RecordedCall};

pub use http::CallAccess;
pub(crate) use http::answer;

/// The most characters of a method that are recorded, since records have a bounded size.
const METHOD_MAX: usize = 16;

/// The properties of a function version that it is billed by, the same for all its calls.
#[derive(Clone, Debug)]
pub struct BillingKey {
    app: AppName,
    function: FunctionName,
    version: VersionNumber,
    memory: MebiBytes,
    gpu_memory: MebiBytes,
}

impl BillingKey {
    /// The billing properties of this version.
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

/// What identifies a call, for searches.
#[derive(Clone, Debug)]
pub struct CallIdentity {
    /// The request id.
    pub request: Bytes,
    /// The trace id.
    pub trace: Bytes,
    /// The request's method.
    pub method: actix_http::Method,
    /// When the request arrived.
    pub arrived: Instant,
    /// How it was routed.
    pub routed: Routed,
    /// Exports its spans, if those are exported.
    pub traced: Option<Box<Traced>>,
}

/// The progress of a call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// The response's status, once it has begun.
    pub status: Option<u16>,
    /// From the request's arrival until it was admitted.
    pub waited: Duration,
    /// Since the request's arrival.
    pub total: Duration,
}

/// Measures one call and records it.
pub struct Meter {
    permit: RecordPermit,
    billing: Arc<BillingKey>,
    call: CallIdentity,
    invocation: InvocationId,
    started_at: Timestamp,
    /// What was recorded while it ran: the next record replaces it.
    noted: Option<InterimUsage>,
    /// How its instance was placed, if the call waited for that.
    placement: Option<Arc<Placement>>,
}

impl Meter {
    /// Reserves room for the record of a call that is about to run.
    ///
    /// # Errors
    /// When there is no room: the call must not run.
    pub fn start(
        spool: &Spool,
        billing: &Arc<BillingKey>,
        call: CallIdentity,
    ) -> Result<Self, SpoolError> {
        let permit = spool.reserve()?;
        let since = u64::try_from(call.arrived.elapsed().as_millis()).unwrap_or(u64::MAX);
        let now = fdn_service::now().get();
        Ok(Self {
            permit,
            billing: Arc::clone(billing),
            call,
            invocation: invocation(now),
            started_at: Timestamp(now.saturating_sub(since)),
            noted: None,
            placement: None,
        })
    }

    /// Records what is known now; `outcome` is `None` while the call runs.
    ///
    /// # Errors
    /// When the disk fails: no more of the response may be sent.
    pub fn record(
        &mut self,
        stats: &CallStats,
        egress: u64,
        outcome: Option<Outcome>,
        progress: Progress,
    ) -> Result<Receipt, SpoolError> {
        let record = self.now(stats, egress, outcome, progress);
        let written = self.permit.record(&record);
        let noted = InterimUsage::of(&record.used);
        if outcome.is_some() {
            self.export(record);
        }
        let receipt = written?;
        self.noted = noted;
        Ok(receipt)
    }

    /// Ends a call that certainly no function has seen: it is not recorded, but its spans are exported.
    pub fn unseen(&mut self, outcome: Outcome, progress: Progress) {
        if self.call.traced.is_some() {
            let record = self.now(&CallStats::default(), 0, Some(outcome), progress);
            self.export(record);
        }
    }

    /// Whether its spans are exported.
    #[must_use]
    pub const fn is_traced(&self) -> bool {
        self.call.traced.is_some()
    }

    /// Sets how the instance started for the call was placed.
    pub fn placed(&mut self, placement: Option<Arc<Placement>>) {
        self.placement = placement;
    }

    fn export(&mut self, record: CallRecord) {
        if let Some(traced) = self.call.traced.take() {
            traced.submit(EndedWork::Call(Box::new(RecordedCall {
                record,
                arrived: self.call.arrived,
                placement: self.placement.take(),
            })));
        }
    }

    /// The record of what is known now.
    fn now(
        &self,
        stats: &CallStats,
        egress: u64,
        outcome: Option<Outcome>,
        progress: Progress,
    ) -> CallRecord {
        let billing = &self.billing;
        let used = UsageRecord {
            invocation: self.invocation,
            app: billing.app.clone(),
            function: billing.function.clone(),
            version: billing.version,
            started_at: self.started_at,
            duration_us: micros(stats.instantiate + stats.exec),
            cpu_us: micros(stats.cpu),
            memory_mib: billing.memory,
            gpu_memory_mib: billing.gpu_memory,
            egress_bytes: egress,
            outcome: outcome.map_or(UsageOutcome::Running, usage_outcome),
        };
        CallRecord {
            used,
            call: Some(self.call.facts(stats, progress)),
            noted: self.noted,
        }
    }
}

/// A UUID of version 7 (RFC 9562, section 5.7) from the thread's own generator: random bytes of the kernel would take a system call per call.
fn invocation(now: u64) -> InvocationId {
    let id = uuid::Builder::from_unix_timestamp_millis(now, &rand::rng().random());
    InvocationId::from_uuid(id.into_uuid())
}

impl CallIdentity {
    fn facts(&self, stats: &CallStats, progress: Progress) -> CallFacts {
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        CallFacts {
            request: text(&self.request),
            trace: text(&self.trace),
            method: self.method.as_str().chars().take(METHOD_MAX).collect(),
            status: progress.status,
            wait_us: micros(progress.waited),
            start_us: micros(stats.instantiate),
            head_us: micros(stats.first_byte.saturating_sub(stats.instantiate)),
            total_us: micros(progress.total),
            routed: self.routed.clone(),
        }
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// The billed form of an outcome. Calls that never reached a function have no record.
const fn usage_outcome(outcome: Outcome) -> UsageOutcome {
    match outcome {
        Outcome::Ok => UsageOutcome::Ok,
        Outcome::FunctionError => UsageOutcome::FunctionError,
        Outcome::FunctionEnded => UsageOutcome::FunctionEnded,
        Outcome::Client => UsageOutcome::Client,
        Outcome::Overloaded | Outcome::NotReady | Outcome::Internal => UsageOutcome::Internal,
    }
}

/// A record that must be safe before its response is sent.
pub struct PendingRecord(Result<Receipt, SpoolError>);

impl PendingRecord {
    /// The result of writing a record.
    #[must_use]
    pub const fn new(written: Result<Receipt, SpoolError>) -> Self {
        Self(written)
    }

    /// Whether the record is already safe.
    #[must_use]
    pub fn is_safe(&self) -> bool {
        self.0.as_ref().is_ok_and(Receipt::is_ready)
    }

    /// Waits until it is known whether the record is safe. If it is not, the response must not be sent.
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

/// The controllers as the sink of usage.
pub struct Controller {
    centre: SharedControllerLink,
    timeout: Duration,
    patience: Duration,
    refused: Mutex<Option<Refused>>,
}

/// The batch that was refused last, and since when.
type Refused = (BatchId, Instant);

/// How long a batch may be refused as not this node's to write before it is set aside. All controllers know within seconds which apps a node
/// serves; what is refused after this time is usage of a cluster that the node has left, and would block everything behind it for ever.
const PATIENCE: Duration = Duration::from_secs(3600);

impl Controller {
    /// The controllers behind a connection; `timeout` is the time limit of one batch.
    #[must_use]
    pub fn new(centre: SharedControllerLink, timeout: Duration) -> Self {
        Self {
            centre,
            timeout,
            patience: PATIENCE,
            refused: Mutex::default(),
        }
    }
}

/// How long this batch has been refused.
fn refused_for(last: &mut Option<Refused>, batch: BatchId, now: Instant) -> Duration {
    match *last {
        Some((of, since)) if of == batch => now.saturating_duration_since(since),
        _ => {
            *last = Some((batch, now));
            Duration::ZERO
        }
    }
}

#[async_trait]
impl Sink for Controller {
    async fn deliver(&self, batch: &Batch) -> Result<(), DeliverError> {
        let centre = &*self.centre;
        let id = match batch {
            Batch::Sums(sums) => sums.batch,
            Batch::Records(records) => records.batch,
        };
        let taken: Result<UsageReceipt, LinkError> = match batch {
            Batch::Sums(sums) => post_json(centre, "/edge/v1/usage/sums", sums, self.timeout).await,
            Batch::Records(records) => {
                post_json(centre, "/edge/v1/usage/records", records, self.timeout).await
            }
        };
        match taken {
            Ok(_) => Ok(()),
            // The controller understood the batch and rejects it: sending it again would change nothing.
            Err(error) if matches!(error.status(), Some(400 | 413 | 422)) => {
                Err(DeliverError::Rejected(error.to_string()))
            }
            Err(error) if error.status() == Some(403) => {
                let mut last = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
                let long = refused_for(&mut last, id, Instant::now()) >= self.patience;
                let text = error.to_string();
                Err(match long {
                    true => DeliverError::Rejected(text),
                    false => DeliverError::Retryable(text),
                })
            }
            Err(error) => Err(DeliverError::Retryable(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use ::http::{Request, Response};
    use fdn_core::usage::UsageBatch;
    use fdn_link::{Body, ControllerLink};

    use super::*;

    struct Refuses(u16);

    #[async_trait]
    impl ControllerLink for Refuses {
        async fn send(&self, _: Request<Bytes>) -> Result<Response<Body>, LinkError> {
            Err(LinkError::Status {
                status: self.0,
                detail: String::new(),
                problem: None,
            })
        }
    }

    fn id(n: u128) -> BatchId {
        BatchId::from_uuid(uuid::Uuid::from_u128(n))
    }

    #[test]
    fn a_batch_is_refused_since_it_was_first_refused() {
        let (mut last, start) = (None, Instant::now());
        let at = |secs| start + Duration::from_secs(secs);
        let secs = |last: &mut _, n, now| refused_for(last, id(n), at(now)).as_secs();
        assert_eq!(secs(&mut last, 1, 0), 0);
        assert_eq!(secs(&mut last, 1, 50), 50);
        assert_eq!(secs(&mut last, 2, 60), 0);
        assert_eq!(secs(&mut last, 2, 70), 10);
    }

    #[tokio::test]
    async fn usage_that_is_refused_for_long_is_set_aside() {
        let batch = Batch::Records(UsageBatch {
            batch: id(1),
            node: "n-1".parse().expect("node"),
            records: Vec::new(),
        });
        let deliver = async |status, patience| {
            let mut controller =
                Controller::new(Arc::new(Refuses(status)), Duration::from_secs(60));
            controller.patience = patience;
            let failure = controller.deliver(&batch).await.expect_err("refused");
            matches!(failure, DeliverError::Rejected(_))
        };
        assert!(!deliver(403, PATIENCE).await, "others may know of the app");
        assert!(deliver(403, Duration::ZERO).await);
        assert!(!deliver(503, Duration::ZERO).await);
        assert!(deliver(422, PATIENCE).await);
    }
}
