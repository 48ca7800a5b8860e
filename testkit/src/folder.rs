//! Folders for throw-away servers and for what all tests of a program share, which do not pile up.
//!
//! What lives as long as the test program is never dropped (Rust drops no statics), and a program that is killed drops nothing: their folders
//! stay. So each folder holds a file that its owner has locked; the system takes the lock away when the owner ends, however it ends, and who makes the
//! next folder of the kind removes those that nobody holds.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;

use rustix::fs::statvfs;
use tempfile::TempDir;

/// The file that the owner of a folder has locked.
const LOCK: &str = "owner.lock";
/// Where files lie in memory.
const MEMORY: &str = "/dev/shm";
/// Bytes that must be free there, and of memory, to use it.
const SPARE: u64 = 10 << 30;

/// A folder that is removed when this is dropped, or by whoever comes next.
#[derive(Debug)]
pub struct OwnedFolder {
    // The lock goes after the folder: until then nobody else removes it.
    folder: TempDir,
    _lock: File,
}

impl OwnedFolder {
    /// A new folder below the system's folder for temporary files; its name begins with `prefix`. Those of the same prefix whose owners have
    /// ended are removed first.
    ///
    /// # Errors
    /// When no folder can be made there.
    pub fn new(prefix: &str) -> io::Result<Self> {
        Self::in_folder(&std::env::temp_dir(), prefix)
    }

    /// The same in memory, where the machine has enough of it to spare: for what is written much and worth nothing afterwards. A disk takes minutes to
    /// forget some thousand files of gigabytes.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn in_memory(prefix: &str) -> io::Result<Self> {
        let memory = Path::new(MEMORY);
        // First: what was left there may be what it has no room for.
        sweep(memory, prefix);
        if !has_room(memory) {
            return Self::new(prefix);
        }
        Self::in_folder(memory, prefix).or_else(|_| Self::new(prefix))
    }

    fn in_folder(parent: &Path, prefix: &str) -> io::Result<Self> {
        sweep(parent, prefix);
        loop {
            let folder = tempfile::Builder::new().prefix(prefix).tempdir_in(parent)?;
            let lock = File::create(folder.path().join(LOCK))?;
            match lock.try_lock() {
                Ok(()) => {
                    return Ok(Self {
                        folder,
                        _lock: lock,
                    });
                }
                // Somebody who sweeps found it in the moment before: it is about to go.
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(cause)) => return Err(cause),
            }
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Whether the folder in memory, and the memory itself, have room to spare.
fn has_room(folder: &Path) -> bool {
    let free = statvfs(folder).map_or(0, |of| of.f_bavail.saturating_mul(of.f_frsize));
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = text.lines().find_map(|line| {
        let kib = line.strip_prefix("MemAvailable:")?.trim();
        kib.strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    free.min(available.unwrap_or(0) << 10) >= SPARE
}

/// Removes folders that nobody holds. What cannot be removed stays: the next one tries again.
fn sweep(parent: &Path, prefix: &str) {
    let Ok(entries) = std::fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(prefix) {
            continue;
        }
        if let Ok(lock) = File::open(entry.path().join(LOCK))
            && lock.try_lock().is_ok()
        {
            drop(std::fs::remove_dir_all(entry.path()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_holds_is_swept_and_the_rest_stays() {
        let parent = tempfile::tempdir().expect("a folder");
        let held = OwnedFolder::in_folder(parent.path(), "kind-").expect("a folder");
        let left = parent.path().join("kind-left");
        std::fs::create_dir(&left).expect("a folder");
        std::fs::write(left.join(LOCK), "").expect("a file");
        std::fs::write(left.join("data"), "many bytes").expect("a file");
        let others = ["other-left", "kind-of-somebody-else"].map(|name| parent.path().join(name));
        std::fs::create_dir(&others[0]).expect("a folder");
        std::fs::write(others[0].join(LOCK), "").expect("a file");
        // Without the file it is none of ours.
        std::fs::create_dir(&others[1]).expect("a folder");

        let next = OwnedFolder::in_folder(parent.path(), "kind-").expect("a folder");
        assert!(!left.exists(), "its owner is gone");
        assert!(held.path().is_dir() && next.path().is_dir());
        assert!(others.iter().all(|folder| folder.is_dir()));
        let path = held.path().to_owned();
        drop(held);
        assert!(!path.exists());
    }
}
