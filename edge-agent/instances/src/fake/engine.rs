//! The part of the fake that outlives the agent: images, instances, and the script of failures.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fdn_core::api::LogStream;
use fdn_core::{Digest, InstanceId};
use tokio::sync::watch;

use crate::error::{RuntimeError, StartError};
use crate::fake::instance::FakeInstance;
use crate::fake::program::{AtStart, FakeProgram};
use crate::instance::Instance;
use crate::runtime::{Collected, Kind, Owner};
use crate::spec::{Image, ImageSource, StartSpec};
use crate::state::{Exit, InstanceState};

/// An engine with images, instances and a script, shared by the runtimes made from it.
#[derive(Debug)]
pub struct FakeEngine {
    state: Mutex<State>,
    starts_held: watch::Sender<bool>,
    /// While true, orders to resume an instance wait.
    resumes_held: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    images: BTreeMap<Digest, FakeProgram>,
    instances: BTreeMap<InstanceId, Arc<FakeInstance>>,
    failures: VecDeque<StartError>,
    delay: Duration,
    unreachable: bool,
    starts: u64,
    /// How many of the next orders to resume an instance fail.
    failing_resumes: u32,
    /// How many of the next orders to stop an instance fail.
    failing_stops: u32,
    hides_pauses: bool,
}

