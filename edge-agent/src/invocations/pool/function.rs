//! The pool's records of a function and of an instance.

use std::collections::VecDeque;

use fdn_core::{AppName, Millis};
use fdn_scheduling::invocation::{
    ContainerId, FunctionIndex, LearnSettings, LiveProfile, Refusal, Ticket,
};
use fdn_scheduling::scale::{self, Autoscaler};

use super::{CallId, FunctionCounts, FunctionParameters};

/// The state of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Being started for waiting calls.
    Loading,
    /// Being started ahead of calls.
    Warming,
    /// Was paused, and is being resumed for waiting calls.
    Waking,
    /// Running this many calls.
    Open(u32),
    /// Ready and unused; the scheduler may evict it.
    Idle,
}

/// Whether an instance gets CPU time. Only one that is idle or waking is ever anything but awake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PauseState {
    /// It runs.
    Awake,
    /// A pause was ordered.
    Pausing,
    /// It is paused, or is being resumed.
    Paused,
}

/// The record of an instance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) id: ContainerId,
    pub(super) function: FunctionIndex,
    pub(super) phase: Phase,
    /// When its start was ordered.
    pub(super) ordered: Millis,
    pub(super) pause_state: PauseState,
    /// When it will be paused if it stays idle; the same as in the pool's `pause_timers`.
    pub(super) pause_at: Option<Millis>,
}

/// The record of a function.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) app: AppName,
    /// The scheduler's number of the app, by which memory is shared; not used if one app and one tenant may hold everything.
    pub(super) group: u64,
    pub(super) concurrency: u32,
    pub(super) live: LiveProfile,
    pub(super) scaler: Autoscaler,
    pub(super) waiting: VecDeque<CallId>,
    /// Tokens that wait in the scheduler, oldest first.
    pub(super) tokens: VecDeque<(u64, Ticket)>,
    pub(super) loading: u32,
    pub(super) warming: u32,
    pub(super) idle: u32,
    pub(super) waking: u32,
    /// How many of the idle and waking instances are paused.
    pub(super) paused: u32,
    /// Instances that run calls, and how many calls each.
    pub(super) open: Vec<(ContainerId, u32)>,
    pub(super) wanted: u32,
    /// The number of failed starts in a row, and until when no other start is made.
    pub(super) failures: u32,
    pub(super) paused_until: Option<Millis>,
    pub(super) is_retiring: bool,
    /// When it is next examined; the same as in the pool's `timers`.
    pub(super) timer: Option<Millis>,
    /// Since the autoscaler was last asked: the number of arrived calls, and the time that calls ran.
    pub(super) arrivals: u64,
    pub(super) busy_ms: f64,
    pub(super) measured_at: Option<Millis>,
    pub(super) running: u32,
    /// The deadlines of announced calls that have not arrived, in ascending order.
    pub(super) announced: Vec<Millis>,
    /// The most instances that it may have.
    pub(super) max_instances: u32,
    integrated: Millis,
}

impl Function {
    pub(super) fn new(parameters: FunctionParameters) -> Result<Self, Refusal> {
        let what = "the settings of its autoscaler do not go together";
        let profile = scale::Profile {
            exec: parameters.profile.execution(),
            cold: parameters.profile.cold_start(),
        };
        let scaler = Autoscaler::new(parameters.scale, profile)
            .map_err(|_| Refusal::InvalidSetting { what })?;
        Ok(Self {
            app: parameters.app,
            group: 0,
            concurrency: parameters.concurrency.max(1),
            live: LiveProfile::new(&parameters.profile, LearnSettings::default())?,
            scaler,
            waiting: VecDeque::new(),
            tokens: VecDeque::new(),
            loading: 0,
            warming: 0,
            idle: 0,
            waking: 0,
            paused: 0,
            open: Vec::new(),
            wanted: 0,
            failures: 0,
            paused_until: None,
            is_retiring: false,
            timer: None,
            arrivals: 0,
            busy_ms: 0.0,
            measured_at: None,
            running: 0,
            announced: Vec::new(),
            max_instances: parameters.scale.max,
            integrated: Millis::ZERO,
        })
    }

    /// Updates the time that calls ran; to be called before every change of their number.
    pub(super) fn advance(&mut self, now: Millis) {
        let span = (now - self.integrated).max(Millis::ZERO);
        self.busy_ms += span.get() * f64::from(self.running);
        self.integrated = self.integrated.max(now);
    }

    /// The number of all instances, started or not.
    pub(super) fn instances(&self) -> u32 {
        self.loading + self.warming + self.idle + self.waking + self.open.len() as u32
    }

    /// The number of tokens that the function needs: one for each instance that waiting calls need beyond those being resumed or started for
    /// them; plus the instances that have become idle meanwhile, which serve sooner than those still being started.
    pub(super) fn tokens_needed(&self) -> usize {
        let seats = self.concurrency as usize;
        let waiting = self
            .waiting
            .len()
            .saturating_sub(self.waking as usize * seats);
        let granted = waiting.min(self.loading as usize * seats);
        let cold = (waiting - granted).div_ceil(seats);
        let warm = granted.div_ceil(seats).min(self.idle as usize);
        cold + warm
    }

    /// Whether calls wait for which an instance was granted that is not ready yet.
    pub(super) fn has_granted(&self) -> bool {
        self.waiting.len() > self.tokens.len() * self.concurrency as usize
    }

    /// The open instance with the most free seats.
    pub(super) fn free_seat(&self) -> Option<ContainerId> {
        let (container, running) = self.open.iter().min_by_key(|(_, running)| *running)?;
        (*running < self.concurrency).then_some(*container)
    }

    /// Whether this open instance has a free seat.
    pub(super) fn free_seat_of(&self, container: ContainerId) -> bool {
        let open = self.open.iter().find(|(open, _)| *open == container);
        open.is_some_and(|(_, running)| *running < self.concurrency)
    }

    pub(super) fn counts(&self) -> FunctionCounts {
        FunctionCounts {
            starting: self.loading + self.warming,
            open: self.open.len() as u32,
            idle: self.idle,
            waking: self.waking,
            paused: self.paused,
            running: self.running,
            waiting: self.waiting.len() as u32,
            wanted: self.wanted,
        }
    }
}
