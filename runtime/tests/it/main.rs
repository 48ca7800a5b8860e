//! Compiles, loads and calls functions as the agent does, in one test binary with one engine.

mod background;
mod calls;
mod limits;
mod outbound;
mod output;
mod reuse;
mod validation;

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fdn_core::api::LogStream;
use fdn_core::{ByteSize, Digest};
use fdn_runtime::{
    Call, CallContext, CallError, CallStats, Engine, EngineOptions, Function, Limits, MemoryLog,
    RequestBody, ResponseBody, StatsHandle, compile_in_process, compiled_file_name,
};
use fdn_testkit::folder::OwnedFolder;
use http_body_util::BodyExt as _;

/// Long enough for a busy machine, short enough for a person who waits.
const PATIENCE: Duration = Duration::from_secs(60);

static ENGINE: LazyLock<Engine> = LazyLock::new(|| {
    Engine::new(EngineOptions {
        max_instances: 100,
        // Test servers listen on 127.0.0.1; servers on other loopback addresses stand for targets that no function may reach.
        private_networks: vec!["127.0.0.1".parse().expect("a prefix")],
        ..EngineOptions::default()
    })
    .expect("an engine")
});

static FOLDER: LazyLock<OwnedFolder> =
    LazyLock::new(|| OwnedFolder::new("fdn-runtime-").expect("a folder"));

fn load_into(engine: &Engine, component: &[u8]) -> Arc<Function> {
    let digest = Digest::of(component);
    // Tests run concurrently and may load the same component: each has its own files.
    let folder = tempfile::tempdir_in(FOLDER.path())
        .expect("a folder")
        .keep();
    let source = folder.join("component.wasm");
    std::fs::write(&source, component).expect("a file");
    let compiled = folder.join(compiled_file_name(&digest, engine.compatibility_key()));
    compile_in_process(&source, &compiled).expect("the component compiles");
    engine.load(&compiled).expect("the component loads")
}

fn load(component: &[u8]) -> Arc<Function> {
    load_into(&ENGINE, component)
}

/// Limits that a test on a busy machine does not exceed.
fn generous() -> Limits {
    Limits {
        timeout: PATIENCE,
        cpu_time: PATIENCE,
        memory: ByteSize::from_mib(8),
        ..Limits::default()
    }
}

fn context_with(limits: Limits) -> (CallContext, Arc<MemoryLog>) {
    let log = Arc::new(MemoryLog::default());
    let context = CallContext {
        resource_guard: None,
        env: Arc::new([]),
        limits,
        allowed_hosts: Arc::default(),
        network: fdn_runtime::Network::default(),
        log: log.clone(),
        reuse: 1,
    };
    (context, log)
}

fn context() -> CallContext {
    context_with(generous()).0
}

fn request(body: RequestBody) -> http::Request<RequestBody> {
    http::Request::post("/some/path?and=query")
        .header("host", "app.fn.test")
        .body(body)
        .expect("a request")
}

fn get() -> http::Request<RequestBody> {
    request(RequestBody::empty())
}

/// What a client receives: status and complete body, or the first error. Also waits until the guest has ended, which on a busy
/// machine may happen in the background and a little later.
async fn finish(call: Call) -> Result<(u16, Bytes), CallError> {
    let stats = call.stats();
    let answer = answer(call).await;
    finished(&stats).await;
    answer
}

/// Makes calls until one has stayed on its task, which on a busy machine may take more than one.
async fn light(make: impl Fn() -> Call) -> (http::Response<ResponseBody>, CallStats) {
    for _ in 0..100 {
        let call = make();
        let stats = call.stats();
        let response = call.response().await.expect("an answer");
        let stats = stats.snapshot();
        if !stats.heavy {
            return (response, stats);
        }
    }
    panic!("no call of a light guest stays on its task");
}

async fn answer(call: Call) -> Result<(u16, Bytes), CallError> {
    let response = call.response().await?;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await?.to_bytes();
    Ok((status, body))
}

async fn call(component: &[u8], context: CallContext) -> Result<(u16, Bytes), CallError> {
    finish(load(component).call(context, get())).await
}

/// The reasons that a call wrote to its log.
fn system_lines(log: &MemoryLog) -> Vec<String> {
    log.lines()
        .into_iter()
        .filter(|(stream, _)| *stream == LogStream::System)
        .map(|(_, text)| text)
        .collect()
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "gave up waiting until {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn finished(stats: &StatsHandle) -> CallStats {
    until("the call has ended", || stats.snapshot().finished).await;
    stats.snapshot()
}
