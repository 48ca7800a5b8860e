//! What nodes report of calls: stored once, on both databases, and over HTTP.

use fdn_controller::store::usage::{usage_batch_known, usage_list, usage_store, usage_trim};
use fdn_core::usage::{UsageBatch, UsageOutcome, UsageReceipt, UsageRecord};
use fdn_core::{BatchId, InvocationId, MebiBytes, Timestamp, VersionNumber};
use reqwest::Method;
use uuid::Uuid;

use crate::rig::{Backend, Rig, on_both};
use crate::store::{name, store};

on_both!(
    a_batch_is_counted_once,
    what_was_noted_while_a_call_ran_gives_way,
    a_large_batch_is_stored_whole_or_not_at_all,
    what_is_old_is_forgotten,
);

fn record(n: u128, outcome: UsageOutcome) -> UsageRecord {
    UsageRecord {
        invocation: InvocationId::from_uuid(Uuid::from_u128(n)),
        app: name("thumbs"),
        function: "thumbs".parse().expect("function"),
        version: VersionNumber::FIRST,
        started_at: Timestamp(1000 + n as u64),
        duration_us: 5,
        cpu_us: 4,
        memory_mib: MebiBytes(64),
        gpu_memory_mib: MebiBytes(0),
        egress_bytes: 10,
        outcome,
    }
}

fn batch(n: u128, records: Vec<UsageRecord>) -> UsageBatch {
    UsageBatch {
        batch: BatchId::from_uuid(Uuid::from_u128(n)),
        node: "eu-1".parse().expect("node"),
        records,
    }
}

async fn a_batch_is_counted_once(backend: Backend) {
    let (_folder, store) = store(backend).await;
    let c = &mut *store.read().await.expect("connected");
    let ok = |n| record(n, UsageOutcome::Ok);
    let first = batch(1, vec![ok(1), ok(2)]);
    let stored = usage_store(c, &first, Timestamp(5)).await.expect("stored");
    assert_eq!(
        stored,
        UsageReceipt {
            stored: 2,
            duplicate: false
        }
    );
    let again = usage_store(c, &first, Timestamp(6)).await.expect("known");
    assert_eq!(
        again,
        UsageReceipt {
            stored: 0,
            duplicate: true
        }
    );
    // Even under another id: an invocation is billed once.
    let other = batch(2, vec![ok(2), ok(3)]);
    let stored = usage_store(c, &other, Timestamp(7)).await.expect("stored");
    assert_eq!(stored.stored, 1);
    let rows = usage_list(c, &name("thumbs"), Timestamp(0), 10)
        .await
        .expect("read");
    assert_eq!(rows, [ok(1), ok(2), ok(3)]);
}

async fn what_was_noted_while_a_call_ran_gives_way(backend: Backend) {
    let (_folder, store) = store(backend).await;
    let c = &mut *store.read().await.expect("connected");
    let running = record(1, UsageOutcome::Running);
    let ended = UsageRecord {
        duration_us: 900,
        ..record(1, UsageOutcome::FunctionError)
    };
    let list = async |c: &mut sqlx::AnyConnection| {
        usage_list(c, &name("thumbs"), Timestamp(0), 10)
            .await
            .expect("read")
    };
    usage_store(c, &batch(1, vec![running.clone()]), Timestamp(1))
        .await
        .expect("stored");
    assert_eq!(list(c).await, std::slice::from_ref(&running));
    usage_store(c, &batch(2, vec![ended.clone()]), Timestamp(2))
        .await
        .expect("stored");
    assert_eq!(list(c).await, std::slice::from_ref(&ended));
    // Late, or both in one batch: what came of the call stays.
    usage_store(c, &batch(3, vec![running.clone()]), Timestamp(3))
        .await
        .expect("stored");
    assert_eq!(list(c).await, std::slice::from_ref(&ended));
    let both = |n| {
        let of = |r: &UsageRecord| UsageRecord {
            invocation: InvocationId::from_uuid(Uuid::from_u128(n)),
            ..r.clone()
        };
        vec![of(&running), of(&ended)]
    };
    let stored = usage_store(c, &batch(4, both(9)), Timestamp(4))
        .await
        .expect("stored");
    assert_eq!(stored.stored, 1);
    assert!(
        list(c)
            .await
            .iter()
            .all(|r| r.outcome == UsageOutcome::FunctionError)
    );
}

async fn a_large_batch_is_stored_whole_or_not_at_all(backend: Backend) {
    let (_folder, store) = store(backend).await;
    let records: Vec<UsageRecord> = (1..=3000).map(|n| record(n, UsageOutcome::Ok)).collect();
    let mut transaction = store.begin().await.expect("begun");
    let stored = usage_store(&mut transaction, &batch(1, records.clone()), Timestamp(1)).await;
    assert_eq!(stored.expect("stored").stored, 3000);
    transaction.rollback().await.expect("undone");
    let c = &mut *store.read().await.expect("connected");
    let none = usage_list(c, &name("thumbs"), Timestamp(0), 10).await;
    assert_eq!(none.expect("read"), []);
    // The batch was not remembered either.
    let stored = usage_store(c, &batch(1, records), Timestamp(1)).await;
    assert_eq!(stored.expect("stored").stored, 3000);
}

async fn what_is_old_is_forgotten(backend: Backend) {
    let (_folder, store) = store(backend).await;
    let c = &mut *store.read().await.expect("connected");
    for n in 1..=3 {
        let batch = batch(n, vec![record(n, UsageOutcome::Ok)]);
        usage_store(c, &batch, Timestamp(n as u64))
            .await
            .expect("stored");
    }
    let trimmed = usage_trim(c, Timestamp(3), Timestamp(1002))
        .await
        .expect("trimmed");
    assert_eq!(trimmed, (2, 1));
    let id = |n| BatchId::from_uuid(Uuid::from_u128(n));
    assert!(!usage_batch_known(c, id(1)).await.expect("read"));
    assert!(usage_batch_known(c, id(3)).await.expect("read"));
    let left = usage_list(c, &name("thumbs"), Timestamp(0), 10).await;
    assert_eq!(left.expect("read").len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_hands_a_batch_over_as_often_as_it_likes() {
    let rig = Rig::start().await;
    let sent = batch(7, vec![record(1, UsageOutcome::Ok)]);
    let post = || rig.network_call(Method::POST, "/agent/v1/usage");
    for duplicate in [false, true] {
        let receipt: UsageReceipt = rig.json(post().json(&sent)).await;
        assert_eq!(receipt.duplicate, duplicate);
    }
    let (status, _) = rig.refused(post().body("{\"batch\":7}")).await;
    assert_eq!(status, 400);
    let (status, _) = rig.refused(post().body(vec![b' '; 5 << 20])).await;
    assert_eq!(status, 413);
    let nobody = rig.anonymous(Method::POST, "/agent/v1/usage").json(&sent);
    assert_eq!(rig.refused(nobody).await.0, 401);
}
