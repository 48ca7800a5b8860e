//! Backups: all state that cannot be recreated, in one file that any controller of this release or a later one can restore.
//!
//! A backup is a tar archive, compressed by gzip. Its parts have this order, and a reader accepts no other:
//!
//! | part | holds |
//! | --- | --- |
//! | `manifest.json` | the format, the release, the schema, the time, and size and SHA-256 of each part below |
//! | `manifest.sha256` | the SHA-256 of the manifest |
//! | `keys/NAME` | the key files, if they were requested |
//! | `tables/NAME.jsonl` | the rows of a table, a JSON array each; tables that others refer to come first |
//! | `objects.jsonl` | the objects of the artifact store, one line each, with size and SHA-256 |
//! | `objects/NUMBER` | the objects, in the order of these lines |
//!
//! Rows are consistent: one transaction reads them all. Artifacts never change and are kept for a while after the last reference to them is gone,
//! so they can be copied afterwards. Controllers keep running meanwhile.
//!
//! A restore reads the whole archive before it writes anything. Then it writes artifacts, and the rows in one transaction; if it fails, it
//! deletes what it wrote. Backup and restore run on a thread of their own, since archives are files, and use a few megabytes of memory whatever
//! the size of the network.

mod archive;
mod error;
mod keys;
mod manifest;
mod restore;
mod write;

use std::path::PathBuf;

pub use error::BackupError;
pub use manifest::{ExternalKey, KeyPart, Manifest, ObjectsPart, Part, TablePart};
pub use restore::restore;
pub use write::backup;

/// Where an archive is written to, or read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArchiveLocation {
    /// A file.
    File(PathBuf),
    /// Standard output, or standard input.
    Stream,
}

impl From<PathBuf> for ArchiveLocation {
    /// `-` means the stream.
    fn from(path: PathBuf) -> Self {
        if path.as_os_str() == "-" {
            Self::Stream
        } else {
            Self::File(path)
        }
    }
}

/// How keys are treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyPolicy {
    /// A backup leaves them out; a restore requires those that the backup contains or that lie in their files.
    #[default]
    Needed,
    /// A backup includes them.
    With,
    /// A restore does without those that are lost.
    Lost,
}

/// Runs blocking `work` on a thread for it.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, crate::Error> + Send + 'static,
) -> Result<T, crate::Error> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|e| crate::Error::Internal(format!("the thread of the backup ended: {e}")))?
}
