//! The objects of the simulated API server, and the history of their changes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tokio::sync::watch;

use super::objects::{self, Status, conflict, gone, not_found, selects, taken};

/// The number of changes that are remembered.
const HISTORY: usize = 10_000;
/// The most paged lists that can be read at the same time.
const SNAPSHOTS: usize = 8;

/// The kinds of objects that are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// Pods.
    Pods,
    /// Secrets.
    Secrets,
}

impl Resource {
    pub(super) const fn kind(self) -> &'static str {
        match self {
            Self::Pods => "Pod",
            Self::Secrets => "Secret",
        }
    }

    pub(super) const fn plural(self) -> &'static str {
        match self {
            Self::Pods => "pods",
            Self::Secrets => "secrets",
        }
    }
}

/// A change, as reported by a watch.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) revision: u64,
    pub(super) kind: &'static str,
    pub(super) resource: Resource,
    pub(super) object: Arc<Value>,
}

impl Event {
    pub(super) fn namespace(&self) -> &str {
        self.object["metadata"]["namespace"]
            .as_str()
            .unwrap_or_default()
    }
}

type Key = (Resource, String, String);

#[derive(Debug, Default)]
pub(super) struct Store {
    inner: Mutex<Inner>,
    /// The newest revision.
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    revision: u64,
    uids: u64,
    objects: BTreeMap<Key, Value>,
    history: VecDeque<Event>,
    /// The oldest revision from which a watch can continue.
    oldest: u64,
    /// The snapshots of lists that are read in pages, by revision.
    snapshots: BTreeMap<u64, Vec<Value>>,
}

/// A page of a list.
pub(super) struct Page {
    pub(super) items: Vec<Value>,
    pub(super) revision: u64,
    pub(super) rest: Option<String>,
}

impl Inner {
    /// Gives an object the next revision, and records the change.
    fn record(&mut self, kind: &'static str, resource: Resource, object: &mut Value) {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        self.history.push_back(Event {
            revision: self.revision,
            kind,
            resource,
            object: Arc::new(object.clone()),
        });
        while self.history.len() > HISTORY {
            if let Some(event) = self.history.pop_front() {
                self.oldest = event.revision;
            }
        }
    }

    fn remove(&mut self, key: &Key) -> Option<Value> {
        let mut object = self.objects.remove(key)?;
        self.record("DELETED", key.0, &mut object);
        // Garbage collection: objects owned only by this one are removed as well.
        let uid = object["metadata"]["uid"].clone();
        let owned = |object: &Value| {
            let owners = object["metadata"]["ownerReferences"].as_array();
            owners.is_some_and(|all| all.iter().any(|owner| owner["uid"] == uid))
        };
        let orphans = self.objects.iter().filter(|(_, object)| owned(object));
        let orphans: Vec<Key> = orphans.map(|(key, _)| key.clone()).collect();
        for orphan in orphans {
            self.remove(&orphan);
        }
        Some(object)
    }
}

