use std::collections::VecDeque;
use std::path::PathBuf;

use async_trait::async_trait;
use fdn_core::usage::{UsageBatch, UsageOutcome};
use fdn_core::{DurationMs, InvocationId, MebiBytes, NodeId, Timestamp, VersionNumber};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::ship::{DeliverError, Shipper, Sink};

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

fn record(n: u64) -> UsageRecord {
    UsageRecord {
        invocation: InvocationId::from_uuid(Uuid::from_u128(u128::from(n))),
        app: "thumbs".parse().expect("app"),
        function: "thumbs".parse().expect("function"),
        version: VersionNumber::FIRST,
        started_at: Timestamp(n),
        duration_us: 1,
        cpu_us: 1,
        memory_mib: MebiBytes(64),
        gpu_memory_mib: MebiBytes(0),
        egress_bytes: n,
        outcome: UsageOutcome::Ok,
    }
}

/// Answers as it is told, then well; says what it got.
struct Scripted {
    answers: Mutex<VecDeque<DeliverError>>,
    got: mpsc::UnboundedSender<UsageBatch>,
}

#[async_trait]
impl Sink for Scripted {
    async fn deliver(&self, batch: &UsageBatch) -> Result<(), DeliverError> {
        self.got.send(batch.clone()).expect("the test listens");
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.pop_front().map_or(Ok(()), Err)
    }
}

fn ship(
    spool: &Spool,
    answers: Vec<DeliverError>,
) -> (
    mpsc::UnboundedReceiver<UsageBatch>,
    tokio_util::sync::DropGuard,
) {
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
            // So long that even a busy machine has most records in time for the first sync.
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
    // Two records for each of them: all fit.
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
    let later = || DeliverError::Later("not now".to_owned());
    let (mut batches, stop) = ship(&spool, vec![later(), later(), later()]);
    let first = batches.recv().await.expect("a batch");
    assert_eq!(first.records, [record(7)]);
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
    // Nobody takes segments yet: the test damages the second one in peace.
    for n in 1..=3 {
        write(n).await;
        until("a segment", || files(&folder, "seg").len() as u64 == n).await;
    }
    let mut segments = files(&folder, "seg");
    segments.sort();
    let mut octets = std::fs::read(&segments[1]).expect("read");
    let end = octets.len() - 1;
    octets[end] ^= 1;
    std::fs::write(&segments[1], octets).expect("damaged");
    let (mut batches, _stop) = ship(&spool, vec![DeliverError::Never("bad".to_owned())]);
    assert_eq!(
        batches.recv().await.expect("the first").records,
        [record(1)]
    );
    assert_eq!(
        batches.recv().await.expect("the third").records,
        [record(3)]
    );
    until("the spool to be empty", || spool.is_empty()).await;
    assert_eq!(files(&folder, "bad").len(), 2);
    assert_eq!(spool.metrics().set_aside.get(), 2);
    assert!(spool.used().as_bytes() > 0, "what is set aside counts");
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
