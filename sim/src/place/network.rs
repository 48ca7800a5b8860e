//! The network on which workflows are placed: its clusters, the links between them, and clients at a distance.

use std::path::Path;

use fdn_core::Millis;
use fdn_scheduling::place::{Bandwidth, Cluster, Link, Network, Speed};

use super::network_file;
use crate::Error;

/// A described network.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkModel {
    pub(super) clusters: Vec<Cluster>,
    pub(super) network: Network,
    pub(super) clients: Vec<Client>,
}

/// A client and its distance, one way, from each cluster.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Client {
    pub(super) id: String,
    pub(super) distance: Vec<Millis>,
}

/// Rates between two clusters in MB/s.
type Rate = (usize, usize, f64);

impl NetworkModel {
    /// The names of the models that are built in.
    pub const NAMES: [&'static str; 2] = ["edge5", "edge3u"];

    /// A model by its name, or from a file.
    ///
    /// # Errors
    /// When it is neither: with the JSON path of the fault in the file and what was expected there.
    pub fn load(name: &str) -> Result<Self, Error> {
        match name {
            "edge5" => Ok(Self::edge5()),
            "edge3u" => Ok(Self::edge3u()),
            file => network_file::read(Path::new(file)),
        }
    }

    /// Five clusters of different speeds, each pair with a link of its own rate; one slot each, no latency, no client.
    #[must_use]
    pub fn edge5() -> Self {
        const RATES: [Rate; 10] = [
            (0, 1, 100.0),
            (0, 2, 50.0),
            (0, 3, 25.0),
            (0, 4, 80.0),
            (1, 2, 40.0),
            (1, 3, 60.0),
            (1, 4, 20.0),
            (2, 3, 30.0),
            (2, 4, 90.0),
            (3, 4, 120.0),
        ];
        Self::built_in(&[1.0, 1.5, 0.75, 2.0, 1.25], &RATES)
    }

    /// Three clusters, one of them twice as fast, and the same rate between all; one slot each, no latency, no client.
    #[must_use]
    pub fn edge3u() -> Self {
        Self::built_in(
            &[1.0, 1.0, 2.0],
            &[(0, 1, 50.0), (0, 2, 50.0), (1, 2, 50.0)],
        )
    }

    fn built_in(speeds: &[f64], rates: &[Rate]) -> Self {
        let cluster = |(p, speed): (usize, &f64)| {
            let id = format!("c{p}")
                .parse()
                .expect("a letter and a digit are a name");
            Cluster::new(id, Speed::new(*speed), 1)
        };
        let link = |from: usize, to: usize| {
            let pair = (from.min(to), from.max(to));
            let rate = rates.iter().find(|(a, b, _)| (*a, *b) == pair);
            let rate = rate.and_then(|(_, _, rate)| Bandwidth::from_mb_per_s(*rate));
            Link {
                latency: Millis::ZERO,
                bandwidth: rate.expect("every pair has a rate above 0"),
            }
        };
        Self {
            clusters: speeds.iter().enumerate().map(cluster).collect(),
            network: Network::from_fn(speeds.len(), link),
            clients: Vec::new(),
        }
    }

    /// The clusters.
    #[must_use]
    pub fn clusters(&self) -> &[Cluster] {
        &self.clusters
    }

    /// The links.
    #[must_use]
    pub const fn network(&self) -> &Network {
        &self.network
    }

    /// How far a client is from each cluster; without a client no cluster is far.
    ///
    /// # Errors
    /// When there is no such client; the error names those that there are.
    pub fn distance(&self, client: Option<&str>) -> Result<Vec<Millis>, Error> {
        let Some(wanted) = client else {
            return Ok(vec![Millis::ZERO; self.clusters.len()]);
        };
        let found = self.clients.iter().find(|client| client.id == wanted);
        found.map(|client| client.distance.clone()).ok_or_else(|| {
            let names: Vec<&str> = self
                .clients
                .iter()
                .map(|client| client.id.as_str())
                .collect();
            Error::Usage(if names.is_empty() {
                format!("no client is called {wanted}; the network has none")
            } else {
                format!(
                    "no client is called {wanted}; there are {}",
                    names.join(", ")
                )
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_models_that_are_built_in_are_as_published() {
        let edge5 = NetworkModel::load("edge5").expect("built in");
        let speeds: Vec<f64> = edge5.clusters().iter().map(|c| c.speed.get()).collect();
        assert_eq!(speeds, [1.0, 1.5, 0.75, 2.0, 1.25]);
        for (from, to, seconds) in [
            (3, 0, 4.0),
            (0, 3, 4.0),
            (1, 2, 2.5),
            (4, 1, 5.0),
            (2, 2, 0.0),
        ] {
            let time = edge5.network().time(from, to, 100_000_000).get();
            assert!((time - seconds * 1e3).abs() < 1e-6, "{from} {to} {time}");
        }
        let edge3u = NetworkModel::load("edge3u").expect("built in");
        let time = edge3u.network().time(0, 2, 50_000_000).get();
        assert!((time - 1e3).abs() < 1e-6, "{time}");
        assert_eq!(edge3u.distance(None).expect("nobody"), [Millis::ZERO; 3]);
        let error = edge3u.distance(Some("u0")).expect_err("no client");
        assert_eq!(
            error.to_string(),
            "no client is called u0; the network has none"
        );
        for name in NetworkModel::NAMES {
            assert!(NetworkModel::load(name).is_ok());
        }
        assert!(NetworkModel::load("edge6").is_err());
    }
}
