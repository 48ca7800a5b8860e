//! The registry step by step.

use fdn_core::{Coded, ErrorCode, Revision};
use fdn_scheduling::registry::{Counts, Event, Limits, Lost, News, RegistryError, Stamp, State};

use super::{function, id, node, profile, registry, report, size};

#[test]
fn a_profile_is_replaced_by_a_newer_one_only() {
    let mut registry = registry(Limits::default());
    let register = |registry: &mut fdn_scheduling::registry::Registry, revision, execution| {
        registry
            .register(function(0), Revision(revision), profile(execution))
            .expect("room")
    };
    assert_eq!(register(&mut registry, 3, 30.0), News::Taken);
    assert_eq!(register(&mut registry, 2, 20.0), News::Stale);
    assert_eq!(register(&mut registry, 3, 31.0), News::Stale);
    assert_eq!(registry.profile(function(0)), Some(&profile(30.0)));
    assert_eq!(registry.profile(function(7)), None);
}

#[test]
fn an_instance_from_request_to_end_is_counted_at_every_step() {
    let mut registry = registry(Limits::default());
    let zero = Counts::default();
    let counts = |registry: &fdn_scheduling::registry::Registry| registry.counts(function(0));
    assert_eq!(registry.request(id(1), function(0)), Ok(News::Taken));
    assert_eq!(registry.request(id(1), function(0)), Ok(News::Stale));
    assert_eq!(counts(&registry), Counts { pending: 1, ..zero });
    assert_eq!(registry.place(id(1), node(1)), Ok(State::Starting));
    assert_eq!(
        counts(&registry),
        Counts {
            starting: 1,
            ..zero
        }
    );
    assert_eq!(counts(&registry).coming(), 1);
    assert_eq!(registry.instances_on(node(1)).collect::<Vec<_>>(), [id(1)]);
    for (event, expected) in [
        (Event::Started, Counts { idle: 1, ..zero }),
        (Event::Assigned, Counts { busy: 1, ..zero }),
        (Event::Finished, Counts { idle: 1, ..zero }),
        (
            Event::Drain,
            Counts {
                draining: 1,
                ..zero
            },
        ),
        (Event::Ended, zero),
    ] {
        registry.apply(id(1), event).expect("in order");
        assert_eq!(counts(&registry), expected);
        let running = expected.idle + expected.busy;
        assert_eq!(counts(&registry).running(), running);
    }
    assert_eq!(registry.instance(id(1)), None);
    assert_eq!(registry.counts(function(1)), zero);
}

#[test]
fn what_does_not_belong_is_refused_and_changes_nothing() {
    let mut registry = registry(Limits::default());
    registry.request(id(1), function(0)).expect("room");
    let before = *registry.instance(id(1)).expect("known");
    let refusals = [
        registry.request(id(1), function(1)).map(|_| ()),
        registry.request(id(2), function(9)).map(|_| ()),
        registry.place(id(1), node(9)).map(|_| ()),
        registry.place(id(9), node(1)).map(|_| ()),
        registry.apply(id(1), Event::Finished).map(|_| ()),
        registry.apply(id(1), Event::Placed).map(|_| ()),
    ];
    let codes = refusals.map(|refusal| refusal.expect_err("refused").code());
    use ErrorCode::{BadRequest, Conflict, NotFound};
    assert_eq!(
        codes,
        [Conflict, NotFound, NotFound, NotFound, Conflict, BadRequest]
    );
    assert_eq!(registry.instance(id(1)), Some(&before));
    assert_eq!(registry.instances().count(), 1);
}

#[test]
fn a_function_with_instances_stays() {
    let mut registry = registry(Limits::default());
    registry.request(id(1), function(0)).expect("room");
    let in_use = registry.unregister(function(0));
    assert_eq!(in_use, Err(RegistryError::InUse(function(0))));
    registry.apply(id(1), Event::Ended).expect("pending");
    assert_eq!(registry.unregister(function(0)), Ok(true));
    assert_eq!(registry.unregister(function(0)), Ok(false));
    assert!(registry.request(id(2), function(0)).is_err());
}

#[test]
fn every_table_has_an_end() {
    let limits = Limits {
        functions: 2,
        nodes: 2,
        instances: 2,
    };
    let mut registry = registry(limits);
    let full = |what| RegistryError::Full { what, max: 2 };
    let error = registry.register(function(2), Revision(1), profile(1.0));
    assert_eq!(error, Err(full("functions")));
    let mut lost = Vec::new();
    let error = registry.observe_node(node(2), Stamp::new(1, 1), size(1), &mut lost);
    assert_eq!(error, Err(full("nodes")));
    registry.request(id(1), function(0)).expect("room");
    registry.request(id(2), function(0)).expect("room");
    assert_eq!(registry.request(id(3), function(0)), Err(full("instances")));
    let said = report(3, 0, State::Idle, Stamp::new(1, 2));
    let error = registry.observe_instance(node(0), said, &mut lost);
    assert_eq!(error, Err(full("instances")));
    assert_eq!(full("nodes").code(), ErrorCode::Overloaded);
}

