//! A simulated kubelet: runs the pods that are bound to its node and reports their status.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::Shared;
use super::container::{Container, Ended, free_address};
use super::objects::{amount, expanded};
use super::store::Resource;

/// An image that can be pulled.
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// Whether its default user is root.
    pub root: bool,
    /// The secret in the namespace that a pod must name to pull it.
    pub pull_secret: Option<String>,
}

/// A node's kubelet. Clones refer to the same one.
#[derive(Clone, Debug)]
pub struct Kubelet(Arc<Node>);

#[derive(Debug)]
struct Node {
    name: String,
    shared: Weak<Shared>,
    images: Mutex<BTreeMap<String, Image>>,
    /// The containers by the uid of the pod. Kept after their end, for their output.
    containers: Mutex<BTreeMap<String, Arc<Container>>>,
    /// The free memory, in KiB.
    memory: Mutex<u64>,
    powered: watch::Sender<bool>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kubelet {
    pub(super) fn start(name: &str, shared: &Arc<Shared>) -> Self {
        let node = Arc::new(Node {
            name: name.to_owned(),
            shared: Arc::downgrade(shared),
            images: Mutex::default(),
            containers: Mutex::default(),
            memory: Mutex::new(64 << 20),
            powered: watch::Sender::new(true),
        });
        tokio::spawn(run(node.clone()));
        Self(node)
    }

    /// Adds an image to the registry of this node; `reference` is the name used by pods.
    pub fn add_image(&self, reference: &str, image: Image) {
        lock(&self.0.images).insert(reference.to_owned(), image);
    }

    /// Adds all images of a repository, whatever their digests.
    pub fn add_repository(&self, repository: &str) {
        self.add_image(&format!("{repository}@"), Image::default());
    }

    /// Sets the free memory of the node, in MiB.
    pub fn set_memory(&self, mib: u64) {
        *lock(&self.0.memory) = mib << 10;
    }

    /// Kills the process of a pod, like `kill -9` on the node.
    ///
    /// # Panics
    /// When it does not run such a pod.
    pub fn kill(&self, uid: &str) {
        let container = self.container(uid).expect("the pod runs here");
        container.signal(Signal::KILL);
    }

    /// Kills the processes of all running pods; returns their number.
    pub fn kill_all(&self) -> usize {
        let containers = lock(&self.0.containers);
        containers
            .values()
            .filter(|container| container.signal(Signal::KILL))
            .count()
    }

    /// Simulates a power failure: the processes end, and nothing is reported to the API server.
    pub fn power_off(&self) {
        self.0.powered.send_replace(false);
        for container in lock(&self.0.containers).values() {
            container.signal(Signal::KILL);
        }
    }

    pub(super) fn container(&self, uid: &str) -> Option<Arc<Container>> {
        lock(&self.0.containers).get(uid).cloned()
    }
}

/// Handles every pod that is bound to the node.
async fn run(node: Arc<Node>) {
    let mut known = BTreeSet::new();
    let mut powered = node.powered.subscribe();
    let Some(mut changes) = node.shared.upgrade().map(|shared| shared.store.changes()) else {
        return;
    };
    loop {
        changes.mark_unchanged();
        let Some(shared) = node.shared.upgrade() else {
            return;
        };
        for pod in shared.store.of_node(&node.name) {
            let text = |field: &str| {
                pod["metadata"][field]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned()
            };
            if known.insert(text("uid")) {
                let work = Work {
                    node: node.clone(),
                    shared: Arc::downgrade(&shared),
                    namespace: text("namespace"),
                    name: text("name"),
                    uid: text("uid"),
                    spec: pod["spec"].clone(),
                };
                let mut powered = node.powered.subscribe();
                tokio::spawn(async move {
                    tokio::select! {
                        // First, because nothing reports the end of processes after a power failure.
                        biased;
                        _ = powered.wait_for(|on| !on) => {}
                        () = work.run() => {}
                    }
                });
            }
        }
        drop(shared);
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            _ = powered.wait_for(|on| !on) => return,
        }
    }
}

/// The handling of one pod.
struct Work {
    node: Arc<Node>,
    shared: Weak<Shared>,
    namespace: String,
    name: String,
    uid: String,
    spec: Value,
}

/// Why a container cannot be created yet.
struct NotStartable {
    reason: &'static str,
    message: String,
}

impl Work {
    fn container_spec(&self) -> &Value {
        &self.spec["containers"][0]
    }

    /// The stored pod, if it still exists.
    fn stored(&self) -> Option<Value> {
        let shared = self.shared.upgrade()?;
        let pod = shared
            .store
            .get(Resource::Pods, &self.namespace, &self.name)?;
        (pod["metadata"]["uid"] == self.uid.as_str()).then_some(pod)
    }

