//! Tests the table of transitions, the rules about revisions, and properties over random histories.

use fdn_core::message::{AppSpec, FunctionSpec};
use fdn_core::workflow::Workflow;
use fdn_core::{FunctionName, VersionNumber};
use proptest::prelude::*;

use super::*;

fn name(n: u8) -> AppName {
    format!("app-{n}").parse().expect("app")
}

fn spec(n: u8, content: u8) -> AppSpec {
    let function: FunctionName = name(n).into();
    AppSpec {
        holders: fdn_core::message::Holders::EVERYWHERE,
        host: format!("app-{n}.fn.test").parse().expect("host"),
        workflow: Workflow::single(function.clone(), VersionNumber::FIRST),
        functions: vec![FunctionSpec {
            function,
            version: VersionNumber::FIRST,
            digest: Digest::of(&[content]),
            size: 1,
            manifest: fdn_core::manifest::Manifest::default(),
            secrets: BTreeMap::new(),
            forms: Vec::new(),
        }],
        primary: BTreeSet::new(),
        leaving: BTreeSet::new(),
        run: None,
        gateway: Box::default(),
        forms: Default::default(),
        tenant: None,
    }
}

fn desired(n: u8, revision: u64) -> AppDesired {
    AppDesired {
        app: name(n),
        revision: Revision(revision),
        spec: Some(spec(n, u8::try_from(revision % 251).expect("small"))),
    }
}

fn gone(n: u8, revision: u64) -> AppDesired {
    AppDesired {
        app: name(n),
        revision: Revision(revision),
        spec: None,
    }
}

fn state() -> State {
    State::restore(Saved::default(), 100).0
}

#[test]
fn a_node_that_was_removed_knows_nothing_and_learns_all_when_it_is_let_in_again() {
    let mut state = state();
    let snapshot = || AppsSnapshot {
        revision: Revision(9),
        apps: vec![desired(1, 5), desired(2, 6)],
        fleet: None,
        used: Vec::new(),
    };
    drop(state.apply(Event::Snapshot(snapshot())));
    drop(state.apply(Event::Prepared(name(1), Revision(5))));
    drop(state.apply(Event::Desired(gone(3, 10))));
    let actions = state.apply(Event::Removed);
    let forget = |n| Action::Forget(name(n));
    assert_eq!(actions, [forget(1), forget(2), Action::Save]);
    assert_eq!(state.save(), Saved::default(), "no secret is kept");
    assert!(
        state
            .apply(Event::Prepared(name(2), Revision(6)))
            .is_empty(),
        "what was begun ends nowhere"
    );
    let actions = state.apply(Event::Snapshot(snapshot()));
    let prepared = actions
        .iter()
        .filter(|action| matches!(action, Action::Prepare(..)));
    assert_eq!(prepared.count(), 2);
}

fn phase(state: &State, n: u8) -> Option<AppPhase> {
    let views = state.views();
    views
        .into_iter()
        .find(|v| v.app == name(n))
        .map(|v| v.phase)
}

fn failed(n: u8, revision: u64, retry_at: u64) -> Event {
    Event::Failed {
        app: name(n),
        revision: Revision(revision),
        reason: "because".into(),
        retry_at: Timestamp(retry_at),
    }
}

fn prepares(actions: &[Action]) -> Vec<(AppName, Revision)> {
    let prepare = |action: &Action| match action {
        Action::Prepare(app, version) => Some((app.clone(), version.revision)),
        _ => None,
    };
    actions.iter().filter_map(prepare).collect()
}

#[test]
fn the_way_of_a_deployment() {
    let mut state = state();
    let actions = state.apply(Event::Desired(desired(1, 5)));
    assert_eq!(prepares(&actions), [(name(1), Revision(5))]);
    assert!(actions.contains(&Action::Save));
    assert_eq!(phase(&state, 1), Some(AppPhase::Fetching));
    assert!(state.apply(Event::Begun(name(1), Revision(5))).is_empty());
    assert_eq!(phase(&state, 1), Some(AppPhase::Compiling));
    let actions = state.apply(Event::Prepared(name(1), Revision(5)));
    assert_eq!(actions, [Action::Serve(name(1), Revision(5)), Action::Save]);
    assert_eq!(phase(&state, 1), Some(AppPhase::Ready));
}

