//! Collects what has happened since the last look, from the database and from node reports.
//!
//! Entries of the audit log may be committed later than newer ones, so those of the last minute are looked at again; each yields only one event,
//! identified by its source. Revisions are committed in order, so plans are read on from the last one. The last known state of nodes and apps is
//! stored with the events, in the same transaction.

use std::collections::{BTreeMap, BTreeSet};

use fdn_core::event::EventKind;
use fdn_core::fleet::NodeState;
use fdn_core::{AppName, NodeId, Revision, TenantId, Timestamp, VersionNumber};

use crate::Error;
use crate::app::describe::serving;
use crate::state::{State, lock};
use crate::store::app::{AppRow, app_list};
use crate::store::event::{
    NewEvent, ReplannedApp, UnpublishedChange, audit_list_unpublished, event_append, event_mark,
    event_marks, event_marks_of, event_trim, plans_after,
};
use crate::store::{StoreError, in_transaction};

/// How much later than newer entries an entry of the audit log may be committed, in ms: more than the length of transactions and the differences
/// between clocks.
const LATE_MS: u64 = 60_000;
/// The most rows that one look reads of each kind; the next one continues.
const BATCH: u32 = 500;

/// The mark that holds the time up to which the audit log was read.
const AUDIT: &str = "read/audit";
/// The mark that holds the revision up to which plans were read.
const PLANS: &str = "read/plans";

/// The observed state of nodes and apps at one moment.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Observation {
    nodes: BTreeMap<NodeId, NodeState>,
    /// Apps that all live nodes serve, with what they serve.
    ready: BTreeMap<AppName, ReadyApp>,
    /// All apps.
    apps: Vec<AppName>,
}

#[derive(Clone, Debug, PartialEq)]
struct ReadyApp {
    tenant: TenantId,
    version: VersionNumber,
    deployed_at: Timestamp,
    nodes: u32,
}

/// New events, and the marks to be written with them.
#[derive(Debug, Default, PartialEq)]
struct EventBatch {
    events: Vec<NewEvent>,
    marks: Vec<(String, Option<String>)>,
}

/// Looks for what has happened and appends it. `known` is the last observed state, which has been written; `None` if another controller may have
/// written since.
///
/// # Errors
/// When the store fails. The next look continues from there.
pub(super) async fn collect(
    state: &State,
    known: &mut Option<Observation>,
    now: Timestamp,
) -> Result<(), Error> {
    let mut connection = state.store.read().await?;
    let apps = app_list(&mut connection).await?;
    let observation = observe(state, &apps, now);
    let is_known = observation.is_none() || observation == *known;
    // There is a mark for each node and app: all are read only if something has changed.
    let marks = if is_known {
        event_marks_of(&mut connection, &[AUDIT, PLANS]).await?
    } else {
        event_marks(&mut connection).await?
    };
    let since = read_from(&marks, now);
    let changes = audit_list_unpublished(&mut connection, since, BATCH).await?;
    let planned = marks.get(PLANS).and_then(|text| text.parse().ok());
    let planned = Revision(planned.unwrap_or(0));
    let plans = plans_after(&mut connection, planned, BATCH).await?;
    drop(connection);
    let mut batch = EventBatch::default();
    batch.add_changes(&changes, &marks, since);
    batch.add_plans(&plans);
    if !is_known {
        batch.add_observation(observation.as_ref(), &marks, now);
    }
    if batch == EventBatch::default() {
        *known = observation.or(known.take());
        return Ok(());
    }
    let keep = state.settings.events.keep;
    let kept = Timestamp(since.get().min(now.get().saturating_sub(LATE_MS)));
    let written: Result<(), StoreError> = in_transaction!(state.store, tx => {
        event_append(&mut tx, &batch.events).await?;
        for (subject, value) in &batch.marks {
            event_mark(&mut tx, subject, value.as_deref()).await?;
        }
        event_trim(&mut tx, keep, kept).await
    });
    written?;
    *known = observation.or(known.take());
    Ok(())
}

/// The time from which the audit log is read: what happened before events were first collected is not news.
fn read_from(marks: &BTreeMap<String, String>, now: Timestamp) -> Timestamp {
    let read = marks.get(AUDIT).and_then(|text| text.parse::<u64>().ok());
    Timestamp(read.unwrap_or(now.get()).saturating_sub(LATE_MS))
}

