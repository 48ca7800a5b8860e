//! Measures how long a call waits for its record: `cargo run --release -p fdn-spool --example spool-latency [FOLDER]`.
//!
//! For each setting of the answers, with 1, 16 and 64 concurrent callers.

#![allow(clippy::print_stdout, reason = "figures for a person")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fdn_core::usage::{CallFacts, CallRecord, UsageOutcome, UsageRecord};
use fdn_core::{DurationMs, InvocationId, MebiBytes, Timestamp, VersionNumber};
use fdn_spool::{AnswerAfter, Spool, SpoolMetrics, SpoolSettings};
use uuid::Uuid;

const CALLS: usize = 4000;

fn record() -> CallRecord {
    let used = UsageRecord {
        invocation: InvocationId::from_uuid(Uuid::now_v7()),
        app: "thumbs".parse().expect("app"),
        function: "thumbs".parse().expect("function"),
        version: VersionNumber::FIRST,
        started_at: Timestamp(1_790_000_000_000),
        duration_us: 1234,
        cpu_us: 1200,
        memory_mib: MebiBytes(64),
        gpu_memory_mib: MebiBytes(0),
        egress_bytes: 4711,
        outcome: UsageOutcome::Ok,
    };
    CallRecord {
        used,
        call: Some(CallFacts {
            request: Uuid::now_v7().simple().to_string(),
            trace: Uuid::now_v7().simple().to_string(),
            method: "GET".to_owned(),
            status: Some(200),
            wait_us: 30,
            start_us: 20,
            head_us: 1100,
            total_us: 1300,
            ..CallFacts::default()
        }),
        noted: None,
    }
}

fn main() {
    let folder = std::env::args()
        .nth(1)
        .map_or_else(std::env::temp_dir, PathBuf::from);
    println!("{CALLS} records each, in {}", folder.display());
    let runtime = tokio::runtime::Runtime::new().expect("runtime");
    for (after, window) in [
        (AnswerAfter::Written, 2),
        (AnswerAfter::Synced, 0),
        (AnswerAfter::Synced, 2),
    ] {
        for callers in [1, 16, 64] {
            let path = folder.join(format!("spool-latency-{}", std::process::id()));
            let (mut times, took) = runtime.block_on(measure(&path, after, window, callers));
            times.sort_unstable();
            let at =
                |part: f64| times[((times.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e3;
            println!(
                "{after:?}, window {window} ms, {callers:>2} callers: p50 {:.3} ms, p99 {:.3} ms, {:.0} records/s",
                at(0.5),
                at(0.99),
                times.len() as f64 / took.as_secs_f64()
            );
            std::fs::remove_dir_all(&path).expect("removed");
        }
    }
}

async fn measure(
    path: &Path,
    answer_after: AnswerAfter,
    window: u64,
    callers: usize,
) -> (Vec<Duration>, Duration) {
    let settings = SpoolSettings {
        answer_after,
        batch_window: DurationMs::from_millis(window),
        ..SpoolSettings::default()
    };
    let node = "n-1".parse().expect("node");
    let metrics = SpoolMetrics::new(&prometheus::Registry::new(), &node).expect("metrics");
    let spool = Spool::open(path, settings, metrics).expect("the spool opens");
    let calls = if answer_after == AnswerAfter::Synced && callers == 1 {
        CALLS / 20
    } else {
        CALLS
    };
    let start = Instant::now();
    let tasks: Vec<_> = (0..callers)
        .map(|_| {
            let spool = spool.clone();
            tokio::spawn(async move {
                let mut times = Vec::new();
                for _ in 0..calls / callers {
                    let begun = Instant::now();
                    let place = spool.reserve().expect("room");
                    let receipt = place.record(&record()).expect("written");
                    receipt.wait().await.expect("safe");
                    times.push(begun.elapsed());
                }
                times
            })
        })
        .collect();
    let mut times = Vec::new();
    for task in tasks {
        times.extend(task.await.expect("a caller"));
    }
    let took = start.elapsed();
    tokio::task::spawn_blocking(move || spool.close())
        .await
        .expect("closed");
    (times, took)
}
