use fdn_core::figures::FiguresBy;
use fdn_core::message::AppObserved;
use fdn_core::rollout::CallCounts;
use fdn_core::{MessageId, Millis};

use super::*;
use crate::fixture;

/// A time well after 1970, at the beginning of a step of both windows.
const START: u64 = 1_800_000_000_000;

fn at(seconds: u64) -> Timestamp {
    Timestamp(START + seconds * 1000)
}

/// A node that has counted so many calls of an app, each of 2 ms; every tenth has failed.
fn status(node: &str, cluster: &str, app: &str, calls: u64) -> NodeStatus {
    let bucket = u8::try_from(Tally::bucket(Millis::new(2.0))).expect("few buckets");
    let tally = Tally {
        counts: CallCounts {
            calls,
            failures: calls / 10,
            latency: vec![(bucket, calls)],
        },
        cold_starts: u64::from(calls > 0),
    };
    let app = AppObserved {
        invocations: calls,
        figures: Some(Box::new(tally)),
        ..fixture::observed(app)
    };
    NodeStatus {
        apps: vec![app],
        ..fixture::status(node, cluster)
    }
}

fn shown(
    store: &SeriesStore,
    window: Window,
    by: FiguresBy,
    now: Timestamp,
) -> fdn_core::figures::Figures {
    summarize(
        &store.snapshots(window, now, |_| Some(at(0))),
        (window, by),
        None,
        10,
        now,
    )
}

#[test]
fn what_came_between_two_statuses_is_in_the_steps_between_them() {
    let mut store = SeriesStore::new(10);
    store.observe(
        (&status("a", "eu", "shop", 100), at(0)),
        (&status("a", "eu", "shop", 160), at(30)),
    );
    let figures = shown(&store, Window::Quarter, FiguresBy::Total, at(31));
    let points: Vec<(u64, u64)> = figures.series[0]
        .points
        .iter()
        .map(|p| (p.at.get() - START, p.calls))
        .collect();
    assert_eq!(points, [(10_000, 20), (20_000, 20), (30_000, 20)]);
    assert_eq!(
        (figures.series[0].sum.calls, figures.series[0].sum.errors),
        (60, 6)
    );
    let median = figures.series[0].sum.p50_ms.expect("calls").get();
    assert!((1.5..2.5).contains(&median), "{median}");
    let day = shown(&store, Window::Day, FiguresBy::Total, at(31));
    assert_eq!(day.series[0].points.len(), 1);
    assert_eq!(day.series[0].sum.calls, 60);
}

#[test]
fn what_was_before_the_tenant_had_the_name_is_left_out() {
    let mut store = SeriesStore::new(10);
    store.observe(
        (&status("a", "eu", "shop", 100), at(0)),
        (&status("a", "eu", "shop", 160), at(30)),
    );
    let steps = |window, since: Option<u64>| {
        let lines = store.snapshots(window, at(31), |_| since.map(at));
        lines.iter().map(|line| line.steps.len()).sum::<usize>()
    };
    for (since, expected) in [(Some(10), 3), (Some(11), 2), (Some(30), 1), (None, 0)] {
        assert_eq!(steps(Window::Quarter, since), expected, "{since:?}");
    }
    assert_eq!(
        (steps(Window::Day, Some(0)), steps(Window::Day, Some(1))),
        (1, 0)
    );
}

#[test]
fn a_node_that_began_anew_is_counted_from_nothing() {
    let mut store = SeriesStore::new(10);
    let before = status("a", "eu", "shop", 1000);
    let after = NodeStatus {
        boot: MessageId::from_uuid(uuid::Uuid::from_u128(2)),
        ..status("a", "eu", "shop", 7)
    };
    store.observe((&before, at(0)), (&after, at(2)));
    // An app that was not in the earlier status has made all its calls in between.
    store.observe((&after, at(2)), (&status("a", "eu", "other", 3), at(4)));
    let figures = shown(&store, Window::Quarter, FiguresBy::App, at(5));
    let sums: Vec<(&str, u64)> = figures
        .series
        .iter()
        .map(|s| (s.key.as_str(), s.sum.calls))
        .collect();
    assert_eq!(sums, [("shop", 7), ("other", 3)]);
}

#[test]
fn series_are_put_together_and_forgotten_with_time() {
    let mut store = SeriesStore::new(10);
    let zero = |node, cluster| status(node, cluster, "shop", 0);
    store.observe(
        (&zero("a", "eu"), at(0)),
        (&status("a", "eu", "shop", 10), at(2)),
    );
    store.observe(
        (&zero("b", "eu"), at(0)),
        (&status("b", "eu", "shop", 5), at(3)),
    );
    store.observe(
        (&zero("c", "us"), at(0)),
        (&status("c", "us", "shop", 1), at(2)),
    );
    let by = |by, now| {
        let figures = shown(&store, Window::Quarter, by, now);
        let sums = figures
            .series
            .iter()
            .map(|s| format!("{}={}", s.key, s.sum.calls));
        sums.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(by(FiguresBy::Cluster, at(5)), "eu=15 us=1");
    assert_eq!(by(FiguresBy::Region, at(5)), "eu=15 us=1");
    assert_eq!(by(FiguresBy::Total, at(5)), "total=16");
    assert_eq!(
        by(FiguresBy::Total, at(3600)),
        "total=0",
        "they are there although nothing happened"
    );
    assert_eq!(by(FiguresBy::App, at(3600)), "");
    let after = summarize(
        &store.snapshots(Window::Quarter, at(5), |_| Some(at(0))),
        (Window::Quarter, FiguresBy::App),
        Some(at(0)),
        10,
        at(5),
    );
    assert!(after.series[0].points.is_empty() && after.series[0].sum.calls == 16);
}

#[test]
fn memory_is_bounded_and_whoever_was_silent_longest_makes_room() {
    let mut store = SeriesStore::new(1);
    store.observe(
        (&status("a", "eu", "one", 0), at(0)),
        (&status("a", "eu", "one", 10), at(2)),
    );
    store.observe(
        (&status("a", "eu", "two", 0), at(2)),
        (&status("a", "eu", "two", 5), at(4)),
    );
    assert_eq!((store.len(), store.dropped()), (1, 1), "both are busy");
    store.observe(
        (&status("a", "eu", "two", 5), at(3600)),
        (&status("a", "eu", "two", 9), at(3602)),
    );
    let figures = shown(&store, Window::Quarter, FiguresBy::App, at(3603));
    assert_eq!(
        (figures.series[0].key.as_str(), figures.series[0].sum.calls),
        ("two", 4)
    );
    for hour in 0..100 {
        let (before, now) = (at(3600 * hour), at(3600 * hour + 2));
        store.observe(
            (&status("a", "eu", "two", 0), before),
            (&status("a", "eu", "two", 1), now),
        );
    }
    let series = store.series.values().next().expect("one");
    assert!(
        series.short.0.len() <= 1 && series.long.0.len() <= 24,
        "{}",
        series.long.0.len()
    );
}
