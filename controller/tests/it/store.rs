//! Tests of the metadata store, the same on both databases.

use std::collections::{BTreeMap, BTreeSet};

use fdn_controller::store::app::{AppRow, app_delete, app_get, app_list, app_upsert};
use fdn_controller::store::binding::{
    BindingRow, binding_delete, binding_list, binding_list_all, binding_upsert,
};
use fdn_controller::store::demand::{DemandRow, demand_add, demand_list};
use fdn_controller::store::outbox::{outbox_list, outbox_push};
use fdn_controller::store::plan::{
    PlanRow, plan_delete, plan_explanation, plan_list, plan_list_failover, plan_renew, plan_upsert,
};
use fdn_controller::store::revision::{revision_current, revision_next};
use fdn_controller::store::version::{
    VersionRow, digest_in_use, function_delete, function_version_next, version_get, version_insert,
    version_list, version_list_current,
};
use fdn_controller::store::{Constraint, DEFAULT_TENANT, Store, StoreError};
use fdn_core::api::ValidationStep;
use fdn_core::manifest::Manifest;
use fdn_core::message::{AppDesired, Message, Sealed};
use fdn_core::workflow::Workflow;
use fdn_core::{AppName, Digest, DurationMs, Revision, Timestamp, VersionNumber};
use sqlx::AnyConnection;

use crate::rig::{Backend, on_both};

on_both!(
    versions_are_numbered_and_never_again,
    apps_take_everything_of_theirs_along,
    plans_and_bindings,
    rules_of_the_schema_hold,
    revisions_are_committed_in_their_order,
    a_failed_transaction_leaves_nothing,
    a_snapshot_sees_one_moment,
);

pub(crate) async fn store(backend: Backend) -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().expect("folder");
    let store = backend.store(folder.path()).await;
    (folder, store)
}

pub(crate) fn name(text: &str) -> AppName {
    text.parse().expect("name")
}

pub(crate) fn version_row(function: &str, number: VersionNumber) -> VersionRow {
    VersionRow {
        tenant: DEFAULT_TENANT,
        function: function.parse().expect("function"),
        number,
        digest: Digest::of(function.as_bytes()),
        size: 1 << 40,
        manifest: Manifest {
            reuse: 7,
            ..Manifest::default()
        },
        secrets: BTreeMap::from([("KEY".parse().expect("name"), Sealed("c2VhbGVk".to_owned()))]),
        created_at: Timestamp(1_700_000_000_123),
        created_by: "ädmin'; DROP TABLE users; --".to_owned(),
        validation: vec![ValidationStep {
            step: "size".to_owned(),
            result: "1 B".to_owned(),
            took: fdn_core::Millis::new(0.5),
        }],
        forms: Vec::new(),
    }
}

pub(crate) fn app_row(app: &str, version: VersionNumber) -> AppRow {
    AppRow {
        name: name(app),
        tenant: DEFAULT_TENANT,
        host: format!("{app}.fn.test").parse().expect("host"),
        workflow: Workflow::single(app.parse().expect("function"), version),
        definition: None,
        version,
        previous: None,
        primaries: BTreeSet::from(["eu-west".parse().expect("cluster")]),
        revision: Revision(1),
        bindings_revision: Revision(2),
        deployed_at: Timestamp(3),
        ttl: None,
        holders: fdn_core::message::Holders::EVERYWHERE,
        answering: fdn_core::message::Holders::EVERYWHERE,
        forms: Default::default(),
    }
}

/// An app with its first version.
pub(crate) async fn app(connection: &mut AnyConnection, app: &str) -> AppRow {
    let function = app.parse().expect("function");
    let number = function_version_next(connection, DEFAULT_TENANT, &function, Timestamp(1))
        .await
        .expect("a number");
    version_insert(connection, &version_row(app, number))
        .await
        .expect("inserted");
    let row = app_row(app, number);
    app_upsert(connection, &row).await.expect("inserted");
    row
}

async fn versions_are_numbered_and_never_again(backend: Backend) {
    let (_folder, store) = store(backend).await;
    let c = &mut *store.read().await.expect("connected");
    let function = "hello".parse().expect("function");
    for expected in 1..=3u32 {
        let number = function_version_next(c, DEFAULT_TENANT, &function, Timestamp(1))
            .await
            .expect("a number");
        assert_eq!(number.get(), expected);
        version_insert(c, &version_row("hello", number))
            .await
            .expect("inserted");
    }
    let two: VersionNumber = 2.try_into().expect("number");
    assert_eq!(
        version_get(c, DEFAULT_TENANT, &function, two)
            .await
            .expect("read"),
        Some(version_row("hello", two))
    );
    let all = version_list(c, DEFAULT_TENANT, &function)
        .await
        .expect("read");
    assert_eq!(
        all.iter().map(|v| v.number.get()).collect::<Vec<_>>(),
        [3, 2, 1]
    );
    let digest = Digest::of(b"hello");
    assert!(digest_in_use(c, &digest).await.expect("read"));
    function_delete(c, DEFAULT_TENANT, &function, Timestamp(2))
        .await
        .expect("deleted");
    assert!(!digest_in_use(c, &digest).await.expect("read"));
    assert_eq!(
        version_list(c, DEFAULT_TENANT, &function)
            .await
            .expect("read"),
        []
    );
    assert_eq!(
        function_version_next(c, DEFAULT_TENANT, &function, Timestamp(3))
            .await
            .expect("a number")
            .get(),
        4
    );
}

