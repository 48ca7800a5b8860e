//! Bills against a slow and simple book: whatever the order, doubling and delay of batches, every record is billed once.

use std::collections::BTreeMap;

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::id::{InvocationId, TenantId, VersionNumber};
use crate::unit::{MebiBytes, Timestamp};
use crate::usage::{UsageOutcome, UsageRecord};

const MONTHS: [&str; 3] = ["2026-09", "2026-10", "2026-11"];

fn month(text: &str) -> Month {
    text.parse().expect("month")
}

/// The moment after everything: all months of the records are over.
fn end() -> Timestamp {
    month(MONTHS[2]).end()
}

fn list(name: &str, from: Day, to: Option<Day>, price: u32, free: u64) -> PriceList {
    PriceList {
        name: name.parse().expect("name"),
        currency: Currency::EUR,
        from,
        to,
        prices: Meter::ALL
            .into_iter()
            .map(|meter| (meter, Price::new(price, 3)))
            .collect(),
        free: Meter::ALL.into_iter().map(|meter| (meter, free)).collect(),
    }
}

/// Two lists, the second from a day on.
fn prices(change: Day, free: u64) -> Prices {
    let first = list(
        "first",
        month("2026-01").first_day(),
        Some(change),
        17,
        free,
    );
    Prices::new(
        vec![list("second", change, None, 29, free / 2), first],
        Currency::EUR,
    )
    .expect("valid")
}

fn slot(record: &UsageRecord, open: Option<Month>) -> Slot {
    let hour = hour_of(record.started_at, end());
    let account = Account {
        tenant: TenantId::from_uuid(Uuid::nil()),
        app: record.app.clone(),
        function: record.function.clone(),
        version: record.version,
        cluster: "c".parse().expect("cluster"),
        region: "r".parse().expect("region"),
    };
    Slot {
        account,
        period: period_of(hour, open),
        at: hour,
    }
}

/// What the store does, without a store.
#[derive(Default)]
struct Book {
    known: BTreeMap<InvocationId, UsageRecord>,
    sums: BTreeMap<Slot, Quantities>,
    open: Option<Month>,
}

impl Book {
    fn take(&mut self, records: &[UsageRecord]) {
        let mut deltas = Deltas::default();
        for record in records {
            let running = record.outcome == UsageOutcome::Running;
            match self.known.get(&record.invocation) {
                Some(old) if old.outcome != UsageOutcome::Running || running => continue,
                Some(old) => {
                    let was = Quantities::of(old).expect("bounded");
                    deltas.sub(slot(old, self.open), &was).expect("fits");
                }
                None => {}
            }
            let is = Quantities::of(record).expect("bounded");
            deltas.add(slot(record, self.open), &is).expect("fits");
            self.known.insert(record.invocation, record.clone());
        }
        for (slot, quantities) in deltas.by_day().expect("fits").iter() {
            self.sums
                .entry(slot.clone())
                .or_default()
                .add(quantities)
                .expect("fits");
        }
    }

    fn used<'a>(
        &self,
        prices: &'a Prices,
        month: Month,
        periods: std::ops::RangeInclusive<Month>,
    ) -> Vec<(Segment<'a>, Vec<UsageEntry>)> {
        let of = |segment: &Segment<'_>| {
            let (from, to) = (segment.from.start(), segment.to.start());
            let mine =
                |slot: &Slot| periods.contains(&slot.period) && (from..to).contains(&slot.at);
            let used = self.sums.iter().filter(|(slot, _)| mine(slot));
            let used = used.map(|(slot, quantities)| UsageEntry {
                place: Dimensions {
                    function: Some(slot.account.function.clone()),
                    ..Dimensions::default()
                },
                quantities: *quantities,
            });
            used.collect()
        };
        let segments = prices.segments(month).into_iter();
        segments
            .map(|segment| (segment.clone(), of(&segment)))
            .collect()
    }

    fn bill(&self, prices: &Prices, period: Month) -> PricedLines {
        let before = MONTHS.map(month).into_iter().filter(|m| *m < period);
        let late: Vec<LateUsage<'_>> = before
            .map(|m| LateUsage {
                month: m,
                before: self.used(prices, m, m..=period.previous()),
                after: self.used(prices, m, m..=period),
            })
            .collect();
        bill(period, &self.used(prices, period, period..=period), &late).expect("fits")
    }
}

