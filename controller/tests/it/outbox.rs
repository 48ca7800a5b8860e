//! State changes and their messages are committed together: with the broker down, after a crash, after a lost confirmation.

use fdn_controller::store::outbox::outbox_stats;
use fdn_core::message::{Channel, Message};
use fdn_core::{MessageId, Revision};
use fdn_testkit::{components, wait};
use reqwest::Method;

use crate::broker::next_of;
use crate::rig::{Backend, Rig, on_both};

on_both!(
    messages_wait_for_the_broker_and_keep_their_order,
    a_crash_between_commit_and_publish_loses_nothing,
    a_lost_confirmation_sends_the_same_message_again,
);

async fn depth(rig: &Rig) -> u64 {
    let mut connection = rig
        .controller
        .state()
        .store
        .read()
        .await
        .expect("connected");
    outbox_stats(&mut connection).await.expect("counted").depth
}

async fn emptied(rig: &Rig) {
    wait::until("the outbox to be empty", async || match depth(rig).await {
        0 => Ok(()),
        n => Err(format!("{n} messages")),
    })
    .await;
}

fn app_desired(message: Message) -> (String, Revision, bool) {
    match message {
        Message::AppDesired(app) => (app.app.to_string(), app.revision, app.spec.is_some()),
        other => panic!("not for nodes: {other:?}"),
    }
}

async fn messages_wait_for_the_broker_and_keep_their_order(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let mut nodes = rig.broker.listen(Channel::Changes).await;
    rig.broker.down();
    for app in ["one", "two", "three", "four"] {
        rig.deploy(app, components::hello(app)).await;
    }
    // A newer unsent message about the same thing replaces the older one.
    rig.deploy("one", components::hello("one again")).await;
    assert_eq!(
        rig.request(Method::DELETE, "/v1/apps/three")
            .send()
            .await
            .expect("an answer")
            .status(),
        204
    );
    assert!(depth(&rig).await >= 8, "an app is told to nodes and DNS");
    rig.broker.up();
    let mut got = Vec::new();
    for _ in 0..4 {
        got.push(app_desired(
            next_of(&mut nodes, "app_desired").await.message,
        ));
    }
    let order: Vec<(&str, bool)> = got
        .iter()
        .map(|(app, _, there)| (app.as_str(), *there))
        .collect();
    assert_eq!(
        order,
        [
            ("two", true),
            ("four", true),
            ("one", true),
            ("three", false)
        ]
    );
    assert!(
        got.windows(2).all(|pair| pair[0].1 < pair[1].1),
        "revisions grow: {got:?}"
    );
    emptied(&rig).await;
}

async fn a_crash_between_commit_and_publish_loses_nothing(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let mut nodes = rig.broker.listen(Channel::Changes).await;
    rig.broker.down();
    let deployed = rig.deploy("hello", components::hello("x")).await;
    assert!(depth(&rig).await >= 2);
    let rig = rig.restart().await;
    assert!(depth(&rig).await >= 2, "the messages survived the process");
    rig.broker.up();
    let (app, revision, _) = app_desired(next_of(&mut nodes, "app_desired").await.message);
    assert_eq!((app.as_str(), revision), ("hello", deployed.revision));
    let Message::BindingsDesired(bindings) = next_of(&mut nodes, "bindings_desired").await.message
    else {
        panic!("another message");
    };
    let state = bindings.state.expect("there");
    assert_eq!(state.host.as_str(), "hello.fn.test");
    emptied(&rig).await;
}

async fn a_lost_confirmation_sends_the_same_message_again(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    // Wait until the messages of the start itself are sent.
    wait::until("the network to be told", async || {
        let mut connection = rig
            .controller
            .state()
            .store
            .read()
            .await
            .expect("connected");
        let told = fdn_controller::store::network::network_get(&mut connection)
            .await
            .expect("read");
        told.map(drop).ok_or("not yet")
    })
    .await;
    emptied(&rig).await;
    let mut nodes = rig.broker.listen(Channel::Changes).await;
    rig.broker.lose_a_confirmation();
    rig.deploy("hello", components::hello("x")).await;
    let ids: [MessageId; 2] = [
        next_of(&mut nodes, "app_desired").await.id,
        next_of(&mut nodes, "app_desired").await.id,
    ];
    assert_eq!(ids[0], ids[1], "receivers know it by its id");
    emptied(&rig).await;
}
