//! A simulated Kubernetes API server and simulated kubelets, for tests without a cluster.
//!
//! The API server follows the API conventions as far as pods and secrets need them: lists with a resource version and pages, watches
//! from a version on with bookmarks, 409 for an existing name and for a failed precondition, 410 for a forgotten version,
//! graceful deletion in two steps, `Status` objects for all errors, bearer tokens and role-based access control. Objects
//! are kept as JSON, so that no code of the client under test is used to test it.
//!
//! A kubelet runs the probe of `testkit/probe` as a process for each pod, on its own address (all of 127.0.0.0/8 is local),
//! with the environment, the memory limit and the grace period of the pod.
//!
//! The further behaviour of a real cluster is listed in `docs/operations/runtimes.md`.

mod api;
mod container;
mod faults;
mod http;
mod kubelet;
mod objects;
mod store;
mod stream;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use serde_json::Value;

pub use faults::{Fault, Faults};
pub use kubelet::{Image, Kubelet};
pub use store::Resource;
use store::Store;

/// The only accepted token.
const TOKEN: &str = "token-of-the-agent";

/// A permission: a resource with its subresource, and a verb, such as `("pods/log", "get")`.
pub type Permission = (String, String);

/// A cluster of one API server and the kubelets that were added to it. Stops on drop.
#[derive(Debug)]
pub struct Cluster {
    shared: Arc<Shared>,
    server: http::Server,
}

#[derive(Debug)]
struct Shared {
    store: Store,
    faults: Faults,
    kubelets: Mutex<Vec<Kubelet>>,
    /// The permissions of the token; `None`: all permissions.
    granted: Mutex<Option<BTreeSet<Permission>>>,
    used: Mutex<BTreeSet<Permission>>,
}

impl Shared {
    fn kubelets(&self) -> Vec<Kubelet> {
        let all = self.kubelets.lock().unwrap_or_else(PoisonError::into_inner);
        all.clone()
    }

    /// Whether the token has this permission; if so, its use is recorded.
    fn allows(&self, permission: &Permission) -> bool {
        let granted = self.granted.lock().unwrap_or_else(PoisonError::into_inner);
        let allowed = granted.as_ref().is_none_or(|all| all.contains(permission));
        if allowed {
            let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
            used.insert(permission.clone());
        }
        allowed
    }
}

impl Cluster {
    /// Starts an API server on a free loopback port.
    ///
    /// # Errors
    /// When no port is available.
    pub async fn start() -> Result<Self> {
        let shared = Arc::new(Shared {
            store: Store::default(),
            faults: Faults::default(),
            kubelets: Mutex::default(),
            granted: Mutex::default(),
            used: Mutex::default(),
        });
        let server = http::Server::start(shared.clone()).await?;
        Ok(Self { shared, server })
    }

    /// Adds a node with a kubelet.
    #[must_use]
    pub fn node(&self, name: &str) -> Kubelet {
        let kubelet = Kubelet::start(name, &self.shared);
        let mut all = self
            .shared
            .kubelets
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        all.push(kubelet.clone());
        kubelet
    }

    /// The injected faults.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    /// Grants exactly these permissions.
    pub fn grant(&self, permissions: BTreeSet<Permission>) {
        let mut granted = self
            .shared
            .granted
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *granted = Some(permissions);
    }

    /// The permissions that were used.
    #[must_use]
    pub fn used(&self) -> BTreeSet<Permission> {
        let used = self
            .shared
            .used
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        used.clone()
    }

    /// Writes a kubeconfig for this cluster.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_kubeconfig(&self, path: &Path) -> Result<()> {
        let config = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{ "name": "test", "cluster": { "server": self.server.url() } }],
            "users": [{ "name": "agent", "user": { "token": TOKEN } }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "agent" } }]
        });
        // JSON is YAML.
        Ok(std::fs::write(path, config.to_string())?)
    }

    /// Makes the API server unavailable: all connections are closed, including new ones.
    pub fn disconnect(&self) {
        self.server.disconnect();
    }

    /// Makes it available again, with all of its objects.
    pub fn reconnect(&self) {
        self.server.reconnect();
    }

    /// Forgets the history of changes: a watch from an older version gets 410.
    pub fn compact(&self) {
        self.shared.store.compact();
    }

    /// All stored objects of a resource in a namespace.
    #[must_use]
    pub fn objects(&self, resource: Resource, namespace: &str) -> Vec<Value> {
        self.shared.store.all(resource, namespace)
    }

    /// Stores an object like another client of the API would.
    ///
    /// # Panics
    /// When the API server would reject it.
    pub fn put(&self, resource: Resource, namespace: &str, object: Value) {
        let stored = self.shared.store.create(resource, namespace, object);
        stored.expect("a valid object");
    }

    /// Deletes a pod like `kubectl delete`.
    ///
    /// # Panics
    /// When it does not exist.
    pub fn delete(&self, namespace: &str, name: &str, grace: i64) {
        let options = serde_json::json!({ "gracePeriodSeconds": grace });
        let deleted = self
            .shared
            .store
            .delete(Resource::Pods, namespace, name, &options);
        deleted.expect("it is there");
    }

    /// Changes a pod's status like another authorized client: the node controller, or an operator.
    ///
    /// # Panics
    /// When it does not exist.
    pub fn set_status(&self, namespace: &str, name: &str, change: impl FnOnce(&mut Value)) {
        let changed = self
            .shared
            .store
            .change(Resource::Pods, namespace, name, None, |pod| {
                change(&mut pod["status"]);
            });
        assert!(changed, "{name} is there");
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for kubelet in self.shared.kubelets() {
            kubelet.power_off();
        }
    }
}
