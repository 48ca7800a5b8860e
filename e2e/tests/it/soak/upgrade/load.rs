//! What uses the network all the while: calls where DNS says, runs of a workflow, jobs, and commands. Nothing of it may fail.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fdn_core::JobId;
use fdn_core::job::{JobInfo, JobReceipt};
use fdn_e2e::network::REGIONS;
use fdn_e2e::{Cli, Fleet, dns};
use fdn_testkit::wait;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The pause between two calls of one caller.
const CALLS: Duration = Duration::from_millis(100);
/// Between two jobs, two runs, two commands.
const OTHERS: Duration = Duration::from_millis(500);
/// Failures that are told.
const TOLD: usize = 20;

/// Those who use the network until they are stopped.
pub(super) struct Load {
    stop: CancellationToken,
    tasks: JoinSet<()>,
    seen: Arc<Seen>,
}

/// What was done.
#[derive(Default)]
struct Seen {
    calls: AtomicU64,
    runs: AtomicU64,
    commands: AtomicU64,
    jobs: Mutex<BTreeMap<u64, JobId>>,
    failures: Mutex<Vec<String>>,
    /// The command that is typed.
    command: Mutex<Option<Arc<Cli>>>,
}

/// What was done until the end.
pub(super) struct Done {
    pub(super) calls: u64,
    pub(super) runs: u64,
    pub(super) commands: u64,
    pub(super) jobs: BTreeMap<u64, JobId>,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Seen {
    fn note(&self, what: &str, result: Result<()>) {
        let Err(reason) = result else { return };
        let mut failures = lock(&self.failures);
        if failures.len() < TOLD {
            failures.push(format!("{}: {what}: {reason:#}", fdn_service::now().0));
        }
    }

    fn counts(&self) -> [u64; 4] {
        let read = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let jobs = lock(&self.jobs).len() as u64;
        [
            read(&self.calls),
            read(&self.runs),
            read(&self.commands),
            jobs,
        ]
    }
}

impl Load {
    /// Begins: clients of every cluster call `hello` and `flow`, somebody submits jobs of `work`, and somebody types commands.
    pub(super) async fn start(fleet: &Fleet, cli: Cli) -> Result<Self> {
        let seen = Arc::new(Seen::default());
        *lock(&seen.command) = Some(Arc::new(cli));
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let http = fdn_service::http_client::builder()?
            .timeout(wait::PATIENCE)
            .build()?;
        for region in REGIONS.iter().take(fdn_e2e::fleet::CLUSTERS) {
            for (app, expected, pause) in [("hello", "one", CALLS), ("flow", "far", OTHERS)] {
                let caller = Caller {
                    dns: fleet.dns,
                    port: fleet.gateway_port,
                    subnet: region.subnet,
                    app,
                    expected,
                    http: http.clone(),
                    seen: Arc::clone(&seen),
                };
                tasks.spawn(caller.run(pause, stop.clone()));
            }
        }
        let jobs = Submitter {
            url: fleet.url(),
            token: login(fleet, &http).await?,
            http,
            seen: Arc::clone(&seen),
        };
        tasks.spawn(jobs.run(stop.clone()));
        tasks.spawn(type_commands(Arc::clone(&seen), stop.clone()));
        Ok(Self { stop, tasks, seen })
    }

    /// From now on this command is typed.
    pub(super) fn types(&self, cli: Cli) {
        *lock(&self.seen.command) = Some(Arc::new(cli));
    }

    /// Waits until some more of everything was done.
    pub(super) async fn goes_on(&self, during: &str) {
        let before = self.seen.counts();
        wait::within(4 * wait::PATIENCE, "the load to go on", async || {
            self.nothing_failed(during);
            let now = self.seen.counts();
            let done = now.iter().zip(before).zip([30, 2, 2, 4]);
            let behind = done
                .filter(|((now, before), more)| **now < before + more)
                .count();
            ensure!(behind == 0, "{before:?}, then {now:?}");
            Ok(())
        })
        .await;
    }

    fn nothing_failed(&self, during: &str) {
        let failures = lock(&self.seen.failures);
        assert!(failures.is_empty(), "{during}: {failures:#?}");
    }

    /// Ends it; what was done.
    ///
    /// # Panics
    /// When anything failed.
    pub(super) async fn stop(mut self) -> Done {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("nobody panics");
        }
        self.nothing_failed("at the end");
        let [calls, runs, commands, _] = self.seen.counts();
        let jobs = std::mem::take(&mut *lock(&self.seen.jobs));
        Done {
            calls,
            runs,
            commands,
            jobs,
        }
    }
}

/// Clients in one network.
struct Caller {
    dns: [SocketAddr; 2],
    port: u16,
    subnet: &'static str,
    app: &'static str,
    expected: &'static str,
    http: reqwest::Client,
    seen: Arc<Seen>,
}

