//! What a change of a function's folder leads to, as `fdn dev` does it: a state machine without a clock and without files.
//!
//! ```text
//!            Touched            Quiet            Read, other sources
//!  any phase ───────▶ Wake(at)  ─────▶ Read      ────────────────────▶ Building ──▶ Deploying ──▶ Idle
//!                                                                          │ failed                 ▲
//!                                                                          └────────────────────────┘
//! ```
//!
//! Sources are compared by what is in them, so that a build that writes the same files again, or an editor that saves without a change,
//! leads to nothing. What changes while something is built or deployed is built after it. [`sources`] reads a folder, [`build`] runs a build.

pub mod build;
pub mod sources;

use std::time::Duration;

use fdn_core::Digest;

/// How long it must be quiet after a change before the folder is read: editors write a file in several steps.
pub const PAUSE: Duration = Duration::from_millis(100);
/// After this long the folder is read although changes go on.
pub const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Something that happened. Times count from any one point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The command began.
    Started,
    /// Something in the folder changed.
    Touched(Duration),
    /// The time of [`Action::Wake`] has come.
    Quiet,
    /// What is in the folder now.
    Read(Digest),
    /// The build ended, well or not.
    Built(bool),
    /// The deploy ended, well or not.
    Deployed(bool),
    /// The user ends the command.
    Stopped,
}

/// Something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Say [`Event::Quiet`] at this time, and not at an earlier one that was asked for.
    Wake(Duration),
    /// Read the folder.
    Read,
    /// Run the build.
    Build,
    /// Deploy what was built.
    Deploy,
    /// End.
    End,
}

/// What is being done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Idle,
    Building,
    Deploying,
    Ended,
}

/// Where `fdn dev` stands.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    phase: Phase,
    /// What was built last, or is built now.
    sources: Option<Digest>,
    /// What the sources have become meanwhile.
    next: Option<Digest>,
    /// What was built last is not deployed.
    undeployed: bool,
    /// When the first of the changes came that were not read yet.
    touched: Option<Duration>,
}

impl Machine {
    /// Takes an event and says what is to be done.
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
                self.touched = None;
                Some(Action::Read)
            }
            Event::Read(sources) => self.read(sources),
            Event::Built(true) => {
                self.phase = Phase::Deploying;
                Some(Action::Deploy)
            }
            Event::Built(false) => self.rest(),
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
            self.next = changed.then_some(sources);
            return None;
        }
        if changed {
            return Some(self.build(sources));
        }
        // Whoever saves a file again after the network was away means that.
        self.undeployed.then(|| {
            self.phase = Phase::Deploying;
            Action::Deploy
        })
    }

    fn rest(&mut self) -> Option<Action> {
        self.phase = Phase::Idle;
        let next = self.next.take()?;
        Some(self.build(next))
    }

    fn build(&mut self, sources: Digest) -> Action {
        self.phase = Phase::Building;
        self.sources = Some(sources);
        // What could not be deployed is no longer what the sources say.
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
            Event::Built(true),
            Event::Deployed(true),
            Event::Touched(ms(500)),
            Event::Quiet,
            Event::Read(digest(2)),
            Event::Built(true),
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
            Event::Built(false),
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
            Event::Built(true),
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
            Event::Built(false),
        ];
        assert_eq!(told(&mut machine, &undone), [None, None, None]);
    }

    #[test]
    fn what_could_not_be_deployed_is_deployed_when_a_file_is_saved_again() {
        let mut machine = Machine::default();
        let events = [
            Event::Read(digest(1)),
            Event::Built(true),
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

    #[test]
    fn after_the_end_nothing_is_done() {
        let mut machine = Machine::default();
        let events = [
            Event::Read(digest(1)),
            Event::Stopped,
            Event::Built(true),
            Event::Stopped,
        ];
        assert_eq!(
            told(&mut machine, &events),
            [Some(Action::Build), Some(Action::End), None, None]
        );
    }

    proptest! {
        /// A shell that does what it is told, in any order of changes and ends: one thing at a time, and the last sources are built.
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
                    let event = if done == Action::Build { Event::Built(ok) } else { Event::Deployed(ok) };
                    let action = machine.apply(event);
                    take(action, &mut working, now);
                }
            }
            let action = machine.apply(Event::Read(now));
            take(action, &mut working, now);
            while let Some(done) = working.take() {
                let event = if done == Action::Build { Event::Built(true) } else { Event::Deployed(true) };
                let action = machine.apply(event);
                take(action, &mut working, now);
            }
            prop_assert_eq!(built, Some(now));
        }
    }
}
