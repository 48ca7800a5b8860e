//! A cluster of processes for tests: killed, cut off, and what they wrote down.

use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) use crate::process::{Node, wait};
use crate::process::{are_together, start_all};

/// All of them.
pub(crate) struct Nodes {
    pub(crate) nodes: Vec<Node>,
    /// What each has, in thousandths of a core and MiB.
    pub(crate) rooms: Vec<(u64, u64)>,
    folder: TempDir,
}

impl Node {
    /// As a power loss: nothing is written, nobody is told.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it has ended");
        self.killed = true;
    }
}

impl Nodes {
    /// So many nodes in one cluster, each with this room; more settings of `timing` replace the defaults for tests.
    pub(crate) fn start(count: usize, capacity: (u64, u64), timing: &Value) -> Self {
        Self::start_with(vec![capacity; count], timing, 0)
    }

    /// The same, each node with a room of its own and the head with so many pre-schedulers.
    pub(crate) fn start_with(
        rooms: Vec<(u64, u64)>,
        timing: &Value,
        pre_schedulers: usize,
    ) -> Self {
        let folder = tempfile::tempdir().expect("there is room for journals");
        let mut times = json!({
            "round_trip_ms": 20.0, "wanted": "20s", "ping_every": "300ms", "lease": "3s",
            "suspect_after": "2s", "dead_after": "4s",
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

    /// Until every live node is a member that may act, sees so many members, all connected, and the same head.
    pub(crate) fn wait_until_together(&mut self, members: usize) {
        wait("all nodes are members of one cluster with one head", || {
            let statuses: Vec<Value> = self.live().map(Node::status).collect();
            are_together(&statuses, members)
        });
    }

    /// Starts a killed node again, as its machine would.
    pub(crate) fn again(&mut self, at: usize) {
        let others = self.nodes.iter().filter(|node| !node.killed);
        let seeds: Vec<String> = others.map(|node| node.address.clone()).collect();
        self.nodes[at] = self.nodes[at].again(&seeds);
    }

    /// Cuts a node off from all others, or heals that.
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

    /// How many tasks the live nodes have passed on or started in this way.
    pub(crate) fn steps(&mut self, step: &str) -> u64 {
        let count = |node: &mut Node| node.status()["stages"][step].as_u64().unwrap_or(0);
        self.live().map(count).sum()
    }

    /// Which node is the head.
    pub(crate) fn head(&mut self) -> usize {
        let head = self.live().next().expect("one lives").status()["head"].clone();
        let is_head = |node: &Node| head == node.name.as_str();
        self.nodes
            .iter()
            .position(is_head)
            .expect("the head is a node")
    }
}
