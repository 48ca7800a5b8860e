//! Folders for temporary servers and for data shared by all tests of a program, which do not accumulate.
//!
//! What lives as long as the test program is never dropped (Rust does not drop statics), and a killed program drops nothing: their folders
//! stay. So each folder contains a file that its owner has locked; the system releases the lock when the owner ends, however it ends, and whoever
//! creates
//! the next folder of the kind removes the unlocked ones.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;

use rustix::fs::statvfs;
use tempfile::TempDir;

/// The file in a folder that its owner locks.
const LOCK: &str = "owner.lock";
/// The file system in memory.
const MEMORY: &str = "/dev/shm";
/// The number of bytes that must be free there, and in memory, to use it.
const SPARE: u64 = 10 << 30;

/// A folder that is removed on drop, or later by the next owner of the same kind.
#[derive(Debug)]
pub struct OwnedFolder {
    // The lock is released after the folder is removed: until then nobody else removes it.
    folder: TempDir,
    _lock: File,
}

impl OwnedFolder {
    /// Creates a folder below the system's folder for temporary files; its name begins with `prefix`. Folders with the same prefix whose owners
    /// have
    /// ended are removed first.
    ///
    /// # Errors
    /// When no folder can be created there.
    pub fn new(prefix: &str) -> io::Result<Self> {
        Self::in_folder(&std::env::temp_dir(), prefix)
    }

    /// The same in memory, if the machine has enough of it: for data that is written a lot and worthless afterwards. Deleting thousands of files
    /// with
    /// gigabytes of data takes minutes on a disk.
    ///
    /// # Errors
    /// As for [`Self::new`].
    pub fn in_memory(prefix: &str) -> io::Result<Self> {
        let memory = Path::new(MEMORY);
        // First, because leftovers may be the reason for a lack of space.
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
                // A concurrent sweep found it before it was locked and is about to remove it.
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(cause)) => return Err(cause),
            }
        }
    }

    /// The path of the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Whether the folder in memory, and the memory itself, have enough free space.
fn has_room(folder: &Path) -> bool {
    let free = statvfs(folder).map_or(0, |of| of.f_bavail.saturating_mul(of.f_frsize));
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = text.lines().find_map(|line| {
        let kib = line.strip_prefix("MemAvailable:")?.trim();
        kib.strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    free.min(available.unwrap_or(0) << 10) >= SPARE
}

/// Removes unlocked folders. Failures are ignored: the next sweep tries again.
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
        // Without the lock file it does not belong to us.
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
