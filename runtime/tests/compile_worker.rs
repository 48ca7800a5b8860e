//! Compiling in a separate process. This test has its own `main`, because the process that compiles is the test itself.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use fdn_core::{ByteSize, Coded as _, Digest, ErrorCode};
use fdn_runtime::{
    COMPILE_WORKER_ARG, CompileError, CompileWorker, Engine, EngineOptions, LoadError,
    checksum_file, compile_worker_main, compiled_file_name,
};
use fdn_testkit::components;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1).peekable();
    if args.next_if(|arg| arg == COMPILE_WORKER_ARG).is_some() {
        return compile_worker_main(args);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        compiles_what_the_engine_loads().await;
        damage_is_seen_before_loading().await;
        refuses_in_the_compilers_words().await;
        keeps_to_its_memory_and_its_time().await;
        a_broken_worker_is_our_fault().await;
        a_dropped_compilation_leaves_nothing().await;
    });
    ExitCode::SUCCESS
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
        .compile(&bench.component(&bytes), &output)
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
            .compile(&bench.component(&components::echo()), &output)
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
        .compile(&bench.component(&components::truncated()), &bench.output())
        .await
        .expect_err("a broken component");
    assert!(matches!(error, CompileError::Refused { .. }), "{error}");
    assert_eq!(error.code(), ErrorCode::UploadNotCompilable);
    assert_eq!(bench.files(), 0);
}

async fn keeps_to_its_memory_and_its_time() {
    let bench = Bench::new();
    // Large enough to take longer than the worker's start, and more memory than a program starts with.
    let component = bench.component(&many_functions(4000));
    let worker = CompileWorker {
        memory_limit: ByteSize::from_mib(1),
        ..CompileWorker::default()
    };
    let error = worker
        .compile(&component, &bench.output())
        .await
        .expect_err("too much memory");
    assert!(matches!(error, CompileError::MemoryLimit { .. }), "{error}");
    let worker = CompileWorker {
        time_limit: Duration::from_millis(1),
        ..CompileWorker::default()
    };
    let error = worker
        .compile(&component, &bench.output())
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
            .compile(&component, &bench.output())
            .await
            .expect_err(exe);
        assert!(matches!(error, CompileError::Worker { .. }), "{error}");
        assert_eq!(error.code(), ErrorCode::Internal);
    }
    let missing = CompileWorker::default()
        .compile(Path::new("/does/not/exist.wasm"), &bench.output())
        .await
        .expect_err("no component");
    assert!(
        missing.to_string().contains("/does/not/exist.wasm"),
        "{missing}"
    );
}

async fn a_dropped_compilation_leaves_nothing() {
    let bench = Bench::new();
    let component = bench.component(&many_functions(4000));
    let (output, worker) = (bench.output(), CompileWorker::default());
    {
        let mut compiling = Box::pin(worker.compile(&component, &output));
        let started = tokio::time::timeout(Duration::from_millis(5), &mut compiling).await;
        assert!(
            started.is_err(),
            "the compilation was quicker than its start"
        );
    }
    assert_eq!(bench.files(), 0);
}
