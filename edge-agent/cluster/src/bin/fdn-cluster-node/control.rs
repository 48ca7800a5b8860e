//! The control interface: commands, one JSON document per line of standard input, and answers, one per line of standard output.

use std::io::Write;
use std::sync::{Arc, PoisonError};

use fdn_cluster::Cluster;
use fdn_core::NodeId;
use prometheus::{Registry, TextEncoder};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::histogram::Histogram;
use crate::load::{self, Burst, Load, Result};
use crate::synthetic::{Journal, Measured};

/// A command.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Order {
    /// Reports the status.
    Status,
    /// Submits many tasks at once; answered when all are settled.
    Burst(Burst),
    /// Submits tasks at a rate; answered when all are settled.
    Load(Load),
    /// Reports the latencies of starts here since the last such command.
    Measured,
    /// Reports the metrics in Prometheus text format.
    Metrics,
    /// Cuts this node off from others; answered at once.
    Cut(Vec<NodeId>),
    /// Starts or ends draining; answered at once.
    Drain(bool),
    /// Leaves the cluster; answered when the node has left.
    Leave,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Listening(std::net::SocketAddr),
    Status(Box<fdn_cluster::ClusterStatus>),
    Done(()),
    Settled(Result),
    Measured(Histogram),
    Metrics(String),
    Failed(String),
}

fn answer(answer: &Answer) {
    let text = serde_json::to_string(answer).expect("answers can be written as JSON");
    let mut out = std::io::stdout().lock();
    // Fails only if the process that gave the command is gone.
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// Executes commands until the input ends. Bursts and loads run concurrently with other commands.
pub(crate) async fn run(
    cluster: Cluster,
    journal: Arc<Journal>,
    measured: Measured,
    registry: Registry,
) {
    answer(&Answer::Listening(cluster.address()));
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        match serde_json::from_str(&line) {
            Ok(Order::Metrics) => answer(&metrics(&registry)),
            Ok(order) => carry_out(order, &cluster, &journal, &measured).await,
            Err(error) => answer(&Answer::Failed(error.to_string())),
        }
    }
}

fn metrics(registry: &Registry) -> Answer {
    let text = TextEncoder::new().encode_to_string(&registry.gather());
    text.map_or_else(|error| Answer::Failed(error.to_string()), Answer::Metrics)
}

async fn carry_out(order: Order, cluster: &Cluster, journal: &Arc<Journal>, measured: &Measured) {
    match order {
        Order::Status => match cluster.status().await {
            Ok(status) => answer(&Answer::Status(Box::new(status))),
            Err(error) => answer(&Answer::Failed(error.to_string())),
        },
        Order::Burst(burst) => {
            let (cluster, journal) = (cluster.clone(), Arc::clone(journal));
            tokio::spawn(async move {
                answer(&Answer::Settled(
                    load::burst(&cluster, &journal, burst).await,
                ));
            });
        }
        Order::Load(wanted) => {
            let (cluster, journal) = (cluster.clone(), Arc::clone(journal));
            tokio::spawn(async move {
                answer(&Answer::Settled(
                    load::load(&cluster, &journal, wanted).await,
                ));
            });
        }
        Order::Measured => {
            let mut measured = measured.lock().unwrap_or_else(PoisonError::into_inner);
            answer(&Answer::Measured(std::mem::take(&mut *measured)));
        }
        // Handled by the caller.
        Order::Metrics => {}
        Order::Cut(nodes) => done(cluster.cut(nodes).await),
        Order::Drain(draining) => done(cluster.drain(draining).await),
        Order::Leave => {
            cluster.leave().await;
            answer(&Answer::Done(()));
        }
    }
}

fn done(result: std::result::Result<(), fdn_cluster::ClusterError>) {
    match result {
        Ok(()) => answer(&Answer::Done(())),
        Err(error) => answer(&Answer::Failed(error.to_string())),
    }
}
