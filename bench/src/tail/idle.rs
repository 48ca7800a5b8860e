//! Ten thousand connections that have made a call, are kept alive and do nothing: what one takes of the server's resident memory, and what a call beside
//! them feels. What the kernel keeps of a connection is not in it, nor what a server holds for connections before there are any, as nginx does.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use rustix::process::{Resource, getrlimit};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::connection::{Connection, Http};
use super::figures::Times;
use super::node::host;
use super::{Bench, memory};
use crate::gateway::{ANSWER, nginx};

const CONNECTIONS: usize = 10_000;
/// Files that client and server have open beside connections.
const OTHERS: u64 = 500;
/// Calls beside the idle connections, one after another.
const CALLS: usize = 1000;
/// Until memory that connections gave back, or still take, is where it stays.
const REST: Duration = Duration::from_secs(2);

struct Seen {
    server: &'static str,
    before: f64,
    after: f64,
    alone: Times,
    beside: Times,
}

pub(super) fn run(bench: &mut Bench<'_>) -> Result<Value> {
    let wanted = CONNECTIONS as u64 + OTHERS;
    let limit = getrlimit(Resource::Nofile).current;
    if limit.is_some_and(|limit| limit < wanted) {
        let limit = limit.unwrap_or_default();
        println!(
            "(idle left out: a process may open {limit} files here, {wanted} are needed; raise the hard limit: ulimit -Hn {wanted})"
        );
        return Ok(Value::Null);
    }
    println!(
        "idle: {CONNECTIONS} connections after a call each, kept alive; resident memory before and after; {CALLS} calls before and beside them, one after another"
    );
    let (gateway, pid) = (bench.node.gateway, bench.node.id());
    let mut all = vec![
        bench
            .load
            .block_on(measure("fdn, fresh instance", gateway, pid))?,
    ];
    let peer = nginx(bench.node.folder(), "nginx, return 200", ANSWER)?;
    if let Some(peer) = &peer
        && let Some(process) = &peer.process
    {
        all.push(
            bench
                .load
                .block_on(measure(peer.name, peer.address, process.id()))?,
        );
    }
    println!(
        "{:<22} {:>11} {:>10} {:>9} {:>11} {:>11} {:>11} {:>11}",
        "server",
        "before MiB",
        "after MiB",
        "KiB each",
        "alone p50",
        "alone p99",
        "beside p50",
        "beside p99"
    );
    for seen in &all {
        println!(
            "{:<22} {:>11.1} {:>10.1} {:>9.2} {:>11.3} {:>11.3} {:>11.3} {:>11.3}",
            seen.server,
            seen.before / 1_048_576.0,
            seen.after / 1_048_576.0,
            seen.each() / 1024.0,
            seen.alone.p50,
            seen.alone.p99,
            seen.beside.p50,
            seen.beside.p99
        );
    }
    let servers = all.iter().map(|seen| {
        json!({
            "server": seen.server,
            "resident_before": seen.before,
            "resident_after": seen.after,
            "bytes_each": seen.each(),
            "calls_alone": seen.alone,
            "calls_beside": seen.beside,
        })
    });
    Ok(json!({ "connections": CONNECTIONS, "servers": servers.collect::<Vec<_>>() }))
}

impl Seen {
    fn each(&self) -> f64 {
        (self.after - self.before) / CONNECTIONS as f64
    }
}

async fn measure(server: &'static str, address: SocketAddr, pid: u32) -> Result<Seen> {
    let host = host("fresh");
    // Whatever calls need, the server has it before they are counted.
    let mut caller = Connection::open(address, Http::One, None).await?;
    calls(&mut caller, &host).await?;
    let alone = calls(&mut caller, &host).await?;
    sleep(REST).await;
    let before = memory::resident(pid)?;
    let mut idle = Vec::with_capacity(CONNECTIONS);
    for _ in 0..CONNECTIONS {
        let mut connection = Connection::open(address, Http::One, None).await?;
        connection.get(&host).await?;
        idle.push(connection);
    }
    sleep(REST).await;
    let after = memory::resident(pid)?;
    let beside = calls(&mut caller, &host).await?;
    let closed = idle.iter().filter(|one| one.is_closed()).count();
    ensure!(closed == 0, "{server} closed {closed} idle connections");
    Ok(Seen {
        server,
        before,
        after,
        alone,
        beside,
    })
}

async fn calls(caller: &mut Connection, host: &str) -> Result<Times> {
    let mut took = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let begin = Instant::now();
        caller.get(host).await?;
        took.push(Some(begin.elapsed()));
    }
    Ok(Times::of(took))
}
