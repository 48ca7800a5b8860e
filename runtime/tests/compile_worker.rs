//! Tests of compilation in a separate process. This test has its own `main`, because the compiling process is the test binary itself. It accepts
//! the arguments of Rust's test harness that select tests, and prints in the same format.

use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use fdn_core::{ByteSize, Coded as _, Digest, ErrorCode};
use fdn_runtime::{
    COMPILE_WORKER_ARG, CompileCache, CompileError, CompileWorker, Engine, EngineOptions,
    LoadError, checksum_file, compile_worker_main, compiled_file_name,
};
use fdn_testkit::components;
use tokio::runtime::Runtime;

/// The name of a test and its function.
type Test = (&'static str, fn(&Runtime));

macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        &[$((stringify!($name), |runtime| runtime.block_on($name()))),*]
    };
}

const TESTS: &[Test] = tests![
    compiles_what_the_engine_loads,
    damage_is_seen_before_loading,
    refuses_in_the_compilers_words,
    keeps_to_its_memory_and_its_time,
    a_broken_worker_is_our_fault,
    a_dropped_compilation_leaves_nothing,
    a_worker_has_what_another_one_made,
];

/// The message of the last panic.
static PANIC: Mutex<String> = Mutex::new(String::new());

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1).peekable();
    if args.next_if(|arg| arg == COMPILE_WORKER_ARG).is_some() {
        return compile_worker_main(args);
    }
    let selection = Selection::read(args.map(|arg| arg.to_string_lossy().into_owned()));
    let selected: Vec<Test> = TESTS
        .iter()
        .copied()
        .filter(|(name, _)| selection.takes(name))
        .collect();
    if selection.list {
        list(&selected);
        return ExitCode::SUCCESS;
    }
    if run(&selected) {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(101)
    }
}

#[expect(clippy::print_stdout, reason = "this is what was asked for")]
fn list(selected: &[Test]) {
    for (name, _) in selected {
        println!("{name}: test");
    }
}

/// Runs tests one after another; returns whether all passed.
#[expect(clippy::print_stdout, reason = "what passed and failed is the result")]
fn run(selected: &[Test]) -> bool {
    panic::set_hook(Box::new(|info| {
        *PANIC.lock().unwrap_or_else(PoisonError::into_inner) = info.to_string();
    }));
    let begin = Instant::now();
    println!("\nrunning {} tests", selected.len());
    let mut failed = Vec::new();
    for (name, test) in selected {
        let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            test(&runtime);
        }));
        if outcome.is_ok() {
            println!("test {name} ... ok");
        } else {
            println!("test {name} ... FAILED");
            let said = PANIC.lock().unwrap_or_else(PoisonError::into_inner).clone();
            failed.push((name, said));
        }
    }
    if !failed.is_empty() {
        println!("\nfailures:\n");
        for (name, said) in &failed {
            println!("---- {name} stdout ----\n\n{said}\n");
        }
        println!("\nfailures:");
        for (name, _) in &failed {
            println!("    {name}");
        }
    }
    println!(
        "\ntest result: {}. {} passed; {} failed; 0 ignored; 0 measured; {} filtered out; finished in {:.2}s\n",
        if failed.is_empty() { "ok" } else { "FAILED" },
        selected.len() - failed.len(),
        failed.len(),
        TESTS.len() - selected.len(),
        begin.elapsed().as_secs_f64()
    );
    failed.is_empty()
}

/// The selection of tests by the arguments.
#[derive(Default)]
struct Selection {
    /// Names must match completely, not just in part.
    exact: bool,
    list: bool,
    wanted: Vec<String>,
    skipped: Vec<String>,
}

impl Selection {
    /// Other options have no effect here: tests run one after another, and their output is not captured.
    fn read(mut args: impl Iterator<Item = String>) -> Self {
        let mut selection = Self::default();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--exact" => selection.exact = true,
                "--list" => selection.list = true,
                "--skip" => selection.skipped.extend(args.next()),
                "--test-threads" | "--format" | "--color" | "--logfile" | "-Z" => {
                    drop(args.next());
                }
                _ => match arg.strip_prefix("--skip=") {
                    Some(name) => selection.skipped.push(name.to_owned()),
                    None if arg.starts_with('-') => {}
                    None => selection.wanted.push(arg),
                },
            }
        }
        selection
    }

    fn takes(&self, name: &str) -> bool {
        let fits = |part: &String| {
            if self.exact {
                name == part
            } else {
                name.contains(part.as_str())
            }
        };
        (self.wanted.is_empty() || self.wanted.iter().any(fits)) && !self.skipped.iter().any(fits)
    }
}

struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().expect("a folder"),
        }
    }

    fn component(&self, bytes: &[u8]) -> PathBuf {
        let path = self.folder.path().join("component.wasm");
        std::fs::write(&path, bytes).expect("a file");
        path
    }

    fn output(&self) -> PathBuf {
        let folder = self.folder.path().join("out");
        std::fs::create_dir_all(&folder).expect("a folder");
        folder.join("compiled.cwasm")
    }

    fn files(&self) -> usize {
        let folder = self.output();
        let folder = folder.parent().expect("a folder");
        std::fs::read_dir(folder).expect("a folder").count()
    }
}

fn engine() -> Engine {
    Engine::new(EngineOptions {
        max_instances: 10,
        ..EngineOptions::default()
    })
    .expect("an engine")
}

async fn compiles_what_the_engine_loads() {
    let engine = engine();
    let bench = Bench::new();
    let bytes = components::echo();
    let output = bench.output().with_file_name(compiled_file_name(
        &Digest::of(&bytes),
        engine.compatibility_key(),
    ));
    let report = CompileWorker::default()
        .compile(&bench.component(&bytes), &output, None)
        .await
        .expect("the component compiles");
    let compiled = std::fs::read(&output).expect("a file");
    assert_eq!(report.compiled_size, compiled.len() as u64);
    assert_eq!(report.compiled_digest, Digest::of(&compiled));
    assert_eq!(bench.files(), 2);
    engine.verify(&output).expect("its checksum fits");
    engine.load(&output).expect("it loads");
}

async fn damage_is_seen_before_loading() {
    let engine = engine();
    let bench = Bench::new();
    let output = bench.output();
    let compile = async || {
        CompileWorker::default()
            .compile(&bench.component(&components::echo()), &output, None)
            .await
            .expect("the component compiles")
    };
    compile().await;
    let mut bytes = std::fs::read(&output).expect("a file");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&output, &bytes).expect("a file");
    assert_untrusted(&engine, &output, "checksum");
    compile().await;
    engine.load(&output).expect("compiling again repairs it");
    std::fs::write(
        checksum_file(&output),
        format!("sha256 {}\nengine another\n", Digest::of(&bytes).hex()),
    )
    .expect("a file");
    assert_untrusted(&self::engine(), &output, "compiled for engine another");
}

fn assert_untrusted(engine: &Engine, output: &Path, text: &str) {
    let error = engine.load(output).map(drop).expect_err("untrusted");
    assert!(matches!(error, LoadError::Untrusted { .. }), "{error}");
    assert_eq!(error.code(), ErrorCode::ArtifactCorrupt);
    assert!(error.to_string().contains(text), "{error}");
}

async fn refuses_in_the_compilers_words() {
    let bench = Bench::new();
    let error = CompileWorker::default()
        .compile(
            &bench.component(&components::truncated()),
            &bench.output(),
            None,
        )
        .await
        .expect_err("a broken component");
    assert!(matches!(error, CompileError::Refused { .. }), "{error}");
    assert_eq!(error.code(), ErrorCode::UploadNotCompilable);
    assert_eq!(bench.files(), 0);
}

async fn keeps_to_its_memory_and_its_time() {
    let bench = Bench::new();
    // Large enough to take longer than the worker's start, and more memory than a program has at its start.
    let component = bench.component(&many_functions(4000));
    let worker = CompileWorker {
        memory_limit: ByteSize::from_mib(1),
        ..CompileWorker::default()
    };
    let error = worker
        .compile(&component, &bench.output(), None)
        .await
        .expect_err("too much memory");
    assert!(matches!(error, CompileError::MemoryLimit { .. }), "{error}");
    let worker = CompileWorker {
        time_limit: Duration::from_millis(1),
        ..CompileWorker::default()
    };
    let error = worker
        .compile(&component, &bench.output(), None)
        .await
        .expect_err("too much time");
    assert!(matches!(error, CompileError::TimeLimit { .. }), "{error}");
    assert_eq!(error.code(), ErrorCode::UploadNotCompilable);
    assert_eq!(bench.files(), 0);
}

