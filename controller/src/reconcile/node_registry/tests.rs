use super::*;
use crate::fixture;

fn boot(n: u128) -> MessageId {
    MessageId::from_uuid(uuid::Uuid::from_u128(n))
}

fn status(node: &str, boot_number: u128, sequence: u64) -> NodeStatus {
    NodeStatus {
        boot: boot(boot_number),
        sequence,
        ..fixture::status(node, "eu-west")
    }
}

fn live() -> NodeRegistry {
    NodeRegistry::new(Vec::new(), 10, Timestamp(0))
}

#[test]
fn the_newest_status_of_the_newest_boot_counts() {
    let mut live = live();
    assert_eq!(
        live.observe(status("a", 1, 5), Timestamp(10)),
        Observation::Important
    );
    assert_eq!(
        live.observe(status("a", 1, 6), Timestamp(20)),
        Observation::Routine
    );
    assert_eq!(
        live.observe(status("a", 1, 6), Timestamp(25)),
        Observation::Stale,
        "a second delivery"
    );
    assert_eq!(
        live.observe(status("a", 1, 4), Timestamp(30)),
        Observation::Stale,
        "out of order"
    );
    assert_eq!(
        live.observe(status("a", 2, 1), Timestamp(40)),
        Observation::Important,
        "a restart"
    );
    assert_eq!(
        live.observe(status("a", 1, 7), Timestamp(50)),
        Observation::Stale,
        "late, from before the restart"
    );
    assert_eq!(live.nodes().next().expect("one").at, Timestamp(40));
}

#[test]
fn a_node_lives_as_long_as_its_status() {
    let mut live = live();
    live.observe(status("a", 1, 1), Timestamp(0));
    assert_eq!(live.alive(Timestamp(9_999)).count(), 1);
    assert_eq!(live.alive(Timestamp(10_000)).count(), 0);
    assert_eq!(
        live.observe(status("a", 1, 2), Timestamp(11_000)),
        Observation::Important,
        "it returned"
    );
}

#[test]
fn after_a_silence_nobody_is_taken_for_dead_at_once() {
    let mut live = live();
    for (node, at) in [("a", 0), ("b", 0), ("a", 12_000)] {
        live.observe(status(node, 1, at + 1), Timestamp(at));
    }
    assert!(!live.settled(Timestamp(12_000)), "b had no time to speak");
    assert!(live.settled(Timestamp(22_000)), "b had its time");
    live.observe(status("b", 1, 12_500), Timestamp(12_500));
    assert!(live.settled(Timestamp(12_500)), "everybody has spoken");
}

#[test]
fn stored_nodes_are_known_but_have_to_speak() {
    let stored = StatusRow {
        status: status("a", 1, 9),
        seen_at: Timestamp(0),
    };
    let mut live = NodeRegistry::new(vec![stored], 10, Timestamp(60_000));
    assert!(!live.settled(Timestamp(60_000)));
    assert_eq!(
        live.observe(status("a", 1, 9), Timestamp(60_100)),
        Observation::Stale
    );
    assert_eq!(
        live.observe(status("a", 1, 10), Timestamp(60_200)),
        Observation::Important
    );
    assert!(live.settled(Timestamp(60_200)));
}

#[test]
fn writing_is_paced_but_not_for_what_matters() {
    let (mut live, interval) = (live(), DurationMs::from_secs(4));
    live.observe(status("a", 1, 1), Timestamp(0));
    assert_eq!(live.take_unwritten(Timestamp(0), interval).len(), 1);
    live.observe(status("a", 1, 2), Timestamp(2_000));
    assert_eq!(live.take_unwritten(Timestamp(2_000), interval).len(), 0);
    live.observe(status("a", 1, 3), Timestamp(4_000));
    let rows = live.take_unwritten(Timestamp(4_000), interval);
    assert_eq!(rows[0].status.sequence, 3);
    live.observe(
        NodeStatus {
            draining: true,
            ..status("a", 1, 4)
        },
        Timestamp(4_500),
    );
    assert_eq!(live.take_unwritten(Timestamp(4_500), interval).len(), 1);
    live.put_back(&rows);
    assert_eq!(live.take_unwritten(Timestamp(4_600), interval).len(), 1);
}

