//! Backups: the content of one is restored to an empty place, on either database; anything but a complete backup leaves nothing behind.

mod archive;
mod killed;

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use fdn_controller::backup::{ArchiveLocation, KeyPolicy, Manifest, backup, restore};
use fdn_controller::store::copy::{occupied, schema_version, table_list};
use fdn_controller::store::{MIGRATOR, Store, StoreError, newest};
use fdn_controller::{Error, Settings};
use fdn_core::api::AppSummary;
use fdn_core::app::SecretInfo;
use fdn_core::job::JobReceipt;
use fdn_core::{Coded as _, ErrorCode};
use fdn_testkit::components;
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::broker::TestBroker;
use crate::jobs::submission;
use crate::rig::{Backend, Rig, on_both, settings};
use crate::{accounts, usage};
use archive::{older, packed, rows, unpacked, unzipped, with_manifest, without_tenants};

on_both!(
    everything_comes_back_on_either_database,
    a_bad_archive_leaves_nothing,
    only_an_empty_place_is_restored_to,
    keys_are_asked_for_and_never_replaced,
    an_older_archive_is_brought_up_to_date,
    a_newer_database_is_refused_in_words,
    a_rehearsal_changes_nothing,
    the_program_writes_to_a_pipe_and_reads_from_one,
);

impl Backend {
    const fn other(self) -> Self {
        match self {
            Self::Sqlite => Self::Postgres,
            Self::Postgres => Self::Sqlite,
        }
    }
}

/// The paths whose responses are compared.
const ASKED: [&str; 12] = [
    "/v1/apps",
    "/v1/apps/hello",
    "/v1/apps/hello/policy",
    "/v1/apps/hello/secrets",
    "/v1/apps/hello/keys",
    "/v1/apps/hello/labels",
    "/v1/jobs",
    "/v1/users",
    "/v1/tenants",
    "/v1/tenants/default/members",
    "/v1/tokens",
    "/v1/billing/prices",
];

/// A controller with some data of every kind.
async fn filled(backend: Backend) -> Rig {
    let rig = Rig::start_with(backend, |_| {}).await;
    let secrets = json!({ "KEY": "hunter2" }).to_string();
    let manifest = Some("secrets = [\"KEY\"]\n");
    for greeting in ["one", "two"] {
        let upload = rig.upload(
            "hello",
            components::hello(greeting),
            manifest,
            Some(&secrets),
        );
        let _: Value = rig.json(upload).await;
    }
    let policy = json!({ "authentication": { "kind": "api_key" }, "concurrency": 5 });
    let request = rig.request(Method::PUT, "/v1/apps/hello/policy");
    let _: Value = rig.json(request.json(&policy)).await;
    accounts::user(&rig, "jane", None).await;
    accounts::member(&rig, "default", "jane", "developer").await;
    usage::add(&rig, &usage::sums_of("hello", 7, "eu-1")).await;
    // No node is there to run the job, and its input is too large for a row.
    let job = submission(&rig, "hello", "", vec![b'x'; 200_000])
        .send()
        .await;
    let _: JobReceipt = job.expect("an answer").json().await.expect("a receipt");
    assert_eq!(rig.objects_of_jobs(), ["input"]);
    rig
}

/// Settings for an empty place.
async fn elsewhere(backend: Backend) -> (Arc<TempDir>, Settings) {
    let folder = Arc::new(tempfile::tempdir().expect("folder"));
    let settings = settings(folder.path(), backend).await;
    (folder, settings)
}

fn place(path: &Path) -> ArchiveLocation {
    ArchiveLocation::File(path.to_owned())
}

/// Writes a backup with all keys, into the rig's folder.
async fn backed_up(rig: &Rig, name: &str) -> (PathBuf, Manifest) {
    let path = rig.folder.path().join(name);
    let made = backup(&rig.settings, &place(&path), KeyPolicy::With).await;
    (path, made.expect("backed up"))
}

async fn answers(rig: &Rig) -> Vec<(&'static str, Value)> {
    let mut all = Vec::new();
    for path in ASKED {
        all.push((path, rig.get(path).await));
    }
    all
}

/// The parts in which a restored place differs: the restore is audited, and revisions leap.
const DIFFERENT: [&str; 2] = ["tables/audit.jsonl", "tables/counters.jsonl"];

