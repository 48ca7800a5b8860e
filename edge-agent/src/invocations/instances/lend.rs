//! Idle instances that are given up where they are needed more: those that ran for another node which no longer uses them, which this node keeps
//! warm and lends to the next node that wants one; and those that hold slices of devices.

use std::sync::{Arc, Weak};

use fdn_core::{InstanceId, MebiBytes, Millis};
use fdn_instances::{Description, InstanceState};
use fdn_scheduling::invocation::{ContainerId, FunctionIndex};

use super::{Inner, Instances, Live, State, here, take};
use crate::invocations::placer::Placed;
use crate::invocations::slices::IdleInstances;

/// A weak handle, which does not keep [`Instances`] alive.
#[derive(Clone)]
pub struct WeakInstances(Weak<Inner>);

impl Instances {
    /// A weak handle, for components that `Instances` itself depends on.
    #[must_use]
    pub fn downgrade(&self) -> WeakInstances {
        WeakInstances(Arc::downgrade(&self.inner))
    }
}

impl WeakInstances {
    /// Adopts an idle instance of a function that is deployed here.
    ///
    /// # Errors
    /// Returns the instance if there is no such function, no room for it, or the agent is stopping.
    pub fn take_in(&self, placed: Placed) -> Result<(), Placed> {
        let Some(inner) = self.0.upgrade() else {
            return Err(placed);
        };
        inner.with(|state, now| {
            let description = placed.instance.description();
            let Some(index) = function_of(state, description) else {
                return Err(placed);
            };
            let is_paused = *placed.instance.state().borrow() == InstanceState::Paused;
            let Some(container) = state.pool.adopt(now, index, is_paused) else {
                return Err(placed);
            };
            inner.insert(state, container, placed);
            if let Some(live) = here(state, container) {
                live.lendable = true;
            }
            Ok(())
        })
    }

    /// Gives away an adopted idle instance of this function, if there is one.
    #[must_use]
    pub fn lend(&self, description: &Description) -> Option<Placed> {
        let inner = self.0.upgrade()?;
        inner.with(|state, now| {
            let index = function_of(state, description)?;
            let container = idle_one(state, index)?;
            give(state, now, container)
        })
    }
}

impl WeakInstances {
    /// Evicts idle instances of other functions, anywhere in the cluster, that hold slices of devices, until they add up to the wanted GPU
    /// memory. Returns how much they held.
    #[must_use]
    pub fn evict_for_gpu(&self, wanted: &Description) -> MebiBytes {
        let Some(inner) = self.0.upgrade() else {
            return MebiBytes(0);
        };
        inner.with(|state, now| {
            let mut freed = MebiBytes(0);
            for (container, live) in idle_with_slices(state, wanted) {
                if freed >= wanted.resources.gpu_memory_mib {
                    break;
                }
                let held = live.instance.description().resources.gpu_memory_mib;
                if state.pool.evict(now, container) {
                    freed = freed.saturating_add(held);
                }
            }
            freed
        })
    }
}

/// The node's own idle instances, in the order of the keep-alive policy.
impl IdleInstances for WeakInstances {
    fn idle(&self, wanted: &Description) -> Vec<InstanceId> {
        let Some(inner) = self.0.upgrade() else {
            return Vec::new();
        };
        inner.with(|state, _| {
            let here = idle_with_slices(state, wanted).into_iter();
            // An instance on another node holds nothing here.
            let here = here.filter(|(_, live)| live.reservation.is_some());
            here.map(|(_, live)| live.instance.id()).collect()
        })
    }

    fn end(&self, instance: InstanceId) -> bool {
        let Some(inner) = self.0.upgrade() else {
            return false;
        };
        inner.with(|state, now| {
            let mut live = state.live.iter().flatten();
            let found = live.find(|live| live.instance.id() == instance);
            let container = found.map(|live| live.container);
            container.is_some_and(|container| state.pool.evict(now, container))
        })
    }
}

/// Idle instances of other functions that hold slices of devices, in eviction order.
fn idle_with_slices(state: &mut State, wanted: &Description) -> Vec<(ContainerId, Live)> {
    let idle: Vec<ContainerId> = state.pool.idle_in_eviction_order().collect();
    let live = |container| Some((container, here(state, container)?.clone()));
    let all = idle.into_iter().filter_map(live);
    let would_help = |live: &Live| {
        let description = live.instance.description();
        !description.devices.is_empty() && !description.is_of_the_same(wanted)
    };
    all.filter(|(_, live)| would_help(live)).collect()
}

/// The function whose instances have this description, ignoring id and devices.
fn function_of(state: &State, description: &Description) -> Option<FunctionIndex> {
    let of = |function: &Arc<super::RegisteredFunction>| {
        let mut other = function.spec.description.clone();
        other.id = description.id;
        other.devices.clone_from(&description.devices);
        other == *description
    };
    let mut functions = state.functions.iter();
    let at = functions.position(|function| function.as_ref().is_some_and(of))?;
    Some(FunctionIndex::new(at))
}

/// An idle instance of a function that may be lent.
fn idle_one(state: &State, index: FunctionIndex) -> Option<ContainerId> {
    let lendable = state.live.iter().flatten().filter(|live| {
        // A second reference means that its resources are still in use, as by a stop in progress.
        live.lendable && Arc::strong_count(&live.reservation) == 1
    });
    let mut idle = lendable.map(|live| live.container).filter(|container| {
        state.pool.function_of(*container) == Some(index) && state.pool.is_idle(*container)
    });
    idle.next()
}

fn give(state: &mut State, now: Millis, container: ContainerId) -> Option<Placed> {
    let live = take(state, container)?;
    state.pool.gone(now, container);
    Some(Placed {
        instance: live.instance,
        reservation: Arc::into_inner(live.reservation).flatten(),
    })
}