#[test]
fn older_news_of_a_node_is_ignored() {
    let mut registry = registry(Limits::default());
    let mut lost = Vec::new();
    let mut observe = |epoch, sequence, cores| {
        let stamp = Stamp::new(epoch, sequence);
        let news = registry.observe_node(node(0), stamp, size(cores), &mut lost);
        (news.expect("room"), *registry.node(node(0)).expect("there"))
    };
    assert_eq!(observe(1, 3, 6), (News::Taken, size(6)));
    assert_eq!(observe(1, 2, 7), (News::Stale, size(6)));
    assert_eq!(observe(1, 3, 7), (News::Stale, size(6)));
    assert_eq!(observe(2, 1, 8), (News::Taken, size(8)));
    assert_eq!(observe(1, 99, 9), (News::Stale, size(8)));
    let places: Vec<_> = registry.nodes().map(|(place, _)| place).collect();
    assert_eq!(places, [node(0), node(1)]);
}

#[test]
fn older_news_of_an_instance_is_ignored() {
    let mut registry = registry(Limits::default());
    let mut lost = Vec::new();
    let mut observe = |state, sequence| {
        let said = report(1, 0, state, Stamp::new(1, sequence));
        let news = registry.observe_instance(node(0), said, &mut lost);
        (
            news.expect("room"),
            registry.instance(id(1)).map(|i| i.state),
        )
    };
    assert_eq!(observe(State::Idle, 5), (News::Taken, Some(State::Idle)));
    assert_eq!(
        observe(State::Starting, 4),
        (News::Stale, Some(State::Idle))
    );
    assert_eq!(observe(State::Busy, 6), (News::Taken, Some(State::Busy)));
    assert_eq!(observe(State::Gone, 8), (News::Taken, None));
    assert_eq!(
        observe(State::Idle, 7),
        (News::Stale, None),
        "gone stays gone"
    );
    assert_eq!(observe(State::Busy, 6), (News::Stale, None));
}

/// Of two messages with one stamp the first counts, and a full report counts for all of its stamp.
#[test]
fn what_is_said_twice_with_one_stamp_is_old_the_second_time() {
    let mut registry = registry(Limits::default());
    let mut lost = Vec::new();
    let stamp = Stamp::new(1, 5);
    let mut observe = |registry: &mut fdn_scheduling::registry::Registry, number, state| {
        let said = report(number, 0, state, stamp);
        let news = registry.observe_instance(node(0), said, &mut lost);
        (news, registry.instance(id(number)).map(|i| i.state))
    };
    let taken = (Ok(News::Taken), Some(State::Idle));
    assert_eq!(observe(&mut registry, 1, State::Idle), taken);
    let stale = (Ok(News::Stale), Some(State::Idle));
    assert_eq!(observe(&mut registry, 1, State::Busy), stale);
    let news = registry.reconcile(node(0), stamp, size(4), &[], &mut Vec::new());
    assert_eq!(news, Ok(News::Taken));
    assert_eq!(registry.instance(id(1)), None, "it is not in the report");
    assert_eq!(
        observe(&mut registry, 2, State::Idle),
        (Ok(News::Stale), None)
    );
}

#[test]
fn a_restart_loses_all_that_was_on_the_node() {
    for by_instance in [false, true] {
        let mut registry = registry(Limits::default());
        let mut lost = Vec::new();
        let said = report(2, 1, State::Busy, Stamp::new(1, 2));
        registry
            .observe_instance(node(0), said, &mut lost)
            .expect("room");
        registry.request(id(1), function(0)).expect("room");
        registry.place(id(1), node(0)).expect("there");
        registry.request(id(3), function(0)).expect("room");
        registry.place(id(3), node(1)).expect("there");

        // A new start, seen first by the node's own report or by one of an instance.
        if by_instance {
            let said = report(4, 0, State::Starting, Stamp::new(2, 1));
            let news = registry.observe_instance(node(0), said, &mut lost);
            assert_eq!(news, Ok(News::Taken));
        } else {
            let news = registry.observe_node(node(0), Stamp::new(2, 1), size(4), &mut lost);
            assert_eq!(news, Ok(News::Taken));
        }
        let was = |number, of, state| Lost {
            id: id(number),
            function: function(of),
            state,
        };
        assert_eq!(lost, [was(1, 0, State::Starting), was(2, 1, State::Busy)]);
        assert_eq!(registry.counts(function(1)), Counts::default());
        assert_eq!(
            registry.counts(function(0)).starting,
            1 + u32::from(by_instance)
        );

        lost.clear();
        let late = report(2, 1, State::Idle, Stamp::new(1, 3));
        let news = registry.observe_instance(node(0), late, &mut lost);
        assert_eq!((news, lost.len()), (Ok(News::Stale), 0));
    }
}

