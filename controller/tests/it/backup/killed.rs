//! A killed restore: a second one of the same archive succeeds, one of another archive fails and says what to do.

use std::process::{Command, Stdio};

use fdn_controller::backup::{KeyPolicy, restore};
use fdn_controller::store::Store;
use sqlx::AnyConnection;

use super::{answers, backed_up, elsewhere, filled, place};
use crate::broker::TestBroker;
use crate::machines::until;
use crate::rig::{Backend, Rig};

/// The number of the advisory lock that stops a restore before its last change of rows.
const STOP: &str = "4711";

async fn run(connection: &mut AnyConnection, text: &str) {
    let done = sqlx::raw_sql(sqlx::AssertSqlSafe(text.to_owned()));
    done.execute(connection).await.expect("done");
}

/// The number of objects in an artifact store.
fn objects(folder: &std::path::Path) -> usize {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let count = |entry: std::fs::DirEntry| match entry.path() {
        path if path.is_dir() => objects(&path),
        path => usize::from(!path.to_string_lossy().contains('#')),
    };
    entries.map(count).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_that_was_killed_is_done_again() {
    let rig = filled(Backend::Sqlite).await;
    let (archive, manifest) = backed_up(&rig, "one.fdn").await;
    let (folder, settings) = elsewhere(Backend::Postgres).await;
    let store = Store::connect(&settings.database).await.expect("connected");
    store.migrate().await.expect("migrated");
    let mut holder = store.read().await.expect("connected");
    run(
        &mut holder,
        &format!("SELECT 1 FROM pg_advisory_lock({STOP})"),
    )
    .await;
    let mut other = store.read().await.expect("connected");
    let stop = format!(
        "CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_lock({STOP}); RETURN NULL; END $$; \
         CREATE TRIGGER stop BEFORE UPDATE ON counters FOR EACH STATEMENT EXECUTE FUNCTION stop()"
    );
    run(&mut other, &stop).await;

    let mut program = Command::new(env!("CARGO_BIN_EXE_fdn-controller"));
    program.arg("restore").arg(&archive);
    program.env("FDN_DATABASE__URL", &settings.database.url);
    program.env("FDN_ARTIFACTS__LOCAL", &settings.artifacts.local);
    program.env("FDN_NETWORK__KEY_FILE", &settings.network.key_file);
    program.env("FDN_NETWORK__TOKEN_FILE", &settings.network.token_file);
    program.stdin(Stdio::null()).stdout(Stdio::null());
    let mut running = program.spawn().expect("it starts");
    let local = &settings.artifacts.local;
    let waits = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    until("it to stand still", async || {
        let mut connection = store.read().await.expect("connected");
        let found = sqlx::query(waits).fetch_optional(&mut *connection).await;
        found.expect("read").is_some()
    })
    .await;
    running.kill().expect("killed");
    running.wait().expect("it ended");
    let left = objects(local);
    assert_eq!(left as u64, manifest.objects.count, "all were written");
    run(&mut holder, &format!("SELECT pg_advisory_unlock({STOP})")).await;
    // This waits until the restore's transaction has ended.
    run(
        &mut other,
        "DROP TRIGGER stop ON counters; DROP FUNCTION stop()",
    )
    .await;
    drop((holder, other));
    store.close().await;

    // A restore of another archive finds objects that it does not know, and touches nothing.
    let small = filled(Backend::Sqlite).await;
    let (foreign, _) = backed_up(&small, "two.fdn").await;
    let mut elsewhere = settings.clone();
    elsewhere.network.key_file = folder.path().join("key-2");
    elsewhere.network.token_file = folder.path().join("token-2");
    let error = restore(&elsewhere, &place(&foreign), KeyPolicy::Needed).await;
    let error = error.expect_err("of another archive").to_string();
    assert!(
        error.contains("are not of this archive") && error.contains("was killed here"),
        "{error}"
    );
    assert_eq!(objects(local), left);
    // A restore of the same archive succeeds, although the keys are there already.
    restore(&settings, &place(&archive), KeyPolicy::Needed)
        .await
        .expect("restored");
    std::fs::copy(
        rig.folder.path().join("password"),
        folder.path().join("password"),
    )
    .expect("copied");
    let broker = std::sync::Arc::new(TestBroker::default());
    let new = Box::pin(Rig::start_on(settings, broker, folder)).await;
    assert_eq!(answers(&new).await, answers(&rig).await);
}
