//! The file operations that the spool needs, and no more, so that a test can replace the disk by one that tears writes, fails, and loses what was
//! not synced.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A file that is written at its end only.
pub trait DiskFile: Send + Sync + 'static {
    /// Writes at the end. After a failure, any part of `bytes` may be in the file.
    ///
    /// # Errors
    /// When the disk fails.
    fn append(&self, bytes: &[u8]) -> io::Result<()>;

    /// Returns when everything written so far would survive a power loss.
    ///
    /// # Errors
    /// When the disk fails; what was written since the last success may then be lost, even if a later call succeeds.
    fn sync(&self) -> io::Result<()>;
}

/// A folder of files. Names contain no separators.
pub trait Disk: Send + Sync + 'static {
    /// The type of its files.
    type File: DiskFile;

    /// The names and sizes of all files.
    ///
    /// # Errors
    /// When the disk fails.
    fn list(&self) -> io::Result<Vec<(String, u64)>>;

    /// Creates a file; none of this name may exist. The name survives a power loss only after [`Disk::sync_folder`].
    ///
    /// # Errors
    /// When the disk fails.
    fn create(&self, name: &str) -> io::Result<Self::File>;

    /// Opens an existing file.
    ///
    /// # Errors
    /// When the disk fails.
    fn open(&self, name: &str) -> io::Result<Self::File>;

    /// All bytes of a file.
    ///
    /// # Errors
    /// When the disk fails.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;

    /// Truncates a file to `size` bytes.
    ///
    /// # Errors
    /// When the disk fails.
    fn truncate(&self, name: &str, size: u64) -> io::Result<()>;

    /// Renames a file atomically.
    ///
    /// # Errors
    /// When the disk fails.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// When the disk fails.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Returns when the names in the folder would survive a power loss.
    ///
    /// # Errors
    /// When the disk fails.
    fn sync_folder(&self) -> io::Result<()>;
}

/// A folder of the operating system's file system.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Opens the folder at `path`, which is created if missing, accessible to its owner only.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn open(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        Ok(Self {
            path: path.to_owned(),
        })
    }

    /// The path of the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl DiskFile for File {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let mut file = self;
        file.write_all(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

impl Disk for Folder {
    type File = File;

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let size = entry.metadata()?.len();
            // Names that are not UTF-8 are not the spool's.
            if let Ok(name) = entry.file_name().into_string() {
                all.push((name, size));
            }
        }
        all.sort();
        Ok(all)
    }

    fn create(&self, name: &str) -> io::Result<File> {
        OpenOptions::new()
            .append(true)
            .create_new(true)
            .mode(0o600)
            .open(self.path.join(name))
    }

    fn open(&self, name: &str) -> io::Result<File> {
        OpenOptions::new().append(true).open(self.path.join(name))
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        fs::read(self.path.join(name))
    }

    fn truncate(&self, name: &str, size: u64) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(self.path.join(name))?;
        file.set_len(size)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync_folder(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }
}