#[test]
fn there_is_a_limit_to_nodes() {
    let mut live = NodeRegistry::new(Vec::new(), 1, Timestamp(0));
    live.observe(status("a", 1, 1), Timestamp(0));
    assert_eq!(
        live.observe(status("b", 1, 1), Timestamp(0)),
        Observation::Refused
    );
}

#[test]
fn a_cluster_that_somebody_made_is_where_they_said() {
    let mut live = live();
    let said = status("a", 1, 1);
    live.observe(said.clone(), Timestamp(0));
    let place = |live: &NodeRegistry| live.clusters().remove(&said.cluster).expect("there");
    assert_eq!(place(&live), (said.region.clone(), said.location));
    let made = (
        "elsewhere".parse().expect("region"),
        GeoPoint::new(-33.9, 151.2).expect("position"),
    );
    live.set_admin_state(AdminState {
        places: [(said.cluster.clone(), made.clone())].into(),
        ..AdminState::default()
    });
    assert_eq!(place(&live), made);
}

#[test]
fn a_pass_that_began_before_a_node_was_let_in_does_not_forget_where_it_is() {
    let mut live = live();
    let said = status("a", 1, 1);
    let elsewhere = NodeStatus {
        admin: "192.0.2.9:81".parse().expect("address"),
        ..said.clone()
    };
    live.admit(said.node.clone(), Hosts::of(said.gateway, said.admin));
    live.set_admin_state(AdminState::default());
    assert!(live.admin_state().has_enrolled_hosts(&said));
    assert!(!live.admin_state().has_enrolled_hosts(&elsewhere));
    live.set_admin_state(AdminState {
        removed: [said.node.clone()].into(),
        ..AdminState::default()
    });
    assert!(live.admin_state().enrolled.is_empty());
}

#[test]
fn what_is_new_of_enrolments_is_added_and_now_and_then_all_is_read() {
    let mut live = live();
    let hosts = |status: &NodeStatus| Hosts::of(status.gateway, status.admin);
    let (first, second) = (status("a", 1, 1), status("b", 1, 1));
    let said = |after, stamp, enrolled: &[&NodeStatus], removed: &[&NodeStatus]| AdminState {
        after,
        stamp,
        enrolled: enrolled
            .iter()
            .map(|one| (one.node.clone(), hosts(one)))
            .collect(),
        removed: removed.iter().map(|one| one.node.clone()).collect(),
        ..AdminState::default()
    };
    live.set_admin_state(said(0, 5, &[&first], &[]));
    assert_eq!(live.enrolments_after(Timestamp(1)), 5);
    live.set_admin_state(said(5, 6, &[&second], &[]));
    assert_eq!(live.admin_state().enrolled.len(), 2);
    live.observe(first.clone(), Timestamp(1));
    assert!(live.set_admin_state(said(6, 7, &[], &[&first])));
    live.set_admin_state(said(7, 7, &[], &[]));
    assert_eq!(
        live.observe(status("a", 1, 2), Timestamp(2)),
        Observation::Removed
    );
    // It joins again, and later what was removed before is forgotten.
    live.set_admin_state(said(7, 8, &[&first], &[&second]));
    assert_eq!(live.admin_state().enrolled.len(), 1);
    assert!(live.admin_state().removed.contains(&second.node));
    assert_eq!(live.enrolments_after(Timestamp(60_001)), 0);
    assert_eq!(live.enrolments_after(Timestamp(60_002)), 8);
    live.set_admin_state(said(0, 8, &[&first], &[]));
    assert!(live.admin_state().removed.is_empty());
}

