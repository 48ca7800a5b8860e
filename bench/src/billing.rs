//! A month of usage records through the store into PostgreSQL: how fast they are stored and summed, how long bills take, how large it is. Then the API over
//! it: times of reads, deploys per second.
//!
//! The server is a throw-away one with 32 MiB of shared buffers and everything synced, as tests have it, on the same machine.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fdn_bus::{Limits, MemoryBroker};
use fdn_controller::app::billing::bill::{Terms, compute};
use fdn_controller::settings::{ArtifactSettings, DatabaseSettings, NetworkSettings};
use fdn_controller::store::billing::clock::{clock_begin, clock_close};
use fdn_controller::store::billing::price::price_list_insert;
use fdn_controller::store::billing::sums::sums_check;
use fdn_controller::store::usage::usage_store;
use fdn_controller::store::{DEFAULT_TENANT, Store};
use fdn_controller::{Controller, Settings};
use fdn_core::billing::{Currency, Kind, Meter, Month, Price, PriceList};
use fdn_core::usage::{UsageBatch, UsageOutcome, UsageRecord};
use fdn_core::{BatchId, InvocationId, MebiBytes, TenantId, Timestamp, VersionNumber};
use fdn_testkit::postgres::PostgresServer;
use reqwest::Method;
use reqwest::multipart::{Form, Part};
use uuid::Uuid;

use crate::{Options, median};

/// Records of a batch: about a segment of a node's spool.
const BATCH: u64 = 1500;
/// Batches that are stored at the same time.
const WRITERS: u64 = 4;
const APPS: u64 = 200;
const CLUSTERS: u64 = 5;
const NODES: u64 = 25;
/// Requests of one figure.
const REQUESTS: usize = 400;
const DEPLOYS: usize = 40;

pub(crate) fn run(options: &Options) -> Result<()> {
    println!(
        "billing: {} records of a month, {APPS} apps on {NODES} nodes in {CLUSTERS} clusters, batches of {BATCH}, {WRITERS} at a time, \
         one batch of 50 a day late and one of 50 sent twice; PostgreSQL with 32 MiB of shared buffers, every commit synced",
        options.records
    );
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(measure(options))
}

async fn measure(options: &Options) -> Result<()> {
    let server = PostgresServer::start().await?;
    let folder = tempfile::tempdir()?;
    let database = DatabaseSettings {
        url: server.database()?.url,
        ..DatabaseSettings::default()
    };
    let store = Store::connect(&database).await?;
    store.migrate().await?;
    let month = Month::of(Timestamp(fdn_service::now().get())).previous();
    prepare(&store, month).await?;
    let took = fill(&store, month, options.records).await?;
    row(
        "stored and summed",
        &format!(
            "{:.1} s, {:.0} records/s",
            took.as_secs_f64(),
            options.records as f64 / took.as_secs_f64()
        ),
    );
    sizes(&store).await?;
    check(&store, options.records).await?;
    bills(options, &store, month).await?;
    store.close().await;
    api(folder.path(), database, month).await
}

fn row(name: &str, text: &str) {
    println!("  {name:<46} {text}");
}

/// Owners, nodes and prices, so that records are booked as in life.
async fn prepare(store: &Store, month: Month) -> Result<()> {
    let c = &mut *store.read().await?;
    for app in 0..APPS {
        sqlx::query("INSERT INTO app_owners (app, since, tenant) VALUES ($1, 0, $2)")
            .bind(format!("app-{app}"))
            .bind(DEFAULT_TENANT.to_string())
            .execute(&mut *c)
            .await?;
    }
    for cluster in 0..CLUSTERS {
        sqlx::query(
            "INSERT INTO clusters (id, region, lat, lon, created_at) VALUES ($1, $2, 0, 0, 0)",
        )
        .bind(format!("cluster-{cluster}"))
        .bind(format!("region-{}", cluster % 3))
        .execute(&mut *c)
        .await?;
    }
    for node in 0..NODES {
        sqlx::query("INSERT INTO nodes (id, cluster, gateway, admin, created_at) VALUES ($1, $2, '127.0.0.1:1', '127.0.0.1:2', 0)")
            .bind(format!("node-{node}"))
            .bind(format!("cluster-{}", node % CLUSTERS))
            .execute(&mut *c)
            .await?;
    }
    let list = PriceList {
        name: "bench".parse()?,
        currency: Currency::EUR,
        from: month.first_day(),
        to: None,
        prices: Meter::ALL
            .into_iter()
            .map(|meter| (meter, Price::new(20, 1000)))
            .collect(),
        free: [(Meter::Invocations, 1000)].into(),
    };
    price_list_insert(c, &list, "bench", Timestamp(0)).await?;
    clock_begin(c, month).await?;
    Ok(())
}

