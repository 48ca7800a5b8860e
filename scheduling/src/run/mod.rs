//! One run of a workflow: which stage starts when and where, what is retried, and how the run ends. A pure state machine.
//!
//! Events come in, [`Action`]s come out. The caller carries them out, keeps the data, measures the time and communicates with clusters.
//!
//! | stage | all parents ended, condition holds | it does not hold | done | failed, again | failed for good | run ends |
//! | --- | --- | --- | --- | --- | --- | --- |
//! | waiting | running | skipped | – | – | – | skipped |
//! | running | – | – | done | paused | failed | ended |
//! | paused | – | – | – | running, at its time | – | ended |
//! | done, failed, skipped | – | – | – | – | – | – |
//!
//! **Attempts.** A stage has an ordered list of clusters. A failure is *safe* if the function certainly did not begin, or may run twice
//! without harm. A safe failure of a cluster (unreachable, lost, timed out) moves the stage to the next of its clusters at once, once for
//! each; all other safe failures, and those when no cluster is left, use up a retry, after a pause that doubles. A failure that is not
//! safe is final. So a stage has at most `clusters + retries` attempts, and every run ends.
//!
//! **Failures.** A failed stage is *handled* if one of its children runs on failures (`failure`, `always`). The first one that is not
//! ends the run: what is still running is cancelled, and nothing new starts.
//!
//! **Answer.** The outputs of the exits that are done, in the order of the stages. If there are none, the run has failed.
//!
//! Invariants, each a property test: a stage is done at most once, and only by its present attempt; no stage starts before all its
//! parents have ended and its condition holds; attempts are bounded; nothing follows [`Action::Finish`]; from every state some event or
//! the passing of time leads on.

mod stage;
#[cfg(test)]
mod tests;

use core::time::Duration;

use fdn_core::ClusterId;
use fdn_core::workflow::Condition;

pub use stage::{Failure, FailureKind, Settled};
use stage::{Stage, State};

/// A stage as planned before the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagePlan {
    /// Its parents, by index, in the order in which their outputs are passed to it.
    pub parents: Vec<usize>,
    /// On which outcome of its parents it runs.
    pub when: Condition,
    /// The clusters where it may run, best first; at least one.
    pub clusters: Vec<ClusterId>,
    /// How often it is retried where that is safe.
    pub retries: u32,
    /// The pause before the first retry.
    pub backoff: Duration,
    /// The timeout of one attempt.
    pub timeout: Duration,
    /// Whether its function may run twice without harm.
    pub idempotent: bool,
}

/// An event. Times are relative to the beginning of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An attempt at a stage has succeeded.
    Done {
        /// The stage's index.
        stage: usize,
        /// The number of the attempt.
        attempt: u32,
    },
    /// An attempt at a stage has failed.
    Failed {
        /// The stage's index.
        stage: usize,
        /// The number of the attempt.
        attempt: u32,
        /// What is known of the failure.
        failure: Failure,
    },
    /// Time has passed.
    Tick,
}

/// An action for the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Call a stage.
    Start {
        /// The stage's index.
        stage: usize,
        /// The cluster to call.
        cluster: ClusterId,
        /// The number of the attempt, from 1.
        attempt: u32,
        /// Its parents, in their order, with their outcomes.
        inputs: Vec<(usize, Settled)>,
        /// When the attempt times out.
        deadline: Duration,
    },
    /// Cancel an attempt whose outcome is no longer needed.
    Cancel {
        /// The stage's index.
        stage: usize,
        /// The number of the attempt.
        attempt: u32,
    },
    /// Discard a stage's output, which no other stage needs any more.
    Forget {
        /// The stage's index.
        stage: usize,
    },
    /// The run has ended.
    Finish(Outcome),
}

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Success, with the outputs of these stages.
    Answered(Vec<usize>),
    /// Failure of a stage that is not handled, or no output.
    Failed {
        /// The stage that failed.
        stage: usize,
        /// Its last attempt; 0 if there was none.
        attempt: u32,
        /// What is known of the failure.
        failure: Failure,
    },
    /// The deadline of the run has passed.
    Late {
        /// A stage that had not ended.
        stage: usize,
        /// Its last attempt; 0 if there was none.
        attempt: u32,
    },
}

/// The state of a run.
#[derive(Clone, Debug)]
pub struct Run {
    stages: Vec<Stage>,
    deadline: Duration,
    finished: bool,
}

