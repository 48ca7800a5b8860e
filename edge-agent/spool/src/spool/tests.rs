use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use async_trait::async_trait;
use fdn_core::usage::{
    CallFacts, CallQuery, InterimUsage, StatusFilter, UsageBatch, UsageOutcome, UsageRecord,
};
use fdn_core::{DurationMs, InvocationId, MebiBytes, NodeId, Timestamp, VersionNumber};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::ship::{Batch, DeliverError, Shipper, Sink};

fn node() -> NodeId {
    "n-1".parse().expect("node")
}

fn settings() -> SpoolSettings {
    SpoolSettings {
        size: ByteSize::from_bytes(128 << 10),
        segment: ByteSize::from_bytes(4096),
        seal_after: DurationMs::from_millis(10),
        batch_window: DurationMs::from_millis(0),
        retry_first: DurationMs::from_millis(1),
        retry_max: DurationMs::from_millis(4),
        ..SpoolSettings::default()
    }
}

fn open(folder: &TempDir, settings: SpoolSettings) -> Spool {
    let metrics = SpoolMetrics::new(&prometheus::Registry::new(), &node()).expect("metrics");
    Spool::open(&folder.path().join("usage"), settings, metrics).expect("it opens")
}

/// A call that arrived now, identified by the number of bytes that it sent.
fn record(n: u64) -> CallRecord {
    let used = UsageRecord {
        invocation: InvocationId::from_uuid(Uuid::from_u128(u128::from(n))),
        app: "thumbs".parse().expect("app"),
        function: "thumbs".parse().expect("function"),
        version: VersionNumber::FIRST,
        started_at: now(),
        duration_us: 1,
        cpu_us: 1,
        memory_mib: MebiBytes(64),
        gpu_memory_mib: MebiBytes(0),
        egress_bytes: n,
        outcome: UsageOutcome::Ok,
    };
    CallRecord {
        used,
        call: Some(CallFacts {
            request: format!("r-{n}"),
            status: Some(200),
            ..CallFacts::default()
        }),
        noted: None,
    }
}

fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Timestamp(since.expect("after 1970").as_millis() as u64)
}

/// The numbers of calls and bytes in a batch of sums.
fn told(batch: &Batch) -> (i64, i64) {
    let Batch::Sums(batch) = batch else {
        panic!("{batch:?}")
    };
    let all = batch.sums.iter();
    all.fold((0, 0), |(calls, egress), sum| {
        (calls + sum.calls, egress + sum.egress)
    })
}

/// Answers with the given failures, then with success; forwards what it receives.
struct Scripted {
    answers: Mutex<VecDeque<DeliverError>>,
    got: mpsc::UnboundedSender<Batch>,
}

#[async_trait]
impl Sink for Scripted {
    async fn deliver(&self, batch: &Batch) -> Result<(), DeliverError> {
        self.got.send(batch.clone()).expect("the test listens");
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.pop_front().map_or(Ok(()), Err)
    }
}

fn ship(
    spool: &Spool,
    answers: Vec<DeliverError>,
) -> (mpsc::UnboundedReceiver<Batch>, tokio_util::sync::DropGuard) {
    let (got, batches) = mpsc::unbounded_channel();
    let shipper = Shipper {
        spool: spool.clone(),
        sink: Scripted {
            answers: Mutex::new(answers.into()),
            got,
        },
        node: node(),
    };
    let stop = CancellationToken::new();
    tokio::spawn(shipper.run(stop.clone()));
    (batches, stop.drop_guard())
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let waited = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waited)
        .await
        .unwrap_or_else(|_| panic!("{what}"));
}

