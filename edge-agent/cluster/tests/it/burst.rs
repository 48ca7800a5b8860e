//! Twelve nodes, twenty thousand tasks, 95 % of the room: alone, with nodes dying, and with the head dying.

use serde_json::{Value, json};

use crate::journal;
use crate::nodes::{Nodes, wait};

const NODES: u64 = 12;
const TASKS: u64 = 20_000;
/// In turn: their mean is 233 1/3 and 149 1/3.
const SIZES: [(u64, u64); 3] = [(100, 64), (200, 128), (400, 256)];
/// Each node's room, so that all tasks together take 95 % of it.
const CAPACITY: (u64, u64) = (
    TASKS * 700 / 3 * 100 / 95 / NODES,
    TASKS * 448 / 3 * 100 / 95 / NODES,
);

/// Labels of a node's tasks in a wave, so that all waves of all nodes are all tasks.
fn wave(node: u64, wave: u64, waves: u64) -> Value {
    let part = NODES * waves;
    let at = node * waves + wave;
    let (first, end) = (TASKS * at / part, TASKS * (at + 1) / part);
    json!({ "burst": { "tasks": end - first, "first": first, "sizes": SIZES, "life_ms": 0.0 } })
}

/// The node that asks for the task with this label.
fn owner(label: u64) -> u64 {
    let end = |node: &u64| TASKS * (node + 1) / NODES;
    (0..NODES)
        .find(|node| label < end(node))
        .expect("a label is one of all")
}

fn order_wave(cluster: &mut Nodes, number: u64, waves: u64) {
    for (node, at) in cluster.nodes.iter_mut().zip(0..) {
        if !node.killed {
            node.order(&wave(at, number, waves));
        }
    }
}

fn settled(cluster: &mut Nodes) {
    for node in cluster.live() {
        node.answer("settled");
    }
}

#[test]
fn every_task_of_a_burst_at_95_percent_is_placed_exactly_once() {
    let mut cluster = Nodes::start(12, CAPACITY, &json!({}));
    order_wave(&mut cluster, 0, 1);
    settled(&mut cluster);
    let record = journal::read(&cluster, CAPACITY);
    record.check(&cluster);
    assert_eq!(record.outcomes.len() as u64, TASKS);
    assert_eq!(record.started() as u64, TASKS, "there is room for all");
    assert_eq!(record.starts as u64, TASKS, "none was started twice");
}

#[test]
fn two_nodes_die_and_one_is_cut_off_in_the_middle_of_a_burst() {
    let mut cluster = Nodes::start(12, CAPACITY, &json!({}));
    let (dead, cut) = ([3, 7], 5);
    let waves = 8;
    for number in 0..waves {
        order_wave(&mut cluster, number, waves);
        if number == 2 {
            // Their tasks, and others' tasks on them, are on their way.
            for at in dead {
                cluster.nodes[at].kill();
            }
            cluster.cut(cut, true);
        }
        settled(&mut cluster);
    }
    cluster.cut(cut, false);
    cluster.wait_until_together(10);
    let rejoined = cluster.nodes[cut].status();
    let name = cluster.nodes[cut].name.clone();
    let members = rejoined["members"].as_array().unwrap();
    let itself = members
        .iter()
        .find(|member| member["node"] == name.as_str())
        .unwrap();
    assert!(
        itself["key"]["incarnation"].as_u64() > Some(1),
        "it was given up meanwhile"
    );
    let mut record = journal::read(&cluster, CAPACITY);
    // The node that was cut off asks whether what it runs is wanted; the answers are on their way.
    wait("surplus instances are ended", || {
        record = journal::read(&cluster, CAPACITY);
        record.running.values().all(|on| on.len() == 1)
    });
    record.check(&cluster);
    let of_dead = dead.map(|at| TASKS * (at as u64 + 1) / NODES - TASKS * at as u64 / NODES);
    let expected = TASKS - of_dead.iter().sum::<u64>();
    let live = record
        .outcomes
        .keys()
        .filter(|label| !dead.contains(&(owner(**label) as usize)));
    assert_eq!(
        live.count() as u64,
        expected,
        "every task of a live node has an outcome"
    );
    assert!(
        record.started() as u64 > expected * 8 / 10,
        "most have found room"
    );
}

#[test]
fn the_head_dies_in_the_middle_of_a_burst() {
    let mut cluster = Nodes::start(12, CAPACITY, &json!({}));
    let before = cluster.nodes[0].status()["epoch"].as_u64().unwrap();
    let waves = 4;
    let mut head = 0;
    for number in 0..waves {
        order_wave(&mut cluster, number, waves);
        if number == 3 {
            // Nearly all room is taken: the last wave needs the global scheduler.
            head = cluster.head();
            cluster.nodes[head].kill();
        }
        settled(&mut cluster);
    }
    cluster.wait_until_together(11);
    let status = cluster.live().next().unwrap().status();
    assert!(
        status["epoch"].as_u64().unwrap() > before,
        "there is another head"
    );
    assert_ne!(cluster.head(), head);
    let record = journal::read(&cluster, CAPACITY);
    record.check(&cluster);
    let of_head = TASKS * (head as u64 + 1) / NODES - TASKS * head as u64 / NODES;
    let live = record
        .outcomes
        .keys()
        .filter(|label| owner(**label) as usize != head);
    assert_eq!(
        live.count() as u64,
        TASKS - of_head,
        "every task of a live node has an outcome"
    );
}
