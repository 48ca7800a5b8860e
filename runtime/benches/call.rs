//! Measures how long calls take inside one process, on one thread, without a network.
//!
//! `cargo bench -p fdn-runtime --bench call [COMPONENT.wasm …]` prints figures for the given components, or for two
//! of the tests, and for the first also beside two endless loops. `FDN_BENCH_INSTANCES=10000` adds the memory of that many idle instances of
//! the first component.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints its figures and stops at the first mistake"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fdn_core::{ByteSize, Digest};
use fdn_runtime::{
    CallContext, CallStats, Engine, EngineOptions, Function, Limits, NoLog, RequestBody,
    compile_in_process, compiled_file_name,
};
use fdn_testkit::components;
use http_body_util::BodyExt as _;

/// The same allocator as in the agent.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const WARM_UP: usize = 200;
const TIME_FOR_EACH: Duration = Duration::from_secs(1);
/// `cargo test --all-targets` runs this as well, to check that it works.
const TIME_FOR_EACH_AS_TEST: Duration = Duration::from_millis(5);

fn time_for_each() -> Duration {
    if std::env::args().any(|arg| arg == "--bench") {
        TIME_FOR_EACH
    } else {
        TIME_FOR_EACH_AS_TEST
    }
}

fn main() {
    let instances: u32 = std::env::var("FDN_BENCH_INSTANCES")
        .ok()
        .map_or(0, |n| n.parse().unwrap());
    let engine = Engine::new(EngineOptions {
        max_instances: instances.max(1000),
        idle_per_function: usize::try_from(instances.max(64)).unwrap(),
        ..EngineOptions::default()
    })
    .unwrap();
    if let Some(warning) = engine.warning() {
        println!("{warning}");
    }
    let mut subjects = Vec::new();
    for path in std::env::args().skip(1).filter(|arg| !arg.starts_with('-')) {
        let bytes = std::fs::read(&path).unwrap();
        subjects.push((path, bytes));
    }
    if subjects.is_empty() {
        subjects.push(("hello".to_owned(), components::hello("hello, world\n")));
        subjects.push(("echo 1 KiB".to_owned(), components::echo()));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    println!("component, way: p50 / p99 of whole call | instantiate | CPU, in microseconds");
    for (name, bytes) in &subjects {
        let (function, cold) = load(&engine, bytes);
        println!(
            "{name}: verified load {:.0}, again {:.0}",
            micros(cold.0),
            micros(cold.1)
        );
        for (way, reuse) in [("fresh", 1), ("reused", 1_000_000)] {
            runtime.block_on(measure(name, way, &function, reuse));
        }
    }
    runtime.block_on(beside_loops(&engine, &subjects[0]));
    if instances > 0 {
        runtime.block_on(many(&engine, &subjects[0].1, instances));
    }
}

fn load(engine: &Engine, bytes: &[u8]) -> (Arc<Function>, (Duration, Duration)) {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("component.wasm");
    std::fs::write(&source, bytes).unwrap();
    let compiled = folder.path().join(compiled_file_name(
        &Digest::of(bytes),
        engine.compatibility_key(),
    ));
    compile_in_process(&source, &compiled).unwrap();
    engine.verify(&compiled).unwrap();
    let timed = || {
        let started = Instant::now();
        let function = engine.load(&compiled).unwrap();
        (function, started.elapsed())
    };
    let (_first, cold) = timed();
    let (function, again) = timed();
    (function, (cold, again))
}

fn context(reuse: u32) -> CallContext {
    CallContext {
        resource_guard: None,
        env: Arc::new([]),
        limits: Limits {
            memory: ByteSize::from_mib(512),
            ..Limits::default()
        },
        allowed_hosts: Arc::default(),
        network: fdn_runtime::Network::default(),
        log: Arc::new(NoLog),
        reuse,
    }
}

async fn one(
    function: &Arc<Function>,
    context: CallContext,
    body: &Bytes,
) -> (Duration, CallStats) {
    let request = http::Request::post("/")
        .header("host", "hello.fn.test")
        .header("user-agent", "bench")
        .header("accept", "*/*")
        .body(RequestBody::full(body.clone()))
        .unwrap();
    let started = Instant::now();
    let call = function.call(context, request);
    let stats = call.stats();
    let response = call.response().await.unwrap();
    assert!(response.status().as_u16() < 500);
    let _ = response.into_body().collect().await.unwrap();
    (started.elapsed(), stats.snapshot())
}

async fn measure(name: &str, way: &str, function: &Arc<Function>, reuse: u32) {
    let (context, body) = (context(reuse), Bytes::from(vec![b'x'; 1024]));
    for _ in 0..WARM_UP {
        one(function, context.clone(), &body).await;
    }
    let started = Instant::now();
    let (mut whole, mut instantiate, mut cpu) = (Vec::new(), Vec::new(), Vec::new());
    let time = time_for_each();
    while started.elapsed() < time {
        let (took, stats) = one(function, context.clone(), &body).await;
        whole.push(took);
        instantiate.push(stats.instantiate);
        cpu.push(stats.cpu);
    }
    let quantile = |times: &mut Vec<Duration>, percent: usize| {
        times.sort_unstable();
        micros(times[times.len() * percent / 100])
    };
    println!(
        "{name}, {way}: {:.1} / {:.1} | {:.1} | {:.1}",
        quantile(&mut whole, 50),
        quantile(&mut whole, 99),
        quantile(&mut instantiate, 50),
        quantile(&mut cpu, 50),
    );
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Calls of a light function while two endless loops use the background threads.
async fn beside_loops(engine: &Engine, (name, bytes): &(String, Vec<u8>)) {
    let (looping, _) = load(engine, &components::looping());
    let (light, _) = load(engine, bytes);
    let mut endless = context(1);
    endless.limits.timeout = Duration::from_secs(3600);
    endless.limits.cpu_time = Duration::from_secs(3600);
    let loops: Vec<_> = (0..2)
        .map(|_| {
            let request = http::Request::get("/")
                .header("host", "loop.fn.test")
                .body(RequestBody::empty())
                .unwrap();
            tokio::spawn(looping.call(endless.clone(), request).response())
        })
        .collect();
    while engine.stats().heavy_calls < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    measure(name, "fresh, beside two endless loops", &light, 1).await;
    for task in loops {
        task.abort();
    }
}

/// Keeps this many idle instances alive at the same time, each after a call.
async fn many(engine: &Engine, bytes: &[u8], instances: u32) {
    let resident = || {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    };
    let (function, _) = load(engine, bytes);
    let before = resident();
    for number in 0..instances {
        // Other variables mean another instance, so that each of these stays idle.
        let mut context = context(2);
        context.env = Arc::new([("NUMBER".to_owned(), number.to_string())]);
        one(&function, context, &Bytes::new()).await;
    }
    let live = engine.stats().live_instances;
    let maps = std::fs::read_to_string("/proc/self/maps")
        .unwrap()
        .lines()
        .count();
    println!(
        "{live} instances live: {:.1} kB each, {maps} memory maps",
        (resident() - before) as f64 / 1e3 / live as f64
    );
    drop(function);
}
