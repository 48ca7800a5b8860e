//! Builds the lookup tables for what changed, on threads that do not answer queries.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fdn_core::message::NetworkDesired;
use fdn_core::{AppName, ParseError, Revision};

use super::desired_state::Entry;
use crate::metrics::Metrics;
use crate::policy::bindings::{Bindings, TablePool, TooManyClusters};
use crate::policy::fleet::Network;
use crate::policy::records::NamedRecords;
use crate::policy::zone::{AppTable, Names, ZoneData};

/// The tables of all apps.
#[derive(Debug, Default)]
pub(super) struct Tables {
    apps: BTreeMap<AppName, Arc<AppTable>>,
    /// Text records set through the API.
    texts: Vec<NamedRecords>,
    pool: TablePool,
}

impl Tables {
    /// The number of bindings.
    pub(super) fn bindings(&self) -> usize {
        self.apps.values().map(|table| table.bindings.len()).sum()
    }

    /// The number of distinct tables.
    pub(super) fn different(&self) -> usize {
        let tables = self.apps.values().map(|t| Arc::as_ptr(&t.bindings));
        tables.collect::<BTreeSet<_>>().len()
    }

    /// The number of names with text records set through the API.
    pub(super) fn texts(&self) -> usize {
        self.texts.len()
    }
}

/// The input of a build.
pub(super) struct BuildInput {
    /// The apps that changed, with what is known of them now.
    pub(super) changed: Vec<(AppName, Option<Entry>)>,
    /// All text records set through the API, if any changed.
    pub(super) texts: Option<Vec<NamedRecords>>,
    /// The network, if it changed.
    pub(super) network: Option<NetworkDesired>,
    pub(super) zone: Arc<ZoneData>,
    /// The names that are published now.
    pub(super) names: Arc<Names>,
    pub(super) serial: Revision,
    /// Whether the set of apps is complete.
    pub(super) complete: bool,
    pub(super) tables: Tables,
    /// The metrics with the apps' counters.
    pub(super) metrics: Arc<Metrics>,
}

/// The output of a build.
pub(super) struct BuildOutput {
    pub(super) tables: Tables,
    pub(super) names: Result<Names, ParseError>,
    pub(super) network: Option<Network>,
    /// The resulting bindings of the changed apps, with their pending changes applied.
    pub(super) bindings: Vec<(AppName, Arc<Bindings>)>,
    /// Apps whose bindings could not be built.
    pub(super) failed: Vec<(AppName, TooManyClusters)>,
}

impl BuildInput {
    /// Builds the tables.
    pub(super) fn build(mut self) -> BuildOutput {
        let (mut built, mut failed, mut fresh) = (Vec::new(), Vec::new(), Vec::new());
        // The map of names is rebuilt only if a name is added or removed.
        let mut same_names = self.complete == self.names.is_complete();
        if let Some(texts) = self.texts.take() {
            self.tables.texts = texts;
            same_names = false;
        }
        for (app, entry) in std::mem::take(&mut self.changed) {
            let Some((revision, state)) = entry.and_then(|e| Some((e.revision, e.state?))) else {
                same_names &= self.tables.apps.remove(&app).is_none();
                self.metrics.by_app.forget(&app);
                continue;
            };
            let bindings = if state.waiting.is_empty() {
                Ok(state.bindings)
            } else {
                let changes = state.waiting.iter();
                state
                    .bindings
                    .with(changes.map(|(prefix, cluster)| (*prefix, cluster.as_ref())))
                    .map(Arc::new)
            };
            let bindings = match bindings {
                Ok(bindings) => self.tables.pool.intern(bindings),
                Err(cause) => {
                    failed.push((app, cause));
                    continue;
                }
            };
            built.push((app.clone(), Arc::clone(&bindings)));
            let held = self.tables.apps.get(&app);
            let name = held.map_or_else(|| Arc::new(app.clone()), |held| Arc::clone(&held.app));
            let table = AppTable::new(name, revision, &state.host, state.ttl_s, bindings);
            let table = table.held_by(state.holders);
            let table = Arc::new(table.counted_by(self.metrics.by_app.counter(&app)));
            fresh.push(Arc::clone(&table));
            self.tables.apps.insert(app, table);
        }
        let swapped = if same_names {
            self.names.with_tables(fresh)
        } else {
            None
        };
        let names = match swapped {
            Some(names) => Ok(names),
            None => Names::new(
                &self.zone,
                self.tables.apps.values(),
                self.serial,
                self.complete,
            )
            .map(|mut names| {
                names.add_texts(&self.tables.texts);
                names
            }),
        };
        BuildOutput {
            tables: self.tables,
            names,
            network: self.network.as_ref().map(Network::new),
            bindings: built,
            failed,
        }
    }
}