/// The present state; `None` until enough nodes have reported.
fn observe(state: &State, apps: &[AppRow], now: Timestamp) -> Option<Observation> {
    let live = lock(&state.live);
    if !live.settled(now) {
        return None;
    }
    let joined = live.admin_state().enrolled.keys();
    let silent = joined.filter(|node| live.node(node).is_none());
    let silent = silent.map(|node| (node.clone(), NodeState::Joined));
    let heard = live.nodes().map(|seen| {
        let state = NodeState::of(&seen.status, seen.alive(now));
        (seen.status.node.clone(), state)
    });
    let serving = serving(apps, &live, now);
    let ready = apps.iter().zip(serving).filter_map(|(app, (nodes, of))| {
        let ready = ReadyApp {
            tenant: app.tenant,
            version: app.version,
            deployed_at: app.deployed_at,
            nodes,
        };
        (of > 0 && nodes == of).then(|| (app.name.clone(), ready))
    });
    Some(Observation {
        ready: ready.collect(),
        nodes: silent.chain(heard).collect(),
        apps: apps.iter().map(|app| app.name.clone()).collect(),
    })
}

impl EventBatch {
    fn add_changes(
        &mut self,
        changes: &[UnpublishedChange],
        marks: &BTreeMap<String, String>,
        since: Timestamp,
    ) {
        for change in changes {
            let Some(kind) = EventKind::of_change(&change.action, &change.subject) else {
                continue;
            };
            let app = change.subject.strip_prefix("app/");
            self.events.push(NewEvent {
                at: change.at,
                kind,
                action: change.action.clone(),
                subject: change.subject.clone(),
                tenant: change.tenant,
                app: app.and_then(|app| app.parse().ok()),
                detail: None,
                source: change.id.clone(),
            });
        }
        let read = since.get() + LATE_MS;
        let last = changes.iter().map(|change| change.at.get()).max();
        let last = last.map_or(read, |last| last.max(read));
        if last > read || !marks.contains_key(AUDIT) {
            self.marks.push((AUDIT.to_owned(), Some(last.to_string())));
        }
    }

    fn add_plans(&mut self, plans: &[ReplannedApp]) {
        for plan in plans {
            let groups = match plan.groups {
                1 => "1 group of clients".to_owned(),
                n => format!("{n} groups of clients"),
            };
            self.events.push(NewEvent {
                at: plan.at,
                kind: EventKind::Plan,
                action: "plan".to_owned(),
                subject: format!("app/{}", plan.app),
                tenant: Some(plan.tenant),
                app: Some(plan.app.clone()),
                detail: Some(format!("{groups} at revision {}", plan.revision)),
                source: format!("plan/{}/{}", plan.app, plan.revision),
            });
        }
        if let Some(last) = plans.iter().map(|plan| plan.revision).max() {
            self.marks.push((PLANS.to_owned(), Some(last.to_string())));
        }
    }

    fn add_observation(
        &mut self,
        observation: Option<&Observation>,
        marks: &BTreeMap<String, String>,
        now: Timestamp,
    ) {
        let Some(observation) = observation else {
            return;
        };
        for (node, state) in &observation.nodes {
            let mark = format!("node/{node}");
            if marks.get(&mark).map(String::as_str) != Some(state.as_str()) {
                self.events.push(NewEvent {
                    at: now,
                    kind: EventKind::Node,
                    action: format!("node.{}", state.as_str()),
                    subject: mark.clone(),
                    tenant: None,
                    app: None,
                    detail: None,
                    source: format!("{mark}/{}/{}", state.as_str(), now.get()),
                });
                self.marks.push((mark, Some(state.as_str().to_owned())));
            }
        }
        for (app, ready) in &observation.ready {
            let mark = format!("ready/{app}");
            let value = format!("{} {}", ready.version, ready.deployed_at.get());
            if marks.get(&mark) != Some(&value) {
                self.events.push(NewEvent {
                    at: now,
                    kind: EventKind::Ready,
                    action: "ready".to_owned(),
                    subject: format!("app/{app}"),
                    tenant: Some(ready.tenant),
                    app: Some(app.clone()),
                    detail: Some(format!(
                        "version {} on {} nodes",
                        ready.version, ready.nodes
                    )),
                    source: format!("{mark}/{value}"),
                });
                self.marks.push((mark, Some(value)));
            }
        }
        self.forget(observation, marks);
    }

