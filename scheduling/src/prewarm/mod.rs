//! Which later stages of a running workflow are told that their call will come, and when.
//!
//! **Problem.** A stage whose function has no instance waits for one to start: cold, a chain of stages waits as often as it is long. Where each stage
//! will run is known when the run begins, and about when it will; so its instance can start while the stages before it still run.
//!
//! **Way.** Whoever leads the run ([`Prewarm`]) works out when each stage is expected to start: when the last of its parents is expected to end, by what
//! each stage typically takes. Not earlier than [`Settings::horizon`] before that, the gateway where the stage will run is told, and answers what it has
//! done: an instance is there, one is started, or starting one takes so long that it is too early ([`Answer::Later`]). In that case it is told again when it
//! is time. Every begin and end of a stage makes all expectations anew.
//!
//! **Readings.** A start that comes too soon costs an instance that is idle for a moment, one that comes too late costs whoever waits. So a gateway starts
//! a quarter sooner than it must ([`is_due`]), and what a stage takes is learnt with a leaning to its short runs ([`lean`]). A stage that runs only upon
//! failures, and what needs such a stage, is not told.
//!
//! **Invariants**, each a property test: a stage is told only while it waits, at most [`TELLS`] times, and never again once an answer is final; no more
//! are asked at a time than may be; nothing is due earlier than the horizon allows; what is due is told when [`Prewarm::next_due`] says.
//!
//! **Complexity.** O(stages + edges) for each event.

#[cfg(test)]
mod tests;

use fdn_core::Millis;
use fdn_core::workflow::Condition;

/// How often one stage is told: whether it is warm, to start, and once more if the expectations have moved between.
pub const TELLS: u32 = 3;
/// How much sooner an instance is started than it must be, as a factor of what that takes.
const EARLY: f64 = 1.25;
/// How far a sample moves what is known, where it is less and where it is more.
const LEAN: (f64, f64) = (0.5, 0.1);

/// Bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// How long before its expected call a stage is told at the earliest; nothing is told if it is 0.
    pub horizon: Millis,
    /// How many stages are asked at a time.
    pub at_once: usize,
}

/// What is known of a stage before the run.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// Its parents, by index.
    pub parents: Vec<usize>,
    /// Upon which ending of them it runs.
    pub when: Condition,
    /// How long it typically takes, the way to it and back included.
    pub takes: Millis,
    /// Its function has answered just now where it will run: nothing need be told.
    pub is_warm: bool,
}

/// What a gateway has done about a call that will come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Answer {
    /// An instance is started.
    Started,
    /// One is free already, or is being started and claimed by nobody.
    Warm,
    /// There is no room for one beside what runs.
    NoRoom,
    /// It is too early: starting one takes so long.
    Later(Millis),
    /// The stage is not known there, or this is not.
    Unknown,
    /// Nobody answered.
    Lost,
}

impl Answer {
    /// The word for it, without the time.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Warm => "warm",
            Self::NoRoom => "no_room",
            Self::Later(_) => "later",
            Self::Unknown => "unknown",
            Self::Lost => "lost",
        }
    }
}

/// A stage that is to be told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tell {
    /// Which one.
    pub stage: usize,
    /// In how long its call is expected.
    pub within: Millis,
}

/// Whether an instance that takes `cold` to start is to be started now for a call that is expected in so long.
#[must_use]
pub fn is_due(within: Millis, cold: Millis) -> bool {
    within <= cold * EARLY
}

