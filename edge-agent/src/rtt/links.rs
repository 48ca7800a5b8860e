//! Measures round-trip times to other clusters, on the path that workflows' data takes: placement weighs the data between stages with them.
//!
//! Each time, the next few clusters in turn are measured, each by a TCP connection to the address for stage calls of one of its nodes, also in
//! turn. The kernel times the handshake (`TCP_INFO`), so neither this node's load nor the other's distorts the result.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fdn_core::{ClusterId, DurationMs, Millis};
use futures::future::join_all;
use prometheus::IntCounterVec;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::tcp_info;
use crate::fleet::FleetView;

/// The latest round-trip times to other clusters, for choosing among them.
#[derive(Debug, Default)]
pub struct Nearness {
    measured: Mutex<BTreeMap<ClusterId, Millis>>,
    /// Emulated round-trip times, which override the measured ones.
    emulated: BTreeMap<ClusterId, Millis>,
}

impl Nearness {
    /// Without measurements; these one-way delays are emulated.
    #[must_use]
    pub fn new(emulated: &BTreeMap<ClusterId, DurationMs>) -> Self {
        let trip = |delay: &DurationMs| Millis::from(delay.as_duration()) * 2.0;
        let emulated = emulated.iter();
        Self {
            measured: Mutex::default(),
            emulated: emulated
                .map(|(to, delay)| (to.clone(), trip(delay)))
                .collect(),
        }
    }

