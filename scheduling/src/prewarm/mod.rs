//! Prewarming: which later stages of a running workflow are announced to their gateways, and when.
//!
//! **Problem.** A stage without a warm instance waits for one to start; in a chain of cold stages these waits add up. Where each stage
//! will run is known when the run begins, and roughly when; so its instance can start while earlier stages are still running.
//!
//! **Method.** The gateway that leads the run ([`Prewarm`]) estimates when each stage starts: when the last of its parents is expected to
//! end, by the typical duration of each stage. At most [`Settings::horizon`] before that, it announces the stage to the gateway where it
//! will run, which answers what it did: an instance is available, one is being started, or starting one takes so little time that it is
//! too early ([`Answer::Later`]). In that case the announcement is repeated later. Every start and end of a stage updates all estimates.
//!
//! **Readings.** A start that is too early costs a briefly idle instance, one that is too late makes the caller wait. So a gateway starts
//! instances a quarter sooner than necessary ([`is_due`]), and the learnt durations are biased towards short ones ([`smoothed_duration`]). A stage
//! that runs only after failures, and stages that depend on it, are not announced.
//!
//! **Invariants**, each a property test: a stage is announced only while it waits, at most [`ANNOUNCEMENTS_MAX`] times, and never again after a final
//! answer; no more than [`Settings::at_once`] announcements are unanswered at a time; none is made earlier than the horizon allows;
//! [`Prewarm::next_due`] gives the time of the next one.
//!
//! **Complexity.** O(stages + edges) for each event.

#[cfg(test)]
mod tests;

use fdn_core::Millis;
use fdn_core::workflow::Condition;

/// The most announcements of one stage: to learn whether it is warm, to start it, and once more if the estimates have changed in between.
pub const ANNOUNCEMENTS_MAX: u32 = 3;
/// How much sooner an instance is started than necessary, as a factor of its start time.
const EARLY: f64 = 1.25;
/// The weight of a sample in the learnt duration, if it is shorter and if it is longer.
const SMOOTHING: (f64, f64) = (0.5, 0.1);

/// The settings of prewarming.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// How long before its expected start a stage is announced at the earliest; 0 turns prewarming off.
    pub horizon: Millis,
    /// The most unanswered announcements at a time.
    pub at_once: usize,
}

/// What is known of a stage before the run.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// Its parents, by index.
    pub parents: Vec<usize>,
    /// On which outcome of its parents it runs.
    pub when: Condition,
    /// Its typical duration, including the way to its cluster and back.
    pub takes: Millis,
    /// Whether its function has just answered where it will run, so that no announcement is needed.
    pub is_warm: bool,
}

/// The answer of a gateway to an announcement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Answer {
    /// An instance is being started for the call.
    Started,
    /// An instance is idle, or is being started for no other call.
    Warm,
    /// There is no capacity for an instance beside the running ones.
    NoRoom,
    /// It is too early, given this start time of an instance.
    Later(Millis),
    /// The gateway does not know the stage, or does not know announcements.
    Unknown,
    /// The gateway did not answer.
    Lost,
}

impl Answer {
    /// The name used in metrics, without the time.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
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

/// A stage to be announced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Announcement {
    /// The index of the stage.
    pub stage: usize,
    /// The time until its expected start.
    pub within: Millis,
}

/// Whether an instance with the start time `cold` must be started now for a call expected in `within`.
#[must_use]
pub fn is_due(within: Millis, cold: Millis) -> bool {
    within <= cold * EARLY
}

