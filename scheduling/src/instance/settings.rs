//! Settings of the schedulers: times follow from the round trip, every table has a bound.

use fdn_core::{Coded, ErrorCode, Millis};

/// How a node finds room elsewhere when it has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Asks two other nodes, then hands the task to the global scheduler.
    #[default]
    LocalProbeGlobal,
    /// Sends the task to the best of some nodes by a snapshot, then hands it to the global scheduler.
    Hints,
    /// Hands the task to the global scheduler at once.
    BottomUp,
    /// Asks two new nodes again and again.
    ReProbing,
    /// Does not look at its own room, but leaves a question with two nodes, which answer when they have some.
    LateBinding,
}

/// The largest sample of nodes a hint is chosen from.
pub const HINT_SAMPLE_MAX: u32 = 32;

/// Which of a sample of nodes a hint names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// The one with the most room by the snapshot.
    Best,
    /// One at random, so that all are filled to one level by what is sent until the next snapshot.
    Even,
    /// Not one of a sample, but one of the slots that the snapshot deals to this node alone; when they are gone, as
    /// [`Self::Even`].
    #[default]
    Dealt,
}

/// Settings of a node's scheduler.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// How room is found elsewhere.
    pub policy: Policy,
    /// How long room stays reserved for a task that does not come.
    pub lease: Millis,
    /// After which time a node that was asked counts as without room.
    pub reply_timeout: Millis,
    /// How long changes of what is free are gathered before the global scheduler is told.
    pub notice_every: Millis,
    /// After which time the global scheduler is told again, though nothing has changed: a notice may have been lost.
    pub refresh: Millis,
    /// How long a task is remembered after its deadline; how much the clocks of the cluster differ must be less.
    pub memory: Millis,
    /// Of how many random nodes a hint names one.
    pub hint_sample: u32,
    /// Which of them.
    pub hint_spread: Spread,
    /// How often a task is sent on by hints before the global scheduler gets it.
    pub hint_hops: u8,
    /// How often two nodes are asked before a task is refused ([`Policy::ReProbing`], [`Policy::LateBinding`]).
    pub rounds: u32,
    /// The bounds of its tables.
    pub limits: Limits,
}

/// The bounds of a node's tables, and what happens there.
///
/// Room for all of it is taken at the start, so that nothing grows while tasks arrive. Slots used last are used first, so what
/// is touched, and takes physical memory, is what was in use together at one time: for unit slots 40 bytes per remembered task
/// and 16 to 32 bytes of index per task of the limit, 80 per question to two nodes, 32 per reservation, 28 per instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Tasks that wait for their turn until [`super::Node::poll`]; with one more, the shortest of them have theirs at once.
    pub queue: usize,
    /// Tasks for which other nodes are being asked; one more goes to the global scheduler without asking.
    pub probing: usize,
    /// Reservations; one more is answered with no.
    pub reservations: usize,
    /// Questions kept until there is room ([`Policy::LateBinding`]); one more is answered with no.
    pub waiters: usize,
    /// Instances; one more finds no room.
    pub running: usize,
    /// Remembered tasks; one more is refused, for it could be started twice.
    pub memory: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            queue: 1024,
            probing: 4096,
            reservations: 1024,
            waiters: 65_536,
            running: 65_536,
            memory: 65_536,
        }
    }
}

/// Settings that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting} must be {expected}")]
pub struct SettingsError {
    /// Which setting.
    pub setting: &'static str,
    /// What it must be.
    pub expected: &'static str,
}

impl Coded for SettingsError {
    fn code(&self) -> ErrorCode {
        ErrorCode::BadRequest
    }
}

impl Settings {
    /// The defaults for a round trip between two nodes: a lease of ten, an answer within four.
    #[must_use]
    pub fn for_round_trip(round_trip: Millis) -> Self {
        Self {
            policy: Policy::default(),
            lease: round_trip * 10.0,
            reply_timeout: round_trip * 4.0,
            notice_every: Millis::new(1.0),
            refresh: Millis::new(500.0),
            memory: Millis::new(1000.0),
            hint_sample: 8,
            hint_spread: Spread::default(),
            hint_hops: 4,
            rounds: 1000,
            limits: Limits::default(),
        }
    }

