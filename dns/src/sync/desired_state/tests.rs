use fdn_core::message::{AppBindings, TxtRecords};
use proptest::prelude::*;

use super::*;

fn network(revision: u64) -> NetworkDesired {
    NetworkDesired {
        revision: Revision(revision),
        clusters: vec![],
        locations: vec![],
        measured: vec![],
    }
}

fn entry(app: &str, revision: u64, exists: bool) -> BindingsDesired {
    let host = format!("{app}.fn.test").parse().expect("host");
    let state = exists.then_some(AppBindings {
        holders: fdn_core::message::Holders::EVERYWHERE,
        host,
        ttl_s: u32::try_from(revision).expect("small"),
        bindings: vec![],
    });
    BindingsDesired {
        app: app.parse().expect("app"),
        revision: Revision(revision),
        state,
    }
}

/// A snapshot as received from a feed.
fn snapshot(revision: u64, apps: Vec<BindingsDesired>) -> Snapshot {
    telling(revision, apps, vec![])
}

fn telling(revision: u64, apps: Vec<BindingsDesired>, txt: Vec<TxtDesired>) -> Snapshot {
    let mut frames = vec![Frame::Network(network(1))];
    frames.extend(apps.into_iter().map(Frame::Bindings));
    frames.extend(txt.into_iter().map(Frame::Txt));
    Snapshot::of(Revision(revision), frames)
}

fn held(desired: &DesiredState) -> Vec<(String, u64)> {
    desired
        .apps()
        .map(|(app, revision, _)| (app.to_string(), revision.get()))
        .collect()
}

fn changed(app: &str, base: u64, revision: u64, prefix: &str) -> BindingsChanged {
    let cluster = "eu".parse().expect("cluster");
    BindingsChanged {
        holders: None,
        app: app.parse().expect("app"),
        base: Revision(base),
        revision: Revision(revision),
        changes: vec![(prefix.parse().expect("prefix"), Some(cluster))],
    }
}

#[test]
fn changes_count_only_in_an_unbroken_row() {
    let mut desired = DesiredState::default();
    desired.bindings(entry("a", 5, true));
    assert_eq!(
        desired.changed(changed("a", 5, 7, "10.0.0.0/8")),
        Merged::Taken
    );
    // Duplicated and late messages.
    assert_eq!(
        desired.changed(changed("a", 5, 7, "10.0.0.0/8")),
        Merged::Stale
    );
    assert_eq!(
        desired.changed(changed("a", 4, 6, "11.0.0.0/8")),
        Merged::Stale
    );
    // A message is missing, the app is unknown, or the app was deleted.
    assert_eq!(
        desired.changed(changed("a", 8, 9, "12.0.0.0/8")),
        Merged::Gap
    );
    assert_eq!(
        desired.changed(changed("b", 1, 2, "10.0.0.0/8")),
        Merged::Gap
    );
    desired.bindings(entry("c", 8, false));
    assert_eq!(
        desired.changed(changed("c", 8, 9, "10.0.0.0/8")),
        Merged::Gap
    );
    assert_eq!(held(&desired), [("a".to_owned(), 7)]);
    let waiting = |desired: &DesiredState| {
        desired
            .apps()
            .next()
            .map(|(_, _, state)| state.waiting.len())
    };
    assert_eq!(waiting(&desired), Some(1));
    // The snapshot closes the gap, and later changes apply to it.
    desired.snapshot(snapshot(9, vec![entry("a", 9, true)]), Timestamp(1));
    assert_eq!(waiting(&desired), Some(0));
    assert_eq!(
        desired.changed(changed("b", 1, 2, "10.0.0.0/8")),
        Merged::Stale
    );
    assert_eq!(
        desired.changed(changed("a", 9, 10, "10.0.0.0/8")),
        Merged::Taken
    );
    // Changes that could not be applied are requested again.
    desired.forget_revision(&"a".parse().expect("app"));
    desired.snapshot(snapshot(10, vec![entry("a", 10, true)]), Timestamp(1));
    assert_eq!(
        (held(&desired), waiting(&desired)),
        (vec![("a".to_owned(), 10)], Some(0))
    );
}

#[test]
fn older_and_doubled_messages_change_nothing() {
    let mut desired = DesiredState::default();
    assert!(!desired.bindings(entry("a", 5, true)).is_empty());
    assert!(desired.bindings(entry("a", 5, true)).is_empty());
    assert!(desired.bindings(entry("a", 4, false)).is_empty());
    assert!(desired.network(network(3)).network);
    assert!(desired.network(network(3)).is_empty() && desired.network(network(2)).is_empty());
    assert_eq!(held(&desired), [("a".to_owned(), 5)]);
    assert_eq!(desired.revision(), Revision(5));
}

#[test]
fn a_removal_is_not_undone_by_an_older_message() {
    let mut desired = DesiredState::default();
    desired.bindings(entry("a", 5, true));
    desired.bindings(entry("a", 7, false));
    assert!(desired.bindings(entry("a", 6, true)).is_empty());
    assert!(held(&desired).is_empty());
    // After the snapshot, the removal need not be remembered.
    desired.snapshot(snapshot(8, vec![]), Timestamp(1));
    assert!(desired.apps.is_empty());
    assert!(desired.bindings(entry("a", 6, true)).is_empty());
    assert!(!desired.bindings(entry("a", 9, true)).is_empty());
}

