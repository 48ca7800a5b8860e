//! A cluster of processes, and orders to them.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// How long a condition may take to come true before a test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// One process.
pub(crate) struct Node {
    pub(crate) name: String,
    child: Child,
    input: Option<ChildStdin>,
    answers: Receiver<Value>,
    /// Answers that came while another one was waited for.
    early: VecDeque<Value>,
    pub(crate) address: String,
    pub(crate) killed: bool,
}

/// All of them.
pub(crate) struct Nodes {
    pub(crate) nodes: Vec<Node>,
    folder: TempDir,
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may be dead already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Node {
    fn start(config: &Value) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_fdn-cluster-node"))
            .arg(config.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the node's program starts");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let answer = serde_json::from_str(&line).expect("an answer is JSON");
                if sender.send(answer).is_err() {
                    return;
                }
            }
        });
        let mut node = Self {
            name: config["node"].as_str().expect("it has a name").to_owned(),
            input: child.stdin.take(),
            child,
            answers,
            early: VecDeque::new(),
            address: String::new(),
            killed: false,
        };
        node.address = node
            .answer("listening")
            .as_str()
            .expect("an address")
            .to_owned();
        node
    }

    pub(crate) fn order(&mut self, order: &Value) {
        let input = self.input.as_mut().expect("it is piped");
        writeln!(input, "{order}").expect("the node takes orders");
    }

    /// The next answer of this kind.
    pub(crate) fn answer(&mut self, kind: &str) -> Value {
        if let Some(at) = self
            .early
            .iter()
            .position(|answer| answer.get(kind).is_some())
        {
            let answer = self.early.remove(at).expect("it was found there");
            return answer[kind].clone();
        }
        loop {
            let answer = self.answers.recv_timeout(PATIENCE);
            let answer = answer.unwrap_or_else(|_| panic!("{} answers with {kind}", self.name));
            if let Some(value) = answer.get(kind) {
                return value.clone();
            }
            assert!(answer.get("failed").is_none(), "{}: {answer}", self.name);
            self.early.push_back(answer);
        }
    }

    pub(crate) fn status(&mut self) -> Value {
        self.order(&json!("status"));
        self.answer("status")
    }

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
        let folder = tempfile::tempdir().expect("there is room for journals");
        let mut nodes: Vec<Node> = Vec::new();
        let mut times = json!({
            "round_trip_ms": 20.0, "wanted": "20s", "ping_every": "300ms", "lease": "3s",
            "suspect_after": "2s", "dead_after": "4s",
        });
        for (key, value) in timing.as_object().expect("settings are an object") {
            times[key] = value.clone();
        }
        for at in 0..count {
            let seeds: Vec<&str> = nodes
                .first()
                .map(|seed| seed.address.as_str())
                .into_iter()
                .collect();
            nodes.push(Node::start(&json!({
                "cluster": "test", "node": format!("n{at:02}"),
                "capacity": { "cpu_milli": capacity.0, "memory_mib": capacity.1 },
                "settings": {
                    "listen": "127.0.0.1:0", "seeds": seeds, "founder": at == 0, "plaintext": true,
                    "timing": times,
                },
                "journal": folder.path().join(format!("n{at:02}")),
            })));
        }
        let mut cluster = Self { nodes, folder };
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
            let together = |status: &Value| {
                let list = status["members"].as_array().expect("a list");
                status["joined"] == true
                    && status["quorum"] == true
                    && list.len() == members
                    && list
                        .iter()
                        .all(|member| member["connected"] == true && member["status"] == "alive")
                    && status["head"].is_string()
                    && status["head"] == statuses[0]["head"]
            };
            statuses.iter().all(together)
        });
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

/// Asks again and again; every question is a round trip to a process.
pub(crate) fn wait(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < PATIENCE, "in time: {what}");
    }
}
