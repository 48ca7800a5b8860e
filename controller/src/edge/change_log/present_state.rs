//! The state in the change log: the newest state of each thing. No I/O.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use fdn_core::message::{NetworkDesired, TxtDesired};
use fdn_core::policy::quota::AppQuotaUsage;
use fdn_core::{AppName, ClusterId, Digest, RecordName, Revision};

use super::{FetchPermission, StoredState};
use crate::edge::change::{AppEntry, BindingsEntry, Change, FleetEntry};
use crate::edge::used::{Quotas, UsageByCluster};
use crate::edge::view;
use crate::store::app::InformedClusters;

/// The result of applying a change.
#[derive(Debug)]
pub(super) enum PutResult {
    /// It was newer; for an app, with its entry before.
    New(Option<Arc<AppEntry>>),
    /// The state is as new, or newer.
    Old,
    /// The bindings that it changes are not there at its base revision.
    Missing,
}

/// The newest state of everything.
#[derive(Debug, Default)]
pub(super) struct PresentState {
    pub(super) apps: BTreeMap<AppName, Arc<AppEntry>>,
    digests: Digests,
    pub(super) bindings: BTreeMap<AppName, Arc<BindingsEntry>>,
    pub(super) texts: BTreeMap<RecordName, Arc<TxtDesired>>,
    pub(super) network: Option<Arc<NetworkDesired>>,
    pub(super) fleet: Arc<FleetEntry>,
    pub(super) quotas: Quotas,
    informed: BTreeMap<AppName, InformedClusters>,
}

impl PresentState {
    /// An empty state that remembers at most `digests` former artifacts of apps.
    pub(super) fn new(digests: usize) -> Self {
        Self {
            digests: Digests {
                max: digests,
                ..Digests::default()
            },
            ..Self::default()
        }
    }

    /// Whether a cluster was ever told of an app.
    pub(super) fn was_informed(&self, app: &AppName, cluster: &ClusterId) -> bool {
        self.informed
            .get(app)
            .is_some_and(|informed| informed.has(cluster))
    }

    /// Accepts the calls counted; returns what clusters do not know of them yet, `None` if nothing.
    pub(super) fn accept_usage(&mut self, used: Vec<AppQuotaUsage>) -> Option<UsageByCluster> {
        let Self { apps, quotas, .. } = self;
        quotas.take(used, |app| {
            let held = apps.get(app).filter(|held| held.exists);
            held.map(|held| &held.holders)
        })
    }

    /// Adds clusters that were told of apps.
    pub(super) fn add_informed(&mut self, all: BTreeMap<AppName, InformedClusters>) {
        for (app, informed) in all {
            let known = self.informed.entry(app).or_default();
            known.everywhere |= informed.everywhere;
            known.clusters.extend(informed.clusters);
        }
    }

    /// Whether a cluster may fetch an artifact.
    pub(super) fn may_fetch(&self, digest: &Digest, cluster: &ClusterId) -> FetchPermission {
        let sees = |app: &AppName| {
            let held = self.apps.get(app);
            held.is_some_and(|held| held.is_seen_by(cluster))
        };
        let knew = |app: &AppName| self.was_informed(app, cluster);
        if self.digests.now(digest).any(sees) {
            FetchPermission::Yes
        } else if self.digests.ever(digest).any(knew) {
            FetchPermission::Gone
        } else {
            FetchPermission::Foreign
        }
    }

    /// Deletions of everything in the state that the database, read at `at`, no longer has.
    pub(super) fn deletions(&self, loaded: &StoredState, at: Revision) -> Vec<Change> {
        let mut gone = Vec::new();
        let is_gone = |app: &AppName, revision| revision <= at && !loaded.there.contains(app);
        for held in self.apps.values() {
            if held.exists && is_gone(&held.app, held.revision) {
                // Encoding cannot fail: the app itself was encoded.
                let entry = view::app_gone(&held.app, at).ok();
                gone.extend(entry.map(Arc::new).map(Change::App));
            }
        }
        for held in self.bindings.values() {
            if held.state.is_some() && is_gone(&held.app, held.revision) {
                gone.push(Change::Bindings(Arc::new(BindingsEntry {
                    app: held.app.clone(),
                    revision: at,
                    state: None,
                })));
            }
        }
        let there: BTreeSet<&RecordName> = loaded.texts.iter().map(|one| &one.name).collect();
        for held in self.texts.values() {
            if held.state.is_some() && held.revision <= at && !there.contains(&held.name) {
                gone.push(Change::Txt(Arc::new(TxtDesired {
                    name: held.name.clone(),
                    revision: at,
                    state: None,
                })));
            }
        }
        gone
    }

