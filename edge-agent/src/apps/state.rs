//! The desired state of all apps and the progress of each: a pure state machine.
//!
//! It takes events and returns [`Action`]s; it never waits, reads a clock or draws random numbers. Per app:
//!
//! | phase | `Begun` (compiling) | `Prepared` | `Failed` | `Due` | newer revision |
//! | --- | --- | --- | --- | --- | --- |
//! | fetching | compiling | ready: serve it | failed: retry later | – | fetching the newer one |
//! | compiling | – | ready: serve it | failed: retry later | – | fetching the newer one |
//! | ready | – | – | – | – | fetching; the old one is served on |
//! | failed | – | ready: serve it | – | fetching | fetching |
//!
//! Rules: a message takes effect only if its revision is newer than the one held, or, if the app is not held, newer than its remembered deletion
//! or else than the last snapshot. A message of the revision held can only add the app's tenant, if that is unknown. An app missing from a
//! snapshot is gone if its revision is not newer than the snapshot's. Results of preparations that are no longer wanted are ignored. After a
//! restart, the version served before is served again first, until its successor is ready. An app that is ready, but not in the chosen form
//! (`StandsIn`), is prepared again when that is due and served meanwhile.

mod model;

use std::collections::{BTreeMap, BTreeSet};

use fdn_core::api::AppsSnapshot;
use fdn_core::message::{AppDesired, AppPhase, AppSpec};
use fdn_core::{AppName, Digest, Revision, Timestamp};

pub use model::{Action, Event, Saved, SavedApp, Version, View};

#[derive(Clone, Debug, PartialEq)]
enum Progress {
    Fetching,
    Compiling,
    Ready,
    Failed { reason: String, retry_at: Timestamp },
}

#[derive(Clone, Debug)]
struct App {
    wanted: Version,
    progress: Progress,
    failures: u32,
    /// The version that gets the calls now, or got them before the restart while it is being prepared again.
    served: Option<Version>,
    /// Whether `served` gets calls now.
    live: bool,
    /// When to prepare it again, if it is ready, but not in the chosen form.
    again_at: Option<Timestamp>,
}

/// The state of all apps.
#[derive(Clone, Debug, Default)]
pub struct State {
    floor: Revision,
    apps: BTreeMap<AppName, App>,
    gone: BTreeMap<AppName, Revision>,
    gone_max: usize,
}

impl State {
    /// Restores the state read from disk; returns it and the actions to serve it. At most `gone_max` deleted apps are remembered.
    #[must_use]
    pub fn restore(saved: Saved, gone_max: usize) -> (Self, Vec<Action>) {
        let mut state = Self {
            floor: saved.floor,
            gone: saved.gone,
            gone_max,
            ..Self::default()
        };
        let mut actions = Vec::new();
        for (name, app) in saved.apps {
            if let Some(served) = &app.served {
                actions.push(Action::Prepare(name.clone(), Box::new(served.clone())));
            }
            actions.push(Action::Prepare(name.clone(), Box::new(app.wanted.clone())));
            state.apps.insert(
                name,
                App {
                    wanted: app.wanted,
                    progress: Progress::Fetching,
                    failures: 0,
                    served: app.served,
                    live: false,
                    again_at: None,
                },
            );
        }
        (state, actions)
    }

    /// The state to keep on disk.
    #[must_use]
    pub fn save(&self) -> Saved {
        let apps = self.apps.iter().map(|(name, app)| {
            let served = app
                .served
                .clone()
                .filter(|served| served.revision != app.wanted.revision);
            let wanted = app.wanted.clone();
            (name.clone(), SavedApp { wanted, served })
        });
        Saved {
            floor: self.floor,
            apps: apps.collect(),
            gone: self.gone.clone(),
        }
    }

    /// The revision of the newest snapshot.
    #[must_use]
    pub const fn floor(&self) -> Revision {
        self.floor
    }

    /// The digests of the artifacts that must stay on disk.
    #[must_use]
    pub fn needed(&self) -> BTreeSet<Digest> {
        self.apps
            .values()
            .flat_map(|app| std::iter::once(&app.wanted).chain(&app.served))
            .flat_map(|version| version.spec.functions.iter())
            .flat_map(|function| function.digests())
            .collect()
    }

