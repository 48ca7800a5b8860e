//! Syncing in three steps, so that records can be written during it: begin the job, run it, report its result.

use std::io;
use std::sync::Arc;

use super::{Log, OpenSegment, open_name, sealed_name};
use crate::disk::{Disk, DiskFile};

/// What is to be synced.
#[derive(Debug)]
pub struct SyncJob<D: Disk> {
    disk: Arc<D>,
    active: Option<Arc<D::File>>,
    closing: Vec<OpenSegment<D::File>>,
    folder: bool,
}

impl<D: Disk> Log<D> {
    /// Begins a job that syncs everything written so far. Only one job at a time.
    pub fn begin_sync(&mut self) -> SyncJob<D> {
        let closing = std::mem::take(&mut self.closing);
        let ids = closing.iter().map(|open| open.id).collect();
        self.syncing = (ids, closing.iter().map(|open| open.size).sum());
        SyncJob {
            disk: Arc::clone(&self.disk),
            active: self.active.as_ref().map(|open| Arc::clone(&open.file)),
            folder: std::mem::take(&mut self.new_name) || !closing.is_empty(),
            closing,
        }
    }

    /// Whether there are closed segments to sync, besides the one that is being written.
    #[must_use]
    pub const fn has_closing(&self) -> bool {
        !self.closing.is_empty()
    }

    /// Takes the result of a job.
    pub fn end_sync(&mut self, job: SyncJob<D>, went_well: bool) {
        self.syncing = (Vec::new(), 0);
        if went_well {
            for open in job.closing {
                self.sealed.insert(open.id, open.size);
            }
            return;
        }
        self.new_name |= job.folder;
        self.closing.splice(0..0, job.closing);
        // After a failed sync, a disk may forget the data and report success the next time: further records go to another segment.
        self.close();
    }
}

impl<D: Disk> SyncJob<D> {
    /// Syncs, and seals segments that are no longer written.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn run(&mut self) -> io::Result<()> {
        for open in &mut self.closing {
            let (name, sealed) = (open_name(open.id), sealed_name(open.id));
            if open.has_torn_tail {
                self.disk.truncate(&name, open.size)?;
                open.has_torn_tail = false;
            }
            open.file.sync()?;
            match self.disk.rename(&name, &sealed) {
                // Renamed already by an earlier job that then failed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => other?,
            }
        }
        if let Some(file) = &self.active {
            file.sync()?;
        }
        if self.folder {
            self.disk.sync_folder()?;
        }
        Ok(())
    }
}
