//! Whether controllers take reports, and when to say that they do not.
//!
//! A report that is lost while everything starts, while a controller is exchanged, or at the very end, is nothing that anybody need look at. So it is said
//! once, when reports have been lost for some time, and once when they are taken again.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long reports are lost before it is said: longer than everything takes to start.
const PATIENCE: Duration = Duration::from_secs(5);

/// Since when reports are lost, and whether that was said.
#[derive(Debug, Default)]
pub struct Silence(Mutex<Option<(Instant, bool)>>);

impl Silence {
    /// A report was lost; whether it is to be said now.
    pub fn lost(&self, now: Instant) -> bool {
        let mut silence = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, said) = silence.get_or_insert((now, false));
        let say = !*said && now.saturating_duration_since(*since) >= PATIENCE;
        *said |= say;
        say
    }

    /// A report was taken; whether the loss of those before it had been said.
    pub fn taken(&self) -> bool {
        let mut silence = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        silence.take().is_some_and(|(_, said)| said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_that_lasts_is_said_once_and_so_is_its_end() {
        let (silence, begin) = (Silence::default(), Instant::now());
        let at = |ms| begin + Duration::from_millis(ms);
        assert!(!silence.taken());
        assert!(!silence.lost(at(0)) && !silence.lost(at(4_999)));
        assert!(!silence.taken(), "it was short");
        assert!(!silence.lost(at(5_000)), "it begins anew");
        assert!(silence.lost(at(10_000)) && !silence.lost(at(20_000)));
        assert!(silence.taken() && !silence.taken());
    }
}
