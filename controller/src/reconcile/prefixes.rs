//! Which of the prefixes with demand an app is planned for.
//!
//! **Problem.** Anybody can send queries in the name of any prefix, as often as they like. That must have a bounded cost, and must not
//! displace clients that really exist.
//!
//! **Method.** Prefixes from which gateways have measured calls come first, since round trips cannot be forged by queries. Then those
//! that asked repeatedly, the most recent first, beside the configured places. Those that asked once are planned for as long as they are
//! few; many of them are a flood, and all are ignored. Prefixes that are not planned for fade and are forgotten.
//!
//! **Complexity.** O(n log n) for the n prefixes of an app, which are bounded.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::net::IpAddr;

use fdn_core::{ClientPrefix, DurationMs, Timestamp};

use crate::store::demand::DemandRow;

/// Prefixes that asked once count as a flood if they are more than [`FEW`] and more than one in this many of the prefixes that an app may have.
const FLOOD: usize = 100;
/// See [`FLOOD`].
const FEW: usize = 16;
/// Recent demand below this is as good as forgotten.
const FAINT: f64 = 0.1;

/// The prefixes from which gateways have measured calls, of any app.
#[derive(Clone, Debug, Default)]
pub struct ActivePrefixes {
    prefixes: BTreeSet<(IpAddr, u8)>,
    lengths: BTreeSet<u8>,
}

impl ActivePrefixes {
    /// From the measured prefixes.
    #[must_use]
    pub fn new(prefixes: impl IntoIterator<Item = ClientPrefix>) -> Self {
        let prefixes = prefixes.into_iter();
        let prefixes: BTreeSet<_> = prefixes.map(|one| (one.addr(), one.len())).collect();
        Self {
            lengths: prefixes.iter().map(|(_, len)| *len).collect(),
            prefixes,
        }
    }

    /// Whether a prefix overlaps one of them: resolvers announce shorter prefixes than those by which calls are measured.
    #[must_use]
    pub fn overlaps(&self, prefix: ClientPrefix) -> bool {
        let mut from = self.prefixes.range((prefix.addr(), prefix.len())..);
        let inside = from.next().is_some_and(|(addr, _)| prefix.contains(*addr));
        let mut shorter = self.lengths.range(..prefix.len());
        inside
            || shorter.any(|len| {
                let around = ClientPrefix::new(prefix.addr(), *len);
                self.prefixes.contains(&(around.addr(), around.len()))
            })
    }
}

/// The criteria by which prefixes are ranked.
#[derive(Clone, Copy, Debug)]
pub struct DemandCriteria<'a> {
    /// The prefixes with measured calls.
    pub called: &'a ActivePrefixes,
    /// The most prefixes of one app.
    pub limit: usize,
    /// The half-life of demand.
    pub memory: DurationMs,
    /// The present time.
    pub now: Timestamp,
}

/// How certain it is that a prefix has real clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Certainty {
    Called,
    Again,
    Once,
}

impl DemandCriteria<'_> {
    /// The rows in order of certainty, then of recent demand.
    fn ranked<'r>(&self, rows: &'r [DemandRow]) -> Vec<(Certainty, f64, &'r DemandRow)> {
        let rank = |row: &'r DemandRow| {
            let sure = match row.queries {
                _ if self.called.overlaps(row.prefix) => Certainty::Called,
                0 | 1 => Certainty::Once,
                _ => Certainty::Again,
            };
            (sure, row.recent_at(self.now, self.memory), row)
        };
        let mut all: Vec<_> = rows.iter().map(rank).collect();
        all.sort_unstable_by(|a, b| -> Ordering {
            let sure = a.0.cmp(&b.0).then(b.1.total_cmp(&a.1));
            sure.then(a.2.prefix.cmp(&b.2.prefix))
        });
        all
    }

    /// The prefixes of one app that must be forgotten: those beyond the limit, those that asked once and not again, and those whose
    /// demand has faded.
    #[must_use]
    pub fn forgotten(&self, rows: &[DemandRow]) -> Vec<ClientPrefix> {
        let is_over = |(at, (sure, recent, row)): &(usize, (Certainty, f64, &DemandRow))| {
            let idle = self.now.since(row.last_seen);
            *at >= self.limit
                || *sure != Certainty::Called && *recent < FAINT
                || *sure == Certainty::Once && idle > self.memory.as_duration()
        };
        let all = self.ranked(rows).into_iter().enumerate();
        all.filter(is_over)
            .map(|(_, (_, _, row))| row.prefix)
            .collect()
    }
}

