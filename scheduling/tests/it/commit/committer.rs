//! The committer step by step: queue, back-pressure, retries, waiting, leases, nodes that come and go.

use fdn_core::{Coded, ErrorCode, Millis, Resources};
use fdn_scheduling::commit::{
    ContainerState, Entry, List, Presence, Refusal, Score, Settings, Submitted, Ticket, Verdict,
    Version,
};

use super::{committer, container, next_list, node, placed, size};

/// A list that names one node.
fn naming(ticket: Ticket, index: u32) -> List {
    let entry = Entry {
        node: node(index),
        version: Version::new(0),
        score: Score::new(1.0),
    };
    List {
        ticket,
        entries: vec![entry],
    }
}

#[test]
fn containers_leave_in_the_order_in_which_they_came() {
    let mut committer = committer(Settings::default(), &[size(8, 8)]);
    for n in [5, 3, 9] {
        let submitted = committer.submit(container(n, size(1, 1)));
        assert_eq!(submitted, Ok(Submitted::Queued));
    }
    let taken: Vec<_> = std::iter::from_fn(|| committer.take(Millis::ZERO))
        .map(|assignment| assignment.container.id.uuid().as_u128())
        .collect();
    assert_eq!(taken, [5, 3, 9]);
}

#[test]
fn handing_a_container_in_again_tells_where_it_is() {
    let mut committer = committer(Settings::default(), &[size(1, 1)]);
    let one = container(1, size(1, 1));
    let known = |at| Ok(Submitted::Known(at));
    committer.submit(one).expect("room");
    assert_eq!(committer.submit(one), known(ContainerState::Pending));
    let list = next_list(&mut committer, 0.0).expect("pending");
    assert_eq!(committer.submit(one), known(ContainerState::Out));
    committer.commit(&list);
    assert_eq!(committer.submit(one), known(ContainerState::On(node(0))));
    assert_eq!(committer.take(Millis::ZERO), None, "committed once");
}

#[test]
fn no_more_are_in_flight_than_may_be() {
    let settings = Settings {
        in_flight_max: 2,
        ..Settings::default()
    };
    let mut committer = committer(settings, &[size(8, 8)]);
    for n in 0..3 {
        committer.submit(container(n, size(1, 1))).expect("room");
    }
    let first = next_list(&mut committer, 0.0).expect("one");
    assert!(next_list(&mut committer, 0.0).is_some());
    assert_eq!(committer.take(Millis::ZERO), None);
    placed(&committer.commit(&first));
    assert!(committer.take(Millis::ZERO).is_some());
}

#[test]
fn the_queue_and_the_table_have_an_end() {
    let settings = Settings {
        unplaced_max: 2,
        containers_max: 3,
        nodes_max: 1,
        ..Settings::default()
    };
    let mut committer = committer(settings, &[size(8, 8)]);
    let unit = size(1, 1);
    // Pending and out both count as not placed.
    committer.submit(container(0, unit)).expect("room");
    let list = next_list(&mut committer, 0.0).expect("pending");
    committer.submit(container(1, unit)).expect("room");
    let refusal = committer.submit(container(2, unit)).expect_err("full");
    assert_eq!(refusal, Refusal::Unplaced { max: 2 });
    assert_eq!(refusal.code(), ErrorCode::Overloaded);
    committer.commit(&list);
    committer.submit(container(2, unit)).expect("room again");
    let list = next_list(&mut committer, 0.0).expect("pending");
    committer.commit(&list);
    let refusal = committer.submit(container(3, unit));
    assert_eq!(refusal, Err(Refusal::Containers { max: 3 }));
    let refusal = committer.add_node(unit, &mut Vec::new());
    assert_eq!(refusal, Err(Refusal::Nodes { max: 1 }));
}

