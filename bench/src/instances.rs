//! Ten thousand live instances in one process, and what one of them takes of memory.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fdn_core::manifest::Manifest;
use fdn_core::{ByteSize, DurationMs};
use fdn_runtime::{
    CallContext, Engine, EngineOptions, Function, NoLog, RequestBody, RequestBodySender,
    compile_in_process,
};

use crate::Options;

/// The hidden argument with which this program runs the measurement in a process of its own.
pub(crate) const CHILD: &str = "__instances";

pub(crate) fn run(options: &Options) -> Result<()> {
    println!(
        "instances: live at the same time in one process, each having answered a call; resident memory per instance"
    );
    println!(
        "{:<12} {:>10} {:>12} {:>14}",
        "function", "instances", "total MiB", "KiB/instance"
    );
    for (name, path, count) in [
        ("rust", "hello/hello.wasm", 10_000u32),
        ("javascript", "json-transform/json-transform.wasm", 500),
        ("python", "text-stats/text-stats.wasm", 500),
    ] {
        let path = options.functions.join(path);
        if !path.is_file() {
            println!(
                "({name} left out: {} is not built; make functions)",
                path.display()
            );
            continue;
        }
        let output = Command::new(std::env::current_exe()?)
            .args([CHILD, &path.display().to_string(), &count.to_string()])
            .output()
            .context("this program can be started")?;
        ensure!(
            output.status.success(),
            "{name}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let text = String::from_utf8_lossy(&output.stdout);
        let mut numbers = text
            .split_whitespace()
            .filter_map(|n| n.parse::<f64>().ok());
        let (live, bytes) = (
            numbers.next().context("no count")?,
            numbers.next().context("no size")?,
        );
        println!(
            "{name:<12} {live:>10} {:>12.1} {:>14.1}",
            bytes / (1024.0 * 1024.0),
            bytes / live / 1024.0
        );
    }
    Ok(())
}

/// Makes the instances and prints how many live and how many octets of resident memory they added.
pub(crate) fn child(component: &Path, count: u32) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let compiled = folder.path().join("compiled");
    compile_in_process(component, &compiled).context("compiling")?;
    let options = EngineOptions {
        max_instances: count + 10,
        heavy_calls: count as usize + 10,
        ..EngineOptions::default()
    };
    let engine = Engine::new(options)?;
    if let Some(warning) = engine.warning() {
        eprintln!("{warning}");
    }
    let function = engine.load(&compiled)?;
    let manifest = Manifest {
        timeout: DurationMs::from_secs(600),
        cpu_time: DurationMs::from_secs(60),
        memory: ByteSize::from_mib(256),
        ..Manifest::default()
    };
    let context = CallContext::from_manifest(&manifest, [], Arc::new(NoLog));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        // The first instance brings in what all share.
        let mut senders = vec![begin(&function, &context)?];
        settle(&engine, 1).await?;
        let before = resident()?;
        for _ in 1..count {
            senders.push(begin(&function, &context)?);
            tokio::task::yield_now().await;
        }
        settle(&engine, u64::from(count)).await?;
        let after = resident()?;
        println!(
            "{} {}",
            engine.stats().live_instances,
            after.saturating_sub(before)
        );
        drop(senders);
        Ok(())
    })
}

/// Starts a call whose request body never ends, so that its instance stays alive.
fn begin(function: &Arc<Function>, context: &CallContext) -> Result<RequestBodySender> {
    let (sender, body) = RequestBody::channel(1);
    let request = http::Request::post("http://bench.fn.test/").body(body)?;
    let call = function.call(context.clone(), request);
    tokio::task::spawn_local(call.response());
    Ok(sender)
}

async fn settle(engine: &Engine, live: u64) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(300);
    while engine.stats().live_instances < live {
        ensure!(
            Instant::now() < deadline,
            "{} of {live} instances live",
            engine.stats().live_instances
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Whatever the instances still do at their start comes to rest.
    tokio::time::sleep(Duration::from_millis(500)).await;
    Ok(())
}

/// Resident memory of this process (proc(5): statm counts pages).
fn resident() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = text
        .split_whitespace()
        .nth(1)
        .context("statm has two fields")?
        .parse()?;
    Ok(pages * rustix::param::page_size() as u64)
}
