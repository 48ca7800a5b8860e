//! Sums against the calls themselves: whatever is cut off, sent again, overtaken, each call counts as its last record says.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::id::InvocationId;
use crate::unit::MebiBytes;
use crate::usage::{CallFacts, InterimUsage};

/// One call: when, of which version, how large, how often it was noted while it ran, whether its end was written.
type Call = (u64, u8, u32, usize, bool);

/// The records of a call in their order, each in the place of the one before.
fn records(n: usize, (at, version, size, notes, ended): Call) -> Vec<CallRecord> {
    let outcome = if size % 2 == 0 {
        UsageOutcome::Ok
    } else {
        UsageOutcome::FunctionError
    };
    let used = UsageRecord {
        invocation: InvocationId::from_uuid(Uuid::from_u128(n as u128)),
        app: if size % 3 == 0 { "one" } else { "two" }
            .parse()
            .expect("app"),
        function: "f".parse().expect("function"),
        version: VersionNumber::try_from(1 + u32::from(version % 2)).expect("version"),
        started_at: Timestamp(at),
        duration_us: 0,
        cpu_us: 0,
        memory_mib: MebiBytes(u64::from(size % 700)),
        gpu_memory_mib: MebiBytes(u64::from(size % 5)),
        egress_bytes: 0,
        outcome,
    };
    let mut noted = None;
    let mut all = Vec::new();
    for step in 1..=notes + usize::from(ended) {
        let part = u64::from(size) * step as u64;
        let used = UsageRecord {
            duration_us: part,
            cpu_us: part / 3,
            egress_bytes: part + 7,
            outcome: if step > notes {
                outcome
            } else {
                UsageOutcome::Running
            },
            ..used.clone()
        };
        let before = std::mem::replace(&mut noted, InterimUsage::of(&used));
        all.push(CallRecord {
            used,
            call: Some(CallFacts::default()),
            noted: before,
        });
    }
    all
}

/// The records of some calls, and in which segment each of them lies.
fn written() -> impl Strategy<Value = Vec<(CallRecord, usize)>> {
    let call = (
        0..200_000u64,
        any::<u8>(),
        0..1u32 << 20,
        0..3usize,
        any::<bool>(),
    );
    let records = prop::collection::vec(call, 0..40).prop_map(|calls| {
        let all = calls.into_iter().enumerate();
        all.flat_map(|(n, call)| records(n, call))
            .collect::<Vec<_>>()
    });
    records.prop_flat_map(|records| {
        let segments = prop::collection::vec(0..6usize, records.len());
        (Just(records), segments).prop_map(|(records, at)| records.into_iter().zip(at).collect())
    })
}

type Totals = BTreeMap<(AppName, VersionNumber, UsageOutcome, u64), Quantities>;

fn add(totals: &mut Totals, key: (AppName, VersionNumber, UsageOutcome, u64), q: &Quantities) {
    totals.entry(key).or_default().add(q).expect("fits");
    totals.retain(|_, sum| !sum.is_zero());
}

proptest! {
    #[test]
    fn each_call_counts_once_as_its_last_record_says(
        written in written(), sent in prop::collection::vec(0..6usize, 0..20),
    ) {
        let mut segments: BTreeMap<usize, Vec<CallRecord>> = BTreeMap::new();
        for (record, at) in &written {
            segments.entry(*at).or_default().push(record.clone());
        }
        // Some come twice and in any order, all of them in the end.
        let order = sent.into_iter().chain(0..6);
        let (mut seen, mut totals) = (BTreeSet::new(), Totals::new());
        for at in order {
            let Some(records) = segments.get(&at) else { continue };
            let sums = roll_up(records).expect("bounded");
            prop_assert_eq!(&roll_up(records).expect("bounded"), &sums, "a batch is always the same");
            if !seen.insert(at) {
                continue;
            }
            for sum in sums {
                let q = Quantities::of_sum(&sum).expect("bounded");
                prop_assert!(!q.is_zero());
                let key = (sum.app, sum.version, sum.outcome, sum.first.get() / MINUTE_MS);
                add(&mut totals, key, &q);
            }
        }
        let mut last: BTreeMap<InvocationId, UsageRecord> = BTreeMap::new();
        for (record, _) in written {
            last.insert(record.used.invocation, record.used);
        }
        let mut expected = Totals::new();
        for used in last.into_values() {
            let q = Quantities::of(&used).expect("bounded");
            let minute = used.started_at.get() / MINUTE_MS;
            add(&mut expected, (used.app, used.version, used.outcome, minute), &q);
        }
        prop_assert_eq!(totals, expected);
    }

    #[test]
    fn the_order_of_records_changes_nothing(written in written()) {
        let mut records: Vec<CallRecord> = written.into_iter().map(|(record, _)| record).collect();
        let sums = roll_up(&records).expect("bounded");
        records.reverse();
        prop_assert_eq!(roll_up(&records).expect("bounded"), sums);
    }
}

#[test]
fn a_call_that_ended_in_the_segment_it_was_noted_in_leaves_one_sum() {
    let sums = roll_up(&records(1, (60_001, 0, 6, 2, true))).expect("bounded");
    let [sum] = sums.as_slice() else {
        panic!("{sums:?}")
    };
    assert_eq!((sum.outcome, sum.calls), (UsageOutcome::Ok, 1));
    assert_eq!((sum.first, sum.egress), (Timestamp(60_001), 3 * 6 + 7));
}

#[test]
fn what_no_call_can_use_is_refused_on_either_side() {
    let mut record = records(1, (0, 0, 2, 0, true)).remove(0);
    record.used.cpu_us = (1 << 56) + 1;
    assert_eq!(
        roll_up(std::slice::from_ref(&record)),
        Err(BillingError::OutOfRange("vcpu_seconds"))
    );
    record.used.cpu_us = 1 << 56;
    let mut sum = roll_up(std::slice::from_ref(&record))
        .expect("just so")
        .remove(0);
    assert!(Quantities::of_sum(&sum).is_ok());
    sum.cpu = -sum.cpu - 1;
    assert_eq!(
        Quantities::of_sum(&sum),
        Err(BillingError::OutOfRange("vcpu_seconds"))
    );
    sum.cpu = 0;
    sum.calls = 2;
    assert_eq!(
        Quantities::of_sum(&sum),
        Err(BillingError::OutOfRange("invocations"))
    );
    // More than 64 bits of one record's meters do not come together in a segment, and are no other number if they do.
    record.used.egress_bytes = 1 << 56;
    let many = vec![record; 200];
    assert_eq!(
        roll_up(&many),
        Err(BillingError::Overflow("a sum of usage"))
    );
}

#[test]
fn sums_survive_json() {
    let batch = UsageSums {
        batch: BatchId::from_uuid(Uuid::from_u128(2)),
        node: "n-1".parse().expect("node"),
        records: 1,
        sums: roll_up(&records(1, (5, 0, 9, 0, true))).expect("bounded"),
    };
    let json = serde_json::to_string(&batch).expect("json");
    assert_eq!(
        serde_json::from_str::<UsageSums>(&json).expect("own json"),
        batch
    );
}
