//! Ahead-of-time compilation, in a separate process with limits, because a component can make a compiler use much time and memory.

mod cache;
mod worker;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fdn_core::{ByteSize, Coded, Digest, ErrorCode};
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use tracing::warn;

use crate::artifact::{LEFTOVER_PREFIX, checksum_file, checksum_text};
use crate::engine::config;

use cache::Lookup;
pub use cache::{CacheUse, CompileCache, IncomingPack, PACKS_MAX};
pub use worker::compile_worker_main;

/// The argument that tells a binary that it was started to compile: `main` checks for it first and hands over to
/// [`compile_worker_main`].
pub const COMPILE_WORKER_ARG: &str = "__fdn-compile";

/// The most bytes of the worker's error output that are kept.
const STDERR_LIMIT: u64 = 16 << 10;
/// The most bytes of its report that are read: the digests of all packs of a cache fit in, twice.
const REPORT_LIMIT: u64 = 128 << 10;

/// The result of a compilation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileReport {
    /// Bytes of the compiled file.
    pub compiled_size: u64,
    /// Digest of the compiled file.
    pub compiled_digest: Digest,
    /// The time that it took.
    pub took: Duration,
    /// What the cache contributed, if there was one.
    pub cache: Option<CacheUse>,
}

/// Why a component was not compiled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// The compiler refused the component.
    #[error("the component cannot be compiled: {reason}")]
    Refused {
        /// The compiler's message.
        reason: String,
    },
    /// The time limit was exceeded.
    #[error("compiling took longer than {limit:?}; make the component smaller")]
    TimeLimit {
        /// The limit.
        limit: Duration,
    },
    /// The memory limit was exceeded.
    #[error("compiling needed more than {limit} of memory; make the component smaller")]
    MemoryLimit {
        /// The limit.
        limit: ByteSize,
    },
    /// A file cannot be read or written.
    #[error("cannot read or write {path} while compiling")]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The compiling process could not be run, or failed for another reason.
    #[error("the compiling process failed: {reason}")]
    Worker {
        /// What was observed.
        reason: String,
    },
}

impl Coded for CompileError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Refused { .. } | Self::TimeLimit { .. } | Self::MemoryLimit { .. } => {
                ErrorCode::UploadNotCompilable
            }
            Self::Io { .. } | Self::Worker { .. } => ErrorCode::Internal,
        }
    }
}

/// Compiles in a separate process of lower priority.
#[derive(Clone, Debug)]
pub struct CompileWorker {
    /// The program; its `main` must know [`COMPILE_WORKER_ARG`].
    pub exe: PathBuf,
    /// Arguments before [`COMPILE_WORKER_ARG`]; usually none.
    pub args: Vec<OsString>,
    /// The memory limit of the process.
    pub memory_limit: ByteSize,
    /// The limit on the wall-clock time of the process, and on the CPU time of all its threads together.
    pub time_limit: Duration,
    /// The number of compiling threads.
    pub threads: usize,
}

impl Default for CompileWorker {
    /// The running program itself, within 2 GiB and 120 s.
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            // Not `current_exe()`: after an upgrade that path is another program, or none.
            exe: PathBuf::from("/proc/self/exe"),
            args: Vec::new(),
            memory_limit: ByteSize::from_mib(2048),
            time_limit: Duration::from_secs(120),
            threads: cores.div_ceil(2),
        }
    }
}

