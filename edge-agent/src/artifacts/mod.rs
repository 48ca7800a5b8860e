//! A node's artifact cache: each component is fetched once, verified, compiled once, and kept within a size limit.
//!
//! `components/{digest}.wasm` holds uploaded components, `compiled/{digest}-{engine}.cwasm` their machine code, from the controller or compiled
//! here, each with a checksum beside it. A file gets its name only when it is complete. Nothing read from disk is trusted before this process has
//! verified its digest; a file that does not match is deleted and replaced.
//!
//! `functions/` holds machine code of single functions of what was compiled here ([`CompileCache`]), with a limit of its own.
//!
//! [`ArtifactCache::prepare`] is single-flight for each digest: a second caller waits and finds the file.

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

pub use compiled::{CompiledFetchError, CompiledSource};
pub use fetch::Fetcher;
pub use index::{CacheFull, Index, Key, Kind};
pub use share::Machine;

use crate::error::{Error, PrepareError};
use crate::metrics::Metrics;
use share::Adopted;

/// What the cache is made of.
#[derive(Clone)]
pub struct CacheParts {
    /// The cache's folder.
    pub folder: PathBuf,
    /// The size limit.
    pub limit: ByteSize,
    /// The largest accepted artifact.
    pub artifact_limit: ByteSize,
    /// Downloads artifacts.
    pub fetcher: Fetcher,
    /// Downloads machine code; `None`: always compile here.
    pub compiled: Option<CompiledSource>,
    /// The compiler.
    pub compiler: Compiler,
    /// The number of concurrent compilations.
    pub compile_parallel: usize,
    /// The size limit of machine code kept of single functions; 0 keeps none.
    pub compile_cache: ByteSize,
    /// The engine, and the files compiled by other agents of this process.
    pub machine: Machine,
    /// The node's metrics.
    pub metrics: Metrics,
}

/// The artifact cache. Cheap to clone.
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
    /// Components whose machine code could not be loaded: it is compiled here. At most one entry per version deployed here.
    distrusted: BTreeSet<Digest>,
    turns: BTreeMap<Digest, Weak<tokio::sync::Mutex<()>>>,
}

/// Releases a reservation when dropped.
struct SpaceReservation<'a> {
    inner: &'a Inner,
    size: u64,
}

impl Drop for SpaceReservation<'_> {
    fn drop(&mut self) {
        self.inner.state().index.release(self.size);
        self.inner.show();
    }
}

/// A compiled file that is being made; deleted when dropped unless it was kept. Its preparation may be aborted at any time, and a file that is
/// not in the index does not count towards the limit.
struct Unkept<'a> {
    inner: &'a Inner,
    key: Key,
    kept: bool,
}

impl Drop for Unkept<'_> {
    fn drop(&mut self) {
        if !self.kept {
            self.inner.delete(self.key);
        }
    }
}

impl ArtifactCache {
    /// Opens the cache: creates its folders, deletes leftovers of incomplete writes and of other engines, and indexes the rest.
    ///
    /// # Errors
    /// When the folders cannot be created or read.
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
                match identify(&entry, kind, &key) {
                    Some(CacheFile::Keep(digest, size, used)) => {
                        found.push((used, Key { digest, kind }, size));
                    }
                    Some(CacheFile::Checksum) => {}
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

    /// Sets the components that the desired state needs. Any others may be evicted, and are if the limit requires it.
    pub fn set_needed(&self, needed: BTreeSet<Digest>) {
        let victims = {
            let mut state = self.0.state();
            state.index.set_needed(needed);
            state.index.reserve(0)
        };
        self.0.evict(victims.unwrap_or_default());
        self.0.show();
    }

    /// Provides the component's compiled file: from disk, or else from another agent of this process, from the controller, or by compiling here.
    /// `compiling` is called when the component is on disk and there is no compiled file of it.
    ///
    /// # Errors
    /// When the component cannot be fetched, does not match its digest, cannot be compiled, or does not fit into the cache.
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

    /// Provides an artifact that is not compiled, such as an image archive: from disk, or else downloaded.
    ///
    /// # Errors
    /// When it cannot be fetched, does not match its digest, or does not fit into the cache.
    pub async fn fetch(&self, digest: Digest, size: u64) -> Result<PathBuf, PrepareError> {
        let turn = share::turn(&mut self.0.state().turns, digest);
        let _turn = turn.lock().await;
        self.0.component(digest, size).await
    }

    /// Deletes the compiled file because it could not be loaded.
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
        // No code can panic in the middle of a change of the index.
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

    /// Reserves `size` bytes; evicts files for that if necessary.
    fn reserve(&self, size: u64) -> Result<SpaceReservation<'_>, PrepareError> {
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
        Ok(SpaceReservation { inner: self, size })
    }

    fn evict(&self, victims: Vec<Key>) {
        for victim in victims {
            self.parts.metrics.cache_evictions.inc();
            self.delete(victim);
        }
    }

    /// The compiled file, if it exists and its checksum matches.
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

    /// Downloads the controller's machine code if it can be trusted; `false` if the component must be compiled here.
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
            Err(CompiledFetchError::Absent) => "absent",
            Err(reason @ CompiledFetchError::TooLarge(_)) => {
                info!(%digest, %reason, "machine code of the controller is not taken; it is made here");
                "too_large"
            }
            Err(reason @ CompiledFetchError::Distrusted(_)) => {
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

    /// Provides the compiled file: from another agent of this process, from the controller, or by compiling.
    async fn compile(&self, digest: Digest, component: &Path) -> Result<PathBuf, PrepareError> {
        let key = Key {
            digest,
            kind: Kind::Compiled,
        };
        let path = self.path(key);
        let turn = self.parts.machine.turn(digest);
        let _turn = turn.lock().await;
        let mut made = Unkept {
            inner: self,
            key,
            kept: false,
        };
        let (machine, to) = (self.parts.machine.clone(), path.clone());
        // What another thread makes has a temporary name there, and its final one only here: it would still appear after this was aborted.
        let adopted = blocking(move || machine.adopt(digest, &to)).await?;
        let adopted = adopted.is_some_and(Adopted::publish) && self.verify(&path).await?.is_ok();
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
        // The size is known only now. Without room for the file, it is deleted again.
        let reserved = self.reserve(size)?;
        self.state().index.insert(key, size);
        made.kept = true;
        drop(reserved);
        self.parts.machine.announce(digest, &path);
        Ok(path)
    }
}

/// The cache of machine code of single functions. Without it the node compiles all the same.
fn functions(parts: &CacheParts) -> Option<CompileCache> {
    if parts.compile_cache.as_bytes() == 0 {
        return None;
    }
    CompileCache::open(parts.folder.join("functions"), parts.compile_cache)
        .inspect_err(|error| warn!(error = with_causes(error), "there is no compile cache"))
        .ok()
}

/// The text of an error and its causes.
fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Runs blocking `work` on a thread for that.
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

enum CacheFile {
    Keep(Digest, u64, std::time::SystemTime),
    Checksum,
}

/// Identifies a file of the cache folder; `None` if it does not belong there.
fn identify(entry: &std::fs::DirEntry, kind: Kind, engine: &str) -> Option<CacheFile> {
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
        return Some(CacheFile::Checksum);
    }
    let metadata = entry.metadata().ok()?;
    let used = metadata.modified().ok()?;
    (name == expected && metadata.is_file()).then_some(CacheFile::Keep(
        digest,
        metadata.len(),
        used,
    ))
}
