//! Ten thousand jobs, submitted while controller and broker are killed and started again: every accepted one ends exactly once in its record.

#![allow(
    clippy::print_stderr,
    reason = "figures that a reader of the test wants to see"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fdn_core::JobId;
use fdn_core::job::{JobInfo, JobReceipt, JobState};
use fdn_e2e::{Deadlines, Network};
use fdn_testkit::{components, wait};
use tokio::task::JoinSet;

const JOBS: usize = 10_000;
/// Those who submit at the same time.
const CALLERS: usize = 12;
/// How long all jobs may take to end on a slow and busy machine.
const LONG: Duration = Duration::from_secs(900);

#[derive(Clone)]
struct Api {
    http: reqwest::Client,
    url: String,
    token: String,
}

impl Api {
    async fn login(network: &Network) -> Result<Self> {
        let password = std::fs::read_to_string(network.folder().join("admin.password"))?;
        let http = fdn_service::http_client::build(Duration::from_secs(60))?;
        let url = format!("http://{}", network.api());
        let body = serde_json::json!({ "user": "admin", "password": password.trim() });
        let answer = http
            .post(format!("{url}/v1/login"))
            .json(&body)
            .send()
            .await?;
        let answer: fdn_core::api::LoginResponse = answer.error_for_status()?.json().await?;
        Ok(Self {
            http,
            url,
            token: answer.token,
        })
    }

    /// Submits job `n` once; the job if it was accepted.
    async fn submit(&self, n: usize) -> Result<JobId> {
        let request = self
            .http
            .post(format!("{}/v1/apps/work/jobs", self.url))
            .bearer_auth(&self.token)
            .header("idempotency-key", format!("job-{n}"))
            .body(format!("{n}"));
        let answer = request.send().await?;
        let status = answer.status();
        let text = answer.text().await?;
        ensure!(status == 202, "{status}: {text}");
        Ok(serde_json::from_str::<JobReceipt>(&text)?.id)
    }

    async fn page(&self, query: &str) -> Result<(Vec<JobInfo>, Option<String>)> {
        let url = format!("{}/v1/apps/work/jobs{query}", self.url);
        let answer = self.http.get(url).bearer_auth(&self.token).send().await?;
        let answer = answer.error_for_status()?;
        let link = answer
            .headers()
            .get("link")
            .and_then(|link| link.to_str().ok());
        let next = link.and_then(|link| {
            let target = link.strip_prefix('<')?.split_once('>')?.0;
            Some(target.split_once('?')?.1.to_owned())
        });
        Ok((answer.json().await?, next))
    }

    /// All jobs of the app.
    async fn all(&self) -> Result<Vec<JobInfo>> {
        let (mut all, mut query) = (Vec::new(), "?limit=1000".to_owned());
        loop {
            let (page, next) = self.page(&query).await?;
            all.extend(page);
            match next {
                Some(next) => query = format!("?{next}"),
                None => return Ok(all),
            }
        }
    }
}

/// Submits a job again and again until it is accepted, as a caller does who wants it.
async fn accepted_at_last(api: &Api, n: usize) -> JobId {
    let end = Instant::now() + LONG;
    loop {
        match api.submit(n).await {
            Ok(id) => return id,
            Err(reason) => assert!(Instant::now() < end, "job {n} is not accepted: {reason}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Submits until every number has a job, whatever fails meanwhile.
async fn submit_all(
    api: Api,
    next: Arc<AtomicUsize>,
    done: Arc<AtomicUsize>,
) -> BTreeMap<usize, JobId> {
    let mut accepted = BTreeMap::new();
    loop {
        let n = next.fetch_add(1, Ordering::SeqCst);
        if n >= JOBS {
            return accepted;
        }
        let id = accepted_at_last(&api, n).await;
        accepted.insert(n, id);
        done.fetch_add(1, Ordering::SeqCst);
    }
}

async fn reached(done: &AtomicUsize, count: usize) {
    wait::within(LONG, "jobs to be accepted", async || {
        let now = done.load(Ordering::SeqCst);
        if now >= count { Ok(()) } else { Err(now) }
    })
    .await;
}

async fn deploy(network: &Network) {
    let folder = network.folder().join("work");
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::write(folder.join("work.wasm"), components::hello("done")).expect("written");
    std::fs::write(folder.join("fdn.toml"), "idempotent = true\n").expect("written");
    let cli = network.cli().expect("logged in");
    let path = folder.join("work.wasm").display().to_string();
    cli.json(["deploy", "work", &path, "--wait", "--timeout", "120s"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_jobs_end_once_each_while_controller_and_broker_die() {
    let mut network = Network::without_nodes(Deadlines::Shipped)
        .await
        .expect("the network starts");
    for region in 0..2 {
        network
            .start_node((region, 0), "")
            .await
            .expect("a node starts");
    }
    deploy(&network).await;
    let api = Api::login(&network).await.expect("logged in");
    let begun = Instant::now();
    let (next, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        callers.spawn(submit_all(
            api.clone(),
            Arc::clone(&next),
            Arc::clone(&done),
        ));
    }
    let mut deaths = 0;
    for share in [1, 3, 5, 7] {
        reached(&done, JOBS * share / 10).await;
        network.kill_controller();
        network.start_controller().await.expect("it starts again");
        reached(&done, JOBS * (share + 1) / 10).await;
        network.rabbit.kill();
        network.rabbit.restart().await.expect("it starts again");
        deaths += 2;
    }
    let mut accepted = BTreeMap::new();
    while let Some(some) = callers.join_next().await {
        accepted.extend(some.expect("a caller ends"));
    }
    let submitted = begun.elapsed();
    assert_eq!(accepted.len(), JOBS);
    wait::within(LONG, "every job to end", async || {
        for state in ["queued", "running"] {
            let (open, _) = api.page(&format!("?state={state}&limit=1")).await?;
            ensure!(open.is_empty(), "{state}: {:?}", open.first());
        }
        Ok::<_, anyhow::Error>(())
    })
    .await;
    let all = api.all().await.context("all jobs").expect("listed");
    let ended: BTreeMap<JobId, &JobInfo> = all.iter().map(|job| (job.id, job)).collect();
    assert_eq!(all.len(), ended.len(), "no job is listed twice");
    assert_eq!(
        all.len(),
        JOBS,
        "a key made more than one job, or a job that was not accepted is there"
    );
    for (n, id) in &accepted {
        let job = ended
            .get(id)
            .unwrap_or_else(|| panic!("job {n}, {id}, has vanished"));
        assert_eq!(job.state, JobState::Succeeded, "{job:?}");
        assert!(job.ended_at.is_some() && job.attempts >= 1);
    }
    let again = all.iter().filter(|job| job.attempts > 1).count();
    eprintln!(
        "{JOBS} jobs accepted in {submitted:.1?} and ended in {:.1?}, {deaths} deaths, {again} jobs with more than one attempt",
        begun.elapsed()
    );
    network.stop().expect("everything stops well");
}