impl Store {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Executes a change and notifies waiters.
    fn with<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        let mut inner = self.lock();
        let outcome = act(&mut inner);
        let revision = inner.revision;
        drop(inner);
        self.changed.send_if_modified(|last| {
            let newer = *last != revision;
            *last = revision;
            newer
        });
        outcome
    }

    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub(super) fn create(
        &self,
        resource: Resource,
        namespace: &str,
        mut object: Value,
    ) -> Result<Value, Status> {
        let name = object["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        objects::check(resource, &name, &object)?;
        let key = (resource, namespace.to_owned(), name.clone());
        self.with(|inner| {
            if inner.objects.contains_key(&key) {
                return Err(taken(resource, &name));
            }
            inner.uids += 1;
            let uid = format!("00000000-0000-4000-8000-{:012}", inner.uids);
            objects::fill_in(resource, namespace, uid, &mut object);
            inner.record("ADDED", resource, &mut object);
            inner.objects.insert(key, object.clone());
            Ok(object)
        })
    }

    pub(super) fn get(&self, resource: Resource, namespace: &str, name: &str) -> Option<Value> {
        let key = (resource, namespace.to_owned(), name.to_owned());
        self.lock().objects.get(&key).cloned()
    }

    pub(super) fn all(&self, resource: Resource, namespace: &str) -> Vec<Value> {
        let inner = self.lock();
        let ours = inner
            .objects
            .iter()
            .filter(|(key, _)| key.0 == resource && key.1 == namespace);
        ours.map(|(_, object)| object.clone()).collect()
    }

    /// All pods bound to a node.
    pub(super) fn of_node(&self, node: &str) -> Vec<Value> {
        let inner = self.lock();
        let pods = inner
            .objects
            .iter()
            .filter(|(key, _)| key.0 == Resource::Pods);
        pods.filter(|(_, pod)| pod["spec"]["nodeName"] == node)
            .map(|(_, pod)| pod.clone())
            .collect()
    }

    /// Changes an existing object, if it still has this uid.
    pub(super) fn change(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
        uid: Option<&str>,
        change: impl FnOnce(&mut Value),
    ) -> bool {
        let key = (resource, namespace.to_owned(), name.to_owned());
        self.with(|inner| {
            let Some(mut object) = inner.objects.get(&key).cloned() else {
                return false;
            };
            if uid.is_some_and(|uid| object["metadata"]["uid"] != uid) {
                return false;
            }
            let before = object.clone();
            change(&mut object);
            if object != before {
                inner.record("MODIFIED", resource, &mut object);
                inner.objects.insert(key, object);
            }
            true
        })
    }

    /// Deletes like `DELETE`: running pods are marked and left to their kubelet, unless the grace period is 0.
    pub(super) fn delete(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
        options: &Value,
    ) -> Result<Value, Status> {
        let key = (resource, namespace.to_owned(), name.to_owned());
        self.with(|inner| {
            let Some(mut object) = inner.objects.get(&key).cloned() else {
                return Err(not_found(resource, name));
            };
            let wanted = &options["preconditions"];
            for field in ["uid", "resourceVersion"] {
                let (wanted, found) = (&wanted[field], &object["metadata"][field]);
                if !wanted.is_null() && wanted != found {
                    return Err(conflict(resource, name, field, wanted, found));
                }
            }
            let Some(grace) = objects::grace(resource, &object, options) else {
                return Ok(inner.remove(&key).unwrap_or(object));
            };
            let meta = &mut object["metadata"];
            let before = meta["deletionGracePeriodSeconds"].as_i64();
            if before.is_none_or(|before| grace < before) {
                meta["deletionTimestamp"] = json!(objects::now_and(grace));
                meta["deletionGracePeriodSeconds"] = json!(grace);
                inner.record("MODIFIED", resource, &mut object);
                inner.objects.insert(key, object.clone());
            }
            Ok(object)
        })
    }

    pub(super) fn list(
        &self,
        resource: Resource,
        namespace: &str,
        selector: &str,
        limit: usize,
        token: Option<&str>,
    ) -> Result<Page, Status> {
        let mut inner = self.lock();
        let (revision, from) = match token {
            None => (inner.revision, 0),
            Some(token) => token
                .split_once(':')
                .and_then(|(revision, from)| Some((revision.parse().ok()?, from.parse().ok()?)))
                .ok_or_else(|| objects::bad_request("continue key is not valid"))?,
        };
        let all = match token {
            None => {
                let ours = inner.objects.iter();
                let ours = ours.filter(|(key, _)| key.0 == resource && key.1 == namespace);
                let ours = ours.map(|(_, object)| object);
                ours.filter(|object| selects(selector, object))
                    .cloned()
                    .collect()
            }
            Some(_) => inner.snapshots.remove(&revision).ok_or_else(gone)?,
        };
        let all: Vec<Value> = all;
        let end = if limit == 0 {
            all.len()
        } else {
            all.len().min(from + limit)
        };
        let items = all[from.min(end)..end].to_vec();
        let rest = (end < all.len()).then(|| format!("{revision}:{end}"));
        if rest.is_some() {
            inner.snapshots.insert(revision, all);
            while inner.snapshots.len() > SNAPSHOTS {
                inner.snapshots.pop_first();
            }
        }
        Ok(Page {
            items,
            revision,
            rest,
        })
    }

    /// The changes after a revision.
    pub(super) fn since(&self, revision: u64) -> Result<Vec<Event>, Status> {
        let inner = self.lock();
        if revision < inner.oldest {
            return Err(gone());
        }
        let newer = inner
            .history
            .iter()
            .filter(|event| event.revision > revision);
        Ok(newer.cloned().collect())
    }

    pub(super) fn revision(&self) -> u64 {
        self.lock().revision
    }

    /// Forgets all history and all lists that are being read, and increments the revision, so that every version handed out so far is too old.
    pub(super) fn compact(&self) {
        self.with(|inner| {
            inner.revision += 1;
            inner.oldest = inner.revision;
            inner.history.clear();
            inner.snapshots.clear();
        });
    }
}