impl CompileWorker {
    /// Compiles `component` to `output` (see [`crate::compiled_file_name`]), which appears complete, with its checksum, or not
    /// at all. Functions in the cache are not compiled again. Dropping the future kills the process.
    ///
    /// # Errors
    /// When the component is refused, a limit is exceeded, or a file or the process fails.
    pub async fn compile(
        &self,
        component: &Path,
        output: &Path,
        cache: Option<&CompileCache>,
    ) -> Result<CompileReport, CompileError> {
        let started = Instant::now();
        let key = config::compatibility_key().map_err(|e| worker_failed(&e.to_string()))?;
        let temporary = temporary_beside(output)?;
        let session = CacheSession::begin(cache);
        let mut command = Command::new(&self.exe);
        command
            .args(&self.args)
            .arg(COMPILE_WORKER_ARG)
            .arg(component)
            .arg(temporary.path())
            .arg(self.memory_limit.as_bytes().to_string())
            .arg(self.time_limit.as_secs().max(1).to_string())
            .arg(&key)
            // The environment may contain secrets, and a compiler needs none of it.
            .env_clear()
            .env("RAYON_NUM_THREADS", self.threads.max(1).to_string())
            // The worker ends when this pipe is closed, so that it never outlives this process.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        if let Some(session) = &session {
            command
                .arg(session.cache.folder())
                .arg(session.pack.path())
                .arg(session.cache.max_new_bytes().to_string());
        }
        let mut child = command.spawn().map_err(|error| {
            worker_failed(&format!("cannot start {}: {error}", self.exe.display()))
        })?;
        let _alive = child.stdin.take();
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let run = async {
            let (out, err) = tokio::join!(
                read_text(stdout, REPORT_LIMIT),
                read_text(stderr, STDERR_LIMIT)
            );
            (child.wait().await, out, err)
        };
        let Ok((status, out, err)) = tokio::time::timeout(self.time_limit, run).await else {
            return Err(CompileError::TimeLimit {
                limit: self.time_limit,
            });
        };
        let status = status.map_err(|error| worker_failed(&error.to_string()))?;
        self.check_exit(status, &err)?;
        // The report: a digest and, with a cache, what was found there on the next line.
        let (digest, found) = out.trim().split_once('\n').unwrap_or((out.trim(), ""));
        let digest: Digest = digest
            .parse()
            .map_err(|_| worker_failed(&format!("it said {out:?} instead of a digest")))?;
        let found = serde_json::from_str(found).ok();
        let output = output.to_owned();
        published(move || {
            let mut sealed = Sealed::new(temporary, &output, &digest, &key, started)?;
            sealed.report = CacheSession::end(session, found, sealed.report);
            Ok(sealed)
        })
        .await
    }

    fn check_exit(&self, status: ExitStatus, message: &str) -> Result<(), CompileError> {
        use std::os::unix::process::ExitStatusExt as _;
        let message = message.trim();
        match (status.code(), status.signal()) {
            (Some(0), _) => Ok(()),
            (Some(worker::EXIT_REFUSED), _) => Err(CompileError::Refused {
                reason: message.to_owned(),
            }),
            (Some(worker::EXIT_MEMORY), _) => Err(CompileError::MemoryLimit {
                limit: self.memory_limit,
            }),
            // SIGXCPU, and the SIGKILL that follows if it is ignored.
            (_, Some(24)) => Err(CompileError::TimeLimit {
                limit: self.time_limit,
            }),
            // An allocation refused because of the address-space limit aborts the process.
            (_, Some(6)) if message.contains("memory allocation") => {
                Err(CompileError::MemoryLimit {
                    limit: self.memory_limit,
                })
            }
            _ => Err(worker_failed(&format!("{status}: {message}"))),
        }
    }
}

fn worker_failed(reason: &str) -> CompileError {
    CompileError::Worker {
        reason: reason.to_owned(),
    }
}

async fn read_text(pipe: Option<impl tokio::io::AsyncRead + Unpin>, limit: u64) -> String {
    let mut text = Vec::new();
    if let Some(pipe) = pipe {
        // What cannot be read is only missing from a message.
        let _ = pipe.take(limit).read_to_end(&mut text).await;
    }
    String::from_utf8_lossy(&text).into_owned()
}

fn io_error(path: &Path) -> impl FnOnce(std::io::Error) -> CompileError {
    let path = path.to_owned();
    move |source| CompileError::Io { path, source }
}

/// The use of a cache by one compilation.
struct CacheSession {
    cache: CompileCache,
    pack: IncomingPack,
}

impl CacheSession {
    /// Prepares the use of a cache; `None` if that fails, because the cache only saves time.
    fn begin(cache: Option<&CompileCache>) -> Option<Self> {
        let cache = cache?.clone();
        match cache.incoming() {
            Ok(pack) => Some(Self { cache, pack }),
            Err(error) => {
                warn!(%error, "a component is compiled without the compile cache");
                None
            }
        }
    }

