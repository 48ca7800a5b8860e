//! Sums of a network's calls through the store, as nodes send them: 1,000 apps, 10 nodes and 10,000 calls a second, which is 1:100 of what a large network has. How
//! fast they are taken and with how much CPU time, how large the database gets, how long bills take. Then the API over it: times of reads, deploys per second.
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
use fdn_controller::store::usage_sums::usage_add;
use fdn_controller::store::{DEFAULT_TENANT, Store};
use fdn_controller::{Controller, Settings};
use fdn_core::billing::{Currency, Kind, Meter, Month, Price, PriceList};
use fdn_core::usage::{CallFacts, CallRecord, UsageOutcome, UsageRecord, UsageSums, roll_up};
use fdn_core::{BatchId, InvocationId, MebiBytes, TenantId, Timestamp, VersionNumber};
use fdn_testkit::postgres::PostgresServer;
use reqwest::Method;
use reqwest::multipart::{Form, Part};
use uuid::Uuid;

use crate::{Options, median};

/// Calls of a batch: those of five seconds, after which a segment is sealed.
const BATCH: u64 = 5000;
/// Batches that are taken at the same time.
const WRITERS: usize = 4;
const APPS: u64 = 1000;
const CLUSTERS: u64 = 5;
const NODES: u64 = 10;
/// Calls a second, on all nodes together.
const RATE: u64 = 10_000;
/// Requests of one figure.
const REQUESTS: usize = 400;
const DEPLOYS: usize = 40;

pub(crate) fn run(options: &Options) -> Result<()> {
    println!(
        "billing: {} calls at {RATE} a second, {APPS} apps on {NODES} nodes in {CLUSTERS} clusters, sums of {BATCH} calls each, {WRITERS} at a time, \
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
    let per = |time: Duration| time.as_secs_f64() * RATE as f64 / options.records as f64;
    row(
        "taken",
        &format!(
            "{:.1} s, {:.0} calls/s, {} sums",
            took.wall.as_secs_f64(),
            options.records as f64 / took.wall.as_secs_f64(),
            took.sums
        ),
    );
    row(
        &format!("of one core at {RATE} calls/s"),
        &format!("{:.1} %, without the database", per(took.cpu) * 100.0),
    );
    rolling(month)?;
    sizes(&store).await?;
    check(&store, options.records).await?;
    bills(options, &store, month).await?;
    store.close().await;
    api(folder.path(), database, month).await
}

fn row(name: &str, text: &str) {
    println!("  {name:<46} {text}");
}

/// Owners, nodes and prices, so that sums are booked as in life.
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

/// The calls of a segment: so many of one node, within so many milliseconds. Every 50th batch is a day older than its neighbours.
fn segment(n: u64, calls: u64, month: Month) -> Result<Vec<CallRecord>> {
    let span = calls * 1000 * NODES / RATE;
    let late = if n % 50 == 49 { 86_400_000 } else { 0 };
    let at = (86_400_000 + n / NODES * span).saturating_sub(late) + month.start().get();
    let one = |i: u64| {
        let id = n * BATCH + i;
        // A cheap mix, the same in every run.
        let mixed = id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let app = format!("app-{}", mixed % APPS);
        let used = UsageRecord {
            invocation: InvocationId::from_uuid(Uuid::from_u64_pair(mixed, id)),
            app: app.parse()?,
            function: app.parse()?,
            version: VersionNumber::FIRST,
            started_at: Timestamp(at + mixed % span.max(1)),
            duration_us: 1000 + mixed % 200_000,
            cpu_us: 500 + mixed % 100_000,
            memory_mib: MebiBytes(64 << (mixed % 4)),
            gpu_memory_mib: MebiBytes(0),
            egress_bytes: mixed % 65_536,
            outcome: if mixed.is_multiple_of(100) {
                UsageOutcome::FunctionError
            } else {
                UsageOutcome::Ok
            },
        };
        Ok(CallRecord {
            used,
            call: Some(CallFacts::default()),
            noted: None,
        })
    };
    (0..calls).map(one).collect()
}

/// What storing took: time, CPU time of this process, of which making the sums on the node's side is told apart, and sums.
#[derive(Default)]
struct Took {
    wall: Duration,
    cpu: Duration,
    sums: u64,
}

/// CPU time of all threads of this process (proc(5): hundredths of a second).
fn cpu() -> Result<Duration> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = text.rsplit_once(')').context("a process")?;
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: Result<Vec<u64>, _> = ticks.map(str::parse).collect();
    Ok(Duration::from_millis(ticks?.into_iter().sum::<u64>() * 10))
}

