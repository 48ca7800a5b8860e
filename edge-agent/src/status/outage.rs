//! Decides when to log that controllers accept no reports.
//!
//! Nobody need act on reports lost while everything starts, while a controller is replaced, or at the very end. So it is logged once when reports
//! have been lost for some time, and once when they are accepted again.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long reports must be lost before it is logged: longer than any startup.
const PATIENCE: Duration = Duration::from_secs(5);

/// Since when reports have been lost, and whether that was logged.
#[derive(Debug, Default)]
pub struct ReportOutage(Mutex<Option<(Instant, bool)>>);

impl ReportOutage {
    /// Records a lost report; returns whether to log it now.
    pub fn lost(&self, now: Instant) -> bool {
        let mut outage = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, logged) = outage.get_or_insert((now, false));
        let log_now = !*logged && now.saturating_duration_since(*since) >= PATIENCE;
        *logged |= log_now;
        log_now
    }

    /// Records an accepted report; returns whether the preceding loss was logged.
    pub fn accepted(&self) -> bool {
        let mut outage = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        outage.take().is_some_and(|(_, logged)| logged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_that_lasts_is_said_once_and_so_is_its_end() {
        let (outage, begin) = (ReportOutage::default(), Instant::now());
        let at = |ms| begin + Duration::from_millis(ms);
        assert!(!outage.accepted());
        assert!(!outage.lost(at(0)) && !outage.lost(at(4_999)));
        assert!(!outage.accepted(), "it was short");
        assert!(!outage.lost(at(5_000)), "it begins anew");
        assert!(outage.lost(at(10_000)) && !outage.lost(at(20_000)));
        assert!(outage.accepted() && !outage.accepted());
    }
}
