//! Bindings at scale: the memory that a million of them take, how fast they are loaded and changed, and the cost of changing them.
//!
//! `cargo bench -p fdn-dns --bench bindings -- [--bindings N] [--apps N] [--rounds N] [--turns N] [--seconds N]`: the numbers of bindings and
//! apps, of rounds of 20 batches each, and of turns of queries without and with changes, each for this many seconds. The server is pinned to core
//! 0;
//! queries come from core 1. All changes go through the server's feed.

#![allow(
    clippy::print_stdout,
    reason = "figures are printed, that is what this program is for"
)]

#[path = "../../tests/it/alone.rs"]
mod alone;
mod child;
mod world;

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use world::{CHILD, World};

struct Options {
    bindings: u32,
    apps: u32,
    /// Rounds of 20 batches each.
    rounds: u32,
    /// Turns of queries without and with changes.
    turns: u32,
    /// The duration of queries, twice in each turn.
    seconds: u32,
}

fn main() {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    let number = |text: &String| text.parse().expect("a number");
    if let [first, dir, bindings, apps] = args.as_slice()
        && first == CHILD
    {
        return child::run(Path::new(dir), World::of(number(bindings), number(apps)));
    }
    let mut options = Options {
        bindings: 1_000_000,
        apps: 100,
        rounds: 5,
        turns: 3,
        seconds: 60,
    };
    for pair in args.chunks(2) {
        match pair {
            [name, value] if name == "--bindings" => options.bindings = number(value),
            [name, value] if name == "--apps" => options.apps = number(value),
            [name, value] if name == "--rounds" => options.rounds = number(value),
            [name, value] if name == "--turns" => options.turns = number(value),
            [name, value] if name == "--seconds" => options.seconds = number(value),
            other => panic!("not understood: {other:?}"),
        }
    }
    run(&options);
}

fn run(options: &Options) {
    let world = World::of(options.bindings, options.apps);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!(
        "dns bindings: {} bindings of {} apps, {} each, no two tables alike and no two prefixes adjacent; {cores} cores, load {}",
        world.bindings(),
        world.apps,
        world.each,
        load.trim()
    );
    let dir = tempfile::tempdir().expect("folder");
    let mut server = Server::start(dir.path(), world);
    println!(
        "told by messages, until answered     {:>9.0} ms",
        server.number("tell")
    );
    println!("  the process after it               {}", server.memory());
    server.end();
    let file = dir
        .path()
        .join("dns-state.bin")
        .metadata()
        .expect("written")
        .len();
    println!(
        "on disk                              {:>9.1} MiB",
        mib(file)
    );

    cold(dir.path(), world);

    let mut server = Server::start(dir.path(), world);
    if options.rounds > 0 {
        batches(&mut server, options);
        println!("  the process after it               {}", server.memory());
    }
    if options.turns > 0 {
        cost(&mut server, world, options);
        println!("  the process after it               {}", server.memory());
    }
    server.end();
}

#[allow(clippy::cast_precision_loss, reason = "a figure for reading")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / (1024.0 * 1024.0)
}

