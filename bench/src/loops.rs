//! What a light function feels while two others loop for ever on the same node.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;

use crate::network::Network;
use crate::{Options, median, wrk};

pub(crate) fn run(options: &Options) -> Result<()> {
    println!(
        "loops: a light function at 1 connection on one core, alone and beside two functions that loop for ever"
    );
    let network = Network::start(options)?;
    network.deploy(
        "light",
        &options.functions.join("hello/hello.wasm"),
        "reuse = 1\n",
    )?;
    let looping = network.folder().join("loop.wasm");
    std::fs::write(&looping, fdn_testkit::components::faulty())?;
    for name in ["loop-a", "loop-b"] {
        network.deploy(name, &looping, "cpu_time = \"60s\"\ntimeout = \"60s\"\n")?;
    }
    println!(
        "{:<24} {:>12} {:>9} {:>9}",
        "", "requests/s", "p50 ms", "p99 ms"
    );
    print_row("alone", &measure(options, &network)?);
    let stop = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = ["loop-a.fn.test", "loop-b.fn.test"]
        .map(|host| {
            let (stop, address) = (Arc::clone(&stop), network.gateway);
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    drop(call(address, host, &stop));
                }
            })
        })
        .into();
    std::thread::sleep(Duration::from_millis(500));
    print_row("beside two loops", &measure(options, &network)?);
    stop.store(true, Ordering::Relaxed);
    drop(network);
    for caller in callers {
        drop(caller.join());
    }
    Ok(())
}

fn measure(options: &Options, network: &Network) -> Result<Vec<wrk::Seen>> {
    (0..options.rounds)
        .map(|_| wrk::load(network.gateway, "light.fn.test", 1, options.seconds))
        .collect()
}

fn print_row(name: &str, seen: &[wrk::Seen]) {
    let middle = |of: fn(&wrk::Seen) -> f64| median(seen.iter().map(of).collect());
    println!(
        "{name:<24} {:>12.0} {:>9.3} {:>9.3}",
        middle(|s| s.requests_per_second),
        middle(|s| s.p50_ms),
        middle(|s| s.p99_ms)
    );
}

/// One call to a function that does not end by itself; gives up when told to.
fn call(address: SocketAddr, host: &str, stop: &AtomicBool) -> Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_millis(200)))?;
    write!(
        stream,
        "GET /loop HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    )?;
    let mut buffer = [0; 512];
    while !stop.load(Ordering::Relaxed) {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                ) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