/// One step of learning how long a stage takes. It goes half the way to a shorter sample, and a tenth of the way to a longer one.
#[must_use]
pub fn lean(known: Option<Millis>, sample: Millis) -> Millis {
    let Some(known) = known else {
        return sample;
    };
    let share = if sample < known { LEAN.0 } else { LEAN.1 };
    known + (sample - known) * share
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Progress {
    Waiting,
    Running(Millis),
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Known {
    Nothing,
    Asked,
    Cold(Millis),
    /// Nothing more is to be told.
    Final,
}

#[derive(Clone, Debug)]
struct Row {
    stage: Stage,
    progress: Progress,
    known: Known,
    tells: u32,
}

/// What is told of one run.
#[derive(Clone, Debug)]
pub struct Prewarm {
    rows: Vec<Row>,
    /// Every stage after its parents.
    order: Vec<usize>,
    settings: Settings,
}

impl Prewarm {
    /// Of a run of these stages, which are a DAG, none of which has begun.
    #[must_use]
    pub fn new(stages: Vec<Stage>, settings: Settings) -> Self {
        let order = in_order(&stages);
        let row = |stage: Stage| Row {
            known: if stage.is_warm {
                Known::Final
            } else {
                Known::Nothing
            },
            stage,
            progress: Progress::Waiting,
            tells: 0,
        };
        Self {
            rows: stages.into_iter().map(row).collect(),
            order,
            settings,
        }
    }

    /// A stage is called, for the first time or again.
    pub fn begun(&mut self, stage: usize, now: Millis) {
        if let Some(row) = self.rows.get_mut(stage) {
            row.progress = Progress::Running(now);
        }
    }

    /// A stage has ended, or will not run.
    pub fn ended(&mut self, stage: usize) {
        if let Some(row) = self.rows.get_mut(stage) {
            row.progress = Progress::Ended;
        }
    }

    /// What came of having told a stage.
    pub fn answered(&mut self, stage: usize, answer: Answer) {
        let Some(row) = self.rows.get_mut(stage) else {
            return;
        };
        row.known = match answer {
            Answer::Later(cold) if row.tells < TELLS => Known::Cold(cold),
            Answer::Later(_)
            | Answer::Started
            | Answer::Warm
            | Answer::NoRoom
            | Answer::Unknown
            | Answer::Lost => Known::Final,
        };
    }

    /// The stages that are to be told now, the soonest first. Each is to be reported by [`Self::answered`].
    pub fn due(&mut self, now: Millis) -> Vec<Tell> {
        let asked = self.rows.iter().filter(|row| row.known == Known::Asked);
        let room = self.settings.at_once.saturating_sub(asked.count());
        let open = self.open(now);
        let due = open.into_iter().filter(|(_, at, _)| *at <= now);
        let mut due: Vec<Tell> = due
            .map(|(stage, _, start)| Tell {
                stage,
                within: start - now,
            })
            .collect();
        due.sort_by_key(|tell| (tell.within, tell.stage));
        due.truncate(room);
        for tell in &due {
            let row = &mut self.rows[tell.stage];
            row.known = Known::Asked;
            row.tells += 1;
        }
        due
    }

    /// When a stage is to be told next, if nothing happens before.
    #[must_use]
    pub fn next_due(&self, now: Millis) -> Option<Millis> {
        let open = self.open(now).into_iter();
        open.map(|(_, at, _)| at).filter(|at| *at > now).min()
    }

    /// The stages of which something may be told: when, and their expected start.
    fn open(&self, now: Millis) -> Vec<(usize, Millis, Millis)> {
        let is_open = |row: &Row| {
            row.progress == Progress::Waiting
                && matches!(row.known, Known::Nothing | Known::Cold(_))
        };
        if self.settings.horizon <= Millis::ZERO || !self.rows.iter().any(is_open) {
            return Vec::new();
        }
        let starts = self.starts(now);
        let open = self.rows.iter().zip(starts).enumerate();
        open.filter_map(|(at, (row, start))| {
            let start = start.filter(|_| is_open(row))?;
            let ahead = match row.known {
                Known::Cold(cold) => (cold * EARLY).min(self.settings.horizon),
                Known::Nothing | Known::Asked | Known::Final => self.settings.horizon,
            };
            Some((at, start - ahead, start))
        })
        .collect()
    }

    /// When each stage that waits is expected to start, if it is expected to run.
    fn starts(&self, now: Millis) -> Vec<Option<Millis>> {
        let mut ends = vec![now; self.rows.len()];
        let mut unlikely = vec![false; self.rows.len()];
        let mut starts = vec![None; self.rows.len()];
        for &at in &self.order {
            let Row {
                stage, progress, ..
            } = &self.rows[at];
            match progress {
                Progress::Ended => {}
                Progress::Running(since) => ends[at] = (*since + stage.takes).max(now),
                Progress::Waiting => {
                    let parents = stage.parents.iter();
                    let start = parents.map(|parent| ends[*parent]).max().unwrap_or(now);
                    ends[at] = start + stage.takes;
                    unlikely[at] = match stage.when {
                        Condition::Success => stage.parents.iter().any(|p| unlikely[*p]),
                        Condition::Failure => true,
                        Condition::Always => false,
                    };
                    starts[at] = (!unlikely[at]).then_some(start);
                }
            }
        }
        starts
    }
}

/// The stages, each after its parents.
fn in_order(stages: &[Stage]) -> Vec<usize> {
    let mut lacking: Vec<usize> = stages.iter().map(|stage| stage.parents.len()).collect();
    let mut children = vec![Vec::new(); stages.len()];
    for (at, stage) in stages.iter().enumerate() {
        for parent in &stage.parents {
            children[*parent].push(at);
        }
    }
    let mut order: Vec<usize> = (0..stages.len()).filter(|at| lacking[*at] == 0).collect();
    let mut next = 0;
    while let Some(&at) = order.get(next) {
        next += 1;
        for &child in &children[at] {
            lacking[child] -= 1;
            if lacking[child] == 0 {
                order.push(child);
            }
        }
    }
    order
}
