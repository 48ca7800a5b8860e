//! What it costs that an instance runs on another node: the same instance, called through the gateway of its own node and through that of
//! a node of the same cluster that runs none.
//!
//! Both nodes are in this process, the hop between them is HTTP/2 over loopback without TLS, and the instance is the scripted runtime of the
//! tests, which costs nothing: the difference is what the way there and back adds.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fdn_edge_agent::Settings;
use fdn_instances::fake::{FakeEngine, FakeProgram};

use crate::Options;
use crate::rig::{Rig, image_manifest};

/// Calls of each way in one round, in pieces that take turns.
const CALLS: usize = 4000;
const PIECE: usize = 100;

pub(crate) fn run(options: &Options) -> Result<()> {
    println!(
        "peers: calls of a warm instance through the gateway of its own node, and of another node of its cluster; one client, {CALLS} calls each way, {} rounds that take turns; ms",
        options.rounds
    );
    println!("{:<34} {:>9} {:>9} {:>9}", "", "p50", "p99", "longest");
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?
        .block_on(measure(options))
}

/// Settings of a node of a cluster, which it founds or finds by another one.
pub(crate) fn settings(node: &str, seed: Option<SocketAddr>) -> Result<Settings> {
    let mut settings = Settings {
        node: node.parse()?,
        ..Settings::default()
    };
    settings.peers.enabled = true;
    settings.peers.cluster.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    settings.peers.cluster.plaintext = true;
    settings.peers.cluster.seeds = seed.into_iter().collect();
    settings.peers.cluster.founder = seed.is_none();
    Ok(settings)
}

async fn measure(options: &Options) -> Result<()> {
    let engine = FakeEngine::new();
    engine.add_image("image", FakeProgram::text("hello"));
    let host = settings("host", None)?;
    let runtime = engine.runtime(host.cluster.clone(), host.node.clone());
    let host = Rig::start(host, Some(runtime), b"image", image_manifest()).await?;
    ensure!(host.call("/").await? == 200, "the host does not answer");
    // Without a runtime of its own: all its calls go to the other one.
    let gateway = settings("gateway", Some(host.peer_address()?))?;
    let gateway = Rig::start(gateway, None, b"image", image_manifest()).await?;
    let deadline = Instant::now() + Duration::from_secs(60);
    while gateway.call("/").await? != 200 {
        ensure!(Instant::now() < deadline, "the cluster does not come to be");
    }
    let (mut here, mut there) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds as usize * CALLS / PIECE {
        for (rig, took) in [(&host, &mut here), (&gateway, &mut there)] {
            for _ in 0..PIECE {
                let begin = Instant::now();
                ensure!(rig.call("/").await? == 200, "a call failed");
                took.push(begin.elapsed());
            }
        }
    }
    let calls = r#"fdn_peer_calls_total{result="answered"}"#;
    let remote = gateway.metric(calls).await?;
    ensure!(remote >= there.len() as f64, "calls did not leave the node");
    let added = print("the instance is on this node", here);
    let all = print("it is on another node", there);
    println!("{:<34} {:>9.3}", "  added at p50", all - added);
    gateway.stop().await;
    host.stop().await;
    Ok(())
}

/// Prints a line; the median.
fn print(what: &str, mut took: Vec<Duration>) -> f64 {
    took.sort_unstable();
    let at = |share: usize| took[(took.len() - 1) * share / 100].as_secs_f64() * 1e3;
    println!(
        "{what:<34} {:>9.3} {:>9.3} {:>9.3}",
        at(50),
        at(99),
        at(100)
    );
    at(50)
}