fn record(n: usize, (at, function, size, egress): (u64, bool, u32, u32)) -> UsageRecord {
    let start = month(MONTHS[0]).start().get();
    UsageRecord {
        invocation: InvocationId::from_uuid(Uuid::from_u128(n as u128)),
        app: "app".parse().expect("app"),
        function: if function { "one" } else { "two" }
            .parse()
            .expect("function"),
        version: VersionNumber::FIRST,
        started_at: Timestamp(start + at % (end().get() - start)),
        duration_us: u64::from(size),
        cpu_us: u64::from(size / 3),
        memory_mib: MebiBytes(u64::from(size % 700)),
        gpu_memory_mib: MebiBytes(u64::from(size % 5)),
        egress_bytes: u64::from(egress),
        outcome: UsageOutcome::Ok,
    }
}

fn records() -> impl Strategy<Value = Vec<UsageRecord>> {
    let one = (any::<u64>(), any::<bool>(), any::<u32>(), any::<u32>());
    prop::collection::vec(one, 0..40).prop_map(|all| {
        all.into_iter()
            .enumerate()
            .map(|(n, values)| record(n, values))
            .collect()
    })
}

/// All records, the batches in which they come, and before which of them a month is closed.
type Deliveries = (Vec<UsageRecord>, Vec<Vec<UsageRecord>>, Vec<usize>);

/// Each record comes once at least, in any order, half of them twice, some of them first as still running.
fn deliveries() -> impl Strategy<Value = Deliveries> {
    let doubled = |records: Vec<UsageRecord>| {
        let noted = records.iter().step_by(3).map(|record| UsageRecord {
            duration_us: record.duration_us / 2,
            egress_bytes: record.egress_bytes + 1,
            outcome: UsageOutcome::Running,
            ..record.clone()
        });
        let mut all: Vec<UsageRecord> = noted.chain(records.clone()).collect();
        all.extend(all.clone().into_iter().step_by(2));
        (Just(records), Just(all).prop_shuffle())
    };
    let closings = prop::collection::vec(0usize..12, 3);
    (records().prop_flat_map(doubled), 1usize..7, closings).prop_map(
        |((records, sent), size, closings)| {
            let batches = sent.chunks(size).map(<[_]>::to_vec).collect();
            (records, batches, closings)
        },
    )
}

fn sum<'a>(all: impl IntoIterator<Item = &'a Quantities>) -> Quantities {
    let mut sum = Quantities::default();
    all.into_iter().for_each(|one| sum.add(one).expect("fits"));
    sum
}

fn usage(lines: &PricedLines) -> Quantities {
    let of = |(key, line): (&Key, &Amount)| Quantities::one(key.meter, line.quantity);
    let all: Vec<Quantities> = lines
        .0
        .iter()
        .filter(|(key, _)| key.kind == Kind::Usage)
        .map(of)
        .collect();
    sum(&all)
}