#[test]
fn the_old_version_is_served_until_the_new_one_is_ready() {
    let mut state = state();
    drop(state.apply(Event::Desired(desired(1, 5))));
    drop(state.apply(Event::Prepared(name(1), Revision(5))));
    let actions = state.apply(Event::Desired(desired(1, 6)));
    assert!(
        actions
            .iter()
            .all(|a| !matches!(a, Action::Withdraw(_) | Action::Forget(_)))
    );
    assert_eq!(state.needed().len(), 2, "both versions stay on disk");
    assert!(
        state.apply(failed(1, 6, 10)).is_empty(),
        "a failure takes nothing away"
    );
    assert_eq!(
        state.save().apps[&name(1)]
            .served
            .as_ref()
            .map(|v| v.revision),
        Some(Revision(5))
    );
    let due = state.apply(Event::Due(Timestamp(10)));
    assert_eq!(prepares(&due), [(name(1), Revision(6))]);
    let actions = state.apply(Event::Prepared(name(1), Revision(6)));
    assert!(actions.contains(&Action::Serve(name(1), Revision(6))));
    assert_eq!(state.needed().len(), 1);
}

#[test]
fn results_of_an_older_preparation_are_ignored() {
    let mut state = state();
    drop(state.apply(Event::Desired(desired(1, 5))));
    drop(state.apply(Event::Desired(desired(1, 6))));
    assert!(
        state
            .apply(Event::Prepared(name(1), Revision(5)))
            .is_empty()
    );
    assert!(state.apply(failed(1, 5, 1)).is_empty());
    assert!(state.apply(Event::Begun(name(1), Revision(5))).is_empty());
    assert_eq!(phase(&state, 1), Some(AppPhase::Fetching));
    assert!(
        state
            .apply(Event::Prepared(name(2), Revision(1)))
            .is_empty()
    );
}

#[test]
fn failures_are_counted_and_retried_when_due() {
    let mut state = state();
    drop(state.apply(Event::Desired(desired(1, 5))));
    drop(state.apply(failed(1, 5, 100)));
    assert_eq!(state.failures(&name(1)), 1);
    assert_eq!(state.next_due(), Some(Timestamp(100)));
    assert!(state.apply(Event::Due(Timestamp(99))).is_empty());
    assert_eq!(
        prepares(&state.apply(Event::Due(Timestamp(100)))),
        [(name(1), Revision(5))]
    );
    assert_eq!(state.next_due(), None);
    drop(state.apply(failed(1, 5, 200)));
    assert_eq!(state.failures(&name(1)), 2);
    drop(state.apply(Event::Desired(desired(1, 6))));
    assert_eq!(state.failures(&name(1)), 0, "a new version starts afresh");
}

#[test]
fn what_stands_in_is_served_and_prepared_again_when_due() {
    let mut state = state();
    let due = |state: &mut State, at: u64| prepares(&state.apply(Event::Due(Timestamp(at))));
    let prepared = || Event::Prepared(name(1), Revision(5));
    let stands_in =
        |revision: u64, at: u64| Event::StandsIn(name(1), Revision(revision), Timestamp(at));
    drop(state.apply(Event::Desired(desired(1, 5))));
    assert!(state.apply(stands_in(5, 100)).is_empty());
    assert_eq!(state.next_due(), None, "nothing is ready yet");
    drop(state.apply(prepared()));
    assert!(state.apply(stands_in(4, 100)).is_empty());
    assert_eq!(state.next_due(), None, "of an older revision");
    assert!(state.apply(stands_in(5, 100)).is_empty());
    assert_eq!(state.next_due(), Some(Timestamp(100)));
    assert!(due(&mut state, 99).is_empty());
    assert_eq!(due(&mut state, 100), [(name(1), Revision(5))]);
    assert_eq!(phase(&state, 1), Some(AppPhase::Ready), "it answers");
    assert!(due(&mut state, 200).is_empty(), "once");
    // This time it is the chosen form.
    let actions = state.apply(prepared());
    assert_eq!(actions, [Action::Serve(name(1), Revision(5)), Action::Save]);
    assert_eq!(state.next_due(), None);
    // Only the newest schedule counts.
    drop(state.apply(stands_in(5, 300)));
    drop(state.apply(Event::Desired(desired(1, 6))));
    assert_eq!(state.next_due(), None);
}

