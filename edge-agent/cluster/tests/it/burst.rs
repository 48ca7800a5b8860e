//! A burst of tasks over several nodes that takes 95 % of the capacity: undisturbed, with nodes dying, and with the head dying.
//!
//! Every node submits the same number of tasks, but nodes have different capacities. So many tasks find no room where they arrive, and when the
//! last of them are submitted, few nodes have any: all three stages are involved.

use serde_json::{Value, json};

use crate::journal;
use crate::nodes::{Nodes, patient};

/// Used in turn: their means are 233 1/3 and 149 1/3.
const SIZES: [(u64, u64); 3] = [(100, 64), (200, 128), (400, 256)];

/// The load of a cluster.
struct Load {
    /// The capacity of each node, relative to the others.
    shares: &'static [u64],
    tasks: u64,
}

/// One node has nearly all the room. Since the probed nodes are drawn at random, one in three of the tasks that find the other nodes full does
/// not learn of it without the head.
const SMALL: Load = Load {
    shares: &[1, 1, 1, 13],
    tasks: 400,
};

impl Load {
    fn nodes(&self) -> u64 {
        self.shares.len() as u64
    }

    /// The capacities of which all tasks together take 95 %.
    fn rooms(&self) -> Vec<(u64, u64)> {
        let parts: u64 = self.shares.iter().sum();
        let room = |third: u64, share: u64| self.tasks * third * 100 * share / (3 * 95 * parts);
        let shares = self.shares.iter();
        shares
            .map(|share| (room(700, *share), room(448, *share)))
            .collect()
    }

    fn start(&self, timing: &Value, pre_schedulers: usize) -> Nodes {
        Nodes::start_with(self.rooms(), timing, pre_schedulers)
    }

    /// The command for a node's part of a wave; the waves of all nodes together are all tasks.
    fn wave(&self, node: u64, wave: u64, waves: u64) -> Value {
        let part = self.nodes() * waves;
        let at = node * waves + wave;
        let (first, end) = (self.tasks * at / part, self.tasks * (at + 1) / part);
        json!({ "burst": { "tasks": end - first, "first": first, "sizes": SIZES, "life_ms": 0.0 } })
    }

    fn order_wave(&self, cluster: &mut Nodes, number: u64, waves: u64) {
        for (node, at) in cluster.nodes.iter_mut().zip(0..) {
            if !node.killed {
                node.order(&self.wave(at, number, waves));
            }
        }
    }
}

/// Checks that each stage has started some tasks.
fn all_stages_took_part(cluster: &mut Nodes) {
    let started = ["local", "probe", "global"].map(|step| cluster.steps(step));
    assert!(started.iter().all(|count| *count > 0), "{started:?}");
}

fn settled(cluster: &mut Nodes) {
    for node in cluster.live() {
        node.answer("settled");
    }
}

#[test]
fn every_task_of_a_burst_at_95_percent_is_placed_exactly_once() {
    burst_at_95_percent(&SMALL, 0);
}

#[test]
fn every_task_of_a_burst_at_95_percent_is_placed_exactly_once_with_pre_schedulers() {
    burst_at_95_percent(&SMALL, 2);
}

fn burst_at_95_percent(load: &Load, pre_schedulers: usize) {
    let mut cluster = load.start(&patient(), pre_schedulers);
    load.order_wave(&mut cluster, 0, 1);
    settled(&mut cluster);
    let record = journal::read(&cluster);
    record.check(&cluster);
    assert_eq!(record.outcomes.len() as u64, load.tasks);
    let started = record.started() as u64;
    assert_eq!(started, load.tasks, "there is room for all");
    assert_eq!(record.starts as u64, load.tasks, "none was started twice");
    all_stages_took_part(&mut cluster);
}

/// Twelve processes and twenty thousand tasks.
mod soak {
    use std::ops::Range;

    use super::*;
    use crate::nodes::{hasty, wait};

    /// Every second node has a third of its neighbour's capacity: a quarter of all tasks find no room where they arrive.
    const LARGE: Load = Load {
        shares: &[3, 1, 3, 1, 3, 1, 3, 1, 3, 1, 3, 1],
        tasks: 20_000,
    };

    /// The end of the label range of a node's tasks.
    fn end_of(node: u64) -> u64 {
        LARGE.tasks * (node + 1) / LARGE.nodes()
    }

    /// How many tasks a node submits.
    fn asked_by(node: u64) -> u64 {
        end_of(node) - LARGE.tasks * node / LARGE.nodes()
    }

    /// The node that submits the task with this label.
    fn owner(label: u64) -> u64 {
        (0..LARGE.nodes())
            .find(|node| label < end_of(*node))
            .expect("a label is one of all")
    }

    /// Sends these nodes their part of a wave.
    fn order_of(cluster: &mut Nodes, nodes: Range<u64>, number: u64, waves: u64) {
        for (node, at) in cluster.nodes.iter_mut().zip(0..) {
            if !node.killed && nodes.contains(&at) {
                node.order(&LARGE.wave(at, number, waves));
            }
        }
    }

    #[test]
    fn every_task_of_twenty_thousand_is_placed_exactly_once() {
        burst_at_95_percent(&LARGE, 0);
    }

    #[test]
    fn every_task_of_twenty_thousand_is_placed_exactly_once_with_pre_schedulers() {
        burst_at_95_percent(&LARGE, 2);
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
        let mut cluster = LARGE.start(&hasty(), pre_schedulers);
        let (dead, cut) = ([3, 7], 5);
        let waves = 8;
        for number in 0..waves {
            LARGE.order_wave(&mut cluster, number, waves);
            if number == 2 {
                // Their tasks, and others' tasks on them, are in flight.
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
        // The node that was cut off asks whether its instances are wanted; the answers are in flight.
        wait("surplus instances are ended", || {
            record = journal::read(&cluster);
            record.running.values().all(|on| on.len() == 1)
        });
        record.check(&cluster);
        let of_dead = dead.map(|at| asked_by(at as u64));
        let expected = LARGE.tasks - of_dead.iter().sum::<u64>();
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
        let mut cluster = LARGE.start(&hasty(), pre_schedulers);
        let before = cluster.nodes[0].status()["epoch"].as_u64().unwrap();
        let waves = 4;
        let (mut head, mut by_first) = (0, 0);
        for number in 0..waves {
            if number == 3 {
                // The smaller nodes are full: many of the tasks submitted there need the global scheduler. One half is submitted before the head
                // dies.
                order_of(&mut cluster, 0..LARGE.nodes() / 2, number, waves);
                head = cluster.head();
                cluster.nodes[head].kill();
                by_first = cluster.steps("global");
                order_of(
                    &mut cluster,
                    LARGE.nodes() / 2..LARGE.nodes(),
                    number,
                    waves,
                );
            } else {
                LARGE.order_wave(&mut cluster, number, waves);
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
        let live = record
            .outcomes
            .keys()
            .filter(|label| owner(**label) as usize != head);
        assert_eq!(
            live.count() as u64,
            LARGE.tasks - asked_by(head as u64),
            "every task of a live node has an outcome"
        );
    }
}
