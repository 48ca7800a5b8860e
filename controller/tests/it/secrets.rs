//! Secrets on both databases: envelope encryption, changes without a deploy, never shown, migrated from where earlier releases stored them; and the
//! rotation of the master key while running.

use std::collections::BTreeMap;
use std::process::Command;

use fdn_controller::app::secrets::migrate;
use fdn_controller::keys::Keys;
use fdn_controller::store::secret::{
    data_key_get, secret_delete, secret_list, version_list_with_values,
};
use fdn_controller::store::version::version_get;
use fdn_controller::store::{DEFAULT_TENANT, Store};
use fdn_core::api::{AppsSnapshot, DeployResponse};
use fdn_core::app::SecretInfo;
use fdn_core::message::{Channel, FunctionSpec, Message};
use fdn_core::{Coded as _, DurationMs, Problem, SecretName, VersionNumber};
use fdn_service::seal::SealKey;
use fdn_testkit::{components, wait};
use reqwest::Method;
use serde_json::{Value, json};

use crate::broker::next;
use crate::rig::{Backend, Rig, on_both};

on_both!(
    a_value_reaches_nodes_without_a_deploy_and_nobody_else,
    a_value_is_compared_without_being_set,
    a_deploy_that_changes_values_is_audited,
    a_secret_that_versions_name_stays,
    a_secret_that_is_removed_during_a_deploy_is_missed,
    the_master_key_is_changed_under_way,
    master_keys_come_from_a_variable,
    a_lost_master_key_is_named_at_the_start,
    values_of_earlier_releases_move_into_the_vault,
    a_workflow_hears_of_its_functions_secrets,
);

const MANIFEST: &str = "secrets = [\"KEY\"]\n";

async fn deployed(rig: &Rig, value: &str) -> DeployResponse {
    let secrets = json!({ "KEY": value }).to_string();
    let request = rig.upload(
        "vault",
        components::hello("x"),
        Some(MANIFEST),
        Some(&secrets),
    );
    rig.json(request).await
}

async fn set(rig: &Rig, name: &str, value: &str) -> SecretInfo {
    let request = rig.request(Method::PUT, &format!("/v1/apps/vault/secrets/{name}"));
    rig.json(request.json(&json!({ "value": value }))).await
}

async fn judged(rig: &Rig, name: &str, value: &str) -> SecretInfo {
    let request = rig.request(Method::PUT, &format!("/v1/apps/vault/secrets/{name}"));
    rig.json(request.json(&json!({ "value": value, "dry_run": true })))
        .await
}

fn network_key(rig: &Rig) -> SealKey {
    let text = fdn_service::secret::read(&rig.settings.network.key_file).expect("key");
    SealKey::from_secret(&text).expect("key")
}

fn key() -> SecretName {
    "KEY".parse().expect("name")
}

/// The value of KEY in a function of a message or snapshot.
fn opened(rig: &Rig, function: &FunctionSpec) -> String {
    let context = format!("{}/KEY", function.function);
    let sealed = &function.secrets[&key()];
    network_key(rig).open(&context, sealed).expect("opened")
}

async fn told(rig: &Rig) -> (u64, String) {
    let snapshot: AppsSnapshot = rig.apps_snapshot().await;
    let app = snapshot
        .apps
        .into_iter()
        .find(|app| app.app.as_str() == "vault");
    let app = app.expect("the app");
    let function = &app.spec.as_ref().expect("there").functions[0];
    (app.revision.get(), opened(rig, function))
}

/// Everything in the database, as text.
async fn everything(store: &Store) -> String {
    let mut connection = store.read().await.expect("connected");
    let mut all = String::new();
    for (table, columns) in [
        ("versions", "manifest || secrets || created_by"),
        ("secrets", "name || sealed || updated_by"),
        ("data_keys", "id || tenant || master || wrapped"),
        ("outbox", "topic || envelope"),
        ("apps", "name || workflow"),
        (
            "audit",
            "subject || COALESCE(before_state, '') || COALESCE(after_state, '')",
        ),
    ] {
        let text = format!("SELECT {columns} AS line FROM {table}");
        let rows: Vec<String> = sqlx::query_scalar(sqlx::AssertSqlSafe(text))
            .fetch_all(&mut *connection)
            .await
            .expect(table);
        all.extend(rows);
    }
    all
}

