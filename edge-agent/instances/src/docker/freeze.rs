//! Freezes and thaws a container, reliably.
//!
//! Where the agent can write to a container's control group, that suffices ([`super::cgroup`]); the engine is not told. Otherwise the engine does it.
//!
//! The engine's record of which containers are paused cannot be trusted. Its API updates the record when an order has been carried out, and its
//! events of *earlier* orders update it again when they arrive (moby, `daemon/monitor.go`, `EventPaused` and `EventResumed`). On a busy node,
//! orders in quick succession therefore meet an outdated record: the engine says "is not paused" of processes that are frozen, or "is already
//! paused" of ones that run (dockerd 20.10: one order in a hundred, given back to back). Only an order that was carried out proves anything. So a
//! refused order is followed by its opposite, which is refused as well or corrects the record, until the wanted one is carried out. Events arrive
//! in order, so that this ends.

use std::time::Duration;

use super::failure;
use super::instance::DockerInstance;
use crate::error::RuntimeError;
use crate::runtime::Kind;

/// The total time to wait for events between orders; they arrive within milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// The wanted state of a container's processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// Frozen.
    Freeze,
    /// Running.
    Thaw,
}

impl Target {
    const fn opposite(self) -> Self {
        match self {
            Self::Freeze => Self::Thaw,
            Self::Thaw => Self::Freeze,
        }
    }

    const fn operation(self) -> &'static str {
        match self {
            Self::Freeze => "pause the container",
            Self::Thaw => "unpause the container",
        }
    }
}

/// Why an order was not carried out.
#[derive(Debug)]
pub(super) enum FreezeError {
    /// The container has ended.
    Gone,
    /// The order was refused for now.
    Runtime(RuntimeError),
}

/// The recipient of orders.
pub(super) trait FreezeControl {
    /// Passes an order to the engine once.
    fn order(&self, target: Target) -> impl Future<Output = Result<(), FreezeError>> + Send;

    /// Waits for events.
    fn wait(&self, pause: Duration) -> impl Future<Output = ()> + Send;
}