#[test]
fn older_and_equal_revisions_change_nothing() {
    let mut state = state();
    drop(state.apply(Event::Desired(desired(1, 5))));
    for old in [desired(1, 5), desired(1, 4), gone(1, 5)] {
        assert!(state.apply(Event::Desired(old)).is_empty());
    }
    assert!(
        state
            .apply(Event::Desired(gone(1, 6)))
            .contains(&Action::Forget(name(1)))
    );
    assert!(
        state.apply(Event::Desired(desired(1, 5))).is_empty(),
        "gone stays gone"
    );
    assert!(!state.apply(Event::Desired(desired(1, 7))).is_empty());
}

#[test]
fn whose_an_app_is_that_an_older_controller_told_is_learnt_from_a_newer_one() {
    let mut state = state();
    drop(state.apply(Event::Desired(desired(1, 5))));
    drop(state.apply(Event::Prepared(name(1), Revision(5))));
    let told = |revision: u64, tenant: u128| {
        let tenant = fdn_core::TenantId::from_uuid(uuid::Uuid::from_u128(tenant)).tag();
        let mut desired = desired(1, revision);
        let spec = desired.spec.as_mut().expect("an app");
        spec.tenant = Some(tenant);
        (Event::Desired(desired), Some(tenant))
    };
    assert!(state.apply(told(4, 1).0).is_empty(), "of another revision");
    let (event, tenant) = told(5, 1);
    // The tenant is saved, and the app is served as before.
    assert_eq!(state.apply(event), [Action::Save]);
    assert_eq!(phase(&state, 1), Some(AppPhase::Ready));
    let saved = state.save().apps[&name(1)].wanted.spec.tenant;
    assert_eq!((saved, saved.is_some()), (tenant, true));
    assert!(state.apply(told(5, 1).0).is_empty(), "it is known");
    assert!(state.apply(told(5, 2).0).is_empty(), "and does not change");
    assert!(state.apply(Event::Desired(desired(1, 5))).is_empty());
    let kept = state.wanted(&name(1)).and_then(|spec| spec.tenant);
    assert_eq!(kept, tenant, "an older controller takes nothing away");
}

#[test]
fn a_snapshot_repairs_what_was_missed_and_takes_away_what_is_gone() {
    let mut state = state();
    drop(state.apply(Event::Desired(desired(1, 5))));
    drop(state.apply(Event::Desired(desired(2, 6))));
    drop(state.apply(Event::Desired(desired(3, 9))));
    let actions = state.apply(Event::Snapshot(AppsSnapshot {
        revision: Revision(8),
        apps: vec![desired(2, 7), desired(4, 4)],
        fleet: None,
        used: Vec::new(),
    }));
    assert_eq!(
        prepares(&actions),
        [(name(2), Revision(7)), (name(4), Revision(4))]
    );
    assert!(actions.contains(&Action::Forget(name(1))));
    assert!(
        !actions.contains(&Action::Forget(name(3))),
        "newer than the snapshot"
    );
    assert_eq!(actions.iter().filter(|a| **a == Action::Save).count(), 1);
    assert!(
        state.apply(Event::Desired(desired(1, 5))).is_empty(),
        "the snapshot knows better"
    );
}

#[test]
fn an_old_snapshot_brings_nothing_back() {
    let mut state = state();
    drop(state.apply(Event::Snapshot(AppsSnapshot {
        revision: Revision(10),
        apps: vec![desired(1, 9)],
        fleet: None,
        used: Vec::new(),
    })));
    let actions = state.apply(Event::Snapshot(AppsSnapshot {
        revision: Revision(5),
        apps: vec![desired(2, 4)],
        fleet: None,
        used: Vec::new(),
    }));
    assert!(actions.is_empty(), "{actions:?}");
    assert_eq!(state.views().len(), 1);
}

#[test]
fn after_a_restart_the_served_version_comes_first() {
    let mut state = state();
    drop(state.apply(Event::Desired(desired(1, 5))));
    drop(state.apply(Event::Prepared(name(1), Revision(5))));
    drop(state.apply(Event::Desired(desired(1, 6))));
    let json = serde_json::to_string(&state.save()).expect("json");
    let (mut state, actions) = State::restore(serde_json::from_str(&json).expect("own json"), 100);
    assert_eq!(
        prepares(&actions),
        [(name(1), Revision(5)), (name(1), Revision(6))]
    );
    assert_eq!(
        state.apply(Event::Prepared(name(1), Revision(5))),
        [Action::Serve(name(1), Revision(5))]
    );
    assert!(
        state
            .apply(Event::Prepared(name(1), Revision(6)))
            .contains(&Action::Serve(name(1), Revision(6)))
    );
    assert!(
        state
            .apply(Event::Prepared(name(1), Revision(5)))
            .is_empty()
    );
}

