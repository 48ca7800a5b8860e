//! Nodes of a cluster as separate processes, and commands to them: for the tests and for the benchmark.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How long a condition may take to become true before the test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// The pause between two checks.
const POLL: Duration = Duration::from_millis(20);

/// One process.
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) child: Child,
    input: Option<ChildStdin>,
    answers: Receiver<Value>,
    /// Answers that arrived while another one was awaited.
    early: VecDeque<Value>,
    pub(crate) address: String,
    /// The configuration with which it was started.
    config: Value,
    pub(crate) killed: bool,
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
            config: config.clone(),
            killed: false,
        };
        let address = node.answer("listening");
        node.address = address.as_str().expect("an address").to_owned();
        node
    }

    /// The same machine after its process was killed: same name and address, another process. It asks these seeds for admission.
    pub(crate) fn again(&self, seeds: &[String]) -> Self {
        let mut config = self.config.clone();
        config["settings"]["listen"] = json!(self.address);
        config["settings"]["seeds"] = json!(seeds);
        Self::start(&config)
    }

    pub(crate) fn order(&mut self, order: &Value) {
        let input = self.input.as_mut().expect("it is piped");
        writeln!(input, "{order}").expect("the node takes orders");
    }

    /// The next answer of this kind.
    pub(crate) fn answer(&mut self, kind: &str) -> Value {
        let is_wanted = |answer: &Value| answer.get(kind).is_some();
        if let Some(at) = self.early.iter().position(is_wanted) {
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

    /// The sum of a metric over all its labels.
    pub(crate) fn metric(&mut self, name: &str) -> f64 {
        self.order(&json!("metrics"));
        let text = self.answer("metrics");
        let lines = text.as_str().expect("a text").lines();
        let value = |line: &str| {
            let (series, value) = line.rsplit_once(' ')?;
            let is_it = series.split('{').next() == Some(name);
            is_it.then(|| value.parse::<f64>().ok()).flatten()
        };
        lines.filter_map(value).sum()
    }
}

/// Starts the nodes of one cluster, one for each capacity in thousandths of a core and MiB. The first one founds it, the others ask that one.
pub(crate) fn start_all(
    cluster: &str,
    rooms: &[(u64, u64)],
    settings: &Value,
    journal: impl Fn(&str) -> Option<PathBuf>,
) -> Vec<Node> {
    let mut nodes: Vec<Node> = Vec::new();
    for (at, room) in rooms.iter().enumerate() {
        let name = format!("n{at:02}");
        let mut settings = settings.clone();
        // Not an ephemeral port, which a client could be given while the node is being restarted.
        settings["listen"] = json!(format!("127.0.0.1:{}", fdn_testkit::ports::local()));
        settings["plaintext"] = json!(true);
        settings["founder"] = json!(at == 0);
        let seeds = nodes.first().map(|seed| seed.address.clone());
        settings["seeds"] = json!(seeds.into_iter().collect::<Vec<String>>());
        nodes.push(Node::start(&json!({
            "cluster": cluster, "node": name,
            "capacity": { "cpu_milli": room.0, "memory_mib": room.1 },
            "settings": settings, "journal": journal(&name),
        })));
    }
    nodes
}

/// Whether each of them is a member that may act, sees this many members, all connected, and the same head.
pub(crate) fn are_together(statuses: &[Value], members: usize) -> bool {
    statuses.iter().all(|status| {
        let list = status["members"].as_array().expect("a list");
        status["joined"] == true
            && status["quorum"] == true
            && list.len() == members
            && list
                .iter()
                .all(|member| member["connected"] == true && member["status"] == "alive")
            && status["head"].is_string()
            && status["head"] == statuses[0]["head"]
    })
}

/// Checks a condition repeatedly, with pauses, because the checked processes need the processor too.
pub(crate) fn wait(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < PATIENCE, "in time: {what}");
        std::thread::sleep(POLL);
    }
}