    fn set_status(&self, phase: &str, state: &Value, address: Option<Ipv4Addr>) {
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        let image = self.container_spec()["image"].clone();
        let ready = !state["running"].is_null();
        let (pods, uid) = (Resource::Pods, Some(self.uid.as_str()));
        shared.store.change(pods, &self.namespace, &self.name, uid, |pod| {
            let status = &mut pod["status"];
            status["phase"] = json!(phase);
            status["hostIP"] = json!("127.0.0.1");
            if let Some(address) = address {
                status["podIP"] = json!(address.to_string());
                status["podIPs"] = json!([{ "ip": address.to_string() }]);
            }
            status["conditions"] = json!([
                { "type": "PodScheduled", "status": "True" },
                { "type": "Ready", "status": if ready { "True" } else { "False" } }
            ]);
            status["containerStatuses"] = json!([{
                "name": "function", "image": image, "imageID": "", "ready": ready, "restartCount": 0, "state": state
            }]);
        });
    }

    /// The kubelet's last action: allows the deletion of the object.
    fn finish(&self) {
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        let options = json!({ "gracePeriodSeconds": 0, "preconditions": { "uid": self.uid } });
        drop(
            shared
                .store
                .delete(Resource::Pods, &self.namespace, &self.name, &options),
        );
    }

    /// Waits for the pod's deletion. Returns its grace period in seconds, or `None` if it no longer exists.
    async fn deletion(&self) -> Option<u64> {
        let mut changes = self.shared.upgrade()?.store.changes();
        loop {
            changes.mark_unchanged();
            let pod = self.stored()?;
            if !pod["metadata"]["deletionTimestamp"].is_null() {
                return pod["metadata"]["deletionGracePeriodSeconds"].as_u64();
            }
            changes.changed().await.ok()?;
        }
    }

    async fn run(&self) {
        if let Some(short) = self.admit() {
            return self.reject(&short);
        }
        let creating = json!({ "waiting": { "reason": "ContainerCreating" } });
        self.set_status("Pending", &creating, None);
        let environment = tokio::select! {
            environment = self.prepared() => environment,
            _ = self.deletion() => {
                self.finish();
                return self.release_memory();
            }
        };
        if let Some(environment) = environment {
            self.live(&environment).await;
        }
        self.release_memory();
    }

    fn memory_kib(&self) -> u64 {
        let limit = amount(&self.container_spec()["resources"]["limits"]["memory"]);
        limit
            .and_then(|thousandths| u64::try_from(thousandths / 1000 / 1024).ok())
            .unwrap_or(1 << 20)
    }

    /// Reserves the pod's memory. Returns what is lacking if there is not enough.
    fn admit(&self) -> Option<String> {
        let mut left = lock(&self.node.memory);
        let wanted = self.memory_kib();
        match left.checked_sub(wanted) {
            Some(rest) => {
                *left = rest;
                None
            }
            None => Some(format!(
                "Node didn't have enough resource: memory, requested: {wanted}Ki, capacity: {left}Ki"
            )),
        }
    }

    fn release_memory(&self) {
        *lock(&self.node.memory) += self.memory_kib();
    }

    fn reject(&self, message: &str) {
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        let (pods, uid) = (Resource::Pods, Some(self.uid.as_str()));
        shared
            .store
            .change(pods, &self.namespace, &self.name, uid, |pod| {
                pod["status"] =
                    json!({ "phase": "Failed", "reason": "OutOfmemory", "message": message });
            });
    }

    /// Pulls the image and builds the environment, retrying until that succeeds; `None` if the container was created but did not start.
    async fn prepared(&self) -> Option<BTreeMap<String, String>> {
        let mut changes = self.shared.upgrade()?.store.changes();
        loop {
            changes.mark_unchanged();
            match self.image().and_then(|()| self.environment()) {
                Ok(environment) => {
                    if self.container_spec()["command"].is_null() {
                        return Some(environment);
                    }
                    let state = json!({ "terminated": {
                        "exitCode": 128, "reason": "StartError",
                        "message": "exec: no such file or directory: unknown"
                    } });
                    self.set_status("Failed", &state, None);
                    return None;
                }
                Err(NotStartable { reason, message }) => {
                    let state = json!({ "waiting": { "reason": reason, "message": message } });
                    self.set_status("Pending", &state, None);
                }
            }
            changes.changed().await.ok()?;
        }
    }