    /// Records what was found. Blocks.
    fn end(
        session: Option<Self>,
        found: Option<CacheUse>,
        mut report: CompileReport,
    ) -> CompileReport {
        if let (Some(session), Some(found)) = (session, found) {
            session.cache.finish(&found, session.pack);
            report.cache = Some(found);
        }
        report
    }
}

/// A temporary file in the same folder, so that renaming it is atomic; deleted when dropped.
fn temporary_beside(output: &Path) -> Result<tempfile::NamedTempFile, CompileError> {
    let folder = match output.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    tempfile::Builder::new()
        .prefix(LEFTOVER_PREFIX)
        .tempfile_in(folder)
        .map_err(io_error(folder))
}

/// A compiled file that is on disk with its checksum, and has no final name yet. Unless it is published, nothing is left of it.
struct Sealed {
    temporary: tempfile::NamedTempFile,
    sums: tempfile::NamedTempFile,
    output: PathBuf,
    report: CompileReport,
}

impl Sealed {
    /// Writes the checksum of a compiled file. Blocks.
    fn new(
        temporary: tempfile::NamedTempFile,
        output: &Path,
        digest: &Digest,
        key: &str,
        started: Instant,
    ) -> Result<Self, CompileError> {
        use std::io::Write as _;
        let compiled_size = temporary
            .as_file()
            .metadata()
            .map_err(io_error(output))?
            .len();
        let checksum = checksum_file(output);
        let mut sums = temporary_beside(&checksum)?;
        sums.write_all(checksum_text(digest, key).as_bytes())
            .and_then(|()| sums.as_file().sync_data())
            .map_err(io_error(&checksum))?;
        temporary.as_file().sync_data().map_err(io_error(output))?;
        Ok(Self {
            temporary,
            sums,
            output: output.to_owned(),
            report: CompileReport {
                compiled_size,
                compiled_digest: *digest,
                took: started.elapsed(),
                cache: None,
            },
        })
    }

    /// Gives both files their final names.
    fn publish(self) -> Result<CompileReport, CompileError> {
        let checksum = checksum_file(&self.output);
        self.sums
            .persist(&checksum)
            .map_err(|error| io_error(&checksum)(error.error))?;
        self.temporary
            .persist(&self.output)
            .map_err(|error| io_error(&self.output)(error.error))?;
        Ok(self.report)
    }
}

/// Makes a file on a thread that may block, and publishes it on this one: there it would still appear after this future was dropped.
async fn published(
    make: impl FnOnce() -> Result<Sealed, CompileError> + Send + 'static,
) -> Result<CompileReport, CompileError> {
    let made = tokio::task::spawn_blocking(make).await;
    made.map_err(|error| worker_failed(&error.to_string()))??
        .publish()
}

/// A compiled file being received from elsewhere. Unless [`Incoming::store`] is called, nothing is left of it.
#[derive(Debug)]
pub struct Incoming {
    temporary: tempfile::NamedTempFile,
    output: PathBuf,
    started: Instant,
}

impl Incoming {
    /// A temporary file beside `output` (see [`crate::compiled_file_name`]). Blocks.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn create(output: &Path) -> Result<Self, CompileError> {
        Ok(Self {
            temporary: temporary_beside(output)?,
            output: output.to_owned(),
            started: Instant::now(),
        })
    }

    /// The file, to be written from its beginning.
    ///
    /// # Errors
    /// When it cannot be opened again.
    pub fn file(&self) -> Result<std::fs::File, CompileError> {
        self.temporary.reopen().map_err(io_error(&self.output))
    }

    /// Writes the checksum of the received file and gives both their final names. `digest` must be its digest, and a party that this node trusts as
    /// itself must have stated that the compiler of the engine `key` wrote it: it will be run as native code. If the future is dropped, nothing is
    /// left.
    ///
    /// # Errors
    /// When a file operation fails.
    pub async fn store(self, digest: &Digest, key: &str) -> Result<CompileReport, CompileError> {
        let (digest, key) = (*digest, key.to_owned());
        published(move || Sealed::new(self.temporary, &self.output, &digest, &key, self.started))
            .await
    }
}

