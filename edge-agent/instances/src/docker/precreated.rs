//! Containers created ahead of their start.
//!
//! Creating a container takes the engine about ten milliseconds, more when it is busy, and uses nothing of the node but some KiB of its disk: a
//! created container has no process and holds neither CPU nor memory, so nothing is reserved for it. For each specification whose starts are
//! expected ([`PrecreatedPool::expect`]), up to [`DockerOptions::ahead`] are kept, up to [`LIMIT`] in all. A start takes one of exactly its
//! specification, including environment and secrets, under the id with which it was created.
//!
//! After a restart of the agent it is not known with which secrets they were created, so `collect` removes them like any unfinished container.
//! None are created for specifications bound to GPU devices, which are chosen at the start, nor on the node's own network, where a port that was
//! free once need not be free later.
//!
//! [`DockerOptions::ahead`]: super::DockerOptions::ahead

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bollard::query_parameters::RemoveContainerOptionsBuilder;
use fdn_core::InstanceId;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use super::{Network, Shared, failure};
use crate::error::StartError;
use crate::spec::StartSpec;

/// The most containers created ahead, of all specifications together.
pub(super) const LIMIT: usize = 256;
/// How long after a start the next one is created: until then the first call of the started container has the processor for itself.
const QUIET: Duration = Duration::from_millis(250);
/// How long after a failure the next container of the same specification is created.
const AFTER_FAILURE: Duration = Duration::from_secs(30);

/// The containers created ahead, by specification.
#[derive(Debug, Default)]
pub(super) struct PrecreatedPool {
    state: Mutex<State>,
    /// Held while containers are created, so that this happens one at a time.
    filling: AsyncMutex<()>,
}

#[derive(Debug, Default)]
struct State {
    rows: Vec<ExpectedStarts>,
    /// Handed out, but their start has not begun.
    taken: BTreeMap<InstanceId, (StartSpec, String)>,
    /// Handed out, and their start has begun.
    starting: BTreeMap<InstanceId, String>,
}

/// A specification whose starts are expected.
#[derive(Debug)]
struct ExpectedStarts {
    /// The id in it has no meaning.
    spec: StartSpec,
    expected: usize,
    ready: VecDeque<Created>,
    /// Since the last failure: when the next one may be created.
    not_before: Option<Instant>,
}

/// A container that is not started.
#[derive(Debug)]
pub(super) struct Created {
    pub(super) id: InstanceId,
    /// The engine's id of the container.
    pub(super) container: String,
}

/// Whether two specifications are equal apart from the id.
fn equal_but_id(one: &StartSpec, other: &StartSpec) -> bool {
    if one.description.digest != other.description.digest {
        return false;
    }
    let mut same_id = one.clone();
    same_id.description.id = other.description.id;
    same_id == *other
}

impl PrecreatedPool {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn expect(&self, spec: &StartSpec) {
        let mut state = self.lock();
        if let Some(row) = state
            .rows
            .iter_mut()
            .find(|row| equal_but_id(&row.spec, spec))
        {
            row.expected += 1;
            return;
        }
        state.rows.push(ExpectedStarts {
            spec: spec.clone(),
            expected: 1,
            ready: VecDeque::new(),
            not_before: None,
        });
    }

    /// Takes back an expectation; returns the containers created for it if there is no other expectation of the same.
    fn forget(&self, spec: &StartSpec) -> VecDeque<Created> {
        let mut state = self.lock();
        let Some(at) = state
            .rows
            .iter()
            .position(|row| equal_but_id(&row.spec, spec))
        else {
            return VecDeque::new();
        };
        state.rows[at].expected -= 1;
        if state.rows[at].expected > 0 {
            return VecDeque::new();
        }
        state.rows.swap_remove(at).ready
    }

    /// Hands one out. `None` if no such starts are expected, `Some(None)` if they are expected but none is in stock.
    pub(super) fn take(&self, spec: &StartSpec) -> Option<Option<InstanceId>> {
        let mut state = self.lock();
        let row = state
            .rows
            .iter_mut()
            .find(|row| equal_but_id(&row.spec, spec))?;
        let Some(Created { id, container }) = row.ready.pop_front() else {
            return Some(None);
        };
        let mut spec = row.spec.clone();
        spec.description.id = id;
        state.taken.insert(id, (spec, container));
        Some(Some(id))
    }

    /// Whether the start that begins is that of a handed-out container; `true` only once for each.
    pub(super) fn begin(&self, spec: &StartSpec) -> bool {
        let mut state = self.lock();
        let id = spec.description.id;
        let of = state.taken.get(&id).filter(|(of, _)| of == spec);
        if of.is_none() {
            return false;
        }
        if let Some((_, container)) = state.taken.remove(&id) {
            state.starting.insert(id, container);
        }
        true
    }

    /// The container of a start that has begun.
    pub(super) fn claim(&self, id: InstanceId) -> Option<String> {
        self.lock().starting.remove(&id)
    }