/// The prefixes with demand for an app, the most important first, with their recent demand.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DemandedPrefixes {
    /// All candidates, in order of importance.
    pub all: Vec<(ClientPrefix, f64)>,
    /// The number of prefixes at the front that certainly have clients.
    sure: usize,
    /// The number of those after them that asked repeatedly; the rest asked once.
    again: usize,
}

impl DemandedPrefixes {
    /// From the stored demand of one app.
    #[must_use]
    pub fn of(rows: &[DemandRow], criteria: &DemandCriteria<'_>) -> Self {
        let mut ranked = criteria.ranked(rows);
        let count = |sure: Certainty| ranked.iter().filter(|row| row.0 == sure).count();
        let (sure, again) = (count(Certainty::Called), count(Certainty::Again));
        if count(Certainty::Once) > FEW.max(criteria.limit / FLOOD) {
            ranked.truncate(sure + again);
        }
        let all = ranked.into_iter();
        Self {
            all: all.map(|(_, recent, row)| (row.prefix, recent)).collect(),
            sure,
            again,
        }
    }

    /// These prefixes, all counted as certain, with equal weight.
    #[must_use]
    pub fn uniform(prefixes: impl IntoIterator<Item = ClientPrefix>, weight: f64) -> Self {
        let all: Vec<_> = prefixes
            .into_iter()
            .map(|prefix| (prefix, weight))
            .collect();
        Self {
            sure: all.len(),
            again: 0,
            all,
        }
    }