/// Repeats an order until it is carried out. If that fails, the state of the processes is unknown.
pub(super) async fn carry_out(
    control: &impl FreezeControl,
    target: Target,
) -> Result<(), FreezeError> {
    let (mut pause, mut waited) = (FIRST_PAUSE, Duration::ZERO);
    loop {
        let refused = match control.order(target).await {
            Err(FreezeError::Runtime(error @ RuntimeError::Refused { .. })) => error,
            done_gone_or_away => return done_gone_or_away,
        };
        if let Err(FreezeError::Gone) = control.order(target.opposite()).await {
            return Err(FreezeError::Gone);
        }
        if waited >= PATIENCE {
            return Err(FreezeError::Runtime(refused));
        }
        control.wait(pause).await;
        waited += pause;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Freezes or thaws a container, through its control group if that is accessible, and otherwise through the engine.
pub(super) async fn order(instance: &DockerInstance, target: Target) -> Result<(), FreezeError> {
    let Some(group) = instance.group() else {
        return carry_out(instance, target).await;
    };
    let group = group.clone();
    let ordered = tokio::task::spawn_blocking(move || match target {
        Target::Freeze => group.freeze(),
        Target::Thaw => group.thaw(),
    });
    match ordered.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => Err(FreezeError::Gone),
        // The group of a container that ends during the write.
        Ok(Err(error)) if error.raw_os_error() == Some(NO_DEVICE) => Err(FreezeError::Gone),
        Ok(Err(error)) => Err(FreezeError::Runtime(refused(target, error.to_string()))),
        Err(stopped) => Err(FreezeError::Runtime(refused(target, stopped.to_string()))),
    }
}

/// `ENODEV`: the kernel removed the group while its file was open.
const NO_DEVICE: i32 = rustix::io::Errno::NODEV.raw_os_error();

const fn refused(target: Target, reason: String) -> RuntimeError {
    RuntimeError::Refused {
        kind: Kind::Docker,
        operation: target.operation(),
        reason,
    }
}

impl FreezeControl for DockerInstance {
    async fn order(&self, target: Target) -> Result<(), FreezeError> {
        let ordered = match target {
            Target::Freeze => self.docker.pause_container(&self.container).await,
            Target::Thaw => self.docker.unpause_container(&self.container).await,
        };
        ordered.map_err(|error| {
            let ended = failure::status(&error) == Some(404)
                || failure::says(&error, "is not running")
                || self.state.get().exit().is_some();
            if ended {
                FreezeError::Gone
            } else {
                FreezeError::Runtime(failure::engine(target.operation(), &error))
            }
        })
    }

    async fn wait(&self, pause: Duration) {
        tokio::time::sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use futures::FutureExt;
    use proptest::prelude::*;

    use super::*;

    /// An engine whose events about orders arrive late.
    #[derive(Debug, Default)]
    struct LaggingEngine {
        frozen: bool,
        noted: bool,
        /// The pending events: the state that each records, and after how many further orders it arrives.
        events: VecDeque<(bool, usize)>,
        lag: VecDeque<usize>,
        ended: bool,
    }

    impl LaggingEngine {
        fn arrive(&mut self) {
            for (_, left) in &mut self.events {
                *left = left.saturating_sub(1);
            }
            // In order: a due event waits for those before it.
            while let Some((noted, 0)) = self.events.front().copied() {
                self.events.pop_front();
                self.noted = noted;
            }
        }
    }

    impl FreezeControl for Mutex<LaggingEngine> {
        async fn order(&self, target: Target) -> Result<(), FreezeError> {
            let mut engine = self.lock().expect("lock");
            engine.arrive();
            if engine.ended {
                return Err(FreezeError::Gone);
            }
            let wanted = target == Target::Freeze;
            // The engine checks its record first, then the kernel refuses an order for the state that it is already in.
            if engine.noted == wanted || engine.frozen == wanted {
                return Err(FreezeError::Runtime(RuntimeError::Refused {
                    kind: Kind::Docker,
                    operation: target.operation(),
                    reason: "the container is so already".to_owned(),
                }));
            }
            (engine.frozen, engine.noted) = (wanted, wanted);
            let lag = engine.lag.pop_front().unwrap_or(0);
            engine.events.push_back((wanted, lag));
            Ok(())
        }

        async fn wait(&self, _pause: Duration) {}
    }

    fn run(future: impl Future<Output = ()>) {
        assert!(future.now_or_never().is_some(), "nothing is waited for");
    }

    proptest! {
        /// Whatever the record says when an order succeeds, the processes are in the wanted state.
        #[test]
        fn an_order_that_returns_well_is_true(lag in prop::collection::vec(0usize..9, 0..40), rounds in 1usize..20) {
            run(async {
                let engine = Mutex::new(LaggingEngine { lag: lag.into(), ..LaggingEngine::default() });
                for _ in 0..rounds {
                    for target in [Target::Freeze, Target::Thaw] {
                        carry_out(&engine, target).await.expect("events arrive");
                        assert_eq!(engine.lock().expect("lock").frozen, target == Target::Freeze);
                    }
                }
            });
        }
    }

    #[test]
    fn one_that_has_ended_is_not_waited_for() {
        run(async {
            let engine = Mutex::new(LaggingEngine {
                ended: true,
                ..LaggingEngine::default()
            });
            let refused = carry_out(&engine, Target::Freeze).await;
            assert!(matches!(refused, Err(FreezeError::Gone)), "{refused:?}");
        });
    }

    #[test]
    fn what_never_comes_true_is_given_up() {
        run(async {
            // Frozen, but the record says otherwise for ever.
            let engine = Mutex::new(LaggingEngine {
                frozen: true,
                ..LaggingEngine::default()
            });
            let refused = carry_out(&engine, Target::Thaw).await;
            assert!(
                matches!(refused, Err(FreezeError::Runtime(_))),
                "{refused:?}"
            );
        });
    }
}
