//! Syncing, in three steps, so that records can be written while the disk works: take the job, run it, tell how it went.

use std::io;
use std::sync::Arc;

use super::{Log, Open, open_name, sealed_name};
use crate::disk::{Disk, DiskFile};

/// What is to be synced.
#[derive(Debug)]
pub struct SyncJob<D: Disk> {
    disk: Arc<D>,
    active: Option<Arc<D::File>>,
    closing: Vec<Open<D::File>>,
    folder: bool,
}

impl<D: Disk> Log<D> {
    /// Everything that was written until now. One job at a time.
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

    /// Whether a sync has something to do beside the segment that is being written.
    #[must_use]
    pub const fn has_closing(&self) -> bool {
        !self.closing.is_empty()
    }

    /// Takes note of a job that was run.
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
        // A disk may forget what it failed to sync and say that all is well the next time: what comes now goes elsewhere.
        self.close();
    }
}

impl<D: Disk> SyncJob<D> {
    /// Syncs, and seals what is no longer written.
    ///
    /// # Errors
    /// The disk's.
    pub fn run(&mut self) -> io::Result<()> {
        for open in &mut self.closing {
            let (name, sealed) = (open_name(open.id), sealed_name(open.id));
            if open.ragged {
                self.disk.truncate(&name, open.size)?;
                open.ragged = false;
            }
            open.file.sync()?;
            match self.disk.rename(&name, &sealed) {
                // Renamed by a job that failed later.
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
