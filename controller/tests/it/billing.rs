//! Sums and statements in the store, on both databases: whatever the order, repetition and delay of batches, each record is billed once.

use std::time::Duration;

use fdn_controller::app::billing::bill::{Terms, compute};
use fdn_controller::store::app::{app_delete, app_upsert};
use fdn_controller::store::billing::clock::{clock_begin, clock_close, clock_get};
use fdn_controller::store::billing::price::price_list_insert;
use fdn_controller::store::billing::statement::{statement_get, statement_insert};
use fdn_controller::store::billing::sums::sums_check;
use fdn_controller::store::usage::{usage_book, usage_store, usage_trim};
use fdn_controller::store::usage_sums::usage_add;
use fdn_controller::store::version::{function_delete, function_version_next, version_insert};
use fdn_controller::store::{DEFAULT_TENANT, Store, StoreError};
use fdn_core::billing::{
    Currency, Kind, Meter, Month, Price, PriceList, Quantities, Statement, StatementState,
};
use fdn_core::usage::{CallRecord, InterimUsage, UsageBatch, UsageOutcome, UsageRecord};
use fdn_core::{BatchId, InvocationId, MebiBytes, TenantId, Timestamp, VersionNumber};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use sqlx::AnyConnection;
use uuid::Uuid;

use crate::rig::{Backend, on_both};
use crate::store::{app_row, name, store, version_row};
use crate::usage::{call, sums};

on_both!(
    bills_are_those_of_the_calls_whatever_is_lost_doubled_or_late,
    bills_are_those_of_the_records_whatever_comes_when,
    a_call_that_ends_after_its_month_is_closed_is_corrected_later,
    a_bill_outlives_app_and_records,
    records_of_before_are_booked_by_and_by,
    no_month_is_closed_while_usage_is_stored,
    a_sum_that_does_not_fit_is_refused,
    artifacts_are_counted_from_deploy_to_delete,
);

const MONTHS: [&str; 3] = ["2026-08", "2026-09", "2026-10"];

pub(crate) fn month(text: &str) -> Month {
    text.parse().expect("month")
}

pub(crate) fn tenant() -> TenantId {
    DEFAULT_TENANT
}

/// A time after all months of these tests.
fn now() -> Timestamp {
    Timestamp(month("2026-11").start().get() + 1)
}

pub(crate) fn prices(name: &str, from: &str, micros: u32) -> PriceList {
    PriceList {
        name: name.parse().expect("name"),
        currency: Currency::EUR,
        from: from.parse().expect("day"),
        to: None,
        prices: Meter::ALL
            .into_iter()
            .map(|meter| (meter, Price::new(micros, 7)))
            .collect(),
        free: [(Meter::Invocations, 5), (Meter::VcpuSeconds, 300)].into(),
    }
}

pub(crate) fn record(n: u128, at: Timestamp, size: u32) -> UsageRecord {
    UsageRecord {
        invocation: InvocationId::from_uuid(Uuid::from_u128(n)),
        app: name("thumbs"),
        function: "thumbs".parse().expect("function"),
        version: VersionNumber::FIRST,
        started_at: at,
        duration_us: u64::from(size) * 1000,
        cpu_us: u64::from(size) * 300,
        memory_mib: MebiBytes(u64::from(size % 512)),
        gpu_memory_mib: MebiBytes(u64::from(size % 3)),
        egress_bytes: u64::from(size) * 5,
        outcome: UsageOutcome::Ok,
    }
}

pub(crate) fn batch(n: u128, records: Vec<UsageRecord>) -> UsageBatch {
    UsageBatch {
        batch: BatchId::from_uuid(Uuid::from_u128(n)),
        node: "eu-1".parse().expect("node"),
        records,
    }
}

/// A store with prices and an app of the tenant, without stored artifacts.
async fn billed(backend: Backend) -> (tempfile::TempDir, Store) {
    let (folder, store) = store(backend).await;
    let c = &mut *store.read().await.expect("connected");
    let function = "thumbs".parse().expect("function");
    let number = function_version_next(c, tenant(), &function, Timestamp(1))
        .await
        .expect("a number");
    version_insert(c, &version_row("thumbs", number))
        .await
        .expect("a version");
    app_upsert(c, &app_row("thumbs", number))
        .await
        .expect("an app");
    sqlx::query("UPDATE stored_artifacts SET gone_at = stored_at")
        .execute(&mut *c)
        .await
        .expect("gone");
    price_list_insert(c, &prices("first", "2026-01-01", 17), "root", Timestamp(1))
        .await
        .expect("prices");
    (folder, store)
}