async fn everything_comes_back_on_either_database(backend: Backend) {
    let rig = filled(backend).await;
    let (before, artifacts) = (answers(&rig).await, rig.artifacts());
    let (archive, manifest) = backed_up(&rig, "one.fdn").await;
    let mode = std::fs::metadata(&archive).expect("made").permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    assert_eq!(manifest.keys.len(), 4);
    // The objects: two components and the input of a job.
    assert_eq!(manifest.objects.count, 3);
    let left = std::fs::read_dir(rig.folder.path()).expect("the folder");
    let left = left.map(|entry| entry.expect("an entry").file_name());
    let left: Vec<_> = left
        .filter(|name| name.to_string_lossy().starts_with(".fdn"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    for to in [backend, backend.other()] {
        let (folder, settings) = elsewhere(to).await;
        let restored = restore(&settings, &place(&archive), KeyPolicy::Needed).await;
        assert_eq!(restored.expect("restored"), manifest);
        let again = folder.path().join("again.fdn");
        let second = backup(&settings, &place(&again), KeyPolicy::With).await;
        assert_eq!(
            second.expect("backed up").objects,
            manifest.objects,
            "{to:?}"
        );
        let (one, other) = (rows(&archive), rows(&again));
        assert_eq!(
            one.keys().collect::<Vec<_>>(),
            other.keys().collect::<Vec<_>>()
        );
        for (name, rows) in one {
            if !DIFFERENT.contains(&name.as_str()) {
                assert_eq!(rows, other[&name], "{to:?} {name}");
            }
        }
        let broker = Arc::new(TestBroker::default());
        let new = Box::pin(Rig::start_on(settings, broker, folder)).await;
        for ((path, before), (_, after)) in before.iter().zip(answers(&new).await) {
            assert_eq!(*before, after, "{to:?} {path}");
        }
        assert_eq!(new.artifacts(), artifacts);
        assert_eq!(new.objects_of_jobs(), ["input"]);
        went_on(&rig, &new).await;
        new.controller.stop().await;
    }
}

/// Sessions, secrets, passwords and revisions continue.
async fn went_on(old: &Rig, new: &Rig) {
    let request = new.anonymous(Method::GET, "/v1/apps");
    let apps: Vec<AppSummary> = new.json(request.bearer_auth(&old.token)).await;
    assert_eq!(apps.len(), 1);
    new.login("jane", accounts::PASSWORD).await;
    let request = new.request(Method::PUT, "/v1/apps/hello/secrets/KEY");
    let request = request.json(&json!({ "value": "hunter2", "dry_run": true }));
    let judged: SecretInfo = new.json(request).await;
    assert_eq!(judged.unchanged, Some(true), "the secret can be opened");
    // Machines that have seen later revisions than the backup accept the changes from now on.
    let before = old.deploy("later", components::hello("x")).await;
    let after = new.deploy("later", components::hello("x")).await;
    assert!(after.revision > before.revision);
    let log: Vec<Value> = new.get("/v1/audit?action=network.restore").await;
    assert_eq!(log.len(), 1);
}

/// Checks that a refused restore has left nothing.
async fn nothing_is_left(settings: &Settings, what: &str) {
    let store = Store::connect(&settings.database).await.expect("connected");
    let mut connection = store.read().await.expect("connected");
    let tables = table_list(&mut connection).await.expect("read");
    let found = occupied(&mut connection, &tables).await.expect("read");
    assert_eq!(found, None, "{what}");
    drop(connection);
    store.close().await;
    let objects = fdn_controller::artifacts::Artifacts::open(&settings.artifacts).expect("opened");
    assert!(objects.is_empty().await.expect("listed"), "{what}");
    for key in [&settings.network.key_file, &settings.network.token_file] {
        assert!(!key.exists(), "{what}");
    }
}

async fn refused(settings: &Settings, archive: &Path, what: &str) -> Error {
    let error = restore(settings, &place(archive), KeyPolicy::Needed).await;
    let error = error.expect_err(what);
    nothing_is_left(settings, what).await;
    error
}

async fn a_bad_archive_leaves_nothing(backend: Backend) {
    let rig = filled(backend).await;
    let (archive, _) = backed_up(&rig, "good.fdn").await;
    let (folder, settings) = elsewhere(backend).await;
    let bad = folder.path().join("bad.fdn");
    let bytes = std::fs::read(&archive).expect("the archive");
    let length = bytes.len();
    for end in [0, 1, 100, length / 3, length / 2, length - 9, length - 1] {
        std::fs::write(&bad, &bytes[..end]).expect("written");
        let error = refused(&settings, &bad, &format!("{end} of {length} bytes")).await;
        assert_eq!(error.code(), ErrorCode::BadRequest, "{error}");
        assert!(
            error.to_string().contains("damaged or cut short"),
            "{error}"
        );
    }
    let whole = unzipped(&bytes);
    // The first ten bytes are the gzip header, where time and operating system do not matter.
    for at in (10..length).step_by(length / 12) {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x10;
        // Deflate leaves some bits unused, such as the padding before stored blocks.
        if unzipped(&bytes) == whole {
            continue;
        }
        std::fs::write(&bad, &bytes).expect("written");
        refused(&settings, &bad, &format!("byte {at} of {length}")).await;
    }
    let parts = unpacked(&archive);
    // A byte of each part is changed, in an archive that is valid for gzip and tar.
    for number in 0..parts.len() {
        let mut parts = parts.clone();
        let name = parts[number].0.clone();
        let Some(last) = parts[number].1.last_mut() else {
            continue;
        };
        *last ^= 1;
        packed(&bad, &parts);
        let error = refused(&settings, &bad, &name).await;
        assert_eq!(error.code(), ErrorCode::BadRequest, "{name}: {error}");
    }
    let mut missing = parts.clone();
    missing.pop();
    packed(&bad, &missing);
    refused(&settings, &bad, "the last object is missing").await;
    let mut more = parts.clone();
    more.push(("objects/99999999".to_owned(), vec![1]));
    packed(&bad, &more);
    refused(&settings, &bad, "there is more").await;
    let manifest: Value = serde_json::from_slice(&parts[0].1).expect("JSON");
    for (key, value, word) in [
        ("schema", json!(newest() + 1), "newer release"),
        ("schema", json!(5), "no release has schema 5"),
        ("format", json!(99), "with the release that made it"),
    ] {
        let mut manifest = manifest.clone();
        manifest[key] = value;
        packed(&bad, &with_manifest(&parts, &manifest));
        let error = refused(&settings, &bad, word).await.to_string();
        assert!(error.contains(word), "{error}");
    }
    // A violation of the schema fails after artifacts and rows were written already: everything is rolled back.
    packed(&bad, &without_tenants(&parts, &manifest));
    let error = refused(&settings, &bad, "rows refer to what is not there").await;
    assert!(matches!(error, Error::Store(_)), "{error:?}");
    restore(&settings, &place(&archive), KeyPolicy::Needed)
        .await
        .expect("the good one is restored after all that");
}

async fn only_an_empty_place_is_restored_to(backend: Backend) {
    let rig = filled(backend).await;
    let (archive, _) = backed_up(&rig, "one.fdn").await;
    let error = restore(&rig.settings, &place(&archive), KeyPolicy::Needed).await;
    let error = error.expect_err("a controller uses it");
    assert_eq!(error.code(), ErrorCode::Conflict);
    let error = error.to_string();
    assert!(
        error.contains("holds rows already") && error.contains("make a new database"),
        "{error}"
    );
    let (folder, settings) = elsewhere(backend).await;
    let stray = folder.path().join("artifacts/sha256/aa/stray");
    std::fs::create_dir_all(stray.parent().expect("a folder")).expect("made");
    std::fs::write(&stray, "x").expect("written");
    let error = restore(&settings, &place(&archive), KeyPolicy::Needed).await;
    let error = error.expect_err("something is there").to_string();
    assert!(error.contains("holds objects already"), "{error}");
    std::fs::remove_file(&stray).expect("removed");
    // An empty schema does not prevent a restore.
    let store = Store::connect(&settings.database).await.expect("connected");
    store.migrate().await.expect("migrated");
    store.close().await;
    restore(&settings, &place(&archive), KeyPolicy::Needed)
        .await
        .expect("restored");
    let again = restore(&settings, &place(&archive), KeyPolicy::Needed).await;
    assert_eq!(again.expect_err("full").code(), ErrorCode::Conflict);
}

async fn keys_are_asked_for_and_never_replaced(backend: Backend) {
    let rig = filled(backend).await;
    let archive = rig.folder.path().join("bare.fdn");
    let made = backup(&rig.settings, &place(&archive), KeyPolicy::Needed).await;
    let made = made.expect("backed up");
    assert!(made.keys.is_empty());
    let names: Vec<_> = made
        .keys_apart
        .iter()
        .map(|key| key.name.as_str())
        .collect();
    assert_eq!(names, ["network.key", "network.token", "master.key"]);
    let key = std::fs::read_to_string(&rig.settings.network.key_file).expect("the key");
    let file = rig.settings.network.key_file.with_file_name("master.key");
    let master = std::fs::read_to_string(&file).expect("the master key");
    let held = unpacked(&archive)
        .iter()
        .any(|(_, bytes)| String::from_utf8_lossy(bytes).contains(key.trim()));
    assert!(!held, "no part holds the key");

    let (folder, settings) = elsewhere(backend).await;
    let error = refused(&settings, &archive, "no keys").await.to_string();
    assert!(error.contains("put the file there"), "{error}");
    let copied = |name: &str| {
        std::fs::copy(rig.folder.path().join(name), folder.path().join(name)).expect("copied");
    };
    copied("key");
    copied("token");
    // A key ring without the required key.
    std::fs::write(folder.path().join("master.key"), "ab".repeat(32)).expect("written");
    let error = restore(&settings, &place(&archive), KeyPolicy::Needed).await;
    let error = error.expect_err("another ring").to_string();
    assert!(error.contains("which is not in the ring"), "{error}");
    let lost = restore(&settings, &place(&archive), KeyPolicy::Lost).await;
    lost.expect("restored without it");
    // A controller starts without the lost keys.
    copied("password");
    let broker = Arc::new(TestBroker::default());
    let new = Box::pin(Rig::start_on(settings, broker, folder)).await;
    let apps: Vec<AppSummary> = new.get("/v1/apps").await;
    assert_eq!(apps.len(), 1);
    let secrets: Vec<Value> = new.get("/v1/apps/hello/secrets").await;
    assert!(secrets.is_empty(), "{secrets:?}");
    new.controller.stop().await;

    let (folder, settings) = elsewhere(backend).await;
    std::fs::write(folder.path().join("key"), "cd".repeat(32)).expect("written");
    let (whole, _) = backed_up(&rig, "whole.fdn").await;
    for (archive, what) in [(&archive, "apart"), (&whole, "inside")] {
        for name in ["token", "master.key"] {
            std::fs::copy(rig.folder.path().join(name), folder.path().join(name)).expect("copied");
        }
        let error = restore(&settings, &place(archive), KeyPolicy::Needed).await;
        let error = error.expect_err(what).to_string();
        assert!(error.contains("holds another network.key"), "{error}");
        let kept = std::fs::read_to_string(folder.path().join("key")).expect("kept");
        assert_eq!(kept, "cd".repeat(32), "{what}");
    }
    std::fs::remove_file(folder.path().join("key")).expect("removed");
    std::fs::remove_file(folder.path().join("master.key")).expect("removed");
    restore(&settings, &place(&whole), KeyPolicy::Needed)
        .await
        .expect("restored");
    let restored = std::fs::read_to_string(folder.path().join("master.key")).expect("written");
    assert_eq!(restored.trim(), master.trim());
}

async fn an_older_archive_is_brought_up_to_date(backend: Backend) {
    let old = tempfile::tempdir().expect("folder");
    let versions: Vec<i64> = MIGRATOR.iter().map(|each| each.version).collect();
    let archive = older(backend, old.path(), versions[versions.len() - 2]).await;
    for to in [backend, backend.other()] {
        let (_folder, settings) = elsewhere(to).await;
        restore(&settings, &place(&archive), KeyPolicy::Needed)
            .await
            .expect("restored");
        let store = Store::connect(&settings.database).await.expect("connected");
        let mut connection = store.read().await.expect("connected");
        let schema = schema_version(&mut connection).await.expect("read");
        assert_eq!(schema, Some(newest()), "{to:?}");
        let users: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM users WHERE name = 'jane'")
            .fetch_one(&mut *connection)
            .await
            .expect("counted");
        assert_eq!(users, 1);
    }
    // A place with a newer schema cannot go back, even if it is empty.
    let (_folder, settings) = elsewhere(backend).await;
    let store = Store::connect(&settings.database).await.expect("connected");
    store.migrate().await.expect("migrated");
    let error = refused(&settings, &archive, "a newer schema").await;
    assert!(error.to_string().contains("make a new database"), "{error}");
}

async fn a_newer_database_is_refused_in_words(backend: Backend) {
    let (folder, settings) = elsewhere(backend).await;
    let store = Store::connect(&settings.database).await.expect("connected");
    store.migrate().await.expect("migrated");
    let mut connection = store.read().await.expect("connected");
    sqlx::query(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
         SELECT version + 1, 'of tomorrow', success, checksum, execution_time FROM _sqlx_migrations WHERE version = $1",
    )
    .bind(newest())
    .execute(&mut *connection)
    .await
    .expect("written");
    drop(connection);
    for error in [
        store.migrate().await.expect_err("a start"),
        store.rehearse().await.expect_err("a rehearsal"),
    ] {
        assert!(matches!(error, StoreError::Newer { .. }), "{error:?}");
        assert_eq!(error.code(), ErrorCode::Conflict);
        let text = error.to_string();
        for word in ["newer release", "restore a backup", &newest().to_string()] {
            assert!(text.contains(word), "{text}");
        }
    }
    let file = folder.path().join("no.fdn");
    let error = backup(&settings, &place(&file), KeyPolicy::Needed).await;
    assert_eq!(error.expect_err("refused").code(), ErrorCode::Conflict);
    assert!(!file.exists());
}

async fn a_rehearsal_changes_nothing(backend: Backend) {
    let (folder, settings) = elsewhere(backend).await;
    let store = Store::connect(&settings.database).await.expect("connected");
    let all = MIGRATOR.iter().count();
    assert_eq!(store.pending().await.expect("read").len(), all);
    store.rehearse().await.expect("it would work");
    let mut connection = store.read().await.expect("connected");
    assert_eq!(schema_version(&mut connection).await.expect("read"), None);
    let versions: Vec<i64> = MIGRATOR.iter().map(|each| each.version).collect();
    let before = versions[versions.len() - 2];
    drop(connection);
    store.migrate_to(Some(before)).await.expect("migrated");
    let file = folder.path().join("no.fdn");
    let error = backup(&settings, &place(&file), KeyPolicy::Needed).await;
    let error = error.expect_err("an older schema").to_string();
    assert!(error.contains("fdn-controller migrate"), "{error}");
    let (code, said) = program(&settings, &["migrate", "--dry-run"], Vec::new());
    let said = String::from_utf8(said).expect("text");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(&newest().to_string()), "{said}");
    assert!(said.contains("1 migrations would be applied"), "{said}");
    let mut connection = store.read().await.expect("connected");
    let schema = schema_version(&mut connection).await.expect("read");
    assert_eq!(schema, Some(before));
    drop(connection);
    let (code, _) = program(&settings, &["migrate"], Vec::new());
    assert_eq!(code, Some(0));
    assert!(store.pending().await.expect("read").is_empty());
}

/// Runs the program as operators do; returns its exit code and standard output.
fn program(settings: &Settings, arguments: &[&str], input: Vec<u8>) -> (Option<i32>, Vec<u8>) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_fdn-controller"));
    program.args(arguments);
    program.env("FDN_DATABASE__URL", &settings.database.url);
    program.env("FDN_ARTIFACTS__LOCAL", &settings.artifacts.local);
    program.env("FDN_NETWORK__KEY_FILE", &settings.network.key_file);
    program.env("FDN_NETWORK__TOKEN_FILE", &settings.network.token_file);
    program.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = program.spawn().expect("it starts");
    let mut stdin = running.stdin.take().expect("a pipe");
    // A program that refuses its input does not read to the end.
    drop(stdin.write_all(&input));
    drop(stdin);
    let done = running.wait_with_output().expect("it ends");
    (done.status.code(), done.stdout)
}

async fn the_program_writes_to_a_pipe_and_reads_from_one(backend: Backend) {
    let rig = filled(backend).await;
    let (code, archive) = program(&rig.settings, &["backup", "-", "--with-keys"], Vec::new());
    assert_eq!(code, Some(0));
    let (folder, settings) = elsewhere(backend.other()).await;
    let (code, _) = program(
        &settings,
        &["restore", "-"],
        archive[..archive.len() / 2].to_vec(),
    );
    assert_eq!(code, Some(1));
    nothing_is_left(&settings, "half an archive").await;
    let (code, _) = program(&settings, &["restore", "-"], archive);
    assert_eq!(code, Some(0));
    std::fs::copy(
        rig.folder.path().join("password"),
        folder.path().join("password"),
    )
    .expect("copied");
    let broker = Arc::new(TestBroker::default());
    let new = Box::pin(Rig::start_on(settings, broker, folder)).await;
    assert_eq!(answers(&new).await, answers(&rig).await);
}