#[test]
fn a_list_that_fails_sends_the_container_to_the_end_and_after_some_all_nodes_are_scanned() {
    let settings = Settings {
        retries_max: 2,
        ..Settings::default()
    };
    let mut committer = committer(settings, &[size(1, 1), size(4, 4)]);
    committer.observe(node(0), size(1, 1), &mut Vec::new());
    committer.submit(container(1, size(1, 1))).expect("room");
    committer.submit(container(2, size(1, 1))).expect("room");
    for _ in 0..2 {
        let assignment = committer.take(Millis::ZERO).expect("pending");
        assert_eq!(assignment.container.id.uuid().as_u128(), 1);
        let commit = committer.commit(&naming(assignment.ticket, 0));
        assert_eq!((commit.verdict, commit.scanned), (Verdict::Returned, false));
        // The other one is first now; let it pass.
        let list = next_list(&mut committer, 0.0).expect("pending");
        committer.commit(&List {
            entries: Vec::new(),
            ..list
        });
    }
    let assignment = committer.take(Millis::ZERO).expect("pending");
    let commit = committer.commit(&naming(assignment.ticket, 0));
    assert!(commit.scanned);
    assert_eq!(placed(&commit).node, node(1));
}

#[test]
fn who_finds_no_room_anywhere_waits_and_gets_the_first_that_fits() {
    let settings = Settings {
        retries_max: 0,
        ..Settings::default()
    };
    let mut committer = committer(settings, &[size(2, 2), size(2, 2)]);
    let (big, small) = (size(2, 2), size(1, 1));
    for (n, demand) in [(1, big), (2, small), (3, small), (4, big), (5, small)] {
        committer.submit(container(n, demand)).expect("room");
        let list = next_list(&mut committer, 0.0).expect("pending");
        committer.commit(&list);
    }
    assert_eq!(committer.count(ContainerState::Waiting), 2);

    // 2 leaves: 4, which has waited longest, does not fit into what is free; 5 does.
    let mut served = Vec::new();
    let id = |n| container(n, small).id;
    let was = committer.release(id(2), &mut served);
    assert_eq!(was, Some(ContainerState::On(node(1))));
    let moved: Vec<_> = served.iter().map(|placed| placed.container.id).collect();
    assert_eq!((moved, served[0].node), (vec![id(5)], node(1)));

    served.clear();
    committer.release(id(1), &mut served);
    assert_eq!((served[0].container.id, served[0].node), (id(4), node(0)));
    assert_eq!(committer.release(id(99), &mut served), None);
}

#[test]
fn a_new_node_serves_those_who_wait() {
    let settings = Settings {
        retries_max: 0,
        ..Settings::default()
    };
    let mut committer = committer(settings, &[]);
    committer.submit(container(1, size(1, 1))).expect("room");
    let list = next_list(&mut committer, 0.0).expect("pending");
    assert_eq!(committer.commit(&list).verdict, Verdict::Waiting);
    let mut served = Vec::new();
    let added = committer.add_node(size(1, 1), &mut served).expect("room");
    assert_eq!((served[0].node, served.len()), (added, 1));
}

#[test]
fn a_pre_scheduler_that_dies_loses_the_container_to_another_and_its_list_is_ignored() {
    let settings = Settings {
        lease: Millis::new(50.0),
        ..Settings::default()
    };
    let mut committer = committer(settings, &[size(8, 8)]);
    committer.submit(container(1, size(1, 1))).expect("room");
    let late = next_list(&mut committer, 0.0).expect("pending");
    assert_eq!(committer.take(Millis::new(49.9)), None);
    let again = next_list(&mut committer, 50.0).expect("pending again");
    assert_eq!(committer.commit(&late).verdict, Verdict::Ignored);
    placed(&committer.commit(&again));
    assert_eq!(committer.commit(&again).verdict, Verdict::Ignored);
    assert_eq!(committer.commit(&late).verdict, Verdict::Ignored);
    assert_eq!(*committer.store().records()[0].used(), size(1, 1));
}

#[test]
fn a_container_that_leaves_while_it_is_out_is_never_placed() {
    let mut committer = committer(Settings::default(), &[size(8, 8)]);
    let one = container(1, size(1, 1));
    committer.submit(one).expect("room");
    let list = next_list(&mut committer, 0.0).expect("pending");
    assert_eq!(
        committer.release(one.id, &mut Vec::new()),
        Some(ContainerState::Out)
    );
    // Its place in the table is another's now.
    committer.submit(container(2, size(1, 1))).expect("room");
    let other = next_list(&mut committer, 0.0).expect("pending");
    assert_eq!(committer.commit(&list).verdict, Verdict::Ignored);
    assert_eq!(
        placed(&committer.commit(&other))
            .container
            .id
            .uuid()
            .as_u128(),
        2
    );
}

