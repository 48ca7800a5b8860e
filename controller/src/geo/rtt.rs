//! Round-trip times that nodes measure, to clients and to other clusters: smoothed, bounded in number, and sent on only after a notable change.
//!
//! Smoothing is an exponentially weighted mean of the smallest round trips in the reports. The entry unmeasured for the longest time makes room for a
//! new one, and round trips to clients also expire. Each of several controllers gets a part of the reports; the results of the others come from the
//! store, and the newer value counts.

use std::collections::BTreeMap;

use fdn_core::{ClientPrefix, ClusterId, DurationMs, Millis, Timestamp};

use crate::settings::GeoSettings;
use crate::store::rtt::{ClientKey, LinkKey, RttRow};

/// Differences below this are noise, whatever their share.
const NOISE: Millis = Millis::new(1.0);

/// A measurement by a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample<K> {
    /// Its two ends.
    pub key: K,
    /// The round-trip time.
    pub rtt: Millis,
    /// The number of connections measured.
    pub connections: u32,
}

/// The smoothed round-trip times to clients.
pub type ClientTable = RttTable<ClientKey>;
/// The smoothed round-trip times between clusters.
pub type LinkTable = RttTable<LinkKey>;
/// Round-trip times by the cluster that measured and the cluster measured.
pub type Links = BTreeMap<ClusterId, BTreeMap<ClusterId, Millis>>;

/// A table of smoothed measurements.
#[derive(Debug)]
pub struct RttTable<K> {
    entries: BTreeMap<K, Entry>,
    removed: Vec<K>,
    capacity: usize,
    weight: f64,
    change: f64,
    keep: DurationMs,
}

#[derive(Clone, Debug)]
struct Entry {
    rtt: Millis,
    samples: u64,
    updated_at: Timestamp,
    unwritten: bool,
}

impl<K: Ord + Clone> RttTable<K> {
    fn new(settings: &GeoSettings, capacity: usize) -> Self {
        Self {
            entries: BTreeMap::new(),
            removed: Vec::new(),
            capacity: capacity.max(1),
            weight: settings.rtt_weight,
            change: settings.rtt_change,
            keep: settings.rtt_keep,
        }
    }

    /// Merges stored values: newer values count, and new keys without room are left out.
    pub fn merge(&mut self, stored: Vec<RttRow<K>>) {
        for row in stored {
            let known = self.entries.get(&row.key);
            let newer = known.is_none_or(|entry| entry.updated_at < row.updated_at);
            if newer && (known.is_some() || self.entries.len() < self.capacity) {
                let entry = Entry {
                    rtt: row.rtt,
                    samples: row.samples,
                    updated_at: row.updated_at,
                    unwritten: false,
                };
                self.entries.insert(row.key, entry);
            }
        }
    }

    /// Adds a measurement. Invalid ones are dropped.
    pub fn observe(&mut self, sample: Sample<K>, now: Timestamp) {
        let Sample {
            key,
            rtt,
            connections,
        } = sample;
        if !rtt.is_finite() || rtt < Millis::ZERO || connections == 0 {
            return;
        }
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.rtt = entry.rtt * (1.0 - self.weight) + rtt * self.weight;
            entry.samples = entry.samples.saturating_add(u64::from(connections));
            entry.updated_at = now;
            entry.unwritten = true;
            return;
        }
        if self.entries.len() >= self.capacity {
            self.evict();
        }
        self.entries.insert(
            key,
            Entry {
                rtt,
                samples: u64::from(connections),
                updated_at: now,
                unwritten: true,
            },
        );
    }

    /// A sixteenth of the table is evicted at a time, so that a stream of new keys does not sort it for each.
    fn evict(&mut self) {
        let mut by_age: Vec<_> = self
            .entries
            .iter()
            .map(|(key, entry)| (entry.updated_at, key.clone()))
            .collect();
        by_age.sort();
        for (_, key) in by_age.into_iter().take((self.capacity / 16).max(1)) {
            self.entries.remove(&key);
            self.removed.push(key);
        }
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The time of the newest change; 0 without entries.
    #[must_use]
    pub fn newest(&self) -> Timestamp {
        let times = self.entries.values().map(|entry| entry.updated_at);
        times.max().unwrap_or(Timestamp(0))
    }

    /// The rows to be written to the store, and the keys to be deleted from it; they count as written from now on.
    pub fn take_unwritten(&mut self) -> (Vec<RttRow<K>>, Vec<K>) {
        let mut rows = Vec::new();
        for (key, entry) in &mut self.entries {
            if std::mem::take(&mut entry.unwritten) {
                rows.push(RttRow {
                    key: key.clone(),
                    rtt: entry.rtt,
                    samples: entry.samples,
                    updated_at: entry.updated_at,
                });
            }
        }
        let kept = |key: &K| self.entries.contains_key(key);
        let removed = std::mem::take(&mut self.removed)
            .into_iter()
            .filter(|key| !kept(key))
            .collect();
        (rows, removed)
    }
}