#[test]
fn a_served_version_that_cannot_be_had_after_a_restart_is_given_up() {
    let saved = Saved {
        apps: [(
            name(1),
            SavedApp {
                wanted: Version {
                    revision: Revision(6),
                    spec: spec(1, 6),
                },
                served: Some(Version {
                    revision: Revision(5),
                    spec: spec(1, 5),
                }),
            },
        )]
        .into(),
        ..Saved::default()
    };
    let (mut state, _) = State::restore(saved, 100);
    assert_eq!(state.apply(failed(1, 5, 1)), [Action::Save]);
    assert_eq!(state.needed(), [Digest::of(&[6])].into());
}

#[test]
fn what_is_broken_is_made_anew() {
    let mut state = state();
    drop(state.apply(Event::Desired(desired(1, 5))));
    assert!(
        state.apply(Event::Broken(name(1), Revision(5))).is_empty(),
        "not served yet"
    );
    drop(state.apply(Event::Prepared(name(1), Revision(5))));
    let actions = state.apply(Event::Broken(name(1), Revision(5)));
    assert_eq!(actions[0], Action::Withdraw(name(1)));
    assert_eq!(prepares(&actions), [(name(1), Revision(5))]);
    assert!(
        state.apply(Event::Broken(name(1), Revision(5))).is_empty(),
        "said twice"
    );
    assert!(
        state
            .apply(Event::Prepared(name(1), Revision(5)))
            .contains(&Action::Serve(name(1), Revision(5)))
    );
}

#[test]
fn the_memory_of_deleted_apps_is_bounded() {
    let (mut state, _) = State::restore(Saved::default(), 2);
    for n in 1..=3 {
        drop(state.apply(Event::Desired(gone(n, u64::from(n)))));
    }
    assert_eq!(
        state.save().gone.keys().cloned().collect::<Vec<_>>(),
        [name(2), name(3)]
    );
}

/// The controller's state after the first `upto` of its writes; each write has its index + 1 as revision.
fn truth(writes: &[(u8, bool)], upto: usize) -> BTreeMap<AppName, AppDesired> {
    let mut apps = BTreeMap::new();
    for (i, (n, exists)) in writes.iter().enumerate().take(upto) {
        let revision = i as u64 + 1;
        if *exists {
            apps.insert(name(*n), desired(*n, revision));
        } else {
            apps.remove(&name(*n));
        }
    }
    apps
}

proptest! {
    /// Messages are lost, duplicated and reordered, with snapshots of any age in between: after the newest snapshot the state equals the truth.
    #[test]
    fn any_history_converges(
        writes in prop::collection::vec((0_u8..4, prop::bool::weighted(0.7)), 1..20),
        steps in prop::collection::vec((any::<prop::sample::Index>(), prop::bool::weighted(0.2)), 0..40),
    ) {
        let mut state = state();
        let mut newest = BTreeMap::new();
        for (index, is_snapshot) in steps {
            let i = index.index(writes.len());
            if is_snapshot {
                let apps = truth(&writes, i + 1).into_values().collect();
                drop(state.apply(Event::Snapshot(AppsSnapshot { revision: Revision(i as u64 + 1), apps, fleet: None, used: Vec::new() })));
            } else {
                let (n, exists) = writes[i];
                let message = if exists { desired(n, i as u64 + 1) } else { gone(n, i as u64 + 1) };
                drop(state.apply(Event::Desired(message)));
            }
            for view in state.views() {
                let before = newest.insert(view.app, view.revision);
                prop_assert!(before.is_none_or(|b| b <= view.revision), "a revision went back");
            }
        }
        let apps = truth(&writes, writes.len());
        drop(state.apply(Event::Snapshot(AppsSnapshot {
            revision: Revision(writes.len() as u64),
            apps: apps.values().cloned().collect(),
            fleet: None,
            used: Vec::new(),
        })));
        let held: BTreeMap<_, _> = state.views().into_iter().map(|v| (v.app, v.revision)).collect();
        let expected: BTreeMap<_, _> = apps.into_iter().map(|(n, d)| (n, d.revision)).collect();
        prop_assert_eq!(held, expected);
    }
}