#[test]
fn a_draining_node_keeps_what_it_has_and_takes_nothing() {
    let mut committer = committer(Settings::default(), &[size(2, 2)]);
    for n in 1..=3 {
        committer.submit(container(n, size(1, 1))).expect("room");
    }
    let list = next_list(&mut committer, 0.0).expect("pending");
    placed(&committer.commit(&list));
    // Made before the node drains, and stale by then.
    let list = next_list(&mut committer, 0.0).expect("pending");
    assert!(committer.drain_node(node(0)));
    assert_eq!(committer.commit(&list).verdict, Verdict::Returned);
    assert_eq!(committer.count(ContainerState::On(node(0))), 1);
    assert!(committer.resume_node(node(0), &mut Vec::new()));
    let list = next_list(&mut committer, 0.0).expect("pending");
    placed(&committer.commit(&list));
    assert!(!committer.drain_node(node(1)), "there is none");
}

#[test]
fn a_lost_node_gives_its_containers_back_and_its_place_to_the_next() {
    let mut committer = committer(Settings::default(), &[size(2, 2), size(1, 1)]);
    for n in 1..=3 {
        committer.submit(container(n, size(1, 1))).expect("room");
        let list = next_list(&mut committer, 0.0).expect("pending");
        placed(&committer.commit(&list));
    }
    let before = committer.store().records()[0].version();
    let mut lost = Vec::new();
    assert!(committer.lose_node(node(0), &mut lost));
    let ids: Vec<_> = lost.iter().map(|c| c.id.uuid().as_u128()).collect();
    assert_eq!(ids, [1, 2]);
    assert_eq!(committer.find(lost[0].id), None);
    assert!(!committer.lose_node(node(0), &mut lost), "lost already");
    assert_eq!(committer.store().records()[0].presence(), Presence::Absent);

    let again = committer.add_node(size(4, 4), &mut Vec::new());
    assert_eq!(again, Ok(node(0)));
    let record = committer.store().records()[0];
    assert_eq!(
        (record.used(), record.free()),
        (&Resources::default(), size(4, 4))
    );
    assert!(record.version() > before);
}

#[test]
fn the_smallest_absent_place_is_given_first() {
    let mut committer = committer(Settings::default(), &[size(1, 1); 4]);
    for n in [2, 0, 3] {
        committer.lose_node(node(n), &mut Vec::new());
    }
    for n in [0, 2, 3, 4] {
        let added = committer.add_node(size(1, 1), &mut Vec::new());
        assert_eq!(added, Ok(node(n)));
    }
}

#[test]
fn a_node_has_the_last_word() {
    let mut committer = committer(Settings::default(), &[size(4, 4), size(2, 2)]);
    let one = container(1, size(1, 1));
    committer.submit(one).expect("room");
    let list = next_list(&mut committer, 0.0).expect("pending");
    assert_eq!(placed(&committer.commit(&list)).node, node(0));
    let mut served = Vec::new();
    assert!(
        !committer.refuse(one.id, node(1), size(0, 0), &mut served),
        "not there"
    );
    // Others hold all but what is too little.
    assert!(committer.refuse(one.id, node(0), size(4, 3), &mut served));
    assert_eq!(*committer.store().records()[0].used(), size(4, 3));
    let list = next_list(&mut committer, 0.0).expect("pending again");
    assert_eq!(placed(&committer.commit(&list)).node, node(1));

    // A node that refuses without a reason counts as full until it says more.
    assert!(committer.refuse(one.id, node(1), size(0, 0), &mut served));
    assert_eq!(committer.store().records()[1].free(), size(0, 0));
    committer.observe(node(1), size(1, 1), &mut served);
    assert_eq!(committer.store().records()[1].free(), size(1, 1));
    assert!(served.is_empty());
}