/// The batch `n` of `all`: a node's calls of some minutes. Every 50th is a day older than its neighbours.
fn batch(n: u64, all: u64, records: u64, month: Month) -> Result<UsageBatch> {
    let (start, length) = (month.start().get(), month.end().get() - month.start().get());
    let minutes = 600_000;
    let late = if n % 50 == 49 { 86_400_000 } else { 0 };
    let at = ((length - minutes) / all.max(1) * n).saturating_sub(late);
    let one = |i: u64| {
        let id = n * BATCH + i;
        // A cheap mix, the same in every run.
        let mixed = id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let app = format!("app-{}", mixed % APPS);
        Ok(UsageRecord {
            invocation: InvocationId::from_uuid(Uuid::from_u64_pair(mixed, id)),
            app: app.parse()?,
            function: app.parse()?,
            version: VersionNumber::FIRST,
            started_at: Timestamp(start + at + mixed % minutes),
            duration_us: 1000 + mixed % 200_000,
            cpu_us: 500 + mixed % 100_000,
            memory_mib: MebiBytes(64 << (mixed % 4)),
            gpu_memory_mib: MebiBytes(0),
            egress_bytes: mixed % 65_536,
            outcome: UsageOutcome::Ok,
        })
    };
    Ok(UsageBatch {
        batch: BatchId::from_uuid(Uuid::from_u128(u128::from(n) + 1)),
        node: format!("node-{}", n % NODES).parse()?,
        records: (0..records).map(one).collect::<Result<_>>()?,
    })
}

async fn fill(store: &Store, month: Month, records: u64) -> Result<Duration> {
    let all = records.div_ceil(BATCH);
    let begin = Instant::now();
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let store = store.clone();
        writers.spawn(async move {
            for n in (writer..all).step_by(usize::try_from(WRITERS)?) {
                let size = BATCH.min(records - n * BATCH);
                let batch = batch(n, all, size, month)?;
                for _ in 0..if n % 50 == 7 { 2 } else { 1 } {
                    let mut transaction = store.begin().await?;
                    usage_store(&mut transaction, &batch, fdn_service::now()).await?;
                    transaction.commit().await?;
                }
            }
            anyhow::Ok(())
        });
    }
    while let Some(writer) = writers.join_next().await {
        writer??;
    }
    Ok(begin.elapsed())
}

async fn sizes(store: &Store) -> Result<()> {
    let c = &mut *store.read().await?;
    for table in ["usage_records", "usage_hours", "usage_days"] {
        // One of three names of our own.
        let count = sqlx::AssertSqlSafe(format!("SELECT COUNT(*) FROM {table}"));
        let rows: i64 = sqlx::query_scalar(count).fetch_one(&mut *c).await?;
        let octets: i64 = sqlx::query_scalar("SELECT pg_total_relation_size($1::regclass)")
            .bind(table)
            .fetch_one(&mut *c)
            .await?;
        row(
            table,
            &format!(
                "{rows} rows, {:.1} MiB with indexes",
                octets as f64 / 1_048_576.0
            ),
        );
    }
    Ok(())
}

/// All records against both kinds of sums.
async fn check(store: &Store, records: u64) -> Result<()> {
    let c = &mut *store.read().await?;
    sqlx::query("SET statement_timeout = '600s'")
        .execute(&mut *c)
        .await?;
    let begin = Instant::now();
    let [kept, hours, days] = sums_check(c).await?;
    ensure!(
        kept == hours && hours == days,
        "the sums are not those of the records"
    );
    ensure!(
        kept.get(Meter::Invocations) == i128::from(records),
        "records are missing"
    );
    row(
        "all records added anew, the same",
        &format!("{:.2} s", begin.elapsed().as_secs_f64()),
    );
    sqlx::query("SET statement_timeout = '30s'")
        .execute(&mut *c)
        .await?;
    Ok(())
}

