//! Recovery at startup.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use fdn_core::BatchId;
use uuid::Uuid;

use super::{Log, aside_name, open_name, sealed_name};
use crate::disk::{Disk, DiskFile};
use crate::frame::{self, HEADER};

/// What was recovered after a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The number of segments that were being written.
    pub segments: usize,
    /// The number of complete records in them.
    pub records: usize,
    /// The number of bytes that were cut off after the last complete records: records whose calls were not answered.
    pub torn: u64,
    /// The number of segments that were being written and are set aside, because not even their beginning can be read.
    pub aside: u64,
}

impl<D: Disk> Log<D> {
    /// Opens the segments of a disk: those that were being written are truncated after their last complete record and sealed, or set aside if not
    /// even their beginning can be read. Idempotent: a crash in the middle does not change the result.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn open(disk: Arc<D>, segment: u64) -> io::Result<(Self, Recovered)> {
        let mut log = Self {
            disk,
            segment,
            active: None,
            closing: Vec::new(),
            sealed: BTreeMap::new(),
            syncing: (Vec::new(), 0),
            kept: BTreeMap::new(),
            aside: 0,
            new_name: false,
        };
        let mut recovered = Recovered::default();
        for (name, size) in log.disk.list()? {
            let Some((id, state)) = name.split_once('.') else {
                continue;
            };
            let Ok(id) = Uuid::try_parse(id).map(BatchId::from_uuid) else {
                continue;
            };
            match state {
                "open" => log.recover(id, &mut recovered)?,
                "seg" => drop(log.sealed.insert(id, size)),
                "log" => drop(log.kept.insert(id, size)),
                "bad" => log.aside += size,
                _ => {}
            }
        }
        log.disk.sync_folder()?;
        Ok((log, recovered))
    }

    fn recover(&mut self, id: BatchId, recovered: &mut Recovered) -> io::Result<()> {
        let name = open_name(id);
        let bytes = self.disk.read(&name)?;
        let scan = frame::scan(&bytes);
        let (end, size) = (scan.end as u64, bytes.len() as u64);
        let header = HEADER.len() as u64;
        // After a power loss there may be zeros in place of what was not synced.
        let is_hole = bytes.iter().all(|byte| *byte == 0);
        if end == 0 && size > header && !is_hole {
            // Damaged, or of a later release: there may be records in it.
            self.disk.rename(&name, &aside_name(id))?;
            recovered.aside += 1;
            self.aside += size;
            return Ok(());
        }
        recovered.torn += size - end;
        if end <= header {
            return self.disk.remove(&name);
        }
        recovered.segments += 1;
        recovered.records += scan.payloads.len();
        if end < size {
            self.disk.truncate(&name, end)?;
        }
        // It may have been only in the operating system's memory, and can be handed over next.
        self.disk.open(&name)?.sync()?;
        self.disk.rename(&name, &sealed_name(id))?;
        self.sealed.insert(id, end);
        Ok(())
    }
}