    /// Applies a change, if it is newer than what is held of the same thing.
    pub(super) fn apply(&mut self, change: &Change) -> PutResult {
        let newer = match change {
            Change::App(app) => return self.apply_app(app),
            Change::BindingsChanged(changed) => {
                let Some(held) = self.bindings.get_mut(&changed.app) else {
                    return PutResult::Missing;
                };
                if held.revision >= changed.revision {
                    return PutResult::Old;
                }
                if held.revision != changed.base || held.state.is_none() {
                    return PutResult::Missing;
                }
                // In place, unless a feed is sending it at this moment.
                view::apply(Arc::make_mut(held), changed);
                true
            }
            Change::Fleet(one) => {
                let newer = self.fleet.fleet.revision < one.fleet.revision;
                if newer {
                    self.fleet = Arc::clone(one);
                }
                newer
            }
            Change::Bindings(one) => {
                let held = self.bindings.get(&one.app);
                let newer = held.is_none_or(|held| held.revision < one.revision);
                if newer {
                    self.bindings.insert(one.app.clone(), Arc::clone(one));
                }
                newer
            }
            Change::Network(network) => {
                let held = self.network.as_ref();
                let newer = held.is_none_or(|held| held.revision < network.revision);
                if newer {
                    self.network = Some(Arc::clone(network));
                }
                newer
            }
            Change::Txt(text) => {
                let held = self.texts.get(&text.name);
                let newer = held.is_none_or(|held| held.revision < text.revision);
                if newer {
                    self.texts.insert(text.name.clone(), Arc::clone(text));
                }
                newer
            }
            // It is only sent, never kept as state.
            Change::Used(_) => false,
        };
        if newer {
            PutResult::New(None)
        } else {
            PutResult::Old
        }
    }

    fn apply_app(&mut self, app: &Arc<AppEntry>) -> PutResult {
        let held = self.apps.get(&app.app);
        if held.is_some_and(|held| held.revision >= app.revision) {
            return PutResult::Old;
        }
        if app.exists {
            let informed = self.informed.entry(app.app.clone()).or_default();
            informed.add(&app.holders);
        }
        let before = self.apps.insert(app.app.clone(), Arc::clone(app));
        if let Some(before) = &before {
            self.digests.leave(before);
        }
        self.digests.enter(app);
        PutResult::New(before)
    }

    /// Drops the entry of a deleted thing: every machine that would have to be told of the deletion now gets a snapshot.
    pub(super) fn drop_deleted(&mut self, change: &Change) {
        match change {
            Change::App(app) if !app.exists => {
                let same = |held: &Arc<AppEntry>| held.revision == app.revision;
                if self.apps.get(&app.app).is_some_and(same) {
                    self.apps.remove(&app.app);
                }
            }
            Change::Bindings(one) if one.state.is_none() => {
                let same = |held: &Arc<BindingsEntry>| held.revision == one.revision;
                if self.bindings.get(&one.app).is_some_and(same) {
                    self.bindings.remove(&one.app);
                }
            }
            Change::Txt(one) if one.state.is_none() => {
                let same = |held: &Arc<TxtDesired>| held.revision == one.revision;
                if self.texts.get(&one.name).is_some_and(same) {
                    self.texts.remove(&one.name);
                }
            }
            _ => {}
        }
    }
}

/// The apps that use each artifact, now or lately.
#[derive(Debug, Default)]
struct Digests {
    now: BTreeMap<Digest, BTreeSet<AppName>>,
    before: BTreeMap<Digest, BTreeSet<AppName>>,
    /// The former uses, oldest first.
    order: VecDeque<(Digest, AppName)>,
    max: usize,
}

impl Digests {
    fn now(&self, digest: &Digest) -> impl Iterator<Item = &AppName> {
        self.now.get(digest).into_iter().flatten()
    }

    fn ever(&self, digest: &Digest) -> impl Iterator<Item = &AppName> {
        let before = self.before.get(digest).into_iter().flatten();
        self.now(digest).chain(before)
    }

    fn enter(&mut self, app: &AppEntry) {
        for digest in &app.digests {
            let apps = self.now.entry(*digest).or_default();
            apps.insert(app.app.clone());
        }
    }

    fn leave(&mut self, app: &AppEntry) {
        for digest in &app.digests {
            remove(&mut self.now, digest, &app.app);
            let apps = self.before.entry(*digest).or_default();
            if apps.insert(app.app.clone()) {
                self.order.push_back((*digest, app.app.clone()));
            }
        }
        while self.order.len() > self.max {
            if let Some((digest, app)) = self.order.pop_front() {
                remove(&mut self.before, &digest, &app);
            }
        }
    }
}

fn remove(of: &mut BTreeMap<Digest, BTreeSet<AppName>>, digest: &Digest, app: &AppName) {
    if let Some(apps) = of.get_mut(digest) {
        apps.remove(app);
        if apps.is_empty() {
            of.remove(digest);
        }
    }
}