    /// The state of every app, by name.
    #[must_use]
    pub fn views(&self) -> Vec<View> {
        self.apps
            .iter()
            .map(|(name, app)| View {
                app: name.clone(),
                revision: app.wanted.revision,
                host: app
                    .served
                    .as_ref()
                    .filter(|_| app.live)
                    .unwrap_or(&app.wanted)
                    .spec
                    .host
                    .clone(),
                phase: match &app.progress {
                    Progress::Fetching => AppPhase::Fetching,
                    Progress::Compiling => AppPhase::Compiling,
                    Progress::Ready => AppPhase::Ready,
                    Progress::Failed { reason, .. } => AppPhase::Failed {
                        reason: reason.clone(),
                    },
                },
            })
            .collect()
    }

    /// The desired state of an app.
    #[must_use]
    pub fn wanted(&self, app: &AppName) -> Option<&AppSpec> {
        self.apps.get(app).map(|app| &app.wanted.spec)
    }

    /// The revision that gets the calls, or got them before the restart.
    #[must_use]
    pub fn served(&self, app: &AppName) -> Option<Revision> {
        let served = self.apps.get(app)?.served.as_ref()?;
        Some(served.revision)
    }

    /// How often the wanted version has failed.
    #[must_use]
    pub fn failures(&self, app: &AppName) -> u32 {
        self.apps.get(app).map_or(0, |app| app.failures)
    }

