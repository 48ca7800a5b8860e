use fdn_core::NodeId;

use fdn_core::message::{AppBindings, BindingsChanged, BindingsDesired, Holders};
use fdn_core::policy::quota::QuotaUsage;

use super::*;

const WIDE: Limits = Limits {
    changes: 1000,
    bytes: 1 << 20,
};

fn name<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().expect("a name")
}

fn machine(role: Role, cluster: &str) -> Machine {
    Machine {
        role,
        cluster: name(cluster),
        name: name("a"),
    }
}

fn node(cluster: &str) -> Machine {
    machine(Role::Node, cluster)
}

fn entry(app: &str, revision: u64, holders: &[&str]) -> AppEntry {
    AppEntry {
        app: name(app),
        revision: Revision(revision),
        holders: Holders::only(holders.iter().map(|one| name(one)).collect()),
        digests: vec![Digest::of(app.as_bytes())],
        frame: format!("{app} {revision}").into(),
        gone: format!("no {app} {revision}").into(),
        exists: true,
    }
}

fn app(app: &str, revision: u64, holders: &[&str]) -> Change {
    Change::App(Arc::new(entry(app, revision, holders)))
}

fn no_app(app: &str, revision: u64) -> Change {
    let gone = view::app_gone(&name(app), Revision(revision)).expect("an entry");
    Change::App(Arc::new(AppEntry {
        frame: format!("no {app} {revision}").into(),
        gone: format!("no {app} {revision}").into(),
        ..gone
    }))
}

fn loaded(revision: u64, apps: Vec<AppEntry>) -> StoredState {
    StoredState {
        revision: Revision(revision),
        there: apps.iter().map(|app| app.app.clone()).collect(),
        apps,
        ..StoredState::default()
    }
}

fn bindings(revision: u64, cluster: &str) -> BindingsEntry {
    BindingsEntry::from(BindingsDesired {
        app: name("hello"),
        revision: Revision(revision),
        state: Some(AppBindings {
            host: name("hello.fn.test"),
            ttl_s: 5,
            bindings: vec![(name("192.0.2.0/24"), name(cluster))],
            holders: Holders::EVERYWHERE,
        }),
    })
}

/// A change log that was loaded once, from an empty database.
fn log(limits: Limits) -> ChangeLog {
    let mut log = ChangeLog::new(limits);
    assert!(!log.is_loaded());
    assert!(log.load(loaded(0, vec![]), 0));
    log
}

fn text(change: &Change) -> String {
    match change {
        Change::App(app) => String::from_utf8_lossy(&app.frame).into_owned(),
        Change::Fleet(_) => "fleet".to_owned(),
        Change::Used(part) => format!("used {}", part.used.len()),
        Change::Bindings(one) => format!("bindings {}", one.revision),
        Change::BindingsChanged(one) => format!("changed {}", one.revision),
        Change::Network(_) => "network".to_owned(),
        Change::Txt(one) => format!("txt {}", one.revision),
    }
}

