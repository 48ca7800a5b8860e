//! Segments on a disk: what is written, what is synced, what may be handed over, and what remains after a crash.
//!
//! | name | state | content | next |
//! | --- | --- | --- | --- |
//! | `ID.open` | written | frames, perhaps with a torn one at the end after a crash | sync, then rename |
//! | `ID.seg` | sealed | never changes again | renamed once confirmed, or removed if no log is kept |
//! | `ID.log` | kept | records that were handed over, for searches | removed, the oldest first |
//! | `ID.bad` | set aside | damaged, or refused for good; for an operator | removed by hand |
//!
//! Each segment has a new id, which is also the id of its batch: the same records always travel under the same id. A segment is handed over only
//! after it was sealed, and sealed only after it was synced, so after a crash it never has fewer records than the receiver has seen. After a
//! crash, an open segment is truncated after its last valid frame and sealed, or set aside if its header is not valid; nothing is ever appended to an old segment.
//!
//! **Invariants.** A record is in one segment. A segment that was handed over keeps its id and records until it is confirmed. What was synced
//! before a power loss is there afterwards, if the disk syncs as it says.

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
struct OpenSegment<F> {
    id: BatchId,
    file: Arc<F>,
    /// The offset at which its last complete frame ends.
    size: u64,
    /// Whether part of a frame may follow that.
    has_torn_tail: bool,
}

/// The segments in a folder.
#[derive(Debug)]
pub struct Log<D: Disk> {
    disk: Arc<D>,
    /// The largest size of a segment, in bytes: it is closed before it would grow over this.
    segment: u64,
    active: Option<OpenSegment<D::File>>,
    /// Segments that are no longer written, to be synced and sealed.
    closing: Vec<OpenSegment<D::File>>,
    /// The ids and total bytes of the segments in a running sync: these are still on disk.
    syncing: (Vec<BatchId>, u64),
    /// Sealed segments with their sizes, the oldest first, because ids grow with time.
    sealed: BTreeMap<BatchId, u64>,
    /// Segments that were handed over and are kept for searches, with their sizes.
    kept: BTreeMap<BatchId, u64>,
    /// The total size of the files that were set aside, in bytes.
    aside: u64,
    /// Whether a name was created that may not have reached the disk yet.
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

/// When a segment was begun, in milliseconds since 1970, according to its id.
#[must_use]
pub fn started_at(id: BatchId) -> u64 {
    let time = id.uuid().get_timestamp().map(|time| time.to_unix());
    time.map_or(0, |(seconds, nanos)| {
        seconds * 1000 + u64::from(nanos) / 1_000_000
    })
}

impl<D: Disk> Log<D> {
    /// The bytes on disk that are not handed over yet, or were set aside.
    #[must_use]
    pub fn used(&self) -> u64 {
        let open = self.active.iter().chain(&self.closing);
        let open: u64 = open.map(|open| open.size).sum();
        open + self.syncing.1 + self.sealed.values().sum::<u64>() + self.aside
    }

    /// Whether no segment waits to be handed over.
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

    /// The number of segments that can be handed over.
    #[must_use]
    pub fn sealed(&self) -> usize {
        self.sealed.len()
    }

    /// Writes a frame; `new_id` provides the id if a new segment is begun. The frame is not synced yet.
    ///
    /// # Errors
    /// When the disk fails. The record is in no segment then, and the next one begins a new segment.
    pub fn append(&mut self, frame: &[u8], new_id: impl FnOnce() -> Uuid) -> io::Result<()> {
        let full = |open: &OpenSegment<D::File>| open.size + frame.len() as u64 > self.segment;
        if self.active.as_ref().is_some_and(full) {
            self.close();
        }
        let mut open = match self.active.take() {
            Some(open) => open,
            None => self.begin(BatchId::from_uuid(new_id()))?,
        };
        match open.file.append(frame) {
            Ok(()) => {
                open.size += frame.len() as u64;
                self.active = Some(open);
                Ok(())
            }
            Err(error) => {
                // Part of the frame may have been written: the next frame must not follow it.
                open.has_torn_tail = true;
                self.closing.push(open);
                Err(error)
            }
        }
    }

