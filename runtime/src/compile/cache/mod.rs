//! The compile cache: machine code of single functions, so that a component with the same engine of a language inside as an earlier one is not
//! compiled as a whole.
//!
//! A folder of [packs](pack), one for each compilation that made something new. Its owner lists, bounds and brings them; the compiling process reads
//! them and writes one more ([`lookup`]). What is damaged is compiled again and its pack removed.
//!
//! Who can write to the folder can run native code in whatever runs what is compiled: it belongs to the process's own user and nobody else.

mod lookup;
mod pack;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use fdn_core::{ByteSize, Digest};
use tracing::{info, warn};

use super::{CompileError, io_error};
use crate::artifact::{LEFTOVER_PREFIX, is_leftover};
use crate::engine::config;

pub use lookup::CacheUse;
pub(crate) use lookup::Lookup;

/// The most packs of a cache: each is opened for every compilation.
pub const PACKS_MAX: usize = 512;
/// A compilation adds no more than this part of the bound, so that a single component does not drive out all others.
const SHARE: u64 = 4;

/// Where a pack lies.
fn pack_file(folder: &Path, name: &Digest) -> PathBuf {
    folder.join(format!("{}.pack", name.hex()))
}

/// Which pack a file is.
fn pack_name(file_name: &OsStr) -> Option<Digest> {
    file_name.to_str()?.strip_suffix(".pack")?.parse().ok()
}

/// A folder of packs of this program's engine, bounded in bytes and number: the one whose last use is longest ago goes first. A cheap handle.
#[derive(Clone, Debug)]
pub struct CompileCache(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    folder: PathBuf,
    engine: String,
    limit: u64,
    packs: Mutex<Packs>,
}

#[derive(Debug, Default)]
struct Packs {
    held: BTreeMap<Digest, Held>,
    /// Those that were made here and that nobody has taken note of.
    made: BTreeSet<Digest>,
    /// Counts uses.
    clock: u64,
    evicted: u64,
}

#[derive(Debug)]
struct Held {
    size: u64,
    /// The count of its last use.
    used: u64,
}

impl Packs {
    fn size(&self) -> u64 {
        self.held.values().map(|held| held.size).sum()
    }

    fn insert(&mut self, name: Digest, size: u64) {
        self.clock += 1;
        let used = self.clock;
        self.held.insert(name, Held { size, used });
    }

    /// Takes out what is beyond the bounds.
    fn shrink(&mut self, limit: u64) -> Vec<Digest> {
        let mut victims = Vec::new();
        let mut size = self.size();
        while size > limit || self.held.len() > PACKS_MAX {
            let oldest = self.held.iter().min_by_key(|(_, held)| held.used);
            let Some((name, held)) = oldest.map(|(name, held)| (*name, held.size)) else {
                break;
            };
            size -= held;
            self.held.remove(&name);
            self.made.remove(&name);
            self.evicted += 1;
            victims.push(name);
        }
        victims
    }
}

/// A pack while it is made or arrives. Dropped, it leaves nothing.
#[derive(Debug)]
pub struct IncomingPack(tempfile::NamedTempFile);

impl IncomingPack {
    /// The file, to be written from its beginning.
    ///
    /// # Errors
    /// When it cannot be opened again.
    pub fn file(&self) -> Result<File, CompileError> {
        self.0.reopen().map_err(io_error(self.path()))
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl CompileCache {
    /// Opens a folder, which is made if need be: deletes what is left of broken writes, and what is no pack or one of another engine. Blocks.
    ///
    /// # Errors
    /// When the folder cannot be made or read.
    pub fn open(folder: PathBuf, limit: ByteSize) -> Result<Self, CompileError> {
        let engine = config::compatibility_key();
        let engine = engine.map_err(|error| super::worker_failed(&error.to_string()))?;
        std::fs::create_dir_all(&folder).map_err(io_error(&folder))?;
        let mut found: Vec<(SystemTime, Digest, u64)> = Vec::new();
        for entry in std::fs::read_dir(&folder).map_err(io_error(&folder))? {
            let entry = entry.map_err(io_error(&folder))?;
            let (name, path) = (entry.file_name(), entry.path());
            let pack = pack_name(&name).filter(|_| pack::Pack::open(&path, &engine).is_ok());
            match (pack, entry.metadata()) {
                (Some(pack), Ok(metadata)) => {
                    let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                    found.push((used, pack, metadata.len()));
                }
                _ if pack_name(&name).is_some() || name.to_str().is_some_and(is_leftover) => {
                    info!(path = %path.display(), "a left-over of the compile cache is deleted");
                    drop(std::fs::remove_file(&path));
                }
                _ => {}
            }
        }
        found.sort_unstable();
        let mut packs = Packs::default();
        for (_, name, size) in found {
            packs.insert(name, size);
        }
        let cache = Self(Arc::new(Inner {
            folder,
            engine,
            limit: limit.as_bytes(),
            packs: Mutex::new(packs),
        }));
        cache.shrink();
        Ok(cache)
    }

    fn packs(&self) -> MutexGuard<'_, Packs> {
        // Every change under the lock is complete before anything can panic.
        self.0.packs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The key of the engine that the packs are of.
    #[must_use]
    pub fn engine(&self) -> &str {
        &self.0.engine
    }

    /// Bytes of all packs.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.packs().size()
    }

    /// Packs that went because others needed their room.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.packs().evicted
    }