    /// Stores measurements; forgets clusters that no longer accept stage calls.
    pub fn note(&self, measured: &[(ClusterId, Millis)], fleet: &FleetView) {
        let mut known = self.lock();
        known.extend(measured.iter().cloned());
        known.retain(|cluster, _| !fleet.stage_calls(cluster).is_empty());
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ClusterId, Millis>> {
        self.measured.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The round-trip time to a cluster; infinite if unknown.
    #[must_use]
    pub fn of(&self, cluster: &ClusterId) -> Millis {
        let known = self.emulated.get(cluster).copied();
        let known = known.or_else(|| self.lock().get(cluster).copied());
        known.unwrap_or(Millis::INFINITY)
    }

    /// At most `max` clusters with a round-trip time below `bound`, nearest first.
    #[must_use]
    pub fn within(&self, bound: Millis, max: usize) -> Vec<(ClusterId, Millis)> {
        let mut all = self.lock().clone();
        all.extend(self.emulated.iter().map(|(to, trip)| (to.clone(), *trip)));
        let mut near: Vec<_> = all.into_iter().filter(|(_, trip)| *trip < bound).collect();
        near.sort_by_key(|(_, trip)| *trip);
        near.truncate(max);
        near
    }
}

/// Measures the round-trip times to other clusters in turn.
#[derive(Debug)]
pub struct Links {
    own: ClusterId,
    at_once: usize,
    patience: Duration,
    /// The cluster that was measured last.
    last: Option<ClusterId>,
    /// How often the turn has begun again; selects the node of a cluster to measure.
    rounds: usize,
    results: IntCounterVec,
}

impl Links {
    /// For a node of cluster `own`: measures at most `at_once` other clusters each time, each within `patience`, and counts the results.
    #[must_use]
    pub const fn new(
        own: ClusterId,
        at_once: usize,
        patience: Duration,
        results: IntCounterVec,
    ) -> Self {
        Self {
            own,
            at_once,
            patience,
            last: None,
            rounds: 0,
            results,
        }
    }

    /// The clusters to measure next, with the address of the node to connect to.
    fn next(&mut self, fleet: &FleetView) -> Vec<(ClusterId, SocketAddr)> {
        let others: Vec<&ClusterId> = fleet
            .clusters()
            .filter(|cluster| **cluster != self.own)
            .collect();
        let last = self.last.as_ref();
        let first = others.partition_point(|cluster| last.is_some_and(|last| *cluster <= last));
        let mut turns = Vec::new();
        for step in 0..others.len().min(self.at_once) {
            let at = (first + step) % others.len();
            if at == 0 {
                self.rounds = self.rounds.wrapping_add(1);
            }
            let nodes = fleet.stage_calls(others[at]);
            if let Some(address) = nodes.get(self.rounds % nodes.len().max(1)) {
                turns.push((others[at].clone(), *address));
            }
            self.last = Some(others[at].clone());
        }
        turns
    }

    /// Measures the next clusters in turn; unreachable ones are left out.
    pub async fn measure(&mut self, fleet: &FleetView) -> Vec<(ClusterId, Millis)> {
        let patience = self.patience;
        let trips = self
            .next(fleet)
            .into_iter()
            .map(async |(cluster, address)| {
                let trip = timeout(patience, round_trip(address)).await.ok().flatten();
                (cluster, trip)
            });
        let mut measured = Vec::new();
        for (cluster, trip) in join_all(trips).await {
            let result = if trip.is_some() { "measured" } else { "failed" };
            self.results.with_label_values(&[result]).inc();
            measured.extend(trip.map(|trip| (cluster, Millis::from(trip))));
        }
        measured
    }
}

/// The round-trip time of a TCP handshake, if it succeeded.
async fn round_trip(address: SocketAddr) -> Option<Duration> {
    let stream = TcpStream::connect(address).await.ok()?;
    tcp_info::smoothed_rtt(stream.as_raw_fd())
}

#[cfg(test)]
mod tests {
    use fdn_core::fleet::FleetDesired;
    use prometheus::Opts;

    use super::*;

    fn links(at_once: usize) -> Links {
        let results = IntCounterVec::new(Opts::new("links", "for the test"), &["result"]);
        Links::new(
            "own".parse().expect("name"),
            at_once,
            Duration::from_secs(5),
            results.expect("metric"),
        )
    }

    fn view(clusters: &[(&str, &[SocketAddr])]) -> FleetView {
        let stage_calls: BTreeMap<ClusterId, Vec<SocketAddr>> = clusters
            .iter()
            .map(|(name, nodes)| (name.parse().expect("name"), nodes.to_vec()))
            .collect();
        let desired = FleetDesired {
            stage_calls,
            ..FleetDesired::default()
        };
        FleetView::new(&"node".parse().expect("name"), None, desired)
    }

    fn port(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    /// Each turn as `cluster:port`.
    fn names(turns: Vec<(ClusterId, SocketAddr)>) -> Vec<String> {
        turns
            .into_iter()
            .map(|(cluster, node)| format!("{cluster}:{}", node.port()))
            .collect()
    }

    #[test]
    fn every_other_cluster_has_its_turn_and_each_of_its_nodes() {
        let (one, two) = ([port(1)], [port(2), port(3)]);
        let fleet = view(&[("a", &one), ("b", &two), ("c", &one), ("own", &one)]);
        let mut links = links(2);
        let turns: Vec<Vec<String>> = (0..4).map(|_| names(links.next(&fleet))).collect();
        assert_eq!(turns[0], ["a:1", "b:3"]);
        assert_eq!(turns[1], ["c:1", "a:1"]);
        assert_eq!(turns[2], ["b:2", "c:1"]);
        assert_eq!(turns[3], ["a:1", "b:3"]);
    }

    #[test]
    fn whoever_comes_or_goes_the_others_keep_their_turns() {
        let one = [port(1)];
        let mut links = links(1);
        let mut next = |clusters: &[(&str, &[SocketAddr])]| names(links.next(&view(clusters)));
        assert_eq!(next(&[("a", &one), ("c", &one)]), ["a:1"]);
        assert_eq!(next(&[("a", &one), ("b", &one), ("c", &one)]), ["b:1"]);
        assert_eq!(next(&[("a", &one), ("d", &one)]), ["d:1"]);
        assert_eq!(next(&[("d", &one)]), ["d:1"]);
        assert!(next(&[("d", &[])]).is_empty());
        assert!(next(&[("own", &one)]).is_empty());
        assert!(next(&[]).is_empty());
    }

    #[tokio::test]
    async fn a_link_is_measured_by_a_handshake_and_one_that_is_cut_is_left_out() {
        let listener = tokio::net::TcpListener::bind(port(0)).await.expect("bound");
        let there = [listener.local_addr().expect("address")];
        let gone = tokio::net::TcpListener::bind(port(0)).await.expect("bound");
        let nobody = [gone.local_addr().expect("address")];
        drop(gone);
        let mut links = links(8);
        let measured = links.measure(&view(&[("a", &there), ("b", &nobody)])).await;
        assert_eq!(measured.len(), 1);
        assert_eq!(measured[0].0.as_str(), "a");
        assert!(measured[0].1.get() > 0.0 && measured[0].1.get() < 5000.0);
        let count = |result| links.results.with_label_values(&[result]).get();
        assert_eq!((count("measured"), count("failed")), (1, 1));
    }
}