async fn bills(options: &Options, store: &Store, month: Month) -> Result<()> {
    let (tenant, terms): (TenantId, Terms) = (
        DEFAULT_TENANT,
        Terms {
            currency: Currency::EUR,
            now: fdn_service::now(),
        },
    );
    let mut took = Vec::new();
    let mut lines = 0;
    for _ in 0..options.rounds.max(1) {
        let c = &mut *store.read().await?;
        let begin = Instant::now();
        let statement = compute(c, tenant, month, terms).await?;
        took.push(begin.elapsed().as_secs_f64() * 1e3);
        lines = statement.lines.len();
        let calls = statement
            .lines
            .iter()
            .filter(|l| l.meter == Meter::Invocations && l.kind == Kind::Usage);
        ensure!(
            calls.map(|line| line.quantity.0).sum::<i128>() == i128::from(options.records),
            "the bill lacks calls"
        );
    }
    row(
        "the month's statement",
        &format!("{:.1} ms, {lines} lines", median(took)),
    );
    let c = &mut *store.read().await?;
    let begin = Instant::now();
    ensure!(clock_close(c, month).await?, "the month was closed before");
    row(
        "closing the month",
        &format!("{:.1} ms", begin.elapsed().as_secs_f64() * 1e3),
    );
    Ok(())
}

/// A controller over what was stored, and a client of it on this machine.
async fn api(folder: &Path, database: DatabaseSettings, month: Month) -> Result<()> {
    let mut settings = Settings {
        listen: ([127, 0, 0, 1], 0).into(),
        network: NetworkSettings {
            token_file: folder.join("token"),
            key_file: folder.join("key"),
        },
        database,
        artifacts: ArtifactSettings {
            local: folder.join("artifacts"),
            ..ArtifactSettings::default()
        },
        ..Settings::default()
    };
    settings.accounts.initial_password_file = Some(folder.join("password"));
    settings.uploads.folder = Some(folder.join("uploads"));
    let broker = Arc::new(MemoryBroker::new(Limits::default()));
    let controller =
        Controller::start_with(settings, broker, fdn_runtime::Compiler::InProcess).await?;
    let client = Client::login(&controller, &folder.join("password")).await?;
    for path in [
        "/v1/apps".to_owned(),
        format!("/v1/billing/statements/{month}?limit=100"),
        format!("/v1/billing/usage?by=function&month={month}"),
        format!("/v1/billing/usage?by=day&month={month}"),
    ] {
        let mut took = Vec::with_capacity(REQUESTS);
        for _ in 0..REQUESTS {
            let begin = Instant::now();
            client.get(&path).await?;
            took.push(begin.elapsed().as_secs_f64() * 1e3);
        }
        took.sort_by(f64::total_cmp);
        row(
            &format!("GET {path}"),
            &format!(
                "p50 {:.2} ms, p99 {:.2} ms",
                took[REQUESTS / 2],
                took[REQUESTS * 99 / 100]
            ),
        );
    }
    let begin = Instant::now();
    for n in 0..DEPLOYS {
        client.deploy(&format!("bench-{n}")).await?;
    }
    let took = begin.elapsed().as_secs_f64();
    row(
        "deploys, one after another",
        &format!(
            "{:.1} a second, each validated, compiled and probed",
            DEPLOYS as f64 / took
        ),
    );
    controller.stop().await;
    Ok(())
}

struct Client {
    http: reqwest::Client,
    base: String,
    token: String,
}

impl Client {
    async fn login(controller: &Controller, password: &Path) -> Result<Self> {
        let base = format!("http://{}", controller.address());
        let http = fdn_service::http_client::build(Duration::from_secs(60))?;
        let body = serde_json::json!({ "user": "admin", "password": std::fs::read_to_string(password)?.trim() });
        let answer = http
            .post(format!("{base}/v1/login"))
            .json(&body)
            .send()
            .await?
            .error_for_status()?;
        let answer: serde_json::Value = answer.json().await?;
        let token = answer["token"].as_str().context("a token")?.to_owned();
        Ok(Self { http, base, token })
    }

    async fn get(&self, path: &str) -> Result<()> {
        let request = self
            .http
            .request(Method::GET, format!("{}{path}", self.base));
        let answer = request
            .bearer_auth(&self.token)
            .send()
            .await?
            .error_for_status()?;
        answer.bytes().await?;
        Ok(())
    }

    async fn deploy(&self, app: &str) -> Result<()> {
        let component = fdn_testkit::components::hello(app);
        let form = Form::new().part(
            "component",
            Part::bytes(component).file_name("component.wasm"),
        );
        let request = self
            .http
            .post(format!("{}/v1/apps/{app}/versions", self.base));
        request
            .bearer_auth(&self.token)
            .multipart(form)
            .send()
            .await?
            .error_for_status()?;
        Ok(())
    }
}
