//! The allocation table on disk: one file, replaced as a whole, with a checksum.
//!
//! ```text
//! fdn-devices 1 1f2e3d4c        format, its version, CRC-32C of everything after this line
//! {"boot":"…","devices":[…],"bindings":[…]}
//! ```
//!
//! A file that is torn, changed or of another version is renamed and ignored: the bindings are then taken from the instances that run.

use std::fs::{self, DirBuilder, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use tracing::error;

use crate::allocations::SavedAllocations;
use crate::error::StoreError;

/// The beginning of the first line: the format and its version.
const FORM: &str = "fdn-devices 1";

/// The file of the allocation table.
#[derive(Clone, Debug)]
pub struct AllocationStore {
    path: PathBuf,
}

impl AllocationStore {
    /// Opens the store in `folder`, which is created if missing, accessible to its owner only.
    ///
    /// # Errors
    /// When the folder cannot be created.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|source| StoreError {
            path: folder.to_owned(),
            source,
        })?;
        Ok(Self {
            path: folder.join("devices.book"),
        })
    }

    /// Reads the saved table; `None` on a new node, or if the file had to be set aside.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn load(&self) -> Result<Option<SavedAllocations>, StoreError> {
        let bytes = match fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.failed(error)),
        };
        let reason = match parse(&bytes) {
            Ok(saved) => return Ok(Some(saved)),
            Err(reason) => reason,
        };
        error!(path = %self.path.display(), reason, "the allocation table of devices is set aside; it is made anew from what runs");
        fs::rename(&self.path, self.path.with_extension("book.unreadable"))
            .map_err(|e| self.failed(e))?;
        Ok(None)
    }

    /// Replaces the saved table; returns once it is on disk.
    ///
    /// # Errors
    /// When the disk fails; the previous table is still there.
    pub fn save(&self, saved: &SavedAllocations) -> Result<(), StoreError> {
        let fresh = self.path.with_extension("book.new");
        let write = || {
            let body = serde_json::to_vec(saved)?;
            let mut file = File::create(&fresh)?;
            writeln!(file, "{FORM} {:08x}", crc32c::crc32c(&body))?;
            file.write_all(&body)?;
            file.sync_all()?;
            fs::rename(&fresh, &self.path)?;
            // The rename is durable only once the folder is synced.
            match self.path.parent() {
                Some(folder) => File::open(folder)?.sync_all(),
                None => Ok(()),
            }
        };
        write().map_err(|error| self.failed(error))
    }

    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn failed(&self, source: std::io::Error) -> StoreError {
        StoreError {
            path: self.path.clone(),
            source,
        }
    }
}

fn parse(bytes: &[u8]) -> Result<SavedAllocations, String> {
    let end = bytes.iter().position(|byte| *byte == b'\n');
    let end = end.ok_or("it has no first line")?;
    let (line, body) = (&bytes[..end], &bytes[end + 1..]);
    let line = std::str::from_utf8(line).map_err(|_| "its first line is no text")?;
    let sum = line
        .strip_prefix(FORM)
        .ok_or_else(|| format!("it is not of the form `{FORM}`: {line:?}"))?;
    let sum = u32::from_str_radix(sum.trim(), 16).map_err(|_| "its checksum is no number")?;
    if crc32c::crc32c(body) != sum {
        return Err("its checksum does not match".to_owned());
    }
    serde_json::from_slice(body).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocations::AllocationTable;
    use crate::settings::{DevicesSettings, SimulatedGroup};

    fn saved() -> SavedAllocations {
        let mut allocations = AllocationTable::new(DevicesSettings::default().allocations());
        let group = SimulatedGroup {
            count: 2,
            ..SimulatedGroup::default()
        };
        allocations.inventory(group.devices()).expect("devices");
        allocations.to_saved("boot-1")
    }

    #[test]
    fn what_was_saved_comes_back() {
        let folder = tempfile::tempdir().expect("folder");
        let store = AllocationStore::open(&folder.path().join("deep/state")).expect("store");
        assert_eq!(store.load().expect("nothing yet"), None);
        store.save(&saved()).expect("saved");
        assert_eq!(store.load().expect("read"), Some(saved()));
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let folder = tempfile::tempdir().expect("folder");
        let store = AllocationStore::open(folder.path()).expect("store");
        store.save(&saved()).expect("saved");
        let good = fs::read(store.path()).expect("file");
        for at in (0..good.len()).step_by(7) {
            let mut bad = good.clone();
            bad[at] ^= 0x20;
            fs::write(store.path(), &bad).expect("written");
            // The case of the checksum's digits does not matter.
            let same = parse(&bad).is_ok_and(|allocations| allocations == saved());
            assert_eq!(store.load().expect("read").is_some(), same, "byte {at}");
            assert_eq!(store.path().exists(), same);
        }
        for cut in [0, 5, 30, good.len() - 1] {
            fs::write(store.path(), &good[..cut]).expect("written");
            assert_eq!(store.load().expect("read"), None);
        }
        let newer = b"fdn-devices 2 00000000\n{}";
        fs::write(store.path(), newer).expect("written");
        assert_eq!(store.load().expect("read"), None);
        let aside = folder.path().join("devices.book.unreadable");
        assert_eq!(fs::read(aside).expect("kept for a person"), newer);
    }
}
