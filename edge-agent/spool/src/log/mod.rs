//! Segments on a disk: what is written, what is synced, what may be handed over, and what is made of it after a crash.
//!
//! | name | state | content | leaves it by |
//! | --- | --- | --- | --- |
//! | `ID.open` | written | frames, perhaps a torn one at the end after a crash | sync, then rename |
//! | `ID.seg` | sealed | never changes again | removed once confirmed |
//! | `ID.bad` | set aside | damaged, or refused for good; for a person | by hand |
//!
//! A segment's id is new for each and is the id of its batch: the same records always travel under the same id. It is handed over only
//! after it was sealed, and is sealed only after it was synced, so what the receiver has seen can never be less after a crash than
//! before. After a crash, an open segment is cut after its last whole frame and sealed; nothing is ever added to an old segment.
//!
//! **Invariants.** A record is in one segment. A segment that was handed over keeps its id and records until it is confirmed.
//! What was synced when the power failed is there afterwards, if the disk keeps its word.

mod recover;
mod sync;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use fdn_core::BatchId;
use uuid::Uuid;

use crate::disk::{Disk, DiskFile};
use crate::frame::{self, HEADER};

pub use recover::Recovered;
pub use sync::SyncJob;

/// A segment that is being written, or was until now.
#[derive(Debug)]
struct Open<F> {
    id: BatchId,
    file: Arc<F>,
    /// Where its last whole frame ends.
    size: u64,
    /// Whether something may lie after that.
    ragged: bool,
}

/// The segments of a folder.
#[derive(Debug)]
pub struct Log<D: Disk> {
    disk: Arc<D>,
    /// A segment is closed when it would grow over this.
    segment: u64,
    active: Option<Open<D::File>>,
    /// No longer written, to be synced and sealed.
    closing: Vec<Open<D::File>>,
    /// Segments and octets of them that a sync has taken along and not given back: on the disk all the while.
    syncing: (usize, u64),
    /// Sealed, with their sizes; the oldest first, because ids grow with time.
    sealed: BTreeMap<BatchId, u64>,
    /// Octets of files that were set aside.
    aside: u64,
    /// Whether a name was made that the folder may not have on disk yet.
    new_name: bool,
}

fn open_name(id: BatchId) -> String {
    format!("{}.open", id.uuid().simple())
}

fn sealed_name(id: BatchId) -> String {
    format!("{}.seg", id.uuid().simple())
}

fn aside_name(id: BatchId) -> String {
    format!("{}.bad", id.uuid().simple())
}

impl<D: Disk> Log<D> {
    /// Octets on the disk.
    #[must_use]
    pub fn used(&self) -> u64 {
        let open = self.active.iter().chain(&self.closing);
        let open: u64 = open.map(|open| open.size).sum();
        open + self.syncing.1 + self.sealed.values().sum::<u64>() + self.aside
    }

    /// Whether nothing waits to be handed over.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let (syncing, _) = self.syncing;
        self.active.is_none() && self.closing.is_empty() && syncing == 0 && self.sealed.is_empty()
    }

    /// Whether a segment is being written.
    #[must_use]
    pub const fn is_writing(&self) -> bool {
        self.active.is_some()
    }

    /// The oldest segment that can be handed over.
    #[must_use]
    pub fn oldest(&self) -> Option<BatchId> {
        self.sealed.first_key_value().map(|(id, _)| *id)
    }

    /// How many segments can be handed over.
    #[must_use]
    pub fn sealed(&self) -> usize {
        self.sealed.len()
    }

    /// Writes a frame; `fresh` gives the id of a new segment if one is begun. Not synced when this returns.
    ///
    /// # Errors
    /// The disk's. The record is in no segment then, and the next one begins a new segment.
    pub fn append(&mut self, frame: &[u8], fresh: impl FnOnce() -> Uuid) -> io::Result<()> {
        let full = |open: &Open<D::File>| open.size + frame.len() as u64 > self.segment;
        if self.active.as_ref().is_some_and(full) {
            self.close();
        }
        let mut open = match self.active.take() {
            Some(open) => open,
            None => self.begin(BatchId::from_uuid(fresh()))?,
        };
        match open.file.append(frame) {
            Ok(()) => {
                open.size += frame.len() as u64;
                self.active = Some(open);
                Ok(())
            }
            Err(error) => {
                // Part of the frame may be there: it must not become the beginning of the next.
                open.ragged = true;
                self.closing.push(open);
                Err(error)
            }
        }
    }

    fn begin(&mut self, id: BatchId) -> io::Result<Open<D::File>> {
        let name = open_name(id);
        let file = self.disk.create(&name)?;
        self.new_name = true;
        if let Err(error) = file.append(&HEADER) {
            // Nothing is lost with it; if it stays, recovery removes it.
            drop(self.disk.remove(&name));
            return Err(error);
        }
        Ok(Open {
            id,
            file: Arc::new(file),
            size: HEADER.len() as u64,
            ragged: false,
        })
    }

    /// Writes no more into the present segment: it is sealed with the next sync.
    pub fn close(&mut self) {
        self.closing.extend(self.active.take());
    }

    /// The octets of the records of a sealed segment, and whether all of it could be read.
    ///
    /// # Errors
    /// The disk's.
    pub fn read(disk: &D, id: BatchId) -> io::Result<(Vec<Vec<u8>>, bool)> {
        let octets = disk.read(&sealed_name(id))?;
        let scan = frame::scan(&octets);
        let payloads = scan.payloads.iter().map(|p| p.to_vec()).collect();
        Ok((payloads, scan.end == octets.len()))
    }

    /// The segment has been confirmed.
    ///
    /// # Errors
    /// The disk's; the segment is handed over again after the next start, under the same id.
    pub fn confirmed(&mut self, id: BatchId) -> io::Result<()> {
        if self.sealed.remove(&id).is_none() {
            return Ok(());
        }
        self.disk.remove(&sealed_name(id))
    }

    /// The segment is not handed over any more; it is kept for a person.
    ///
    /// # Errors
    /// The disk's.
    pub fn set_aside(&mut self, id: BatchId) -> io::Result<()> {
        if let Some(size) = self.sealed.remove(&id) {
            self.aside += size;
            self.disk.rename(&sealed_name(id), &aside_name(id))?;
        }
        Ok(())
    }
}