async fn a_value_is_compared_without_being_set(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let first = deployed(&rig, "hunter2").await;
    let before: Vec<Value> = rig.get("/v1/audit").await;
    let same = judged(&rig, "KEY", "hunter2").await;
    assert_eq!(
        (same.unchanged, same.used, same.revision),
        (Some(true), true, first.revision)
    );
    let other = judged(&rig, "KEY", "tr0ub4dor").await;
    assert_eq!(
        (other.unchanged, other.revision),
        (Some(false), first.revision)
    );
    let new = judged(&rig, "OTHER", "x").await;
    assert_eq!((new.unchanged, new.used), (Some(false), false));
    assert_eq!(
        told(&rig).await,
        (first.revision.get(), "hunter2".to_owned()),
        "nothing is set"
    );
    let listed: Vec<SecretInfo> = rig.get("/v1/apps/vault/secrets").await;
    assert_eq!((listed.len(), listed[0].unchanged), (1, None));
    let after: Vec<Value> = rig.get("/v1/audit").await;
    assert_eq!(after, before, "nothing was written");
    // A value that cannot be set is refused in a dry run, too.
    let path = "/v1/apps/vault/secrets/KEY";
    let bad = json!({ "value": "a\u{0}b", "dry_run": true });
    let (status, _) = rig.refused(rig.request(Method::PUT, path).json(&bad)).await;
    assert_eq!(status, 422);
    let set_same = set(&rig, "KEY", "hunter2").await;
    assert_eq!(
        (set_same.unchanged, set_same.revision),
        (Some(true), first.revision)
    );
    assert_eq!(set(&rig, "KEY", "tr0ub4dor").await.unchanged, Some(false));
}

async fn a_deploy_that_changes_values_is_audited(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let first = deployed(&rig, "hunter2").await;
    assert!(deployed(&rig, "hunter2").await.unchanged);
    let log = async || rig.get::<Vec<Value>>("/v1/audit?action=secret.set").await;
    let entry = |revision| json!({ "secret": "KEY", "revision": revision });
    let entries = log().await;
    assert_eq!(entries.len(), 1, "{entries:?}");
    assert_eq!(entries[0]["subject"], "app/vault");
    assert_eq!(entries[0]["after"], entry(first.revision));
    assert_eq!(entries[0].get("before"), None);
    // Only KEY is another value; SPARE comes with the one that it has.
    let spare = set(&rig, "SPARE", "x").await;
    let both = Some("secrets = [\"KEY\", \"SPARE\"]\n");
    let sent = r#"{"KEY":"tr0ub4dor","SPARE":"x"}"#;
    let upload = rig.upload("vault", components::hello("x"), both, Some(sent));
    let upload = upload.header("idempotency-key", "once");
    let second: DeployResponse = rig.json(upload).await;
    let entries = log().await;
    assert_eq!(entries.len(), 3, "{entries:?}");
    assert_eq!(entries[0]["before"], entry(first.revision));
    assert_eq!(entries[0]["after"], entry(second.revision));
    assert_eq!(entries[1]["after"]["revision"], json!(spare.revision));
}

