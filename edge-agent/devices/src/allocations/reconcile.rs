//! Reconciles the allocation table with the instances that really run.

use std::collections::{BTreeMap, BTreeSet};

use fdn_core::InstanceId;

use super::{AllocationTable, Binding, BindingEntry, RunningBinding};
use crate::error::BindError;

/// The result of a reconciliation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReconcileReport {
    /// Their bindings are unchanged.
    pub kept: BTreeSet<InstanceId>,
    /// They ran without a binding, or with a different one, and have the right one now.
    pub adopted: BTreeSet<InstanceId>,
    /// They do not run; what they held is free.
    pub released: BTreeSet<InstanceId>,
    /// There is no room for what they hold: they must end.
    pub lost: BTreeSet<InstanceId>,
}

impl AllocationTable {
    /// Makes the allocation table match what runs. `running` must be complete: an instance that is left out counts as ended. Where the runtime
    /// does not tell an instance's share of cores, which it does only under MPS, the saved share remains.
    ///
    /// # Errors
    /// [`BindError::Contradiction`], which would be a bug.
    pub fn reconcile(
        &mut self,
        running: impl IntoIterator<Item = RunningBinding>,
    ) -> Result<ReconcileReport, BindError> {
        let mut done = ReconcileReport::default();
        let mut before = std::mem::take(&mut self.bindings);
        let mut after = BTreeMap::new();
        for running in running {
            let instance = running.instance;
            let known = before.remove(&instance);
            let kept = known.filter(|entry| is_same(&entry.bound, &running));
            let was = if kept.is_some() {
                &mut done.kept
            } else {
                &mut done.adopted
            };
            was.insert(instance);
            let entry = kept.unwrap_or(BindingEntry {
                bound: running,
                lost: false,
            });
            after.insert(instance, entry);
        }
        done.released = before.into_keys().collect();
        self.bindings = after;
        // Instances that were in the table take precedence over those that were not.
        let order: Vec<InstanceId> = done.kept.iter().chain(&done.adopted).copied().collect();
        self.rebuild(&order)?;
        self.prune_gone();
        done.lost = self.lost().collect();
        done.kept.retain(|instance| !done.lost.contains(instance));
        done.adopted
            .retain(|instance| !done.lost.contains(instance));
        Ok(done)
    }
}

/// Whether an instance runs with its saved binding, as far as the runtime tells.
fn is_same(saved: &Binding, running: &RunningBinding) -> bool {
    let Binding {
        instance,
        app,
        memory,
        cores,
        devices,
    } = running;
    saved.instance == *instance
        && saved.app == *app
        && saved.memory == *memory
        && (cores.is_none() || saved.cores == *cores)
        && saved.devices == *devices
}