    /// Deletes the marks of nodes and apps that are gone.
    fn forget(&mut self, observation: &Observation, marks: &BTreeMap<String, String>) {
        // There is a mark for each node and app, so names are looked up in sets instead of searched for.
        let nodes: BTreeSet<&str> = observation.nodes.keys().map(NodeId::as_str).collect();
        let apps: BTreeSet<&str> = observation.apps.iter().map(AppName::as_str).collect();
        let there = |mark: &str| match mark.split_once('/') {
            Some(("node", name)) => nodes.contains(name),
            Some(("ready", name)) => apps.contains(name),
            _ => true,
        };
        let gone = marks.keys().filter(|mark| !there(mark));
        self.marks.extend(gone.map(|mark| (mark.clone(), None)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(id: &str, at: u64, subject: &str) -> UnpublishedChange {
        UnpublishedChange {
            id: id.to_owned(),
            at: Timestamp(at),
            action: "deploy".to_owned(),
            subject: subject.to_owned(),
            tenant: None,
        }
    }

    fn marks(of: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        of.iter().map(owned).collect()
    }

    #[test]
    fn the_log_is_read_again_for_as_long_as_entries_may_be_late() {
        let now = Timestamp(10_000_000);
        assert_eq!(read_from(&marks(&[]), now), Timestamp(9_940_000));
        let marks = marks(&[(AUDIT, "5000000")]);
        let since = read_from(&marks, now);
        assert_eq!(since, Timestamp(4_940_000));
        let mut batch = EventBatch::default();
        batch.add_changes(&[change("a", 4_950_000, "app/hello")], &marks, since);
        assert_eq!(batch.events.len(), 1);
        assert!(
            batch.marks.is_empty(),
            "a late one does not turn the log back"
        );
        batch.add_changes(&[change("b", 5_000_001, "app/hello")], &marks, since);
        assert_eq!(
            batch.marks,
            [(AUDIT.to_owned(), Some("5000001".to_owned()))]
        );
    }

    #[test]
    fn nodes_and_apps_are_told_of_when_they_change() {
        let node = |state| Observation {
            nodes: BTreeMap::from([("eu-1".parse().expect("node"), state)]),
            ..Observation::default()
        };
        let look = |observation: &Observation, marks: &BTreeMap<String, String>| {
            let mut batch = EventBatch::default();
            batch.add_observation(Some(observation), marks, Timestamp(5));
            let actions = batch.events.iter().map(|event| event.action.clone());
            (actions.collect::<Vec<_>>(), batch.marks)
        };
        let alive = node(NodeState::Alive);
        let (actions, noted) = look(&alive, &marks(&[]));
        assert_eq!(actions, ["node.alive"]);
        assert_eq!(noted, [("node/eu-1".to_owned(), Some("alive".to_owned()))]);
        let known = marks(&[("node/eu-1", "alive")]);
        assert_eq!(look(&alive, &known), (Vec::new(), Vec::new()));
        assert_eq!(look(&node(NodeState::Lost), &known).0, ["node.lost"]);
        let (actions, noted) = look(&Observation::default(), &known);
        assert!(actions.is_empty());
        assert_eq!(noted, [("node/eu-1".to_owned(), None)], "it is gone");
    }

    #[test]
    fn an_app_is_ready_once_for_each_deploy() {
        let app: AppName = "hello".parse().expect("app");
        let ready = |deployed_at| ReadyApp {
            tenant: TenantId::from_uuid(uuid::Uuid::from_u128(1)),
            version: 1.try_into().expect("version"),
            deployed_at: Timestamp(deployed_at),
            nodes: 2,
        };
        let observation = |deployed_at| Observation {
            ready: BTreeMap::from([(app.clone(), ready(deployed_at))]),
            apps: vec![app.clone()],
            ..Observation::default()
        };
        let known = marks(&[("ready/hello", "v1 5")]);
        for (deployed_at, told) in [(5, 0), (6, 1)] {
            let mut batch = EventBatch::default();
            batch.add_observation(Some(&observation(deployed_at)), &known, Timestamp(9));
            assert_eq!(batch.events.len(), told);
        }
    }
}
