//! Many runs: every way of choosing at every number of pre-schedulers, means over seeds.

use fdn_scheduling::commit::{Choice, NodeSelection, Ties};
use rayon::prelude::*;

use super::{Outcome, Setup, run, run_serially};
use crate::Error;
use crate::progress::Part;
use crate::seed::Seed;

/// How pre-schedulers choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The best of all nodes, equal ones by number.
    Best,
    /// The best of all nodes, equal ones in random order.
    BestRandom,
    /// The best of 50 random nodes, equal ones by number.
    Sample,
    /// The best of 50 random nodes, equal ones in random order.
    SampleRandom,
}

impl Way {
    /// Every way.
    pub const ALL: [Self; 4] = [
        Self::Best,
        Self::BestRandom,
        Self::Sample,
        Self::SampleRandom,
    ];

    /// In words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Best => "all nodes",
            Self::BestRandom => "all nodes, random ties",
            Self::Sample => "sample of 50",
            Self::SampleRandom => "sample of 50, random ties",
        }
    }

    /// This way with lists of the usual length.
    #[must_use]
    pub const fn choice(self, length: usize) -> Choice {
        let (selection, ties) = match self {
            Self::Best => (NodeSelection::All, Ties::Node),
            Self::BestRandom => (NodeSelection::All, Ties::Random),
            Self::Sample => (NodeSelection::Sample(50), Ties::Node),
            Self::SampleRandom => (NodeSelection::Sample(50), Ties::Random),
        };
        Choice {
            length,
            selection,
            ties,
        }
    }
}

/// Runs every setup with so many seeds, side by side; the means, in the order of the setups.
///
/// # Errors
/// The first error of a run.
pub fn means(setups: &[Setup], seeds: u64, part: &dyn Part) -> Result<Vec<Outcome>, Error> {
    over_seeds(setups, seeds, part, run)
}

/// The same for a serial scheduler.
///
/// # Errors
/// The first error of a run.
pub fn serial_means(setups: &[Setup], seeds: u64, part: &dyn Part) -> Result<Vec<Outcome>, Error> {
    over_seeds(setups, seeds, part, run_serially)
}

fn over_seeds(
    setups: &[Setup],
    seeds: u64,
    part: &dyn Part,
    run: impl Fn(&Setup) -> Result<Outcome, Error> + Sync,
) -> Result<Vec<Outcome>, Error> {
    let each: Vec<(usize, u64)> = (0..setups.len())
        .flat_map(|setup| (0..seeds).map(move |seed| (setup, seed)))
        .collect();
    let outcomes: Vec<Outcome> = each
        .par_iter()
        .map(|&(setup, seed)| {
            let mut setup = setups[setup];
            setup.seed = Seed(setup.seed.0 + seed);
            let outcome = run(&setup);
            part.advance(1);
            outcome
        })
        .collect::<Result<_, _>>()?;
    Ok(outcomes.chunks(seeds as usize).map(Outcome::mean).collect())
}
