//! The data directory and its lock: two networks in one directory would destroy each other's state.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use fdn_core::ErrorCode;

use crate::environment::Environment;
use crate::error::CliError;

/// A data directory that is locked until this is dropped.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    _lock: File,
}

impl DataDir {
    /// Opens the named directory, or else that of the environment; creates it, accessible to its owner only, if it does not exist.
    ///
    /// # Errors
    /// When it cannot be used, or another process has locked it.
    pub fn open(named: Option<&Path>, env: &Environment) -> Result<Self, CliError> {
        let path = match named {
            Some(path) => path.to_owned(),
            None => env.data_folder().ok_or_else(|| {
                CliError::Usage(
                    "there is no place for the data: name one with --data-dir, or set HOME"
                        .to_owned(),
                )
            })?,
        };
        let failed = |path: &Path, reason: String| CliError::File {
            path: path.to_owned(),
            reason: format!("{reason} (change it with --data-dir)"),
            code: ErrorCode::DataDirectory,
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .map_err(|e| failed(&path, e.to_string()))?;
        // Absolute, because it is written to the context and to settings.
        let path = path
            .canonicalize()
            .map_err(|e| failed(&path, e.to_string()))?;
        let lock_path = path.join("fdn.lock");
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&lock_path)
            .map_err(|e| failed(&lock_path, e.to_string()))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(failed(&path, held_by(&mut lock))),
            Err(TryLockError::Error(e)) => return Err(failed(&lock_path, e.to_string())),
        }
        let write = |lock: &mut File| {
            lock.set_len(0)?;
            lock.rewind()?;
            writeln!(lock, "{}", std::process::id())
        };
        write(&mut lock).map_err(|e| failed(&lock_path, e.to_string()))?;
        Ok(Self { path, _lock: lock })
    }

    /// The path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file or folder in it.
    #[must_use]
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }
}

fn held_by(lock: &mut File) -> String {
    let mut text = String::new();
    let process = match lock
        .read_to_string(&mut text)
        .ok()
        .and_then(|_| text.trim().parse::<u32>().ok())
    {
        Some(pid) => format!(" (process {pid})"),
        None => String::new(),
    };
    format!(
        "another fdn up{process} works with this data directory; stop it or use another directory"
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_directory_has_one_owner_at_a_time() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("deep/data");
        let env = Environment::default();
        let first = DataDir::open(Some(&path), &env).expect("first");
        let mode = std::fs::metadata(first.path())
            .expect("metadata")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o700);
        let error = DataDir::open(Some(&path), &env)
            .expect_err("held")
            .to_string();
        assert!(
            error.contains(&format!("process {}", std::process::id())),
            "{error}"
        );
        assert!(error.contains("--data-dir"), "{error}");
        drop(first);
        DataDir::open(Some(&path), &env).expect("free again");
    }

    #[test]
    fn a_directory_that_cannot_be_is_named() {
        let folder = tempfile::tempdir().expect("folder");
        let file = folder.path().join("file");
        std::fs::write(&file, "").expect("write");
        let error = DataDir::open(Some(&file), &Environment::default())
            .expect_err("a file")
            .to_string();
        assert!(error.contains(&file.display().to_string()), "{error}");
        let nowhere = DataDir::open(None, &Environment::default())
            .expect_err("nowhere")
            .to_string();
        assert!(nowhere.contains("--data-dir"), "{nowhere}");
    }
}
