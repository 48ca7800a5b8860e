//! The artifact cache of a node: each component fetched once, checked, compiled once, kept within a bound.
//!
//! `components/{digest}.wasm` holds what was uploaded, `compiled/{digest}-{engine}.cwasm` its machine code, from the controller or made here, with a
//! checksum beside it. A file appears under its name only when it is whole. Nothing that was read from disk is trusted before its digest was
//! checked again in this process; what does not match is deleted and made anew.
//!
//! `functions/` holds machine code of single functions of what was made here ([`CompileCache`]), within a bound of its own.
//!
//! [`ArtifactCache::prepare`] is single-flight for each digest: whoever comes second waits and finds the file.

mod compiled;
mod fetch;
mod index;
mod share;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use fdn_core::digest::DigestBuilder;
use fdn_core::{ByteSize, Digest};
use fdn_runtime::{
    CompileCache, CompileReport, Compiler, LoadError, compiled_file_name, is_leftover,
};
use tokio::sync::Semaphore;
use tracing::{info, warn};

pub use compiled::{CompiledSource, NotTaken};
pub use fetch::Fetcher;
pub use index::{Full, Index, Key, Kind};
pub use share::Machine;

use crate::error::{Error, PrepareError};
use crate::metrics::Metrics;

/// What the cache is made of.
#[derive(Clone)]
pub struct CacheParts {
    /// Its folder.
    pub folder: PathBuf,
    /// Its bound.
    pub limit: ByteSize,
    /// The largest component.
    pub artifact_limit: ByteSize,
    /// Where artifacts come from.
    pub fetcher: Fetcher,
    /// Where machine code comes from, if it is not always made here.
    pub compiled: Option<CompiledSource>,
    /// What compiles them.
    pub compiler: Compiler,
    /// How many are compiled at the same time.
    pub compile_parallel: usize,
    /// The bound of what is kept of single functions; 0 keeps none.
    pub compile_cache: ByteSize,
    /// The engine, and what other agents of this process have compiled.
    pub machine: Machine,
    /// Where evictions and fetches are counted.
    pub metrics: Metrics,
}

/// The artifact cache. A cheap handle.
#[derive(Clone)]
pub struct ArtifactCache(Arc<Inner>);

struct Inner {
    parts: CacheParts,
    components: PathBuf,
    compiled: PathBuf,
    functions: Option<CompileCache>,
    compile_slots: Semaphore,
    state: Mutex<State>,
}

struct State {
    index: Index,
    /// Components whose machine code could not be loaded: it is made here. As many as there are versions that were deployed here.
    distrusted: BTreeSet<Digest>,
    turns: BTreeMap<Digest, Weak<tokio::sync::Mutex<()>>>,
}

/// Gives a reservation back when it goes out of scope.
struct Reserved<'a> {
    inner: &'a Inner,
    size: u64,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.inner.state().index.release(self.size);
        self.inner.show();
    }
}

