//! Live instances in one process: what one of them takes of memory, and how many 1 GiB holds.

use std::path::{Path, PathBuf};
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
use serde_json::{Value, json};

use crate::{Options, median};

/// The hidden argument with which this program runs the measurement in a process of its own.
pub(crate) const CHILD: &str = "__instances";

/// Name, component, how many live at the same time, and how many are to find room in 1 GiB.
const FUNCTIONS: [(&str, &str, u32, f64); 3] = [
    ("rust", "hello/hello.wasm", 10_000, 30_000.0),
    (
        "javascript",
        "json-transform/json-transform.wasm",
        500,
        1000.0,
    ),
    ("python", "text-stats/text-stats.wasm", 500, 650.0),
];
const GIB: f64 = 1_073_741_824.0;

/// A function with what was seen of it.
struct Row {
    name: &'static str,
    compiled: PathBuf,
    count: u32,
    aim: f64,
    /// Bytes of resident memory that one instance takes, of each round.
    bytes: Vec<f64>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    println!(
        "instances: live at the same time in one process, each having answered a call; resident memory of one, and how many 1 GiB holds; {} rounds in turns, medians",
        options.rounds
    );
    let folder = tempfile::tempdir()?;
    let mut rows = Vec::new();
    for (name, component, count, aim) in FUNCTIONS {
        let component = options.functions.join(component);
        if !component.is_file() {
            println!(
                "({name} left out: {} is not built; make functions)",
                component.display()
            );
            continue;
        }
        let compiled = folder.path().join(name);
        compile_in_process(&component, &compiled).with_context(|| format!("compiling {name}"))?;
        rows.push(Row {
            name,
            compiled,
            count,
            aim,
            bytes: Vec::new(),
        });
    }
    for _ in 0..options.rounds.max(1) {
        for row in &mut rows {
            let bytes = row.measure()?;
            row.bytes.push(bytes);
        }
    }
    println!(
        "{:<12} {:>10} {:>14} {:>10} {:>10} {:>10}",
        "function", "instances", "KiB/instance", "in 1 GiB", "aim", "of the aim"
    );
    for row in &rows {
        println!(
            "{:<12} {:>10} {:>14.1} {:>10.0} {:>10} {:>10.2}",
            row.name,
            row.count,
            row.each() / 1024.0,
            row.in_a_gib(),
            row.aim,
            row.in_a_gib() / row.aim
        );
    }
    let functions: Vec<Value> = rows.iter().map(Row::json).collect();
    options.write_json(json!({ "functions": functions }))
}

impl Row {
    /// Bytes of resident memory that one of the instances takes, in a process of their own.
    fn measure(&self) -> Result<f64> {
        let compiled = self.compiled.display().to_string();
        let output = Command::new(std::env::current_exe()?)
            .args([CHILD, &compiled, &self.count.to_string()])
            .output()
            .context("this program can be started")?;
        ensure!(
            output.status.success(),
            "{}: {}",
            self.name,
            String::from_utf8_lossy(&output.stderr)
        );
        let text = String::from_utf8_lossy(&output.stdout);
        let mut numbers = text.split_whitespace().map(str::parse::<f64>);
        let mut number = || numbers.next().context("a number is missing");
        let (added, bytes) = (number()??, number()??);
        Ok(bytes / added)
    }

    fn each(&self) -> f64 {
        median(self.bytes.clone())
    }

    fn in_a_gib(&self) -> f64 {
        GIB / self.each()
    }

    fn json(&self) -> Value {
        json!({
            "function": self.name,
            "instances": self.count,
            "bytes_each": self.bytes,
            "in_a_gib": self.in_a_gib(),
            "aim": self.aim,
        })
    }
}

/// Makes the instances of a compiled function and prints how many came to the first one, and how many bytes of resident memory they added.
pub(crate) fn child(compiled: &Path, count: u32) -> Result<()> {
    let options = EngineOptions {
        max_instances: count + 10,
        heavy_calls: count as usize + 10,
        ..EngineOptions::default()
    };
    let engine = Engine::new(options)?;
    if let Some(warning) = engine.warning() {
        eprintln!("{warning}");
    }
    let function = engine.load(compiled)?;
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
            engine.stats().live_instances.saturating_sub(1),
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
