//! Load from `wrk` (Debian's package), pinned to the second core.

use std::net::SocketAddr;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// What one run of `wrk` saw.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) requests_per_second: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) errors: u64,
}

/// Loads `address` with `connections` for `seconds`.
pub(crate) fn load(
    address: SocketAddr,
    host: &str,
    connections: u32,
    seconds: u32,
) -> Result<Seen> {
    let output = Command::new("taskset")
        .args([
            "-c",
            "1",
            "wrk",
            "-t",
            "1",
            "-c",
            &connections.to_string(),
            "-d",
            &format!("{seconds}s"),
            "--latency",
        ])
        .args([
            "-H",
            &format!("Host: {host}"),
            &format!("http://{address}/"),
        ])
        .output()
        .context("wrk and taskset must be installed")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success(),
        "wrk: {text} {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let value = |marker: &str| -> Option<&str> {
        text.lines()
            .find_map(|line| line.trim().strip_prefix(marker))
            .map(str::trim)
    };
    let requests_per_second = value("Requests/sec:")
        .and_then(|v| v.parse().ok())
        .context("wrk printed no rate")?;
    let percentile = |marker: &str| {
        value(marker)
            .and_then(milliseconds)
            .with_context(|| format!("wrk printed no {marker}"))
    };
    let bad = value("Non-2xx or 3xx responses:")
        .and_then(|v| v.parse().ok())
        .unwrap_or(0);
    let socket: u64 = value("Socket errors:").map_or(0, |v| {
        v.split(|c: char| !c.is_ascii_digit())
            .filter_map(|n| n.parse::<u64>().ok())
            .sum()
    });
    Ok(Seen {
        requests_per_second,
        p50_ms: percentile("50%")?,
        p99_ms: percentile("99%")?,
        errors: bad + socket,
    })
}

fn milliseconds(text: &str) -> Option<f64> {
    for (unit, factor) in [("us", 0.001), ("ms", 1.0), ("s", 1000.0)] {
        if let Some(number) = text.strip_suffix(unit)
            && let Ok(number) = number.parse::<f64>()
        {
            return Some(number * factor);
        }
    }
    None
}