proptest! {
    #[test]
    fn lines_are_what_records_are_and_late_ones_cost_what_they_would_have(
        (records, batches, closings) in deliveries(), change in 0u32..91, free in 0u64..2000,
    ) {
        let change = (0..change).fold(month(MONTHS[0]).first_day(), |day, _| day.next());
        let prices = prices(change, free);
        let (mut book, mut issued) = (Book::default(), Vec::new());
        let close = |book: &mut Book, issued: &mut Vec<PricedLines>| {
            let period = book.open.unwrap_or(month(MONTHS[0]));
            book.open = Some(period.next());
            issued.push(book.bill(&prices, period));
        };
        for (n, batch) in batches.iter().enumerate() {
            book.take(batch);
            for _ in closings.iter().filter(|at| **at == n) {
                close(&mut book, &mut issued);
            }
        }
        // The last statements take what came after the others.
        while issued.len() < 4 {
            close(&mut book, &mut issued);
        }
        let known: Vec<Quantities> = records.iter().map(|r| Quantities::of(r).expect("bounded")).collect();
        let billed: Vec<Quantities> = issued.iter().map(usage).collect();
        prop_assert_eq!(sum(&billed), sum(&known));

        let mut in_time = Book::default();
        in_time.take(&records);
        let total = |all: &[PricedLines]| {
            all.iter().map(|lines| lines.total(Currency::EUR).expect("fits").micros).sum::<i64>()
        };
        let once = MONTHS.map(|m| in_time.bill(&prices, month(m)));
        prop_assert_eq!(total(&issued), total(&once));
        prop_assert!(once.iter().all(|lines| lines.total(Currency::EUR).expect("fits").micros >= 0));
    }

    #[test]
    fn more_usage_never_costs_less(
        records in records(), more in (any::<u64>(), any::<bool>(), any::<u32>(), any::<u32>()),
        change in 0u32..91, free in 0u64..100_000,
    ) {
        let change = (0..change).fold(month(MONTHS[0]).first_day(), |day, _| day.next());
        let prices = prices(change, free);
        let cost = |book: &Book| -> i64 {
            let lines = MONTHS.map(|m| book.bill(&prices, month(m)));
            lines.iter().map(|lines| lines.total(Currency::EUR).expect("fits").micros).sum()
        };
        let mut book = Book::default();
        book.take(&records);
        let before = cost(&book);
        book.take(&[record(1000, more)]);
        prop_assert!(cost(&book) >= before);
    }

    #[test]
    fn rounding_is_by_half_a_micro_unit_at_most(
        quantity in -1_000_000_000_000_000i128..1_000_000_000_000_000, micros in 0u32..1_000_000, per in 1u32..1_000_000,
    ) {
        for meter in Meter::ALL {
            let rounded = i128::from(Price::new(micros, per).of(meter, quantity).expect("fits"));
            let parts = meter.scale() * i128::from(per);
            let off = (rounded * parts - quantity * i128::from(micros)).abs();
            prop_assert!(2 * off <= parts, "{meter}: {off} of {parts}");
        }
    }
}

#[test]
fn a_change_of_prices_splits_lines_at_its_day() {
    let change: Day = "2026-10-16".parse().expect("day");
    let prices = prices(change, 0);
    let at =
        |day: &str| day.parse::<Day>().expect("day").start().get() - month(MONTHS[0]).start().get();
    let mut book = Book::default();
    book.take(&[
        record(1, (at("2026-10-16") - 1, true, 0, 0)),
        record(2, (at("2026-10-16"), true, 0, 0)),
        record(3, (at("2026-10-31"), true, 0, 0)),
    ]);
    let lines = book.bill(&prices, month("2026-10"));
    let calls: Vec<_> = lines
        .0
        .iter()
        .filter(|(key, _)| key.meter == Meter::Invocations)
        .collect();
    let shown: Vec<(String, String, i128, i64)> = calls
        .iter()
        .map(|(key, line)| {
            (
                key.from.to_string(),
                key.to.to_string(),
                line.quantity,
                line.micros,
            )
        })
        .collect();
    // 17 and 29 micro-units for three calls.
    assert_eq!(
        shown,
        [
            ("2026-10-01".to_owned(), "2026-10-16".to_owned(), 1, 6),
            ("2026-10-16".to_owned(), "2026-11-01".to_owned(), 2, 19),
        ]
    );
}