    /// Keeps a container, unless it is no longer expected.
    fn store(&self, spec: &StartSpec, created: Created) -> Result<(), Created> {
        let mut state = self.lock();
        match state
            .rows
            .iter_mut()
            .find(|row| equal_but_id(&row.spec, spec))
        {
            Some(row) => {
                row.ready.push_back(created);
                Ok(())
            }
            None => Err(created),
        }
    }

    /// The first specification of which fewer than `each` are in stock and another may be created now.
    fn missing(&self, each: usize, now: Instant) -> Option<StartSpec> {
        let state = self.lock();
        let all: usize = state.rows.iter().map(|row| row.ready.len()).sum();
        let is_due = |row: &ExpectedStarts| row.not_before.is_none_or(|at| at <= now);
        let mut rows = state.rows.iter();
        let short = rows.find(|row| row.ready.len() < each && is_due(row));
        short.filter(|_| all < LIMIT).map(|row| row.spec.clone())
    }

    /// Puts off the creation of further ones of a specification.
    fn put_off(&self, spec: &StartSpec, until: Instant) {
        let mut state = self.lock();
        let mut rows = state.rows.iter_mut();
        if let Some(row) = rows.find(|row| equal_but_id(&row.spec, spec)) {
            row.not_before = Some(until);
        }
    }

    /// Creates, one after another, what is missing of `each` of every specification. Returns whether something could not be created and was put off:
    /// somebody must come back for it, because perhaps no start comes that would.
    async fn fill<F>(&self, each: usize, create: impl Fn(StartSpec) -> F) -> bool
    where
        F: Future<Output = Result<(), StartError>>,
    {
        let _one = self.filling.lock().await;
        // At the beginning, so that this ends: each specification fails at most once.
        let now = Instant::now();
        let mut failed = false;
        while let Some(spec) = self.missing(each, now) {
            if let Err(error) = create(spec.clone()).await {
                // Its next start reports more. Others may succeed.
                tracing::debug!(image = %spec.image, %error, "no container could be created ahead");
                self.put_off(&spec, Instant::now() + AFTER_FAILURE);
                failed = true;
            }
        }
        failed
    }

    /// How many containers wait to be started.
    fn count(&self) -> usize {
        self.lock().rows.iter().map(|row| row.ready.len()).sum()
    }
}

/// Keeps containers of a specification in stock for as long as it lives.
#[derive(Debug)]
pub(super) struct ExpectationGuard {
    shared: Weak<Shared>,
    spec: StartSpec,
}

impl Drop for ExpectationGuard {
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        let left = shared.precreated.forget(&self.spec);
        shared.update_precreated_metric();
        if left.is_empty() {
            return;
        }
        // Without a runtime the process is ending; the next one finds and removes them.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                for created in left {
                    shared.discard(created).await;
                }
            });
        }
    }
}

impl Shared {
    /// Expects starts of a specification: containers for them are created ahead, if that is possible.
    pub(super) fn expect(self: &Arc<Self>, spec: &StartSpec) -> Option<ExpectationGuard> {
        let no_devices = spec.gpu.is_none() && spec.description.devices.is_empty();
        let can = self.options.ahead > 0 && no_devices && self.options.network != Network::Host;
        if !can {
            return None;
        }
        self.precreated.expect(spec);
        tokio::spawn(refill_pool(Arc::downgrade(self), Duration::ZERO));
        Some(ExpectationGuard {
            shared: Arc::downgrade(self),
            spec: spec.clone(),
        })
    }

    /// Replaces, after a pause, what a start has taken.
    pub(super) fn refill(self: &Arc<Self>) {
        if self.options.ahead > 0 {
            tokio::spawn(refill_pool(Arc::downgrade(self), QUIET));
        }
    }

    /// Removes a container that is not needed.
    pub(super) async fn discard(&self, created: Created) {
        let options = RemoveContainerOptionsBuilder::default()
            .force(true)
            .v(true)
            .build();
        let removed = self
            .docker
            .remove_container(&created.container, Some(options))
            .await;
        // If it remains, `collect` finds it.
        if let Err(error) = removed
            && failure::status(&error) != Some(404)
        {
            tracing::warn!(instance = %created.id, %error, "a container that was created ahead stays for now");
        }
        self.registry().ids.remove(&created.id);
    }

    pub(super) fn update_precreated_metric(&self) {
        self.options.metrics.set_precreated(self.precreated.count());
    }

    /// Creates one container ahead.
    async fn create_ahead(self: &Arc<Self>, mut spec: StartSpec) -> Result<(), StartError> {
        let id = InstanceId::from_uuid(uuid::Uuid::now_v7());
        spec.description.id = id;
        // Registered before it exists, or `collect` would take it for a leftover.
        self.registry().ids.insert(id);
        let container = match self.create(&spec).await {
            Ok(container) => container,
            Err(error) => {
                self.registry().ids.remove(&id);
                return Err(error);
            }
        };
        if let Err(unwanted) = self.precreated.store(&spec, Created { id, container }) {
            self.discard(unwanted).await;
        }
        self.update_precreated_metric();
        Ok(())
    }
}

