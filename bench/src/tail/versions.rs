//! HTTP/2 and TLS 1.3 beside HTTP/1.1 without it: calls a second and how long they take, and connections a second, with and without an earlier session to
//! go on with. nginx answers the same client over the same protocols with the same certificate.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use fdn_testkit::ports;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Bench;
use super::connection::{Connection, Http, Tls};
use super::figures::Times;
use super::node::{Certificate, Node, host};
use crate::gateway::{ANSWER, Target, nginx};
use crate::{machines, median};

/// Calls at the same time: over as many connections with HTTP/1.1, over one with HTTP/2.
const CALLS: usize = 16;
/// Connections that are set up at the same time.
const SETTING_UP: usize = 4;
/// A protocol, with TLS or without.
const WAYS: [(&str, Http, bool); 4] = [
    ("HTTP/1.1", Http::One, false),
    ("HTTP/2", Http::Two, false),
    ("HTTP/1.1, TLS 1.3", Http::One, true),
    ("HTTP/2, TLS 1.3", Http::Two, true),
];
/// How a connection is set up: with TLS or without, with an earlier session or without.
const SETUPS: [(&str, bool, bool); 3] = [
    ("no TLS", false, false),
    ("TLS 1.3, full handshake", true, false),
    ("TLS 1.3, session resumed", true, true),
];

/// A server with its listeners.
struct Server {
    name: &'static str,
    one: SocketAddr,
    two: SocketAddr,
    secure: SocketAddr,
    _peer: Option<Target>,
}

/// What one measurement saw.
#[derive(Clone, Debug, Serialize)]
struct Seen {
    per_second: f64,
    times: Times,
    /// Of connections, how many resumed a session.
    resumed: f64,
    /// Of the second core, what the load took: at 1 it is what limits.
    client: f64,
}

/// One line of a table.
struct Row<'a> {
    server: &'a Server,
    /// In the list of ways or setups.
    at: usize,
    rounds: Vec<Seen>,
}

pub(super) fn run(bench: &mut Bench<'_>) -> Result<Value> {
    let (node, load) = (&*bench.node, bench.load);
    let servers: Vec<Server> = [Some(ours(node)), theirs(node)?]
        .into_iter()
        .flatten()
        .collect();
    println!(
        "versions: a fresh instance for each call, {CALLS} calls at a time (HTTP/1.1: as many connections, HTTP/2: one); client: what the load takes of its core, at 1.0 it is the limit"
    );
    let calls = table(bench, &servers, WAYS.len(), |server, at, span| {
        let (_, version, secure) = WAYS[at];
        let tls = tls(secure, node, version, true)?;
        load.block_on(many(server, version, tls, span))
    })?;
    print(&calls, &WAYS.map(|way| way.0), "calls/s");
    println!(
        "connections, {SETTING_UP} at a time, each with one call over HTTP/1.1, from opening it until the answer"
    );
    let connections = table(bench, &servers, SETUPS.len(), |server, at, span| {
        let (_, secure, resume) = SETUPS[at];
        let tls = tls(secure, node, Http::One, resume)?;
        load.block_on(set_up(server, tls, span))
    })?;
    print(&connections, &SETUPS.map(|setup| setup.0), "conns/s");
    Ok(json!({
        "calls_at_a_time": CALLS,
        "calls": as_json(&calls, &WAYS.map(|way| way.0)),
        "connections_at_a_time": SETTING_UP,
        "connections": as_json(&connections, &SETUPS.map(|setup| setup.0)),
    }))
}

fn ours(node: &Node) -> Server {
    Server {
        name: "fdn",
        one: node.gateway,
        two: node.gateway,
        secure: node.secure,
        _peer: None,
    }
}

/// nginx with a listener for each.
fn theirs(node: &Node) -> Result<Option<Server>> {
    let Certificate { file, key_file, .. } = &node.certificate;
    let (two, secure) = (ports::local(), ports::local());
    let server = format!(
        "listen 127.0.0.1:{two} http2; listen 127.0.0.1:{secure} ssl http2; ssl_protocols TLSv1.3;\n\
         ssl_certificate {}; ssl_certificate_key {}; {ANSWER}",
        file.display(),
        key_file.display()
    );
    let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let peer = nginx(node.folder(), "nginx, return 200", &server)?;
    Ok(peer.map(|peer| Server {
        name: peer.name,
        one: peer.address,
        two: at(two),
        secure: at(secure),
        _peer: Some(peer),
    }))
}

fn tls(secure: bool, node: &Node, version: Http, resume: bool) -> Result<Option<Tls>> {
    let new = || Tls::new(&node.certificate.authority, &host("fresh"), version, resume);
    secure.then(new).transpose()
}

impl Server {
    fn address(&self, version: Http, secure: bool) -> SocketAddr {
        match (secure, version) {
            (true, _) => self.secure,
            (false, Http::One) => self.one,
            (false, Http::Two) => self.two,
        }
    }
}