    fn image(&self) -> Result<(), NotStartable> {
        let reference = self.container_spec()["image"].as_str().unwrap_or_default();
        let repository = reference
            .find('@')
            .map_or(reference, |at| &reference[..=at]);
        let found = {
            let images = lock(&self.node.images);
            let found = images.get(reference).or_else(|| images.get(repository));
            found.cloned()
        };
        let missing = |message: String| NotStartable {
            reason: "ErrImagePull",
            message,
        };
        let image = found.ok_or_else(|| {
            missing(format!(
                "failed to resolve reference \"{reference}\": not found"
            ))
        })?;
        if let Some(secret) = &image.pull_secret {
            let named = self.spec["imagePullSecrets"].as_array();
            let named = named.is_some_and(|all| all.iter().any(|s| s["name"] == secret.as_str()));
            let there = self.secret(secret).is_some();
            if !named || !there {
                return Err(missing(format!(
                    "pull access denied for \"{reference}\": 401 Unauthorized"
                )));
            }
        }
        let pod = &self.spec["securityContext"];
        if image.root && pod["runAsNonRoot"] == true && pod["runAsUser"].as_u64().unwrap_or(0) == 0
        {
            return Err(NotStartable {
                reason: "CreateContainerConfigError",
                message: "container has runAsNonRoot and image will run as root".to_owned(),
            });
        }
        Ok(())
    }

    fn secret(&self, name: &str) -> Option<Value> {
        let shared = self.shared.upgrade()?;
        shared.store.get(Resource::Secrets, &self.namespace, name)
    }

    fn environment(&self) -> Result<BTreeMap<String, String>, NotStartable> {
        let mut environment = BTreeMap::new();
        for variable in self.container_spec()["env"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let name = variable["name"].as_str().unwrap_or_default();
            let source = &variable["valueFrom"]["secretKeyRef"];
            let value = match source["name"].as_str() {
                Some(secret) => {
                    let key = source["key"].as_str().unwrap_or_default();
                    let found = self.secret(secret);
                    let found =
                        found.and_then(|object| object["data"][key].as_str().map(str::to_owned));
                    found.ok_or_else(|| NotStartable {
                        reason: "CreateContainerConfigError",
                        message: format!("secret \"{secret}\" not found"),
                    })?
                }
                None => expanded(variable["value"].as_str().unwrap_or_default(), &environment),
            };
            environment.insert(name.to_owned(), value);
        }
        Ok(environment)
    }

    /// Runs the container until it ends or is to be stopped.
    async fn live(&self, environment: &BTreeMap<String, String>) {
        let port = environment
            .get("PORT")
            .and_then(|port| port.parse().ok())
            .unwrap_or(8080);
        let address = free_address(port);
        let started = Container::run(environment, address, self.memory_kib());
        let container = match started {
            Ok(container) => container,
            Err(error) => {
                let state = json!({ "waiting": { "reason": "RunContainerError", "message": error.to_string() } });
                return self.set_status("Pending", &state, None);
            }
        };
        lock(&self.node.containers).insert(self.uid.clone(), container.clone());
        self.set_status("Running", &json!({ "running": {} }), Some(address));
        let grace = tokio::select! {
            ended = container.wait() => {
                self.ended(&ended, address);
                return;
            }
            grace = self.deletion() => grace,
        };
        let Some(seconds) = grace else {
            // Force-deleted: nobody waits for it any more.
            container.signal(Signal::KILL);
            return;
        };
        container.signal(Signal::TERM);
        let ended = self.terminated(&container, seconds).await;
        self.ended(&ended, address);
        self.finish();
    }

    /// Waits for the end of a container that was asked to stop, then kills it. The grace period may be shortened in the meantime.
    async fn terminated(&self, container: &Container, mut seconds: u64) -> Ended {
        let asked = Instant::now();
        let mut waiting = std::pin::pin!(container.wait());
        let changes = self.shared.upgrade().map(|shared| shared.store.changes());
        let Some(mut changes) = changes else {
            return waiting.await;
        };
        loop {
            changes.mark_unchanged();
            let stored = self.stored();
            let grace = stored.map(|pod| pod["metadata"]["deletionGracePeriodSeconds"].as_u64());
            seconds = grace.map_or(0, |grace| grace.unwrap_or(seconds));
            tokio::select! {
                ended = &mut waiting => return ended,
                () = tokio::time::sleep_until(asked + Duration::from_secs(seconds)) => break,
                changed = changes.changed() => if changed.is_err() { break },
            }
        }
        container.signal(Signal::KILL);
        waiting.await
    }

    fn ended(&self, ended: &Ended, address: Ipv4Addr) {
        let phase = if ended.code == 0 {
            "Succeeded"
        } else {
            "Failed"
        };
        let state = json!({ "terminated": { "exitCode": ended.code, "reason": ended.reason } });
        self.set_status(phase, &state, Some(address));
    }
}