    /// When the next retry is due, of an app that failed or is not served in the chosen form.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        self.apps
            .values()
            .filter_map(|app| match app.progress {
                Progress::Failed { retry_at, .. } => Some(retry_at),
                Progress::Ready => app.again_at,
                Progress::Fetching | Progress::Compiling => None,
            })
            .min()
    }

    /// Handles an event; returns the actions to perform.
    #[must_use]
    pub fn apply(&mut self, event: Event) -> Vec<Action> {
        match event {
            Event::Desired(desired) => self.desired(desired),
            Event::Snapshot(snapshot) => self.snapshot(snapshot),
            Event::Removed => self.removed(),
            Event::Begun(app, revision) => self.begun(&app, revision),
            Event::Prepared(app, revision) => self.prepared(app, revision),
            Event::Failed {
                app,
                revision,
                reason,
                retry_at,
            } => self.failed(&app, revision, reason, retry_at),
            Event::StandsIn(app, revision, again_at) => self.stands_in(&app, revision, again_at),
            Event::Broken(app, revision) => self.broken(app, revision),
            Event::Due(now) => self.due(now),
        }
    }

    fn is_news(&self, app: &AppName, revision: Revision) -> bool {
        let held = self.apps.get(app).map(|app| app.wanted.revision);
        let gone = self.gone.get(app).copied();
        revision > held.or(gone).unwrap_or(self.floor)
    }

    fn desired(&mut self, desired: AppDesired) -> Vec<Action> {
        if !self.is_news(&desired.app, desired.revision) {
            return self.owned(desired);
        }
        let Some(spec) = desired.spec else {
            self.remember_gone(desired.app.clone(), desired.revision);
            let known = self.apps.remove(&desired.app).is_some();
            let forget = known.then_some(Action::Forget(desired.app));
            return forget.into_iter().chain([Action::Save]).collect();
        };
        self.gone.remove(&desired.app);
        let wanted = Version {
            revision: desired.revision,
            spec,
        };
        let app = self.apps.entry(desired.app.clone()).or_insert_with(|| App {
            wanted: wanted.clone(),
            progress: Progress::Fetching,
            failures: 0,
            served: None,
            live: false,
            again_at: None,
        });
        app.wanted = wanted.clone();
        app.progress = Progress::Fetching;
        app.failures = 0;
        app.again_at = None;
        vec![Action::Prepare(desired.app, Box::new(wanted)), Action::Save]
    }

    /// Learns the tenant of an app from a message of the same revision: older controllers did not send it.
    fn owned(&mut self, desired: AppDesired) -> Vec<Action> {
        let tenant = desired.spec.and_then(|spec| spec.tenant);
        let Some(app) = self.apps.get_mut(&desired.app) else {
            return Vec::new();
        };
        if tenant.is_none()
            || app.wanted.spec.tenant.is_some()
            || app.wanted.revision != desired.revision
        {
            return Vec::new();
        }
        app.wanted.spec.tenant = tenant;
        vec![Action::Save]
    }

    fn remember_gone(&mut self, app: AppName, revision: Revision) {
        self.gone.insert(app, revision);
        if self.gone.len() > self.gone_max {
            let oldest = self.gone.iter().min_by_key(|(_, revision)| **revision);
            if let Some(oldest) = oldest.map(|(app, _)| app.clone()) {
                self.gone.remove(&oldest);
            }
        }
    }

    fn snapshot(&mut self, snapshot: AppsSnapshot) -> Vec<Action> {
        let listed: BTreeSet<AppName> = snapshot.apps.iter().map(|app| app.app.clone()).collect();
        let mut actions: Vec<Action> = snapshot
            .apps
            .into_iter()
            .flat_map(|app| self.desired(app))
            .filter(|action| *action != Action::Save)
            .collect();
        let missing: Vec<AppName> = self
            .apps
            .iter()
            .filter(|(name, app)| {
                !listed.contains(name) && app.wanted.revision <= snapshot.revision
            })
            .map(|(name, _)| name.clone())
            .collect();
        for name in missing {
            self.apps.remove(&name);
            actions.push(Action::Forget(name));
        }
        if snapshot.revision > self.floor {
            self.floor = snapshot.revision;
            self.gone
                .retain(|_, revision| *revision > snapshot.revision);
            actions.push(Action::Save);
        } else if !actions.is_empty() {
            actions.push(Action::Save);
        }
        actions
    }

    /// Forgets everything, revisions too: a node that is admitted again gets everything anew.
    fn removed(&mut self) -> Vec<Action> {
        let before = std::mem::take(self);
        self.gone_max = before.gone_max;
        let known = before.apps.into_keys().map(Action::Forget);
        known.chain([Action::Save]).collect()
    }

    fn begun(&mut self, name: &AppName, revision: Revision) -> Vec<Action> {
        if let Some(app) = self.apps.get_mut(name)
            && app.wanted.revision == revision
            && app.progress == Progress::Fetching
        {
            app.progress = Progress::Compiling;
        }
        Vec::new()
    }

    fn prepared(&mut self, name: AppName, revision: Revision) -> Vec<Action> {
        let Some(app) = self.apps.get_mut(&name) else {
            return Vec::new();
        };
        if app.wanted.revision == revision {
            app.progress = Progress::Ready;
            app.failures = 0;
            app.again_at = None;
            app.served = Some(app.wanted.clone());
            app.live = true;
            return vec![Action::Serve(name, revision), Action::Save];
        }
        let again = app.served.as_ref().map(|served| served.revision) == Some(revision);
        if again && !app.live {
            app.live = true;
            return vec![Action::Serve(name, revision)];
        }
        Vec::new()
    }

    fn stands_in(
        &mut self,
        name: &AppName,
        revision: Revision,
        again_at: Timestamp,
    ) -> Vec<Action> {
        if let Some(app) = self.apps.get_mut(name)
            && app.wanted.revision == revision
            && app.progress == Progress::Ready
        {
            app.again_at = Some(again_at);
        }
        Vec::new()
    }

    fn failed(
        &mut self,
        name: &AppName,
        revision: Revision,
        reason: String,
        retry_at: Timestamp,
    ) -> Vec<Action> {
        let Some(app) = self.apps.get_mut(name) else {
            return Vec::new();
        };
        if app.wanted.revision == revision {
            app.progress = Progress::Failed { reason, retry_at };
            app.failures = app.failures.saturating_add(1);
            return Vec::new();
        }
        let was_served = app.served.as_ref().map(|served| served.revision) == Some(revision);
        if was_served && !app.live {
            // The version served before the restart is no longer available: only its successor counts.
            app.served = None;
            return vec![Action::Save];
        }
        Vec::new()
    }

    fn broken(&mut self, name: AppName, revision: Revision) -> Vec<Action> {
        let Some(app) = self.apps.get_mut(&name) else {
            return Vec::new();
        };
        if !app.live || app.served.as_ref().map(|served| served.revision) != Some(revision) {
            return Vec::new();
        }
        app.live = false;
        let mut actions = vec![Action::Withdraw(name.clone())];
        if app.wanted.revision == revision {
            app.progress = Progress::Fetching;
            actions.push(Action::Prepare(name, Box::new(app.wanted.clone())));
        } else {
            app.served = None;
            actions.push(Action::Save);
        }
        actions
    }

    fn due(&mut self, now: Timestamp) -> Vec<Action> {
        let mut actions = Vec::new();
        for (name, app) in &mut self.apps {
            if matches!(app.progress, Progress::Failed { retry_at, .. } if retry_at <= now) {
                app.progress = Progress::Fetching;
                actions.push(Action::Prepare(name.clone(), Box::new(app.wanted.clone())));
            }
            // It answers calls, so its phase does not change.
            if app.progress == Progress::Ready && app.again_at.is_some_and(|at| at <= now) {
                app.again_at = None;
                actions.push(Action::Prepare(name.clone(), Box::new(app.wanted.clone())));
            }
        }
        actions
    }
}

#[cfg(test)]
mod tests;
