//! Refinement: the best plan that a search finds with a given effort.
//!
//! **Problem.** As HEFT's. List schedulers decide once; where a plan is used for long, or a job runs for long, it pays to try more.
//!
//! **Source.** Simulated annealing (Kirkpatrick, Gelatt, Vecchi, Science 220, 1983) over list schedules: what is changed is the order
//! of the tasks and the cluster of each, and the schedule follows by insertion, as HEFT's does.
//!
//! 1. Start from the best plan, its tasks in order of start, of [`Heft`](super::Heft), [`Peft`](super::Peft), PEFT's choice in HEFT's order,
//!    [`Lookahead`](super::Lookahead) and [`HeuOrche`].
//! 2. Each step draws a task, mostly one of those that made the last answer late, because only changes to them can bring it sooner,
//!    and a change: another place in the order between its last parent and its first child (half of the
//!    steps), another cluster (a quarter), or the cluster of one of its parents and children (a quarter).
//! 3. The changed schedule is kept if its latency exceeds the present one by no more than `-T ln(u)`, `u` drawn from (0, 1]: the rule
//!    of Metropolis. `T` falls linearly from a share of the first latency to 0. The best schedule met is the result.
//!
//! Because `u` is drawn first, a schedule is given up as soon as the longest path behind what is placed, without transfers and on the
//! fastest clusters, shows that it will not be kept; and because a schedule is built as a stack, it is taken up again from the first
//! place at which it differs from the last one.
//!
//! **Readings.** The latency is the user's (formula 5), whatever [`super::Options::exit_leg`] says about single choices. Priorities are
//! kept as the order that they give. Resources held to the end of the job limit which clusters are drawn, those held by a task
//! its start. A draw that leads nowhere counts as a step.
//!
//! **Complexity.** The portfolio's, and for each step at most that of one HEFT schedule on one cluster per task: O(m k log m + |E|).
//! Where a change is kept, what made the last answer late is found in O(m) for each task of that chain. A step allocates nothing once
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

/// The share of the first latency at which the temperature starts.
const HOT: f64 = 0.01;

/// The search with its budget and buffers.
#[derive(Debug)]
pub struct Best {
    steps: u64,
    seed: u64,
    portfolio: Portfolio,
    heu_orche: HeuOrche,
    state: State,
    /// The best state met.
    best: State,
    decoder: Decoder,
    /// Of the present state: the tasks that made the last answer late.
    chain: Vec<TaskIndex>,
    engine: Engine<Timeline>,
}

impl Best {
    /// A search of so many steps, with the choices of this seed.
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

    /// The best plan that the search finds from a plan on; never a worse one.
    ///
    /// # Panics
    /// If the plan is not one for this problem.
    #[must_use]
    pub fn refine(&mut self, problem: &Problem<'_>, start: &Plan) -> Plan {
        self.search(problem, start);
        self.found(problem, Detail::Nothing).plan
    }

    /// Leaves the best state met in `best`.
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
        // How much of what is placed belongs to the present state: a change that was not kept leaves its end behind.
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

    /// Schedules the present state from a place in its order on. `None` as soon as the last answer comes later than `limit`.
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

    /// The best state met as a plan.
    fn found(&mut self, problem: &Problem<'_>, detail: Detail) -> Planned {
        let Self { best, engine, .. } = self;
        let cluster = |task| best.cluster(task);
        replay(problem, engine, &best.order, cluster, detail)
    }

    /// The plan with which the search begins.
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
