//! Round-trip times to clients, by prefix, and to other clusters: measured by the kernel on real connections and reported to the controller.

pub mod links;
pub mod tcp_info;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fdn_core::{ClientPrefix, Millis};
use prometheus::IntCounter;

/// Samples since the last report: bounded, with one entry per prefix.
#[derive(Debug)]
pub struct RttTable {
    max: usize,
    dropped: IntCounter,
    samples: Mutex<BTreeMap<ClientPrefix, (Millis, u32)>>,
}

impl RttTable {
    /// A table of at most `max` prefixes; samples of further ones are counted in `dropped`.
    #[must_use]
    pub const fn new(max: usize, dropped: IntCounter) -> Self {
        Self {
            max,
            dropped,
            samples: Mutex::new(BTreeMap::new()),
        }
    }

    /// Records a round-trip time to `client`.
    pub fn note(&self, client: IpAddr, trip: Duration) {
        let prefix = ClientPrefix::host(client).to_demand();
        let trip = Millis::from(trip);
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((least, count)) = samples.get_mut(&prefix) {
            *least = (*least).min(trip);
            *count = count.saturating_add(1);
        } else if samples.len() < self.max {
            samples.insert(prefix, (trip, 1));
        } else {
            self.dropped.inc();
        }
    }

    /// Takes all samples: prefix, smallest round-trip time, number of samples.
    #[must_use]
    pub fn take(&self) -> Vec<(ClientPrefix, Millis, u32)> {
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *samples)
            .into_iter()
            .map(|(prefix, (least, count))| (prefix, least, count))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(max: usize) -> RttTable {
        RttTable::new(
            max,
            IntCounter::new("dropped", "for the test").expect("counter"),
        )
    }

    fn note(table: &RttTable, client: &str, ms: u64) {
        table.note(client.parse().expect("address"), Duration::from_millis(ms));
    }

    #[test]
    fn the_smallest_of_a_prefix_counts() {
        let table = table(10);
        note(&table, "203.0.113.7", 30);
        note(&table, "203.0.113.200", 20);
        note(&table, "::ffff:203.0.113.9", 40);
        note(&table, "2001:db8::1", 5);
        let taken: Vec<_> = table
            .take()
            .into_iter()
            .map(|(p, t, n)| (p.to_string(), t.get(), n))
            .collect();
        assert_eq!(
            taken,
            [
                ("203.0.113.0/24".into(), 20.0, 3),
                ("2001:db8::/56".into(), 5.0, 1)
            ]
        );
        assert!(table.take().is_empty());
    }

    #[test]
    fn prefixes_are_bounded() {
        let table = table(1);
        note(&table, "203.0.113.7", 30);
        note(&table, "198.51.100.1", 30);
        note(&table, "203.0.113.8", 10);
        assert_eq!(table.take().len(), 1);
        assert_eq!(table.dropped.get(), 1);
    }
}
