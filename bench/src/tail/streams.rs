//! 1 GiB through a function, up, down and both at once: bytes a second, and the most resident memory that the node had meanwhile. nginx's proxy carries
//! the same bytes to and from a plain process on the same core ([`super::bytes`]); it does not send and receive at once, so it has no third row.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fdn_testkit::{components, ports};
use http::Method;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::bytes::{CHILD, LENGTH, body};
use super::connection::{Connection, Http, nothing};
use super::node::host;
use super::{Bench, memory};
use crate::gateway::{nginx, pinned, started};
use crate::median;

const MANIFEST: &str = "memory = \"2MiB\"\ntimeout = \"5m\"\ncpu_time = \"5m\"\nbody_limit = \"2GiB\"\nresponse_limit = \"2GiB\"\n";
/// How long a body may take.
const LONGEST: Duration = Duration::from_secs(300);
const MIB: f64 = 1_048_576.0;

/// Where bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Way {
    Up,
    Down,
    Both,
}

/// One line of the table.
struct Row {
    server: &'static str,
    way: Way,
    address: SocketAddr,
    pid: u32,
    host: String,
    path: &'static str,
    rounds: Vec<Seen>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Seen {
    bytes_per_second: f64,
    resident_before: f64,
    resident_highest: f64,
}

pub(super) fn run(bench: &mut Bench<'_>) -> Result<Value> {
    bench.deploy_made("up", &components::measuring(), MANIFEST)?;
    bench.deploy_made("down", &components::faulty(), MANIFEST)?;
    bench.deploy_made("both", &components::echo(), MANIFEST)?;
    println!(
        "streams: {} MiB in one body; functions read 16 KiB and write 4 KiB at a time, as the languages' own libraries do",
        LENGTH / (1 << 20)
    );
    let (gateway, pid) = (bench.node.gateway, bench.node.id());
    let ours = [
        (Way::Up, "up", "/"),
        // A body without an end, of which so much is read.
        (Way::Down, "down", "/body"),
        (Way::Both, "both", "/"),
    ];
    let ours = ours.map(|(way, app, path)| Row {
        server: "fdn",
        way,
        address: gateway,
        pid,
        host: host(app),
        path,
        rounds: Vec::new(),
    });
    let mut rows = Vec::from(ours);
    let port = ports::local();
    let program = std::env::current_exe()?;
    let program = pinned(&program, vec![CHILD.to_owned(), port.to_string()]);
    let _bytes = started(
        "the process behind nginx",
        &program,
        port,
        bench.node.folder(),
    )?;
    let proxy = format!(
        "client_max_body_size 0; location / {{ proxy_pass http://127.0.0.1:{port}; proxy_http_version 1.1;\n\
         proxy_request_buffering off; proxy_buffering off; }}"
    );
    let peer = nginx(bench.node.folder(), "nginx, proxy_pass", &proxy)?;
    if let Some(peer) = &peer
        && let Some(process) = &peer.process
    {
        let pid = process.id();
        rows.extend([Way::Up, Way::Down].map(|way| Row {
            server: peer.name,
            way,
            address: peer.address,
            pid,
            host: peer.address.to_string(),
            path: "/",
            rounds: Vec::new(),
        }));
    }
    for _ in 0..bench.options.rounds.max(1) {
        for row in &mut rows {
            let seen = bench.load.block_on(row.once())?;
            row.rounds.push(seen);
        }
    }
    print(&rows);
    let all = rows.iter().map(|row| {
        json!({
            "server": row.server,
            "way": row.way,
            "bytes_per_second": row.rate(),
            "of_nginx": row.of_peer(&rows),
            "rounds": row.rounds,
        })
    });
    Ok(json!({ "bytes": LENGTH, "rows": all.collect::<Vec<_>>() }))
}

fn print(rows: &[Row]) {
    println!(
        "{:<20} {:<6} {:>9} {:>9} {:>12} {:>12}",
        "server", "way", "MiB/s", "of nginx", "before MiB", "highest MiB"
    );
    for row in rows {
        let name = match row.way {
            Way::Up => "up",
            Way::Down => "down",
            Way::Both => "both",
        };
        let of_peer = row.of_peer(rows);
        println!(
            "{:<20} {name:<6} {:>9.1} {:>9} {:>12.1} {:>12.1}",
            row.server,
            row.rate() / MIB,
            of_peer.map_or_else(String::new, |share| format!("{share:.3}")),
            row.middle(|seen| seen.resident_before) / MIB,
            row.middle(|seen| seen.resident_highest) / MIB
        );
    }
}

impl Row {
    /// Carries one body.
    async fn once(&self) -> Result<Seen> {
        let mut connection = Connection::open(self.address, Http::One, None).await?;
        let resident_before = memory::resident(self.pid)?;
        memory::forget(self.pid)?;
        let (method, payload, most) = match self.way {
            Way::Up | Way::Both => (Method::POST, (body(), Some(LENGTH)), u64::MAX),
            Way::Down => (Method::GET, (nothing(), None), LENGTH),
        };
        let begin = Instant::now();
        let exchange = connection.exchange(method, (&self.host, self.path), payload, most);
        let ended = timeout(LONGEST, exchange).await;
        let (came, first) = ended.context("the body does not end in time")??;
        let took = begin.elapsed();
        let whole = match self.way {
            // It answers how many bytes it was sent.
            Way::Up => first == LENGTH.to_string(),
            Way::Down => came >= LENGTH,
            Way::Both => came == LENGTH,
        };
        ensure!(whole, "{}: {came} bytes came back", self.server);
        Ok(Seen {
            bytes_per_second: LENGTH as f64 / took.as_secs_f64(),
            resident_before,
            resident_highest: memory::highest(self.pid)?,
        })
    }

    fn middle(&self, of: impl Fn(&Seen) -> f64) -> f64 {
        median(self.rounds.iter().map(of).collect())
    }

    fn rate(&self) -> f64 {
        self.middle(|seen| seen.bytes_per_second)
    }

    /// Of the other server's rate the same way; nothing of itself, nor where it cannot.
    fn of_peer(&self, rows: &[Self]) -> Option<f64> {
        let peer = rows
            .iter()
            .find(|row| row.server != self.server && row.way == self.way)?;
        (self.server == "fdn").then(|| self.rate() / peer.rate())
    }
}