async fn apps_take_everything_of_theirs_along(backend: Backend) {
    let (_folder, store) = store(backend).await;
    let c = &mut *store.read().await.expect("connected");
    let mut row = app(c, "hello").await;
    app(c, "other").await;
    assert_eq!(
        app_get(c, &name("hello")).await.expect("read"),
        Some(row.clone())
    );
    row.previous = Some(row.version);
    row.revision = Revision(9);
    app_upsert(c, &row).await.expect("updated");
    assert_eq!(
        app_get(c, &name("hello")).await.expect("read"),
        Some(row.clone())
    );
    let current = version_list_current(c).await.expect("read");
    assert_eq!(
        current
            .iter()
            .map(|v| v.function.as_str())
            .collect::<Vec<_>>(),
        ["hello", "other"]
    );
    let prefix = "192.0.2.0/24".parse().expect("prefix");
    demand_add(
        c,
        &DemandRow {
            app: name("hello"),
            prefix,
            queries: 1,
            recent: 1.0,
            last_seen: Timestamp(1),
        },
        DurationMs::from_secs(600),
    )
    .await
    .expect("added");
    app_delete(c, &name("hello")).await.expect("deleted");
    assert_eq!(demand_list(c).await.expect("read"), []);
    assert_eq!(app_list(c).await.expect("read").len(), 1);
}

async fn plans_and_bindings(backend: Backend) {
    let (_folder, store) = store(backend).await;
    let c = &mut *store.read().await.expect("connected");
    app(c, "hello").await;
    let plan = |group: &str| PlanRow {
        app: name("hello"),
        group: group.to_owned(),
        stages: BTreeMap::from([(
            "hello".parse().expect("stage"),
            "eu-west".parse().expect("cluster"),
        )]),
        explanation: None,
        revision: Revision(4),
        planned_at: Timestamp(5),
    };
    let explained = PlanRow {
        explanation: Some("{\"why\":1}".to_owned()),
        ..plan("b")
    };
    plan_upsert(c, &plan("a")).await.expect("written");
    plan_upsert(c, &explained).await.expect("written");
    plan_upsert(c, &plan("c")).await.expect("written");
    // Without a new explanation the stored one stays.
    let moved = PlanRow {
        revision: Revision(9),
        planned_at: Timestamp(10),
        ..plan("b")
    };
    plan_upsert(c, &moved).await.expect("written");
    plan_delete(c, &name("hello"), "a").await.expect("removed");
    assert_eq!(plan_list(c).await.expect("read"), [moved, plan("c")]);
    let why = async |c: &mut _, group: &str| {
        let found = plan_explanation(c, &name("hello"), group).await;
        found.expect("read")
    };
    let kept = ("{\"why\":1}".to_owned(), Timestamp(10));
    assert_eq!(why(c, "b").await, Some(kept));
    assert_eq!(why(c, "a").await, None);
    // A new explanation is written for an unchanged plan, and for no other.
    let failover =
        r#"{"reason":"a \"failover\":{","candidates":[],"failover":{"from":"a","why":"b"}}"#;
    for (text, stages, is_written) in [
        (failover, plan("c").stages, true),
        ("{}", BTreeMap::new(), false),
    ] {
        let renewed = PlanRow {
            explanation: Some(text.to_owned()),
            stages,
            revision: Revision(99),
            planned_at: Timestamp(12),
            ..plan("c")
        };
        plan_renew(c, &renewed).await.expect("written");
        let said = why(c, "c").await.expect("a plan");
        assert_eq!((said.0 == text, said.1), (is_written, Timestamp(12)));
    }
    let all = plan_list(c).await.expect("read");
    assert_eq!(all[1].revision, Revision(4), "it is the same plan");
    let told = r#"{"reason":"\"failover\":{","candidates":[]}"#;
    let other = PlanRow {
        explanation: Some(told.to_owned()),
        ..plan("d")
    };
    plan_upsert(c, &other).await.expect("written");
    let found = plan_list_failover(c).await.expect("read");
    assert_eq!(
        found,
        [(name("hello"), "c".to_owned(), failover.to_owned())]
    );
    plan_delete(c, &name("hello"), "d").await.expect("removed");
    let binding = |prefix: &str, cluster: &str| BindingRow {
        app: name("hello"),
        prefix: prefix.parse().expect("prefix"),
        cluster: cluster.parse().expect("cluster"),
        group: "b".to_owned(),
        revision: Revision(4),
    };
    binding_upsert(c, &binding("192.0.2.0/24", "eu-west"))
        .await
        .expect("written");
    binding_upsert(c, &binding("2001:db8::/56", "eu-west"))
        .await
        .expect("written");
    binding_upsert(c, &binding("192.0.2.0/24", "us-east"))
        .await
        .expect("written");
    assert_eq!(
        binding_list(c, &name("hello")).await.expect("read"),
        [
            binding("192.0.2.0/24", "us-east"),
            binding("2001:db8::/56", "eu-west")
        ]
    );
    binding_delete(c, &name("hello"), "192.0.2.0/24".parse().expect("prefix"))
        .await
        .expect("deleted");
    assert_eq!(binding_list_all(c).await.expect("read").len(), 1);
}

