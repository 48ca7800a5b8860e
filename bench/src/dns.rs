//! DNS queries per second with a different client subnet in each, by `dnsperf` (Debian's package).

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::network::Network;
use crate::{Options, median};

pub(crate) fn run(options: &Options) -> Result<()> {
    println!(
        "dns: A queries for one app, server on core 0, dnsperf on core 1, {} rounds of {} s, medians",
        options.rounds, options.seconds
    );
    let network = Network::start(options)?;
    network.deploy("hello", &options.functions.join("hello/hello.wasm"), "")?;
    println!(
        "{:<28} {:>12} {:>12} {:>9}",
        "queries", "queries/s", "mean ms", "lost"
    );
    for questions in questions(network.folder())? {
        let seen: Result<Vec<Seen>> = (0..options.rounds)
            .map(|_| once(options, &network, &questions))
            .collect();
        print_row(questions.name, &seen?);
    }
    Ok(())
}

/// A file of questions for `dnsperf`.
pub(crate) struct Questions {
    pub(crate) name: &'static str,
    file: String,
    /// Whether it holds messages instead of names and types.
    binary: bool,
}

/// Writes both kinds of questions for the app `hello` into a folder.
pub(crate) fn questions(folder: &Path) -> Result<[Questions; 2]> {
    let (plain, subnets) = (folder.join("plain.txt"), folder.join("subnets.bin"));
    std::fs::write(&plain, "hello.fn.test A\n")?;
    std::fs::write(&subnets, (0..SUBNETS).flat_map(query).collect::<Vec<u8>>())?;
    Ok([
        Questions {
            name: "without client subnet",
            file: plain.display().to_string(),
            binary: false,
        },
        Questions {
            name: "each with its own subnet",
            file: subnets.display().to_string(),
            binary: true,
        },
    ])
}

/// How many different client subnets are asked from, over and over.
const SUBNETS: u32 = 50_000;

/// A query for the app's address from the `n`th client subnet, behind its length as on a TCP stream (RFC 1035, section 4.2.2).
fn query(n: u32) -> Vec<u8> {
    let [_, b, c, d] = n.to_be_bytes();
    let message = question("hello.fn.test", [20 + b, c, d]);
    let length = u16::try_from(message.len()).unwrap_or(0).to_be_bytes();
    length.into_iter().chain(message).collect()
}

/// A query for a name's address from a client subnet of 24 bits (RFC 1035, section 4.1).
pub(crate) fn question(name: &str, subnet: [u8; 3]) -> Vec<u8> {
    let mut message = vec![0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
    for label in name.split('.') {
        message.push(u8::try_from(label.len()).unwrap_or(0));
        message.extend(label.as_bytes());
    }
    message.extend([0, 0, 1, 0, 1]);
    // OPT (RFC 6891, section 6.1.2) with one option: client subnet (RFC 7871, section 6), family 1, source /24, scope 0.
    message.extend([
        0, 0, 41, 0x04, 0xd0, 0, 0, 0, 0, 0, 11, 0, 8, 0, 7, 0, 1, 24, 0,
    ]);
    message.extend(subnet);
    message
}

pub(crate) struct Seen {
    pub(crate) per_second: f64,
    pub(crate) mean_ms: f64,
    lost: f64,
}

/// One run of `dnsperf`.
pub(crate) fn once(options: &Options, network: &Network, questions: &Questions) -> Result<Seen> {
    let output = Command::new("taskset")
        .args([
            "-c",
            "1",
            "dnsperf",
            "-s",
            &network.dns.ip().to_string(),
            "-p",
            &network.dns.port().to_string(),
        ])
        .args([
            "-d",
            &questions.file,
            "-l",
            &options.seconds.to_string(),
            "-c",
            "8",
            "-q",
            "200",
        ])
        .args(questions.binary.then_some("-B"))
        .output()
        .context("dnsperf must be installed")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success(),
        "dnsperf: {text} {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let value = |marker: &str| -> Option<f64> {
        let line = text.lines().find_map(|l| l.trim().strip_prefix(marker))?;
        line.split_whitespace().next()?.parse().ok()
    };
    Ok(Seen {
        per_second: value("Queries per second:").context("dnsperf printed no rate")?,
        mean_ms: value("Average Latency (s):").unwrap_or(f64::NAN) * 1000.0,
        lost: value("Queries lost:").unwrap_or(f64::NAN),
    })
}

fn print_row(name: &str, seen: &[Seen]) {
    let middle = |of: fn(&Seen) -> f64| median(seen.iter().map(of).collect());
    println!(
        "{name:<28} {:>12.0} {:>12.3} {:>9.0}",
        middle(|s| s.per_second),
        middle(|s| s.mean_ms),
        middle(|s| s.lost)
    );
}
