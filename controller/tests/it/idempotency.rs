//! Requests with an idempotency key: each is carried out by one attempt, on both databases.

use fdn_controller::app::actor::Actor;
use fdn_controller::app::idempotency::{self, Attempt};
use fdn_controller::app::policy;
use fdn_controller::store::idempotency::{
    BegunRequest, idempotency_begin, idempotency_done, idempotency_forget,
};
use fdn_controller::store::{DEFAULT_TENANT, StoreError};
use fdn_core::policy::api::CreateKey;
use fdn_core::{Coded, Timestamp};
use fdn_testkit::components;
use serde_json::Value;

use crate::rig::{Backend, Rig, on_both};

on_both!(of_a_request_that_was_begun_twice_one_is_carried_out);

async fn of_a_request_that_was_begun_twice_one_is_carried_out(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    rig.deploy("shop", components::hello("hello")).await;
    let state = rig.controller.state();
    let (now, hash) = (fdn_service::now(), "a".repeat(64));
    // The first one outlasts its lease, and the same one is begun again.
    let lease = rig.settings.api.idempotency_lease.as_millis();
    let first = BegunRequest {
        key: "k".to_owned(),
        at: Timestamp(now.get() - 2 * lease),
    };
    let mut connection = state.store.read().await.expect("connected");
    let times = (first.at, first.at);
    let begun = idempotency_begin(&mut connection, "ann", "k", &hash, times).await;
    assert!(begun.expect("asked"));
    drop(connection);
    let begin = async || idempotency::begin(state, "ann", "k", &hash).await;
    let Ok(Attempt::First(second)) = begin().await else {
        panic!("it may begin");
    };
    let by = |begun: &BegunRequest| Actor {
        idempotency: Some(begun.clone()),
        ..Actor::named("ann")
    };
    // Of different names: one that is taken would be refused, whoever has carried out what.
    let make = async |begun: &BegunRequest, name: &str| {
        let wish = CreateKey {
            name: name.parse().expect("a name"),
            ttl: None,
        };
        let app = "shop".parse().expect("app");
        policy::create_key(state, DEFAULT_TENANT, &by(begun), &app, &wish, now).await
    };
    // The slow one commits first, and counts.
    make(&first, "a").await.expect("carried out");
    let Err(late) = make(&second, "b").await else {
        panic!("it is carried out already");
    };
    assert_eq!(late.code().as_str(), "FDN-2015", "{late}");
    // Neither the refusal of the second one nor an answer of it concerns the first.
    idempotency::forget(state, &by(&second), &second)
        .await
        .expect("asked");
    idempotency::store_answer(state, "ann", &second, &hash, "second")
        .await
        .expect("asked");
    idempotency::store_answer(state, "ann", &first, &hash, "first")
        .await
        .expect("kept");
    let again = begin().await.expect("answered");
    assert_eq!(again, Attempt::Again("first".to_owned()));
    let keys = rig.get::<Vec<Value>>("/v1/apps/shop/keys").await;
    assert_eq!(keys.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_begun_by_one() {
    let folder = tempfile::tempdir().expect("folder");
    let store = Backend::Sqlite.store(folder.path()).await;
    let c = &mut *store.read().await.expect("connected");
    let at = Timestamp;
    let hash = "a".repeat(64);
    let mut begin = async |now: u64, stale: u64, hash: &str| {
        idempotency_begin(c, "ann", "k", hash, (at(now), at(stale)))
            .await
            .expect("begun")
    };
    assert!(begin(100, 0, &hash).await);
    assert!(!begin(101, 99, &hash).await, "it runs");
    assert!(
        !begin(102, 100, &"b".repeat(64)).await,
        "it is another request"
    );
    assert!(begin(103, 100, &hash).await, "its lease is over");
    let begun = |now: u64| BegunRequest {
        key: "k".to_owned(),
        at: at(now),
    };
    // The refusal of the first one does not concern the second.
    idempotency_forget(c, "ann", &begun(100))
        .await
        .expect("asked");
    for _ in 0..2 {
        // A transaction may say it with each of its audit entries.
        idempotency_done(c, "ann", &begun(103), at(104))
            .await
            .expect("done");
    }
    let late = idempotency_done(c, "ann", &begun(100), at(105)).await;
    assert!(matches!(late, Err(StoreError::Overtaken)), "{late:?}");
    let again = idempotency_begin(c, "ann", "k", &hash, (at(900), at(800))).await;
    assert!(!again.expect("asked"), "it was carried out");
}
