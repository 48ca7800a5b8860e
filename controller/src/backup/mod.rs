//! Backups: everything that cannot be made anew, as one file that any controller of this release or a later one can begin from.
//!
//! A backup is a tar archive, compressed by gzip. Its parts stand in this order, and a reader takes no other:
//!
//! | part | holds |
//! | --- | --- |
//! | `manifest.json` | the format, the release, the schema, when, and size and SHA-256 of each part below |
//! | `manifest.sha256` | the SHA-256 of the manifest |
//! | `keys/NAME` | the key files, if they were asked for |
//! | `tables/NAME.jsonl` | the rows of a table, a JSON array each; tables that others refer to come first |
//! | `objects.jsonl` | what lies in the artifact store, a line for each, with size and SHA-256 |
//! | `objects/NUMBER` | the objects, in the order of these lines |
//!
//! Rows are those of one moment: one transaction reads them all. Artifacts never change and are kept for a while after nothing names them, so they may
//! be copied after it. Controllers go on meanwhile.
//!
//! A restore reads the whole archive before it writes anything. Then artifacts are written, and the rows in one transaction; what breaks off takes back what
//! it wrote. Both run on a thread of their own, since archives are files, and hold a few megabytes whatever the size of the network.

mod archive;
mod error;
mod keys;
mod manifest;
mod restore;
mod write;

use std::path::PathBuf;

pub use error::BackupError;
pub use manifest::{KeyApart, KeyPart, Manifest, ObjectsPart, Part, TablePart};
pub use restore::restore;
pub use write::backup;

/// Where an archive goes, or comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A file.
    File(PathBuf),
    /// Standard output, or standard input.
    Stream,
}

impl From<PathBuf> for Place {
    /// `-` is the stream.
    fn from(path: PathBuf) -> Self {
        if path.as_os_str() == "-" {
            Self::Stream
        } else {
            Self::File(path)
        }
    }
}

/// What is done about keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeysWanted {
    /// A backup leaves them out; a restore wants those that the backup holds or that lie in their files.
    #[default]
    Needed,
    /// A backup takes them.
    With,
    /// A restore does without those that are lost.
    Lost,
}

/// Runs `work` where it may wait.
async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, crate::Error> + Send + 'static,
) -> Result<T, crate::Error> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|e| crate::Error::Internal(format!("the thread of the backup ended: {e}")))?
}
