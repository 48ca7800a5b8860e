//! The log shared by the threads of a process, and the thread that syncs it.
//!
//! A record is written by the thread that has it, under a lock that is held for one `write`. One thread syncs for all: records written during a
//! sync share the next one (group commit), and the thread is woken only when it sleeps. Every call reserves its room before it runs, so a record
//! never finds the spool full; that room is counted without the lock.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fdn_core::usage::CallRecord;
use fdn_core::{BatchId, ByteSize};
use tokio::sync::{Notify, oneshot};
use tracing::{error, info, warn};
use uuid::Uuid;

use crate::disk::{Disk, DiskFile, Folder};
use crate::error::SpoolError;
use crate::frame;
use crate::log::Log;
use crate::metrics::SpoolMetrics;
use crate::settings::{AnswerAfter, SpoolSettings};

/// The pause before a disk that failed is tried again.
const DISK_PAUSE: Duration = Duration::from_millis(500);

/// A file that is written to check whether the disk works again.
const PROBE: &str = "probe";

/// The usage spool. Clones share it.
#[derive(Clone)]
pub struct Spool {
    shared: Arc<Shared>,
    _close: Arc<CloseOnDrop>,
}

/// Closes the spool when its last clone is dropped.
struct CloseOnDrop(Arc<Shared>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

struct Shared {
    disk: Arc<Folder>,
    settings: SpoolSettings,
    metrics: SpoolMetrics,
    capacity: Capacity,
    state: Mutex<State>,
    /// Notified when there is something to sync.
    work: Condvar,
    /// Notified when there is something to hand over.
    sealed: Notify,
    syncer: Mutex<Option<JoinHandle<()>>>,
}

/// Capacity for records, as far as it can be decided without the lock.
#[derive(Default)]
struct Capacity {
    /// The number of reservations.
    reservations: AtomicU64,
    /// The bytes used on disk. Set under the lock.
    used: AtomicU64,
    /// Whether the spool is closed or its disk has failed. Set under the lock.
    is_closed: AtomicBool,
}

impl Capacity {
    /// The bytes that a call may write: at most two records, each of which may begin a new segment.
    const PER_RESERVATION: u64 = 2 * (frame::MAX + frame::HEADER.len()) as u64;

    /// Reserves room for a call, if there is some within `limit` bytes.
    fn take(&self, limit: u64) -> bool {
        // Incremented before the check, so that two calls cannot both get the last room.
        let reservations = self.reservations.fetch_add(1, Ordering::AcqRel) + 1;
        let used = self.used.load(Ordering::Acquire);
        let fits = used.saturating_add(reservations.saturating_mul(Self::PER_RESERVATION)) <= limit;
        let taken = fits && !self.is_closed.load(Ordering::Acquire);
        if !taken {
            self.release();
        }
        taken
    }

    fn release(&self) {
        self.reservations.fetch_sub(1, Ordering::AcqRel);
    }
}

struct State {
    log: Log<Folder>,
    /// The number of records written so far.
    written: u64,
    /// The number of these that are synced.
    synced: u64,
    /// The calls that wait until the record of this number is synced, in order.
    waiting: VecDeque<(u64, oneshot::Sender<Result<(), String>>)>,
    /// Whether the syncing thread sleeps until it is woken.
    idle: bool,
    /// When the segment that is being written got its first record.
    begun: Option<Instant>,
    /// Why the disk cannot be written now.
    failed: Option<String>,
    closed: bool,
}

impl Spool {
    /// Opens the spool in a folder, recovers what a crash left there, and starts the syncing thread.
    ///
    /// # Errors
    /// When the folder or a file in it is not usable.
    pub fn open(
        folder: &Path,
        settings: SpoolSettings,
        metrics: SpoolMetrics,
    ) -> Result<Self, SpoolError> {
        let failed = |source| SpoolError::Folder {
            path: folder.to_owned(),
            source,
        };
        let disk = Arc::new(Folder::open(folder).map_err(failed)?);
        let (log, recovered) =
            Log::open(Arc::clone(&disk), settings.segment.as_bytes()).map_err(failed)?;
        if recovered.segments > 0 || recovered.torn > 0 {
            warn!(
                records = recovered.records,
                segments = recovered.segments,
                torn_bytes = recovered.torn,
                "the usage spool was not closed; its last records are kept, and what was torn off is cut"
            );
        }
        if recovered.aside > 0 {
            error!(
                segments = recovered.aside,
                "segments of the usage spool are damaged or of a later release; they are set aside for a person"
            );
            metrics.set_aside.inc_by(recovered.aside);
        }
        let limit = settings.size.as_bytes();
        metrics.limit.set(i64::try_from(limit).unwrap_or(i64::MAX));
        let kept = settings.log_size.as_bytes();
        metrics
            .log_limit
            .set(i64::try_from(kept).unwrap_or(i64::MAX));
        let shared = Arc::new(Shared {
            disk,
            settings,
            metrics,
            capacity: Capacity::default(),
            state: Mutex::new(State {
                log,
                written: 0,
                synced: 0,
                waiting: VecDeque::new(),
                idle: false,
                begun: None,
                failed: None,
                closed: false,
            }),
            work: Condvar::new(),
            sealed: Notify::new(),
            syncer: Mutex::new(None),
        });
        shared.update_gauges(&shared.lock());
        let syncing = Arc::clone(&shared);
        let syncer = thread::Builder::new()
            .name("usage-sync".into())
            .spawn(move || syncing.run())
            .map_err(failed)?;
        *shared.syncer.lock().unwrap_or_else(PoisonError::into_inner) = Some(syncer);
        Ok(Self {
            _close: Arc::new(CloseOnDrop(Arc::clone(&shared))),
            shared,
        })
    }

    /// Reserves room for the record of a call that is about to run.
    ///
    /// # Errors
    /// When there is no room, or the disk has failed: the call must not run.
    pub fn reserve(&self) -> Result<RecordPermit, SpoolError> {
        if !self
            .shared
            .capacity
            .take(self.shared.settings.size.as_bytes())
        {
            self.shared.metrics.refused.inc();
            return Err(self.shared.why_refused());
        }
        Ok(RecordPermit {
            shared: Arc::clone(&self.shared),
        })
    }

    /// Why a call would be refused now; `None` if it would not be.
    #[must_use]
    pub fn refusal(&self) -> Option<SpoolError> {
        let capacity = &self.shared.capacity;
        if !capacity.take(self.shared.settings.size.as_bytes()) {
            return Some(self.shared.why_refused());
        }
        capacity.release();
        None
    }

    /// Whether no record waits to be handed over. Reservations of running calls do not count.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shared.lock().log.is_empty()
    }

    /// The size of records that are not handed over yet, or were set aside.
    #[must_use]
    pub fn used(&self) -> ByteSize {
        ByteSize::from_bytes(self.shared.lock().log.used())
    }

    /// Waits for a segment that can be handed over; returns the oldest.
    pub(crate) async fn oldest(&self) -> BatchId {
        loop {
            let notified = self.shared.sealed.notified();
            if let Some(id) = self.shared.lock().log.oldest() {
                return id;
            }
            notified.await;
        }
    }

    /// The payloads of a sealed segment, and whether the whole segment was valid. Blocks.
    pub(crate) fn read(&self, id: BatchId) -> std::io::Result<(Vec<Vec<u8>>, bool)> {
        Log::read(&*self.shared.disk, id)
    }

    /// Handles that a segment was confirmed. Once this returns, it will not be sent again. Blocks.
    ///
    /// # Errors
    /// When the disk fails; this must succeed before another segment is handed over.
    pub(crate) fn confirm(&self, id: BatchId) -> std::io::Result<()> {
        let keep = self.shared.settings.log_size.as_bytes() > 0;
        {
            let mut state = self.shared.lock();
            state.log.confirm(id, keep)?;
            self.shared.prune(&mut state);
            self.shared.update_gauges(&state);
        }
        // Without the lock, so that calls need not wait for it.
        self.shared.disk.sync_folder()
    }

    /// Removes calls that were kept longer than the settings allow. Blocks.
    pub(crate) fn prune(&self) {
        let mut state = self.shared.lock();
        self.shared.prune(&mut state);
        self.shared.update_gauges(&state);
    }

    /// All segments, the oldest first.
    pub(crate) fn segments(&self) -> Vec<BatchId> {
        self.shared.lock().log.segments()
    }

    /// The bytes of a segment; `None` if it is gone. Blocks.
    pub(crate) fn read_segment(&self, id: BatchId) -> std::io::Result<Option<Vec<u8>>> {
        Log::read_any_state(&*self.shared.disk, id)
    }

    /// Sets a segment aside, so that it is not handed over any more. Blocks.
    ///
    /// # Errors
    /// Like [`Self::confirm`].
    pub(crate) fn set_aside(&self, id: BatchId) -> std::io::Result<()> {
        {
            let mut state = self.shared.lock();
            state.log.set_aside(id)?;
            self.shared.update_gauges(&state);
        }
        self.shared.disk.sync_folder()
    }

    pub(crate) fn settings(&self) -> &SpoolSettings {
        &self.shared.settings
    }

    pub(crate) fn metrics(&self) -> &SpoolMetrics {
        &self.shared.metrics
    }

    /// Syncs and seals everything and ends the thread; later records are refused. Blocks.
    pub fn close(&self) {
        self.shared.close();
        let syncer = &self.shared.syncer;
        let thread = syncer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic of the thread has been reported already.
            drop(thread.join());
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No step leaves the state inconsistent: numbers are set after the disk has succeeded.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update_gauges(&self, state: &State) {
        let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        self.capacity
            .used
            .store(state.log.used(), Ordering::Release);
        self.metrics.log_bytes.set(number(state.log.kept()));
        self.metrics.bytes.set(number(state.log.used()));
        self.metrics.waiting.set(number(state.log.sealed() as u64));
    }

    fn prune(&self, state: &mut State) {
        let settings = &self.settings;
        // A segment is closed by the first sync that finds it this old.
        let span = settings.seal_after.as_millis().saturating_add(60_000);
        let limit = settings.log_size.as_bytes();
        if let Err(failure) = state.log.prune(limit, settings.kept_since(), span) {
            warn!(%failure, "old calls cannot be removed");
        }
    }

    fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        // Set under the lock: a disk that recovers must not reset it afterwards.
        self.capacity.is_closed.store(true, Ordering::Release);
        drop(state);
        self.work.notify_all();
    }

    /// Why there is no room for a call.
    fn why_refused(&self) -> SpoolError {
        let state = self.lock();
        if state.closed {
            return SpoolError::Closed;
        }
        if let Some(reason) = &state.failed {
            return SpoolError::Disk(reason.clone());
        }
        let reservations = self.capacity.reservations.load(Ordering::Acquire);
        let used = state.log.used() + reservations.saturating_mul(Capacity::PER_RESERVATION);
        if used.saturating_add(Capacity::PER_RESERVATION) <= self.settings.size.as_bytes() {
            return SpoolError::Disk("it had failed a moment ago".to_owned());
        }
        SpoolError::Full {
            used: ByteSize::from_bytes(used),
            limit: self.settings.size,
        }
    }

    fn write(&self, record: &CallRecord) -> Result<Receipt, SpoolError> {
        let mut frame = frame::begin();
        serde_json::to_writer(&mut frame, record).map_err(|e| SpoolError::Disk(e.to_string()))?;
        let frame = frame::seal(frame).map_err(SpoolError::TooLarge)?;
        let mut state = self.lock();
        if state.closed {
            // No thread would sync it any more.
            return Err(SpoolError::Closed);
        }
        if let Err(failure) = state.log.append(&frame, Uuid::now_v7) {
            self.disk_failed(&mut state, "write", &failure);
            drop(state);
            self.work.notify_one();
            return Err(SpoolError::Disk(failure.to_string()));
        }
        self.metrics.records.inc();
        // The next sync adds the header of a new segment to this.
        self.capacity
            .used
            .fetch_add(frame.len() as u64, Ordering::AcqRel);
        state.written += 1;
        state.begun.get_or_insert_with(Instant::now);
        let receipt = match self.settings.answer_after {
            AnswerAfter::Written => Receipt(None),
            AnswerAfter::Synced => {
                let (sender, receiver) = oneshot::channel();
                let number = state.written;
                state.waiting.push_back((number, sender));
                Receipt(Some(receiver))
            }
        };
        let wakes = std::mem::take(&mut state.idle);
        drop(state);
        if wakes {
            self.work.notify_one();
        }
        Ok(receipt)
    }

    fn disk_failed(&self, state: &mut State, what: &str, failure: &std::io::Error) {
        self.metrics.failures.with_label_values(&[what]).inc();
        self.capacity.is_closed.store(true, Ordering::Release);
        if state.failed.replace(failure.to_string()).is_none() {
            error!(what, %failure, "the disk of the usage spool fails; no new calls are taken until it does not");
        }
    }

    /// The syncing thread's main loop.
    fn run(&self) {
        loop {
            let mut state = self.wait_for_work();
            let closed = state.closed;
            let due = state
                .begun
                .is_some_and(|b| b.elapsed() >= self.settings.seal_after.as_duration());
            if closed || due {
                state.log.close();
                state.begun = None;
            }
            let target = state.written;
            let failed = state.failed.is_some();
            let mut job = state.log.begin_sync();
            drop(state);
            let started = Instant::now();
            let result = job.run().and_then(|()| self.probe(failed));
            self.metrics
                .sync_seconds
                .observe(started.elapsed().as_secs_f64());
            let mut state = self.lock();
            state.log.end_sync(job, result.is_ok());
            self.complete_sync(&mut state, target, result);
            if closed && (state.failed.is_some() || !state.log.has_closing()) {
                return;
            }
        }
    }

    /// After a failure, checks whether the disk can be written again, with as much data as a record.
    fn probe(&self, failed: bool) -> std::io::Result<()> {
        if !failed {
            return Ok(());
        }
        // Left by an interrupted probe; if it cannot be removed, the next step reports why.
        drop(self.disk.remove(PROBE));
        let file = self.disk.create(PROBE)?;
        let written = file.append(&[0; frame::MAX]).and_then(|()| file.sync());
        self.disk.remove(PROBE)?;
        written
    }

    /// Waits until there is something to sync or seal, or the spool is closed; then waits a little for other records to share the sync.
    fn wait_for_work(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return state;
            }
            let seal = self.settings.seal_after.as_duration();
            let left = state
                .begun
                .map(|begun| seal.saturating_sub(begun.elapsed()));
            if state.failed.is_some() {
                drop(state);
                thread::sleep(DISK_PAUSE);
                return self.lock();
            }
            if state.written > state.synced || state.log.has_closing() {
                drop(state);
                thread::sleep(self.settings.batch_window.as_duration());
                return self.lock();
            }
            if left == Some(Duration::ZERO) {
                return state;
            }
            state.idle = true;
            state = match left {
                Some(left) => {
                    let waited = self.work.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self
                    .work
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
            };
            state.idle = false;
        }
    }

    /// Notifies the callers whose records a sync covered.
    fn complete_sync(&self, state: &mut State, target: u64, result: std::io::Result<()>) {
        self.metrics
            .sync_records
            .observe((target - state.synced) as f64);
        state.synced = target;
        if !state.log.is_writing() {
            state.begun = None;
        }
        let outcome = match result {
            Ok(()) => {
                if state.failed.take().is_some() {
                    self.capacity
                        .is_closed
                        .store(state.closed, Ordering::Release);
                    info!("the disk of the usage spool writes again");
                }
                Ok(())
            }
            Err(failure) => {
                self.disk_failed(state, "sync", &failure);
                Err(failure.to_string())
            }
        };
        while state
            .waiting
            .front()
            .is_some_and(|(number, _)| *number <= target)
        {
            if let Some((_, sender)) = state.waiting.pop_front() {
                // The caller may be gone.
                drop(sender.send(outcome.clone()));
            }
        }
        self.update_gauges(state);
        if state.log.oldest().is_some() {
            self.sealed.notify_waiters();
        }
    }
}

