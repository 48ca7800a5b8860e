//! A burst: nobody is connected, then 500 connections are opened at once, each with a call. A call is timed from the burst's beginning, so that opening
//! its connection is in it.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::Bench;
use super::connection::{Connection, Http};
use super::figures::Times;
use super::node::host;
use crate::gateway::{ANSWER, nginx};

const CONNECTIONS: usize = 500;
/// Between two bursts: connections of the one before are closed.
const REST: Duration = Duration::from_secs(1);

struct Row {
    name: &'static str,
    address: SocketAddr,
    host: String,
    rounds: Vec<Times>,
}

pub(super) fn run(bench: &mut Bench<'_>) -> Result<Value> {
    println!(
        "burst: {CONNECTIONS} connections at once, each with one call, from the burst's beginning until each is answered"
    );
    let peer = nginx(bench.node.folder(), "nginx, return 200", ANSWER)?;
    let gateway = bench.node.gateway;
    let mut rows = vec![
        ("fdn, fresh instance", gateway, host("fresh")),
        ("fdn, reuse = 1000", gateway, host("reused")),
    ];
    rows.extend(
        peer.iter()
            .map(|peer| (peer.name, peer.address, host("fresh"))),
    );
    let rows = rows.into_iter().map(|(name, address, host)| Row {
        name,
        address,
        host,
        rounds: Vec::new(),
    });
    let mut rows: Vec<Row> = rows.collect();
    for _ in 0..bench.options.rounds.max(1) {
        for row in &mut rows {
            let times = bench.load.block_on(burst(row.address, &row.host))?;
            row.rounds.push(times);
        }
    }
    println!("{:<28} {}", "server", Times::header());
    let mut all = Vec::new();
    for row in &rows {
        let times = Times::of_rounds(&row.rounds);
        println!("{:<28} {}", row.name, times.row());
        all.push(json!({ "server": row.name, "times": times, "rounds": row.rounds }));
    }
    Ok(json!({ "connections": CONNECTIONS, "servers": all }))
}

async fn burst(address: SocketAddr, host: &str) -> Result<Times> {
    let begin = Instant::now();
    let mut callers = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let host = host.to_owned();
        callers.spawn(async move {
            let connection = call(address, &host).await.ok()?;
            Some((begin.elapsed(), connection))
        });
    }
    // Connections stay open until all are answered.
    let ended = callers.join_all().await;
    let times = Times::of(ended.iter().map(|one| one.as_ref().map(|(took, _)| *took)));
    drop(ended);
    sleep(REST).await;
    Ok(times)
}

async fn call(address: SocketAddr, host: &str) -> Result<Connection> {
    let mut connection = Connection::open(address, Http::One, None).await?;
    connection.get(host).await?;
    Ok(connection)
}
