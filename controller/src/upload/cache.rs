//! The local folder of the compile cache. Only this process may write to it: its content runs as native code.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use fdn_core::ByteSize;
use fdn_core::compiled::EngineKey;
use fdn_runtime::CompileCache;
use tracing::{info, warn};

/// The most controllers that can share a folder for uploads and have a cache each.
const FOLDERS_MAX: u32 = 16;

/// Packs of compiled functions, as they are in the artifact store.
pub struct PackFolder {
    /// The packs.
    pub cache: CompileCache,
    /// The engine that they were compiled for.
    pub engine: EngineKey,
    /// Held during an exchange with the artifact store, so that there is one at a time.
    pub exchanging: tokio::sync::Mutex<()>,
    /// Locked as long as this process lives.
    _place: File,
}

impl PackFolder {
    /// Takes a place in the folder of uploads; `None` if the cache is disabled or no folder can be used. Blocking.
    #[must_use]
    pub fn open(uploads: &Path, limit: ByteSize) -> Option<Self> {
        if limit.as_bytes() == 0 {
            return None;
        }
        let (folder, place) = lock_free_folder(uploads)?;
        match CompileCache::open(folder, limit) {
            // Without a valid engine key nothing can be stored elsewhere.
            Ok(cache) => Some(Self {
                engine: cache.engine().parse().ok()?,
                cache,
                exchanging: tokio::sync::Mutex::default(),
                _place: place,
            }),
            Err(error) => {
                warn!(%error, "there is no compile cache");
                None
            }
        }
    }
}

/// Locks the first folder that no other process holds.
fn lock_free_folder(uploads: &Path) -> Option<(PathBuf, File)> {
    for number in 0..FOLDERS_MAX {
        let folder = uploads.join(format!("fdn-compile-cache-{number}"));
        match try_lock_folder(&folder) {
            Ok(Some(place)) => return Some((folder, place)),
            Ok(None) => {}
            Err(error) => {
                info!(folder = %folder.display(), %error, "a folder cannot hold the compile cache");
            }
        }
    }
    warn!(folder = %uploads.display(), "there is no compile cache: no folder can be had for it");
    None
}

/// Creates the folder if necessary and locks it; `None` if another process has locked it.
fn try_lock_folder(folder: &Path) -> io::Result<Option<File>> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // The parent may be a folder where everybody can create files.
    let found = std::fs::symlink_metadata(folder)?;
    let above = folder.parent().unwrap_or(folder);
    let own = tempfile::tempfile_in(above)?.metadata()?.uid();
    if !found.is_dir() || found.uid() != own || found.mode() & 0o077 != 0 {
        let reason = "it is not a folder of this user alone";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
    }
    let place = File::open(folder)?;
    match place.try_lock() {
        Ok(()) => Ok(Some(place)),
        Err(std::fs::TryLockError::WouldBlock) => Ok(None),
        Err(std::fs::TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn each_process_has_a_folder_that_nobody_else_can_write_to() {
        let uploads = tempfile::tempdir().expect("a folder");
        let (first, place) = lock_free_folder(uploads.path()).expect("a place");
        let mode = std::fs::metadata(&first).expect("a folder").mode();
        assert_eq!(mode & 0o777, 0o700);
        let (second, _other) = lock_free_folder(uploads.path()).expect("a place");
        assert_ne!(first, second);
        drop(place);
        assert_eq!(lock_free_folder(uploads.path()).expect("a place").0, first);
        // A folder that others could have written to is not used.
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(&first, open).expect("changed");
        assert!(try_lock_folder(&first).is_err());
        assert_ne!(lock_free_folder(uploads.path()).expect("a place").0, first);
    }

    #[test]
    fn without_a_bound_there_is_none() {
        let uploads = tempfile::tempdir().expect("a folder");
        assert!(PackFolder::open(uploads.path(), ByteSize::from_bytes(0)).is_none());
        assert!(PackFolder::open(uploads.path(), ByteSize::from_mib(1)).is_some());
    }
}