/// Starts the program itself with the state on disk.
fn cold(dir: &Path, world: World) {
    let (listen, admin) = (fdn_testkit::ports::local(), fdn_testkit::ports::local());
    let config = dir.join("dns.toml");
    alone::join(dir);
    std::fs::write(&config, alone::config(dir, listen, admin)).expect("written");
    let begun = Instant::now();
    let mut process = Command::new("taskset")
        .args(["-c", "0", env!("CARGO_BIN_EXE_fdn-dns"), "--config"])
        .arg(&config)
        .env("FDN_LOG", "error")
        .stdout(Stdio::null())
        .spawn()
        .expect("started");
    let server = SocketAddr::from(([127, 0, 0, 1], listen));
    let (socket, (app, index)) = (world::socket(), (world.apps - 1, world.each - 1));
    while world::ask(&socket, server, app, world.prefix(app, index))
        != Some(world.cluster(app, index, 0))
    {
        assert!(
            begun.elapsed() < Duration::from_secs(120),
            "it does not answer"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
    println!(
        "cold start until the last is answered {:>8.0} ms",
        ms(begun.elapsed())
    );
    println!(
        "  fdn-dns itself                     {}",
        memory(process.id())
    );
    process.kill().expect("killed");
    process.wait().expect("ended");
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The resident memory of a process, current and peak.
fn memory(pid: u32) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let kib = |key: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        line.and_then(|rest| rest.split_whitespace().next()?.parse().ok())
            .unwrap_or(0)
    };
    format!(
        "{:>9.1} MiB resident, {:.1} MiB at its peak",
        mib(kib("VmRSS:") * 1024),
        mib(kib("VmHWM:") * 1024)
    )
}

fn batches(server: &mut Server, options: &Options) {
    let mut times = Vec::new();
    for _ in 0..options.rounds * 20 {
        times.push(server.number("batch 10000"));
    }
    times.sort_by(f64::total_cmp);
    let at = |share: usize| times[(times.len() - 1) * share / 100];
    println!(
        "a batch of 10000 until its last is answered {:>6.1} ms p50, {:.1} p99, {:.1} longest, of {}",
        at(50),
        at(99),
        at(100),
        times.len()
    );
}

/// Queries per second, alternately without changes and with 10,000 changes per second.
fn cost(server: &mut Server, world: World, options: &Options) {
    let queries = server.dir.join("queries.bin");
    let of = |n: u32| {
        let app = n % world.apps;
        let client = world.prefix(app, n / world.apps % world.each);
        let message = world::query(0, app, client);
        let length = u16::try_from(message.len()).expect("short").to_be_bytes();
        length.into_iter().chain(message)
    };
    std::fs::write(&queries, (0..50_000).flat_map(of).collect::<Vec<u8>>()).expect("written");
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..options.turns {
        without.push(dnsperf(server.address, &queries, options.seconds));
        server.say("update 10000");
        with.push(dnsperf(server.address, &queries, options.seconds));
        println!(
            "  changes made a second              {:>9.0}",
            server.number("stop")
        );
    }
    let lost: f64 = without.iter().chain(&with).map(|seen| seen.1).sum();
    let median = |seen: &[(f64, f64)]| {
        let mut rates: Vec<f64> = seen.iter().map(|seen| seen.0).collect();
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    };
    let (quiet, busy) = (median(&without), median(&with));
    println!(
        "queries/s without changes, with, ratio {quiet:>8.0} {busy:>8.0} {:>6.3}; lost {lost}; {} turns of {} s each",
        busy / quiet,
        options.turns,
        options.seconds
    );
}

/// Queries per second, and the number of lost ones.
fn dnsperf(server: SocketAddr, queries: &Path, seconds: u32) -> (f64, f64) {
    let output = Command::new("taskset")
        .args(["-c", "1", "dnsperf", "-B", "-c", "8", "-q", "200", "-s"])
        .arg(server.ip().to_string())
        .args([
            "-p",
            &server.port().to_string(),
            "-l",
            &seconds.to_string(),
            "-d",
        ])
        .arg(queries)
        .output()
        .expect("dnsperf must be installed");
    let text = String::from_utf8_lossy(&output.stdout);
    let value = |marker: &str| -> f64 {
        let line = text
            .lines()
            .find_map(|line| line.trim().strip_prefix(marker));
        line.and_then(|rest| rest.split_whitespace().next()?.parse().ok())
            .unwrap_or_else(|| panic!("dnsperf: {text}"))
    };
    (value("Queries per second:"), value("Queries lost:"))
}

/// This program as a server, controlled through its standard input.
struct Server {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    address: SocketAddr,
    dir: std::path::PathBuf,
}

impl Server {
    fn start(dir: &Path, world: World) -> Self {
        let mut process = Command::new("taskset")
            .args(["-c", "0"])
            .arg(std::env::current_exe().expect("this program"))
            .args([
                CHILD,
                &dir.display().to_string(),
                &world.bindings().to_string(),
                &world.apps.to_string(),
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let input = process.stdin.take().expect("piped");
        let output = BufReader::new(process.stdout.take().expect("piped"));
        let mut server = Self {
            process,
            input,
            output,
            address: SocketAddr::from(([0, 0, 0, 0], 0)),
            dir: dir.to_owned(),
        };
        server.address = server.line().parse().expect("an address");
        server
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let read = self.output.read_line(&mut line).expect("a line");
        assert!(read > 0, "the server ended");
        line.trim().to_owned()
    }

    fn say(&mut self, what: &str) {
        writeln!(self.input, "{what}").expect("it listens");
    }

    fn number(&mut self, what: &str) -> f64 {
        self.say(what);
        self.line().parse().expect("a number")
    }

    fn memory(&self) -> String {
        memory(self.process.id())
    }

    fn end(mut self) {
        self.say("end");
        let status = self.process.wait().expect("ended");
        assert!(status.success(), "{status}");
    }
}
