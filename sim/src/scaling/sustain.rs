//! The highest rate that a scheduler sustains, and what theory says of full nodes.

use rayon::prelude::*;

use super::setup::Setup;
use super::simulate;
use crate::Error;

/// Two rates closer than this are one.
const CLOSE: f64 = 1.03;

/// The highest rate between two at which the run counts as sustained, by bisection of the logarithm; the lower one if none is.
/// The median over several seeds.
///
/// # Errors
/// When the setup cannot be used, or a rule was broken.
pub fn sustainable(setup: &Setup, (low, high): (f64, f64), seeds: u64) -> Result<f64, Error> {
    let one = |n: u64| {
        let (mut low, mut high) = (low, high);
        while high / low > CLOSE {
            let rate_per_s = (low * high).sqrt();
            let seed = setup.seed.nth(n);
            let sustained = simulate(&Setup {
                rate_per_s,
                seed,
                give_up: true,
                ..*setup
            })?
            .sustained;
            if sustained {
                low = rate_per_s;
            } else {
                high = rate_per_s;
            }
        }
        Ok(low)
    };
    let rates: Result<Vec<f64>, Error> = (0..seeds).into_par_iter().map(one).collect();
    let mut rates = rates?;
    rates.sort_unstable_by(f64::total_cmp);
    Ok(rates[rates.len() / 2])
}

/// The share of nodes that are full in the long run when tasks that find no room go to a random node with room: every node then
/// is an Erlang loss system of S slots, offered so much that U·S are busy.
#[must_use]
pub fn full_share(slots: u32, utilization: f64) -> f64 {
    let busy = utilization * f64::from(slots);
    // The busy slots grow with the load offered.
    let (mut low, mut high) = (0.0, f64::from(slots) * 1000.0);
    for _ in 0..200 {
        let offered = f64::midpoint(low, high);
        if offered * (1.0 - erlang_b(slots, offered)) < busy {
            low = offered;
        } else {
            high = offered;
        }
    }
    erlang_b(slots, low)
}

/// Erlang's loss formula, by its recursion.
fn erlang_b(slots: u32, offered: f64) -> f64 {
    (1..=slots).fold(1.0, |loss, servers| {
        offered * loss / (f64::from(servers) + offered * loss)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erlang_s_formula_gives_the_values_of_the_tables() {
        assert!((erlang_b(1, 1.0) - 0.5).abs() < 1e-12);
        assert!((erlang_b(2, 1.0) - 0.2).abs() < 1e-12);
        assert!((erlang_b(20, 18.0) - 0.1092).abs() < 1e-4);
    }

    #[test]
    fn full_nodes_are_more_than_a_loss_system_with_the_same_load_would_have() {
        // One slot: it is full as often as it is busy.
        assert!((full_share(1, 0.7) - 0.7).abs() < 1e-9);
        let full = full_share(20, 0.9);
        assert!((full - 0.28).abs() < 0.001, "{full}");
    }
}
