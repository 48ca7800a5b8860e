//! The reaction of `fdn dev` to changes in a function's folder: a state machine without a clock and without file access.
//!
//! ```text
//!            Touched            Quiet            Read, other sources
//!  any phase ───────▶ Wake(at)  ─────▶ Read      ────────────────────▶ Building ──▶ Deploying ──▶ Idle
//!                                                                          │ failed                 ▲
//!                                                                          └────────────────────────┘
//! ```
//!
//! Sources are compared by content, so that a build that writes the same files again, or an editor that saves without a change,
//! has no effect. A change during a build or a deployment is built afterwards, unless builds repeatedly change their own sources.
//! [`watch`] watches folders, [`sources`] reads one, [`build`] runs a build, [`places`] finds the source lines that output points at.

pub mod build;
pub mod places;
pub mod sources;
pub mod watch;

use std::time::Duration;

use fdn_core::Digest;

/// How long no change may occur before the folder is read: editors write a file in several steps.
pub const PAUSE: Duration = Duration::from_millis(100);
/// After this long, the folder is read even if changes continue.
pub const PAUSE_MAX: Duration = Duration::from_secs(2);
/// When to read the folder again after a failure: whatever made it unreadable may also have removed the watch.
pub const RETRY: Duration = Duration::from_secs(2);
/// How many times in a row the sources may change during their own build before it is not built again.
pub const FED_MAX: u32 = 3;

/// An event. Times are relative to an arbitrary point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The command started.
    Started,
    /// Something in the folder changed.
    Touched(Duration),
    /// The time of [`Action::Wake`] has come.
    Quiet,
    /// The digest of the folder's content.
    Read(Digest),
    /// The folder could not be read, at this time.
    Unread(Duration),
    /// The build ended at this time; true if it succeeded.
    Built(bool, Duration),
    /// The deployment ended; true if it succeeded.
    Deployed(bool),
    /// The user ends the command.
    Stopped,
}

/// An action to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send [`Event::Quiet`] at this time, replacing an earlier request.
    Wake(Duration),
    /// Read the folder.
    Read,
    /// Run the build.
    Build,
    /// Do not build, and report the files that changed too often during their own build.
    Hold,
    /// Deploy the result of the build.
    Deploy,
    /// End the command.
    End,
}

/// The current activity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Idle,
    Building,
    Deploying,
    Ended,
}

/// The state of `fdn dev`.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    phase: Phase,
    /// The sources of the last or current build.
    sources: Option<Digest>,
    /// The sources that were read since, and whether they changed during the build.
    next: Option<(Digest, bool)>,
    /// Whether the result of the last build is not deployed.
    undeployed: bool,
    /// When the first change occurred that was not read yet.
    touched: Option<Duration>,
    /// Until when a change counts as one during the build.
    build_until: Option<Duration>,
    /// Whether the sources that were read last changed during the build.
    during_build: bool,
    /// How many times in a row the sources changed during their own build.
    fed: u32,
    /// Whether the sources of the last build did.
    fed_now: bool,
}

impl Machine {
    /// Handles an event and returns the action to be taken.
    pub fn apply(&mut self, event: Event) -> Option<Action> {
        if self.phase == Phase::Ended {
            return None;
        }
        match event {
            Event::Started => Some(Action::Read),
            Event::Touched(now) => {
                let first = *self.touched.get_or_insert(now);
                Some(Action::Wake((now + PAUSE).min(first + PAUSE_MAX)))
            }
            Event::Quiet => {
                if let Some(first) = self.touched.take() {
                    self.during_build = self.build_until.is_some_and(|until| first <= until);
                }
                Some(Action::Read)
            }
            Event::Read(sources) => self.read(sources),
            Event::Unread(now) => Some(Action::Wake(now + RETRY)),
            Event::Built(ok, now) => {
                // The notification of its last change arrives a little later.
                self.build_until = Some(now + PAUSE / 2);
                if !ok {
                    return self.rest();
                }
                self.phase = Phase::Deploying;
                Some(Action::Deploy)
            }
            Event::Deployed(ok) => {
                self.undeployed = !ok;
                self.rest()
            }
            Event::Stopped => {
                self.phase = Phase::Ended;
                Some(Action::End)
            }
        }
    }