async fn a_value_reaches_nodes_without_a_deploy_and_nobody_else(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let first = deployed(&rig, "hunter2").await;
    assert_eq!(
        told(&rig).await,
        (first.revision.get(), "hunter2".to_owned())
    );
    let mut heard = rig.broker.listen(Channel::Changes).await;
    let changed = set(&rig, "KEY", "tr0ub4dor").await;
    assert!(changed.revision > first.revision && changed.used);
    assert_eq!(changed.updated_by, "admin");
    assert_eq!(
        told(&rig).await,
        (changed.revision.get(), "tr0ub4dor".to_owned())
    );
    // The message to nodes contains the same.
    let sent = loop {
        if let Message::AppDesired(app) = next(&mut heard).await.message
            && app.revision == changed.revision
        {
            break app.spec.expect("there");
        }
    };
    assert_eq!(opened(&rig, &sent.functions[0]), "tr0ub4dor");
    // The version is the same; only its secrets are newer.
    assert_eq!(sent.functions[0].version, first.version);
    assert_eq!(
        set(&rig, "KEY", "tr0ub4dor").await.revision,
        changed.revision
    );

    // No value is shown: not by the API, in the audit log or in the database.
    let mut shown = everything(&rig.controller.state().store).await;
    for path in ["secrets", "", "traffic", "policy"] {
        let path = format!("/v1/apps/vault/{path}");
        let request = rig.request(Method::GET, path.trim_end_matches('/'));
        shown += &request
            .send()
            .await
            .expect("an answer")
            .text()
            .await
            .expect("text");
    }
    let log: Vec<Value> = rig.get("/v1/audit?limit=1000").await;
    assert_eq!(log[0]["action"], "secret.set");
    assert_eq!(log[0]["after"]["secret"], "KEY");
    shown += &serde_json::to_string(&log).expect("JSON");
    for bad in ["\"tr0ub4dor\"", "{\"value\":[\"tr0ub4dor\"]}", "tr0ub4dor"] {
        let request = rig.request(Method::PUT, "/v1/apps/vault/secrets/KEY");
        let (status, problem) = rig.refused(request.body(bad)).await;
        assert_eq!((status.as_u16(), problem.code.as_str()), (400, "FDN-2005"));
        shown += &problem.detail;
    }
    let request = rig.request(Method::PUT, "/v1/apps/vault/secrets/KEY");
    let (status, problem) = rig
        .refused(request.json(&json!({ "value": "tr0ub4dor\0" })))
        .await;
    assert_eq!(status.as_u16(), 422);
    shown += &problem.detail;
    let long = "tr0ub4dor".repeat(8000);
    let request = rig.request(Method::PUT, "/v1/apps/vault/secrets/KEY");
    let (_, problem) = rig.refused(request.json(&json!({ "value": long }))).await;
    assert_eq!(problem.code.as_str(), "FDN-2021");
    shown += &problem.detail;
    for value in ["hunter2", "tr0ub4dor"] {
        assert!(!shown.contains(value), "{value} is shown");
    }
    let viewer = crate::accounts::people(&rig)
        .await
        .member(fdn_core::TenantRole::Viewer)
        .to_owned();
    let request = rig
        .anonymous(Method::PUT, "/v1/apps/vault/secrets/KEY")
        .bearer_auth(viewer);
    let (_, problem) = rig.refused(request.json(&json!({ "value": "x" }))).await;
    assert_eq!(problem.code.as_str(), "FDN-2002");
}

async fn a_secret_that_versions_name_stays(backend: Backend) {
    let rig = Rig::start_with(backend, |settings| settings.secrets.per_app = 2).await;
    deployed(&rig, "hunter2").await;
    let delete =
        |name: &str| rig.request(Method::DELETE, &format!("/v1/apps/vault/secrets/{name}"));
    let (_, problem) = rig.refused(delete("KEY")).await;
    assert_eq!(problem.code.as_str(), "FDN-2004");
    assert!(problem.detail.contains("v1"), "{}", problem.detail);
    let spare = set(&rig, "SPARE", "x").await;
    assert!(!spare.used, "no version names it yet");
    let request = rig.request(Method::PUT, "/v1/apps/vault/secrets/THIRD");
    let (_, problem) = rig.refused(request.json(&json!({ "value": "x" }))).await;
    assert!(problem.detail.contains("2 secrets"), "{}", problem.detail);
    // A version may name a secret that was set before, and a rollback does not restore an old value.
    let both = "secrets = [\"KEY\", \"SPARE\"]\n";
    let request = rig.upload("vault", components::hello("x"), Some(both), None);
    let second: DeployResponse = rig.json(request).await;
    assert_eq!(second.version.get(), 2);
    set(&rig, "KEY", "tr0ub4dor").await;
    let back = rig.request(Method::POST, "/v1/apps/vault/rollback");
    let _: Value = rig.json(back.json(&json!({}))).await;
    assert_eq!(told(&rig).await.1, "tr0ub4dor");
    assert_eq!(
        delete("ABSENT").send().await.expect("an answer").status(),
        404
    );
    // Secrets are deleted with the app: a new app of the name has none.
    let gone = rig.request(Method::DELETE, "/v1/apps/vault");
    assert_eq!(gone.send().await.expect("an answer").status(), 204);
    let request = rig.upload("vault", components::hello("x"), Some(MANIFEST), None);
    let (_, problem) = rig.refused(request).await;
    assert!(
        problem.detail.contains("KEY has no value"),
        "{}",
        problem.detail
    );
}

