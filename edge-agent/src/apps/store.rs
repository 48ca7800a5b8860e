//! The desired state on disk: one JSON file, replaced as a whole.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tracing::error;

use super::state::Saved;
use crate::error::Error;

/// The version of the file format that this build reads and writes.
const SCHEMA: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Document<T> {
    schema: u32,
    #[serde(flatten)]
    saved: T,
}

/// The file of the desired state.
#[derive(Clone, Debug)]
pub struct Store {
    path: PathBuf,
}

impl Store {
    /// Opens the store in `folder`, which is created if missing, accessible to its owner only.
    ///
    /// # Errors
    /// When the folder cannot be created.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        use std::os::unix::fs::DirBuilderExt;
        let made = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder);
        made.map_err(|source| Error::Data {
            path: folder.to_owned(),
            source,
        })?;
        Ok(Self {
            path: folder.join("apps.json"),
        })
    }

    /// Reads the saved state; `None` on a new node. An unreadable file is renamed and ignored, because the next snapshot contains everything that
    /// was in it.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn load(&self) -> Result<Option<Saved>, Error> {
        let bytes = match fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.failed(error)),
        };
        match serde_json::from_slice::<Document<Saved>>(&bytes) {
            Ok(document) if document.schema == SCHEMA => return Ok(Some(document.saved)),
            Ok(document) => error!(
                path = %self.path.display(), schema = document.schema,
                "the desired state on disk was written by another version and is set aside"
            ),
            Err(error) => error!(
                path = %self.path.display(), %error,
                "the desired state on disk cannot be understood and is set aside"
            ),
        }
        fs::rename(&self.path, self.path.with_extension("json.unreadable"))
            .map_err(|e| self.failed(e))?;
        Ok(None)
    }

    /// Replaces the saved state.
    ///
    /// # Errors
    /// When the disk fails; the previous state is still there.
    pub fn save(&self, saved: &Saved) -> Result<(), Error> {
        let document = Document {
            schema: SCHEMA,
            saved,
        };
        let fresh = self.path.with_extension("json.new");
        let write = || {
            let text = serde_json::to_vec(&document)?;
            let mut file = File::create(&fresh)?;
            file.write_all(&text)?;
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

    fn failed(&self, source: std::io::Error) -> Error {
        Error::Data {
            path: self.path.clone(),
            source,
        }
    }
}

#[cfg(test)]
mod tests {
    use fdn_core::Revision;

    use super::*;

    #[test]
    fn what_was_saved_comes_back_and_rubbish_is_set_aside() {
        let folder = tempfile::tempdir().expect("folder");
        let store = Store::open(&folder.path().join("deep/state")).expect("store");
        assert_eq!(store.load().expect("nothing yet"), None);
        let saved = Saved {
            floor: Revision(7),
            gone: [("old".parse().expect("app"), Revision(9))].into(),
            ..Saved::default()
        };
        store.save(&saved).expect("saved");
        assert_eq!(store.load().expect("read"), Some(saved));
        for rubbish in [
            "{\"schema\":1,\"floor\":",
            "{\"schema\":2,\"floor\":1,\"apps\":{},\"gone\":{}}",
        ] {
            fs::write(&store.path, rubbish).expect("written");
            assert_eq!(store.load().expect("set aside"), None);
            assert!(!store.path.exists());
        }
    }
}