#[test]
fn a_snapshot_removes_what_it_lacks_but_not_what_is_newer() {
    let mut desired = DesiredState::default();
    for e in [
        entry("gone", 3, true),
        entry("same", 4, true),
        entry("newer", 9, true),
    ] {
        desired.bindings(e);
    }
    let changes = desired.snapshot(
        snapshot(6, vec![entry("same", 4, true), entry("fresh", 5, true)]),
        Timestamp(1),
    );
    assert_eq!(
        changes
            .apps
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        ["fresh", "gone"]
    );
    let expected = [
        ("fresh".to_owned(), 5),
        ("newer".to_owned(), 9),
        ("same".to_owned(), 4),
    ];
    assert_eq!(held(&desired), expected);
    assert!(desired.is_behind(Revision(5)) && !desired.is_behind(Revision(6)));
}

fn text(name: &str, revision: u64, exists: bool) -> TxtDesired {
    let state = exists.then(|| TxtRecords {
        ttl_s: 60,
        values: vec![format!("value of {revision}")],
        expires_at: None,
    });
    TxtDesired {
        name: format!("{name}.fn.test").parse().expect("a name"),
        revision: Revision(revision),
        state,
    }
}

/// The names with text records at a time, and the number of values of each.
fn texts(desired: &DesiredState, now: u64) -> Vec<(String, usize)> {
    let texts = desired.texts(Timestamp(now)).into_iter();
    texts
        .map(|named| (named.name.to_string(), named.data.len()))
        .collect()
}

#[test]
fn text_records_are_merged_by_their_revisions() {
    let mut desired = DesiredState::default();
    assert!(desired.text(text("a", 5, true)).texts);
    assert!(desired.text(text("a", 5, true)).is_empty());
    assert!(desired.text(text("a", 4, false)).is_empty());
    assert!(desired.text(text("b", 6, true)).texts);
    assert!(desired.text(text("b", 8, false)).texts);
    assert!(desired.text(text("b", 7, true)).is_empty());
    assert_eq!(desired.revision(), Revision(8));
    assert_eq!(texts(&desired, 0), [("a.fn.test.".to_owned(), 1)]);
    // A snapshot adds what was missed, and deletes what it does not contain, except for newer records.
    desired.text(text("newer", 20, true));
    let told = vec![text("c", 7, true)];
    let changes = desired.snapshot(telling(10, vec![], told.clone()), Timestamp(1));
    assert!(changes.texts);
    let expected = ["c.fn.test.", "newer.fn.test."].map(|name| (name.to_owned(), 1));
    assert_eq!(texts(&desired, 0), expected);
    assert_eq!(desired.texts.len(), 2, "no removal is remembered");
    let again = desired.snapshot(telling(11, vec![], told), Timestamp(1));
    assert!(!again.texts);
}

#[test]
fn text_records_end_by_themselves() {
    let mut desired = DesiredState::default();
    for (name, revision, end) in [("a", 1, Some(10)), ("b", 2, None), ("c", 3, Some(30))] {
        let mut told = text(name, revision, true);
        if let Some(state) = &mut told.state {
            state.expires_at = end.map(Timestamp);
        }
        desired.text(told);
    }
    let at = |now: u64| {
        (
            texts(&desired, now).len(),
            desired.next_text_expiry(Timestamp(now)),
        )
    };
    assert_eq!(at(9), (3, Some(Timestamp(10))));
    assert_eq!(at(10), (2, Some(Timestamp(30))));
    assert_eq!(at(30), (1, None));
}

proptest! {
    /// However the messages of a history are reordered, duplicated and mixed with its snapshots, the final state is the same.
    #[test]
    fn the_end_does_not_depend_on_the_order(
        history in proptest::collection::vec((0usize..4, any::<bool>()), 1..20),
        order in proptest::collection::vec((0usize..40, any::<bool>()), 0..60),
    ) {
        let names = ["a", "b", "c", "d"];
        let messages: Vec<_> = history.iter().zip(1u64..).map(|((app, exists), r)| entry(names[*app], r, *exists)).collect();
        let at = |upto: usize| {
            let mut apps = BTreeMap::new();
            for message in &messages[..upto] {
                apps.insert(message.app.clone(), message.clone());
            }
            let apps = apps.into_values().filter(|e| e.state.is_some()).collect();
            (upto as u64, apps)
        };
        let pulled = |upto: usize| {
            let (revision, apps) = at(upto);
            snapshot(revision, apps)
        };
        let mut desired = DesiredState::default();
        for (pick, is_snapshot) in order {
            let index = pick % messages.len();
            if is_snapshot {
                desired.snapshot(pulled(index + 1), Timestamp(1));
            } else {
                desired.bindings(messages[index].clone());
            }
        }
        for message in &messages {
            desired.bindings(message.clone());
        }
        let (_, last) = at(messages.len());
        let truth: Vec<_> = last.iter().map(|e| (e.app.to_string(), e.revision.get())).collect();
        prop_assert_eq!(held(&desired), truth);
    }
}