async fn a_secret_that_is_removed_during_a_deploy_is_missed(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    deployed(&rig, "hunter2").await;
    let set = set(&rig, "SPARE", "x").await;
    let state = rig.controller.state();
    let both = "secrets = [\"KEY\", \"SPARE\"]\n";
    let deploy = |secrets| rig.upload("vault", components::hello("y"), Some(both), secrets);
    // The deploy is held up after the validation; meanwhile another controller removes the secret, which no version names yet.
    let before = rig.artifacts().len();
    let alone = state.changes.lock().await;
    let deploying = tokio::spawn(deploy(None).send());
    wait::until("the artifact to be stored", async || {
        match rig.artifacts().len() {
            count if count > before => Ok(()),
            count => Err(count),
        }
    })
    .await;
    let mut connection = state.store.read().await.expect("connected");
    let (function, spare) = (
        "vault".parse().expect("name"),
        "SPARE".parse().expect("name"),
    );
    let removed = secret_delete(&mut connection, DEFAULT_TENANT, &function, &spare).await;
    assert!(removed.expect("removed"));
    drop(connection);
    drop(alone);
    let answer = deploying.await.expect("sent").expect("an answer");
    let problem: Problem = answer.json().await.expect("a problem");
    assert_eq!(problem.code.as_str(), "FDN-2004");
    assert!(problem.detail.contains("SPARE"), "{}", problem.detail);
    assert!(!problem.detail.contains("KEY"), "{}", problem.detail);
    assert_eq!(told(&rig).await.0, set.revision.get(), "it runs as before");
    let second: DeployResponse = rig.json(deploy(Some(r#"{"SPARE":"y"}"#))).await;
    assert!(second.revision > set.revision);
}

/// Runs the program as operators do, on the rig's database, with the name of an environment variable, and the variable if it has a value.
fn keys_by_variable(rig: &Rig, command: &str, value: Option<&str>) -> (Option<i32>, String) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_fdn-controller"));
    program.args(["keys", command]);
    program.env("FDN_DATABASE__URL", &rig.settings.database.url);
    program.env("FDN_NETWORK__KEY_FILE", &rig.settings.network.key_file);
    program.env("FDN_NETWORK__TOKEN_FILE", &rig.settings.network.token_file);
    program.env("FDN_SECRETS__MASTER_KEY_VARIABLE", "MASTER_KEYS_OF_A_TEST");
    match value {
        Some(value) => program.env("MASTER_KEYS_OF_A_TEST", value),
        None => program.env_remove("MASTER_KEYS_OF_A_TEST"),
    };
    let done = program.output().expect("it runs");
    let said = [done.stdout, done.stderr].concat();
    (done.status.code(), String::from_utf8(said).expect("text"))
}

async fn master_keys_come_from_a_variable(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    deployed(&rig, "hunter2").await;
    let keys = Keys::open(&rig.settings).await.expect("keys");
    let id = keys.list().await.expect("listed")[0].id.to_string();
    let file = rig.settings.network.key_file.with_file_name("master.key");
    let text = std::fs::read_to_string(file).expect("the master key");
    let listed = |said: &str, id: &str, state: &str| {
        let mut lines = said.lines();
        let line = lines.find(|line| line.starts_with(id));
        let line = line.unwrap_or_else(|| panic!("{id} is not in {said}"));
        assert!(line.contains(state), "{line}");
    };
    let (code, said) = keys_by_variable(&rig, "list", Some(&text));
    assert_eq!(code, Some(0), "{said}");
    listed(&said, &id, "wraps");
    listed(&said, &id, "1 data keys");
    // A new key in first place, as an operator adds it: it wraps from now on.
    let new = "ab".repeat(32);
    let both = format!("{new}\n{text}");
    let (code, said) = keys_by_variable(&rig, "list", Some(&both));
    assert_eq!(code, Some(0), "{said}");
    listed(&said, &id, "unwraps only");
    let (code, said) = keys_by_variable(&rig, "rewrap", Some(&both));
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("1 data keys were wrapped anew"), "{said}");
    let (code, said) = keys_by_variable(&rig, "list", Some(&new));
    assert_eq!(code, Some(0), "{said}");
    assert!(
        !said.contains(&id) && said.contains("1 data keys"),
        "{said}"
    );
    // Keys in a variable cannot be changed by the program, and are never shown.
    let (code, refused) = keys_by_variable(&rig, "add", Some(&new));
    assert_eq!(code, Some(2), "{refused}");
    assert!(refused.contains("come from a variable"), "{refused}");
    let (code, unset) = keys_by_variable(&rig, "list", None);
    assert_eq!(code, Some(2), "{unset}");
    assert!(
        unset.contains("MASTER_KEYS_OF_A_TEST, which is not set"),
        "{unset}"
    );
    for said in [said, refused, unset] {
        assert!(
            !said.contains(&new) && !said.contains(text.trim()),
            "{said}"
        );
    }
}

async fn the_master_key_is_changed_under_way(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    deployed(&rig, "hunter2").await;
    let keys = Keys::open(&rig.settings).await.expect("keys");
    let before = keys.list().await.expect("listed");
    assert_eq!(
        (before.len(), before[0].data_keys, before[0].current),
        (1, 1, true)
    );
    let old = before[0].id.clone();
    let error = keys.drop_key(&old).await.expect_err("in use");
    assert_eq!(error.code().as_str(), "FDN-2004");

    let row = async || {
        let mut connection = rig
            .controller
            .state()
            .store
            .read()
            .await
            .expect("connected");
        let row = data_key_get(&mut connection, DEFAULT_TENANT)
            .await
            .expect("read");
        let function = "vault".parse().expect("name");
        let secrets = secret_list(&mut connection, DEFAULT_TENANT, &function).await;
        (row.expect("a key"), secrets.expect("read"))
    };
    let (wrapped, sealed) = row().await;
    let new = keys.add().await.expect("added");
    assert_eq!(told(&rig).await.1, "hunter2", "the old key still unwraps");
    assert_eq!(keys.rewrap(&rig.settings).await.expect("wrapped"), 1);
    // Repeated, as after an interruption: nothing is left to do.
    assert_eq!(keys.rewrap(&rig.settings).await.expect("wrapped"), 0);
    let (rewrapped, untouched) = row().await;
    assert_eq!((&rewrapped.id, &rewrapped.master), (&wrapped.id, &new));
    assert_ne!(rewrapped.wrapped, wrapped.wrapped);
    assert_eq!(
        untouched[0].sealed, sealed[0].sealed,
        "no value was touched"
    );
    keys.drop_key(&old).await.expect("nothing is under it");
    let left = keys.list().await.expect("listed");
    assert_eq!((left.len(), &left[0].id), (1, &new));

    // A controller that was running before continues, and one that starts has the new key only.
    set(&rig, "KEY", "tr0ub4dor").await;
    assert_eq!(told(&rig).await.1, "tr0ub4dor");
    let rig = rig.restart().await;
    assert_eq!(told(&rig).await.1, "tr0ub4dor");
    let log: Vec<Value> = rig.get("/v1/audit?limit=1000").await;
    let actions: Vec<&str> = log
        .iter()
        .filter_map(|entry| entry["action"].as_str())
        .collect();
    for action in ["master-key.add", "master-key.rewrap", "master-key.drop"] {
        assert!(actions.contains(&action), "{action} is in the log");
    }
}

async fn a_lost_master_key_is_named_at_the_start(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    deployed(&rig, "hunter2").await;
    let keys = Keys::open(&rig.settings).await.expect("keys");
    let lost = keys.list().await.expect("listed")[0].id.clone();
    let Rig {
        controller,
        broker,
        mut settings,
        folder,
        ..
    } = rig;
    controller.stop().await;
    settings.secrets.master_key_file = Some(folder.path().join("another.key"));
    let shared: fdn_bus::SharedBroker = broker;
    let compiler = fdn_runtime::Compiler::InProcess;
    let started = fdn_controller::Controller::start_with(settings, shared, compiler).await;
    let Err(error) = started else {
        panic!("it started without the key");
    };
    assert_eq!(error.code().as_str(), "FDN-2020");
    assert!(error.to_string().contains(lost.as_str()), "{error}");
}

/// Values as a release before the vault stored them: with the versions, sealed with the network key.
async fn values_of_earlier_releases_move_into_the_vault(backend: Backend) {
    let rig = Rig::start_with(backend, |settings| {
        settings.secrets.keep_old = DurationMs::from_secs(3600);
    })
    .await;
    deployed(&rig, "unused").await;
    let request = rig.upload("vault", components::hello("two"), Some(MANIFEST), None);
    let _: DeployResponse = rig.json(request).await;
    let state = rig.controller.state();
    let seal = |value: &str| {
        let sealed = network_key(&rig).seal("vault/KEY", value).expect("sealed");
        serde_json::to_string(&BTreeMap::from([("KEY", sealed)])).expect("JSON")
    };
    let mut connection = state.store.read().await.expect("connected");
    for (number, value) in [(1, "first"), (2, "second")] {
        sqlx::query("UPDATE versions SET secrets = $1 WHERE number = $2")
            .bind(seal(value))
            .bind(i64::from(number))
            .execute(&mut *connection)
            .await
            .expect("written");
    }
    for table in ["secrets", "data_keys"] {
        let text = format!("DELETE FROM {table}");
        sqlx::query(sqlx::AssertSqlSafe(text))
            .execute(&mut *connection)
            .await
            .expect("emptied");
    }
    assert_eq!(told(&rig).await.1, "second", "they count where they are");
    let now = fdn_service::now();
    migrate::round(state, now).await.expect("moved");
    let function = "vault".parse().expect("name");
    let rows = secret_list(&mut connection, DEFAULT_TENANT, &function)
        .await
        .expect("read");
    assert_eq!(
        rows.len(),
        1,
        "the value of the current version is the secret's"
    );
    assert_eq!(told(&rig).await.1, "second");
    let left = version_list_with_values(&mut connection, 10)
        .await
        .expect("read");
    assert_eq!(
        left.len(),
        2,
        "a controller of the earlier release still finds them"
    );
    // That release stores another value, which is newer; a value set here is newer still.
    let later = now.get() + 1000;
    sqlx::query("UPDATE versions SET secrets = $1, created_at = $2 WHERE number = 2")
        .bind(seal("third"))
        .bind(i64::try_from(later).expect("a time"))
        .execute(&mut *connection)
        .await
        .expect("written");
    let at = fdn_core::Timestamp(later + 1000);
    migrate::round(state, at).await.expect("moved");
    assert_eq!(told(&rig).await.1, "third");
    let end = fdn_core::Timestamp(at.get() + 3_600_001);
    migrate::round(state, end).await.expect("done");
    assert!(
        version_list_with_values(&mut connection, 10)
            .await
            .expect("read")
            .is_empty()
    );
    assert_eq!(told(&rig).await.1, "third");
    let number = VersionNumber::FIRST;
    let version = version_get(&mut connection, DEFAULT_TENANT, &function, number);
    assert!(
        version
            .await
            .expect("read")
            .expect("kept")
            .secrets
            .is_empty()
    );
    // A deploy moves them as well, which sets none.
    let text = "UPDATE versions SET secrets = $1 WHERE number = 2";
    let put = sqlx::query(text).bind(seal("fourth"));
    put.execute(&mut *connection).await.expect("written");
    let gone = sqlx::query("DELETE FROM secrets");
    gone.execute(&mut *connection).await.expect("deleted");
    let request = rig.upload("vault", components::hello("three"), Some(MANIFEST), None);
    let _: DeployResponse = rig.json(request).await;
    assert_eq!(told(&rig).await.1, "fourth");
    let entries: Vec<Value> = rig.get("/v1/audit?action=secret.set").await;
    assert_eq!(entries.len(), 1, "{entries:?}");
}

async fn a_workflow_hears_of_its_functions_secrets(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    deployed(&rig, "hunter2").await;
    let flow = json!({ "stages": [{ "name": "only", "function": "vault" }] });
    let request = rig.request(Method::PUT, "/v1/apps/flow/workflow");
    let _: Value = rig.json(request.json(&flow)).await;
    let changed = set(&rig, "KEY", "tr0ub4dor").await;
    let snapshot: AppsSnapshot = rig.apps_snapshot().await;
    assert_eq!(snapshot.apps.len(), 2);
    for app in &snapshot.apps {
        assert_eq!(app.revision, changed.revision, "{}", app.app);
        assert_eq!(
            opened(&rig, &app.spec.as_ref().expect("there").functions[0]),
            "tr0ub4dor"
        );
    }
    let request = rig.request(Method::PUT, "/v1/apps/flow/secrets/KEY");
    let (_, problem) = rig.refused(request.json(&json!({ "value": "x" }))).await;
    assert!(problem.detail.contains("workflow"), "{}", problem.detail);
}