/// One step of learning a stage's duration: half way to a shorter sample, a tenth of the way to a longer one.
#[must_use]
pub fn smoothed_duration(known: Option<Millis>, sample: Millis) -> Millis {
    let Some(known) = known else {
        return sample;
    };
    let share = if sample < known {
        SMOOTHING.0
    } else {
        SMOOTHING.1
    };
    known + (sample - known) * share
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Progress {
    Waiting,
    Running(Millis),
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum AnnouncementState {
    Unannounced,
    Pending,
    Cold(Millis),
    /// No more announcements.
    Final,
}

#[derive(Clone, Debug)]
struct Row {
    stage: Stage,
    progress: Progress,
    state: AnnouncementState,
    announcements: u32,
}

/// The prewarming of one run.
#[derive(Clone, Debug)]
pub struct Prewarm {
    rows: Vec<Row>,
    /// A topological order of the stages.
    order: Vec<usize>,
    settings: Settings,
}

impl Prewarm {
    /// For a run of these stages, which form a DAG and none of which has begun.
    #[must_use]
    pub fn new(stages: Vec<Stage>, settings: Settings) -> Self {
        let order = in_order(&stages);
        let row = |stage: Stage| Row {
            state: if stage.is_warm {
                AnnouncementState::Final
            } else {
                AnnouncementState::Unannounced
            },
            stage,
            progress: Progress::Waiting,
            announcements: 0,
        };
        Self {
            rows: stages.into_iter().map(row).collect(),
            order,
            settings,
        }
    }

    /// Reports that a stage is called, for the first time or again.
    pub fn begun(&mut self, stage: usize, now: Millis) {
        if let Some(row) = self.rows.get_mut(stage) {
            row.progress = Progress::Running(now);
        }
    }

    /// Reports that a stage has ended, or will not run.
    pub fn ended(&mut self, stage: usize) {
        if let Some(row) = self.rows.get_mut(stage) {
            row.progress = Progress::Ended;
        }
    }

    /// Reports the answer to the announcement of a stage.
    pub fn answered(&mut self, stage: usize, answer: Answer) {
        let Some(row) = self.rows.get_mut(stage) else {
            return;
        };
        row.state = match answer {
            Answer::Later(cold) if row.announcements < ANNOUNCEMENTS_MAX => {
                AnnouncementState::Cold(cold)
            }
            Answer::Later(_)
            | Answer::Started
            | Answer::Warm
            | Answer::NoRoom
            | Answer::Unknown
            | Answer::Lost => AnnouncementState::Final,
        };
    }

    /// The stages to be announced now, the soonest first. Each announcement must be followed by [`Self::answered`].
    pub fn due(&mut self, now: Millis) -> Vec<Announcement> {
        let pending = self
            .rows
            .iter()
            .filter(|row| row.state == AnnouncementState::Pending);
        let room = self.settings.at_once.saturating_sub(pending.count());
        let open = self.open(now);
        let due = open.into_iter().filter(|(_, at, _)| *at <= now);
        let mut due: Vec<Announcement> = due
            .map(|(stage, _, start)| Announcement {
                stage,
                within: start - now,
            })
            .collect();
        due.sort_by_key(|announcement| (announcement.within, announcement.stage));
        due.truncate(room);
        for announcement in &due {
            let row = &mut self.rows[announcement.stage];
            row.state = AnnouncementState::Pending;
            row.announcements += 1;
        }
        due
    }

    /// When the next announcement is due if no event comes before; `None` if there is none.
    #[must_use]
    pub fn next_due(&self, now: Millis) -> Option<Millis> {
        let open = self.open(now).into_iter();
        open.map(|(_, at, _)| at).filter(|at| *at > now).min()
    }

    /// The stages that may be announced: index, time of the announcement, and expected start.
    fn open(&self, now: Millis) -> Vec<(usize, Millis, Millis)> {
        let is_open = |row: &Row| {
            row.progress == Progress::Waiting
                && matches!(
                    row.state,
                    AnnouncementState::Unannounced | AnnouncementState::Cold(_)
                )
        };
        if self.settings.horizon <= Millis::ZERO || !self.rows.iter().any(is_open) {
            return Vec::new();
        }
        let starts = self.starts(now);
        let open = self.rows.iter().zip(starts).enumerate();
        open.filter_map(|(at, (row, start))| {
            let start = start.filter(|_| is_open(row))?;
            let ahead = match row.state {
                AnnouncementState::Cold(cold) => (cold * EARLY).min(self.settings.horizon),
                AnnouncementState::Unannounced
                | AnnouncementState::Pending
                | AnnouncementState::Final => self.settings.horizon,
            };
            Some((at, start - ahead, start))
        })
        .collect()
    }

    /// The expected start of each waiting stage, if it is expected to run.
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

/// A topological order of the stages.
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
