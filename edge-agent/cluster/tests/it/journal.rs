//! Reads the journals of nodes, and checks the rules.

use std::collections::BTreeMap;

use crate::nodes::Nodes;

/// The outcome that a node reported for one of its tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Started(String),
    Refused(String),
    Unresolved,
}

#[derive(Debug, Default)]
pub(crate) struct Record {
    /// By task: the live nodes on which an instance runs.
    pub(crate) running: BTreeMap<u64, Vec<String>>,
    /// By label: the task and its outcome.
    pub(crate) outcomes: BTreeMap<u64, (u64, Outcome)>,
    /// The number of starts on any node, ended or not, killed or not.
    pub(crate) starts: usize,
    /// The number of instances that were told to end because another one runs.
    pub(crate) surplus: usize,
    pub(crate) news: Vec<String>,
}

/// Reads all journals, line by line in order, and checks each node's capacity after every line.
pub(crate) fn read(nodes: &Nodes) -> Record {
    let mut record = Record::default();
    for (at, node) in nodes.nodes.iter().enumerate() {
        let capacity = nodes.rooms[at];
        let text = std::fs::read_to_string(nodes.journal(at)).unwrap_or_default();
        let mut running: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        let mut used = (0, 0);
        // The line being written at the time of a kill does not count.
        let complete = text.rfind('\n').map_or("", |end| &text[..end]);
        for line in complete.lines() {
            let words: Vec<&str> = line.splitn(5, ' ').collect();
            let number = |at: usize| words[at].parse::<u64>().expect("a number");
            match words[0] {
                "start" => {
                    record.starts += 1;
                    let size = (number(2), number(3));
                    let before = running.insert(number(1), size);
                    assert_eq!(before, None, "{}: {line}: twice on one node", node.name);
                    used = (used.0 + size.0, used.1 + size.1);
                    assert!(
                        used.0 <= capacity.0 && used.1 <= capacity.1,
                        "{}: {line}: {used:?} is more than {capacity:?}",
                        node.name
                    );
                }
                "end" => {
                    let size = running.remove(&number(1)).expect("only what runs ends");
                    used = (used.0 - size.0, used.1 - size.1);
                }
                "surplus" => record.surplus += 1,
                "bare" => panic!("{}: {line}: what it is to be was lost", node.name),
                "outcome" => {
                    let outcome = match words[3] {
                        "started" => {
                            let on = words[4].split(' ').next().expect("a node");
                            Outcome::Started(on.to_owned())
                        }
                        "refused" => Outcome::Refused(words[4].to_owned()),
                        _ => Outcome::Unresolved,
                    };
                    let before = record.outcomes.insert(number(1), (number(2), outcome));
                    assert_eq!(before, None, "{line}: settled twice");
                }
                "news" => record.news.push(line.to_owned()),
                other => panic!("{}: {other}", node.name),
            }
        }
        if !node.killed {
            for task in running.into_keys() {
                record
                    .running
                    .entry(task)
                    .or_default()
                    .push(node.name.clone());
            }
        }
    }
    record
}

impl Record {
    /// Checks that every task has at most one lasting instance, and that every outcome is true.
    pub(crate) fn check(&self, nodes: &Nodes) {
        for (task, on) in &self.running {
            assert_eq!(on.len(), 1, "task {task} runs on {on:?}");
        }
        for (label, (task, outcome)) in &self.outcomes {
            match outcome {
                Outcome::Started(on) => {
                    let killed = nodes
                        .nodes
                        .iter()
                        .any(|node| node.name == *on && node.killed);
                    let runs = self.running.get(task).is_some_and(|nodes| nodes[0] == *on);
                    assert!(
                        killed || runs,
                        "{label}, task {task}, is said to run on {on}"
                    );
                }
                Outcome::Refused(reason) => {
                    assert!(!reason.is_empty(), "{label} has a reason");
                    let runs = self.running.get(task).filter(|_| *task != 0);
                    assert_eq!(runs, None, "{label}, task {task}, was refused: {reason}");
                }
                Outcome::Unresolved => panic!("{label}, task {task}, is unresolved"),
            }
        }
    }

    pub(crate) fn started(&self) -> usize {
        let is_started = |entry: &&(u64, Outcome)| matches!(entry.1, Outcome::Started(_));
        self.outcomes.values().filter(is_started).count()
    }
}