async fn take(c: &mut AnyConnection, batch: &UsageBatch) {
    usage_store(c, batch, now()).await.expect("stored");
}

async fn bill(c: &mut AnyConnection, of: Month) -> Statement {
    let terms = Terms {
        currency: Currency::EUR,
        now: now(),
    };
    compute(c, tenant(), of, terms).await.expect("a statement")
}

fn used(statements: &[Statement]) -> Quantities {
    let mut sum = Quantities::default();
    for line in statements
        .iter()
        .flat_map(|s| &s.lines)
        .filter(|line| line.kind == Kind::Usage)
    {
        sum.add(&Quantities::one(line.meter, line.quantity.0))
            .expect("fits");
    }
    sum
}

/// Records of three months, and the batches that nodes send: each record at least once, many twice, some first as running, in any order.
fn sendings() -> impl Strategy<Value = (Vec<UsageRecord>, Vec<Vec<UsageRecord>>)> {
    let (start, end) = (month(MONTHS[0]).start().get(), month(MONTHS[2]).end().get());
    let one = (start..end, any::<u32>());
    let records = prop::collection::vec(one, 20..60).prop_map(|all| {
        let all = all.into_iter().enumerate();
        all.map(|(n, (at, size))| record(n as u128, Timestamp(at), size))
            .collect::<Vec<_>>()
    });
    let sent = |records: Vec<UsageRecord>| {
        let running = records.iter().step_by(3).map(|record| UsageRecord {
            duration_us: record.duration_us / 2,
            egress_bytes: record.egress_bytes + 7,
            outcome: UsageOutcome::Running,
            ..record.clone()
        });
        let mut all: Vec<UsageRecord> = running.chain(records.clone()).collect();
        all.extend(all.clone().into_iter().step_by(2));
        (Just(records), Just(all).prop_shuffle())
    };
    (records.prop_flat_map(sent), 3usize..17).prop_map(|((records, sent), size)| {
        (records, sent.chunks(size).map(<[_]>::to_vec).collect())
    })
}

/// Calls of three months: time, size, the number of notes while running, and whether the node lived to record the end; with the segment of each
/// record.
/// Then the order in which segments arrive, some of them twice.
type Lives = (Vec<(CallRecord, usize)>, Vec<usize>);

const SEGMENTS: usize = 12;

fn lives() -> impl Strategy<Value = Lives> {
    let (start, end) = (month(MONTHS[0]).start().get(), month(MONTHS[2]).end().get());
    let one = (start..end, any::<u32>(), 0usize..3, any::<bool>());
    let records = prop::collection::vec(one, 20..60).prop_map(|all| {
        let lives = all.into_iter().enumerate();
        let records = lives.flat_map(|(n, (at, size, notes, ended))| {
            let mut noted = None;
            let steps = notes + usize::from(ended);
            let whole = record(n as u128, Timestamp(at), size);
            let of = move |step: usize| {
                let used = UsageRecord {
                    outcome: if step > notes {
                        UsageOutcome::Ok
                    } else {
                        UsageOutcome::Running
                    },
                    duration_us: whole.duration_us / 3 * step as u64,
                    cpu_us: whole.cpu_us / 3 * step as u64,
                    egress_bytes: whole.egress_bytes / step as u64,
                    ..whole.clone()
                };
                let before = std::mem::replace(&mut noted, InterimUsage::of(&used));
                call(used, before)
            };
            (1..=steps).map(of)
        });
        records.collect::<Vec<_>>()
    });
    let placed = records.prop_flat_map(|records| {
        let places = prop::collection::vec(0..SEGMENTS, records.len());
        (Just(records), places).prop_map(|(records, at)| records.into_iter().zip(at).collect())
    });
    let order = Just(
        (0..SEGMENTS)
            .chain((0..SEGMENTS).step_by(2))
            .collect::<Vec<_>>(),
    );
    (placed, order.prop_shuffle())
}

