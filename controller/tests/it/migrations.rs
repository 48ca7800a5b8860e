//! The schema: created from nothing, migrated with rows in it, and migrated by several controllers at once.

use fdn_controller::store::app::app_list;
use fdn_controller::store::session::session_find;
use fdn_controller::store::tenant::membership_list;
use fdn_controller::store::user::user_list;
use fdn_controller::store::version::version_list;
use fdn_controller::store::{MIGRATOR, Store};
use fdn_core::job::JobReceipt;
use fdn_core::{NetworkRole, TenantRole, Timestamp, VersionNumber};
use fdn_testkit::components;
use reqwest::Method;
use sqlx::{AssertSqlSafe, Connection};

use crate::rig::{Backend, Rig, on_both};
use crate::walk::operations;

on_both!(
    rows_survive_later_migrations,
    several_at_once_agree,
    a_changed_migration_is_refused,
    columns_of_a_later_release_disturb_nothing,
);

/// The last migration at which the rows below can be written.
const FUNCTIONS: i64 = 20_261_121_080_100;

async fn rows_survive_later_migrations(backend: Backend) {
    let folder = tempfile::tempdir().expect("folder");
    let store = Store::connect(&backend.database(folder.path()).await)
        .await
        .expect("connected");
    assert!(
        MIGRATOR.iter().any(|m| m.version > FUNCTIONS),
        "there is something to apply over the rows"
    );
    store
        .migrate_to(Some(FUNCTIONS))
        .await
        .expect("the first migrations");
    let mut connection = store.read().await.expect("connected");
    let tenant = &fdn_controller::store::DEFAULT_TENANT.to_string();
    let digest = format!("sha256:{}", "a".repeat(64));
    let manifest = serde_json::to_string(&fdn_core::manifest::Manifest::default()).expect("JSON");
    let token = "a".repeat(64);
    let workflow = r#"{"stages":[{"name":"old","function":"old","version":1}],"edges":[]}"#;
    for (sql, values) in [
        (
            "INSERT INTO users VALUES ($1, $2, 'admin', 'hash', 1)",
            vec!["root", tenant],
        ),
        (
            "INSERT INTO users VALUES ($1, $2, 'viewer', 'other hash', 2)",
            vec!["jane doe", tenant],
        ),
        (
            "INSERT INTO tokens VALUES ($1, $2, 1, 100, 50)",
            vec![&token, "root"],
        ),
        (
            "INSERT INTO functions VALUES ($1, $2, 1, 1, NULL)",
            vec![tenant, "old"],
        ),
        (
            "INSERT INTO versions VALUES ($1, $2, 1, $3, 5, $4, '{}', 1, 'root')",
            vec![tenant, "old", &digest, &manifest],
        ),
        (
            "INSERT INTO apps VALUES ($1, $2, 'old.fn.test', $3, 1, NULL, '[]', 7, 7, 1)",
            vec!["old", tenant, workflow],
        ),
    ] {
        let query = values.into_iter().fold(sqlx::query(sql), |query, value| {
            query.bind(value.to_owned())
        });
        query.execute(&mut *connection).await.expect(sql);
    }
    drop(connection);
    store.migrate().await.expect("the later migrations");
    store.migrate().await.expect("again, which does nothing");
    let mut connection = store.read().await.expect("connected");
    let users = user_list(&mut connection, "", 10).await.expect("read");
    let of = |n: usize| (users[n].info.name.as_str(), users[n].info.network_role);
    assert_eq!(users.len(), 2, "nobody is lost");
    assert_eq!(of(0), ("jane doe", None));
    assert_eq!(of(1), ("root", Some(NetworkRole::Admin)));
    assert_eq!(users[0].password_hash, "other hash");
    for (user, role) in [
        ("root", TenantRole::Owner),
        ("jane doe", TenantRole::Viewer),
    ] {
        let tenants = membership_list(&mut connection, user).await.expect("read");
        assert_eq!(
            (tenants[0].tenant.as_str(), tenants[0].role),
            ("default", role)
        );
    }
    let (session, _) = session_find(&mut connection, &token, Timestamp(99))
        .await
        .expect("read")
        .expect("whoever was logged in stays so");
    assert_eq!(
        (session.user.as_str(), session.last_used_at),
        ("root", Timestamp(50))
    );
    let apps = app_list(&mut connection).await.expect("read");
    assert_eq!(
        (
            apps[0].name.as_str(),
            apps[0].revision.get(),
            apps[0].previous
        ),
        ("old", 7, None)
    );
    let versions = version_list(
        &mut connection,
        fdn_controller::store::DEFAULT_TENANT,
        &"old".parse().expect("function"),
    )
    .await
    .expect("read");
    assert_eq!(
        (versions[0].number, versions[0].size),
        (VersionNumber::FIRST, 5)
    );
}