impl ClientTable {
    /// An empty table of round-trip times to clients.
    #[must_use]
    pub fn of_clients(settings: &GeoSettings) -> Self {
        Self::new(settings, settings.rtt_entries)
    }

    /// Adds a measurement by a gateway of `cluster` to clients of `prefix`.
    pub fn observe_client(
        &mut self,
        (prefix, rtt, connections): (ClientPrefix, Millis, u32),
        cluster: &ClusterId,
        now: Timestamp,
    ) {
        let key = (prefix.to_demand(), cluster.clone());
        let sample = Sample {
            key,
            rtt,
            connections,
        };
        self.observe(sample, now);
    }

    /// Removes the entries that were not measured for [`GeoSettings::rtt_keep`]: clients who left a cluster because it was slow for a while are no
    /// longer measured from there, and would never return. Returns how many there were; the store removes its own, since another controller may have
    /// newer ones.
    pub fn expire(&mut self, now: Timestamp) -> usize {
        let keep = self.keep.as_duration();
        let before = self.entries.len();
        self.entries
            .retain(|_, entry| now.since(entry.updated_at) < keep);
        before - self.entries.len()
    }

    /// All measurements, by prefix and cluster.
    #[must_use]
    pub fn list(&self) -> Vec<(ClientPrefix, ClusterId, Millis)> {
        self.entries
            .iter()
            .map(|((prefix, cluster), entry)| (*prefix, cluster.clone(), entry.rtt))
            .collect()
    }

    /// Whether any value differs notably from `told`, which DNS servers were last sent.
    #[must_use]
    pub fn differs(&self, published: &[(ClientPrefix, ClusterId, Millis)]) -> bool {
        let published: BTreeMap<_, _> = published
            .iter()
            .map(|(prefix, cluster, rtt)| ((*prefix, cluster), *rtt))
            .collect();
        published.len() != self.entries.len()
            || self.entries.iter().any(|((prefix, cluster), entry)| {
                match published.get(&(*prefix, cluster)) {
                    None => true,
                    Some(old) => {
                        let difference = (entry.rtt.get() - old.get()).abs();
                        difference > NOISE.get() && difference > old.get() * self.change
                    }
                }
            })
    }
}

impl LinkTable {
    /// An empty table of round-trip times between clusters.
    #[must_use]
    pub fn of_links(settings: &GeoSettings) -> Self {
        Self::new(settings, settings.link_entries)
    }

