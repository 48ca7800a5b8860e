//! A node of a cluster with synthetic instances, which live for a given time: for tests and benchmarks of the cluster itself, without functions.
//!
//! The first argument is a JSON document ([`Config`]). Commands arrive as JSON lines on standard input, answers are written as JSON lines to
//! standard output ([`control`]). The process exits at the end of the input.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "answers go to standard output, what is wrong with the arguments to standard error"
)]

mod control;
mod histogram;
mod load;
mod synthetic;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use fdn_cluster::{Cluster, ClusterParts, ClusterSettings};
use fdn_core::{ClusterId, NodeId, Resources};
use serde::Deserialize;

use synthetic::{Journal, Synthetic};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The configuration of a node.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    cluster: ClusterId,
    node: NodeId,
    capacity: Resources,
    settings: ClusterSettings,
    /// The file to which starts, ends and outcomes are appended, one line each, immediately.
    #[serde(default)]
    journal: Option<PathBuf>,
}

fn main() -> ExitCode {
    let config = std::env::args().nth(1).unwrap_or_default();
    let run = || -> Result<(), Box<dyn std::error::Error>> {
        let config: Config = serde_json::from_str(&config)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(run(config))
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fdn-cluster-node: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(config: Config) -> Result<(), Box<dyn std::error::Error>> {
    let journal = Arc::new(Journal::open(config.journal.as_deref())?);
    let (host, lives) = Synthetic::new(Arc::clone(&journal));
    let measured = host.measured();
    let registry = prometheus::Registry::new();
    let cluster = Cluster::start(ClusterParts {
        cluster: config.cluster,
        node: config.node,
        capacity: config.capacity,
        settings: config.settings,
        host,
        peers: None,
        leases: None,
        registry: registry.clone(),
    })
    .await?;
    tokio::spawn(lives.run(cluster.clone()));
    control::run(cluster, journal, measured, registry).await;
    Ok(())
}
