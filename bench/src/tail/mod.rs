//! The edges of a gateway's load: the slowest of many calls, many connections at once, many that are idle, newer protocols, and bodies that are long.
//!
//! The node is a process of its own on the first core ([`node`]); this program makes the load, from the second one, so that it knows when each call was
//! to be made: a call that comes late because all connections are busy is as slow for who wanted it as one that is answered late.

mod burst;
pub(crate) mod bytes;
mod connection;
mod figures;
mod idle;
mod load;
mod memory;
mod mix;
mod node;
pub(crate) mod starts;
mod streams;
mod versions;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

use crate::Options;
use crate::response::fleet::run as command;
use node::Node;

/// How long a caller waits before it gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// Of `tail`.
#[derive(Debug, Args)]
pub(crate) struct TailOptions {
    /// Parts of `tail`; all if none is named.
    #[arg(long = "part", value_delimiter = ',')]
    parts: Vec<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Light functions at 70 % of what the core can do, alone and beside one that burns CPU.
    Mix,
    /// From none to 500 connections at once.
    Burst,
    /// Ten thousand connections that are kept alive and do nothing.
    Idle,
    /// HTTP/2 and TLS 1.3 beside HTTP/1.1, and handshakes with and without an earlier session.
    Versions,
    /// 1 GiB up and down through a function, and nginx's proxy of the same.
    Streams,
}

impl Part {
    const ALL: [Self; 5] = [
        Self::Mix,
        Self::Burst,
        Self::Idle,
        Self::Versions,
        Self::Streams,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Mix => "mix",
            Self::Burst => "burst",
            Self::Idle => "idle",
            Self::Versions => "versions",
            Self::Streams => "streams",
        }
    }
}

/// What a part needs.
struct Bench<'a> {
    options: &'a Options,
    node: &'a mut Node,
    /// Where the controller runs.
    centre: &'a Runtime,
    /// Where load is made: one thread.
    load: &'a Runtime,
}

impl Bench<'_> {
    /// Deploys a component with a manifest and waits until the gateway answers for it.
    fn deploy(&mut self, app: &str, component: &Path, manifest: &str) -> Result<()> {
        self.centre
            .block_on(self.node.deploy(app, component, manifest))
    }

    /// Deploys one that is made here.
    fn deploy_made(&mut self, app: &str, component: &[u8], manifest: &str) -> Result<()> {
        let path = self.node.folder().join(format!("{app}.wasm"));
        std::fs::write(&path, component)?;
        self.deploy(app, &path, manifest)
    }

    fn span(&self) -> Duration {
        Duration::from_secs(u64::from(self.options.seconds))
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    println!(
        "tail: a node on core 0, load and controller on core 1, {} rounds of {} s, medians; ms unless it says otherwise",
        options.rounds, options.seconds
    );
    raise_open_files()?;
    let pinned = Pinned::to("1")?;
    let centre = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let load = Builder::new_current_thread().enable_all().build()?;
    let mut node = centre.block_on(Node::start(options))?;
    let bench = Bench {
        options,
        node: &mut node,
        centre: &centre,
        load: &load,
    };
    let measured = measure(bench);
    let stopped = centre.block_on(node.stop());
    let parts = measured?;
    stopped?;
    // What the conditions say of the machine is not what this process was confined to.
    drop(pinned);
    options.write_json(serde_json::json!({
        "rounds": options.rounds,
        "seconds": options.seconds,
        "parts": parts,
    }))
}

fn measure(mut bench: Bench<'_>) -> Result<BTreeMap<&'static str, Value>> {
    let hello = bench.options.functions.join("hello/hello.wasm");
    bench.deploy("fresh", &hello, "reuse = 1\n")?;
    bench.deploy("reused", &hello, "reuse = 1000\n")?;
    let mut parts = BTreeMap::new();
    for part in Part::ALL {
        let wanted = &bench.options.tail.parts;
        if !wanted.is_empty() && !wanted.contains(&part) {
            continue;
        }
        println!();
        let figures = match part {
            Part::Mix => mix::run(&mut bench)?,
            Part::Burst => burst::run(&mut bench)?,
            Part::Idle => idle::run(&mut bench)?,
            Part::Versions => versions::run(&mut bench)?,
            Part::Streams => streams::run(&mut bench)?,
        };
        parts.insert(part.name(), figures);
    }
    Ok(parts)
}

/// This process opens as many files as it may, and so do those that it starts.
fn raise_open_files() -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    )
    .context("raising the limit of open files")
}

/// This process with all its threads on some cores, as long as this lives.
struct Pinned {
    before: String,
}

impl Pinned {
    fn to(cores: &str) -> Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status")?;
        let before = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let before = before.context("no list of cores")?.trim().to_owned();
        pin(cores)?;
        Ok(Self { before })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Err(error) = pin(&self.before) {
            eprintln!("this process stays on its core: {error:#}");
        }
    }
}

fn pin(cores: &str) -> Result<()> {
    let mut taskset = Command::new("taskset");
    taskset.args(["-a", "-c", "-p", cores, &std::process::id().to_string()]);
    command(taskset).map(drop)
}