/// A component whose compilation takes a while.
fn many_functions(count: usize) -> Vec<u8> {
    let body = "(i32.add (i32.mul (local.get 0) (i32.const 3)) (i32.const 7))";
    let functions: String = (0..count)
        .map(|i| format!("(func (export \"f{i}\") (param i32) (result i32) (local.set 0 {body}) (local.set 0 {body}) {body})"))
        .collect();
    wat::parse_str(format!("(component (core module {functions}))")).expect("well-formed")
}

async fn a_broken_worker_is_our_fault() {
    let bench = Bench::new();
    let component = bench.component(&components::echo());
    for exe in ["/does/not/exist", "/bin/false"] {
        let worker = CompileWorker {
            exe: PathBuf::from(exe),
            ..CompileWorker::default()
        };
        let error = worker
            .compile(&component, &bench.output(), None)
            .await
            .expect_err(exe);
        assert!(matches!(error, CompileError::Worker { .. }), "{error}");
        assert_eq!(error.code(), ErrorCode::Internal);
    }
    let missing = CompileWorker::default()
        .compile(Path::new("/does/not/exist.wasm"), &bench.output(), None)
        .await
        .expect_err("no component");
    assert!(
        missing.to_string().contains("/does/not/exist.wasm"),
        "{missing}"
    );
}

async fn a_dropped_compilation_leaves_nothing() {
    let bench = Bench::new();
    // So many that the compilation is still running when a busy machine schedules this process again.
    let component = bench.component(&many_functions(20_000));
    let (output, worker) = (bench.output(), CompileWorker::default());
    {
        let mut compiling = Box::pin(worker.compile(&component, &output, None));
        let started = tokio::time::timeout(Duration::from_millis(5), &mut compiling).await;
        assert!(
            started.is_err(),
            "the compilation was quicker than its start"
        );
    }
    assert_eq!(bench.files(), 0);
}

/// A component whose functions all differ, with one that differs from version to version.
fn versions(version: u32) -> Vec<u8> {
    let body = |i: u32| {
        let step = format!("(i32.add (i32.mul (local.get 0) (i32.const 3)) (i32.const {i}))");
        let steps = format!("(local.set 0 {step})").repeat(24);
        format!("(func (export \"f{i}\") (param i32) (result i32) {steps} (local.get 0))")
    };
    let functions: String = (0..1000).map(body).collect();
    let own = format!("(func (export \"own\") (result i32) (i32.const {version}))");
    wat::parse_str(format!("(component (core module {functions} {own}))")).expect("well-formed")
}

async fn a_worker_has_what_another_one_made() {
    let bench = Bench::new();
    let folder = bench.folder.path().join("packs");
    let cache = CompileCache::open(folder.clone(), ByteSize::from_mib(64)).expect("a cache");
    let worker = CompileWorker::default();
    let compile = async |version, cache| {
        let component = bench.component(&versions(version));
        let report = worker.compile(&component, &bench.output(), cache).await;
        report.expect("the component compiles")
    };
    let first = compile(1, Some(&cache)).await;
    let found = first.cache.expect("compiled with a cache");
    let made = found.made.expect("a pack");
    assert_eq!(found.failure, None);
    let second = compile(2, Some(&cache)).await;
    let found = second.cache.expect("compiled with a cache");
    assert!(found.hits >= 1000 && found.misses < 10, "{found:?}");
    assert_eq!(found.used, [made]);
    // The result is the same as without the cache.
    let alone = compile(2, None).await;
    assert_eq!(alone.compiled_digest, second.compiled_digest);
    assert_eq!(alone.cache, None);
    let files = std::fs::read_dir(&folder).expect("a folder").count();
    assert_eq!(files, 1, "no left-overs");
    // A component that is refused leaves nothing behind.
    let broken = bench.component(&components::truncated());
    let refused = worker.compile(&broken, &bench.output(), Some(&cache)).await;
    assert!(matches!(refused, Err(CompileError::Refused { .. })));
    assert_eq!(std::fs::read_dir(&folder).expect("a folder").count(), 1);
}
