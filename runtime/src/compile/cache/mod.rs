//! The compile cache: machine code of single functions, so that a component which embeds the same language engine as an earlier one is not
//! compiled from scratch.
//!
//! A folder of [packs](pack), one for each compilation that produced something new. Its owner lists them, bounds them and adds packs from
//! elsewhere; the compiling process reads them and writes one more ([`lookup`]). Damaged functions are compiled again and their pack removed.
//!
//! Whoever can write to the folder can run native code in every process that runs the compiled result: the folder must belong to the process's
//! own user and be writable by nobody else.

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

/// The most packs in a cache: each is opened for every compilation.
pub const PACKS_MAX: usize = 512;
/// A compilation adds at most the bound divided by this, so that a single component does not evict all others.
const SHARE: u64 = 4;

/// The path of a pack.
fn pack_file(folder: &Path, name: &Digest) -> PathBuf {
    folder.join(format!("{}.pack", name.hex()))
}

/// The digest of the pack that a file name stands for; `None` if it is not a pack's name.
fn pack_name(file_name: &OsStr) -> Option<Digest> {
    file_name.to_str()?.strip_suffix(".pack")?.parse().ok()
}

/// A folder of packs for this program's engine, bounded in bytes and number: the least recently used is evicted first. A cheap handle.
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
    entries: BTreeMap<Digest, PackEntry>,
    /// Packs that were made here and are not yet known to be kept elsewhere.
    unreplicated: BTreeSet<Digest>,
    /// A logical clock that counts uses.
    clock: u64,
    evicted: u64,
}

#[derive(Debug)]
struct PackEntry {
    size: u64,
    /// The time of its last use, by the logical clock.
    used: u64,
}

impl Packs {
    fn size(&self) -> u64 {
        self.entries.values().map(|entry| entry.size).sum()
    }

    fn insert(&mut self, name: Digest, size: u64) {
        self.clock += 1;
        let used = self.clock;
        self.entries.insert(name, PackEntry { size, used });
    }

    /// Removes packs beyond the bounds from the list and returns them.
    fn shrink(&mut self, limit: u64) -> Vec<Digest> {
        let mut victims = Vec::new();
        let mut size = self.size();
        while size > limit || self.entries.len() > PACKS_MAX {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used);
            let Some((name, entry_size)) = oldest.map(|(name, entry)| (*name, entry.size)) else {
                break;
            };
            size -= entry_size;
            self.entries.remove(&name);
            self.unreplicated.remove(&name);
            self.evicted += 1;
            victims.push(name);
        }
        victims
    }
}

/// A pack being written or received. Dropping it deletes its file.
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
    /// Opens a folder, which is created if necessary, and deletes the remains of interrupted writes and packs that are damaged or for another
    /// engine. Blocks.
    ///
    /// # Errors
    /// When the folder cannot be created or read.
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

    /// The key of the engine that the packs are for.
    #[must_use]
    pub fn engine(&self) -> &str {
        &self.0.engine
    }

    /// The bytes of all packs together.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.packs().size()
    }

    /// How many packs were evicted to make room.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.packs().evicted
    }

    /// The packs in the cache.
    #[must_use]
    pub fn names(&self) -> BTreeSet<Digest> {
        self.packs().entries.keys().copied().collect()
    }

    /// The packs that were made here and are not [known](CompileCache::mark_replicated) to be kept elsewhere, with their sizes in bytes.
    #[must_use]
    pub fn unreplicated(&self) -> Vec<(Digest, u64)> {
        let packs = self.packs();
        let size = |name: &Digest| Some((*name, packs.entries.get(name)?.size));
        packs.unreplicated.iter().filter_map(size).collect()
    }

    /// Notes that a pack made here is kept elsewhere, too.
    pub fn mark_replicated(&self, name: &Digest) {
        self.packs().unreplicated.remove(name);
    }

    /// The path of a pack.
    #[must_use]
    pub fn path(&self, name: &Digest) -> PathBuf {
        pack_file(&self.0.folder, name)
    }

    /// A file for a pack to be received. Blocks.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn incoming(&self) -> Result<IncomingPack, CompileError> {
        let folder = &self.0.folder;
        tempfile::Builder::new()
            .prefix(LEFTOVER_PREFIX)
            .tempfile_in(folder)
            .map(IncomingPack)
            .map_err(io_error(folder))
    }

    /// Adds a pack. `name` must be the digest of what was written, and a party that this process trusts as itself must have stated that a compiler
    /// wrote it: its content will be run as native code. Blocks.
    ///
    /// # Errors
    /// When it cannot be opened, or a file operation fails.
    pub fn store(&self, pack: IncomingPack, name: &Digest) -> Result<(), CompileError> {
        let path = self.path(name);
        pack::Pack::open(pack.path(), &self.0.engine).map_err(io_error(&path))?;
        let size = pack.0.as_file().metadata().map_err(io_error(&path))?.len();
        let failed = |error: tempfile::PersistError| io_error(&path)(error.error);
        pack.0.persist(&path).map_err(failed)?;
        self.packs().insert(*name, size);
        self.shrink();
        Ok(())
    }

    /// Removes a pack; a missing one is not an error. Blocks.
    pub fn remove(&self, name: &Digest) {
        let mut packs = self.packs();
        packs.entries.remove(name);
        packs.unreplicated.remove(name);
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

    /// The most bytes that one compilation may add.
    pub(super) fn max_new_bytes(&self) -> u64 {
        self.0.limit / SHARE
    }

    /// Records what a compilation found and made. Failures only cost time later. Blocks.
    pub(super) fn finish(&self, found: &CacheUse, pack: IncomingPack) {
        for name in &found.damaged {
            warn!(%name, "a pack of the compile cache is damaged or of another compiler; it is removed");
            self.remove(name);
        }
        let mut packs = self.packs();
        for name in &found.used {
            packs.clock += 1;
            let now = packs.clock;
            if let Some(entry) = packs.entries.get_mut(name) {
                entry.used = now;
            }
        }
        drop(packs);
        for name in &found.used {
            // Stored as the file's modification time, so that it is known after a restart, too.
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
            // Before it is added, because adding it may evict it at once if there is no room.
            self.packs().unreplicated.insert(*name);
            if let Err(error) = self.store(pack, name) {
                self.packs().unreplicated.remove(name);
                warn!(%error, "what was compiled cannot be added to the compile cache");
            }
        }
    }
}
