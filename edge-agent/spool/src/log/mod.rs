//! Segments on a disk: what is written, what is synced, what may be handed over, and what is made of it after a crash.
//!
//! | name | state | content | leaves it by |
//! | --- | --- | --- | --- |
//! | `ID.open` | written | frames, perhaps a torn one at the end after a crash | sync, then rename |
//! | `ID.seg` | sealed | never changes again | renamed once confirmed, or removed where no log is kept |
//! | `ID.log` | kept | what was handed over, to be searched | removed, the oldest first |
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
    /// Segments and bytes of them that a sync has taken along and not given back: on the disk all the while.
    syncing: (Vec<BatchId>, u64),
    /// Sealed, with their sizes; the oldest first, because ids grow with time.
    sealed: BTreeMap<BatchId, u64>,
    /// Handed over and kept to be searched, with their sizes.
    kept: BTreeMap<BatchId, u64>,
    /// Bytes of files that were set aside.
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

fn kept_name(id: BatchId) -> String {
    format!("{}.log", id.uuid().simple())
}

fn aside_name(id: BatchId) -> String {
    format!("{}.bad", id.uuid().simple())
}

/// When a segment was begun, in milliseconds since 1970, as its id tells.
#[must_use]
pub fn begun(id: BatchId) -> u64 {
    let time = id.uuid().get_timestamp().map(|time| time.to_unix());
    time.map_or(0, |(seconds, nanos)| {
        seconds * 1000 + u64::from(nanos) / 1_000_000
    })
}

impl<D: Disk> Log<D> {
    /// Bytes on the disk that are not handed over, or were set aside.
    #[must_use]
    pub fn used(&self) -> u64 {
        let open = self.active.iter().chain(&self.closing);
        let open: u64 = open.map(|open| open.size).sum();
        open + self.syncing.1 + self.sealed.values().sum::<u64>() + self.aside
    }

    /// Whether nothing waits to be handed over.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let (syncing, _) = &self.syncing;
        self.active.is_none()
            && self.closing.is_empty()
            && syncing.is_empty()
            && self.sealed.is_empty()
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

    /// The bytes of the records of a sealed segment, and whether all of it could be read.
    ///
    /// # Errors
    /// The disk's.
    pub fn read(disk: &D, id: BatchId) -> io::Result<(Vec<Vec<u8>>, bool)> {
        let bytes = disk.read(&sealed_name(id))?;
        let scan = frame::scan(&bytes);
        let payloads = scan.payloads.iter().map(|p| p.to_vec()).collect();
        Ok((payloads, scan.end == bytes.len()))
    }

    /// The segment has been confirmed; `keep` it to be searched. The name outlives the power only after a sync of the folder: before that, no other
    /// segment may be handed over, or several could come again.
    ///
    /// # Errors
    /// The disk's; nothing has changed then.
    pub fn confirmed(&mut self, id: BatchId, keep: bool) -> io::Result<()> {
        let Some(&size) = self.sealed.get(&id) else {
            return Ok(());
        };
        if keep {
            self.disk.rename(&sealed_name(id), &kept_name(id))?;
            self.kept.insert(id, size);
        } else {
            self.disk.remove(&sealed_name(id))?;
        }
        self.sealed.remove(&id);
        Ok(())
    }

    /// Bytes of segments that were handed over and are kept.
    #[must_use]
    pub fn kept(&self) -> u64 {
        self.kept.values().sum()
    }

    /// Removes the oldest of what is kept while it is larger than `limit`, and what was written before `before` (milliseconds since 1970). A segment
    /// is written for `span` milliseconds at most.
    ///
    /// # Errors
    /// The disk's; what could not be removed is found by the next start.
    pub fn forget(&mut self, limit: u64, before: u64, span: u64) -> io::Result<()> {
        let mut size = self.kept();
        while let Some((&id, &bytes)) = self.kept.first_key_value() {
            // Nothing was written to it after the next one had been begun.
            let own = begun(id).saturating_add(span);
            let last = self.after(id).map_or(own, |next| begun(next).min(own));
            if size <= limit && last >= before {
                break;
            }
            self.kept.remove(&id);
            size -= bytes;
            self.disk.remove(&kept_name(id))?;
        }
        Ok(())
    }

    /// The segment that was begun next after this one.
    fn after(&self, id: BatchId) -> Option<BatchId> {
        let later = (std::ops::Bound::Excluded(id), std::ops::Bound::Unbounded);
        let kept = self.kept.range(later).next().map(|(id, _)| *id);
        let sealed = self.sealed.range(later).next().map(|(id, _)| *id);
        let open = self.unsealed().filter(|other| *other > id);
        kept.into_iter().chain(sealed).chain(open).min()
    }

    /// Segments that are not sealed yet.
    fn unsealed(&self) -> impl Iterator<Item = BatchId> {
        let open = self.closing.iter().chain(&self.active);
        let syncing = self.syncing.0.iter().copied();
        open.map(|open| open.id).chain(syncing)
    }

    /// All segments that can be searched, the oldest first.
    #[must_use]
    pub fn segments(&self) -> Vec<BatchId> {
        let closed = self.kept.keys().chain(self.sealed.keys()).copied();
        let mut all: Vec<BatchId> = closed.chain(self.unsealed()).collect();
        all.sort_unstable();
        all
    }

    /// The bytes of a segment in whatever state it is; nothing if it is gone.
    ///
    /// # Errors
    /// The disk's.
    pub fn look(disk: &D, id: BatchId) -> io::Result<Option<Vec<u8>>> {
        // In the order in which it changes its name meanwhile.
        for name in [open_name(id), sealed_name(id), kept_name(id)] {
            match disk.read(&name) {
                Ok(bytes) => return Ok(Some(bytes)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// The segment is not handed over any more; it is kept for a person. As with [`Self::confirmed`], a sync of the folder has to follow.
    ///
    /// # Errors
    /// The disk's; nothing has changed then.
    pub fn set_aside(&mut self, id: BatchId) -> io::Result<()> {
        if let Some(&size) = self.sealed.get(&id) {
            self.disk.rename(&sealed_name(id), &aside_name(id))?;
            self.sealed.remove(&id);
            self.aside += size;
        }
        Ok(())
    }
}