#[test]
fn what_a_node_keeps_over_a_restart_is_not_lost() {
    let mut registry = registry(Limits::default());
    let mut lost = Vec::new();
    for number in [1, 2] {
        let said = report(number, 0, State::Busy, Stamp::new(1, 2));
        registry
            .observe_instance(node(0), said, &mut lost)
            .expect("room");
    }
    let kept = [report(2, 0, State::Idle, Stamp::new(2, 1))];
    let news = registry.reconcile(node(0), Stamp::new(2, 1), size(4), &kept, &mut lost);
    assert_eq!(news, Ok(News::Taken));
    let ids: Vec<_> = lost.iter().map(|lost| lost.id).collect();
    assert_eq!(ids, [id(1)]);
    assert_eq!(registry.counts(function(0)).idle, 1);
}

#[test]
fn a_lost_node_returns_its_instances_and_comes_back_with_its_next_report() {
    let mut registry = registry(Limits::default());
    let mut lost = Vec::new();
    let said = report(1, 0, State::Idle, Stamp::new(1, 2));
    registry
        .observe_instance(node(0), said, &mut lost)
        .expect("room");
    assert!(registry.lose_node(node(0), &mut lost));
    assert_eq!((lost.len(), registry.node(node(0))), (1, None));
    assert!(!registry.lose_node(node(0), &mut lost));

    // What was said before does not bring it back.
    let old = registry.observe_node(node(0), Stamp::new(1, 1), size(4), &mut lost);
    assert_eq!((old, registry.node(node(0))), (Ok(News::Stale), None));
    let old = registry.observe_instance(node(0), said, &mut lost);
    assert_eq!(old, Err(RegistryError::UnknownNode(node(0))));

    // It was only cut off: instance 1 has ended meanwhile, which an old message does not know.
    let back = registry.observe_node(node(0), Stamp::new(1, 9), size(4), &mut lost);
    assert_eq!(back, Ok(News::Taken));
    let old = registry.observe_instance(node(0), said, &mut lost);
    assert_eq!((old, registry.instance(id(1))), (Ok(News::Stale), None));
}

#[test]
fn a_place_that_is_given_to_another_node_begins_anew() {
    let mut registry = registry(Limits::default());
    let mut lost = Vec::new();
    registry
        .observe_node(node(0), Stamp::new(50, 1), size(4), &mut lost)
        .expect("room");
    assert!(registry.remove_node(node(0), &mut lost));
    let other = registry.observe_node(node(0), Stamp::new(7, 1), size(2), &mut lost);
    assert_eq!(other, Ok(News::Taken));
    assert_eq!(registry.node(node(0)), Some(&size(2)));
}

#[test]
fn a_full_report_ends_what_is_not_in_it_but_not_what_is_newer_or_under_way() {
    let mut registry = registry(Limits::default());
    let mut lost = Vec::new();
    let stamp = |sequence| Stamp::new(1, sequence);
    for (number, sequence) in [(1, 2), (2, 3), (3, 9)] {
        let said = report(number, 0, State::Idle, stamp(sequence));
        registry
            .observe_instance(node(0), said, &mut lost)
            .expect("room");
    }
    registry.request(id(4), function(0)).expect("room");
    registry.place(id(4), node(0)).expect("there");
    let all = [
        report(2, 0, State::Busy, stamp(5)),
        report(5, 1, State::Starting, stamp(4)),
    ];
    let news = registry.reconcile(node(0), stamp(6), size(3), &all, &mut lost);
    assert_eq!(news, Ok(News::Taken));
    let ended: Vec<_> = lost.iter().map(|lost| lost.id).collect();
    assert_eq!(ended, [id(1)]);
    let state = |number| registry.instance(id(number)).map(|held| held.state);
    assert_eq!(
        [1, 2, 3, 4, 5].map(state),
        [
            None,
            Some(State::Busy),
            Some(State::Idle),
            Some(State::Starting),
            Some(State::Starting)
        ]
    );
    assert_eq!(registry.node(node(0)), Some(&size(3)));
    let again = registry.reconcile(node(0), stamp(5), size(1), &[], &mut lost);
    assert_eq!((again, lost.len()), (Ok(News::Stale), 1));
}

#[test]
fn one_instance_cannot_be_on_two_nodes_that_both_confirm_it() {
    let mut registry = registry(Limits::default());
    let mut lost = Vec::new();
    registry.request(id(1), function(0)).expect("room");
    registry.place(id(1), node(0)).expect("there");
    // Not confirmed yet, it may have been sent on.
    let said = report(1, 0, State::Idle, Stamp::new(1, 2));
    registry
        .observe_instance(node(1), said, &mut lost)
        .expect("sent on");
    assert_eq!(registry.instances_on(node(0)).count(), 0);
    assert_eq!(registry.instances_on(node(1)).count(), 1);
    let also = registry.observe_instance(node(0), said, &mut lost);
    assert_eq!(also, Err(RegistryError::Elsewhere(id(1))));
    let wrong = report(1, 1, State::Idle, Stamp::new(1, 3));
    let wrong = registry.observe_instance(node(1), wrong, &mut lost);
    assert_eq!(wrong, Err(RegistryError::Elsewhere(id(1))));
    let pending = report(2, 0, State::Pending, Stamp::new(1, 3));
    let pending = registry.observe_instance(node(1), pending, &mut lost);
    assert_eq!(pending, Err(RegistryError::NotOnNode(id(2))));
}
