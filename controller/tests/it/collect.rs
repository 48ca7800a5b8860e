//! The artifact collector: unused artifacts are removed after a grace period; those in use, or about to be used, never are.

use fdn_controller::app::collect::{mark, round, sweep};
use fdn_controller::artifacts::Object;
use fdn_controller::store::artifact::{
    artifact_claim, artifact_find, artifact_list_unused, artifact_mark, artifact_use, trash_list,
};
use fdn_controller::store::billing::artifact::artifact_list_stored;
use fdn_controller::store::revision::revision_lock;
use fdn_controller::store::version::{function_version_next, version_insert};
use fdn_controller::store::{DEFAULT_TENANT, Store};
use fdn_core::api::AppDetail;
use fdn_core::{Digest, Timestamp, VersionNumber};
use fdn_testkit::{components, wait};
use reqwest::{Method, StatusCode};
use serde_json::json;
use sqlx::AnyConnection;

use crate::rig::{Backend, Rig, on_both};
use crate::store::{store, version_row};

on_both!(
    what_nobody_uses_goes_after_its_grace_time,
    one_version_goes_once_nothing_refers_to_it,
    an_upload_of_what_is_being_removed_keeps_its_own,
    of_mark_and_use_one_sees_the_other,
    a_claim_makes_young,
);

/// A time at which everything unused now has outlived the grace period.
fn later(rig: &Rig) -> Timestamp {
    let grace = rig.settings.artifacts.grace.as_millis();
    Timestamp(fdn_service::now().get() + 2 * grace)
}

async fn delete(rig: &Rig, app: &str) {
    let request = rig.request(Method::DELETE, &format!("/v1/apps/{app}"));
    assert_eq!(request.send().await.expect("an answer").status(), 204);
}

/// Whether nodes can still get the artifact.
async fn is_there(rig: &Rig, digest: &Digest) -> bool {
    let state = rig.controller.state();
    let mut connection = state.store.read().await.expect("connected");
    match artifact_find(&mut connection, digest).await {
        Ok(object) => state.artifacts.get(&object, None).await.is_ok(),
        Err(_) => false,
    }
}

async fn what_nobody_uses_goes_after_its_grace_time(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let state = rig.controller.state();
    let shared = components::hello("shared");
    let one = rig.deploy("one", shared.clone()).await;
    rig.deploy("two", shared).await;
    let own = rig.deploy("one", components::hello("own")).await;
    delete(&rig, "one").await;
    // Billing of storage ends with the version, not with its bytes.
    let mut connection = state.store.read().await.expect("connected");
    let kept = artifact_list_stored(
        &mut connection,
        DEFAULT_TENANT,
        fdn_service::now(),
        Timestamp(fdn_service::now().get() + 1000),
    );
    let kept = kept.await.expect("read");
    drop(connection);
    assert!(
        kept.iter().all(|kept| kept.function.as_str() == "two"),
        "{kept:?}"
    );
    assert_eq!(round(state, fdn_service::now()).await.expect("done"), 0);
    assert_eq!(rig.artifacts().len(), 2, "the grace time has just begun");

    assert_eq!(round(state, later(&rig)).await.expect("done"), 1);
    assert_eq!(rig.artifacts().len(), 1);
    assert!(!is_there(&rig, &own.digest).await);
    assert!(is_there(&rig, &one.digest).await, "the other app has it");
    assert_eq!(
        round(state, later(&rig)).await.expect("done"),
        0,
        "again does nothing"
    );
    delete(&rig, "two").await;
    assert_eq!(round(state, later(&rig)).await.expect("done"), 1);
    assert_eq!(rig.artifacts(), [""; 0]);
    let text = rig
        .anonymous(Method::GET, "/metrics")
        .send()
        .await
        .expect("an answer");
    let text = text.text().await.expect("text");
    assert!(
        text.contains("fdn_controller_artifacts_collected_total 2"),
        "{text}"
    );
}

