//! Twelve nodes, twenty thousand tasks, 95 % of the room: alone, with nodes dying, and with the head dying.
//!
//! Every node asks for as many tasks, but every other one has a third of its neighbour's room. So a quarter of all tasks find no room
//! where they arrive, and when the last of those are asked for, few nodes have any: all three stages have to do with it.

use std::ops::Range;

use serde_json::{Value, json};

use crate::journal;
use crate::nodes::{Nodes, wait};

const NODES: u64 = 12;
const TASKS: u64 = 20_000;
/// In turn: their mean is 233 1/3 and 149 1/3.
const SIZES: [(u64, u64); 3] = [(100, 64), (200, 128), (400, 256)];
/// A node's room in the mean, so that all tasks together take 95 % of it.
const CAPACITY: (u64, u64) = (
    TASKS * 700 / 3 * 100 / 95 / NODES,
    TASKS * 448 / 3 * 100 / 95 / NODES,
);

/// One and a half times the mean, and half of it, in turn.
fn rooms() -> Vec<(u64, u64)> {
    let room = |at: u64| {
        let halves = if at.is_multiple_of(2) { 3 } else { 1 };
        (CAPACITY.0 * halves / 2, CAPACITY.1 * halves / 2)
    };
    (0..NODES).map(room).collect()
}

/// Each stage has started some.
fn all_stages_took_part(cluster: &mut Nodes) {
    let started = ["local", "probe", "global"].map(|step| cluster.steps(step));
    assert!(started.iter().all(|count| *count > 0), "{started:?}");
}

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
    order_of(cluster, 0..NODES, number, waves);
}

/// The part of a wave that these nodes ask for.
fn order_of(cluster: &mut Nodes, nodes: Range<u64>, number: u64, waves: u64) {
    for (node, at) in cluster.nodes.iter_mut().zip(0..) {
        if !node.killed && nodes.contains(&at) {
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
    burst_at_95_percent(0);
}

#[test]
fn every_task_of_a_burst_at_95_percent_is_placed_exactly_once_with_pre_schedulers() {
    burst_at_95_percent(2);
}

fn burst_at_95_percent(pre_schedulers: usize) {
    let mut cluster = Nodes::start_with(rooms(), &json!({}), pre_schedulers);
    order_wave(&mut cluster, 0, 1);
    settled(&mut cluster);
    let record = journal::read(&cluster);
    record.check(&cluster);
    assert_eq!(record.outcomes.len() as u64, TASKS);
    assert_eq!(record.started() as u64, TASKS, "there is room for all");
    assert_eq!(record.starts as u64, TASKS, "none was started twice");
    all_stages_took_part(&mut cluster);
}

#[test]
fn two_nodes_die_and_one_is_cut_off_in_the_middle_of_a_burst() {
    nodes_die(0);
}

#[test]
fn two_nodes_die_and_one_is_cut_off_in_the_middle_of_a_burst_with_pre_schedulers() {
    nodes_die(2);
}

fn nodes_die(pre_schedulers: usize) {
    let mut cluster = Nodes::start_with(rooms(), &json!({}), pre_schedulers);
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
    all_stages_took_part(&mut cluster);
    let mut record = journal::read(&cluster);
    // The node that was cut off asks whether what it runs is wanted; the answers are on their way.
    wait("surplus instances are ended", || {
        record = journal::read(&cluster);
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
    head_dies(0);
}

#[test]
fn the_head_dies_in_the_middle_of_a_burst_with_pre_schedulers() {
    head_dies(2);
}

fn head_dies(pre_schedulers: usize) {
    let mut cluster = Nodes::start_with(rooms(), &json!({}), pre_schedulers);
    let before = cluster.nodes[0].status()["epoch"].as_u64().unwrap();
    let waves = 4;
    let (mut head, mut by_first) = (0, 0);
    for number in 0..waves {
        if number == 3 {
            // The smaller nodes are full: of what is asked there, much needs the global scheduler. One half is asked for before it dies.
            order_of(&mut cluster, 0..NODES / 2, number, waves);
            head = cluster.head();
            cluster.nodes[head].kill();
            by_first = cluster.steps("global");
            order_of(&mut cluster, NODES / 2..NODES, number, waves);
        } else {
            order_wave(&mut cluster, number, waves);
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
    let by_both = cluster.steps("global");
    assert!(by_both > by_first, "the new head has placed tasks");
    all_stages_took_part(&mut cluster);
    let record = journal::read(&cluster);
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