#[test]
fn what_is_free_is_the_earliest_usage_and_leaves_nothing_over() {
    let prices = prices("2026-10-16".parse().expect("day"), 2);
    let day = 86_400_000;
    let mut book = Book::default();
    book.take(
        &(0..3)
            .map(|n| record(n, (day * (40 + 5 * n as u64), n == 0, 0, 0)))
            .collect::<Vec<_>>(),
    );
    let lines = book.bill(&prices, month("2026-10"));
    let free: Vec<_> = lines
        .0
        .iter()
        .filter(|(key, _)| key.kind == Kind::FreeTier)
        .collect();
    assert_eq!(free.len(), 2, "{free:?}");
    assert_eq!(free[0].1.quantity + free[1].1.quantity, -2);
    // Two calls at 29 for three cost 19, one of them is free, which is 10.
    assert_eq!(lines.total(Currency::EUR).expect("fits").micros, 9);
}

#[test]
fn what_does_not_fit_is_an_error() {
    let mut sum = Quantities::one(Meter::EgressGib, i128::MAX);
    assert!(matches!(
        sum.add(&Quantities::one(Meter::EgressGib, 1)),
        Err(BillingError::Overflow(_))
    ));
    assert_eq!(sum.get(Meter::EgressGib), i128::MAX, "it stays what it was");
    let dear = Price::new(u32::MAX, 1);
    assert!(matches!(
        dear.of(Meter::Invocations, i128::MAX),
        Err(BillingError::Overflow(_))
    ));
    assert!(matches!(
        dear.of(Meter::Invocations, 1 << 40),
        Err(BillingError::Overflow(_))
    ));
    let broken = UsageRecord {
        duration_us: u64::MAX,
        ..record(1, (0, true, 699, 0))
    };
    assert_eq!(
        Quantities::of(&broken),
        Err(BillingError::OutOfRange("gib_seconds"))
    );
}

#[test]
fn price_lists_never_overlap_and_months_are_covered() {
    let day = |text: &str| text.parse::<Day>().expect("day");
    let open = list("open", day("2026-01-01"), None, 1, 0);
    let next = list("next", day("2026-11-05"), None, 1, 0);
    let made = Prices::new(vec![open.clone(), next.clone()], Currency::EUR);
    assert!(matches!(made, Err(BillingError::Overlap { day: at, .. }) if at == day("2026-11-05")));
    let usd = "USD".parse().expect("currency");
    assert!(matches!(
        Prices::new(vec![open.clone()], usd),
        Err(BillingError::Currencies(..))
    ));
    let never = PriceList {
        to: Some(open.from),
        ..open
    };
    assert!(matches!(
        Prices::new(vec![never], Currency::EUR),
        Err(BillingError::PriceList(_))
    ));
    let prices = Prices::new(vec![next], Currency::EUR).expect("valid");
    let parts: Vec<_> = prices
        .segments(month("2026-11"))
        .iter()
        .map(|s| (s.from, s.to, s.list.is_some()))
        .collect();
    assert_eq!(
        parts,
        [
            (day("2026-11-01"), day("2026-11-05"), false),
            (day("2026-11-05"), day("2026-12-01"), true)
        ]
    );
}

#[test]
fn a_price_list_is_written_as_people_write() {
    let text = r#"{"name":"basic","currency":"EUR","from":"2026-11-01","prices":{"invocations":{"price":"0.20","per":1000000}},
        "free":{"invocations":1000000}}"#;
    let list: PriceList = serde_json::from_str(text).expect("valid");
    assert_eq!(
        list.prices[&Meter::Invocations].of(Meter::Invocations, 3_000_000),
        Ok(600_000)
    );
    let again = serde_json::to_string(&list).expect("JSON");
    assert_eq!(
        serde_json::from_str::<PriceList>(&again).expect("its own"),
        list
    );
    for bad in [
        r#"{"price":"0.0000001"}"#,
        r#"{"price":"1","per":0}"#,
        r#"{"price":"1000000.000001"}"#,
        r#"{"price":-1}"#,
        r#"{"price":"1","each":1}"#,
    ] {
        assert!(serde_json::from_str::<Price>(bad).is_err(), "{bad}");
    }
}