    /// With another policy.
    #[must_use]
    pub const fn with_policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Checks every value.
    ///
    /// # Errors
    /// The first setting that cannot be used.
    pub fn validate(&self) -> Result<(), SettingsError> {
        let above_zero = |span: Millis| span > Millis::ZERO && span.is_finite();
        let at_least_zero = |span: Millis| span >= Millis::ZERO && span.is_finite();
        let limits = [
            self.limits.queue,
            self.limits.probing,
            self.limits.reservations,
            self.limits.waiters,
            self.limits.running,
            self.limits.memory,
        ];
        let rules = [
            (above_zero(self.lease), "lease", "above 0"),
            (above_zero(self.reply_timeout), "reply timeout", "above 0"),
            (
                self.reply_timeout <= self.lease,
                "reply timeout",
                "at most the lease",
            ),
            (
                at_least_zero(self.notice_every),
                "notice interval",
                "at least 0",
            ),
            (
                self.refresh >= self.notice_every && self.refresh > Millis::ZERO,
                "refresh",
                "above 0 and at least the notice interval",
            ),
            (at_least_zero(self.memory), "memory", "at least 0"),
            (
                (1..=HINT_SAMPLE_MAX).contains(&self.hint_sample),
                "hint sample",
                "from 1 to 32",
            ),
            (self.rounds >= 1, "rounds", "at least 1"),
            (
                limits.iter().all(|limit| (1..=1 << 24).contains(limit)),
                "every limit",
                "from 1 to 16777216",
            ),
        ];
        match rules.iter().find(|(holds, ..)| !holds) {
            None => Ok(()),
            Some(&(_, setting, expected)) => Err(SettingsError { setting, expected }),
        }
    }
}

/// Settings of the global scheduler.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GlobalSettings {
    /// How long a task is remembered after its deadline.
    pub memory: Millis,
    /// After which time a placement that a node has not seen is taken for lost; ten round trips are plenty.
    pub under_way: Millis,
    /// How many tasks that fit nowhere are passed over in search of one that fits.
    pub look_ahead: usize,
    /// Tasks that wait; one more is refused. Room for all is taken at the start, as for the limits that follow.
    pub queue: usize,
    /// Placements that no node has confirmed; with so many under way, tasks wait.
    pub placements: usize,
    /// Remembered tasks, at most 2^24; one more is refused, for it could be placed twice.
    pub memory_limit: usize,
}

impl GlobalSettings {
    /// The defaults for a round trip to a node.
    #[must_use]
    pub fn for_round_trip(round_trip: Millis) -> Self {
        Self {
            memory: Millis::new(1000.0),
            under_way: round_trip * 10.0,
            look_ahead: 16,
            queue: 1 << 16,
            placements: 1 << 16,
            memory_limit: 1 << 20,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_follow_from_the_round_trip() {
        let settings = Settings::for_round_trip(Millis::new(0.5));
        assert_eq!(settings.validate(), Ok(()));
        assert_eq!(settings.lease, Millis::new(5.0));
        assert_eq!(settings.policy, Policy::LocalProbeGlobal);
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let valid = Settings::for_round_trip(Millis::new(0.5));
        let setting = |settings: Settings| settings.validate().unwrap_err().setting;
        assert_eq!(
            setting(Settings {
                lease: Millis::ZERO,
                ..valid
            }),
            "lease"
        );
        assert_eq!(
            setting(Settings {
                reply_timeout: Millis::new(6.0),
                ..valid
            }),
            "reply timeout"
        );
        assert_eq!(
            setting(Settings {
                memory: Millis::INFINITY,
                ..valid
            }),
            "memory"
        );
        let refresh = Millis::new(0.5);
        assert_eq!(setting(Settings { refresh, ..valid }), "refresh");
        assert_eq!(setting(Settings { rounds: 0, ..valid }), "rounds");
        let limits = Limits {
            memory: 0,
            ..Limits::default()
        };
        assert_eq!(setting(Settings { limits, ..valid }), "every limit");
        let error = Settings { rounds: 0, ..valid }.validate().unwrap_err();
        assert_eq!(error.to_string(), "rounds must be at least 1");
        assert_eq!(error.code(), ErrorCode::BadRequest);
    }
}