impl ArtifactCache {
    /// Opens the cache: makes its folders, deletes what is left of broken writes and of other engines, and counts the rest.
    ///
    /// # Errors
    /// When the folders cannot be made or read.
    pub fn open(parts: CacheParts) -> Result<Self, Error> {
        let components = parts.folder.join("components");
        let compiled = parts.folder.join("compiled");
        let mut found = Vec::new();
        let key = parts.machine.engine.compatibility_key().to_owned();
        for (folder, kind) in [(&components, Kind::Component), (&compiled, Kind::Compiled)] {
            let failed = |source| Error::Data {
                path: folder.clone(),
                source,
            };
            std::fs::create_dir_all(folder).map_err(failed)?;
            for entry in std::fs::read_dir(folder).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                match recognise(&entry, kind, &key) {
                    Some(Recognised::Keep(digest, size, used)) => {
                        found.push((used, Key { digest, kind }, size));
                    }
                    Some(Recognised::Checksum) => {}
                    None => {
                        info!(path = %entry.path().display(), "a left-over of the artifact cache is deleted");
                        drop(std::fs::remove_file(entry.path()));
                    }
                }
            }
        }
        found.sort_unstable_by_key(|(used, key, _)| (*used, *key));
        let mut index = Index::new(parts.limit);
        for (_, key, size) in found {
            index.insert(key, size);
        }
        let cache = Self(Arc::new(Inner {
            compile_slots: Semaphore::new(parts.compile_parallel),
            state: Mutex::new(State {
                index,
                distrusted: BTreeSet::new(),
                turns: BTreeMap::new(),
            }),
            functions: functions(&parts),
            parts,
            components,
            compiled,
        }));
        cache.0.show();
        Ok(cache)
    }

    /// Says which components the desired state stands on. Everything else may be evicted, and is as far as the bound asks for it.
    pub fn set_needed(&self, needed: BTreeSet<Digest>) {
        let victims = {
            let mut state = self.0.state();
            state.index.set_needed(needed);
            state.index.reserve(0)
        };
        self.0.evict(victims.unwrap_or_default());
        self.0.show();
    }

    /// Makes the component's compiled file available: from disk, else compiled, else fetched and compiled. `compiling` is called when
    /// the component is here and compiling begins.
    ///
    /// # Errors
    /// When it cannot be fetched, does not match its digest, cannot be compiled, or does not fit into the cache.
    pub async fn prepare(
        &self,
        digest: Digest,
        size: u64,
        compiling: impl Fn() + Send,
    ) -> Result<PathBuf, PrepareError> {
        let turn = share::turn(&mut self.0.state().turns, digest);
        let _turn = turn.lock().await;
        if let Some(path) = self.0.trusted_compiled(digest).await? {
            return Ok(path);
        }
        let component = self.0.component(digest, size).await?;
        compiling();
        self.0.compile(digest, &component).await
    }

    /// Makes an artifact available that is not compiled, such as the archive of an image: from disk, else fetched.
    ///
    /// # Errors
    /// When it cannot be fetched, does not match its digest, or does not fit into the cache.
    pub async fn fetch(&self, digest: Digest, size: u64) -> Result<PathBuf, PrepareError> {
        let turn = share::turn(&mut self.0.state().turns, digest);
        let _turn = turn.lock().await;
        self.0.component(digest, size).await
    }

    /// Deletes the compiled file, because it could not be loaded.
    pub fn distrust(&self, digest: Digest) {
        self.0.state().distrusted.insert(digest);
        self.0.delete(Key {
            digest,
            kind: Kind::Compiled,
        });
        self.0.show();
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        // Every change of the index under the lock is complete before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self) {
        let gauge = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let (size, needed) = {
            let state = self.state();
            (state.index.size(), state.index.needed_size())
        };
        self.parts.metrics.cache_size.set(gauge(size));
        self.parts.metrics.cache_needed.set(gauge(needed));
    }

    fn path(&self, key: Key) -> PathBuf {
        match key.kind {
            Kind::Component => self.components.join(format!("{}.wasm", key.digest.hex())),
            Kind::Compiled => self.compiled.join(compiled_file_name(
                &key.digest,
                self.parts.machine.engine.compatibility_key(),
            )),
        }
    }

    fn delete(&self, key: Key) {
        self.state().index.remove(key);
        let path = self.path(key);
        if key.kind == Kind::Compiled {
            drop(std::fs::remove_file(share::checksum(&path)));
        }
        if let Err(error) = std::fs::remove_file(&path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            warn!(path = %path.display(), %error, "a file of the artifact cache cannot be deleted");
        }
    }

    /// Makes room for `size` bytes, or says why not.
    fn reserve(&self, size: u64) -> Result<Reserved<'_>, PrepareError> {
        let victims = self.state().index.reserve(size).map_err(|full| {
            self.parts.metrics.cache_full.inc();
            warn!(
                wanted = %full.wanted, needed = %full.needed, limit = %full.limit,
                "the artifact cache is full of what deployed apps need"
            );
            PrepareError::CacheFull {
                wanted: full.wanted,
                needed: full.needed,
                limit: full.limit,
            }
        })?;
        self.evict(victims);
        Ok(Reserved { inner: self, size })
    }

    fn evict(&self, victims: Vec<Key>) {
        for victim in victims {
            self.parts.metrics.cache_evictions.inc();
            self.delete(victim);
        }
    }

    /// The compiled file, if it is here and is what it should be.
    async fn trusted_compiled(&self, digest: Digest) -> Result<Option<PathBuf>, PrepareError> {
        let key = Key {
            digest,
            kind: Kind::Compiled,
        };
        if !self.state().index.touch(key) {
            return Ok(None);
        }
        let path = self.path(key);
        match self.verify(&path).await? {
            Ok(()) => {
                self.parts.machine.announce(digest, &path);
                Ok(Some(path))
            }
            Err(error) => {
                warn!(%digest, %error, "a compiled component is made anew");
                self.delete(key);
                Ok(None)
            }
        }
    }

    async fn verify(&self, path: &Path) -> Result<Result<(), LoadError>, PrepareError> {
        let (engine, path) = (self.parts.machine.engine.clone(), path.to_owned());
        blocking(move || engine.verify(&path)).await
    }

    /// The component, from disk or from the controller.
    async fn component(&self, digest: Digest, size: u64) -> Result<PathBuf, PrepareError> {
        let key = Key {
            digest,
            kind: Kind::Component,
        };
        let path = self.path(key);
        if self.state().index.touch(key) {
            let file = path.clone();
            let found = blocking(move || digest_of(&file)).await?;
            if found.as_ref().is_ok_and(|found| *found == digest) {
                return Ok(path);
            }
            warn!(%digest, "a component in the cache does not match its digest and is fetched again");
            self.delete(key);
        }
        if size > self.parts.artifact_limit.as_bytes() {
            return Err(PrepareError::Spec(format!(
                "the component has {size} bytes, cache.artifact_limit is {}",
                self.parts.artifact_limit
            )));
        }
        let reserved = self.reserve(size)?;
        let result = self.parts.fetcher.fetch(digest, size, &path).await;
        let label = if result.is_ok() { "ok" } else { "failed" };
        self.parts.metrics.fetches.with_label_values(&[label]).inc();
        result?;
        self.state().index.insert(key, size);
        drop(reserved);
        Ok(path)
    }

    /// Takes the machine code that the controller has, if it can be trusted; `false` if the component must be compiled here.
    async fn take_compiled(&self, digest: Digest, path: &Path) -> Result<bool, PrepareError> {
        let Some(source) = &self.parts.compiled else {
            return Ok(false);
        };
        if self.state().distrusted.contains(&digest) {
            return Ok(false);
        }
        let engine = self.parts.machine.engine.compatibility_key();
        let label = match source.take(digest, engine, path).await {
            Ok(size) => match self.verify(path).await? {
                Ok(()) => {
                    info!(%digest, size, "machine code came from the controller");
                    "taken"
                }
                Err(error) => {
                    warn!(%digest, %error, "machine code of the controller cannot be used; it is made here");
                    "distrusted"
                }
            },
            Err(NotTaken::Absent) => "absent",
            Err(reason @ NotTaken::TooLarge(_)) => {
                info!(%digest, %reason, "machine code of the controller is not taken; it is made here");
                "too_large"
            }
            Err(reason @ NotTaken::Distrusted(_)) => {
                warn!(%digest, %reason, "machine code of the controller is not trusted; it is made here");
                "distrusted"
            }
            Err(reason) => {
                let reason = with_causes(&reason);
                info!(%digest, reason, "machine code of the controller did not come; it is made here");
                "failed"
            }
        };
        let taken = &self.parts.metrics.compiled_taken;
        taken.with_label_values(&[label]).inc();
        Ok(label == "taken")
    }

    fn count_functions(&self, report: &CompileReport) {
        let metrics = &self.parts.metrics.compile_cache;
        if let Some(found) = &report.cache {
            for (result, count) in [("hit", found.hits), ("miss", found.misses)] {
                let functions = metrics.functions.with_label_values(&[result]);
                functions.inc_by(count);
            }
        }
        if let Some(functions) = &self.functions {
            let gauge = |figure: u64| i64::try_from(figure).unwrap_or(i64::MAX);
            metrics.size.set(gauge(functions.size()));
            metrics.evictions.set(gauge(functions.evicted()));
        }
    }

    /// Compiles the component, unless another agent of this process has, or the controller.
    async fn compile(&self, digest: Digest, component: &Path) -> Result<PathBuf, PrepareError> {
        let key = Key {
            digest,
            kind: Kind::Compiled,
        };
        let path = self.path(key);
        let turn = self.parts.machine.turn(digest);
        let _turn = turn.lock().await;
        let (machine, to) = (self.parts.machine.clone(), path.clone());
        let adopted = blocking(move || machine.adopt(digest, &to)).await?
            && self.verify(&path).await?.is_ok();
        if !adopted && !self.take_compiled(digest, &path).await? {
            let slot = self.compile_slots.acquire().await;
            let slot = slot.map_err(|_| PrepareError::Internal("compiling was stopped".into()))?;
            let functions = self.functions.as_ref();
            let compiling = self.parts.compiler.compile(component, &path, functions);
            let result = compiling.await;
            drop(slot);
            let label = if result.is_ok() { "ok" } else { "failed" };
            self.parts
                .metrics
                .compiles
                .with_label_values(&[label])
                .inc();
            let report = result?;
            info!(%digest, took = ?report.took, size = report.compiled_size, "a component was compiled");
            self.count_functions(&report);
            self.verify(&path).await??;
        }
        let size = std::fs::metadata(&path).map(|found| found.len());
        let size = size.map_err(|source| PrepareError::Disk {
            path: path.clone(),
            source,
        })?;
        // Only now is the size known. Without room the file is given up again.
        let reserved = self.reserve(size).inspect_err(|_| self.delete(key))?;
        self.state().index.insert(key, size);
        drop(reserved);
        self.parts.machine.announce(digest, &path);
        Ok(path)
    }
}

