//! What the controller sends: snapshots, later changes, and gaps between them.

use fdn_core::Revision;
use fdn_core::feed::Frame;
use fdn_core::message::{BindingsChanged, Holders, Message};
use fdn_link::FeedEvent;
use fdn_testkit::wait;

use crate::common::{Fixture, app, bindings, network};

const CLIENT: &str = "192.0.2.0/24";
const EU: [&str; 2] = ["127.0.1.1", "127.0.1.2"];
const US: [&str; 2] = ["127.0.2.1", "127.0.2.2"];

/// An app, the revision of its bindings, and the bindings.
type Bound<'a> = (&'a str, u64, &'a [(&'a str, &'a str)]);

fn snapshot(revision: u64, apps: &[Bound<'_>]) -> FeedEvent {
    let apps = apps.iter();
    let apps = apps.map(|(app, at, bound)| Frame::Bindings(bindings(app, *at, bound)));
    let network = Frame::Network(network(1));
    FeedEvent::Snapshot(
        Revision(revision),
        std::iter::once(network).chain(apps).collect(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshots_bring_change_and_remove() {
    let fixture = Fixture::start(|_| {}).await;
    let send = async |event| fixture.controller.send_event(event).await;
    send(snapshot(4, &[("a", 2, &[]), ("b", 3, &[])])).await;
    fixture.answers("a.fn.test", CLIENT, &EU).await;
    fixture.answers("b.fn.test", CLIENT, &EU).await;

    // A change arrives before the next snapshot; neither may undo the other.
    fixture.publish(app("c", 9, &[])).await;
    fixture.answers("c.fn.test", CLIENT, &EU).await;
    send(snapshot(7, &[("a", 6, &[(CLIENT, "us-east")])])).await;
    fixture.answers("a.fn.test", CLIENT, &US).await;
    assert!(fixture.dig(&["b.fn.test"]).await.contains("NXDOMAIN"));
    fixture.answers("c.fn.test", CLIENT, &EU).await;

    // A snapshot from a controller with an older state is ignored.
    send(snapshot(1, &[])).await;
    fixture.publish(app("marker", 10, &[])).await;
    fixture.answers("marker.fn.test", CLIENT, &EU).await;
    // Without controllers, answers continue.
    fixture.controller.disconnect();
    fixture.answers("a.fn.test", CLIENT, &US).await;
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_what_is_not_here_ask_for_a_snapshot() {
    let fixture = Fixture::start(|_| {}).await;
    fixture
        .controller
        .send_event(snapshot(4, &[("a", 2, &[])]))
        .await;
    fixture.answers("a.fn.test", CLIENT, &EU).await;
    let changed = BindingsChanged {
        app: "a".parse().expect("app"),
        revision: Revision(9),
        base: Revision(8),
        changes: vec![],
        holders: None,
    };
    fixture.publish(Message::BindingsChanged(changed)).await;
    fixture.controller.snapshot_requested().await;
    assert_eq!(fixture.addresses("a.fn.test", CLIENT).await, EU);
    fixture
        .controller
        .send_event(snapshot(9, &[("a", 9, &[(CLIENT, "us-east")])]))
        .await;
    fixture.answers("a.fn.test", CLIENT, &US).await;
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn that_all_was_told_confirms_the_state() {
    let fixture = Fixture::start(|_| {}).await;
    fixture
        .controller
        .send_event(snapshot(4, &[("a", 2, &[])]))
        .await;
    fixture.answers("a.fn.test", CLIENT, &EU).await;
    fixture
        .controller
        .send_event(FeedEvent::At(Revision(4)))
        .await;
    wait::until("the state to be confirmed", async || {
        match fixture.metric("fdn_dns_state_age_seconds").await {
            age if age < 30 => Ok(()),
            age => Err(age),
        }
    })
    .await;
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_are_sent_only_to_clusters_that_hold_the_app() {
    let fixture = Fixture::with_hello(|_| {}).await;
    let held_by = |revision, names: &[&str]| {
        let mut desired = bindings("hello", revision, &[(CLIENT, "eu-west")]);
        let names = names.iter().map(|name| name.parse().expect("cluster"));
        if let Some(state) = &mut desired.state {
            state.holders = Holders::only(names.collect());
        }
        Message::BindingsDesired(desired)
    };
    fixture.publish(held_by(5, &["eu-west", "us-east"])).await;
    fixture.answers("hello.fn.test", CLIENT, &EU).await;
    // ap-south is the nearest cluster to these clients, but does not hold the app.
    let far = "203.0.113.0/24";
    let got = fixture.addresses("hello.fn.test", far).await;
    assert!(got == EU || got == US, "{got:?}");
    // The binding names a cluster that no longer holds the app.
    fixture.publish(held_by(6, &["us-east"])).await;
    fixture.answers("hello.fn.test", CLIENT, &US).await;
    fixture.answers("hello.fn.test", far, &US).await;
    fixture.dns.stop().await;
}
