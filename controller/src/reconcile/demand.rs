//! Reported demand that the planner has not processed yet: bounded, and aggregated by app and prefix.

use std::collections::{BTreeMap, BTreeSet};

use fdn_core::{AppName, ClientPrefix, Timestamp};

use crate::store::demand::DemandRow;

/// The queue of demand for the planner.
#[derive(Debug, Default)]
pub struct Demand {
    pending: BTreeMap<(AppName, ClientPrefix), u64>,
    known: BTreeSet<(AppName, ClientPrefix)>,
    capacity: usize,
    dropped: u64,
}

impl Demand {
    /// A queue for up to `capacity` pairs of app and prefix.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity: capacity.max(1),
            ..Self::default()
        }
    }

    /// Adds a report. Returns true if a prefix without a plan has asked repeatedly, so that the planner must be woken; one that asked
    /// once waits for the next pass.
    pub fn add(&mut self, entries: Vec<(AppName, ClientPrefix, u64)>) -> bool {
        let mut news = false;
        for (app, prefix, queries) in entries {
            let key = (app, prefix.to_demand());
            let before = self.pending.get(&key).copied();
            if before.is_none() && self.pending.len() >= self.capacity {
                self.dropped += 1;
                continue;
            }
            let all = before.unwrap_or(0).saturating_add(queries);
            // Reported once per prefix, with its second query.
            let again = all > 1 && before.is_none_or(|before| before < 2);
            news |= again && !self.known.contains(&key);
            self.pending.insert(key, all);
        }
        news
    }

    /// Removes all entries, as rows last seen at `now`.
    pub fn take(&mut self, now: Timestamp) -> Vec<DemandRow> {
        std::mem::take(&mut self.pending)
            .into_iter()
            .map(|((app, prefix), queries)| DemandRow {
                app,
                prefix,
                queries,
                recent: queries as f64,
                last_seen: now,
            })
            .collect()
    }

    /// Puts back entries that could not be stored.
    pub fn put_back(&mut self, rows: Vec<DemandRow>) {
        self.add(
            rows.into_iter()
                .map(|row| (row.app, row.prefix, row.queries))
                .collect(),
        );
    }

    /// Sets the prefixes that have been planned for.
    pub fn set_known(&mut self, known: BTreeSet<(AppName, ClientPrefix)>) {
        self.known = known;
    }

    /// The number of entries dropped because the queue was full.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(app: &str, prefix: &str, queries: u64) -> (AppName, ClientPrefix, u64) {
        (
            app.parse().expect("app"),
            prefix.parse().expect("prefix"),
            queries,
        )
    }

    #[test]
    fn reports_add_up_by_prefix_and_are_bounded() {
        let mut demand = Demand::new(2);
        assert!(demand.add(vec![entry("a", "192.0.2.1", 2), entry("a", "192.0.2.9", 3)]));
        assert!(!demand.add(vec![
            entry("b", "192.0.2.0/24", 1),
            entry("c", "192.0.2.0/24", 1)
        ]));
        assert_eq!(demand.dropped(), 1);
        let rows = demand.take(Timestamp(7));
        let counts: Vec<_> = rows
            .iter()
            .map(|row| (row.app.as_str(), row.prefix.to_string(), row.queries))
            .collect();
        assert_eq!(
            counts,
            [
                ("a", "192.0.2.0/24".to_owned(), 5),
                ("b", "192.0.2.0/24".to_owned(), 1)
            ]
        );
        demand.put_back(rows);
        assert_eq!(demand.take(Timestamp(8)).len(), 2);
    }

    #[test]
    fn only_unknown_prefixes_that_ask_again_are_news() {
        let mut demand = Demand::new(10);
        demand.set_known(
            [(
                "a".parse().expect("app"),
                "192.0.2.0/24".parse().expect("prefix"),
            )]
            .into(),
        );
        assert!(!demand.add(vec![entry("a", "192.0.2.1", 5)]));
        assert!(!demand.add(vec![entry("a", "198.51.100.1", 1)]));
        assert!(demand.add(vec![entry("a", "198.51.100.1", 1)]));
        assert!(
            !demand.add(vec![entry("a", "198.51.100.1", 1)]),
            "said once"
        );
        assert!(demand.add(vec![entry("a", "203.0.113.1", 2)]));
    }
}