/// Creates what is missing, one after another; again later where that failed.
async fn refill_pool(shared: Weak<Shared>, mut after: Duration) {
    loop {
        tokio::time::sleep(after).await;
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let pool = &shared.precreated;
        let create = |spec| shared.create_ahead(spec);
        if !pool.fill(shared.options.ahead, create).await {
            return;
        }
        after = AFTER_FAILURE;
    }
}

#[cfg(test)]
mod tests {
    use fdn_core::{Digest, MebiBytes, MilliCpu, Resources};

    use super::*;
    use crate::spec::{Image, ImageSource};

    fn spec(image: &[u8]) -> StartSpec {
        let image = Image {
            digest: Digest::of(image),
            source: ImageSource::Registry {
                repository: "r.example.com/i".to_owned(),
                credentials: None,
            },
        };
        StartSpec::new(
            id(0),
            "a".parse().unwrap(),
            "f".parse().unwrap(),
            image,
            Resources::new(MilliCpu(1), MebiBytes(1)),
        )
    }

    fn id(number: u128) -> InstanceId {
        InstanceId::from_uuid(uuid::Uuid::from_u128(number))
    }

    fn created(number: u128) -> Created {
        Created {
            id: id(number),
            container: format!("c-{number}"),
        }
    }

    fn with_id(mut spec: StartSpec, number: u128) -> StartSpec {
        spec.description.id = id(number);
        spec
    }

    #[test]
    fn one_is_used_once_and_only_for_what_it_was_created_for() {
        let pool = PrecreatedPool::default();
        let plain = spec(b"image");
        let mut secret = plain.clone();
        let name = "TOKEN".parse().unwrap();
        secret.secrets.0.insert(name, "hush".to_owned());
        assert_eq!(pool.take(&plain), None, "nobody expects it");
        pool.expect(&plain);
        pool.store(&plain, created(1)).unwrap();
        assert_eq!(pool.take(&secret), None, "another environment");
        assert_eq!(pool.take(&with_id(plain.clone(), 9)), Some(Some(id(1))));
        assert_eq!(pool.take(&plain), Some(None), "it is gone");
        assert!(!pool.begin(&with_id(secret, 1)), "for something else");
        assert!(!pool.begin(&with_id(plain.clone(), 2)), "another id");
        assert_eq!(pool.claim(id(1)), None, "it has not begun");
        assert!(pool.begin(&with_id(plain.clone(), 1)));
        assert!(!pool.begin(&with_id(plain, 1)), "once");
        assert_eq!(pool.claim(id(1)), Some("c-1".into()));
        assert_eq!(pool.claim(id(1)), None);
    }

    #[test]
    fn one_that_cannot_be_created_is_put_off_and_the_others_are_created() {
        let pool = PrecreatedPool::default();
        let (broken, good) = (spec(b"broken"), spec(b"good"));
        pool.expect(&broken);
        pool.expect(&good);
        let now = Instant::now();
        assert_eq!(pool.missing(1, now).as_ref(), Some(&broken));
        let later = now + AFTER_FAILURE;
        pool.put_off(&with_id(broken.clone(), 9), later);
        assert_eq!(pool.missing(1, now).as_ref(), Some(&good));
        pool.store(&good, created(1)).unwrap();
        assert_eq!(pool.missing(1, now), None);
        assert_eq!(pool.missing(1, later).as_ref(), Some(&broken), "again");
    }

    #[tokio::test]
    async fn who_had_to_put_one_off_comes_back_for_it() {
        let pool = PrecreatedPool::default();
        let (broken, good) = (spec(b"broken"), spec(b"good"));
        pool.expect(&broken);
        pool.expect(&good);
        let create = |spec: StartSpec| {
            let made = if spec == broken {
                Err(StartError::NoRoom {
                    reason: "the test says so".to_owned(),
                })
            } else {
                pool.store(&spec, created(1)).unwrap();
                Ok(())
            };
            std::future::ready(made)
        };
        assert!(pool.fill(1, create).await, "one is put off");
        assert_eq!(pool.count(), 1);
        assert!(!pool.fill(1, create).await, "it is not due yet");
    }

    #[test]
    fn they_are_kept_while_somebody_expects_them_and_within_the_bound() {
        let pool = PrecreatedPool::default();
        let (one, other) = (spec(b"one"), spec(b"other"));
        let now = Instant::now();
        assert_eq!(pool.missing(2, now), None);
        for spec in [&one, &one, &other] {
            pool.expect(spec);
        }
        for number in 0..2 {
            assert_eq!(pool.missing(2, now).as_ref(), Some(&one));
            pool.store(&one, created(number)).unwrap();
        }
        assert_eq!(pool.missing(2, now).as_ref(), Some(&other));
        assert!(pool.forget(&one).is_empty(), "expected twice");
        assert_eq!(pool.forget(&one).len(), 2);
        assert_eq!(pool.store(&one, created(7)).unwrap_err().id, id(7));
        for number in 0..LIMIT {
            pool.store(&other, created(number as u128)).unwrap();
        }
        assert_eq!(pool.missing(LIMIT + 1, now), None, "no more in all");
        assert_eq!(pool.count(), LIMIT);
    }
}