    fn begin(&mut self, id: BatchId) -> io::Result<OpenSegment<D::File>> {
        let name = open_name(id);
        let file = self.disk.create(&name)?;
        self.new_name = true;
        if let Err(error) = file.append(&HEADER) {
            // The file contains no record; if it cannot be removed, recovery does that.
            drop(self.disk.remove(&name));
            return Err(error);
        }
        Ok(OpenSegment {
            id,
            file: Arc::new(file),
            size: HEADER.len() as u64,
            has_torn_tail: false,
        })
    }

    /// Closes the present segment: the next sync seals it.
    pub fn close(&mut self) {
        self.closing.extend(self.active.take());
    }

    /// The payloads of a sealed segment, and whether the whole segment was valid.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn read(disk: &D, id: BatchId) -> io::Result<(Vec<Vec<u8>>, bool)> {
        let bytes = disk.read(&sealed_name(id))?;
        let scan = frame::scan(&bytes);
        let payloads = scan.payloads.iter().map(|p| p.to_vec()).collect();
        Ok((payloads, scan.end == bytes.len()))
    }

    /// Handles that a segment was confirmed; `keep`: keeps it for searches. The change survives a power loss only after a sync of the folder: no
    /// other segment may be handed over before that, or several could be sent again.
    ///
    /// # Errors
    /// When the disk fails; nothing has changed then.
    pub fn confirm(&mut self, id: BatchId, keep: bool) -> io::Result<()> {
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

    /// The total size of segments that were handed over and are kept, in bytes.
    #[must_use]
    pub fn kept(&self) -> u64 {
        self.kept.values().sum()
    }

    /// Removes the oldest kept segments while their total size is above `limit`, and those last written before `before` (in ms since 1970). A
    /// segment is written for at most `span` milliseconds.
    ///
    /// # Errors
    /// When the disk fails; the next start finds what could not be removed.
    pub fn prune(&mut self, limit: u64, before: u64, span: u64) -> io::Result<()> {
        let mut size = self.kept();
        while let Some((&id, &bytes)) = self.kept.first_key_value() {
            // A segment is not written any more once the next one has been begun.
            let own = started_at(id).saturating_add(span);
            let last = self.after(id).map_or(own, |next| started_at(next).min(own));
            if size <= limit && last >= before {
                break;
            }
            self.kept.remove(&id);
            size -= bytes;
            self.disk.remove(&kept_name(id))?;
        }
        Ok(())
    }

    /// The segment that was begun right after this one.
    fn after(&self, id: BatchId) -> Option<BatchId> {
        let later = (std::ops::Bound::Excluded(id), std::ops::Bound::Unbounded);
        let kept = self.kept.range(later).next().map(|(id, _)| *id);
        let sealed = self.sealed.range(later).next().map(|(id, _)| *id);
        let open = self.unsealed().filter(|other| *other > id);
        kept.into_iter().chain(sealed).chain(open).min()
    }

    /// The segments that are not sealed yet.
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

    /// The bytes of a segment in whatever state; `None` if it is gone.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn read_any_state(disk: &D, id: BatchId) -> io::Result<Option<Vec<u8>>> {
        // In the order of its names, since it may be renamed meanwhile.
        for name in [open_name(id), sealed_name(id), kept_name(id)] {
            match disk.read(&name) {
                Ok(bytes) => return Ok(Some(bytes)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Sets a segment aside: it is kept for an operator and not handed over any more. Like [`Self::confirm`], this must be followed by a sync
    /// of the folder.
    ///
    /// # Errors
    /// When the disk fails; nothing has changed then.
    pub fn set_aside(&mut self, id: BatchId) -> io::Result<()> {
        if let Some(&size) = self.sealed.get(&id) {
            self.disk.rename(&sealed_name(id), &aside_name(id))?;
            self.sealed.remove(&id);
            self.aside += size;
        }
        Ok(())
    }
}