async fn fill(store: &Store, month: Month, records: u64) -> Result<Took> {
    let all = records.div_ceil(BATCH);
    let mut took = Took::default();
    // A few at a time, so that only taking them is measured.
    for first in (0..all).step_by(64) {
        let mut batches = Vec::new();
        for n in first..all.min(first + 64) {
            let size = BATCH.min(records - n * BATCH);
            let batch = UsageSums {
                batch: BatchId::from_uuid(Uuid::from_u128(u128::from(n) + 1)),
                node: format!("node-{}", n % NODES).parse()?,
                records: u32::try_from(size)?,
                sums: roll_up(&segment(n, size, month)?)?,
            };
            took.sums += batch.sums.len() as u64;
            batches.push((n, batch));
        }
        let batches = Arc::new(batches);
        let (begin, spent) = (Instant::now(), cpu()?);
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..WRITERS {
            let (store, batches) = (store.clone(), Arc::clone(&batches));
            writers.spawn(async move {
                for (n, batch) in batches.iter().skip(writer).step_by(WRITERS) {
                    let bytes = serde_json::to_vec(batch)?;
                    for _ in 0..if n % 50 == 7 { 2 } else { 1 } {
                        let batch: UsageSums = serde_json::from_slice(&bytes)?;
                        let mut transaction = store.begin().await?;
                        usage_add(&mut transaction, &batch, fdn_service::now()).await?;
                        transaction.commit().await?;
                    }
                }
                anyhow::Ok(())
            });
        }
        while let Some(writer) = writers.join_next().await {
            writer??;
        }
        took.wall += begin.elapsed();
        took.cpu += cpu()?.saturating_sub(spent);
    }
    Ok(took)
}

/// What making sums of a full segment takes on the node.
fn rolling(month: Month) -> Result<()> {
    let records = segment(0, BATCH, month)?;
    let bytes: Result<Vec<Vec<u8>>, _> = records.iter().map(serde_json::to_vec).collect();
    let bytes = bytes?;
    let begin = Instant::now();
    let read: Result<Vec<CallRecord>, _> = bytes
        .iter()
        .map(|one| serde_json::from_slice(one))
        .collect();
    let read = read?;
    let parsed = begin.elapsed();
    let sums = roll_up(&read)?;
    row(
        "a node: a segment read, and rolled up",
        &format!(
            "{:.2} us and {:.2} us a call, {} sums of {BATCH} calls, {} KiB of {} KiB",
            parsed.as_secs_f64() * 1e6 / BATCH as f64,
            (begin.elapsed() - parsed).as_secs_f64() * 1e6 / BATCH as f64,
            sums.len(),
            serde_json::to_vec(&sums)?.len() >> 10,
            bytes.iter().map(Vec::len).sum::<usize>() >> 10,
        ),
    );
    Ok(())
}

async fn sizes(store: &Store) -> Result<()> {
    let c = &mut *store.read().await?;
    for table in ["usage_batches", "usage_hours", "usage_days"] {
        // One of three names of our own.
        let count = sqlx::AssertSqlSafe(format!("SELECT COUNT(*) FROM {table}"));
        let rows: i64 = sqlx::query_scalar(count).fetch_one(&mut *c).await?;
        let bytes: i64 = sqlx::query_scalar("SELECT pg_total_relation_size($1::regclass)")
            .bind(table)
            .fetch_one(&mut *c)
            .await?;
        row(
            table,
            &format!(
                "{rows} rows, {:.1} MiB with indexes",
                bytes as f64 / 1_048_576.0
            ),
        );
    }
    Ok(())
}

/// Both kinds of sums against what was sent.
async fn check(store: &Store, records: u64) -> Result<()> {
    let c = &mut *store.read().await?;
    sqlx::query("SET statement_timeout = '600s'")
        .execute(&mut *c)
        .await?;
    let begin = Instant::now();
    let [_, hours, days] = sums_check(c).await?;
    ensure!(hours == days, "the sums of hours are not those of days");
    ensure!(
        days.get(Meter::Invocations) == i128::from(records),
        "calls are missing"
    );
    row(
        "all sums added anew, the same",
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

/// A client of a controller's API.
pub(crate) struct Client {
    http: reqwest::Client,
    base: String,
    token: String,
}

impl Client {
    pub(crate) async fn login(controller: &Controller, password: &Path) -> Result<Self> {
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

    pub(crate) async fn deploy(&self, app: &str) -> Result<()> {
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
