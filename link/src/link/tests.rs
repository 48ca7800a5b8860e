//! Tests of the pauses between feeds.

use fdn_core::DurationMs;
use fdn_core::feed::Hello;

use super::*;

/// A link to controllers that nobody connects to.
fn link(controllers: usize) -> Link {
    let nowhere = || "missing".into();
    Link {
        sender: ArcSwapOption::empty(),
        settings: ControllerLinkSettings {
            controllers: vec!["controller.test:8601".to_owned(); controllers],
            ..ControllerLinkSettings::default()
        },
        files: IdentityFiles {
            ca: nowhere(),
            certificate: nowhere(),
            key: nowhere(),
        },
        metrics: LinkMetrics::new(&Registry::new(), "test").expect("metrics"),
        connected: watch::Sender::new(false),
        resync: Arc::default(),
    }
}

/// The number of feeds within a minute that all end at once.
fn feeds_in_a_minute(link: &Link, complete: bool) -> usize {
    let (mut at, mut failures, mut feeds) = (Duration::ZERO, 0, 0);
    while at < Duration::from_secs(60) && feeds < 1000 {
        feeds += 1;
        at += link.pause_after_feed(complete, &mut failures);
    }
    feeds
}

#[test]
fn feeds_that_break_before_they_are_complete_are_opened_ever_more_rarely() {
    // The pauses are at least half of 0.5 s, 1 s, 2 s and so on up to 30 s; of several controllers each is tried once between them.
    for (controllers, most) in [(1, 10), (3, 30)] {
        let feeds = feeds_in_a_minute(&link(controllers), false);
        assert!((4..=most).contains(&feeds), "{controllers}: {feeds}");
    }
}

#[test]
fn a_feed_that_was_complete_ends_the_failures() {
    let link = link(1);
    let mut failures = 0;
    for n in 1..=10 {
        link.pause_after_feed(false, &mut failures);
        assert_eq!(failures, n);
    }
    let pause = link.pause_after_feed(true, &mut failures);
    assert_eq!(failures, 0);
    assert!(pause <= link.settings.spread.as_duration(), "{pause:?}");
}

#[tokio::test]
async fn a_feed_is_complete_once_it_says_up_to_where_and_not_before() {
    let link = link(1);
    let (events, mut received) = mpsc::channel(FEED_BUFFER);
    let (mut since, mut complete) = (Revision::NONE, false);
    let mut reader = FeedReader {
        link: &link,
        decoder: Decoder::new(1 << 20),
        silence: FIRST_FRAME_TIMEOUT,
        snapshot: None,
        events: &events,
        since: &mut since,
        complete: &mut complete,
    };
    let hello = Frame::Hello(Hello {
        heartbeat: DurationMs::from_secs(30),
    });
    for frame in [hello, Frame::Snapshot(Revision(7)), Frame::Used(vec![])] {
        let taken = reader.take(frame, 10).await.expect("a good frame");
        assert!(taken.is_some() && !*reader.complete);
    }
    let taken = reader.take(Frame::At(Revision(7)), 10).await;
    assert!(taken.expect("a good frame").is_some());
    assert!(complete);
    assert_eq!(since, Revision(7));
    let snapshot = received.recv().await.expect("an event");
    assert!(matches!(snapshot, FeedEvent::Snapshot(Revision(7), frames) if frames.len() == 1));
}
