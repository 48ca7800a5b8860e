//! Usage reports of nodes: counted once, on both databases, and over HTTP.

use fdn_controller::store::billing::sums::sums_check;
use fdn_controller::store::usage::{usage_store, usage_trim};
use fdn_controller::store::usage_sums::{batch_trim, usage_add};
use fdn_core::billing::Meter;
use fdn_core::usage::{
    CallFacts, CallRecord, InterimUsage, UsageBatch, UsageOutcome, UsageReceipt, UsageRecord,
    UsageSums, roll_up,
};
use fdn_core::{BatchId, InvocationId, MebiBytes, Timestamp, VersionNumber};
use uuid::Uuid;

use crate::rig::{Backend, Rig, on_both};
use crate::store::{name, store};

on_both!(
    sums_are_counted_once_whole_or_not_at_all,
    the_newest_batch_of_a_node_is_never_forgotten,
    a_batch_of_records_is_counted_once,
    what_was_noted_while_a_call_ran_gives_way,
    a_large_batch_is_stored_whole_or_not_at_all,
    what_is_old_is_forgotten,
    much_that_is_old_is_forgotten_by_parts,
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

/// The stored records, by number: outcome and duration.
async fn kept(c: &mut sqlx::AnyConnection) -> Vec<(u128, String, i64)> {
    let rows: Vec<(String, String, i64)> = sqlx::query_as(
        "SELECT invocation, outcome, duration_us FROM usage_records ORDER BY invocation",
    )
    .fetch_all(c)
    .await
    .expect("read");
    let number = |id: &str| id.parse::<InvocationId>().expect("an id").uuid().as_u128();
    rows.into_iter()
        .map(|(id, outcome, took)| (number(&id), outcome, took))
        .collect()
}

/// A batch of sums, as a node makes it from these records.
pub(crate) fn sums(n: u128, node: &str, records: &[CallRecord]) -> UsageSums {
    UsageSums {
        batch: BatchId::from_uuid(Uuid::from_u128(n)),
        node: node.parse().expect("node"),
        records: u32::try_from(records.len()).expect("few"),
        sums: roll_up(records).expect("bounded"),
    }
}

/// A record as a node writes it, replacing an earlier note on the same call if `noted`.
pub(crate) fn call(used: UsageRecord, noted: Option<InterimUsage>) -> CallRecord {
    CallRecord {
        used,
        call: Some(CallFacts::default()),
        noted,
    }
}

/// Sums of one call of an app.
pub(crate) fn sums_of(app: &str, n: u128, node: &str) -> UsageSums {
    sums(n, node, &[call(record_of(app), None)])
}

/// The record of one call of an app.
pub(crate) fn records_of(app: &str, n: u128, node: &str) -> UsageBatch {
    UsageBatch {
        node: node.parse().expect("node"),
        ..batch(n, vec![record_of(app)])
    }
}

fn record_of(app: &str) -> UsageRecord {
    UsageRecord {
        app: app.parse().expect("app"),
        function: app.parse().expect("function"),
        ..record(1, UsageOutcome::Ok)
    }
}

/// Adds a node's batch.
pub(crate) async fn add(rig: &Rig, sums: &UsageSums) -> UsageReceipt {
    let bytes = serde_json::to_vec(sums).expect("JSON");
    let added = fdn_controller::app::usage::add(rig.controller.state(), &bytes);
    added.await.expect("added")
}

async fn counted(c: &mut sqlx::AnyConnection) -> (i128, i128) {
    let [_, hours, days] = sums_check(c).await.expect("sums");
    assert_eq!(hours, days);
    (days.get(Meter::Invocations), days.get(Meter::VcpuSeconds))
}

async fn sums_are_counted_once_whole_or_not_at_all(backend: Backend) {
    let (_folder, store) = store(backend).await;
    let running = record(1, UsageOutcome::Running);
    let ended = UsageRecord {
        cpu_us: 900,
        ..record(1, UsageOutcome::FunctionError)
    };
    let noted = InterimUsage::of(&running);
    assert!(noted.is_some());
    let first = sums(
        1,
        "eu-1",
        &[call(running, None), call(record(2, UsageOutcome::Ok), None)],
    );
    let second = sums(2, "eu-1", &[call(ended, noted)]);
    let mut transaction = store.begin().await.expect("begun");
    let added = usage_add(&mut transaction, &first, Timestamp(5)).await;
    assert!(!added.expect("added").duplicate);
    transaction.rollback().await.expect("undone");
    let c = &mut *store.read().await.expect("connected");
    assert_eq!(counted(c).await, (0, 0));
    // The end of the first call arrives before the note on it while it ran.
    for (batch, duplicate, after) in [
        (&second, false, (0, 896)),
        (&second, true, (0, 896)),
        (&first, false, (2, 904)),
        (&first, true, (2, 904)),
        (&second, true, (2, 904)),
    ] {
        let receipt = usage_add(c, batch, Timestamp(7)).await.expect("taken");
        assert_eq!(receipt.duplicate, duplicate);
        assert_eq!(
            receipt.stored,
            u64::from(batch.records) * u64::from(!duplicate)
        );
        assert_eq!(counted(c).await, after);
    }
    assert_eq!(kept(c).await, [], "no call is a row");
    // A batch of records and a batch of sums with the same id are the same batch, whichever came first.
    let as_records = batch(1, vec![record(2, UsageOutcome::Ok)]);
    let receipt = usage_store(c, &as_records, Timestamp(9)).await;
    assert!(receipt.expect("known").duplicate);
}

async fn the_newest_batch_of_a_node_is_never_forgotten(backend: Backend) {
    let (_folder, store) = store(backend).await;
    let c = &mut *store.read().await.expect("connected");
    let of = |n, node: &str| sums(n, node, &[call(record(n, UsageOutcome::Ok), None)]);
    for n in 1..=3 {
        usage_add(c, &of(n, "eu-1"), Timestamp(n as u64))
            .await
            .expect("added");
    }
    usage_add(c, &of(9, "us-1"), Timestamp(1))
        .await
        .expect("added");
    let forgotten = batch_trim(c, Timestamp(100)).await.expect("trimmed");
    assert_eq!(forgotten, 2);
    // However long the receipts of these were lost, they are counted once.
    for batch in [of(3, "eu-1"), of(9, "us-1")] {
        let again = usage_add(c, &batch, Timestamp(1000)).await.expect("known");
        assert!(again.duplicate);
    }
    // A batch received by another controller, whose clock is slow.
    usage_add(c, &of(4, "eu-1"), Timestamp(2))
        .await
        .expect("added");
    let forgotten = batch_trim(c, Timestamp(2)).await.expect("trimmed");
    assert_eq!(forgotten, 0, "nothing is trimmed before its time");
    let forgotten = batch_trim(c, Timestamp(100)).await.expect("trimmed");
    assert_eq!(forgotten, 0);
    let again = usage_add(c, &of(4, "eu-1"), Timestamp(100)).await;
    assert!(again.expect("known").duplicate);
    assert_eq!(counted(c).await.0, 5);
}

async fn a_batch_of_records_is_counted_once(backend: Backend) {
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
    // An invocation is billed once, even if it comes in another batch.
    let other = batch(2, vec![ok(2), ok(3)]);
    let stored = usage_store(c, &other, Timestamp(7)).await.expect("stored");
    assert_eq!(stored.stored, 1);
    assert_eq!(kept(c).await, [1, 2, 3].map(|n| (n, "ok".to_owned(), 5)));
}

async fn what_was_noted_while_a_call_ran_gives_way(backend: Backend) {
    let (_folder, store) = store(backend).await;
    let c = &mut *store.read().await.expect("connected");
    let running = record(1, UsageOutcome::Running);
    let ended = UsageRecord {
        duration_us: 900,
        ..record(1, UsageOutcome::FunctionError)
    };
    let is = |outcome: &str, took| vec![(1, outcome.to_owned(), took)];
    usage_store(c, &batch(1, vec![running.clone()]), Timestamp(1))
        .await
        .expect("stored");
    assert_eq!(kept(c).await, is("running", 5));
    usage_store(c, &batch(2, vec![ended.clone()]), Timestamp(2))
        .await
        .expect("stored");
    assert_eq!(kept(c).await, is("function_error", 900));
    // Late, or both in one batch: the record of the end stays.
    usage_store(c, &batch(3, vec![running.clone()]), Timestamp(3))
        .await
        .expect("stored");
    assert_eq!(kept(c).await, is("function_error", 900));
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
    let all = kept(c).await;
    assert!(
        all.iter()
            .all(|(_, outcome, _)| outcome == "function_error"),
        "{all:?}"
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
    assert_eq!(kept(c).await, []);
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
    let removed = usage_trim(c, Timestamp(1002)).await;
    assert_eq!(removed.expect("trimmed"), 1);
    assert_eq!(kept(c).await.len(), 2);
}

async fn much_that_is_old_is_forgotten_by_parts(backend: Backend) {
    let (_folder, store) = store(backend).await;
    let c = &mut *store.read().await.expect("connected");
    let numbers = "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 10003)";
    for (into, values) in [
        (
            "usage_records (invocation, app, function, version, node, started_at, duration_us, cpu_us, memory_mib, gpu_memory_mib, \
             egress_bytes, outcome)",
            "CAST(n AS TEXT), 'thumbs', 'thumbs', 1, 'eu-1', n, 5, 4, 3, 2, 1, 'ok'",
        ),
        (
            "usage_hours (tenant, period, at, app, function, version, cluster, region, invocations, memory, cpu, gpu, egress)",
            "'t', 1, n, 'thumbs', 'thumbs', 1, 'eu', 'eu', 1, 1, 1, 1, 1",
        ),
    ] {
        let insert = format!("INSERT INTO {into} {numbers} SELECT {values} FROM numbers");
        sqlx::raw_sql(sqlx::AssertSqlSafe(insert))
            .execute(&mut *c)
            .await
            .expect("inserted");
    }
    if matches!(backend, Backend::Postgres) {
        // It alone has triggers that know how many rows a statement deletes, and cancels statements that take long.
        let mut few = "CREATE FUNCTION few() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             IF (SELECT COUNT(*) FROM gone) > 5000 THEN RAISE EXCEPTION 'too many at once'; END IF; RETURN NULL; END $$;"
            .to_owned();
        for table in ["usage_records", "usage_hours"] {
            few += &format!(
                "CREATE TRIGGER few AFTER DELETE ON {table} REFERENCING OLD TABLE AS gone \
                 FOR EACH STATEMENT EXECUTE FUNCTION few();"
            );
        }
        sqlx::raw_sql(sqlx::AssertSqlSafe(few))
            .execute(&mut *c)
            .await
            .expect("created");
    }
    // More than two parts of each, at first of the records alone: no hour has ended.
    let hour = fdn_core::billing::HOUR_MS;
    let removed = usage_trim(c, Timestamp(10_002)).await.expect("trimmed");
    assert_eq!(removed, 10_001);
    let removed = usage_trim(c, Timestamp(10_002 + hour)).await;
    assert_eq!(removed.expect("trimmed"), 2 + 10_001);
    for (table, left) in [("usage_records", 0), ("usage_hours", 2)] {
        let count = format!("SELECT COUNT(*) FROM {table}");
        let rows: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(count))
            .fetch_one(&mut *c)
            .await
            .expect("counted");
        assert_eq!(rows, left, "{table}");
    }
}