    /// All measurements, by the cluster that measured. They never expire: a link that can no longer be measured is broken, not nearer.
    #[must_use]
    pub fn list(&self) -> Links {
        let mut links = Links::new();
        for ((from, to), entry) in &self.entries {
            let row = links.entry(from.clone()).or_default();
            row.insert(to.clone(), entry.rtt);
        }
        links
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(prefix: &str, rtt: f64) -> Sample<ClientKey> {
        let prefix: ClientPrefix = prefix.parse().expect("prefix");
        Sample {
            key: (prefix.to_demand(), "eu-west".parse().expect("cluster")),
            rtt: Millis::new(rtt),
            connections: 1,
        }
    }

    fn table(rtt_entries: usize) -> ClientTable {
        ClientTable::of_clients(&GeoSettings {
            rtt_entries,
            ..GeoSettings::default()
        })
    }

    #[test]
    fn of_two_controllers_the_newer_value_counts() {
        let row = |prefix: &str, rtt: f64, at: u64| RttRow {
            key: sample(prefix, rtt).key,
            rtt: Millis::new(rtt),
            samples: 7,
            updated_at: Timestamp(at),
        };
        let mut table = table(2);
        table.observe(sample("192.0.2.1", 10.0), Timestamp(5));
        table.merge(vec![
            row("192.0.2.1", 30.0, 4),
            row("198.51.100.1", 20.0, 1),
            row("203.0.113.1", 40.0, 9),
        ]);
        let trips = |table: &ClientTable| -> Vec<f64> {
            table.list().iter().map(|(.., rtt)| rtt.get()).collect()
        };
        assert_eq!(trips(&table), [10.0, 20.0], "no room for the third");
        table.merge(vec![row("192.0.2.1", 30.0, 6)]);
        assert_eq!(trips(&table), [30.0, 20.0]);
        assert_eq!(table.newest(), Timestamp(6));
        // Values from the store are not written back; new measurements continue from them.
        assert_eq!(table.take_unwritten().0, []);
        table.observe(sample("192.0.2.1", 10.0), Timestamp(8));
        assert_eq!(trips(&table), [25.0, 20.0]);
        assert_eq!(table.take_unwritten().0[0].samples, 8);
    }

    #[test]
    fn a_round_trip_that_is_no_longer_measured_expires() {
        const HOUR: u64 = 3_600_000;
        let mut table = table(10);
        table.observe(sample("192.0.2.1", 150.0), Timestamp(0));
        table.observe(sample("198.51.100.1", 20.0), Timestamp(HOUR + 1));
        assert_eq!(table.take_unwritten().0.len(), 2);
        let published = table.list();
        assert_eq!(table.expire(Timestamp(HOUR - 1)), 0);
        assert_eq!(table.list(), published, "not old yet");
        assert_eq!(table.expire(Timestamp(2 * HOUR)), 1);
        let left: Vec<f64> = table.list().iter().map(|(.., rtt)| rtt.get()).collect();
        assert_eq!(left, [20.0]);
        assert!(table.differs(&published), "DNS servers are told");
        let (rows, removed) = table.take_unwritten();
        assert_eq!((rows.len(), removed.len()), (0, 0));
        // Measured again, it starts afresh.
        table.observe(sample("192.0.2.1", 30.0), Timestamp(2 * HOUR + 1));
        assert_eq!(table.list()[0].2, Millis::new(30.0));
    }

    #[test]
    fn links_are_kept_by_direction() {
        let mut table = LinkTable::of_links(&GeoSettings::default());
        let name = |name: &str| -> ClusterId { name.parse().expect("cluster") };
        for (from, to, rtt) in [("a", "b", 10.0), ("b", "a", 12.0), ("a", "b", 14.0)] {
            let sample = Sample {
                key: (name(from), name(to)),
                rtt: Millis::new(rtt),
                connections: 1,
            };
            table.observe(sample, Timestamp(1));
        }
        let links = table.list();
        assert_eq!(links[&name("a")][&name("b")], Millis::new(11.0));
        assert_eq!(links[&name("b")][&name("a")], Millis::new(12.0));
        assert_eq!(table.take_unwritten().0.len(), 2);
    }

    #[test]
    fn measurements_are_smoothed_by_prefix() {
        let mut table = table(10);
        table.observe(sample("192.0.2.1", 10.0), Timestamp(1));
        table.observe(sample("192.0.2.200", 20.0), Timestamp(2));
        // 10 * 0.75 + 20 * 0.25
        assert_eq!(
            table.list(),
            [(
                "192.0.2.0/24".parse().expect("prefix"),
                "eu-west".parse().expect("cluster"),
                Millis::new(12.5)
            )]
        );
        let (rows, removed) = table.take_unwritten();
        assert_eq!((rows.len(), rows[0].samples, removed.len()), (1, 2, 0));
        assert_eq!(table.take_unwritten().0, []);
    }

    #[test]
    fn nonsense_is_dropped() {
        let mut table = table(10);
        table.observe(sample("192.0.2.1", -1.0), Timestamp(1));
        table.observe(sample("192.0.2.1", f64::NAN), Timestamp(1));
        table.observe(
            Sample {
                connections: 0,
                ..sample("192.0.2.1", 1.0)
            },
            Timestamp(1),
        );
        assert_eq!(table.list(), []);
    }

    #[test]
    fn the_longest_unmeasured_make_room() {
        let mut table = table(2);
        for (at, prefix) in ["192.0.2.0", "198.51.100.0", "203.0.113.0"]
            .iter()
            .enumerate()
        {
            table.observe(sample(prefix, 5.0), Timestamp(at as u64));
        }
        let left: Vec<String> = table
            .list()
            .iter()
            .map(|(prefix, ..)| prefix.to_string())
            .collect();
        assert_eq!(left, ["198.51.100.0/24", "203.0.113.0/24"]);
        let (_, removed) = table.take_unwritten();
        assert_eq!(removed[0].0.to_string(), "192.0.2.0/24");
    }

    #[test]
    fn only_notable_changes_are_told() {
        let mut table = table(10);
        table.observe(sample("192.0.2.0", 40.0), Timestamp(1));
        assert!(table.differs(&[]));
        let published = table.list();
        assert!(!table.differs(&published));
        // 40 * 0.75 + 60 * 0.25 = 45: 12.5 % more.
        table.observe(sample("192.0.2.0", 60.0), Timestamp(2));
        assert!(!table.differs(&published));
        // 45 * 0.75 + 60 * 0.25 = 48.75: 21.9 % more.
        table.observe(sample("192.0.2.0", 60.0), Timestamp(3));
        assert!(table.differs(&published));
    }
}
