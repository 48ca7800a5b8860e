//! Min-min, max-min and ETF: which of the ready tasks goes next is decided together with where it goes.
//!
//! **Problem.** As Heu-Orche's. Each task whose parents are placed has a best cluster; the rule picks one of the tasks, which goes to its
//! best cluster.
//!
//! **Source.** Min-min and max-min: Ibarra, Kim, JACM 24(2), 1977, as in Braun et al., JPDC 61(6), 2001. ETF: Hwang, Chow, Anger,
//! Lee, "Scheduling Precedence Graphs in Systems with Interprocessor Communication Times", SIAM J. Comput. 18(2), 1989.
//!
//! | rule | best cluster of a task | the task that goes next |
//! | --- | --- | --- |
//! | [`ReadyRule::MinMin`] | earliest finish | the one that finishes first |
//! | [`ReadyRule::MaxMin`] | earliest finish | the one that finishes last |
//! | [`ReadyRule::EarliestStart`] (ETF) | earliest start, then earliest finish | the one that starts first, then the longest path to the end |
//!
//! **Readings.** A task is ready when its parents are placed, not when they have finished. All three only append. The way back counts for
//! the finish of exits where the options say so. ETF's path to the end is without transfers. Ties: the smaller task index, then the
//! smaller cluster index.
//!
//! **Complexity.** O(n(m + |E|) + m r) for n clusters, m tasks and at most r ready ones: a placement changes only its own cluster, and
//! never for the better, so only the tasks whose best cluster it was are rated again (O(n m r) if that is all of them each time).
//!
//! **Invariants.** Those of Heu-Orche.

use fdn_core::Millis;

use super::super::calendar::Append;
use super::super::engine::Engine;
use super::super::explain::{Report, TaskReport};
use super::super::{Detail, Infeasible, Placer, Plan, Planned, Problem};
use super::Key;
use crate::dag::TaskIndex;

/// Which of the ready tasks goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadyRule {
    /// The one that can finish first.
    MinMin,
    /// The one that finishes last on its best cluster.
    MaxMin,
    /// The one that can start first.
    EarliestStart,
}

/// A task whose parents are placed.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    task: TaskIndex,
    /// The index of its row in the buffer of times at which its data arrives on each cluster.
    row: usize,
    best: (Key, usize),
}

/// The placer with its buffers, which are reused from job to job.
#[derive(Debug)]
pub struct Ready {
    rule: ReadyRule,
    engine: Engine<Append>,
    /// By task: how many of its parents are not placed.
    parents: Vec<u32>,
    waiting: Vec<Waiting>,
    rows: Vec<f64>,
    unused: Vec<usize>,
    /// By task: the longest path to the end, without transfers.
    levels: Vec<Millis>,
    order: Vec<TaskIndex>,
}

impl Ready {
    /// A placer with this rule.
    #[must_use]
    pub fn new(rule: ReadyRule) -> Self {
        Self {
            rule,
            engine: Engine::default(),
            parents: Vec::new(),
            waiting: Vec::new(),
            rows: Vec::new(),
            unused: Vec::new(),
            levels: Vec::new(),
            order: Vec::new(),
        }
    }

    fn begin(&mut self, problem: &Problem<'_>) {
        let dag = problem.dag();
        self.engine.begin(problem);
        self.parents.clear();
        let parents = dag
            .indices()
            .map(|task| u32::try_from(dag.parents(task).count()).unwrap_or(u32::MAX));
        self.parents.extend(parents);
        self.waiting.clear();
        self.rows.clear();
        self.unused.clear();
        self.order.clear();
        let work = problem.mean_work(|p| self.engine.is_usable(p));
        self.levels.clear();
        self.levels.resize(dag.len(), Millis::ZERO);
        for &task in dag.topological().iter().rev() {
            let tails = dag
                .children(task)
                .map(|(child, _)| self.levels[child.get()]);
            let tail = tails.fold(Millis::ZERO, Millis::max);
            self.levels[task.get()] = Millis::new(work(task)) + tail;
        }
    }

