//! The handle of a function version, held by its deployment.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use fdn_core::Millis;
use fdn_instances::StartSpec;
use fdn_scheduling::invocation::FunctionIndex;
use fdn_scheduling::prewarm::Answer;

use super::Inner;
use super::watch::{Degradation, DegradationCell};
use crate::invocations::placer::Registration;
use crate::invocations::pool::FunctionCounts;

/// The data kept for a registered function.
pub(super) struct RegisteredFunction {
    pub(super) spec: StartSpec,
    pub(super) degradation: DegradationCell,
    /// The number of instances started so far.
    pub(super) starts: AtomicU64,
}

/// A function version whose calls are served by instances; dropping it stops the instances.
pub struct InstanceQueue {
    pub(super) inner: Weak<Inner>,
    pub(super) index: FunctionIndex,
    pub(super) function: Arc<RegisteredFunction>,
    pub(super) _registration: Registration,
}

impl InstanceQueue {
    /// What is wrong with its instances; `None` if nothing is.
    #[must_use]
    pub fn degradation(&self) -> Option<Degradation> {
        self.function.degradation.get()
    }

    /// The numbers of its instances and calls.
    #[must_use]
    pub fn counts(&self) -> FunctionCounts {
        let inner = self.inner.upgrade();
        inner.map_or_else(FunctionCounts::default, |inner| {
            inner.lock().pool.counts(self.index)
        })
    }

    /// Announces a call that will arrive in `within` and is waited for `patience` longer: an instance is started if none is free and it is time
    /// to start one.
    #[must_use]
    pub fn announce(&self, within: Millis, patience: Millis) -> Answer {
        let Some(inner) = self.inner.upgrade() else {
            return Answer::Unknown;
        };
        let weight = inner
            .placer
            .weight(self.function.spec.description.resources);
        if weight > inner.placer.max_weight() {
            return Answer::NoRoom;
        }
        let when = (within, patience);
        inner.with(|state, now| state.pool.announce(now, self.index, when))
    }

    /// The number of instances started for it.
    #[must_use]
    pub fn starts(&self) -> u64 {
        self.function.starts.load(Ordering::Relaxed)
    }

    /// The specification of its instances.
    #[must_use]
    pub fn spec(&self) -> &StartSpec {
        &self.function.spec
    }
}

impl Drop for InstanceQueue {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.upgrade()
            && !inner.detached.load(Ordering::Relaxed)
        {
            let index = self.index;
            inner.with(|state, now| {
                state.functions[index.get()] = None;
                state.pool.retire(now, index);
            });
        }
    }
}
