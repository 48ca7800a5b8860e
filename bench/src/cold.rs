//! The first call on a node whose disk cache holds the compiled function: the agent has just been started again.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::network::Network;
use crate::{Options, median};

/// Name, component, manifest, aim in ms.
pub(crate) const FUNCTIONS: [(&str, &str, &str, f64); 3] = [
    ("rust", "hello/hello.wasm", "hello/fdn.toml", 1.0),
    (
        "javascript",
        "json-transform/json-transform.wasm",
        "json-transform/fdn.toml",
        3.0,
    ),
    (
        "python",
        "text-stats/text-stats.wasm",
        "text-stats/fdn.toml",
        6.0,
    ),
];

/// Starts of the agent for each function.
const STARTS: usize = 50;

pub(crate) fn run(options: &Options) -> Result<()> {
    println!(
        "cold start: first GET / after the agent's start, compiled function in its disk cache, function not loaded; and the next ones"
    );
    println!("{STARTS} starts of each; the first call by p50 and p95, the others by p50; ms");
    println!(
        "{:<12} {:>12} {:>12} {:>12} {:>12} {:>8}",
        "function", "first p50", "first p95", "second", "100th", "aim"
    );
    for (name, component, manifest, aim) in FUNCTIONS {
        let path = options.functions.join(component);
        if !path.is_file() {
            println!(
                "({name} left out: {} is not built; make functions)",
                path.display()
            );
            continue;
        }
        let manifest = std::fs::read_to_string(options.functions.join(manifest))?;
        let mut network = Network::start(options)?;
        network.deploy(name, &path, &manifest)?;
        let host = format!("{name}.fn.test");
        let (mut first, mut second, mut later) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..STARTS {
            let mut stream = start(&mut network)?;
            first.push(call(&mut stream, &host)?);
            second.push(call(&mut stream, &host)?);
            for _ in 0..97 {
                call(&mut stream, &host)?;
            }
            later.push(call(&mut stream, &host)?);
        }
        println!(
            "{name:<12} {:>12.3} {:>12.3} {:>12.3} {:>12.3} {aim:>8}",
            median(first.clone()),
            p95(first),
            median(second),
            median(later)
        );
    }
    Ok(())
}

fn p95(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[(figures.len() - 1) * 95 / 100]
}

/// Starts the agent again; a connection to its gateway.
pub(crate) fn start(network: &mut Network) -> Result<TcpStream> {
    network.restart()?;
    connect(network.gateway)
}

pub(crate) fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    Ok(stream)
}

/// Milliseconds from the request's first byte to the first of the answer.
pub(crate) fn call(stream: &mut TcpStream, host: &str) -> Result<f64> {
    call_path(stream, host, "/")
}

/// As [`call`], of a path.
pub(crate) fn call_path(stream: &mut TcpStream, host: &str, path: &str) -> Result<f64> {
    let begin = Instant::now();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes())?;
    let mut text = Vec::new();
    let mut buffer = [0; 16384];
    let count = stream.read(&mut buffer)?;
    let took = begin.elapsed().as_secs_f64() * 1e3;
    text.extend_from_slice(&buffer[..count]);
    ensure!(
        text.starts_with(b"HTTP/1.1 2"),
        "not an answer: {}",
        String::from_utf8_lossy(&text)
    );
    while !complete(&text) {
        let count = stream.read(&mut buffer)?;
        ensure!(count > 0, "the connection ended");
        text.extend_from_slice(&buffer[..count]);
    }
    Ok(took)
}

/// Whether a response with a length or in chunks is there to its end.
fn complete(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head.to_ascii_lowercase().lines().find_map(|l| {
        l.strip_prefix("content-length:")?
            .trim()
            .parse::<usize>()
            .ok()
    });
    match length {
        Some(length) => body.len() >= length,
        None => body.ends_with("0\r\n\r\n"),
    }
}
