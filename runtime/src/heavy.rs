//! Background threads for guests that use more than a slice of CPU.
//!
//! Each thread runs its own small tokio runtime, which polls for I/O and new tasks after every single task: a guest yields
//! its thread after each slice, so that any number of endless loops share the threads evenly and everything else on
//! them still progresses within a few milliseconds. The threads are niced, so that gateway threads win against them. The number
//! of calls in the background is bounded; one more is refused. No function takes all places, so that calls of others find one.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

/// The share of the places that one function may take, in percent: as much as an app may take of a node's places by default.
const FUNCTION_SHARE: usize = 75;

/// The number of places that a function's calls hold.
pub(crate) type FunctionPlaces = Arc<AtomicUsize>;

pub(crate) struct HeavyPool {
    runners: Vec<Runner>,
    active: Arc<AtomicUsize>,
    capacity: usize,
    per_function: usize,
}

struct Runner {
    handle: Handle,
    load: Arc<AtomicUsize>,
    /// The thread ends when this is dropped.
    _stop: oneshot::Sender<()>,
}

/// A slot for one call in the background, released when dropped.
pub(crate) struct HeavySlot {
    active: Arc<AtomicUsize>,
    of_function: FunctionPlaces,
    load: Arc<AtomicUsize>,
    handle: Handle,
}

impl Drop for HeavySlot {
    fn drop(&mut self) {
        self.active.fetch_sub(1, Ordering::Relaxed);
        self.of_function.fetch_sub(1, Ordering::Relaxed);
        self.load.fetch_sub(1, Ordering::Relaxed);
    }
}

impl HeavySlot {
    /// Runs `task` on the slot's thread and releases the slot when it ends.
    pub(crate) fn spawn(self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let handle = self.handle.clone();
        handle
            .spawn(async move {
                let _slot = self;
                task.await;
            })
            .abort_handle()
    }
}

impl HeavyPool {
    pub(crate) fn start(threads: usize, capacity: usize, nice: i32) -> std::io::Result<Self> {
        let runners = (0..threads.max(1))
            .map(|number| Runner::start(number, nice))
            .collect::<std::io::Result<_>>()?;
        Ok(Self {
            runners,
            active: Arc::new(AtomicUsize::new(0)),
            capacity,
            per_function: (capacity * FUNCTION_SHARE).div_ceil(100),
        })
    }

    /// The number of calls that now run in the background.
    pub(crate) fn active(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }

    /// A slot on the least loaded thread; `None` if all are taken, or the function has its share.
    pub(crate) fn acquire_slot(&self, of_function: &FunctionPlaces) -> Option<HeavySlot> {
        if !take(of_function, self.per_function) {
            return None;
        }
        if !take(&self.active, self.capacity) {
            of_function.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let runner = self
            .runners
            .iter()
            .min_by_key(|runner| runner.load.load(Ordering::Relaxed))
            .expect("there is at least one thread");
        runner.load.fetch_add(1, Ordering::Relaxed);
        Some(HeavySlot {
            active: self.active.clone(),
            of_function: of_function.clone(),
            load: runner.load.clone(),
            handle: runner.handle.clone(),
        })
    }

    /// The threads on which blocking work of guests is done: not those of the caller's runtime, whose own blocking work would wait behind it.
    pub(crate) fn blocking(&self) -> &Handle {
        &self.runners[0].handle
    }

    /// Runs a task of the engine itself, which does not count against the bound.
    pub(crate) fn spawn_housekeeping(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runners[0].handle.spawn(task);
    }
}

/// Takes one place, of which there are `most`; returns whether one was free.
fn take(places: &AtomicUsize, most: usize) -> bool {
    places
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
            (taken < most).then_some(taken + 1)
        })
        .is_ok()
}

impl Runner {
    fn start(number: usize, nice: i32) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            // One guest's slice is one poll of a task: look for I/O, timers and tasks from other threads after each.
            .event_interval(1)
            .global_queue_interval(1)
            .build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        std::thread::Builder::new()
            .name(format!("fdn-heavy-{number}"))
            .spawn(move || {
                // On Linux this applies to the calling thread. Not being allowed to lower the priority is no reason not to work.
                if let Err(error) = rustix::process::setpriority_process(None, nice) {
                    tracing::debug!(%error, "cannot lower the priority of a background thread");
                }
                // The sender is only ever dropped; either way it is time to stop.
                let _ = runtime.block_on(stopped);
            })?;
        Ok(Self {
            handle,
            load: Arc::new(AtomicUsize::new(0)),
            _stop: stop,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_spread_and_given_back() {
        let pool = HeavyPool::start(2, 3, 0).expect("threads");
        let others = [FunctionPlaces::default(), FunctionPlaces::default()];
        let places: Vec<_> = others
            .iter()
            .chain(&others)
            .filter_map(|function| pool.acquire_slot(function))
            .collect();
        assert_eq!(places.len(), 3);
        assert_eq!(pool.active(), 3);
        let loads: Vec<_> = pool
            .runners
            .iter()
            .map(|r| r.load.load(Ordering::Relaxed))
            .collect();
        assert_eq!(loads.iter().sum::<usize>(), 3);
        assert!(loads.iter().all(|load| *load >= 1), "{loads:?}");
        drop(places);
        assert_eq!(pool.active(), 0);
        let (sender, receiver) = std::sync::mpsc::channel();
        let place = pool.acquire_slot(&others[0]).expect("a place");
        place.spawn(async move {
            sender
                .send(std::thread::current().name().map(ToOwned::to_owned))
                .expect("a receiver");
        });
        let name = receiver.recv().expect("the task runs").expect("a name");
        assert!(name.starts_with("fdn-heavy-"), "{name}");
    }

    #[test]
    fn one_function_leaves_places_to_others() {
        let pool = HeavyPool::start(1, 8, 0).expect("threads");
        let [greedy, other] = [FunctionPlaces::default(), FunctionPlaces::default()];
        let mut places: Vec<_> = std::iter::from_fn(|| pool.acquire_slot(&greedy)).collect();
        assert_eq!(places.len(), 6);
        let others: Vec<_> = std::iter::from_fn(|| pool.acquire_slot(&other)).collect();
        assert_eq!(others.len(), 2, "what is left");
        drop(places.pop());
        assert!(pool.acquire_slot(&other).is_some());
        assert!(pool.acquire_slot(&greedy).is_some(), "nothing was lost");
    }
}