async fn one_version_goes_once_nothing_refers_to_it(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let shared = components::hello("shared");
    rig.deploy("other", shared.clone()).await;
    let first = rig.deploy("hello", shared).await;
    let second = rig.deploy("hello", components::hello("second")).await;
    let flow = rig.request(Method::PUT, "/v1/apps/flow/workflow");
    let flow = flow.body("stages:\n  - name: only\n    function: hello\n");
    let flow = flow.header("content-type", "application/yaml").send().await;
    assert!(flow.expect("an answer").status().is_success());
    rig.deploy("hello", components::hello("third")).await;
    let split = async |body: serde_json::Value| {
        let put = rig.request(Method::PUT, "/v1/apps/hello/traffic");
        let answer = put.json(&body).send().await.expect("an answer");
        assert!(answer.status().is_success(), "{answer:?}");
    };
    let half = |version: u32| json!({ "version": version, "weight": 50 });
    split(json!({ "split": [half(1), half(3)] })).await;
    let of =
        |number: u32| rig.request(Method::DELETE, &format!("/v1/apps/hello/versions/{number}"));
    for (number, why) in [(3, "the current one"), (1, "split"), (2, "workflow flow")] {
        let (status, problem) = rig.refused(of(number)).await;
        assert_eq!(status, StatusCode::CONFLICT);
        assert!(problem.detail.contains(why), "{}", problem.detail);
    }
    split(json!({ "split": [] })).await;
    delete(&rig, "flow").await;
    for number in [1, 2] {
        assert_eq!(of(number).send().await.expect("an answer").status(), 204);
    }
    assert_eq!(rig.code(of(2)).await, "FDN-2003", "once");
    let detail: AppDetail = rig.get("/v1/apps/hello").await;
    let left: Vec<u32> = detail.versions.iter().map(|v| v.version.get()).collect();
    assert_eq!(left, [3]);
    let back = rig
        .request(Method::POST, "/v1/apps/hello/rollback")
        .json(&json!({}));
    assert_eq!(rig.refused(back).await.0, StatusCode::CONFLICT, "to what?");

    let state = rig.controller.state();
    assert_eq!(round(state, later(&rig)).await.expect("done"), 1);
    assert!(!is_there(&rig, &second.digest).await);
    assert!(is_there(&rig, &first.digest).await, "of another");
    let next = rig.deploy("hello", components::hello("second")).await;
    assert_eq!(next.version.get(), 4, "numbers are given once");
    assert!(is_there(&rig, &next.digest).await, "it is back");
}

async fn an_upload_of_what_is_being_removed_keeps_its_own(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let state = rig.controller.state();
    let hello = components::hello("again");
    let first = rig.deploy("hello", hello.clone()).await;
    delete(&rig, "hello").await;
    // A collector marks it, and stops before it removes the object.
    assert_eq!(mark(state, later(&rig)).await.expect("marked"), 1);
    let second = rig.deploy("hello", hello).await;
    assert_eq!(first.digest, second.digest);
    assert_eq!(rig.artifacts().len(), 2, "the old object and the new one");
    assert_eq!(sweep(state).await.expect("swept"), 1);
    assert!(is_there(&rig, &second.digest).await);
    assert_eq!(rig.artifacts().len(), 1);
    // A late repetition, which knows the old object.
    assert_eq!(sweep(state).await.expect("swept"), 0);
    assert!(is_there(&rig, &second.digest).await);
}

/// An upload that takes longer than the grace period stores its artifact again. On PostgreSQL only, where one transaction can block another without
/// blocking all.
#[tokio::test(flavor = "multi_thread")]
async fn an_upload_slower_than_the_grace_time_begins_again() {
    let rig = Rig::start_with(Backend::Postgres, |_| {}).await;
    let state = rig.controller.state();
    let mut held = state.store.read().await.expect("connected");
    let mut tx = sqlx::Connection::begin(&mut *held).await.expect("begun");
    revision_lock(&mut tx).await.expect("locked");
    let upload = rig.upload("hello", components::hello("slow"), None, None);
    let upload = tokio::spawn(upload.send());
    wait::until("the artifact to be written", async || {
        match rig.artifacts().len() {
            1 => Ok(()),
            other => Err(format!("{other} artifacts")),
        }
    })
    .await;
    assert_eq!(round(state, later(&rig)).await.expect("done"), 1);
    assert_eq!(rig.artifacts(), [""; 0]);
    tx.rollback().await.expect("let go");
    drop(held);
    let answer = upload.await.expect("sent").expect("an answer");
    assert_eq!(answer.status(), StatusCode::OK);
    let deployed: fdn_core::api::DeployResponse = answer.json().await.expect("JSON");
    assert_eq!(deployed.version, VersionNumber::FIRST);
    assert!(is_there(&rig, &deployed.digest).await);
}

