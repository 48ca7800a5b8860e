//! Files that describe a network.
//!
//! ```json
//! {
//!   "clusters": [{"id": "c0", "speed": 1.0, "slots": 1, "idle": {"memory_mib": 65536}}],
//!   "links": [{"a": "c0", "b": "c1", "mb_per_s": 100.0, "latency_ms": 0.0}],
//!   "clients": [{"id": "u0", "latency_ms": {"c0": 12.5, "c1": 80.0}}]
//! }
//! ```
//!
//! Without `idle`, or a class in it, a cluster's resources are unlimited; without `latency_ms` a link has none; `clients` may be
//! left out. A link serves both directions, and every pair of clusters needs one; a client says its latency, one way, to every
//! cluster. Rates are in 10^6 bytes per second. A field of another name is refused, for it may be one of these misspelt.

use std::collections::BTreeMap;
use std::path::Path;

use fdn_core::{ClusterId, MebiBytes, MilliCpu, Millis, Resources};
use fdn_scheduling::live::SLOTS_MAX;
use fdn_scheduling::place::{Bandwidth, Cluster, Link, Network, Speed};
use serde::Deserialize;

use super::network::{Client, NetworkModel};
use crate::{Error, input};

/// The most clusters a file may have: links grow with their square.
const CLUSTERS_MAX: usize = 1024;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    clusters: Vec<FileCluster>,
    #[serde(default)]
    links: Vec<FileLink>,
    #[serde(default)]
    clients: Vec<FileClient>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileCluster {
    id: ClusterId,
    speed: f64,
    slots: u32,
    #[serde(default)]
    idle: Idle,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Idle {
    cpu_milli: Option<MilliCpu>,
    memory_mib: Option<MebiBytes>,
    gpu_memory_mib: Option<MebiBytes>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileLink {
    a: String,
    b: String,
    mb_per_s: f64,
    #[serde(default)]
    latency_ms: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileClient {
    id: String,
    latency_ms: BTreeMap<String, f64>,
}

/// A fault: the JSON path, and what was expected there.
type Fault = (String, String);

fn fault<T>(at: impl Into<String>, expected: impl Into<String>) -> Result<T, Fault> {
    Err((at.into(), expected.into()))
}

/// Reads a file, plain or gzip.
pub(super) fn read(path: &Path) -> Result<NetworkModel, Error> {
    let file: File = input::json(path)?;
    build(&file).map_err(|(at, expected)| Error::input(path, at, expected))
}

fn build(file: &File) -> Result<NetworkModel, Fault> {
    let (clusters, position) = clusters(&file.clusters)?;
    let links = links(&file.links, &file.clusters, &position)?;
    let network = Network::from_fn(clusters.len(), |from, to| {
        links[&(from.min(to), from.max(to))]
    });
    let clients = clients(&file.clients, &file.clusters, &position)?;
    Ok(NetworkModel {
        clusters,
        network,
        clients,
    })
}

/// Where each cluster stands in the file.
type Positions<'a> = BTreeMap<&'a str, usize>;

fn clusters(list: &[FileCluster]) -> Result<(Vec<Cluster>, Positions<'_>), Fault> {
    if list.is_empty() || list.len() > CLUSTERS_MAX {
        let expected = format!("{} clusters; expected 1 to {CLUSTERS_MAX}", list.len());
        return fault("clusters", expected);
    }
    let mut position = Positions::new();
    let mut clusters = Vec::with_capacity(list.len());
    for (at, cluster) in list.iter().enumerate() {
        let here = |field: &str| format!("clusters[{at}].{field}");
        let FileCluster {
            id,
            speed,
            slots,
            idle,
        } = cluster;
        if let Some(first) = position.insert(id.as_str(), at) {
            let expected = format!("{id} is there already, as clusters[{first}]; each id once");
            return fault(here("id"), expected);
        }
        if !(*speed > 0.0 && speed.is_finite()) {
            return fault(here("speed"), format!("{speed}; expected a number above 0"));
        }
        if !(1..=SLOTS_MAX).contains(slots) {
            return fault(here("slots"), format!("{slots}; expected 1 to {SLOTS_MAX}"));
        }
        let unlimited = Resources::UNLIMITED;
        let free = Resources {
            cpu_milli: idle.cpu_milli.unwrap_or(unlimited.cpu_milli),
            memory_mib: idle.memory_mib.unwrap_or(unlimited.memory_mib),
            gpu_memory_mib: idle.gpu_memory_mib.unwrap_or(unlimited.gpu_memory_mib),
        };
        clusters
            .push(Cluster::new(id.clone(), Speed::new(*speed), *slots as usize).with_free(free));
    }
    Ok((clusters, position))
}

/// The link of each pair of clusters, the smaller position first.
fn links(
    list: &[FileLink],
    clusters: &[FileCluster],
    position: &Positions<'_>,
) -> Result<BTreeMap<(usize, usize), Link>, Fault> {
    let mut links = BTreeMap::new();
    for (at, link) in list.iter().enumerate() {
        let here = |field: &str| format!("links[{at}].{field}");
        let FileLink {
            a,
            b,
            mb_per_s,
            latency_ms,
        } = link;
        let (from, to) = (
            find(position, a, || here("a"))?,
            find(position, b, || here("b"))?,
        );
        if from == to {
            return fault(
                here("b"),
                format!("{b} on both sides; expected two clusters"),
            );
        }
        let bandwidth = Bandwidth::from_mb_per_s(*mb_per_s).filter(|_| mb_per_s.is_finite());
        let Some(bandwidth) = bandwidth else {
            return fault(
                here("mb_per_s"),
                format!("{mb_per_s}; expected a number above 0"),
            );
        };
        let latency = latency(*latency_ms, || here("latency_ms"))?;
        let pair = (from.min(to), from.max(to));
        if links.insert(pair, Link { latency, bandwidth }).is_some() {
            let expected = format!("{a} and {b} are joined already; each pair once");
            return fault(format!("links[{at}]"), expected);
        }
    }
    for to in 0..clusters.len() {
        if let Some(from) = (0..to).find(|&from| !links.contains_key(&(from, to))) {
            let (a, b) = (&clusters[from].id, &clusters[to].id);
            return fault(
                "links",
                format!("none joins {a} and {b}; expected one for each pair"),
            );
        }
    }
    Ok(links)
}

fn clients(
    list: &[FileClient],
    clusters: &[FileCluster],
    position: &Positions<'_>,
) -> Result<Vec<Client>, Fault> {
    let mut clients: Vec<Client> = Vec::with_capacity(list.len());
    for (at, client) in list.iter().enumerate() {
        let id = &client.id;
        if clients.iter().any(|earlier| earlier.id == *id) {
            return fault(
                format!("clients[{at}].id"),
                format!("{id} is there already; each id once"),
            );
        }
        let mut distance = vec![None; clusters.len()];
        for (cluster, one_way) in &client.latency_ms {
            let here = || format!("clients[{at}].latency_ms.{cluster}");
            distance[find(position, cluster, here)?] = Some(latency(*one_way, here)?);
        }
        let known = |(distance, cluster): (Option<Millis>, &FileCluster)| match distance {
            Some(distance) => Ok(distance),
            None => fault(
                format!("clients[{at}].latency_ms"),
                format!("none to {}; expected one for each cluster", cluster.id),
            ),
        };
        clients.push(Client {
            id: id.clone(),
            distance: distance
                .into_iter()
                .zip(clusters)
                .map(known)
                .collect::<Result<_, _>>()?,
        });
    }
    Ok(clients)
}

fn find(position: &Positions<'_>, id: &str, here: impl Fn() -> String) -> Result<usize, Fault> {
    match position.get(id) {
        Some(&at) => Ok(at),
        None => fault(
            here(),
            format!("{id} is no cluster; expected the id of one"),
        ),
    }
}

fn latency(ms: f64, here: impl Fn() -> String) -> Result<Millis, Fault> {
    if ms >= 0.0 && ms.is_finite() {
        Ok(Millis::new(ms))
    } else {
        fault(here(), format!("{ms}; expected milliseconds, 0 or more"))
    }
}

#[cfg(test)]
mod tests;
