//! Pauses before the next attempt to connect, with jitter so that nodes do not return in step: short after an established connection was lost,
//! doubling up to a bound after failed attempts.

use std::time::Duration;

/// The pause after `failures` failures in a row (1 or more): `first` doubled for each further failure, at most `max`, times a factor between
/// a half and 1, chosen by `jitter` from 0 to 1.
#[must_use]
pub fn pause(failures: u32, first: Duration, max: Duration, jitter: f64) -> Duration {
    let doublings = failures.saturating_sub(1).min(30);
    let full = first.saturating_mul(1 << doublings).min(max);
    full.mul_f64(0.5 + 0.5 * jitter.clamp(0.0, 1.0))
}

/// The pause before a machine moves to another controller after its own died: `jitter`, from 0 to 1, times `spread`, within which all
/// its machines move.
pub(crate) fn moment(spread: Duration, jitter: f64) -> Duration {
    spread.mul_f64(jitter.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ControllerLinkSettings;

    #[test]
    fn the_machines_of_a_controller_that_died_go_within_the_spread_and_not_together() {
        let spread = ControllerLinkSettings::default().spread.as_duration();
        let machines = 1000_u32;
        let mut tenths = [0_u32; 10];
        for machine in 0..machines {
            let at = moment(spread, f64::from(machine) / f64::from(machines));
            let tenth = (0..10).find(|tenth| at < spread / 10 * (tenth + 1));
            tenths[tenth.expect("within the spread") as usize] += 1;
        }
        // Each tenth has its equal share, except for what falls on a boundary.
        assert!(tenths.iter().all(|n| n.abs_diff(100) <= 1), "{tenths:?}");
        // Whatever random number is drawn, no machine waits longer than the spread.
        assert_eq!(
            [moment(spread, -1.0), moment(spread, 9.0)],
            [Duration::ZERO, spread]
        );
    }

    #[test]
    fn pauses_double_up_to_the_bound() {
        let (first, max) = (Duration::from_secs(1), Duration::from_secs(60));
        let at = |failures| pause(failures, first, max, 1.0).as_secs();
        assert_eq!(
            [at(0), at(1), at(2), at(3), at(7), at(1000)],
            [1, 1, 2, 4, 60, 60]
        );
        assert_eq!(pause(3, first, max, 0.0), Duration::from_secs(2));
    }
}