#[test]
fn a_pass_that_began_before_a_removal_does_not_let_the_node_in_again() {
    let mut live = live();
    live.observe(status("a", 1, 1), Timestamp(0));
    let removed = AdminState {
        revision: Revision(5),
        removed: ["a".parse().expect("node")].into(),
        ..AdminState::default()
    };
    assert!(live.set_admin_state(removed));
    // What the pass had read before.
    assert!(!live.set_admin_state(AdminState {
        revision: Revision(4),
        ..AdminState::default()
    }));
    assert_eq!(
        live.observe(status("a", 1, 2), Timestamp(10)),
        Observation::Removed
    );
    assert_eq!(live.nodes().count(), 0);
}

#[test]
fn calls_that_take_much_longer_than_a_moment_ago_are_drift_once_in_a_while() {
    let observed = |calls, execution| fdn_core::message::AppObserved {
        invocations: calls,
        serves: Some(true),
        phases: Some(fdn_core::phases::PhaseTimes {
            execution: fdn_core::Millis::new(execution),
            ..fdn_core::phases::PhaseTimes::default()
        }),
        ..fixture::observed("hello")
    };
    let mut live = live();
    let mut sequence = 0;
    let mut see = |calls, execution, at| {
        sequence += 1;
        let mut status = status("a", 1, sequence);
        status.apps = vec![observed(calls, execution)];
        live.observe(status, Timestamp(at))
    };
    assert_eq!(see(0, 10.0, 1_000), Observation::Important);
    assert_eq!(see(100, 20.0, 2_000), Observation::Routine, "chance");
    assert_eq!(see(105, 60.0, 3_000), Observation::Routine, "few calls");
    assert_eq!(see(205, 200.0, 4_000), Observation::Drifted);
    assert_eq!(see(305, 20.0, 5_000), Observation::Routine, "just now");
    assert_eq!(see(405, 2.0, 9_000), Observation::Drifted);
}

#[test]
fn rows_fall_due_by_the_time_of_their_writing() {
    let (mut live, interval) = (live(), DurationMs::from_secs(4));
    live.observe(status("a", 1, 1), Timestamp(0));
    assert_eq!(live.take_unwritten(Timestamp(0), interval).len(), 1);
    // The report came less than an interval after the write, but the stored row is older than that.
    live.observe(status("a", 1, 2), Timestamp(3_700));
    assert_eq!(live.take_unwritten(Timestamp(5_500), interval).len(), 1);
    assert_eq!(live.take_unwritten(Timestamp(11_000), interval).len(), 0);
    // The clock is set back: what was written in the future does not stop writing until then.
    live.observe(status("a", 1, 3), Timestamp(1_000));
    assert_eq!(live.take_unwritten(Timestamp(1_000), interval).len(), 1);
}

#[test]
fn a_row_from_the_future_keeps_nobody_alive_longer_than_one_of_now() {
    let hour = 3_600_000;
    let row = |boot_number, sequence, at| StatusRow {
        status: status("a", boot_number, sequence),
        seen_at: Timestamp(at),
    };
    let node = "a".parse().expect("node");
    let mut live = live();
    live.merge(row(1, 1, hour), Timestamp(1_000));
    assert!(live.is_alive(&node, Timestamp(10_999)));
    assert!(!live.is_alive(&node, Timestamp(11_000)));
    let mut stored = NodeRegistry::new(vec![row(1, 1, hour)], 10, Timestamp(1_000));
    assert!(!stored.is_alive(&node, Timestamp(11_000)));
    // Within a boot the sequence decides, whatever the clocks say.
    stored.merge(row(1, 2, 500), Timestamp(3_000));
    stored.merge(row(1, 1, 2_900), Timestamp(3_000));
    let seen = stored.node(&node).expect("known");
    assert_eq!((seen.status.sequence, seen.at), (2, Timestamp(1_000)));
    // A row of another boot counts if it is younger.
    stored.merge(row(2, 1, 900), Timestamp(3_000));
    assert_eq!(stored.node(&node).expect("known").status.boot, boot(1));
    stored.merge(row(2, 1, 2_000), Timestamp(3_000));
    assert_eq!(stored.node(&node).expect("known").status.boot, boot(2));
}