    /// Adds a task whose parents are all placed.
    fn admit(&mut self, problem: &Problem<'_>, task: TaskIndex) -> Result<(), Infeasible> {
        self.engine.take_up(problem, task);
        let clusters = self.engine.clusters();
        let row = self.unused.pop().unwrap_or_else(|| {
            let row = self.rows.len();
            self.rows.resize(row + clusters, 0.0);
            row
        });
        self.rows[row..row + clusters].copy_from_slice(self.engine.all_ready());
        let best = self.best(problem, task)?;
        self.waiting.push(Waiting { task, row, best });
        Ok(())
    }

    /// The best cluster of the current task.
    fn best(&self, problem: &Problem<'_>, task: TaskIndex) -> Result<(Key, usize), Infeasible> {
        let mut best = (Key::NEVER, usize::MAX);
        for cluster in 0..self.engine.clusters() {
            let candidate = self.engine.candidate(problem, cluster);
            let key = match self.rule {
                ReadyRule::MinMin | ReadyRule::MaxMin => Key(candidate.key, 0.0),
                ReadyRule::EarliestStart => Key(candidate.start, candidate.key),
            };
            if candidate.excluded.is_none() && key < best.0 {
                best = (key, cluster);
            }
        }
        if best.1 == usize::MAX {
            return Err(self.engine.refuse(problem, task));
        }
        Ok(best)
    }

    /// Removes and returns the task that goes next by the rule.
    fn next(&mut self) -> Option<Waiting> {
        let urgency = |waiting: &Waiting| {
            let time = Millis::new(waiting.best.0.0);
            let (time, level) = match self.rule {
                ReadyRule::MinMin => (time.get(), 0.0),
                ReadyRule::MaxMin => (-time.get(), 0.0),
                ReadyRule::EarliestStart => (time.get(), -self.levels[waiting.task.get()].get()),
            };
            (Millis::new(time), Millis::new(level), waiting.task)
        };
        let (at, _) = self
            .waiting
            .iter()
            .enumerate()
            .min_by_key(|(_, waiting)| urgency(waiting))?;
        let next = self.waiting.swap_remove(at);
        self.unused.push(next.row);
        Some(next)
    }

    /// Rates again the waiting tasks whose best cluster was this one.
    fn rate_again(&mut self, problem: &Problem<'_>, cluster: usize) -> Result<(), Infeasible> {
        for at in 0..self.waiting.len() {
            let Waiting { task, row, best } = self.waiting[at];
            if best.1 == cluster {
                let ready = &self.rows[row..row + self.engine.clusters()];
                self.engine.resume(problem, task, ready);
                self.waiting[at].best = self.best(problem, task)?;
            }
        }
        Ok(())
    }

    fn put(&mut self, problem: &Problem<'_>, next: &Waiting, detail: Detail, report: &mut Report) {
        let Waiting { task, row, best } = *next;
        let ready = &self.rows[row..row + self.engine.clusters()];
        self.engine.resume(problem, task, ready);
        if detail == Detail::Full {
            let score = self.levels[task.get()];
            let explained = TaskReport::new(problem, &self.engine, task, score, best.1);
            report.tasks.push(explained);
        }
        self.engine.put(problem, task, best.1);
        self.order.push(task);
    }
}

impl Placer for Ready {
    fn name(&self) -> &'static str {
        match self.rule {
            ReadyRule::MinMin => "minmin",
            ReadyRule::MaxMin => "maxmin",
            ReadyRule::EarliestStart => "etf",
        }
    }

    fn place(&mut self, problem: &Problem<'_>, detail: Detail) -> Result<Planned, Infeasible> {
        self.begin(problem);
        let mut report = Report::default();
        self.admit(problem, problem.dag().entry())?;
        while let Some(next) = self.next() {
            self.put(problem, &next, detail, &mut report);
            self.rate_again(problem, next.best.1)?;
            for (child, _) in problem.dag().children(next.task) {
                self.parents[child.get()] -= 1;
                if self.parents[child.get()] == 0 {
                    self.admit(problem, child)?;
                }
            }
        }
        let placements = self.engine.placements().to_vec();
        Ok(Planned {
            plan: Plan::new(problem, placements, self.order.clone()),
            report,
        })
    }
}
