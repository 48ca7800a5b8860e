//! Refinement: simulated annealing within a given number of steps.
//!
//! **Problem.** As HEFT's. List schedulers decide once; where a plan is used for long, or a job runs for long, a search is worth its time.
//!
//! **Source.** Simulated annealing (Kirkpatrick, Gelatt, Vecchi, Science 220, 1983) over list schedules: what is changed is the order
//! of the tasks and the cluster of each, and the schedule follows by insertion, as HEFT's does.
//!
//! 1. Start from the best plan, its tasks in order of start, of [`Heft`](super::Heft), [`Peft`](super::Peft), PEFT's choice in HEFT's order,
//!    [`Lookahead`](super::Lookahead) and [`HeuOrche`].
//! 2. Each step draws a task, mostly one of the chain that determines the latency, because only changes to that chain can shorten it,
//!    and a change: another position in the order between its last parent and its first child (half of the
//!    steps), another cluster (a quarter), or the cluster of one of its parents and children (a quarter).
//! 3. The changed schedule is kept if its latency exceeds the present one by no more than `-T ln(u)`, `u` drawn from (0, 1]: the rule
//!    of Metropolis. `T` falls linearly from a share of the first latency to 0. The best schedule met is the result.
//!
//! Because `u` is drawn first, a schedule is abandoned as soon as a lower bound (the longest path behind the placed tasks, without
//! transfers and on the fastest clusters) shows that it will be rejected; and because a schedule is built as a stack, decoding resumes at
//! the first position at which it differs from the previous one.
//!
//! **Readings.** The latency is the user's (formula 5), whatever [`super::Options::exit_leg`] says about single choices. Priorities are
//! kept as the order that they give. Resources held to the end of the job ([`super::Hold::Job`]) limit which clusters are drawn; those held
//! by a task ([`super::Hold::Task`]) delay its start. A draw that yields no change counts as a step.
//!
//! **Complexity.** The portfolio's, and for each step at most that of one HEFT schedule on one cluster per task: O(m k log m + |E|).
//! Where a change is kept, the chain that determines the latency is found in O(m) per task of the chain. A step allocates nothing once
//! the buffers are warm.
//!
//! **Invariants.** Those of Heu-Orche; never worse than any of the plans it starts from; the same problem, steps and seed give the
//! same plan. More steps are not always better, because the temperature falls over all of them.

mod decode;
mod state;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::engine::Engine;
use super::replay::replay;
use super::timeline::Timeline;
use super::{Detail, HeuOrche, Infeasible, Placer, Plan, Planned, Portfolio, Problem};
use crate::dag::TaskIndex;
use decode::Decoder;
use state::State;

/// The initial temperature, as a share of the first plan's latency.
const HOT: f64 = 0.01;

/// The search with its budget and buffers.
#[derive(Debug)]
pub struct Best {
    steps: u64,
    seed: u64,
    portfolio: Portfolio,
    heu_orche: HeuOrche,
    state: State,
    /// The best state found.
    best: State,
    decoder: Decoder,
    /// Of the current state: the chain of tasks that determines the latency.
    chain: Vec<TaskIndex>,
    engine: Engine<Timeline>,
}

impl Best {
    /// A search of `steps` steps with a generator seeded by `seed`.
    #[must_use]
    pub fn new(steps: u64, seed: u64) -> Self {
        Self {
            steps,
            seed,
            portfolio: Portfolio::default(),
            heu_orche: HeuOrche::default(),
            state: State::default(),
            best: State::default(),
            decoder: Decoder::default(),
            chain: Vec::new(),
            engine: Engine::default(),
        }
    }

    /// Searches from the plan `start` on; the result is never worse than it.
    ///
    /// # Panics
    /// If the plan is not one of this problem.
    #[must_use]
    pub fn refine(&mut self, problem: &Problem<'_>, start: &Plan) -> Plan {
        self.search(problem, start);
        self.found(problem, Detail::Nothing).plan
    }

    /// Leaves the best state found in `best`.
    fn search(&mut self, problem: &Problem<'_>, start: &Plan) {
        self.state.begin(problem, start);
        self.decoder.begin(problem, self.state.usable());
        let mut present = self
            .decode(problem, 0, f64::INFINITY)
            .expect("what ends in a plan ends no later in order of its starts");
        let mut least = present;
        self.best.copy_from(&self.state);
        self.decoder.fill_chain(problem, &mut self.chain);
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let hot = start.latency().get() * HOT;
        // How much of the schedule belongs to the current state: a rejected change leaves its end behind.
        let mut valid = self.decoder.len();
        for step in 0..self.steps {
            let temperature = hot * (1.0 - step as f64 / self.steps as f64);
            let Some(change) = self.state.draw(problem, &self.chain, &mut rng) else {
                continue;
            };
            // 1 - [0, 1) is above 0, so the logarithm is finite.
            let limit = present - temperature * (1.0 - rng.random::<f64>()).ln();
            let first = self.state.apply(problem, change);
            if let Some(answer) = self.decode(problem, first.min(valid), limit) {
                valid = self.decoder.len();
                present = answer;
                self.decoder.fill_chain(problem, &mut self.chain);
                if answer < least {
                    least = answer;
                    self.best.copy_from(&self.state);
                }
            } else {
                valid = valid.min(first);
                self.state.undo(problem, change);
            }
        }
    }

    /// Schedules the current state from position `first` of its order on. `None` as soon as the latency is known to exceed `limit`.
    fn decode(&mut self, problem: &Problem<'_>, first: usize, limit: f64) -> Option<f64> {
        self.decoder.rewind(first);
        for &task in &self.state.order[first..] {
            let cluster = self.state.cluster(task);
            if self.decoder.push(problem, task, cluster)? > limit {
                return None;
            }
        }
        let exits = problem.dag().exits().iter();
        let answers = exits.map(|exit| self.decoder.answer(problem, *exit).get());
        Some(answers.fold(f64::NEG_INFINITY, f64::max))
    }

    /// The best state found, as a plan.
    fn found(&mut self, problem: &Problem<'_>, detail: Detail) -> Planned {
        let Self { best, engine, .. } = self;
        let cluster = |task| best.cluster(task);
        replay(problem, engine, &best.order, cluster, detail)
    }

    /// The initial plan: the best of the list schedulers named above.
    fn start(&mut self, problem: &Problem<'_>) -> Result<Plan, Infeasible> {
        let portfolio = self.portfolio.place(problem, Detail::Nothing);
        let heu_orche = self.heu_orche.place(problem, Detail::Nothing);
        match (portfolio, heu_orche) {
            (Ok(a), Ok(b)) if b.plan.latency() < a.plan.latency() => Ok(b.plan),
            (Ok(planned), _) | (Err(_), Ok(planned)) => Ok(planned.plan),
            (Err(_), Err(refused)) => Err(refused),
        }
    }
}

impl Placer for Best {
    fn name(&self) -> &'static str {
        "best"
    }

    fn place(&mut self, problem: &Problem<'_>, detail: Detail) -> Result<Planned, Infeasible> {
        let start = self.start(problem)?;
        self.search(problem, &start);
        Ok(self.found(problem, detail))
    }
}

#[cfg(test)]
mod tests;