    /// The packs that are here.
    #[must_use]
    pub fn names(&self) -> BTreeSet<Digest> {
        self.packs().held.keys().copied().collect()
    }

    /// The packs that were made here and are not [known](CompileCache::known) elsewhere, with their sizes in bytes.
    #[must_use]
    pub fn made(&self) -> Vec<(Digest, u64)> {
        let packs = self.packs();
        let size = |name: &Digest| Some((*name, packs.held.get(name)?.size));
        packs.made.iter().filter_map(size).collect()
    }

    /// A pack that was made here is kept elsewhere, too.
    pub fn known(&self, name: &Digest) {
        self.packs().made.remove(name);
    }

    /// Where a pack lies.
    #[must_use]
    pub fn path(&self, name: &Digest) -> PathBuf {
        pack_file(&self.0.folder, name)
    }

    /// A file for a pack that comes. Blocks.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn incoming(&self) -> Result<IncomingPack, CompileError> {
        let folder = &self.0.folder;
        tempfile::Builder::new()
            .prefix(LEFTOVER_PREFIX)
            .tempfile_in(folder)
            .map(IncomingPack)
            .map_err(io_error(folder))
    }

    /// Takes a pack in. `name` must be the digest of what was written, and somebody whom this process trusts like itself must have said that a compiler
    /// wrote it: what it holds will be run as a native program. Blocks.
    ///
    /// # Errors
    /// When it cannot be opened or its file fails.
    pub fn keep(&self, pack: IncomingPack, name: &Digest) -> Result<(), CompileError> {
        let path = self.path(name);
        pack::Pack::open(pack.path(), &self.0.engine).map_err(io_error(&path))?;
        let size = pack.0.as_file().metadata().map_err(io_error(&path))?.len();
        let failed = |error: tempfile::PersistError| io_error(&path)(error.error);
        pack.0.persist(&path).map_err(failed)?;
        self.packs().insert(*name, size);
        self.shrink();
        Ok(())
    }

    /// Removes a pack; one that is not here is no error. Blocks.
    pub fn remove(&self, name: &Digest) {
        let mut packs = self.packs();
        packs.held.remove(name);
        packs.made.remove(name);
        drop(packs);
        self.delete(name);
    }

    fn delete(&self, name: &Digest) {
        let path = self.path(name);
        if let Err(error) = std::fs::remove_file(&path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            warn!(path = %path.display(), %error, "a pack of the compile cache cannot be deleted");
        }
    }

    fn shrink(&self) {
        let victims = self.packs().shrink(self.0.limit);
        for victim in &victims {
            self.delete(victim);
        }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.0.folder
    }

    /// The most bytes that a compilation adds.
    pub(super) fn room(&self) -> u64 {
        self.0.limit / SHARE
    }

    /// Takes note of what a compilation found and made. What fails costs time later and nothing else. Blocks.
    pub(super) fn finish(&self, found: &CacheUse, pack: IncomingPack) {
        for name in &found.damaged {
            warn!(%name, "a pack of the compile cache is damaged or of another compiler; it is removed");
            self.remove(name);
        }
        let mut packs = self.packs();
        for name in &found.used {
            packs.clock += 1;
            let now = packs.clock;
            if let Some(held) = packs.held.get_mut(name) {
                held.used = now;
            }
        }
        drop(packs);
        for name in &found.used {
            // So that it is known after a restart, too.
            let touched =
                File::open(self.path(name)).and_then(|f| f.set_modified(SystemTime::now()));
            drop(touched);
        }
        if let Some(failure) = &found.failure {
            warn!(
                failure,
                "what was compiled cannot be added to the compile cache"
            );
        }
        if let Some(name) = &found.made {
            // Before, so that it goes again if there is no room for it.
            self.packs().made.insert(*name);
            if let Err(error) = self.keep(pack, name) {
                self.packs().made.remove(name);
                warn!(%error, "what was compiled cannot be added to the compile cache");
            }
        }
    }
}
