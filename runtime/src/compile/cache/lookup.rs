//! The compiler's view of the cache during one compilation: it looks up each function before it compiles it.
//!
//! The compiler's key is the SHA-256 of everything that it reads to compile a function: the code after translation, the target, and all
//! settings and features. Compiler version and engine are not part of it: the version is stored in each value, where the compiler checks it,
//! and a pack is for one engine.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fdn_core::Digest;
use serde::{Deserialize, Serialize};
use tracing::debug;
use wasmtime::CacheStore;

use super::pack::{self, Key, Pack, ValueLocation};
use super::pack_name;

/// The smallest pack that is kept, in bytes: compiling less again takes only milliseconds.
pub(super) const PACK_MIN: u64 = 64 << 10;

/// What one compilation found in the cache, and what it added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheUse {
    /// Functions that were found.
    pub hits: u64,
    /// Functions that were not found and had to be compiled.
    pub misses: u64,
    /// Packs in which functions were found.
    pub used: Vec<Digest>,
    /// Packs that are damaged or useless; they are removed.
    pub damaged: Vec<Digest>,
    /// The pack of what was compiled, if it is large enough to keep.
    pub made: Option<Digest>,
    /// Why that pack could not be written.
    pub failure: Option<String>,
}

/// The packs of a folder, and the functions compiled since.
pub(crate) struct Lookup {
    engine: String,
    packs: Vec<OpenPack>,
    /// Packs that could not be opened.
    unreadable: Vec<Digest>,
    index: HashMap<Key, (usize, ValueLocation)>,
    new_functions: Mutex<NewFunctions>,
    /// The most bytes of the new pack.
    max_new_bytes: u64,
    hits: AtomicU64,
    misses: AtomicU64,
}

struct OpenPack {
    name: Digest,
    pack: Pack,
    used: AtomicBool,
    damaged: AtomicBool,
}

#[derive(Default)]
struct NewFunctions {
    values: BTreeMap<Key, Vec<u8>>,
    /// Bytes of the new pack's entries and values.
    size: u64,
}

impl Lookup {
    /// Opens the packs of a folder. A pack that cannot be used is skipped.
    pub(crate) fn open(folder: &Path, engine: &str, max_new_bytes: u64) -> Self {
        let mut names: Vec<Digest> = std::fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| pack_name(&entry.file_name()))
            .collect();
        names.sort_unstable();
        let mut lookup = Self {
            engine: engine.to_owned(),
            packs: Vec::new(),
            unreadable: Vec::new(),
            index: HashMap::new(),
            new_functions: Mutex::default(),
            max_new_bytes,
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        };
        for name in names {
            match Pack::open(&super::pack_file(folder, &name), engine) {
                Ok(pack) => lookup.add(name, pack),
                // Evicted since the folder was listed.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => {
                    debug!(%name, %error, "a pack is left out");
                    lookup.unreadable.push(name);
                }
            }
        }
        lookup
    }

    fn add(&mut self, name: Digest, mut pack: Pack) {
        let at = self.packs.len();
        // Functions that two concurrent compilations both made are read from one pack only, so that the other is eventually evicted.
        for (key, location) in std::mem::take(&mut pack.entries) {
            self.index.entry(key).or_insert((at, location));
        }
        self.packs.push(OpenPack {
            name,
            pack,
            used: AtomicBool::new(false),
            damaged: AtomicBool::new(false),
        });
    }

    fn new_functions(&self) -> MutexGuard<'_, NewFunctions> {
        // Every change under the lock is complete before anything can panic.
        self.new_functions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, key: &Key) -> Option<Vec<u8>> {
        if let Some((at, location)) = self.index.get(key)
            && let Some(opened) = self.packs.get(*at)
        {
            match opened.pack.read(location) {
                Ok(value) => {
                    opened.used.store(true, Ordering::Relaxed);
                    return Some(value);
                }
                Err(error) => {
                    debug!(name = %opened.name, %error, "a function is compiled although its pack has it");
                    opened.damaged.store(true, Ordering::Relaxed);
                }
            }
        }
        self.new_functions().values.get(key).cloned()
    }

    /// Ends the compilation: what it made is written to `output`.
    pub(crate) fn finish(&self, output: &Path) -> CacheUse {
        let names = |which: fn(&OpenPack) -> &AtomicBool| {
            let marked = |opened: &&OpenPack| which(opened).load(Ordering::Relaxed);
            let packs = self.packs.iter().filter(marked);
            packs.map(|opened| opened.name).collect::<Vec<_>>()
        };
        let mut found = CacheUse {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            used: names(|opened| &opened.used),
            damaged: names(|opened| &opened.damaged),
            made: None,
            failure: None,
        };
        found.damaged.extend(&self.unreadable);
        let new_functions = self.new_functions();
        if new_functions.size >= PACK_MIN {
            let written = File::create(output)
                .and_then(|file| pack::write(&file, &self.engine, &new_functions.values));
            match written {
                Ok((name, _)) => found.made = Some(name),
                Err(error) => found.failure = Some(error.to_string()),
            }
        }
        found
    }
}

impl CacheStore for Lookup {
    fn get(&self, key: &[u8]) -> Option<Cow<'_, [u8]>> {
        let found = <&Key>::try_from(key).ok().and_then(|key| self.find(key));
        let counter = if found.is_some() {
            &self.hits
        } else {
            &self.misses
        };
        counter.fetch_add(1, Ordering::Relaxed);
        found.map(Cow::Owned)
    }

    fn insert(&self, key: &[u8], value: Vec<u8>) -> bool {
        let Ok(key) = Key::try_from(key) else {
            return false;
        };
        if let Some((at, _)) = self.index.get(&key)
            && let Some(opened) = self.packs.get(*at)
            && !opened.damaged.swap(true, Ordering::Relaxed)
        {
            // The compiler did not accept what was found: the pack was written by another version of the compiler.
            debug!(name = %opened.name, "the compiler takes nothing of this pack");
        }
        let size = value.len() as u64 + pack::ENTRY;
        let mut new_functions = self.new_functions();
        if new_functions.size + size > self.max_new_bytes {
            return false;
        }
        if new_functions.values.insert(key, value).is_none() {
            new_functions.size += size;
        }
        true
    }
}

impl std::fmt::Debug for Lookup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lookup")
            .field("packs", &self.packs.len())
            .field("functions", &self.index.len())
            .finish_non_exhaustive()
    }
}
