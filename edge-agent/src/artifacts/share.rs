//! State shared by the agents of one process, so that a machine compiles a component once: `fdn up` runs six agents.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use fdn_core::Digest;
use fdn_runtime::Engine;

use crate::error::Error;
use crate::settings::RuntimeSettings;

/// The engine, and the locations of files compiled by this process's agents. Cheap to clone.
#[derive(Clone)]
pub struct Machine {
    /// The engine that runs all functions.
    pub engine: Engine,
    compiled: Arc<Mutex<Compiled>>,
}

#[derive(Default)]
struct Compiled {
    files: BTreeMap<Digest, PathBuf>,
    /// By component that is being compiled in the process: its lock.
    turns: BTreeMap<Digest, Weak<tokio::sync::Mutex<()>>>,
}

impl Machine {
    /// Starts an engine.
    ///
    /// # Errors
    /// When the machine does not have what the settings require.
    pub fn new(settings: &RuntimeSettings) -> Result<Self, Error> {
        Ok(Self {
            engine: Engine::new(settings.engine())?,
            compiled: Arc::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, Compiled> {
        self.compiled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lock to hold while compiling `digest`.
    pub(super) fn turn(&self, digest: Digest) -> Arc<tokio::sync::Mutex<()>> {
        turn(&mut self.state().turns, digest)
    }

    /// Registers the compiled file of a component.
    pub(super) fn announce(&self, digest: Digest, path: &Path) {
        self.state().files.insert(digest, path.to_owned());
    }

    /// Links another agent's compiled file, with its checksum, beside `path`, where [`Adopted::publish`] moves it. `None` if there is none. Blocks.
    pub(super) fn adopt(&self, digest: Digest, path: &Path) -> Option<Adopted> {
        let other = self.state().files.get(&digest).cloned()?;
        if other == path {
            return None;
        }
        let adopted = Adopted {
            temporary: path.with_extension("adopted"),
            path: path.to_owned(),
        };
        let linked = link_or_copy(&checksum(&other), &checksum(&adopted.temporary))
            .and_then(|()| link_or_copy(&other, &adopted.temporary));
        if linked.is_err() {
            self.state().files.remove(&digest);
            return None;
        }
        Some(adopted)
    }
}

/// Another agent's compiled file under a temporary name. Unless it is published, nothing is left of it.
pub(super) struct Adopted {
    temporary: PathBuf,
    path: PathBuf,
}

impl Adopted {
    /// Gives it and its checksum their final names. `false` if that fails.
    pub(super) fn publish(self) -> bool {
        std::fs::rename(checksum(&self.temporary), checksum(&self.path))
            .and_then(|()| std::fs::rename(&self.temporary, &self.path))
            .is_ok()
    }
}

impl Drop for Adopted {
    fn drop(&mut self) {
        for left in [checksum(&self.temporary), self.temporary.clone()] {
            drop(std::fs::remove_file(left));
        }
    }
}

/// The lock of `digest` in `turns`; removes locks that nobody holds any more.
pub(super) fn turn(
    turns: &mut BTreeMap<Digest, Weak<tokio::sync::Mutex<()>>>,
    digest: Digest,
) -> Arc<tokio::sync::Mutex<()>> {
    turns.retain(|_, turn| turn.strong_count() > 0);
    if let Some(turn) = turns.get(&digest).and_then(Weak::upgrade) {
        return turn;
    }
    let turn = Arc::new(tokio::sync::Mutex::new(()));
    turns.insert(digest, Arc::downgrade(&turn));
    turn
}

/// The path of a compiled file's checksum.
pub(super) fn checksum(compiled: &Path) -> PathBuf {
    let mut name = compiled.as_os_str().to_owned();
    name.push(".sha256");
    PathBuf::from(name)
}

fn link_or_copy(from: &Path, to: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(to) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::fs::hard_link(from, to).or_else(|_| std::fs::copy(from, to).map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_adopted_is_published_whole_or_gone() {
        let folder = tempfile::tempdir().expect("a folder");
        let adopted = || {
            let adopted = Adopted {
                temporary: folder.path().join("x.adopted"),
                path: folder.path().join("x.cwasm"),
            };
            for file in [checksum(&adopted.temporary), adopted.temporary.clone()] {
                std::fs::write(file, "x").expect("written");
            }
            adopted
        };
        let files = || std::fs::read_dir(folder.path()).expect("a folder").count();
        drop(adopted());
        assert_eq!(files(), 0);
        assert!(adopted().publish());
        assert_eq!(files(), 2);
    }
}