async fn bills_are_those_of_the_calls_whatever_is_lost_doubled_or_late(backend: Backend) {
    let mut runner = TestRunner::deterministic();
    for _ in 0..4 {
        let (records, order) = lives().new_tree(&mut runner).expect("generated").current();
        let (_folder, store) = billed(backend).await;
        let (_other_folder, other) = billed(backend).await;
        let c = &mut *store.read().await.expect("connected");
        clock_begin(c, month(MONTHS[0])).await.expect("begun");
        let mut issued = Vec::new();
        for (n, segment) in order.iter().enumerate() {
            // Two of the months are closed while their usage still arrives.
            if [4, 8].contains(&n) {
                let of = month(MONTHS[issued.len()]);
                assert!(clock_close(c, of).await.expect("closed"));
                issued.push(bill(c, of).await);
            }
            let inside = records.iter().filter(|(_, at)| at == segment);
            let inside: Vec<CallRecord> = inside.map(|(record, _)| record.clone()).collect();
            let batch = sums(1000 + *segment as u128, "eu-1", &inside);
            for _ in 0..2 {
                usage_add(c, &batch, now()).await.expect("added");
            }
            let [kept, hours, days] = sums_check(c).await.expect("sums");
            assert!(kept.is_zero() && hours == days, "after segment {segment}");
        }
        let mut last: std::collections::BTreeMap<InvocationId, UsageRecord> = [].into();
        for (record, _) in records {
            last.insert(record.used.invocation, record.used);
        }
        let mut expected = Quantities::default();
        last.values().for_each(|r| {
            expected
                .add(&Quantities::of(r).expect("bounded"))
                .expect("fits")
        });
        assert_eq!(sums_check(c).await.expect("sums")[2], expected);
        for (of, early) in MONTHS.iter().zip(&issued) {
            assert_eq!(bill(c, month(of)).await.lines, early.lines);
        }
        for of in MONTHS.iter().skip(issued.len()) {
            issued.push(bill(c, month(of)).await);
        }
        assert_eq!(used(&issued), expected);
        // All on time and without notes, in one batch: it costs the same.
        let o = &mut *other.read().await.expect("connected");
        let calls: Vec<CallRecord> = last.into_values().map(|used| call(used, None)).collect();
        usage_add(o, &sums(1, "eu-1", &calls), now())
            .await
            .expect("added");
        let mut once = Vec::new();
        for of in MONTHS {
            once.push(bill(o, month(of)).await);
        }
        let total = |all: &[Statement]| all.iter().map(|s| s.total.micros).sum::<i64>();
        assert_eq!(total(&issued), total(&once));
        assert!(total(&once) > 0);
    }
}

async fn bills_are_those_of_the_records_whatever_comes_when(backend: Backend) {
    let mut runner = TestRunner::deterministic();
    for _ in 0..4 {
        let (records, batches) = sendings()
            .new_tree(&mut runner)
            .expect("generated")
            .current();
        let (_folder, store) = billed(backend).await;
        let (_other_folder, other) = billed(backend).await;
        let c = &mut *store.read().await.expect("connected");
        clock_begin(c, month(MONTHS[0])).await.expect("begun");
        let mut issued = Vec::new();
        let third = batches.len() / 3;
        for (n, records) in batches.iter().enumerate() {
            // Two of the months are closed while their usage still arrives; each batch arrives twice.
            if n > 0 && n % third.max(1) == 0 && issued.len() < 2 {
                let of = month(MONTHS[issued.len()]);
                assert!(clock_close(c, of).await.expect("closed"));
                issued.push(bill(c, of).await);
            }
            for _ in 0..2 {
                take(c, &batch(1000 + n as u128, records.clone())).await;
            }
            let [kept, hours, days] = sums_check(c).await.expect("sums");
            assert_eq!((kept, hours), (hours, days), "after batch {n}");
        }
        let mut expected = Quantities::default();
        records.iter().for_each(|r| {
            expected
                .add(&Quantities::of(r).expect("bounded"))
                .expect("fits")
        });
        assert_eq!(sums_check(c).await.expect("sums")[0], expected);
        for (of, early) in MONTHS.iter().zip(&issued) {
            assert_eq!(
                bill(c, month(of)).await.lines,
                early.lines,
                "a closed month stays as it was"
            );
        }
        for of in MONTHS.iter().skip(issued.len()) {
            issued.push(bill(c, month(of)).await);
        }
        assert_eq!(used(&issued), expected);
        // All on time, in one batch: it costs the same.
        let o = &mut *other.read().await.expect("connected");
        take(o, &batch(1, records)).await;
        let mut once = Vec::new();
        for of in MONTHS {
            once.push(bill(o, month(of)).await);
        }
        let total = |all: &[Statement]| all.iter().map(|s| s.total.micros).sum::<i64>();
        assert_eq!(total(&issued), total(&once));
        assert!(total(&once) > 0);
    }
}

