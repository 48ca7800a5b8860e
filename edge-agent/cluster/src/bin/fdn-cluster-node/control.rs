//! Orders, one JSON document per line of standard input, and answers, one per line of standard output.

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

/// What may be ordered.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Order {
    /// Answered with the status.
    Status,
    /// Many tasks at once; answered when all are settled.
    Burst(Burst),
    /// Tasks at a rate; answered when all are settled.
    Load(Load),
    /// Answered with the latencies of starts here since the last such order.
    Measured,
    /// Answered with the metrics as Prometheus reads them.
    Metrics,
    /// Answered at once.
    Cut(Vec<NodeId>),
    /// Answered at once.
    Drain(bool),
    /// Answered when the node has left.
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
    // Whoever ordered it has gone otherwise.
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// Takes orders until the input ends. Bursts and loads run beside others.
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
        // Answered before.
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