impl FakeEngine {
    /// Creates an engine without images.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            starts_held: watch::Sender::new(false),
            resumes_held: watch::Sender::new(false),
        })
    }

    /// Adds an image of this name and returns it.
    pub fn add_image(&self, name: &str, program: FakeProgram) -> Image {
        let digest = Digest::of(name.as_bytes());
        self.lock().images.insert(digest, program);
        Image {
            digest,
            source: ImageSource::Registry {
                repository: format!("fake/{name}"),
                credentials: None,
            },
        }
    }

    /// How long each start takes from now on.
    pub fn delay_starts(&self, delay: Duration) {
        self.lock().delay = delay;
    }

    /// Makes the next starts fail with these errors, one each.
    pub fn fail_starts(&self, errors: impl IntoIterator<Item = StartError>) {
        self.lock().failures.extend(errors);
    }

    /// Makes starts wait (after their delay) until [`FakeEngine::release_starts`].
    pub fn hold_starts(&self) {
        self.starts_held.send_replace(true);
    }

    /// Lets waiting starts continue.
    pub fn release_starts(&self) {
        self.starts_held.send_replace(false);
    }

    /// Makes this many of the next orders to resume an instance fail.
    pub fn fail_resumes(&self, count: u32) {
        self.lock().failing_resumes = count;
    }

    /// Makes this many of the next orders to stop an instance fail.
    pub fn fail_stops(&self, count: u32) {
        self.lock().failing_stops = count;
    }

    /// Makes orders to resume an instance wait until [`FakeEngine::release_resumes`].
    pub fn hold_resumes(&self) {
        self.resumes_held.send_replace(true);
    }

    /// Lets waiting orders to resume continue.
    pub fn release_resumes(&self) {
        self.resumes_held.send_replace(false);
    }

    /// Makes pauses invisible in the states of instances, as on another node from which news is slow.
    pub fn hide_pauses(&self) {
        self.lock().hides_pauses = true;
    }

    pub(crate) fn hides_pauses(&self) -> bool {
        self.lock().hides_pauses
    }

    /// The number of paused instances.
    #[must_use]
    pub fn paused(&self) -> usize {
        let state = self.lock();
        let all = state.instances.values();
        all.filter(|i| i.is_frozen()).count()
    }

    /// Handles an order to resume an instance.
    pub(crate) async fn resume(&self) -> Result<(), RuntimeError> {
        let mut resumes_held = self.resumes_held.subscribe();
        // The sender lives as long as the engine.
        drop(resumes_held.wait_for(|resumes_held| !resumes_held).await);
        let mut state = self.lock();
        if state.failing_resumes == 0 {
            return Ok(());
        }
        state.failing_resumes -= 1;
        Err(RuntimeError::Refused {
            kind: Kind::Fake,
            operation: "resume the instance",
            reason: "told to fail".to_owned(),
        })
    }

    /// Handles an order to stop an instance.
    pub(crate) fn stop(&self) -> Result<(), RuntimeError> {
        let mut state = self.lock();
        if state.failing_stops == 0 {
            return Ok(());
        }
        state.failing_stops -= 1;
        Err(RuntimeError::Refused {
            kind: Kind::Fake,
            operation: "stop the instance",
            reason: "told to fail".to_owned(),
        })
    }

    /// Sets whether the engine is unreachable.
    pub fn set_unreachable(&self, unreachable: bool) {
        self.lock().unreachable = unreachable;
    }

    /// Kills an instance as `kill -9` does; its running calls are interrupted. `false` if it is not running.
    pub fn crash(&self, id: InstanceId) -> bool {
        let instance = self.lock().instances.get(&id).cloned();
        let Some(instance) = instance.filter(|i| i.current().exit().is_none()) else {
            return false;
        };
        instance.end(Exit::ended(137));
        true
    }

    /// Kills every instance and returns how many there were.
    pub fn crash_all(&self) -> usize {
        let ids: Vec<_> = self.lock().instances.keys().copied().collect();
        ids.into_iter().filter(|id| self.crash(*id)).count()
    }

    /// Makes an instance stop answering, or answer again.
    pub fn set_unresponsive(&self, id: InstanceId, unresponsive: bool) {
        let instance = self.lock().instances.get(&id).cloned();
        if let Some(instance) = instance {
            instance.set(if unresponsive {
                InstanceState::Unresponsive {
                    reason: "connection refused".to_owned(),
                }
            } else {
                InstanceState::Ready
            });
        }
    }

    /// All running instances, of whatever owner.
    #[must_use]
    pub fn alive(&self) -> Vec<(Owner, InstanceId)> {
        let state = self.lock();
        let living = state
            .instances
            .values()
            .filter(|i| i.current().exit().is_none());
        living.map(|i| (i.owner().clone(), i.id())).collect()
    }

    /// The number of instances of this owner that the engine knows, including ended ones that were neither stopped nor collected.
    #[must_use]
    pub fn left(&self, owner: &Owner) -> usize {
        let state = self.lock();
        let mine = state.instances.values().filter(|i| i.owner() == owner);
        mine.count()
    }

    /// The number of starts begun since the engine was created.
    #[must_use]
    pub fn starts(&self) -> u64 {
        self.lock().starts
    }

    pub(crate) fn check(&self) -> Result<(), RuntimeError> {
        if self.lock().unreachable {
            return Err(RuntimeError::Unreachable {
                kind: Kind::Fake,
                reason: "the script says so".to_owned(),
            });
        }
        Ok(())
    }

    pub(crate) fn program(&self, image: &Image) -> Result<FakeProgram, StartError> {
        let known = self.lock().images.get(&image.digest).cloned();
        known.ok_or_else(|| StartError::ImageMissing {
            image: image.to_string(),
            reason: "no such image".to_owned(),
        })
    }

    pub(crate) async fn start(
        self: &Arc<Self>,
        owner: &Owner,
        spec: StartSpec,
    ) -> Result<Arc<dyn Instance>, StartError> {
        self.check()?;
        let program = self.program(&spec.image)?;
        let timeout = spec.description.readiness.timeout;
        let instance = Arc::new(FakeInstance::new(self, owner.clone(), spec, program));
        let delay = self.begin(&instance)?;
        let mut guard = StartRollback {
            engine: self,
            id: instance.id(),
            done: false,
        };
        self.settle(&instance, delay, timeout).await?;
        guard.done = true;
        Ok(Arc::new(instance))
    }

    /// Registers an instance; returns the delay of its start.
    fn begin(&self, instance: &Arc<FakeInstance>) -> Result<Duration, StartError> {
        let mut state = self.lock();
        state.starts += 1;
        if let Some(error) = state.failures.pop_front() {
            return Err(error);
        }
        let id = instance.id();
        if state.instances.contains_key(&id) {
            return Err(StartError::Exists { id });
        }
        state.instances.insert(id, instance.clone());
        Ok(state.delay)
    }

    async fn settle(
        &self,
        instance: &Arc<FakeInstance>,
        delay: Duration,
        timeout: Duration,
    ) -> Result<(), StartError> {
        for line in &instance.program().lines {
            instance.print(LogStream::Stderr, line);
        }
        let exited = |exit: &Exit| StartError::Exited {
            exit: exit.clone(),
            log: instance.log_tail(),
        };
        match &instance.program().at_start {
            AtStart::Ready => {}
            AtStart::Exits(exit) => return Err(exited(exit)),
            AtStart::NeverReady => {
                tokio::time::sleep(timeout).await;
                return Err(StartError::NotReady {
                    after: timeout,
                    reason: "connection refused".to_owned(),
                    log: instance.log_tail(),
                });
            }
        }
        tokio::time::sleep(delay).await;
        let mut starts_held = self.starts_held.subscribe();
        // The sender lives as long as the engine.
        drop(starts_held.wait_for(|starts_held| !starts_held).await);
        if let Some(exit) = instance.current().exit() {
            return Err(exited(exit));
        }
        instance.set(InstanceState::Ready);
        Ok(())
    }

    pub(crate) fn running(&self, owner: &Owner) -> Vec<Arc<dyn Instance>> {
        let state = self.lock();
        let mine = state.instances.values().filter(|i| i.owner() == owner);
        mine.filter(|i| {
            matches!(
                i.current(),
                InstanceState::Ready | InstanceState::Paused | InstanceState::Unresponsive { .. }
            )
        })
        .map(|i| Arc::new(i.clone()) as Arc<dyn Instance>)
        .collect()
    }

    pub(crate) fn collect(&self, owner: &Owner) -> Collected {
        let mut state = self.lock();
        let orphans: BTreeSet<InstanceId> = state
            .instances
            .values()
            .filter(|i| i.owner() == owner && i.current().exit().is_some())
            .map(|i| i.id())
            .collect();
        for id in &orphans {
            state.instances.remove(id);
        }
        Collected {
            removed: orphans,
            failed: Vec::new(),
        }
    }

    /// Forgets a stopped instance.
    pub(crate) fn forget(&self, id: InstanceId) {
        self.lock().instances.remove(&id);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Undoes a failed or dropped start.
struct StartRollback<'a> {
    engine: &'a FakeEngine,
    id: InstanceId,
    done: bool,
}

impl Drop for StartRollback<'_> {
    fn drop(&mut self) {
        if !self.done {
            let instance = self.engine.lock().instances.remove(&self.id);
            if let Some(instance) = instance {
                instance.end(Exit::ended(137));
            }
        }
    }
}