/// What a machine is told after the change number `told`; `None` if changes are gone.
fn told(log: &ChangeLog, machine: &Machine, told: u64) -> Option<Vec<String>> {
    match log.next(machine, told, usize::MAX) {
        NextPieces::Behind => None,
        NextPieces::Pieces(pieces, last) => {
            assert_eq!(last, log.last());
            let texts = pieces.iter().map(|piece| match piece {
                FeedPiece::Frame(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                FeedPiece::Change(change) => text(change),
            });
            Some(texts.collect())
        }
    }
}

/// What a machine is told that resumes after `since`; `None` if it gets a snapshot.
fn resumed(log: &ChangeLog, machine: &Machine, since: u64) -> Option<Vec<String>> {
    match log.start(Revision(since)) {
        FeedStart::Resume(number) => told(log, machine, number),
        FeedStart::Snapshot => None,
    }
}

fn snapshot(log: &ChangeLog, machine: &Machine) -> Vec<String> {
    log.snapshot(machine).iter().map(text).collect()
}

#[test]
fn a_cluster_is_told_of_what_it_begins_to_hold_and_that_what_it_held_is_gone() {
    let mut log = log(WIDE);
    let start = log.last();
    assert!(log.accept(app("hello", 1, &["west"])));
    assert!(log.accept(app("secret", 2, &["east"])));
    assert_eq!(
        told(&log, &node("west"), start).expect("changes"),
        ["hello 1"]
    );
    assert_eq!(
        told(&log, &node("east"), start).expect("changes"),
        ["secret 2"]
    );
    assert_eq!(
        snapshot(&log, &node("west")),
        ["fleet", "hello 1", "used 0"]
    );
    assert_eq!(snapshot(&log, &node("north")), ["fleet", "used 0"]);
    // The app moves to other clusters.
    let before = log.last();
    assert!(log.accept(app("hello", 3, &["east", "north"])));
    assert_eq!(
        told(&log, &node("west"), before).expect("changes"),
        ["no hello 3"]
    );
    assert_eq!(
        told(&log, &node("east"), before).expect("changes"),
        ["hello 3"]
    );
    assert_eq!(snapshot(&log, &node("west")), ["fleet", "used 0"]);
    // Clusters that held it are told that it is gone; others never knew it.
    let before = log.last();
    assert!(log.accept(no_app("hello", 4)));
    assert_eq!(
        told(&log, &node("north"), before).expect("changes"),
        ["no hello 4"]
    );
    assert!(
        told(&log, &node("west"), before)
            .expect("changes")
            .is_empty()
    );
    assert_eq!(snapshot(&log, &node("north")), ["fleet", "used 0"]);
}

#[test]
fn who_was_away_while_a_placement_went_to_and_fro_ends_with_what_holds() {
    let mut log = log(WIDE);
    for change in [
        app("hello", 1, &["west"]),
        app("hello", 2, &["east"]),
        app("hello", 3, &["west"]),
        app("hello", 4, &["east"]),
    ] {
        assert!(log.accept(change));
    }
    let west = resumed(&log, &node("west"), 1).expect("changes");
    assert_eq!(west, ["no hello 2", "hello 3", "no hello 4"]);
    let east = resumed(&log, &node("east"), 1).expect("changes");
    assert_eq!(east, ["hello 2", "no hello 3", "hello 4"]);
}

#[test]
fn artifacts_and_reports_are_for_those_who_hold_or_held_an_app() {
    let mut log = log(WIDE);
    assert!(log.accept(app("hello", 1, &["west"])));
    assert!(log.accept(app("hello", 2, &["east"])));
    let digest = Digest::of(b"hello");
    assert_eq!(log.may_fetch(&digest, &name("east")), FetchPermission::Yes);
    // It may have begun to fetch the artifact while it held the app.
    assert_eq!(log.may_fetch(&digest, &name("west")), FetchPermission::Gone);
    assert_eq!(
        log.may_fetch(&digest, &name("north")),
        FetchPermission::Foreign
    );
    let other = Digest::of(b"other");
    assert_eq!(
        log.may_fetch(&other, &name("east")),
        FetchPermission::Foreign
    );
    let hello: AppName = name("hello");
    // Usage of calls that it served before must still be accepted.
    assert!(log.was_informed(&hello, &name("west")) && log.was_informed(&hello, &name("east")));
    assert!(!log.was_informed(&hello, &name("north")));
    assert!(!log.was_informed(&name("other"), &name("west")));
}

#[test]
fn dns_servers_get_bindings_and_no_app() {
    let mut log = log(WIDE);
    let (dns, west) = (machine(Role::Dns, "west"), node("west"));
    let start = log.last();
    assert!(log.accept(app("hello", 1, &["west"])));
    assert!(log.accept(Change::Bindings(Arc::new(bindings(1, "west")))));
    let used = vec![AppQuotaUsage {
        app: name("hello"),
        used: QuotaUsage::default(),
    }];
    assert!(log.accept_usage(used.clone()));
    assert!(!log.accept_usage(used), "nothing changed");
    assert_eq!(told(&log, &dns, start).expect("changes"), ["bindings 1"]);
    assert_eq!(
        told(&log, &west, start).expect("changes"),
        ["hello 1", "used 1"]
    );
    assert_eq!(snapshot(&log, &dns), ["fleet", "bindings 1"]);
    // A node is not told even the counts of apps that its cluster does not hold.
    assert_eq!(snapshot(&log, &node("east")), ["fleet", "used 0"]);
    assert!(log.unversioned_change(&dns).is_none() && log.unversioned_change(&west).is_some());
}

#[test]
fn changes_of_bindings_are_kept_whole_and_without_what_they_change_the_database_is_asked() {
    let mut log = log(WIDE);
    let changed = |base, revision, cluster: &str| {
        Change::BindingsChanged(Arc::new(BindingsChanged {
            app: name("hello"),
            base: Revision(base),
            revision: Revision(revision),
            changes: vec![(name("198.51.100.0/24"), Some(name(cluster)))],
            holders: None,
        }))
    };
    assert!(log.accept(Change::Bindings(Arc::new(bindings(1, "west")))));
    assert!(log.accept(changed(1, 2, "east")));
    let dns = machine(Role::Dns, "west");
    // Nodes are not woken for it.
    assert_eq!((log.last_for(Role::Dns), log.last_for(Role::Node)), (2, 0));
    assert_eq!(snapshot(&log, &dns), ["fleet", "bindings 2"]);
    assert_eq!(resumed(&log, &dns, 1).expect("changes"), ["changed 2"]);
    // A repeated message is no change; one with another base shows that a message is missing.
    assert!(!log.accept(changed(1, 2, "east")));
    assert!(!log.may_have_gap());
    assert!(!log.accept(changed(5, 6, "east")));
    assert!(log.may_have_gap());
    let suspected_gaps = log.suspected_gaps();
    let found = StoredState {
        there: [name("hello")].into(),
        bindings: vec![bindings(6, "east")],
        ..loaded(6, vec![])
    };
    assert!(log.load(found, suspected_gaps));
    assert!(!log.may_have_gap());
    assert_eq!(snapshot(&log, &dns), ["fleet", "bindings 6"]);
}

#[test]
fn what_is_read_again_is_what_is_newer_and_what_is_gone_is_seen_by_its_name() {
    let mut log = log(WIDE);
    let all = vec![entry("a", 2, &["west"]), entry("b", 3, &["west"])];
    log.load(loaded(3, all), 0);
    let newer = |revision, apps, there: &[&str]| StoredState {
        there: there.iter().map(|one| name(one)).collect(),
        ..loaded(revision, apps)
    };
    log.load(
        newer(5, vec![entry("c", 5, &["west"])], &["a", "b", "c"]),
        0,
    );
    let west = node("west");
    let told = ["fleet", "a 2", "b 3", "c 5", "used 0"];
    assert_eq!(snapshot(&log, &west), told);
    assert!(log.load(newer(6, vec![], &["a", "c"]), 0));
    assert_eq!(snapshot(&log, &west), ["fleet", "a 2", "c 5", "used 0"]);
    assert_eq!(
        (log.revision(), log.complete_revision()),
        (Revision(6), Revision(6))
    );
}

#[test]
fn an_older_change_never_replaces_a_newer_one() {
    let mut log = log(WIDE);
    assert!(log.accept(app("hello", 5, &["west"])));
    for old in [
        app("hello", 5, &["east"]),
        app("hello", 4, &[]),
        no_app("hello", 3),
    ] {
        assert!(!log.accept(old));
    }
    // Nor does an earlier reading of the database.
    log.load(loaded(4, vec![entry("hello", 2, &["east"])]), 0);
    log.load(loaded(4, vec![]), 0);
    assert_eq!(
        snapshot(&log, &node("west")),
        ["fleet", "hello 5", "used 0"]
    );
    assert_eq!(log.revision(), Revision(5));
}

#[test]
fn a_revision_counts_as_complete_only_once_nothing_more_of_it_can_come() {
    let mut log = log(WIDE);
    log.load(loaded(6, vec![]), 0);
    assert!(log.accept(app("one", 7, &["west"])));
    assert_eq!(
        (log.revision(), log.complete_revision()),
        (Revision(7), Revision(6))
    );
    // A machine is told the first half of revision 7, and connects to another controller.
    assert!(log.accept(app("two", 7, &["west"])));
    let again = resumed(&log, &node("west"), log.complete_revision().get()).expect("changes");
    assert_eq!(again, ["one 7", "two 7"]);
    assert!(log.mark_complete());
    assert_eq!(log.complete_revision(), Revision(7));
    assert!(!log.mark_complete());
    assert!(resumed(&log, &node("west"), 7).expect("changes").is_empty());
}

#[test]
fn a_missed_message_is_found_in_the_database_and_told_to_everyone_again() {
    let mut log = log(WIDE);
    assert!(log.accept(app("one", 1, &["west"])));
    assert!(log.accept(app("three", 3, &["west"])));
    assert!(log.may_have_gap(), "there is a second revision");
    assert!(!log.mark_complete());
    assert_eq!(
        log.complete_revision(),
        Revision(0),
        "not while something may be missing"
    );
    let suspected_gaps = log.suspected_gaps();
    let all = vec![
        entry("one", 1, &["west"]),
        entry("two", 2, &["west"]),
        entry("three", 3, &["west"]),
    ];
    let start = log.last();
    assert!(log.load(loaded(3, all), suspected_gaps));
    assert_eq!(log.complete_revision(), Revision(3));
    assert_eq!(
        told(&log, &node("west"), start).expect("changes"),
        ["two 2"]
    );
    // Another controller may have sent `At` 3 to a machine already.
    assert_eq!(resumed(&log, &node("west"), 3).expect("changes"), ["two 2"]);
}

#[test]
fn a_doubt_that_came_while_the_database_was_read_stays() {
    let mut log = log(WIDE);
    log.suspect_gap();
    let suspected_gaps = log.suspected_gaps();
    log.suspect_gap();
    log.load(loaded(9, vec![]), suspected_gaps);
    assert!(log.may_have_gap());
    assert_eq!(log.complete_revision(), Revision(0));
    let suspected_gaps = log.suspected_gaps();
    log.load(loaded(9, vec![]), suspected_gaps);
    assert_eq!(log.complete_revision(), Revision(9));
}

#[test]
fn what_the_database_does_not_know_any_more_is_gone() {
    let mut log = log(WIDE);
    assert!(log.accept(app("hello", 1, &["west"])));
    assert!(log.accept(Change::Bindings(Arc::new(bindings(2, "west")))));
    let start = log.last();
    assert!(log.load(loaded(3, vec![]), 0));
    let west = told(&log, &node("west"), start).expect("changes");
    assert_eq!(west.len(), 1);
    assert!(west[0].contains("\"spec\":null"), "{west:?}");
    let dns = machine(Role::Dns, "west");
    assert_eq!(told(&log, &dns, start).expect("changes"), ["bindings 3"]);
    assert_eq!(snapshot(&log, &dns), ["fleet"]);
    // Reading it again changes nothing.
    assert!(!log.load(loaded(3, vec![]), 0));
}

#[test]
fn who_was_away_for_too_long_gets_a_snapshot_and_so_does_a_slow_reader() {
    let mut log = log(Limits {
        changes: 3,
        bytes: 1 << 20,
    });
    let west = node("west");
    let slow = log.last();
    for revision in 1..=5 {
        assert!(log.accept(app("hello", revision, &["west"])));
    }
    assert!(told(&log, &west, slow).is_none(), "what it missed is gone");
    assert!(resumed(&log, &west, 1).is_none());
    let kept = resumed(&log, &west, 2).expect("changes");
    assert_eq!(kept, ["hello 3", "hello 4", "hello 5"]);
    assert_eq!(log.start(Revision::NONE), FeedStart::Snapshot);
    // The machine comes from another controller that is ahead of this one.
    assert!(resumed(&log, &west, 9).expect("changes").is_empty());
    // After a snapshot, the feed continues from the present.
    assert_eq!(snapshot(&log, &west), ["fleet", "hello 5", "used 0"]);
    let last = log.last();
    assert!(log.accept(app("hello", 6, &["west"])));
    assert_eq!(told(&log, &west, last).expect("changes"), ["hello 6"]);
}

#[test]
fn changes_are_kept_up_to_so_many_bytes_and_what_is_gone_is_forgotten_with_them() {
    let mut log = log(Limits {
        changes: 1000,
        bytes: 100,
    });
    assert!(log.accept(app("hello", 1, &["west"])));
    assert!(log.accept(no_app("hello", 2)));
    for revision in 3..100 {
        assert!(log.accept(app("other", revision, &["west"])));
        assert!(log.bytes() <= 100);
    }
    assert!(!log.present.apps.contains_key(&name::<AppName>("hello")));
    assert_eq!(
        snapshot(&log, &node("west")),
        ["fleet", "other 99", "used 0"]
    );
}

#[test]
fn what_was_known_at_the_start_is_not_told_again_to_those_who_were_told_it() {
    let mut log = ChangeLog::new(WIDE);
    log.load(loaded(8, vec![entry("hello", 3, &["west"])]), 0);
    assert!(resumed(&log, &node("west"), 7).is_none());
    assert!(resumed(&log, &node("west"), 8).expect("changes").is_empty());
    assert_eq!(log.complete_revision(), Revision(8));
}

#[test]
fn changes_are_looked_up_a_few_at_a_time() {
    let mut log = log(WIDE);
    let start = log.last();
    for revision in 1..=5 {
        assert!(log.accept(app("hello", revision, &["west"])));
    }
    let NextPieces::Pieces(pieces, number) = log.next(&node("west"), start, 2) else {
        panic!("nothing is gone");
    };
    assert_eq!((pieces.len(), number), (2, start + 2));
    // Changes for other machines do not count, but are skipped.
    let NextPieces::Pieces(pieces, number) = log.next(&node("east"), start, 2) else {
        panic!("nothing is gone");
    };
    assert_eq!((pieces.len(), number), (0, start + 5));
}

#[test]
fn machines_hear_whom_to_trust_and_nodes_what_was_said_of_their_devices() {
    let one: NodeId = name("a");
    let other: NodeId = name("b");
    let fleet = FleetDesired {
        revision: Revision(4),
        cordoned: BTreeSet::from([other.clone()]),
        authorities: vec!["PEM".to_owned()],
        restored: BTreeMap::from([
            (one.clone(), BTreeMap::new()),
            (other.clone(), BTreeMap::new()),
        ]),
        ..FleetDesired::default()
    };
    let seen = view::fleet_for(&node("west"), &fleet);
    assert_eq!(seen.authorities, fleet.authorities);
    assert_eq!(seen.cordoned, fleet.cordoned);
    assert_eq!(seen.restored.keys().collect::<Vec<_>>(), [&one]);
    let seen = view::fleet_for(&machine(Role::Dns, "west"), &fleet);
    assert_eq!(seen.authorities, fleet.authorities);
    assert!(seen.cordoned.is_empty() && seen.restored.is_empty());
}

#[test]
fn who_was_told_in_between_what_was_read_at_once_gets_a_snapshot() {
    let mut log = log(WIDE);
    log.load(loaded(10, vec![]), 0);
    // Another controller sent an app at revision 12, which was deleted at 14. This one reads the database at 15.
    assert_eq!(log.start(Revision(12)), FeedStart::Resume(log.last()));
    log.load(loaded(15, vec![]), 0);
    assert_eq!(log.floor(), Revision(15));
    assert_eq!(log.start(Revision(12)), FeedStart::Snapshot);
    assert_eq!(log.start(Revision(15)), FeedStart::Resume(log.last()));
    // Nothing can come and go within a single revision.
    log.load(loaded(16, vec![entry("hello", 16, &["west"])]), 0);
    let west = resumed(&log, &node("west"), 15).expect("changes");
    assert_eq!(west, ["hello 16"]);
}

#[test]
fn messages_of_before_the_database_was_read_are_no_news() {
    let mut log = log(WIDE);
    log.load(loaded(9, vec![entry("hello", 5, &["west"])]), 0);
    let last = log.last();
    // The message is of an app deleted before this controller started; its cluster does not count as told of it.
    assert!(!log.accept(app("ghost", 7, &["west"])));
    assert!(!log.accept(no_app("hello", 9)));
    assert_eq!((log.last(), log.may_have_gap()), (last, false));
    assert!(!log.was_informed(&name("ghost"), &name("west")));
    let ghost = Digest::of(b"ghost");
    assert_eq!(
        log.may_fetch(&ghost, &name("west")),
        FetchPermission::Foreign
    );
    assert!(log.accept(no_app("hello", 10)));
}

#[test]
fn artifacts_of_before_are_remembered_up_to_so_many() {
    let mut log = log(Limits {
        changes: 2,
        bytes: 1 << 20,
    });
    for (n, text) in ["one", "two", "three", "four"].iter().enumerate() {
        let entry = AppEntry {
            digests: vec![Digest::of(text.as_bytes())],
            ..entry("hello", n as u64 + 1, &["west"])
        };
        assert!(log.accept(Change::App(Arc::new(entry))));
    }
    let fetch = |text: &str| log.may_fetch(&Digest::of(text.as_bytes()), &name("west"));
    assert_eq!(fetch("four"), FetchPermission::Yes);
    assert_eq!(
        (fetch("three"), fetch("two")),
        (FetchPermission::Gone, FetchPermission::Gone)
    );
    assert_eq!(fetch("one"), FetchPermission::Foreign);
}

#[test]
fn bindings_change_in_place_while_what_was_told_stays_as_it_was() {
    let mut log = log(WIDE);
    assert!(log.accept(Change::Bindings(Arc::new(bindings(1, "west")))));
    let dns = machine(Role::Dns, "west");
    let before = log.snapshot(&dns);
    let change = BindingsChanged {
        app: name("hello"),
        base: Revision(1),
        revision: Revision(2),
        changes: vec![
            (name("192.0.2.0/24"), None),
            (name("198.51.100.0/24"), Some(name("east"))),
        ],
        holders: Some(Holders::only(BTreeSet::from([name("east")]))),
    };
    assert!(log.accept(Change::BindingsChanged(Arc::new(change))));
    let state = |all: &VecDeque<Change>| {
        all.iter().find_map(|change| match change {
            Change::Bindings(one) => one.desired().state,
            _ => None,
        })
    };
    let (before, after) = (state(&before), state(&log.snapshot(&dns)));
    let (before, after) = (before.expect("bindings"), after.expect("bindings"));
    let one = |prefix: &str, cluster: &str| -> Vec<(fdn_core::ClientPrefix, ClusterId)> {
        vec![(name(prefix), name(cluster))]
    };
    assert_eq!(before.bindings, one("192.0.2.0/24", "west"));
    assert_eq!(after.bindings, one("198.51.100.0/24", "east"));
    assert!(after.holders.has(&name("east")) && !after.holders.has(&name("west")));
    assert_eq!((after.host, after.ttl_s), (before.host, before.ttl_s));
}
