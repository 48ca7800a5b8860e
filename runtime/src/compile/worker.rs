//! The compiling process: it sets its own limits, compiles one component, writes one file, prints its digest, and exits. With a cache, it first reads
//! the packs, writes one more, and prints what it found.

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use fdn_core::Digest;
use rustix::process::{Resource, Rlimit, setpriority_process, setrlimit};

use super::cache::Lookup;
use crate::engine::config;

/// Exit status: the component was refused.
pub(super) const EXIT_REFUSED: i32 = 4;
/// Exit status: the memory limit was exceeded.
pub(super) const EXIT_MEMORY: i32 = 3;
/// Exit status: the worker itself failed.
const EXIT_BROKEN: u8 = 2;

/// Added to the address-space limit: allocators and thread stacks reserve address space that they never use.
const RESERVED: u64 = 4 << 30;
/// The most bytes of a file that it writes.
const FILE_LIMIT: u64 = 2 << 30;
const NICE: i32 = 10;
const WATCH_INTERVAL: Duration = Duration::from_millis(10);

struct WorkerArgs {
    component: PathBuf,
    output: PathBuf,
    memory: u64,
    seconds: u64,
    key: String,
    cache: Option<CacheArgs>,
}

struct CacheArgs {
    folder: PathBuf,
    /// The path for the pack of newly compiled functions.
    pack: PathBuf,
    /// The most bytes of that pack.
    max_new_bytes: u64,
}

impl WorkerArgs {
    fn parse(mut args: impl Iterator<Item = OsString>) -> Option<Self> {
        let text = |arg: Option<OsString>| arg?.into_string().ok();
        Some(Self {
            component: PathBuf::from(args.next()?),
            output: PathBuf::from(args.next()?),
            memory: text(args.next())?.parse().ok()?,
            seconds: text(args.next())?.parse().ok()?,
            key: text(args.next())?,
            cache: match args.next() {
                Some(folder) => Some(CacheArgs {
                    folder: PathBuf::from(folder),
                    pack: PathBuf::from(args.next()?),
                    max_new_bytes: text(args.next())?.parse().ok()?,
                }),
                None => None,
            },
        })
    }
}

/// The `main` of a binary whose first argument is [`super::COMPILE_WORKER_ARG`]; `args` are the arguments after it.
///
/// ```no_run
/// use std::process::ExitCode;
///
/// fn main() -> ExitCode {
///     let mut args = std::env::args_os().skip(1);
///     if args.next().is_some_and(|arg| arg == fdn_runtime::COMPILE_WORKER_ARG) {
///         return fdn_runtime::compile_worker_main(args);
///     }
///     // … the program itself …
///     ExitCode::SUCCESS
/// }
/// ```
pub fn compile_worker_main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(args) = WorkerArgs::parse(args) else {
        return fail(EXIT_BROKEN, "this argument is for the program's own use");
    };
    match config::compatibility_key() {
        Ok(key) if key == args.key => {}
        Ok(key) => {
            return fail(
                EXIT_BROKEN,
                &format!(
                    "the worker compiles for engine {key}, {} is wanted",
                    args.key
                ),
            );
        }
        Err(error) => return fail(EXIT_BROKEN, &error.to_string()),
    }
    if let Err(error) = limit(&args) {
        return fail(EXIT_BROKEN, &format!("cannot set limits: {error}"));
    }
    watch(args.memory);
    compile(&args)
}

fn compile(args: &WorkerArgs) -> ExitCode {
    let bytes = match std::fs::read(&args.component) {
        Ok(bytes) => bytes,
        Err(error) => {
            return fail(
                EXIT_BROKEN,
                &format!("cannot read {}: {error}", args.component.display()),
            );
        }
    };
    let cache = args.cache.as_ref().map(|cache| {
        let lookup = Lookup::open(&cache.folder, &args.key, cache.max_new_bytes);
        (cache, Arc::new(lookup))
    });
    let lookup = cache.as_ref().map(|(_, lookup)| lookup);
    let compiled = match super::precompile(&bytes, lookup) {
        Ok(compiled) => compiled,
        Err(reason) => {
            let code = u8::try_from(EXIT_REFUSED).expect("a small constant");
            return fail(code, &reason);
        }
    };
    let digest = Digest::of(&compiled);
    if let Err(error) = std::fs::write(&args.output, &compiled) {
        return fail(
            EXIT_BROKEN,
            &format!("cannot write {}: {error}", args.output.display()),
        );
    }
    let mut report = digest.to_string();
    if let Some((cache, lookup)) = cache {
        let found = lookup.finish(&cache.pack);
        // Without this the cache stays as it was.
        if let Ok(found) = serde_json::to_string(&found) {
            report.push('\n');
            report.push_str(&found);
        }
    }
    match writeln!(std::io::stdout(), "{report}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(EXIT_BROKEN),
    }
}

fn fail(code: u8, reason: &str) -> ExitCode {
    // Nothing can be reported if the pipe is closed.
    let _ = writeln!(std::io::stderr(), "{reason}");
    ExitCode::from(code)
}

fn limit(args: &WorkerArgs) -> rustix::io::Result<()> {
    // A worker that compiles slowly is better than a gateway that serves slowly; failing to lower the priority is no reason to fail.
    let _ = setpriority_process(None, NICE);
    let at_most = |limit: u64| Rlimit {
        current: Some(limit),
        maximum: Some(limit),
    };
    setrlimit(Resource::As, at_most(args.memory.saturating_add(RESERVED)))?;
    setrlimit(Resource::Cpu, at_most(args.seconds))?;
    setrlimit(Resource::Fsize, at_most(FILE_LIMIT))?;
    setrlimit(Resource::Core, at_most(0))
}

/// Ends the process when it holds more memory than it may, or when the process that started it is gone. The address-space
/// limit alone would not suffice: reserved and used memory of an allocator differ by gigabytes.
fn watch(memory: u64) {
    let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
    let exceeded = move || {
        std::fs::read_to_string("/proc/self/statm")
            .ok()
            .and_then(|statm| statm.split(' ').nth(1)?.parse::<u64>().ok())
            .is_some_and(|pages| pages * page > memory)
    };
    std::thread::spawn(move || {
        loop {
            if exceeded() {
                std::process::exit(EXIT_MEMORY);
            }
            std::thread::sleep(WATCH_INTERVAL);
        }
    });
    std::thread::spawn(|| {
        // Nothing is ever sent; the end of the pipe is the signal.
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(i32::from(EXIT_BROKEN));
    });
}