/// The place where compilation happens.
#[derive(Clone, Debug)]
pub enum Compiler {
    /// A separate process with limits: used in production.
    Worker(CompileWorker),
    /// This process, without limits: for tests and benchmarks, whose binaries have no `main` of their own.
    InProcess,
}

impl Compiler {
    /// See [`CompileWorker::compile`] and [`compile_in_process`].
    ///
    /// # Errors
    /// The same as theirs.
    pub async fn compile(
        &self,
        component: &Path,
        output: &Path,
        cache: Option<&CompileCache>,
    ) -> Result<CompileReport, CompileError> {
        match self {
            Self::Worker(worker) => worker.compile(component, output, cache).await,
            Self::InProcess => {
                let (component, output) = (component.to_owned(), output.to_owned());
                let cache = cache.cloned();
                published(move || in_process(&component, &output, cache.as_ref())).await
            }
        }
    }
}

/// Compiles in this process, without limits. For tests and benchmarks.
///
/// # Errors
/// When the component is refused or a file fails.
pub fn compile_in_process(component: &Path, output: &Path) -> Result<CompileReport, CompileError> {
    in_process(component, output, None)?.publish()
}

fn in_process(
    component: &Path,
    output: &Path,
    cache: Option<&CompileCache>,
) -> Result<Sealed, CompileError> {
    use std::io::Write as _;
    let started = Instant::now();
    let key = config::compatibility_key().map_err(|e| worker_failed(&e.to_string()))?;
    let bytes = std::fs::read(component).map_err(io_error(component))?;
    let session = CacheSession::begin(cache);
    let lookup = session.as_ref().map(|session| {
        let cache = &session.cache;
        Arc::new(Lookup::open(cache.folder(), &key, cache.max_new_bytes()))
    });
    let compiled =
        precompile(&bytes, lookup.as_ref()).map_err(|reason| CompileError::Refused { reason })?;
    let mut temporary = temporary_beside(output)?;
    temporary.write_all(&compiled).map_err(io_error(output))?;
    let mut sealed = Sealed::new(temporary, output, &Digest::of(&compiled), &key, started)?;
    let found = lookup
        .zip(session.as_ref())
        .map(|(lookup, session)| lookup.finish(session.pack.path()));
    sealed.report = CacheSession::end(session, found, sealed.report);
    Ok(sealed)
}

/// The machine code of a component, or the compiler's error message.
fn precompile(component: &[u8], known: Option<&Arc<Lookup>>) -> Result<Vec<u8>, String> {
    let known = known.map(|lookup| Arc::clone(lookup) as Arc<dyn wasmtime::CacheStore>);
    config::for_compiling(known)
        .and_then(|engine| engine.precompile_component(component))
        .map_err(|error| format!("{error:#}"))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::pin::pin;
    use std::sync::mpsc;
    use std::task::{Context, Waker};

    use tokio::task::spawn_blocking;

    use super::*;

    #[test]
    fn of_a_file_whose_storing_is_given_up_nothing_is_left() {
        // With one thread that may block, what it is given is done in order.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .build()
            .expect("a runtime");
        let folder = tempfile::tempdir().expect("a folder");
        let files = || std::fs::read_dir(folder.path()).expect("a folder").count();
        let incoming = || {
            let incoming = Incoming::create(&folder.path().join("compiled")).expect("created");
            let mut file = incoming.file().expect("opened");
            file.write_all(b"code").expect("written");
            incoming
        };
        let digest = Digest::of(b"code");
        runtime.block_on(async {
            let (go, wait) = mpsc::channel::<()>();
            let busy = spawn_blocking(move || wait.recv().is_err());
            {
                let mut storing = pin!(incoming().store(&digest, "engine"));
                let mut context = Context::from_waker(Waker::noop());
                assert!(storing.as_mut().poll(&mut context).is_pending());
            }
            drop(go);
            assert!(busy.await.expect("it only waits"));
            spawn_blocking(|| ()).await.expect("it does nothing");
            assert_eq!(files(), 0);
            let stored = incoming().store(&digest, "engine").await;
            stored.expect("it is stored");
        });
        assert_eq!(files(), 2);
    }
}