fn files(folder: &TempDir, extension: &str) -> Vec<PathBuf> {
    let all = std::fs::read_dir(folder.path().join("usage")).expect("folder");
    let paths = all.map(|entry| entry.expect("entry").path());
    paths
        .filter(|p| p.extension().is_some_and(|e| e == extension))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_at_the_same_time_share_syncs() {
    let folder = tempfile::tempdir().expect("folder");
    let spool = open(
        &folder,
        SpoolSettings {
            answer_after: AnswerAfter::Synced,
            // So long that even on a busy machine most records are written before the first sync.
            batch_window: DurationMs::from_millis(500),
            ..settings()
        },
    );
    let receipts: Vec<Receipt> = (0..100)
        .map(|n| {
            spool
                .reserve()
                .expect("room")
                .record(&record(n))
                .expect("written")
        })
        .collect();
    let syncs = || spool.metrics().sync_seconds.get_sample_count();
    for receipt in receipts {
        receipt.wait().await.expect("safe");
        assert!(syncs() > 0, "nobody is told before a sync");
    }
    let syncs = syncs();
    assert!(syncs < 50, "{syncs} syncs for 100 records");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_takes_its_room_before_it_runs() {
    let folder = tempfile::tempdir().expect("folder");
    let spool = open(&folder, settings());
    let mut places = Vec::new();
    let refused = loop {
        match spool.reserve() {
            Ok(place) => places.push(place),
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, SpoolError::Full { .. }), "{refused}");
    assert_eq!(spool.metrics().refused.get(), 1);
    // Two records for each reservation: all fit.
    for (place, n) in places.iter().zip(0..) {
        for _ in 0..2 {
            place
                .record(&record(n))
                .expect("room was kept")
                .wait()
                .await
                .expect("written");
        }
    }
    assert!(spool.used() <= settings().size, "{}", spool.used());
    assert!(spool.reserve().is_err());
    drop(places);
    let (mut batches, _stop) = ship(&spool, Vec::new());
    batches.recv().await.expect("a batch");
    until("room again", || spool.reserve().is_ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_comes_again_until_it_is_taken_also_after_a_restart() {
    let folder = tempfile::tempdir().expect("folder");
    let spool = open(&folder, settings());
    let place = spool.reserve().expect("room");
    place
        .record(&record(7))
        .expect("written")
        .wait()
        .await
        .expect("safe");
    let later = || DeliverError::Retryable("not now".to_owned());
    let (mut batches, stop) = ship(&spool, vec![later(), later(), later()]);
    let first = batches.recv().await.expect("a batch");
    assert_eq!(told(&first), (1, 7));
    assert_eq!(batches.recv().await.expect("again"), first);
    drop(stop);
    drop(place);
    tokio::task::spawn_blocking(move || spool.close())
        .await
        .expect("closed");

    let spool = open(&folder, settings());
    let (mut batches, _stop) = ship(&spool, Vec::new());
    assert_eq!(batches.recv().await.expect("again"), first);
    until("the segment to go", || spool.is_empty()).await;
    assert_eq!(files(&folder, "seg"), [] as [PathBuf; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_for_good_or_damaged_is_set_aside_and_holds_up_nothing() {
    let folder = tempfile::tempdir().expect("folder");
    let spool = open(&folder, settings());
    let write = async |n| {
        let place = spool.reserve().expect("room");
        place
            .record(&record(n))
            .expect("written")
            .wait()
            .await
            .expect("safe");
    };
    // Nothing is handed over yet: the test can damage the second segment undisturbed.
    for n in 1..=3 {
        write(n).await;
        until("a segment", || files(&folder, "seg").len() as u64 == n).await;
    }
    let mut segments = files(&folder, "seg");
    segments.sort();
    let mut bytes = std::fs::read(&segments[1]).expect("read");
    let end = bytes.len() - 1;
    bytes[end] ^= 1;
    std::fs::write(&segments[1], bytes).expect("damaged");
    let (mut batches, _stop) = ship(&spool, vec![DeliverError::Rejected("bad".to_owned())]);
    assert_eq!(told(&batches.recv().await.expect("the first")), (1, 1));
    assert_eq!(told(&batches.recv().await.expect("the third")), (1, 3));
    until("the spool to be empty", || spool.is_empty()).await;
    assert_eq!(files(&folder, "bad").len(), 2);
    assert_eq!(spool.metrics().set_aside.get(), 2);
    assert!(spool.used().as_bytes() > 0, "what is set aside counts");
}

#[test]
fn why_the_next_call_would_be_refused_is_told_and_takes_no_room() {
    let folder = tempfile::tempdir().expect("folder");
    let spool = open(&folder, settings());
    let mut places = Vec::new();
    while spool.refusal().is_none() {
        places.push(spool.reserve().expect("there is room, as it says"));
    }
    let why = spool.refusal().expect("it is full");
    assert!(matches!(why, SpoolError::Full { .. }), "{why}");
    assert!(spool.reserve().is_err(), "as it says");
    drop(places.pop());
    // Looking reserved nothing: the released place is still available.
    assert!(spool.refusal().is_none() && spool.refusal().is_none());
    places.push(spool.reserve().expect("there is room"));
    assert!(spool.refusal().is_some());
    spool.close();
    assert!(matches!(spool.refusal(), Some(SpoolError::Closed)));
}

#[test]
fn a_closed_spool_takes_nothing() {
    let folder = tempfile::tempdir().expect("folder");
    let spool = open(&folder, settings());
    let place = spool.reserve().expect("room");
    drop(place.record(&record(1)).expect("written"));
    spool.close();
    assert!(matches!(spool.reserve(), Err(SpoolError::Closed)));
    assert_eq!(
        files(&folder, "open"),
        [] as [PathBuf; 0],
        "everything is sealed"
    );
    assert_eq!(files(&folder, "seg").len(), 1);
}

/// The calls found, by the number of bytes sent, and whether there are more.
fn found(spool: &Spool, query: CallQuery) -> (Vec<u64>, bool) {
    let app = "thumbs".parse().expect("app");
    let found = spool
        .search(&app, &query, &AtomicBool::new(false))
        .expect("it can be read");
    let sent = found.calls.iter().map(|call| call.used.egress_bytes);
    (sent.collect(), found.more)
}

fn all() -> CallQuery {
    CallQuery {
        limit: 100,
        ..CallQuery::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_found_wherever_their_segment_is() {
    let folder = tempfile::tempdir().expect("folder");
    let slow = SpoolSettings {
        seal_after: DurationMs::from_secs(3600),
        ..settings()
    };
    let spool = open(&folder, slow.clone());
    let place = spool.reserve().expect("room");
    let write = |record: &CallRecord| drop(place.record(record).expect("written"));
    let long_ago = |mut record: CallRecord| {
        record.used.started_at = Timestamp(now().get() - 120_000);
        record
    };
    write(&long_ago(record(1)));
    let mut other = record(2);
    other.used.app = "thumb".parse().expect("app");
    write(&other);
    // A call that is recorded while it runs is listed once, as it ended.
    let mut running = record(3);
    running.used.outcome = UsageOutcome::Running;
    let mut ended = record(30);
    ended.used.invocation = running.used.invocation;
    ended.noted = InterimUsage::of(&running.used);
    ended.call = ended.call.map(|facts| CallFacts {
        status: Some(503),
        ..facts
    });
    write(&running);
    assert_eq!(
        found(&spool, all()),
        (vec![3, 1], false),
        "while it is written"
    );
    write(&ended);
    let check = |spool: &Spool| {
        assert_eq!(found(spool, all()), (vec![30, 1], false));
        let one = CallQuery { limit: 1, ..all() };
        assert_eq!(found(spool, one), (vec![30], true));
        let failed = CallQuery {
            status: Some(StatusFilter::Class(5)),
            ..all()
        };
        assert_eq!(found(spool, failed), (vec![30], false));
        let recent = CallQuery {
            since: Timestamp(now().get() - 60_000),
            ..all()
        };
        assert_eq!(found(spool, recent), (vec![30], false));
        let asked = CallQuery {
            request: Some("r-1".to_owned()),
            ..all()
        };
        assert_eq!(found(spool, asked), (vec![1], false));
    };
    check(&spool);
    let closing = spool.clone();
    tokio::task::spawn_blocking(move || closing.close())
        .await
        .expect("closed");
    assert_eq!(files(&folder, "seg").len(), 1);
    check(&spool);
    drop(place);
    drop(spool);
    let spool = open(&folder, slow);
    let (mut batches, _stop) = ship(&spool, Vec::new());
    assert_eq!(told(&batches.recv().await.expect("a batch")), (3, 33));
    until("the segment to be kept", || {
        files(&folder, "log").len() == 1
    })
    .await;
    assert_eq!((spool.is_empty(), spool.used().as_bytes()), (true, 0));
    assert!(spool.metrics().log_bytes.get() > 0);
    check(&spool);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_kept_is_bounded_by_size_and_by_age() {
    let folder = tempfile::tempdir().expect("folder");
    let bounded = SpoolSettings {
        log_size: ByteSize::from_bytes(1000),
        ..settings()
    };
    let spool = open(&folder, bounded.clone());
    let (mut batches, stop) = ship(&spool, Vec::new());
    for n in 1..=5 {
        let place = spool.reserve().expect("room");
        drop(place.record(&record(n)).expect("written"));
        assert_eq!(told(&batches.recv().await.expect("a batch")), (1, n as i64));
        until("it to be put away", || spool.is_empty()).await;
    }
    let (kept, _) = found(&spool, all());
    assert!(kept.starts_with(&[5]) && kept.len() < 5, "{kept:?}");
    assert!(spool.metrics().log_bytes.get() <= 1000);
    drop(stop);
    drop(spool);
    let old = SpoolSettings {
        log_keep: DurationMs::from_millis(0),
        ..bounded
    };
    let spool = open(&folder, old);
    spool.prune();
    // The newest segment counts as written until now.
    assert!(files(&folder, "log").len() <= 1);
    let without = SpoolSettings {
        log_size: ByteSize::from_bytes(0),
        ..settings()
    };
    drop(spool);
    let spool = open(&folder, without);
    let (mut batches, _stop) = ship(&spool, Vec::new());
    let place = spool.reserve().expect("room");
    drop(place.record(&record(9)).expect("written"));
    batches.recv().await.expect("a batch");
    until("nothing to be kept", || spool.is_empty()).await;
    assert_eq!(files(&folder, "log"), [] as [PathBuf; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_revision_before_has_left_goes_as_records() {
    let folder = tempfile::tempdir().expect("folder");
    let spool = open(&folder, settings());
    let before: Vec<CallRecord> = (1..=2)
        .map(|n| CallRecord {
            call: None,
            ..record(n)
        })
        .collect();
    let place = spool.reserve().expect("room");
    for record in &before {
        drop(place.record(record).expect("written"));
    }
    let (mut batches, _stop) = ship(&spool, Vec::new());
    let mut records = Vec::new();
    while records.len() < before.len() {
        match batches.recv().await.expect("a batch") {
            Batch::Records(UsageBatch { records: more, .. }) => records.extend(more),
            sums @ Batch::Sums(_) => panic!("{sums:?}"),
        }
    }
    let expected: Vec<UsageRecord> = before.into_iter().map(|record| record.used).collect();
    assert_eq!(records, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_no_call_can_have_holds_up_nothing() {
    let folder = tempfile::tempdir().expect("folder");
    let spool = open(&folder, settings());
    let (mut batches, _stop) = ship(&spool, Vec::new());
    let mut broken = record(1);
    broken.used.cpu_us = u64::MAX;
    let place = spool.reserve().expect("room");
    drop(place.record(&broken).expect("written"));
    until("it to be set aside", || files(&folder, "bad").len() == 1).await;
    drop(place.record(&record(2)).expect("written"));
    assert_eq!(told(&batches.recv().await.expect("the other")), (1, 2));
}