/// Measures each of so many ways at each server, in turns.
fn table<'a>(
    bench: &Bench<'_>,
    servers: &'a [Server],
    ways: usize,
    measure: impl Fn(&Server, usize, Duration) -> Result<Seen>,
) -> Result<Vec<Row<'a>>> {
    let rows = servers.iter().flat_map(|server| {
        (0..ways).map(move |at| Row {
            server,
            at,
            rounds: Vec::new(),
        })
    });
    let mut rows: Vec<Row<'_>> = rows.collect();
    for _ in 0..bench.options.rounds.max(1) {
        for row in &mut rows {
            let used = machines::processor()?;
            let begin = Instant::now();
            let seen = measure(row.server, row.at, bench.span());
            let mut seen = seen.context(row.server.name)?;
            seen.client = (machines::processor()? - used) / begin.elapsed().as_secs_f64();
            row.rounds.push(seen);
        }
    }
    Ok(rows)
}

impl Row<'_> {
    fn middle(&self, of: impl Fn(&Seen) -> f64) -> f64 {
        median(self.rounds.iter().map(of).collect())
    }

    fn per_second(&self) -> f64 {
        self.middle(|seen| seen.per_second)
    }

    fn times(&self) -> Times {
        Times::of_rounds(
            &self
                .rounds
                .iter()
                .map(|seen| seen.times)
                .collect::<Vec<_>>(),
        )
    }

    /// Of the first way of the same server.
    fn of_first(&self, rows: &[Self]) -> f64 {
        let first = rows
            .iter()
            .find(|row| row.server.name == self.server.name && row.at == 0);
        first.map_or(f64::NAN, |row| self.per_second() / row.per_second())
    }
}

fn print(rows: &[Row<'_>], names: &[&str], unit: &str) {
    println!(
        "{:<20} {:<26} {:>9} {:>9} {:>7} {:>8} {}",
        "server",
        "",
        unit,
        "of first",
        "client",
        "resumed",
        Times::header()
    );
    for row in rows {
        println!(
            "{:<20} {:<26} {:>9.0} {:>9.3} {:>7.2} {:>8.2} {}",
            row.server.name,
            names[row.at],
            row.per_second(),
            row.of_first(rows),
            row.middle(|seen| seen.client),
            row.middle(|seen| seen.resumed),
            row.times().row()
        );
    }
}

fn as_json(rows: &[Row<'_>], names: &[&str]) -> Vec<Value> {
    let row = |row: &Row<'_>| {
        json!({
            "server": row.server.name,
            "way": names[row.at],
            "per_second": row.per_second(),
            "of_first": row.of_first(rows),
            "times": row.times(),
            "rounds": row.rounds,
        })
    };
    rows.iter().map(row).collect()
}

/// As many calls as are answered, over connections that are open.
async fn many(server: &Server, version: Http, tls: Option<Tls>, span: Duration) -> Result<Seen> {
    let address = server.address(version, tls.is_some());
    let mut open: Vec<Connection> = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let shared = open.first().and_then(Connection::shared);
        open.push(match shared {
            Some(connection) => connection,
            None => Connection::open(address, version, tls.as_ref()).await?,
        });
    }
    // The first calls are not measured.
    for connection in &mut open {
        connection.get(&host("fresh")).await?;
    }
    let begin = Instant::now();
    let mut callers: JoinSet<Result<Vec<Duration>>> = JoinSet::new();
    for mut connection in open {
        callers.spawn(async move {
            let (host, mut took) = (host("fresh"), Vec::new());
            while begin.elapsed() < span {
                let sent = Instant::now();
                connection.get(&host).await?;
                took.push(sent.elapsed());
            }
            Ok(took)
        });
    }
    seen(callers, begin).await
}

/// As many connections as are set up, each with one call.
async fn set_up(server: &Server, tls: Option<Tls>, span: Duration) -> Result<Seen> {
    let address = server.address(Http::One, tls.is_some());
    let resumed = Arc::new(AtomicUsize::new(0));
    let begin = Instant::now();
    let mut callers: JoinSet<Result<Vec<Duration>>> = JoinSet::new();
    for _ in 0..SETTING_UP {
        let (tls, resumed) = (tls.clone(), Arc::clone(&resumed));
        callers.spawn(async move {
            let (host, mut took) = (host("fresh"), Vec::new());
            while begin.elapsed() < span {
                let sent = Instant::now();
                let mut connection = Connection::open(address, Http::One, tls.as_ref()).await?;
                // The server hands out what the next connection resumes before it answers.
                connection.get(&host).await?;
                took.push(sent.elapsed());
                let again = usize::from(connection.resumed);
                resumed.fetch_add(again, Ordering::Relaxed);
            }
            Ok(took)
        });
    }
    let mut seen = seen(callers, begin).await?;
    let resumed = resumed.load(Ordering::Relaxed);
    seen.resumed = resumed as f64 / seen.times.calls.max(1) as f64;
    Ok(seen)
}

async fn seen(mut callers: JoinSet<Result<Vec<Duration>>>, begin: Instant) -> Result<Seen> {
    let mut took = Vec::new();
    while let Some(ended) = callers.join_next().await {
        took.extend(ended??);
    }
    Ok(Seen {
        per_second: took.len() as f64 / begin.elapsed().as_secs_f64(),
        times: Times::of(took.into_iter().map(Some)),
        resumed: 0.0,
        client: 0.0,
    })
}
