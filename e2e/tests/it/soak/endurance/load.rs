//! Those who call and submit without a pause that matters: a client in each region, one of a workflow, one who submits jobs.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fdn_core::ClientPrefix;
use fdn_core::job::JobReceipt;
use fdn_e2e::endurance::judge::{Attempt, Called, Outcome, PATIENCE, Rule};
use fdn_e2e::endurance::processes::Processes;
use fdn_e2e::endurance::schedule::Part;
use fdn_e2e::network::REGIONS;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::world::{FLOW, HELLO, WORK, World, lock};

/// Between two calls of a client, and two jobs.
const PAUSE: Duration = Duration::from_millis(60);
const JOBS: Duration = Duration::from_millis(250);
/// How long a DNS server may take on a busy machine before the client asks the other one.
const ANSWER: Duration = Duration::from_secs(4);
/// Between two tries of one call or submission.
const AGAIN: Duration = Duration::from_millis(200);
/// How long a job is submitted before that counts as refused for good: as long as the centre may be away.
const SUBMITTED: Duration = Duration::from_secs(150);
/// Each so many jobs one is submitted a second time under its key.
const TWICE: u64 = 20;

/// Begins all of them; they end with `stop`.
pub(crate) fn begin(world: &Arc<World>, stop: &CancellationToken, tasks: &mut JoinSet<()>) {
    for region in 0..REGIONS.len() {
        let client = Client {
            world: Arc::clone(world),
            app: HELLO,
            called: Called::Function,
            region,
        };
        tasks.spawn(client.calls(stop.clone()));
    }
    let client = Client {
        world: Arc::clone(world),
        app: FLOW,
        called: Called::Workflow,
        region: 0,
    };
    tasks.spawn(client.calls(stop.clone()));
    tasks.spawn(submit(Arc::clone(world), stop.clone()));
}

struct Client {
    world: Arc<World>,
    app: &'static str,
    called: Called,
    region: usize,
}