async fn a_call_that_ends_after_its_month_is_closed_is_corrected_later(backend: Backend) {
    let (_folder, store) = billed(backend).await;
    let c = &mut *store.read().await.expect("connected");
    clock_begin(c, month("2026-09")).await.expect("begun");
    let ended = record(1, Timestamp(month("2026-10").start().get() - 10), 50_000);
    let running = UsageRecord {
        duration_us: 1000,
        egress_bytes: ended.egress_bytes + 100,
        outcome: UsageOutcome::Running,
        ..ended.clone()
    };
    take(c, &batch(1, vec![running.clone()])).await;
    clock_close(c, month("2026-09")).await.expect("closed");
    let before = bill(c, month("2026-09")).await;
    assert_eq!(
        used(std::slice::from_ref(&before)),
        Quantities::of(&running).expect("bounded")
    );
    take(c, &batch(2, vec![ended.clone()])).await;
    assert_eq!(bill(c, month("2026-09")).await.lines, before.lines);
    let next = bill(c, month("2026-10")).await;
    assert!(
        next.lines.iter().all(|line| line.month == month("2026-09")),
        "{:?}",
        next.lines
    );
    assert!(
        next.lines
            .iter()
            .all(|line| line.meter != Meter::Invocations),
        "the call was counted"
    );
    let egress = next
        .lines
        .iter()
        .find(|line| line.meter == Meter::EgressGib)
        .expect("a line");
    assert_eq!(egress.quantity.0, -100);
    assert_eq!(
        used(&[before, next]),
        Quantities::of(&ended).expect("bounded")
    );
}

async fn a_bill_outlives_app_and_records(backend: Backend) {
    let (_folder, store) = billed(backend).await;
    let c = &mut *store.read().await.expect("connected");
    let at = |n: u64| Timestamp(month("2026-09").start().get() + n * 3_600_000);
    take(c, &batch(1, vec![record(1, at(1), 100)])).await;
    app_delete(c, &name("thumbs")).await.expect("deleted");
    function_delete(c, tenant(), &"thumbs".parse().expect("function"), now())
        .await
        .expect("deleted");
    // A record that arrives after the app was deleted is the tenant's, too; one of an app that never existed is nobody's.
    let strange = UsageRecord {
        app: name("strange"),
        ..record(3, at(3), 100)
    };
    take(c, &batch(2, vec![record(2, at(2), 100), strange])).await;
    let statement = bill(c, month("2026-09")).await;
    assert_eq!(
        used(std::slice::from_ref(&statement)).get(Meter::Invocations),
        2
    );
    usage_trim(c, now()).await.expect("trimmed");
    let [kept, hours, days] = sums_check(c).await.expect("sums");
    assert!(kept.is_zero() && hours.is_zero() && days.get(Meter::Invocations) == 3);
    assert_eq!(bill(c, month("2026-09")).await.lines, statement.lines);
    let issued = Statement {
        state: StatementState::Issued,
        ..statement
    };
    assert!(statement_insert(c, &issued).await.expect("issued"));
    assert!(!statement_insert(c, &issued).await.expect("issued once"));
    let found = statement_get(c, tenant(), month("2026-09"), (0, 1000))
        .await
        .expect("read");
    assert_eq!(found, Some(issued));
}

async fn records_of_before_are_booked_by_and_by(backend: Backend) {
    let (_folder, store) = billed(backend).await;
    let c = &mut *store.read().await.expect("connected");
    let at = Timestamp(month("2026-09").start().get() + 5);
    take(c, &batch(1, vec![record(1, at, 100)])).await;
    // As a controller of an earlier release stores them, without sums.
    for n in 2..=4 {
        sqlx::query(
            "INSERT INTO usage_records (invocation, app, function, version, node, started_at, duration_us, cpu_us, memory_mib, \
             gpu_memory_mib, egress_bytes, outcome) VALUES ($1, 'thumbs', 'thumbs', 1, 'eu-1', $2, 5, 4, 3, 2, 1, 'running')",
        )
        .bind(InvocationId::from_uuid(Uuid::from_u128(n)).to_string())
        .bind(at.get() as i64)
        .execute(&mut *c)
        .await
        .expect("inserted");
    }
    // One of the calls ends: nothing is subtracted, since its record was never in the sums.
    take(c, &batch(2, vec![record(4, at, 100)])).await;
    assert_eq!(usage_book(c, 1, now()).await.expect("booked"), 1);
    assert_eq!(usage_book(c, 100, now()).await.expect("booked"), 1);
    assert_eq!(usage_book(c, 100, now()).await.expect("nothing left"), 0);
    let [kept, hours, days] = sums_check(c).await.expect("sums");
    assert_eq!((kept, hours), (hours, days));
    assert_eq!(kept.get(Meter::Invocations), 4);
    assert_eq!(used(&[bill(c, month("2026-09")).await]), kept);
}

