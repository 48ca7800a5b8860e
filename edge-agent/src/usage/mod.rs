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
    CallFacts, CallRecord, Noted, Routed, UsageOutcome, UsageReceipt, UsageRecord,
};
use fdn_core::{AppName, BatchId, FunctionName, InvocationId, MebiBytes, Timestamp, VersionNumber};
use fdn_link::{LinkError, SharedCentre, ask_json};
use fdn_runtime::CallStats;
use fdn_spool::{Batch, DeliverError, Place, Receipt, Sink, Spool, SpoolError};
use rand::RngExt;
use tracing::error;

use crate::metrics::Outcome;
use crate::peers::Way;
use crate::traces::Traced;
use crate::traces::spans::{Recorded, What};

pub use http::CallAccess;
pub(crate) use http::answer;

/// The most characters of a method that are recorded, since records have a bounded size.
const METHOD_MAX: usize = 16;

/// The properties of a function version that it is billed by, the same for all its calls.
#[derive(Clone, Debug)]
pub struct Billed {
    app: AppName,
    function: FunctionName,
    version: VersionNumber,
    memory: MebiBytes,
    gpu_memory: MebiBytes,
}

impl Billed {
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
pub struct Known {
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
    place: Place,
    billed: Arc<Billed>,
    known: Known,
    invocation: InvocationId,
    started_at: Timestamp,
    /// What was recorded while it ran: the next record replaces it.
    noted: Option<Noted>,
    /// How its instance was placed, if the call waited for that.
    way: Option<Arc<Way>>,
}

impl Meter {
    /// Reserves room for the record of a call that is about to run.
    ///
    /// # Errors
    /// When there is no room: the call must not run.
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
            way: None,
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
        let written = self.place.record(&record);
        let noted = Noted::of(&record.used);
        if outcome.is_some() {
            self.export(record);
        }
        let receipt = written?;
        self.noted = noted;
        Ok(receipt)
    }

    /// Ends a call that certainly no function has seen: it is not recorded, but its spans are exported.
    pub fn unseen(&mut self, outcome: Outcome, progress: Progress) {
        if self.known.traced.is_some() {
            let record = self.now(&CallStats::default(), 0, Some(outcome), progress);
            self.export(record);
        }
    }

    /// Whether its spans are exported.
    #[must_use]
    pub const fn is_traced(&self) -> bool {
        self.known.traced.is_some()
    }

    /// Sets how the instance started for the call was placed.
    pub fn placed(&mut self, way: Option<Arc<Way>>) {
        self.way = way;
    }

    fn export(&mut self, record: CallRecord) {
        if let Some(traced) = self.known.traced.take() {
            traced.hand_over(What::Recorded(Box::new(Recorded {
                record,
                arrived: self.known.arrived,
                way: self.way.take(),
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
        CallRecord {
            used,
            call: Some(self.known.facts(stats, progress)),
            noted: self.noted,
        }
    }
}

/// A UUID of version 7 (RFC 9562, section 5.7) from the thread's own generator: random bytes of the kernel would take a system call per call.
fn invocation(now: u64) -> InvocationId {
    let id = uuid::Builder::from_unix_timestamp_millis(now, &rand::rng().random());
    InvocationId::from_uuid(id.into_uuid())
}

impl Known {
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
const fn billed_as(outcome: Outcome) -> UsageOutcome {
    match outcome {
        Outcome::Ok => UsageOutcome::Ok,
        Outcome::FunctionError => UsageOutcome::FunctionError,
        Outcome::FunctionEnded => UsageOutcome::FunctionEnded,
        Outcome::Client => UsageOutcome::Client,
        Outcome::Overloaded | Outcome::NotReady | Outcome::Internal => UsageOutcome::Internal,
    }
}

/// A record that must be safe before its response is sent.
pub struct Pending(Result<Receipt, SpoolError>);

impl Pending {
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
    centre: SharedCentre,
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
    pub fn new(centre: SharedCentre, timeout: Duration) -> Self {
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
            Batch::Sums(sums) => ask_json(centre, "/edge/v1/usage/sums", sums, self.timeout).await,
            Batch::Records(records) => {
                ask_json(centre, "/edge/v1/usage/records", records, self.timeout).await
            }
        };
        match taken {
            Ok(_) => Ok(()),
            // The controller understood the batch and rejects it: sending it again would change nothing.
            Err(error) if matches!(error.status(), Some(400 | 413 | 422)) => {
                Err(DeliverError::Never(error.to_string()))
            }
            Err(error) if error.status() == Some(403) => {
                let mut last = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
                let long = refused_for(&mut last, id, Instant::now()) >= self.patience;
                let text = error.to_string();
                Err(match long {
                    true => DeliverError::Never(text),
                    false => DeliverError::Later(text),
                })
            }
            Err(error) => Err(DeliverError::Later(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use ::http::{Request, Response};
    use fdn_core::usage::UsageBatch;
    use fdn_link::{Body, Centre};

    use super::*;

    struct Refuses(u16);

    #[async_trait]
    impl Centre for Refuses {
        async fn ask(&self, _: Request<Bytes>) -> Result<Response<Body>, LinkError> {
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
            matches!(failure, DeliverError::Never(_))
        };
        assert!(!deliver(403, PATIENCE).await, "others may know of the app");
        assert!(deliver(403, Duration::ZERO).await);
        assert!(!deliver(503, Duration::ZERO).await);
        assert!(deliver(422, PATIENCE).await);
    }
}