impl Client {
    async fn calls(self, stop: CancellationToken) {
        for number in 0_u64.. {
            if stop.is_cancelled() {
                return;
            }
            self.call(number).await;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Calls until there is an answer, as a client does who wants one.
    async fn call(&self, number: u64) {
        let began = self.world.now();
        let mut server = (number % 2) as usize;
        loop {
            for machine in self.ask(server).await {
                if self.attempt(machine, number).await {
                    return;
                }
            }
            let waited = self.world.now() - began;
            if waited > PATIENCE {
                let what = format!(
                    "{} from {}, {waited:?}",
                    self.app, REGIONS[self.region].name
                );
                self.world.violated(Rule::Unanswered, what);
                return;
            }
            server = 1 - server;
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// The machines that a DNS server names; none if it does not answer.
    async fn ask(&self, server: usize) -> Vec<IpAddr> {
        let client: ClientPrefix = REGIONS[self.region].subnet.parse().expect("a prefix");
        let name = format!("{}.fn.test", self.app);
        let (part, from) = (Part::Dns(server), self.world.now());
        let asked =
            fdn_testkit::dns::addresses(self.world.dns[server], &name, client, ANSWER).await;
        let to = self.world.now();
        match asked {
            Ok(found) if !found.is_empty() => {
                let found: Vec<IpAddr> = found.into_iter().map(IpAddr::V4).collect();
                let named = found.iter().filter_map(|ip| Processes::machine(*ip));
                let named: Vec<Part> = named.collect();
                self.world.judge().answer(part, from, &named);
                found
            }
            Ok(_) => {
                self.world
                    .judge()
                    .no_answer(part, from, to, "it names nobody");
                Vec::new()
            }
            Err(error) => {
                let why = format!("{error:#}");
                self.world.judge().no_answer(part, from, to, &why);
                Vec::new()
            }
        }
    }

    /// Calls one gateway. Whether it has answered.
    async fn attempt(&self, machine: IpAddr, number: u64) -> bool {
        let world = &self.world;
        let Some(node) = Processes::machine(machine) else {
            world.violated(Rule::CallFailed, format!("DNS names {machine}"));
            return false;
        };
        let (life, who) = (world.life(node), format!("{node} with {}", self.app));
        let before = world.judge().newest(&who, life);
        let from = world.now();
        let sent = self.send(machine, number).await;
        let to = world.now();
        let (outcome, revision) = sent.unwrap_or_else(|error| {
            let text = format!("{error:#}");
            (Outcome::Broken(text), None)
        });
        world.tally(self.app, |tally| match outcome {
            Outcome::Answered => tally.answered += 1,
            _ => tally.unclear += 1,
        });
        let mut judge = world.judge();
        // What was started anew meanwhile may have answered by either life.
        if let Some(revision) = revision
            && world.life(node) == life
        {
            judge.revision(&who, life, to, before, revision);
        }
        judge.attempt(&Attempt {
            node,
            called: self.called,
            from,
            to,
            outcome,
        })
    }

    /// How the call ended, and the revision by which this gateway served it, if it did itself.
    async fn send(&self, machine: IpAddr, number: u64) -> Result<(Outcome, Option<u64>)> {
        let url = format!("http://{machine}:{}/", self.world.gateway_port);
        let body = format!("call {number} from {}", REGIONS[self.region].name);
        let request = match self.called {
            Called::Function => self.world.http.get(url),
            Called::Workflow => self.world.http.post(url).body(body.clone()),
        };
        let request = request
            .header("host", format!("{}.fn.test", self.app))
            .header("x-fdn-explain", "1");
        let answer = request.send().await?;
        let header = |name: &str| {
            let value = answer.headers().get(name)?;
            value.to_str().ok().map(str::to_owned)
        };
        let status = answer.status().as_u16();
        let here = header("x-fdn-served-by").is_none();
        let revision = header("x-fdn-revision").and_then(|text| text.parse().ok());
        let revision = revision.filter(|_| here && status == 200);
        let text = answer.text().await.context("the answer broke off")?;
        let expected = match self.called {
            Called::Function => lock(&self.world.texts).contains(&text),
            Called::Workflow => text.contains(&body),
        };
        let outcome = match status {
            200 if expected => Outcome::Answered,
            200 => Outcome::Wrong(text),
            status => Outcome::Status(status, text),
        };
        Ok((outcome, revision))
    }
}

/// Submits jobs, each until it is accepted, some of them twice.
async fn submit(world: Arc<World>, stop: CancellationToken) {
    for number in 0_u64.. {
        if stop.is_cancelled() {
            return;
        }
        let key = format!("job-{number}");
        let Some(id) = accepted(&world, &key).await else {
            continue;
        };
        lock(&world.jobs).insert(key.clone(), id.clone());
        world.judge().count("jobs accepted");
        if number.is_multiple_of(TWICE)
            && let Some(again) = accepted(&world, &key).await
            && again != id
        {
            let what = format!("{key} is {id} and {again}");
            world.violated(Rule::JobTwice, what);
        }
        tokio::time::sleep(JOBS).await;
    }
}

async fn accepted(world: &World, key: &str) -> Option<String> {
    let began = world.now();
    for n in [0, 1].into_iter().cycle() {
        let refused = match submitted(world, world.apis[n], key).await {
            Ok(id) => return Some(id),
            Err(refused) => refused,
        };
        world.judge().count("submissions that the centre refused");
        if world.now() - began > SUBMITTED {
            world.violated(Rule::Stuck, format!("{key} is not accepted: {refused:#}"));
            return None;
        }
        tokio::time::sleep(AGAIN).await;
    }
    None
}

async fn submitted(world: &World, api: std::net::SocketAddr, key: &str) -> Result<String> {
    let request = world
        .http
        .post(format!("http://{api}/v1/apps/{WORK}/jobs"))
        .bearer_auth(&world.token)
        .header("idempotency-key", key)
        .body(key.to_owned());
    let answer = request.send().await?;
    let status = answer.status();
    let text = answer.text().await?;
    ensure!(status == 202, "{status}: {text}");
    Ok(serde_json::from_str::<JobReceipt>(&text)?.id.to_string())
}
