//! Round-trip times as gateways measure them: smoothed, bounded, and told on only when they changed notably.
//!
//! Smoothing is an exponentially weighted mean of what each report says is its smallest round trip. Whoever was not measured for the longest time
//! makes room for a newcomer.

use std::collections::BTreeMap;

use fdn_core::{ClientPrefix, ClusterId, Millis, Timestamp};

use crate::settings::GeoSettings;
use crate::store::rtt::RttRow;

/// Differences below this are noise, whatever share they are.
const NOISE: Millis = Millis::new(1.0);

/// What a gateway measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The clients.
    pub prefix: ClientPrefix,
    /// The gateway's cluster.
    pub cluster: ClusterId,
    /// The round trip.
    pub rtt: Millis,
    /// Connections.
    pub connections: u32,
}

/// The smoothed measurements.
#[derive(Debug)]
pub struct RttTable {
    entries: BTreeMap<(ClientPrefix, ClusterId), Entry>,
    removed: Vec<(ClientPrefix, ClusterId)>,
    capacity: usize,
    weight: f64,
    change: f64,
}

#[derive(Clone, Debug)]
struct Entry {
    rtt: Millis,
    samples: u64,
    updated_at: Timestamp,
    unwritten: bool,
}

impl RttTable {
    /// A table that goes on from what was stored.
    #[must_use]
    pub fn new(settings: &GeoSettings, stored: Vec<RttRow>) -> Self {
        let entries = stored
            .into_iter()
            .map(|row| {
                let entry = Entry {
                    rtt: row.rtt,
                    samples: row.samples,
                    updated_at: row.updated_at,
                    unwritten: false,
                };
                ((row.prefix, row.cluster), entry)
            })
            .collect();
        Self {
            entries,
            removed: Vec::new(),
            capacity: settings.rtt_entries.max(1),
            weight: settings.rtt_weight,
            change: settings.rtt_change,
        }
    }

    /// Takes a measurement in. What cannot be one is dropped.
    pub fn observe(&mut self, sample: Sample, now: Timestamp) {
        let Sample {
            prefix,
            cluster,
            rtt,
            connections,
        } = sample;
        if !rtt.is_finite() || rtt < Millis::ZERO || connections == 0 {
            return;
        }
        let key = (prefix.to_demand(), cluster);
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

    /// A sixteenth goes at a time, so that a stream of newcomers does not search the table for each.
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

    /// All measurements, by prefix and cluster.
    #[must_use]
    pub fn list(&self) -> Vec<(ClientPrefix, ClusterId, Millis)> {
        self.entries
            .iter()
            .map(|((prefix, cluster), entry)| (*prefix, cluster.clone(), entry.rtt))
            .collect()
    }

    /// Whether anything differs notably from what was told.
    #[must_use]
    pub fn differs(&self, told: &[(ClientPrefix, ClusterId, Millis)]) -> bool {
        let told: BTreeMap<_, _> = told
            .iter()
            .map(|(prefix, cluster, rtt)| ((*prefix, cluster), *rtt))
            .collect();
        told.len() != self.entries.len()
            || self.entries.iter().any(|((prefix, cluster), entry)| {
                match told.get(&(*prefix, cluster)) {
                    None => true,
                    Some(old) => {
                        let difference = (entry.rtt.get() - old.get()).abs();
                        difference > NOISE.get() && difference > old.get() * self.change
                    }
                }
            })
    }

    /// What must be written to and removed from the store; from now on it counts as done.
    pub fn take_unwritten(&mut self) -> (Vec<RttRow>, Vec<(ClientPrefix, ClusterId)>) {
        let mut rows = Vec::new();
        for ((prefix, cluster), entry) in &mut self.entries {
            if std::mem::take(&mut entry.unwritten) {
                rows.push(RttRow {
                    prefix: *prefix,
                    cluster: cluster.clone(),
                    rtt: entry.rtt,
                    samples: entry.samples,
                    updated_at: entry.updated_at,
                });
            }
        }
        let kept = |key: &(ClientPrefix, ClusterId)| self.entries.contains_key(key);
        let removed = std::mem::take(&mut self.removed)
            .into_iter()
            .filter(|key| !kept(key))
            .collect();
        (rows, removed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(prefix: &str, rtt: f64) -> Sample {
        Sample {
            prefix: prefix.parse().expect("prefix"),
            cluster: "eu-west".parse().expect("cluster"),
            rtt: Millis::new(rtt),
            connections: 1,
        }
    }

    fn table(rtt_entries: usize) -> RttTable {
        RttTable::new(
            &GeoSettings {
                rtt_entries,
                ..GeoSettings::default()
            },
            Vec::new(),
        )
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
        let told = table.list();
        assert!(!table.differs(&told));
        // 40 * 0.75 + 60 * 0.25 = 45: 12.5 % more.
        table.observe(sample("192.0.2.0", 60.0), Timestamp(2));
        assert!(!table.differs(&told));
        // 45 * 0.75 + 60 * 0.25 = 48.75: 21.9 % more.
        table.observe(sample("192.0.2.0", 60.0), Timestamp(3));
        assert!(table.differs(&told));
    }
}