const OLD: Timestamp = Timestamp(1_000);
const BEFORE: Timestamp = Timestamp(2_000);
const NOW: Timestamp = Timestamp(3_000);

async fn claimed(connection: &mut AnyConnection, name: &str, at: Timestamp) -> Object {
    let digest = version_row("hello", VersionNumber::FIRST).digest;
    artifact_claim(connection, &digest, 5, name, at)
        .await
        .expect("claimed")
}

/// Uses a claimed artifact and writes a version with it, as a deploy does.
async fn used(connection: &mut AnyConnection, object: &Object, at: Timestamp) -> bool {
    let kept = artifact_use(&mut *connection, object, at)
        .await
        .expect("asked");
    if kept {
        let row = version_row("hello", VersionNumber::FIRST);
        let next = function_version_next(&mut *connection, row.tenant, &row.function, at);
        next.await.expect("a number");
        version_insert(connection, &row).await.expect("written");
    }
    kept
}

async fn of_mark_and_use_one_sees_the_other(backend: Backend) {
    for upload_first in [true, false] {
        let (_folder, store) = store(backend).await;
        let object = claimed(&mut store.read().await.expect("connected"), "a", OLD).await;
        let mut first = begin(&store).await;
        if upload_first {
            // With a clock so slow that the use does not even renew the time.
            assert!(used(&mut first, &object, OLD).await);
        } else {
            assert!(marked(&mut first, &object).await);
        }
        // The other one starts while the first is not finished, and waits for it.
        let other = {
            let (store, object) = (store.clone(), object.clone());
            tokio::spawn(async move {
                let mut second = begin(&store).await;
                let done = match upload_first {
                    true => marked(&mut second, &object).await,
                    false => used(&mut second, &object, NOW).await,
                };
                second.commit().await.expect("committed");
                done
            })
        };
        first.commit().await.expect("committed");
        assert!(!other.await.expect("ended"), "upload first: {upload_first}");
        let connection = &mut *store.read().await.expect("connected");
        let trash = trash_list(connection, None, 10).await.expect("read");
        assert_eq!(trash.len(), usize::from(!upload_first));
        if !upload_first {
            let again = claimed(connection, "b", NOW).await;
            assert_eq!(again.name, "b", "the marked name is never given again");
            assert!(used(connection, &again, NOW).await);
            let found = artifact_find(connection, &again.digest)
                .await
                .expect("found");
            assert_eq!(found, again);
        }
    }
}

/// A write transaction, begun as the controller does.
async fn begin(store: &Store) -> sqlx::Transaction<'static, sqlx::Any> {
    store.begin().await.expect("begun")
}

async fn marked(connection: &mut AnyConnection, object: &Object) -> bool {
    artifact_mark(connection, &object.digest, BEFORE, NOW)
        .await
        .expect("asked")
}

async fn a_claim_makes_young(backend: Backend) {
    let (_folder, store) = store(backend).await;
    let connection = &mut *store.read().await.expect("connected");
    let object = claimed(connection, "a", OLD).await;
    let unused = artifact_list_unused(connection, BEFORE, 10)
        .await
        .expect("read");
    assert_eq!(unused, [object.digest]);
    let same = claimed(connection, "b", NOW).await;
    assert_eq!(same, object, "it has a name already");
    assert!(
        !marked(connection, &object).await,
        "somebody is about to use it"
    );
    let older = claimed(connection, "c", OLD).await;
    assert_eq!(older, object);
    assert!(
        !marked(connection, &object).await,
        "a slow clock makes nothing old"
    );
    let absent = Digest::of(b"never stored");
    let found = artifact_find(connection, &absent).await.expect("asked");
    assert_eq!(found.name, "", "where artifacts of before are");
}
