//! What a start finds.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use fdn_core::BatchId;
use uuid::Uuid;

use super::{Log, open_name, sealed_name};
use crate::disk::{Disk, DiskFile};
use crate::frame::{self, HEADER};

/// What was made of what a crash left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Segments that were being written.
    pub segments: usize,
    /// Whole records in them.
    pub records: usize,
    /// Bytes after their last whole records, which were cut off: records that nobody was told of.
    pub torn: u64,
}

impl<D: Disk> Log<D> {
    /// Opens the segments of a disk: what was being written is cut after its last whole record and sealed. Repeatable: a crash in the
    /// middle of it changes nothing of the outcome.
    ///
    /// # Errors
    /// The disk's.
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
        recovered.torn += size - end;
        if end <= HEADER.len() as u64 {
            return self.disk.remove(&name);
        }
        recovered.segments += 1;
        recovered.records += scan.payloads.len();
        if end < size {
            self.disk.truncate(&name, end)?;
        }
        // It was in the memory of the operating system perhaps, and is about to be handed over.
        self.disk.open(&name)?.sync()?;
        self.disk.rename(&name, &sealed_name(id))?;
        self.sealed.insert(id, end);
        Ok(())
    }
}