async fn no_month_is_closed_while_usage_is_stored(backend: Backend) {
    let (_folder, store) = billed(backend).await;
    let closing = &mut *store.read().await.expect("connected");
    clock_begin(closing, month("2026-09")).await.expect("begun");
    let impatient = match backend {
        Backend::Sqlite => "PRAGMA busy_timeout = 20",
        Backend::Postgres => "SET lock_timeout = '20ms'",
    };
    sqlx::query(impatient)
        .execute(&mut *closing)
        .await
        .expect("set");
    let mut storing = store.begin().await.expect("begun");
    let at = Timestamp(month("2026-09").start().get());
    take(&mut storing, &batch(1, vec![record(1, at, 100)])).await;
    let refused = clock_close(closing, month("2026-09")).await;
    assert!(
        matches!(refused, Err(StoreError::Contended(_))),
        "{refused:?}"
    );
    storing.commit().await.expect("stored");
    let closed = tokio::time::timeout(
        Duration::from_secs(30),
        clock_close(closing, month("2026-09")),
    );
    assert!(closed.await.expect("in time").expect("closed"));
    assert_eq!(
        clock_get(closing).await.expect("read"),
        Some(month("2026-10"))
    );
    assert!(!clock_close(closing, month("2026-09")).await.expect("once"));
}

async fn a_sum_that_does_not_fit_is_refused(backend: Backend) {
    let (_folder, store) = billed(backend).await;
    let at = Timestamp(month("2026-09").start().get());
    let much = |n| UsageRecord {
        egress_bytes: 1 << 56,
        ..record(n, at, 1)
    };
    let full = batch(1, (0..124).map(much).collect());
    take(&mut store.read().await.expect("connected"), &full).await;
    let mut transaction = store.begin().await.expect("begun");
    let refused = usage_store(
        &mut transaction,
        &batch(2, (200..206).map(much).collect()),
        now(),
    )
    .await;
    assert!(refused.is_err(), "{refused:?}");
    transaction.rollback().await.expect("undone");
    let c = &mut *store.read().await.expect("connected");
    let [kept, hours, days] = sums_check(c).await.expect("sums");
    assert_eq!((kept, hours), (hours, days));
    assert_eq!(kept.get(Meter::EgressGib), 124 << 56);
    let broken = UsageRecord {
        cpu_us: u64::MAX,
        ..record(300, at, 1)
    };
    let refused = usage_store(c, &batch(3, vec![broken]), now()).await;
    assert!(
        matches!(refused, Err(StoreError::Billing(_))),
        "{refused:?}"
    );
}

async fn artifacts_are_counted_from_deploy_to_delete(backend: Backend) {
    let (_folder, store) = store(backend).await;
    let c = &mut *store.read().await.expect("connected");
    let function = "thumbs".parse().expect("function");
    let number = function_version_next(c, tenant(), &function, Timestamp(1))
        .await
        .expect("a number");
    let september = month("2026-09");
    let row = fdn_controller::store::version::VersionRow {
        created_at: Timestamp(september.start().get() + 1000),
        size: 3,
        ..version_row("thumbs", number)
    };
    version_insert(c, &row).await.expect("a version");
    let kept = async |c: &mut AnyConnection, of: &str| {
        used(&[bill(c, month(of)).await]).get(Meter::StorageGibHours)
    };
    assert_eq!(kept(c, "2026-08").await, 0);
    let all = i128::from(september.end().get() - september.start().get());
    assert_eq!(kept(c, "2026-09").await, (all - 1000) * 3);
    function_delete(
        c,
        tenant(),
        &function,
        Timestamp(september.end().get() + 10),
    )
    .await
    .expect("deleted");
    assert_eq!(kept(c, "2026-09").await, (all - 1000) * 3);
    assert_eq!(kept(c, "2026-10").await, 30);
    assert_eq!(kept(c, "2026-11").await, 0);
}
