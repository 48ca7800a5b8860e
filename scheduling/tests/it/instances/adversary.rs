//! Random long schedules against a network that loses, doubles and delays, while nodes are lost.

use fdn_scheduling::instance::{Policy, Refusal, Settled, Slots, Term};
use proptest::prelude::*;

use super::cluster::{Cluster, Plan};

fn policies() -> impl Strategy<Value = Policy> {
    prop_oneof![
        Just(Policy::LocalProbeGlobal),
        Just(Policy::Hints),
        Just(Policy::BottomUp),
        Just(Policy::ReProbing),
        Just(Policy::LateBinding),
    ]
}

prop_compose! {
    fn plans()(
        policy in policies(),
        capacities in prop::collection::vec(1u32..4, 2..7),
        tasks in prop::collection::vec((0.0..60.0, 1u32..3, 1.0..40.0), 1..40),
        loss in 0.0..0.4,
        duplicate in 0.0..0.4,
        slowest in 0.2..2.0,
        losses in prop::collection::vec((0.0..80.0, 1u32..6), 0..3),
        heads in prop::collection::vec(0.0..90.0, 0..3),
        deposed in any::<bool>(),
        pre_schedulers in 0usize..3,
        window in prop_oneof![Just(1024), 1usize..5],
        seed in any::<u64>(),
    ) -> Plan {
        let nodes = u32::try_from(capacities.len()).expect("few");
        // The first node stays, and is large enough for every task.
        let mut capacities = capacities;
        capacities[0] = 3;
        Plan {
            policy,
            tasks,
            rough_until: 150.0,
            loss,
            duplicate,
            slowest,
            losses: losses.into_iter().filter(|(_, node)| *node < nodes).collect(),
            capacities,
            heads,
            deposed,
            pre_schedulers,
            window,
            wanted: 20_000.0,
            seed,
        }
    }
}

/// The properties, for as many cases as asked.
macro_rules! properties {
    ($cases:expr) => {
        proptest! {
            #![proptest_config(ProptestConfig::with_cases($cases))]

            #[test]
            fn once_messages_flow_again_every_task_is_placed_exactly_once(plan in plans()) {
                let mut cluster = Cluster::new(plan.clone());
                cluster.run(60_000.0);
                prop_assert_eq!(cluster.submitter.open(), 0, "all are settled");
                for id in cluster.ids() {
                    prop_assert!(cluster.lasting(id) <= 1);
                    match cluster.settled[&id] {
                        Settled::Started(_, node) => {
                            prop_assert!(cluster.starts[&id].iter().any(|start| start.node == node));
                        }
                        // The schemes without a centre need not find the one node that is large enough.
                        Settled::Refused(_, refusal) => {
                            let no_centre = matches!(plan.policy, Policy::ReProbing | Policy::LateBinding);
                            prop_assert!(no_centre, "{refusal}");
                            prop_assert!(matches!(refusal, Refusal::NoRoom | Refusal::Expired));
                            prop_assert_eq!(cluster.lasting(id), 0);
                        }
                        Settled::Unresolved(_) => prop_assert!(false, "messages flow"),
                    }
                }
                for node in cluster.live() {
                    prop_assert_eq!(node.open_probes(), 0, "no question stays open");
                    prop_assert_eq!(node.reserved(), Slots(0));
                }
            }

            #[test]
            fn a_task_that_expires_is_not_running_anywhere(plan in plans(), wanted in 5.0..120.0) {
                let mut cluster = Cluster::new(Plan { wanted, ..plan });
                cluster.run(60_000.0);
                prop_assert_eq!(cluster.submitter.open(), 0);
                for id in cluster.ids() {
                    prop_assert!(cluster.lasting(id) <= 1);
                    match cluster.settled[&id] {
                        Settled::Started(..) => prop_assert!(cluster.starts.contains_key(&id)),
                        Settled::Refused(..) => prop_assert_eq!(cluster.lasting(id), 0),
                        Settled::Unresolved(_) => prop_assert!(false, "the fence is answered in time"),
                    }
                }
            }

            #[test]
            fn without_any_loss_nobody_asks_twice(plan in plans()) {
                let plan = Plan {
                    loss: 0.0,
                    duplicate: 0.0,
                    rough_until: 0.0,
                    losses: Vec::new(),
                    heads: Vec::new(),
                    ..plan
                };
                let mut cluster = Cluster::new(plan.clone());
                cluster.run(60_000.0);
                for id in cluster.ids() {
                    let is_started = matches!(cluster.settled[&id], Settled::Started(..));
                    let has_centre = !matches!(plan.policy, Policy::ReProbing | Policy::LateBinding);
                    prop_assert!(is_started || !has_centre);
                    prop_assert_eq!(cluster.lasting(id), usize::from(is_started));
                }
            }

            #[test]
            fn another_global_scheduler_takes_over_without_a_second_start(
                plan in plans(),
                policy in prop_oneof![Just(Policy::BottomUp), Just(Policy::Hints), Just(Policy::LocalProbeGlobal)],
                heads in prop::collection::vec(1.0..60.0, 1..4),
            ) {
                // One slot on each node but the first: nearly everything goes through it.
                let mut capacities = vec![1; plan.capacities.len()];
                capacities[0] = 3;
                let mut cluster = Cluster::new(Plan { policy, heads, capacities, ..plan });
                cluster.run(60_000.0);
                prop_assert_eq!(cluster.submitter.open(), 0, "none is forgotten");
                for id in cluster.ids() {
                    prop_assert!(cluster.lasting(id) <= 1);
                    prop_assert!(matches!(cluster.settled[&id], Settled::Started(..)));
                }
                prop_assert!(cluster.global.term() > Term(0));
            }

            #[test]
            fn the_same_seed_gives_the_same_run(plan in plans()) {
                let run = || {
                    let mut cluster = Cluster::new(plan.clone());
                    cluster.run(60_000.0);
                    (cluster.starts, cluster.settled)
                };
                prop_assert_eq!(run(), run());
            }
        }
    };
}

properties!(40);

mod soak {
    use super::*;

    properties!(300);
}
