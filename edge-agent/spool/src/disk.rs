//! The operations on files that the spool needs, and no more, so that a test can put a disk below that tears writes, fails and loses
//! what was not synced.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A file that is written at its end.
pub trait DiskFile: Send + Sync + 'static {
    /// Writes at the end. After a failure any part of it may be there.
    ///
    /// # Errors
    /// The disk's.
    fn append(&self, bytes: &[u8]) -> io::Result<()>;

    /// Returns when everything that was written would survive a loss of power.
    ///
    /// # Errors
    /// The disk's; what was written since the last success may be lost then, even if a later call succeeds.
    fn sync(&self) -> io::Result<()>;
}

/// A folder of files. Names are plain: no separators.
pub trait Disk: Send + Sync + 'static {
    /// Its files.
    type File: DiskFile;

    /// The names and sizes of all files.
    ///
    /// # Errors
    /// The disk's.
    fn list(&self) -> io::Result<Vec<(String, u64)>>;

    /// A new file; there must be none of this name. Its name survives only [`Disk::sync_folder`].
    ///
    /// # Errors
    /// The disk's.
    fn create(&self, name: &str) -> io::Result<Self::File>;

    /// A file that is there.
    ///
    /// # Errors
    /// The disk's.
    fn open(&self, name: &str) -> io::Result<Self::File>;

    /// All bytes of a file.
    ///
    /// # Errors
    /// The disk's.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;

    /// Cuts a file.
    ///
    /// # Errors
    /// The disk's.
    fn truncate(&self, name: &str, size: u64) -> io::Result<()>;

    /// Gives a file another name, whole or not at all.
    ///
    /// # Errors
    /// The disk's.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// The disk's.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Returns when the names of the folder would survive a loss of power.
    ///
    /// # Errors
    /// The disk's.
    fn sync_folder(&self) -> io::Result<()>;
}

/// A folder of the operating system.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// The folder at `path`, which is made if it does not exist, for its owner only.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        Ok(Self {
            path: path.to_owned(),
        })
    }

    /// Where it is.
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
            // Names that are not text are not ours.
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
