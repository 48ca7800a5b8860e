//! A node is drained and filled again, leaves, and comes back.

use serde_json::json;

use crate::journal;
use crate::nodes::{Nodes, mortal, patient, wait};

const CAPACITY: (u64, u64) = (1000, 1000);

fn burst(tasks: u64, first: u64) -> serde_json::Value {
    json!({ "burst": { "tasks": tasks, "first": first, "sizes": [[100, 10]], "life_ms": 0.0 } })
}

/// How many pieces of news of this kind are in the journals.
fn told(cluster: &Nodes, kind: &str) -> usize {
    let news = journal::read(cluster).news;
    news.iter().filter(|news| news.contains(kind)).count()
}

#[test]
fn a_draining_node_takes_nothing_and_one_that_leaves_is_gone_at_once() {
    let mut cluster = Nodes::start(3, CAPACITY, &patient());
    cluster.nodes[1].order(&json!({ "drain": true }));
    cluster.nodes[1].answer("done");
    // Two of the three nodes have room for twenty.
    cluster.nodes[0].order(&burst(20, 0));
    assert_eq!(cluster.nodes[0].answer("settled")["started"], 20);
    assert_eq!(cluster.nodes[1].status()["running"], 0);

    cluster.nodes[1].order(&json!({ "drain": false }));
    cluster.nodes[1].answer("done");
    cluster.nodes[0].order(&burst(10, 20));
    assert_eq!(cluster.nodes[0].answer("settled")["started"], 10);
    assert_eq!(cluster.nodes[1].status()["running"], 10);

    cluster.nodes[2].order(&json!("leave"));
    cluster.nodes[2].answer("done");
    let nodes = &mut cluster.nodes;
    wait("the others have heard that it left", || {
        (0..2).all(|at| nodes[at].status()["members"].as_array().map(Vec::len) == Some(2))
    });
    wait(
        "whoever asked for its instances hears that they are lost",
        || told(&cluster, "Lost") == 10,
    );
    assert_eq!(journal::read(&cluster).started(), 30);
}

#[test]
fn instances_declared_idempotent_are_started_again_elsewhere() {
    let mut cluster = Nodes::start(4, CAPACITY, &mortal());
    cluster.nodes[0].order(&json!({ "burst": {
        "tasks": 20, "first": 0, "sizes": [[100, 10]], "life_ms": 0.0, "idempotent": true,
    }}));
    assert_eq!(cluster.nodes[0].answer("settled")["started"], 20);
    let on_two = cluster.nodes[2].status()["running"].as_u64().unwrap();
    cluster.nodes[2].kill();
    let nodes = &mut cluster.nodes;
    wait("as many instances run on the nodes that live", || {
        let live = [0, 1, 3].map(|at| nodes[at].status()["running"].as_u64().unwrap());
        live.iter().sum::<u64>() == 20
    });
    wait("whoever asked for them hears of each", || {
        told(&cluster, "Rerun") as u64 == on_two
    });
}

/// One of two nodes is no majority that could give up the other; but a process that listens at the other's address proves that it is over.
#[test]
fn either_of_two_nodes_may_be_killed_and_started_again() {
    killed_and_started_again(1);
}

fn killed_and_started_again(times: usize) {
    for killed in [1, 0] {
        let mut cluster = Nodes::start(2, CAPACITY, &mortal());
        for _ in 0..times {
            cluster.nodes[killed].kill();
            cluster.again(killed);
            cluster.wait_until_together(2);
        }
        // One node alone has room for ten.
        cluster.nodes[1 - killed].order(&burst(20, 0));
        let settled = cluster.nodes[1 - killed].answer("settled");
        assert_eq!(settled["started"], 20);
        assert_eq!(cluster.nodes[killed].status()["running"], 10);
    }
}

mod soak {
    use super::*;

    #[test]
    fn either_of_two_nodes_may_be_killed_and_started_again_and_again() {
        killed_and_started_again(4);
    }
}