/// What was compiled before, function by function. Without it the node compiles all the same.
fn functions(parts: &CacheParts) -> Option<CompileCache> {
    if parts.compile_cache.as_bytes() == 0 {
        return None;
    }
    CompileCache::open(parts.folder.join("functions"), parts.compile_cache)
        .inspect_err(|error| warn!(error = with_causes(error), "there is no compile cache"))
        .ok()
}

/// An error with what caused it.
fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Runs `work` where it may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, PrepareError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| PrepareError::Internal(error.to_string()))
}

fn digest_of(path: &Path) -> std::io::Result<Digest> {
    let mut file = std::fs::File::open(path)?;
    let mut hash = DigestBuilder::default();
    let mut buffer = vec![0; 128 << 10];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hash.finish()),
            n => hash.update(&buffer[..n]),
        }
    }
}

enum Recognised {
    Keep(Digest, u64, std::time::SystemTime),
    Checksum,
}

/// What a file of the cache folder is; `None` if it should not be there.
fn recognise(entry: &std::fs::DirEntry, kind: Kind, engine: &str) -> Option<Recognised> {
    let name = entry.file_name().into_string().ok()?;
    if is_leftover(&name) {
        return None;
    }
    let digest: Digest = name.get(..64)?.parse().ok()?;
    let expected = match kind {
        Kind::Component => format!("{}.wasm", digest.hex()),
        Kind::Compiled => compiled_file_name(&digest, engine),
    };
    if kind == Kind::Compiled && name == format!("{expected}.sha256") {
        return Some(Recognised::Checksum);
    }
    let metadata = entry.metadata().ok()?;
    let used = metadata.modified().ok()?;
    (name == expected && metadata.is_file()).then_some(Recognised::Keep(
        digest,
        metadata.len(),
        used,
    ))
}