    fn read(&mut self, sources: Digest) -> Option<Action> {
        let changed = self.sources != Some(sources);
        if self.phase != Phase::Idle {
            self.next = changed.then_some((sources, self.during_build));
            return None;
        }
        if changed {
            return Some(self.build(sources, self.during_build));
        }
        // Saving a file again after a failed deployment is a request to retry.
        self.undeployed.then(|| {
            self.phase = Phase::Deploying;
            Action::Deploy
        })
    }

    fn rest(&mut self) -> Option<Action> {
        self.phase = Phase::Idle;
        let (next, during_build) = self.next.take()?;
        Some(self.build(next, during_build))
    }

    fn build(&mut self, sources: Digest, during_build: bool) -> Action {
        if during_build {
            self.fed_now = true;
            if self.fed + 1 >= FED_MAX {
                // The sources of the last build are kept for comparison: saving again is a request to build.
                return Action::Hold;
            }
            self.fed += 1;
        } else if !self.fed_now {
            self.fed = 0;
        }
        self.fed_now = false;
        self.phase = Phase::Building;
        self.build_until = Some(Duration::MAX);
        self.sources = Some(sources);
        // An undeployed result is outdated now.
        self.undeployed = false;
        Action::Build
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn digest(n: u8) -> Digest {
        Digest::of(&[n])
    }

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn told(machine: &mut Machine, events: &[Event]) -> Vec<Option<Action>> {
        events.iter().map(|event| machine.apply(*event)).collect()
    }

    #[test]
    fn the_first_build_is_deployed_and_a_change_is_built_again() {
        let mut machine = Machine::default();
        let events = [
            Event::Started,
            Event::Read(digest(1)),
            Event::Built(true, ms(0)),
            Event::Deployed(true),
            Event::Touched(ms(500)),
            Event::Quiet,
            Event::Read(digest(2)),
            Event::Built(true, ms(0)),
            Event::Deployed(true),
        ];
        assert_eq!(
            told(&mut machine, &events),
            [
                Some(Action::Read),
                Some(Action::Build),
                Some(Action::Deploy),
                None,
                Some(Action::Wake(ms(600))),
                Some(Action::Read),
                Some(Action::Build),
                Some(Action::Deploy),
                None
            ]
        );
    }

    #[test]
    fn a_failing_build_deploys_nothing() {
        let mut machine = Machine::default();
        let events = [
            Event::Read(digest(1)),
            Event::Built(false, ms(0)),
            Event::Read(digest(1)),
        ];
        assert_eq!(
            told(&mut machine, &events),
            [Some(Action::Build), None, None],
            "the same sources would fail again"
        );
        assert_eq!(machine.apply(Event::Read(digest(2))), Some(Action::Build));
    }

    #[test]
    fn what_changes_during_a_build_is_built_after_the_deploy_and_what_was_undone_is_not() {
        let mut machine = Machine::default();
        let changed = [
            Event::Read(digest(1)),
            Event::Read(digest(2)),
            Event::Built(true, ms(0)),
            Event::Read(digest(3)),
            Event::Deployed(true),
        ];
        assert_eq!(
            told(&mut machine, &changed),
            [
                Some(Action::Build),
                None,
                Some(Action::Deploy),
                None,
                Some(Action::Build)
            ]
        );
        let undone = [
            Event::Read(digest(4)),
            Event::Read(digest(3)),
            Event::Built(false, ms(0)),
        ];
        assert_eq!(told(&mut machine, &undone), [None, None, None]);
    }

    #[test]
    fn what_could_not_be_deployed_is_deployed_when_a_file_is_saved_again() {
        let mut machine = Machine::default();
        let events = [
            Event::Read(digest(1)),
            Event::Built(true, ms(0)),
            Event::Deployed(false),
            Event::Read(digest(1)),
            Event::Deployed(true),
            Event::Read(digest(1)),
        ];
        assert_eq!(
            told(&mut machine, &events),
            [
                Some(Action::Build),
                Some(Action::Deploy),
                None,
                Some(Action::Deploy),
                None,
                None
            ]
        );
    }

    #[test]
    fn changes_that_do_not_end_are_read_all_the_same() {
        let mut machine = Machine::default();
        let mut at = Duration::ZERO;
        for _ in 0..100 {
            let wake = machine.apply(Event::Touched(at));
            let Some(Action::Wake(wake)) = wake else {
                panic!("{wake:?}")
            };
            assert!(wake <= PAUSE_MAX, "{wake:?}");
            at += ms(50);
        }
        assert_eq!(machine.apply(Event::Quiet), Some(Action::Read));
        let wake = machine.apply(Event::Touched(at));
        assert_eq!(wake, Some(Action::Wake(at + PAUSE)), "counted anew");
    }

    /// The action of a machine when the sources change to these during a build that ends at `end`.
    fn fed(machine: &mut Machine, sources: u8, end: Duration) -> Option<Action> {
        let events = [
            Event::Touched(end),
            Event::Built(true, end),
            Event::Quiet,
            Event::Read(digest(sources)),
        ];
        let told = told(machine, &events);
        assert_eq!(told[1], Some(Action::Deploy));
        machine.apply(Event::Deployed(true))
    }

    #[test]
    fn builds_that_change_their_own_sources_come_to_an_end() {
        let mut machine = Machine::default();
        let build = Some(Action::Build);
        assert_eq!(machine.apply(Event::Read(digest(1))), build);
        assert_eq!(fed(&mut machine, 2, ms(1_000)), build);
        assert_eq!(fed(&mut machine, 3, ms(2_000)), build);
        assert_eq!(fed(&mut machine, 4, ms(3_000)), Some(Action::Hold), "third");
        // A change while nothing is built is a request by the user, even if it restores the previous content; but the count stays.
        machine.apply(Event::Touched(ms(9_000)));
        machine.apply(Event::Quiet);
        assert_eq!(machine.apply(Event::Read(digest(4))), build);
        assert_eq!(fed(&mut machine, 5, ms(10_000)), Some(Action::Hold));
        // After a build that did not change its own sources, the count starts again.
        for (n, at) in [(6, 20_000), (7, 30_000)] {
            machine.apply(Event::Touched(ms(at)));
            machine.apply(Event::Quiet);
            assert_eq!(machine.apply(Event::Read(digest(n))), build);
            machine.apply(Event::Built(true, ms(at + 1_000)));
            machine.apply(Event::Deployed(true));
        }
        machine.apply(Event::Touched(ms(40_000)));
        machine.apply(Event::Quiet);
        assert_eq!(machine.apply(Event::Read(digest(8))), build);
        assert_eq!(fed(&mut machine, 9, ms(41_000)), build);
    }

    #[test]
    fn a_folder_that_cannot_be_read_is_read_again_later() {
        let mut machine = Machine::default();
        let events = [Event::Started, Event::Unread(ms(10)), Event::Quiet];
        let wake = Action::Wake(ms(10) + RETRY);
        assert_eq!(
            told(&mut machine, &events),
            [Some(Action::Read), Some(wake), Some(Action::Read)]
        );
        assert_eq!(machine.apply(Event::Read(digest(1))), Some(Action::Build));
    }

    #[test]
    fn after_the_end_nothing_is_done() {
        let mut machine = Machine::default();
        let events = [
            Event::Read(digest(1)),
            Event::Stopped,
            Event::Built(true, ms(0)),
            Event::Stopped,
        ];
        assert_eq!(
            told(&mut machine, &events),
            [Some(Action::Build), Some(Action::End), None, None]
        );
    }

    proptest! {
        /// A shell that executes the actions, with any order of changes and results: one activity at a time, and the last sources are built.
        #[test]
        fn one_thing_is_done_at_a_time_and_the_last_sources_are_built(steps in prop::collection::vec((0u8..5, 0u8..4, any::<bool>()), 1..60)) {
            let mut machine = Machine::default();
            let (mut working, mut built, mut now) = (None, None, digest(0));
            let mut doing = Vec::new();
            let mut take = |action: Option<Action>, working: &mut Option<Action>, now: Digest| {
                if let Some(action @ (Action::Build | Action::Deploy)) = action {
                    assert_eq!(*working, None, "one at a time");
                    *working = Some(action);
                    if action == Action::Build {
                        built = Some(now);
                    }
                    doing.push(action);
                }
            };
            for (kind, content, ok) in steps {
                if kind == 0 {
                    now = digest(content);
                    let action = machine.apply(Event::Read(now));
                    take(action, &mut working, now);
                } else if let Some(done) = working.take() {
                    let event = if done == Action::Build { Event::Built(ok, ms(0)) } else { Event::Deployed(ok) };
                    let action = machine.apply(event);
                    take(action, &mut working, now);
                }
            }
            let action = machine.apply(Event::Read(now));
            take(action, &mut working, now);
            while let Some(done) = working.take() {
                let event = if done == Action::Build { Event::Built(true, ms(0)) } else { Event::Deployed(true) };
                let action = machine.apply(event);
                take(action, &mut working, now);
            }
            prop_assert_eq!(built, Some(now));
        }
    }
}