pub(crate) fn desired(app: &str, revision: u64) -> Message {
    Message::AppDesired(AppDesired {
        app: name(app),
        revision: Revision(revision),
        spec: None,
    })
}

async fn rules_of_the_schema_hold(backend: Backend) {
    let (_folder, store) = store(backend).await;
    let kind = |result: Result<(), StoreError>| match result {
        Err(StoreError::Refused { constraint, .. }) => Some(constraint),
        other => panic!("not refused: {other:?}"),
    };
    let c = &mut *store.read().await.expect("connected");
    let row = app(c, "hello").await;
    let again = version_row("hello", row.version);
    assert_eq!(
        kind(version_insert(c, &again).await),
        Some(Constraint::Unique)
    );
    let orphan = version_row("nobody", VersionNumber::FIRST);
    assert_eq!(
        kind(version_insert(c, &orphan).await),
        Some(Constraint::Reference)
    );
    let empty = VersionRow {
        size: 0,
        number: 2.try_into().expect("number"),
        ..version_row("hello", row.version)
    };
    assert_eq!(
        kind(version_insert(c, &empty).await),
        Some(Constraint::Check)
    );
    let used = function_delete(
        c,
        DEFAULT_TENANT,
        &"hello".parse().expect("function"),
        Timestamp(1),
    )
    .await;
    assert_eq!(kind(used), Some(Constraint::Reference), "an app runs it");
    let missing = AppRow {
        version: 9.try_into().expect("number"),
        ..row
    };
    assert_eq!(
        kind(app_upsert(c, &missing).await),
        Some(Constraint::Reference)
    );
}

async fn revisions_are_committed_in_their_order(backend: Backend) {
    let (_folder, store) = store(backend).await;
    let mut first = store.begin().await.expect("begun");
    assert_eq!(revision_next(&mut first).await.expect("taken"), Revision(1));
    let second = tokio::spawn({
        let store = store.clone();
        async move {
            let mut tx = store.begin().await.expect("begun");
            let revision = revision_next(&mut tx).await.expect("taken");
            tx.commit().await.expect("committed");
            revision
        }
    });
    // The second waits for the end of the first, however often it is polled.
    for _ in 0..50 {
        tokio::task::yield_now().await;
        assert!(!second.is_finished());
    }
    let mut reader = store.read().await.expect("connected");
    assert_eq!(
        revision_current(&mut reader).await.expect("read"),
        Revision(0)
    );
    first.commit().await.expect("committed");
    assert_eq!(second.await.expect("joined"), Revision(2));
}

async fn a_failed_transaction_leaves_nothing(backend: Backend) {
    let (_folder, store) = store(backend).await;
    let mut tx = store.begin().await.expect("begun");
    revision_next(&mut tx).await.expect("taken");
    outbox_push(&mut tx, Revision(1), desired("a", 1), Timestamp(1))
        .await
        .expect("pushed");
    drop(tx);
    let mut c = store.read().await.expect("connected");
    assert_eq!(revision_current(&mut c).await.expect("read"), Revision(0));
    assert_eq!(outbox_list(&mut c, 10).await.expect("read"), []);
}

async fn a_snapshot_sees_one_moment(backend: Backend) {
    let (_folder, store) = store(backend).await;
    let mut snapshot = store.snapshot().await.expect("begun");
    assert_eq!(
        revision_current(&mut snapshot).await.expect("read"),
        Revision(0)
    );
    let mut tx = store.begin().await.expect("begun");
    revision_next(&mut tx).await.expect("taken");
    app(&mut tx, "late").await;
    tx.commit().await.expect("committed");
    assert_eq!(
        app_list(&mut snapshot).await.expect("read"),
        [],
        "what came later is not in it"
    );
    assert_eq!(
        revision_current(&mut snapshot).await.expect("read"),
        Revision(0)
    );
}