async fn several_at_once_agree(backend: Backend) {
    let folder = tempfile::tempdir().expect("folder");
    let settings = backend.database(folder.path()).await;
    let mut stores = Vec::new();
    for _ in 0..4 {
        stores.push(Store::connect(&settings).await.expect("connected"));
    }
    let done = futures::future::join_all(stores.iter().map(Store::migrate)).await;
    assert!(done.iter().all(Result::is_ok), "{done:?}");
    let mut connection = stores[0].read().await.expect("connected");
    let applied: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM _sqlx_migrations")
        .fetch_one(&mut *connection)
        .await
        .expect("counted");
    assert_eq!(applied as usize, MIGRATOR.iter().count());
}

/// Ordinary queries have limits in PostgreSQL, which neither a migration of a large table nor the wait for another controller's would keep.
#[tokio::test(flavor = "multi_thread")]
async fn migrations_may_take_long_and_queries_may_not() {
    let folder = tempfile::tempdir().expect("folder");
    let settings = Backend::Postgres.database(folder.path()).await;
    let store = Store::connect(&settings).await.expect("connected");
    let first = store.migrate_to(Some(FUNCTIONS)).await;
    first.expect("the first migrations");
    let watch = "CREATE FUNCTION unlimited() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         IF current_setting('statement_timeout') <> '0' OR current_setting('lock_timeout') <> '0' THEN RAISE EXCEPTION 'limited'; END IF; \
         RETURN NEW; END $$; \
         CREATE TRIGGER unlimited BEFORE INSERT ON _sqlx_migrations FOR EACH ROW EXECUTE FUNCTION unlimited()";
    let mut connection = store.read().await.expect("connected");
    sqlx::raw_sql(watch)
        .execute(&mut *connection)
        .await
        .expect("created");
    drop(connection);
    store.rehearse().await.expect("it would work");
    store.migrate().await.expect("the later migrations");
    // All that the pool has.
    let mut connections = Vec::new();
    for _ in 0..settings.max_connections {
        let mut connection = store.read().await.expect("connected");
        let limits: String = sqlx::query_scalar(
            "SELECT current_setting('statement_timeout') || ' ' || current_setting('lock_timeout')",
        )
        .fetch_one(&mut *connection)
        .await
        .expect("read");
        assert_eq!(limits, "30s 10s");
        connections.push(connection);
    }
}

async fn a_changed_migration_is_refused(backend: Backend) {
    let folder = tempfile::tempdir().expect("folder");
    let store = backend.store(folder.path()).await;
    let mut connection = store.read().await.expect("connected");
    let mut tx = connection.begin().await.expect("begun");
    sqlx::query("UPDATE _sqlx_migrations SET checksum = $1")
        .bind(vec![0u8; 48])
        .execute(&mut *tx)
        .await
        .expect("changed");
    tx.commit().await.expect("committed");
    drop(connection);
    let error = store.migrate().await.expect_err("refused");
    assert!(
        error
            .to_string()
            .contains("could not be brought up to date"),
        "{error}"
    );
}

/// In an upgrade, the first new controller migrates under old ones with prepared statements.
async fn columns_of_a_later_release_disturb_nothing(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    rig.two_regions().await;
    rig.deploy("hello", components::hello("first")).await;
    let submit = rig.request(Method::POST, "/v1/apps/hello/jobs").body("x");
    let job: JobReceipt = rig.json(submit).await;
    let asked: Vec<String> = operations()
        .iter()
        .filter(|o| o.method == Method::GET && !o.path.contains("/events"))
        .map(|o| o.filled(&job.id.to_string()))
        .collect();
    assert!(asked.len() >= 50, "the walk found {}", asked.len());
    let answers = async || {
        let mut all = Vec::new();
        for path in &asked {
            let answer = rig.request(Method::GET, path).send().await;
            all.push((path.as_str(), answer.expect("an answer").status()));
        }
        all
    };
    // More often than there are connections, so that each connection has prepared the statements.
    let mut before = Vec::new();
    for _ in 0..5 {
        before = answers().await;
    }
    let tables = match backend {
        Backend::Postgres => {
            "SELECT CAST(tablename AS TEXT) FROM pg_tables WHERE schemaname = current_schema() AND tablename NOT LIKE '\\_sqlx%'"
        }
        Backend::Sqlite => {
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE '\\_sqlx%' ESCAPE '\\' AND name NOT LIKE 'sqlite%'"
        }
    };
    let store = Store::connect(&rig.settings.database)
        .await
        .expect("connected");
    let mut later = store.read().await.expect("connected");
    let tables: Vec<String> = sqlx::query_scalar(tables)
        .fetch_all(&mut *later)
        .await
        .expect("tables");
    assert!(tables.len() >= 40, "{tables:?}");
    for table in tables {
        let add = format!("ALTER TABLE {table} ADD COLUMN of_a_later_release TEXT");
        sqlx::query(AssertSqlSafe(add))
            .execute(&mut *later)
            .await
            .expect("added");
    }
    for _ in 0..5 {
        assert_eq!(answers().await, before);
    }
    rig.deploy("hello", components::hello("second")).await;
}
