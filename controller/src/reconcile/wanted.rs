//! For whom an app is planned, of all who asked for it.

use fdn_core::{ClientPrefix, DurationMs, Timestamp};

use crate::store::demand::DemandRow;

/// Prefixes that asked for an app, the most important first, and how much each asked lately.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wanted {
    /// All of them.
    pub all: Vec<(ClientPrefix, f64)>,
    /// So many of the first are surely there. The others asked once, which anybody can do in anybody's name: places that are known come first.
    pub sure: usize,
}

impl Wanted {
    /// By what is stored; the order among equals stays.
    #[must_use]
    pub fn of(rows: &[DemandRow], now: Timestamp, memory: DurationMs) -> Self {
        let (sure, once): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.queries > 1);
        Self {
            sure: sure.len(),
            all: sure
                .into_iter()
                .chain(once)
                .map(|row| (row.prefix, row.recent_at(now, memory)))
                .collect(),
        }
    }

    /// These, all of them surely there, each with the same weight.
    #[must_use]
    pub fn alike(prefixes: impl IntoIterator<Item = ClientPrefix>, weight: f64) -> Self {
        let all: Vec<_> = prefixes
            .into_iter()
            .map(|prefix| (prefix, weight))
            .collect();
        Self {
            sure: all.len(),
            all,
        }
    }
}