impl Run {
    /// A run of these stages, which form a DAG with one entry, with the given deadline; returns also the first actions.
    #[must_use]
    pub fn new(plans: Vec<StagePlan>, deadline: Duration) -> (Self, Vec<Action>) {
        let mut children = vec![Vec::new(); plans.len()];
        for (index, plan) in plans.iter().enumerate() {
            for parent in &plan.parents {
                children[*parent].push(index);
            }
        }
        let stages = plans.into_iter().zip(children);
        let mut run = Self {
            stages: stages
                .map(|(plan, children)| Stage::new(plan, children))
                .collect(),
            deadline,
            finished: false,
        };
        let mut actions = Vec::new();
        run.advance(Duration::ZERO, &mut actions);
        (run, actions)
    }

    /// Handles an event at time `now`.
    pub fn apply(&mut self, event: Event, now: Duration) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.finished {
            return actions;
        }
        match event {
            Event::Done { stage, attempt } => {
                if self.runs(stage, attempt) {
                    self.stages[stage].state = State::Settled(Settled::Done);
                }
            }
            Event::Failed {
                stage,
                attempt,
                failure,
            } => {
                if self.runs(stage, attempt) {
                    self.failed(stage, failure, now, &mut actions);
                }
            }
            Event::Tick => {}
        }
        if !self.finished {
            self.pass_time(now, &mut actions);
        }
        if !self.finished {
            self.advance(now, &mut actions);
        }
        actions
    }

    /// When [`Event::Tick`] is due if no other event comes before; `None` if nothing is pending.
    #[must_use]
    pub fn next_due(&self) -> Option<Duration> {
        if self.finished {
            return None;
        }
        let stages = self.stages.iter().filter_map(|stage| match stage.state {
            State::Running { deadline } => Some(deadline),
            State::Paused { until } => Some(until),
            State::Waiting | State::Settled(_) => None,
        });
        stages.chain([self.deadline]).min()
    }

    /// The outcome of a stage; `None` if it has not ended.
    #[must_use]
    pub fn settled(&self, stage: usize) -> Option<Settled> {
        match self.stages.get(stage)?.state {
            State::Settled(settled) => Some(settled),
            State::Waiting | State::Running { .. } | State::Paused { .. } => None,
        }
    }

    /// The last failure of a stage; `None` if it has not failed.
    #[must_use]
    pub fn failure(&self, stage: usize) -> Option<&Failure> {
        self.stages.get(stage)?.failure.as_ref()
    }

    /// The number of attempts made at a stage.
    #[must_use]
    pub fn attempts(&self, stage: usize) -> u32 {
        self.stages.get(stage).map_or(0, |stage| stage.attempts)
    }

    fn runs(&self, stage: usize, attempt: u32) -> bool {
        self.stages.get(stage).is_some_and(|stage| {
            stage.attempts == attempt && matches!(stage.state, State::Running { .. })
        })
    }

    fn failed(&mut self, at: usize, failure: Failure, now: Duration, actions: &mut Vec<Action>) {
        let stage = &mut self.stages[at];
        let next = stage.after(&failure, now);
        stage.failure = Some(failure.clone());
        stage.state = match next {
            Some(until) => State::Paused { until },
            None => State::Settled(Settled::Failed),
        };
        if next.is_none() && !self.is_taken_up(at) {
            let attempt = self.stages[at].attempts;
            self.finish(
                Outcome::Failed {
                    stage: at,
                    attempt,
                    failure,
                },
                actions,
            );
        }
    }

    fn is_taken_up(&self, stage: usize) -> bool {
        let children = self.stages[stage].children.iter();
        children
            .map(|child| self.stages[*child].plan.when)
            .any(|when| matches!(when, Condition::Failure | Condition::Always))
    }

    /// Ends what has timed out, and starts retries that are due.
    fn pass_time(&mut self, now: Duration, actions: &mut Vec<Action>) {
        if now >= self.deadline {
            let late = self.stages.iter().position(|stage| !stage.is_settled());
            // If every stage has ended, the run is finished already.
            if let Some(stage) = late {
                let attempt = self.stages[stage].attempts;
                self.finish(Outcome::Late { stage, attempt }, actions);
            }
            return;
        }
        for at in 0..self.stages.len() {
            let stage = &self.stages[at];
            let attempt = stage.attempts;
            if !matches!(stage.state, State::Running { deadline } if deadline <= now) {
                continue;
            }
            actions.push(Action::Cancel { stage: at, attempt });
            let told = format!("no answer within {:?}", stage.plan.timeout);
            let failure = Failure::new(FailureKind::Lost, told);
            self.failed(at, failure, now, actions);
            if self.finished {
                return;
            }
        }
        for at in 0..self.stages.len() {
            if matches!(self.stages[at].state, State::Paused { until } if until <= now) {
                self.start(at, now, actions);
            }
        }
    }

    /// Starts or skips every stage whose parents have all ended, discards unneeded outputs, and finishes when all stages have ended.
    fn advance(&mut self, now: Duration, actions: &mut Vec<Action>) {
        loop {
            let ready = (0..self.stages.len()).find_map(|at| Some((at, self.verdict(at)?)));
            match ready {
                Some((at, true)) => self.start(at, now, actions),
                Some((at, false)) => self.stages[at].state = State::Settled(Settled::Skipped),
                None => break,
            }
        }
        self.forget(actions);
        if self.stages.iter().all(Stage::is_settled) {
            let outcome = self.outcome();
            self.finish(outcome, actions);
        }
    }

    /// Whether a waiting stage must run; `None` while its parents have not ended.
    fn verdict(&self, at: usize) -> Option<bool> {
        let stage = &self.stages[at];
        if !matches!(stage.state, State::Waiting) {
            return None;
        }
        let parents = stage.plan.parents.iter();
        let ended: Option<Vec<Settled>> = parents.map(|parent| self.settled(*parent)).collect();
        let ended = ended?;
        Some(match stage.plan.when {
            Condition::Success => ended.iter().all(|one| *one == Settled::Done),
            Condition::Failure => ended.contains(&Settled::Failed),
            Condition::Always => true,
        })
    }

    fn start(&mut self, at: usize, now: Duration, actions: &mut Vec<Action>) {
        let parents = self.stages[at].plan.parents.iter();
        let inputs = parents
            .filter_map(|parent| Some((*parent, self.settled(*parent)?)))
            .collect();
        let stage = &mut self.stages[at];
        stage.attempts += 1;
        let deadline = now.saturating_add(stage.plan.timeout).min(self.deadline);
        stage.state = State::Running { deadline };
        actions.push(Action::Start {
            stage: at,
            cluster: stage.cluster().clone(),
            attempt: stage.attempts,
            inputs,
            deadline,
        });
    }

    fn forget(&mut self, actions: &mut Vec<Action>) {
        for at in 0..self.stages.len() {
            let stage = &self.stages[at];
            let has_output = matches!(stage.state, State::Settled(Settled::Done));
            let is_exit = stage.children.is_empty();
            if !has_output || is_exit || stage.forgotten {
                continue;
            }
            if stage
                .children
                .iter()
                .all(|child| self.stages[*child].is_settled())
            {
                self.stages[at].forgotten = true;
                actions.push(Action::Forget { stage: at });
            }
        }
    }

    fn outcome(&self) -> Outcome {
        let is_exit = |at: &usize| self.stages[*at].children.is_empty();
        let exits: Vec<usize> = (0..self.stages.len()).filter(is_exit).collect();
        let done: Vec<usize> = exits
            .iter()
            .copied()
            .filter(|at| self.settled(*at) == Some(Settled::Done))
            .collect();
        if !done.is_empty() {
            return Outcome::Answered(done);
        }
        let failed = (0..self.stages.len()).find(|at| self.settled(*at) == Some(Settled::Failed));
        let stage = failed.or(exits.first().copied()).unwrap_or_default();
        let failure = self.failure(stage).cloned().unwrap_or_else(|| {
            let told = "it did not run, because its condition did not hold, and no other exit ran";
            Failure::new(FailureKind::Refused, told)
        });
        Outcome::Failed {
            stage,
            attempt: self.attempts(stage),
            failure,
        }
    }

    fn finish(&mut self, outcome: Outcome, actions: &mut Vec<Action>) {
        self.finished = true;
        for (stage, one) in self.stages.iter().enumerate() {
            if matches!(one.state, State::Running { .. }) {
                let attempt = one.attempts;
                actions.push(Action::Cancel { stage, attempt });
            }
        }
        actions.push(Action::Finish(outcome));
    }
}