impl Caller {
    async fn run(self, pause: Duration, stop: CancellationToken) {
        while !stop.is_cancelled() {
            let result = self.once().await;
            self.seen
                .note(&format!("{} from {}", self.app, self.subnet), result);
            tokio::time::sleep(pause).await;
        }
    }

    /// Asks for the host and calls every address of the answer.
    async fn once(&self) -> Result<()> {
        let (servers, subnet) = (self.dns, self.subnet);
        let host = format!("{}.fn.test", self.app);
        let name = host.clone();
        let asked = move || dns::ask_any(&servers, &name, Some(subnet));
        let answer = tokio::task::spawn_blocking(asked).await??;
        let is_there = answer.status == "NOERROR" && !answer.addresses.is_empty();
        ensure!(is_there, "{answer:?}");
        for address in answer.addresses {
            let url = format!("http://{}/", SocketAddr::new(address, self.port));
            let sent = self.http.get(&url).header("host", &host).send().await;
            let response = sent.with_context(|| url.clone())?;
            let status = response.status();
            let body = response.text().await.with_context(|| url.clone())?;
            ensure!(
                status == 200 && body == self.expected,
                "{url}: {status} {body}"
            );
            let count = if self.app == "hello" {
                &self.seen.calls
            } else {
                &self.seen.runs
            };
            count.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Somebody who submits jobs by the API.
struct Submitter {
    url: String,
    token: String,
    http: reqwest::Client,
    seen: Arc<Seen>,
}

impl Submitter {
    async fn run(self, stop: CancellationToken) {
        let mut number = 0;
        while !stop.is_cancelled() {
            let result = self.submit(number).await;
            self.seen.note(&format!("job {number}"), result);
            number += 1;
            tokio::time::sleep(OTHERS).await;
        }
    }

    async fn submit(&self, number: u64) -> Result<()> {
        let request = self
            .http
            .post(format!("{}/v1/apps/work/jobs", self.url))
            .bearer_auth(&self.token)
            // A connection for each, as many clients would.
            .header("connection", "close")
            .header("idempotency-key", format!("job-{number}"))
            .body(number.to_string());
        let answer = request.send().await?;
        let (status, text) = (answer.status(), answer.text().await?);
        ensure!(status == 202, "{status}: {text}");
        let receipt: JobReceipt = serde_json::from_str(&text)?;
        lock(&self.seen.jobs).insert(number, receipt.id);
        Ok(())
    }
}

/// All jobs of `work`, page by page.
pub(super) async fn all_jobs(fleet: &Fleet) -> Result<Vec<JobInfo>> {
    let http = fdn_service::http_client::build(wait::PATIENCE)?;
    let token = login(fleet, &http).await?;
    let (mut all, mut query) = (Vec::new(), "limit=1000".to_owned());
    loop {
        let url = format!("{}/v1/apps/work/jobs?{query}", fleet.url());
        let answer = http.get(url).bearer_auth(&token).send().await?;
        let answer = answer.error_for_status()?;
        let link = answer.headers().get("link");
        let link = link
            .map(|link| link.to_str().map(str::to_owned))
            .transpose()?;
        all.extend(answer.json::<Vec<JobInfo>>().await?);
        let Some(link) = link else { return Ok(all) };
        let target = link.split(['<', '>']).nth(1).context("no target")?;
        let (_, next) = target.split_once('?').context("no query")?;
        query = next.to_owned();
    }
}

async fn login(fleet: &Fleet, http: &reqwest::Client) -> Result<String> {
    let password = std::fs::read_to_string(fleet.path("admin.password"))?;
    let body = serde_json::json!({ "user": "admin", "password": password.trim() });
    let request = http.post(format!("{}/v1/login", fleet.url()));
    let answer = request.json(&body).send().await?.error_for_status()?;
    let answer: fdn_core::api::LoginResponse = answer.json().await?;
    Ok(answer.token)
}

async fn type_commands(seen: Arc<Seen>, stop: CancellationToken) {
    static COMMANDS: [&[&str]; 5] = [
        &["list"],
        &["node", "list"],
        &["describe", "hello"],
        &["explain", "hello", "--client", "192.0.2.1"],
        &["schedule", "list"],
    ];
    for command in COMMANDS.iter().cycle() {
        if stop.is_cancelled() {
            return;
        }
        let cli = lock(&seen.command).clone();
        let Some(cli) = cli else { return };
        let typed = tokio::task::spawn_blocking(move || cli.run(command.iter()));
        let typed = typed.await.expect("a command does not panic");
        let said = match typed.code {
            0 => Ok(()),
            code => Err(anyhow::anyhow!("{code}: {} {}", typed.out, typed.err)),
        };
        seen.note(&format!("fdn {}", command.join(" ")), said);
        seen.commands.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(OTHERS).await;
    }
}