/// The room reserved for one call's record; released when dropped.
pub struct RecordPermit {
    shared: Arc<Shared>,
}

impl RecordPermit {
    /// Writes the record of the call. When this returns, the record survives the process; [`Receipt::wait`] waits for what the settings require
    /// beyond that.
    ///
    /// # Errors
    /// When the disk fails: the response must not be sent.
    pub fn record(&self, record: &CallRecord) -> Result<Receipt, SpoolError> {
        self.shared.write(record)
    }
}

impl Drop for RecordPermit {
    fn drop(&mut self) {
        self.shared.capacity.release();
    }
}

/// A written record.
#[must_use = "an answer leaves only after `wait`"]
pub struct Receipt(Option<oneshot::Receiver<Result<(), String>>>);

impl Receipt {
    /// Whether there is nothing to wait for.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        self.0.is_none()
    }

    /// Returns when the record is as durable as the settings require.
    ///
    /// # Errors
    /// When the disk failed: the response must not be sent.
    pub async fn wait(self) -> Result<(), SpoolError> {
        match self.0 {
            None => Ok(()),
            Some(receiver) => match receiver.await {
                Ok(outcome) => outcome.map_err(SpoolError::Disk),
                Err(_) => Err(SpoolError::Closed),
            },
        }
    }
}

#[cfg(test)]
mod tests;
