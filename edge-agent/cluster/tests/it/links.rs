//! News that are lost while a link is cut.

mod soak {
    use serde_json::json;

    use crate::nodes::{Node, Nodes, patient, wait};

    const CAPACITY: (u64, u64) = (1000, 1000);
    /// More instances on each node than one message lists.
    const STAYING: u64 = 2000;

    #[test]
    fn ends_of_instances_that_nobody_heard_of_are_found_out_when_the_link_is_back() {
        // No node is given up meanwhile.
        let mut cluster = Nodes::start(3, CAPACITY, &patient());
        let mut burst = |tasks: u64, first: u64, life: f64| {
            cluster.nodes[0].order(&json!({ "burst": {
                "tasks": tasks, "first": first, "sizes": [[1, 1]], "life_ms": life,
            }}));
            assert_eq!(cluster.nodes[0].answer("settled")["started"], tasks);
        };
        burst(STAYING, 0, 0.0);
        burst(300, STAYING, 3000.0);
        cluster.cut(2, true);
        let running = |cluster: &mut Nodes| {
            let nodes = cluster.nodes.iter_mut();
            let on = |node: &mut Node| node.status()["running"].as_u64().unwrap();
            nodes.map(on).collect::<Vec<u64>>()
        };
        let before = running(&mut cluster);
        wait("all others have ended", || {
            running(&mut cluster).iter().sum::<u64>() == STAYING
        });
        let ended = before[2] - running(&mut cluster)[2];
        assert!(ended > 0, "some have ended while the link was cut");
        cluster.cut(2, false);
        let nodes = &mut cluster.nodes;
        wait("whoever asked for them knows", || {
            nodes[0].status()["placed"] == STAYING
        });
        let found = nodes[0].metric("fdn_cluster_instances_missed_total");
        assert!(found >= 1.0, "of {ended} nobody had heard");
        let asked = nodes[0].metric("fdn_cluster_recounts_total");
        assert!((1.0..20.0).contains(&asked), "asked {asked} times");
    }
}
