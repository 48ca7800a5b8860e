//! Settings of the schedulers: times are multiples of the round-trip time, and every table has a bound.

use fdn_core::{Coded, ErrorCode, Millis};

/// How a node that has no room finds another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Probes two other nodes, then forwards the task to the global scheduler.
    #[default]
    LocalProbeGlobal,
    /// Forwards the task to the best of some nodes by a snapshot, after some hops to the global scheduler.
    Hints,
    /// Forwards the task to the global scheduler at once.
    BottomUp,
    /// Probes two new nodes again and again.
    ReProbing,
    /// Skips the local check and leaves a probe with two nodes, which answer when they have room.
    LateBinding,
}

/// The largest [`Settings::hint_sample`].
pub const HINT_SAMPLE_MAX: u32 = 32;

/// How a hint chooses a node from a random sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// The node with the most room by the snapshot.
    Best,
    /// Drawn so that all nodes of the sample are filled to one level by what is sent until the next snapshot.
    Even,
    /// Not from a sample, but from the slots that the snapshot deals to this node alone; when they are used up, as [`Self::Even`].
    #[default]
    Dealt,
}

/// Settings of a node's scheduler.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// How a node that has no room finds another.
    pub policy: Policy,
    /// How long resources stay reserved for a task that does not arrive.
    pub lease: Millis,
    /// How long to wait for the answer to a probe before it counts as no.
    pub reply_timeout: Millis,
    /// The minimum interval between reports to the global scheduler; changes in between are combined.
    pub notice_every: Millis,
    /// The maximum interval between reports, even without a change, since a report may have been lost.
    pub refresh: Millis,
    /// How long a task is remembered after its deadline; must exceed the clock differences within the cluster.
    pub memory: Millis,
    /// The size of the random sample that a hint chooses from, at most [`HINT_SAMPLE_MAX`].
    pub hint_sample: u32,
    /// How a hint chooses from the sample.
    pub hint_spread: Spread,
    /// How many hops by hints a task makes before it goes to the global scheduler.
    pub hint_hops: u8,
    /// How many rounds of probes a task gets before it is refused ([`Policy::ReProbing`], [`Policy::LateBinding`]).
    pub rounds: u32,
    /// The bounds of its tables.
    pub limits: Limits,
}

/// The bounds of a node's tables, and what happens when one is reached.
///
/// All memory is allocated at the start, so that nothing grows while tasks arrive. Slots used last are reused first, so the memory
/// touched, and hence resident, is what was in use at one time: for unit slots 40 bytes per remembered task and 16 to 32 bytes of index
/// per task of the limit, 80 per probed task, 32 per reservation, 28 per instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Tasks that wait for their turn until [`super::Node::poll`]; beyond this, the shortest of them get theirs at once.
    pub queue: usize,
    /// Tasks for which other nodes are being probed; one more goes to the global scheduler without probes.
    pub probing: usize,
    /// Reservations; one more probe is answered no.
    pub reservations: usize,
    /// Probes kept until there is room ([`Policy::LateBinding`]); one more is answered no.
    pub waiters: usize,
    /// Running instances; one more is treated as not fitting.
    pub running: usize,
    /// Remembered tasks; one more is refused, because a duplicate of it could start twice.
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

/// A setting is out of its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting} must be {expected}")]
pub struct SettingsError {
    /// The name of the setting.
    pub setting: &'static str,
    /// The range, for the message.
    pub expected: &'static str,
}

impl Coded for SettingsError {
    fn code(&self) -> ErrorCode {
        ErrorCode::BadRequest
    }
}

impl Settings {
    /// Defaults derived from the round-trip time between two nodes: a lease of ten round trips, a reply timeout of four.
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

    /// Replaces the policy.
    #[must_use]
    pub const fn with_policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Checks that every setting is in its range.
    ///
    /// # Errors
    /// The first setting that is not.
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
    /// How long a placement may be unseen by its node before it counts as lost; ten round trips are ample.
    pub under_way: Millis,
    /// How many tasks that fit nowhere are skipped in search of one that fits.
    pub look_ahead: usize,
    /// The most waiting tasks; one more is refused. Memory for this and the following limits is allocated at the start.
    pub queue: usize,
    /// The most placements not yet seen by their nodes; at this bound tasks wait.
    pub placements: usize,
    /// The most remembered tasks, at most 2^24; one more is refused, because a duplicate of it could be placed twice.
    pub memory_limit: usize,
}

impl GlobalSettings {
    /// Defaults derived from the round-trip time to a node.
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
