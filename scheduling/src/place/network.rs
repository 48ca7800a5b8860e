//! Data transfer between clusters: `omega`.

use fdn_core::Millis;

/// The transfer rate of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bandwidth {
    ms_per_byte: f64,
}

impl Bandwidth {
    /// Unlimited: only the latency counts.
    pub const UNLIMITED: Self = Self { ms_per_byte: 0.0 };

    /// From megabytes (10^6 bytes) per second; `None` unless positive.
    #[must_use]
    pub fn from_mb_per_s(rate: f64) -> Option<Self> {
        (rate > 0.0).then(|| Self {
            ms_per_byte: 1.0 / (rate * 1e3),
        })
    }
}

/// One direction of the path between two clusters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// The time until the first byte arrives.
    pub latency: Millis,
    /// The rate at which the following bytes arrive.
    pub bandwidth: Bandwidth,
}

impl Link {
    /// Transfers take no time.
    pub const INSTANT: Self = Self {
        latency: Millis::ZERO,
        bandwidth: Bandwidth::UNLIMITED,
    };

    /// Unconnected: data never arrives.
    pub const NONE: Self = Self {
        latency: Millis::INFINITY,
        bandwidth: Bandwidth::UNLIMITED,
    };
}

/// The links of every ordered pair of clusters. Transfers within a cluster take no time.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    clusters: usize,
    latency: Vec<f64>,
    ms_per_byte: Vec<f64>,
}

impl Network {
    /// Evaluates `link` for every ordered pair of different cluster indices; negative latencies count as zero.
    #[must_use]
    pub fn from_fn(clusters: usize, mut link: impl FnMut(usize, usize) -> Link) -> Self {
        let mut network = Self {
            clusters,
            latency: Vec::with_capacity(clusters * clusters),
            ms_per_byte: Vec::with_capacity(clusters * clusters),
        };
        for from in 0..clusters {
            for to in 0..clusters {
                let Link { latency, bandwidth } = if from == to {
                    Link::INSTANT
                } else {
                    link(from, to)
                };
                network.latency.push(latency.max(Millis::ZERO).get());
                network.ms_per_byte.push(bandwidth.ms_per_byte);
            }
        }
        network
    }

    /// From the latencies (ms) and times per byte (ms) of every ordered pair, row by row of the sending cluster; a missing latency
    /// makes the pair unconnected.
    pub(crate) fn from_numbers(
        clusters: usize,
        mut latency: Vec<f64>,
        mut ms_per_byte: Vec<f64>,
    ) -> Self {
        latency.resize(clusters * clusters, f64::INFINITY);
        ms_per_byte.resize(clusters * clusters, 0.0);
        Self {
            clusters,
            latency,
            ms_per_byte,
        }
    }

    /// The same link between any two clusters.
    #[must_use]
    pub fn uniform(clusters: usize, link: Link) -> Self {
        Self::from_fn(clusters, |_, _| link)
    }

    /// Links that cost nothing: for a job of one task, or for fixed transfer times.
    #[must_use]
    pub fn instant(clusters: usize) -> Self {
        Self::uniform(clusters, Link::INSTANT)
    }

    /// The number of clusters.
    #[must_use]
    pub const fn clusters(&self) -> usize {
        self.clusters
    }

    /// `omega`: how long `bytes` bytes take from one cluster to another; zero within one.
    ///
    /// # Panics
    /// If an index is not below [`Network::clusters`].
    #[must_use]
    pub fn time(&self, from: usize, to: usize, bytes: u64) -> Millis {
        let at = from * self.clusters + to;
        Millis::new(self.latency[at] + bytes as f64 * self.ms_per_byte[at])
    }

    /// Latencies and times per byte, in ms, from one cluster to each.
    pub(crate) fn row(&self, from: usize) -> (&[f64], &[f64]) {
        let row = from * self.clusters..(from + 1) * self.clusters;
        (&self.latency[row.clone()], &self.ms_per_byte[row])
    }

    /// Mean latency and mean time per byte, in ms, over the connected ordered pairs of different clusters that `usable` accepts;
    /// zeros if there are none.
    pub(crate) fn mean(&self, usable: impl Fn(usize) -> bool) -> (f64, f64) {
        let (mut latency, mut per_byte, mut pairs) = (0.0, 0.0, 0.0);
        for from in (0..self.clusters).filter(|&p| usable(p)) {
            let (latencies, rates) = self.row(from);
            for to in (0..self.clusters).filter(|&q| q != from && usable(q)) {
                if latencies[to].is_finite() {
                    latency += latencies[to];
                    per_byte += rates[to];
                    pairs += 1.0;
                }
            }
        }
        if pairs == 0.0 {
            (0.0, 0.0)
        } else {
            (latency / pairs, per_byte / pairs)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(latency: f64, mb_per_s: f64) -> Link {
        Link {
            latency: Millis::new(latency),
            bandwidth: Bandwidth::from_mb_per_s(mb_per_s).expect("a positive rate"),
        }
    }

    #[test]
    fn time_is_latency_plus_size_by_rate_and_nothing_at_home() {
        let network = Network::from_fn(2, |from, _| link(5.0 + from as f64, 100.0));
        assert_eq!(network.time(0, 1, 1_000_000), Millis::new(15.0));
        assert_eq!(network.time(1, 0, 0), Millis::new(6.0));
        assert_eq!(network.time(1, 1, 1 << 40), Millis::ZERO);
        assert!(Bandwidth::from_mb_per_s(0.0).is_none());
        assert!(Bandwidth::from_mb_per_s(f64::NAN).is_none());
    }

    #[test]
    fn means_leave_out_self_pairs_unusable_clusters_and_missing_links() {
        let network = Network::from_fn(4, |from, to| match (from, to) {
            (0, 2) => Link::NONE,
            (3, _) | (_, 3) => link(1e6, 1e-3),
            _ => link((from + to) as f64, 10.0),
        });
        let (latency, per_byte) = network.mean(|p| p < 3);
        // 0-1, 1-0, 2-0, 1-2, 2-1: (1 + 1 + 2 + 3 + 3) / 5.
        assert!((latency - 2.0).abs() < 1e-12);
        assert!((per_byte - 1e-4).abs() < 1e-16);
        assert_eq!(network.mean(|p| p == 1), (0.0, 0.0));
    }
}
