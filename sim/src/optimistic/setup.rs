//! What is simulated: the nodes, the schedulers at work, what a list costs.

use fdn_core::Millis;
use fdn_scheduling::commit::{Choice, NodeSelection, Settings, Ties};

use crate::Error;
use crate::seed::Seed;

/// Where containers come from and go to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Load {
    /// The nodes are empty at first, and are filled up to the utilisation; nothing ends.
    #[default]
    Filling,
    /// Containers run for exponential times of such a mean that the utilisation stays.
    Steady,
}

/// When pre-schedulers begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// One after the other within a time `t`, so that they do not all read at the same moment for ever.
    #[default]
    Spread,
    /// All at once.
    Together,
}

/// Equal nodes, and pre-schedulers that never run out of containers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setup {
    /// How many nodes.
    pub nodes: u32,
    /// How many containers run on a node at once.
    pub slots: u32,
    /// Containers take from one to so many slots, each number equally likely.
    pub demand_max: u32,
    /// Where containers come from and go to.
    pub load: Load,
    /// Which share of all slots is in use, in the mean or at the end.
    pub utilization: f64,
    /// K: how many pre-schedulers.
    pub pre_schedulers: u32,
    /// How a pre-scheduler chooses.
    pub choice: Choice,
    /// t: how long a pre-scheduler works on a container.
    pub scoring: Millis,
    /// What a list costs the committer.
    pub list_cost: Millis,
    /// What each changed entry of it costs more.
    pub changed_cost: Millis,
    /// When pre-schedulers begin.
    pub start: Start,
    /// At most how many lists are in flight; none: no bound.
    pub in_flight_max: Option<usize>,
    /// How many containers could be placed in the time that is measured ([`Load::Steady`]).
    pub lists: u32,
    /// The seed.
    pub seed: Seed,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            nodes: 500,
            slots: 100,
            demand_max: 10,
            load: Load::default(),
            utilization: 0.8,
            pre_schedulers: 1,
            choice: Choice {
                length: 5,
                selection: NodeSelection::All,
                ties: Ties::Random,
            },
            scoring: Millis::new(2.0),
            list_cost: Millis::new(0.02),
            changed_cost: Millis::new(0.005),
            start: Start::default(),
            in_flight_max: None,
            lists: 10_000,
            seed: Seed(1),
        }
    }
}

impl Setup {
    /// What a list costs of which every entry has changed.
    #[must_use]
    pub fn largest_cost(&self) -> Millis {
        self.list_cost + self.changed_cost * self.choice.length as f64
    }

    /// t/r: as many lists in flight as the committer can handle, at the most they cost, while one is made.
    #[must_use]
    pub fn with_back_pressure(mut self) -> Self {
        self.in_flight_max = Some(Settings::in_flight(self.scoring, self.largest_cost()));
        self
    }

    /// How the k-th pre-scheduler chooses: each has a part of its own, if they look at parts.
    #[must_use]
    pub const fn choice_of(&self, k: u32) -> Choice {
        let mut choice = self.choice;
        if let NodeSelection::Part { of, .. } = choice.selection {
            choice.selection = NodeSelection::Part { index: k, of };
        }
        choice
    }

    /// Containers per second that can be placed at most: K/t, or what the committer can handle.
    #[must_use]
    pub fn rate_per_s(&self) -> f64 {
        let made = f64::from(self.pre_schedulers) / self.scoring.get();
        made.min(1.0 / self.largest_cost().get()) * 1e3
    }

    /// The mean time a container runs, which gives the utilisation at the rate of [`Setup::rate_per_s`].
    #[must_use]
    pub fn lifetime(&self) -> Millis {
        Millis::new(self.running() / self.rate_per_s() * 1e3)
    }

    /// How long it takes to place what there is to place, at the rate of [`Setup::rate_per_s`].
    #[must_use]
    pub fn time(&self) -> Millis {
        let containers = match self.load {
            Load::Filling => self.running(),
            Load::Steady => f64::from(self.lists),
        };
        Millis::new(containers / self.rate_per_s() * 1e3)
    }

    /// How many containers run when the utilisation is reached, in the mean.
    #[must_use]
    pub fn running(&self) -> f64 {
        let mean = f64::from(self.demand_max + 1) / 2.0;
        self.utilization * f64::from(self.nodes) * f64::from(self.slots) / mean
    }

    /// Checks every value.
    ///
    /// # Errors
    /// The first value that cannot be used, in words.
    pub fn validate(&self) -> Result<(), Error> {
        let is_time = |time: Millis| time.is_finite() && time > Millis::ZERO;
        let rules = [
            (self.nodes >= 1 && self.slots >= 1, "there must be a slot"),
            (
                self.utilization > 0.0 && self.utilization < 1.0,
                "utilization must be between 0 and 1",
            ),
            (
                self.demand_max >= 1 && self.demand_max <= self.slots,
                "a container must take at least one slot and fit on a node",
            ),
            (self.pre_schedulers >= 1, "there must be a pre-scheduler"),
            (self.choice.length >= 1, "a list must have an entry"),
            (
                is_time(self.scoring) && is_time(self.list_cost),
                "times must be finite and above 0",
            ),
            (
                self.changed_cost.is_finite() && self.changed_cost >= Millis::ZERO,
                "costs must be finite and not below 0",
            ),
            (self.lists >= 1, "at least one list must be measured"),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            None => Ok(()),
            Some((_, rule)) => Err(Error::Usage((*rule).to_owned())),
        }
    }
}
