//! A cluster of processes for tests: they can be killed and cut off, and their journals read.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) use crate::process::{Node, wait};
use crate::process::{are_together, start_all};

/// A test that starts more processes than this runs alone.
const FEW: usize = 4;

/// The lock of tests that start more than [`FEW`] processes; the next such test starts once the processes of this one have ended.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    // A test that failed has ended its processes as well.
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Timing for a cluster in which no node dies: a pause of a busy machine must not be taken for a death.
pub(crate) fn patient() -> Value {
    json!({ "lease": "60s", "suspect_after": "40s", "dead_after": "120s" })
}

/// Timing for a cluster in which a node dies or is cut off: it is given up after a while, and one that is only slow is not.
pub(crate) fn mortal() -> Value {
    json!({ "lease": "8s", "suspect_after": "4s", "dead_after": "12s" })
}

/// Like [`mortal`], but fast: what a node that is cut off cannot place is refused soon.
pub(crate) fn hasty() -> Value {
    json!({ "lease": "4s", "suspect_after": "3s", "dead_after": "6s", "wanted": "20s" })
}

/// The nodes of a cluster.
pub(crate) struct Nodes {
    pub(crate) nodes: Vec<Node>,
    /// The capacity of each, in thousandths of a core and MiB.
    pub(crate) rooms: Vec<(u64, u64)>,
    folder: TempDir,
    /// Released last, when all processes have ended.
    _turn: Option<MutexGuard<'static, ()>>,
}

impl Node {
    /// Kills the process, as a power loss would: nothing is written, no node is told.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it has ended");
        self.killed = true;
    }
}

impl Nodes {
    /// Starts this many nodes of one cluster, each with this capacity and these `timing` settings: [`patient`], [`mortal`] or [`hasty`].
    pub(crate) fn start(count: usize, capacity: (u64, u64), timing: &Value) -> Self {
        Self::start_with(vec![capacity; count], timing, 0)
    }

    /// Like `start`, with an individual capacity for each node and this many pre-schedulers on the head.
    pub(crate) fn start_with(
        rooms: Vec<(u64, u64)>,
        timing: &Value,
        pre_schedulers: usize,
    ) -> Self {
        let turn = (rooms.len() > FEW).then(turn);
        let folder = tempfile::tempdir().expect("there is room for journals");
        let mut times = json!({
            "round_trip_ms": 20.0, "wanted": "100s", "ping_every": "300ms", "election": "1s",
            "connect": "30s", "keep_alive": "60s",
        });
        for (key, value) in timing.as_object().expect("settings are an object") {
            times[key] = value.clone();
        }
        let settings = json!({ "timing": times, "global": { "pre_schedulers": pre_schedulers } });
        let journal = |name: &str| Some(folder.path().join(name));
        let nodes = start_all("test", &rooms, &settings, journal);
        let count = nodes.len();
        let mut cluster = Self {
            nodes,
            rooms,
            folder,
            _turn: turn,
        };
        cluster.wait_until_together(count);
        cluster
    }

    pub(crate) fn journal(&self, at: usize) -> PathBuf {
        self.folder.path().join(&self.nodes[at].name)
    }

    pub(crate) fn live(&mut self) -> impl Iterator<Item = &mut Node> {
        self.nodes.iter_mut().filter(|node| !node.killed)
    }

    /// Waits until every live node is a member that may act, sees this many members, all connected, and the same head.
    pub(crate) fn wait_until_together(&mut self, members: usize) {
        wait("all nodes are members of one cluster with one head", || {
            let statuses: Vec<Value> = self.live().map(Node::status).collect();
            are_together(&statuses, members)
        });
    }

    /// Restarts a killed node, as its machine would.
    pub(crate) fn again(&mut self, at: usize) {
        let others = self.nodes.iter().filter(|node| !node.killed);
        let seeds: Vec<String> = others.map(|node| node.address.clone()).collect();
        self.nodes[at] = self.nodes[at].again(&seeds);
    }

    /// Cuts a node off from all others, or reconnects it.
    pub(crate) fn cut(&mut self, at: usize, cut: bool) {
        let name = self.nodes[at].name.clone();
        let others: Vec<String> = self.nodes.iter().map(|node| node.name.clone()).collect();
        for node in self.nodes.iter_mut().filter(|node| !node.killed) {
            let from: Vec<&String> = match (cut, node.name == name) {
                (false, _) => Vec::new(),
                (true, true) => others.iter().filter(|other| **other != name).collect(),
                (true, false) => vec![&name],
            };
            node.order(&json!({ "cut": from }));
            node.answer("done");
        }
    }

    /// How many tasks the live nodes have passed on or started by this step.
    pub(crate) fn steps(&mut self, step: &str) -> u64 {
        let count = |node: &mut Node| node.status()["stages"][step].as_u64().unwrap_or(0);
        self.live().map(count).sum()
    }

    /// The index of the head.
    pub(crate) fn head(&mut self) -> usize {
        let head = self.live().next().expect("one lives").status()["head"].clone();
        let is_head = |node: &Node| head == node.name.as_str();
        self.nodes
            .iter()
            .position(is_head)
            .expect("the head is a node")
    }
}