    /// The prefixes to plan for, up to `limit`, including the configured places: of what the certain prefixes leave, half is reserved
    /// for the places before other prefixes, and more if those do not use it.
    #[must_use]
    pub fn chosen(
        &self,
        places: impl Iterator<Item = ClientPrefix>,
        limit: usize,
    ) -> BTreeSet<ClientPrefix> {
        let prefixes = |part: &[(ClientPrefix, f64)]| -> Vec<ClientPrefix> {
            part.iter().map(|(prefix, _)| *prefix).collect()
        };
        let (sure, others) = self.all.split_at(self.sure);
        let (again, once) = others.split_at(self.again);
        let half = limit.saturating_sub(sure.len()).div_ceil(2);
        let mut places: Vec<ClientPrefix> = places.take(limit).collect();
        let rest = places.split_off(half.min(places.len()));
        let parts = [
            prefixes(sure),
            places,
            prefixes(again),
            rest,
            prefixes(once),
        ];
        let mut chosen = BTreeSet::new();
        for prefix in parts.into_iter().flatten() {
            if chosen.len() < limit {
                chosen.insert(prefix);
            }
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(100_000_000);
    const MEMORY: DurationMs = DurationMs::from_secs(600);

    fn prefix(text: &str) -> ClientPrefix {
        text.parse().expect("prefix")
    }

    fn row(text: &str, queries: u64, seconds_ago: u64) -> DemandRow {
        DemandRow {
            app: "hello".parse().expect("app"),
            prefix: prefix(text),
            queries,
            recent: queries as f64,
            last_seen: Timestamp(NOW.0 - seconds_ago * 1000),
        }
    }

    fn called(prefixes: &[&str]) -> ActivePrefixes {
        ActivePrefixes::new(prefixes.iter().map(|text| prefix(text)))
    }

    fn criteria(called: &ActivePrefixes, limit: usize) -> DemandCriteria<'_> {
        DemandCriteria {
            called,
            limit,
            memory: MEMORY,
            now: NOW,
        }
    }

    fn names(prefixes: impl IntoIterator<Item = ClientPrefix>) -> Vec<String> {
        prefixes.into_iter().map(|one| one.to_string()).collect()
    }

    #[test]
    fn calls_are_of_a_prefix_whose_clients_make_them_however_it_is_told() {
        let called = called(&["192.0.2.0/24", "2001:db8:1::/48"]);
        for meets in [
            "192.0.2.0/24",
            "192.0.0.0/20",
            "192.0.2.128/25",
            "2001:db8:1:2::/56",
            "2001:db8::/32",
        ] {
            assert!(called.overlaps(prefix(meets)), "{meets}");
        }
        for apart in [
            "192.0.3.0/24",
            "192.0.16.0/20",
            "2001:db8:2::/48",
            "198.51.100.0/24",
        ] {
            assert!(!called.overlaps(prefix(apart)), "{apart}");
        }
        assert!(!ActivePrefixes::default().overlaps(prefix("192.0.2.0/24")));
    }

    #[test]
    fn who_is_called_comes_first_then_who_asks_again_then_who_asked_once() {
        let called = called(&["192.0.2.0/24"]);
        let rows = [
            row("10.0.0.0/24", 1, 0),
            row("10.0.1.0/24", 5, 0),
            row("10.0.2.0/24", 9, 0),
            row("192.0.2.0/24", 1, 60),
        ];
        let wanted = DemandedPrefixes::of(&rows, &criteria(&called, 100));
        assert_eq!(
            names(wanted.all.iter().map(|one| one.0)),
            ["192.0.2.0/24", "10.0.2.0/24", "10.0.1.0/24", "10.0.0.0/24"]
        );
        let places = ["198.51.100.0/24", "198.51.101.0/24", "198.51.102.0/24"].map(prefix);
        let chosen = |limit| names(wanted.chosen(places.into_iter(), limit));
        assert_eq!(chosen(1), ["192.0.2.0/24"]);
        // Places have half of the rest, and what nobody else wants.
        assert_eq!(
            chosen(5),
            [
                "10.0.1.0/24",
                "10.0.2.0/24",
                "192.0.2.0/24",
                "198.51.100.0/24",
                "198.51.101.0/24"
            ]
        );
        assert_eq!(chosen(6).len(), 6);
        assert!(!chosen(6).contains(&"10.0.0.0/24".to_owned()));
        assert_eq!(chosen(7).len(), 7);
    }

    #[test]
    fn a_flood_of_prefixes_that_ask_once_is_not_planned_for() {
        let called = called(&["192.0.2.0/24"]);
        let mut rows = vec![row("192.0.2.0/24", 1, 0), row("10.0.0.0/24", 2, 0)];
        let flood = |count: u16| {
            (0..count).map(|n| row(&format!("10.{}.{}.0/24", 1 + n / 256, n % 256), 1, 0))
        };
        rows.extend(flood(100));
        let few = DemandedPrefixes::of(&rows, &criteria(&called, 10_000));
        assert_eq!(few.all.len(), 102);
        rows.extend(flood(5_000).skip(100));
        let many = DemandedPrefixes::of(&rows, &criteria(&called, 10_000));
        assert_eq!(
            names(many.all.iter().map(|one| one.0)),
            ["192.0.2.0/24", "10.0.0.0/24"]
        );
        // They are kept for a while: some of them ask again.
        assert_eq!(criteria(&called, 10_000).forgotten(&rows), []);
    }

    #[test]
    fn made_up_prefixes_push_no_real_one_out_and_are_forgotten() {
        let called = called(&["198.51.100.0/24"]);
        // One asks again and again, of another one there are calls; both were not seen for a minute.
        let mut rows = vec![row("192.0.2.0/24", 50, 60), row("198.51.100.0/24", 1, 60)];
        rows.extend((0..50).map(|third| row(&format!("10.9.{third}.0/24"), 2, 0)));
        let gone = criteria(&called, 2).forgotten(&rows);
        assert_eq!(gone.len(), 50);
        assert!(
            gone.iter()
                .all(|one| prefix("10.9.0.0/16").contains(one.addr()))
        );
        // Who asked once is forgotten when it does not ask again, who asked more often later, who calls never.
        let rows = [
            row("10.0.0.0/24", 1, 601),
            row("10.0.1.0/24", 1, 599),
            row("10.0.2.0/24", 2, 3_600),
            row("10.0.3.0/24", 2, 600 * 20),
            row("198.51.100.0/24", 1, 600 * 16),
        ];
        assert_eq!(
            names(criteria(&called, 10).forgotten(&rows)),
            ["10.0.3.0/24", "10.0.0.0/24"]
        );
    }
}
