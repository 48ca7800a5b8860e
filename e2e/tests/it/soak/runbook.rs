//! What tests of runbooks share: a page of docs/operations whose commands are typed, and those who use the network meanwhile.

#![allow(
    clippy::print_stderr,
    reason = "figures that a reader of the test wants to see"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fdn_core::ErrorCode;
use fdn_e2e::tutorial::{Shell, Step, check, steps};
use fdn_e2e::{Cli, Network, dns, root};
use fdn_testkit::process::Process;
use fdn_testkit::wait;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::tutorial::Person;

/// The pause between two calls, and between two jobs or commands, of one user.
const CALLS: Duration = Duration::from_millis(100);
const OTHERS: Duration = Duration::from_millis(500);
/// How long a job may be refused, and how long all of them may take to end.
const LONG: Duration = Duration::from_secs(300);
/// Failures that are told.
const TOLD: usize = 20;
/// How soon clients are no longer sent to dead gateways: 2 s are promised (docs/operations/steering.md), the rest is for checks that come late on a busy
/// machine.
const STEERED: Duration = Duration::from_secs(5);
/// What commands may be refused with while database or broker are away.
const REFUSALS: [ErrorCode; 3] = [
    ErrorCode::DatabaseFailed,
    ErrorCode::BrokerFailed,
    ErrorCode::JobNotAccepted,
];
/// Between two looks at whether a process has ended.
const REAPED: Duration = Duration::from_millis(50);

pub(super) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A page of the documentation; its sections have to be followed one after the other, and none may be left.
pub(super) struct Page {
    sections: Vec<(String, Vec<Step>)>,
    followed: usize,
}

impl Page {
    /// As it stands in the repository now.
    pub(super) fn read(name: &str) -> Self {
        let file = root().join("docs/operations").join(name);
        let text = std::fs::read_to_string(&file).expect("the page is there");
        let mut sections = steps(&text);
        sections.retain(|(_, steps)| !steps.is_empty());
        Self {
            sections,
            followed: 0,
        }
    }

    /// What is done in the next section, which has this heading.
    pub(super) fn section(&mut self, heading: &str) -> Vec<Step> {
        let (found, steps) = &self.sections[self.followed];
        assert_eq!(found, heading, "the sections are followed in their order");
        eprintln!("{heading}");
        self.followed += 1;
        steps.clone()
    }

    pub(super) fn is_done(&self) -> bool {
        self.followed == self.sections.len()
    }
}

/// Somebody's shell, and what was started from it.
pub(super) struct Terminal {
    person: Person,
    shell: Shell,
    /// By the command; whoever types it again ends the one of before.
    running: BTreeMap<String, Process>,
}

impl Terminal {
    /// In a folder of its own, with these variables and these programs, each a line of a shell.
    pub(super) fn open(
        folder: &Path,
        variables: &[(&str, String)],
        programs: &[(&str, String)],
    ) -> Self {
        let mut person = Person::new(folder);
        for (name, value) in variables {
            person.variables.insert((*name).to_owned(), value.clone());
        }
        for (name, line) in programs {
            person.program(name, line);
        }
        let shell = person.shell();
        Self {
            person,
            shell,
            running: BTreeMap::new(),
        }
    }

    /// Puts a file where the commands are typed.
    pub(super) fn put(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.person.work().join(name), bytes).expect("written");
    }

    /// What stands in a file there.
    pub(super) fn get(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.person.work().join(name)).expect("it is there")
    }

    /// Does a step; what the test has to do, if that is it. Meanwhile `reap` looks whether servers that the test started have ended: a process that nobody
    /// has asked for its end counts as one that runs.
    pub(super) async fn follow(&mut self, step: Step, mut reap: impl FnMut()) -> Option<String> {
        match step {
            Step::File(name, text) => self.put(&name, text.as_bytes()),
            Step::Running(command) => {
                self.running.remove(&command);
                let process = self.person.start(&command);
                self.running.insert(command, process);
            }
            Step::Done(what) => return Some(what),
            Step::Typed(command, expected) => {
                let Self { shell, running, .. } = self;
                let answer = {
                    let typed = shell.type_in(&command);
                    tokio::pin!(typed);
                    loop {
                        tokio::select! {
                            answer = &mut typed => break answer,
                            () = tokio::time::sleep(REAPED) => {
                                reap();
                                for process in running.values_mut() {
                                    process.ended();
                                }
                            }
                        }
                    }
                };
                let answer = answer.unwrap_or_else(|error| panic!("{error:#}\n{}", self.logs()));
                check(&answer, &expected)
                    .unwrap_or_else(|error| panic!("{command}: {error:#}\n{}", self.logs()));
            }
        }
        None
    }

    /// The last lines of what was started.
    fn logs(&self) -> String {
        let tail = |process: &Process| {
            let text = process.log();
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(15)..].join("\n")
        };
        let all: Vec<String> = self.running.values().map(tail).collect();
        all.join("\n---\n")
    }
}

/// Makes a certificate of this subject's alternative name and its key, `NAME.crt` and `NAME.key`, where commands are typed; `authority.crt` has signed it.
pub(super) fn certificate(operator: &Terminal, name: &str, host: &str) {
    let status = Command::new("sh")
        .args(["-ec", CERTIFICATE, "sh", name, host])
        .current_dir(operator.person.work())
        .status();
    assert!(status.expect("openssl runs").success(), "{name}");
}

const CERTIFICATE: &str = r#"
[ -f authority.crt ] || {
  openssl ecparam -name prime256v1 -genkey -noout -out authority.key
  openssl req -x509 -new -key authority.key -subj "/CN=an authority" -days 30 -out authority.crt
}
openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$1.key" -subj "/CN=$1" -out "$1.csr" 2>"$1.log"
printf 'subjectAltName=%s
basicConstraints=CA:FALSE
' "$2" > "$1.ext"
openssl x509 -req -in "$1.csr" -CA authority.crt -CAkey authority.key -CAcreateserial -days 20 -extfile "$1.ext" -out "$1.crt" 2>>"$1.log"
"#;

/// Machines that are gone, and since when.
type Gone = Option<(Instant, Vec<IpAddr>)>;

/// What was done, and what went wrong.
#[derive(Default)]
struct Seen {
    /// Calls that were answered, by the clients' region.
    answered: Mutex<BTreeMap<usize, u64>>,
    /// Calls without an answer that were sent to machines that died: they may have been done.
    unclear: Mutex<u64>,
    /// When, after the death, the last of them was sent.
    last_unclear: Mutex<Duration>,
    gone: Mutex<Gone>,
    /// Accepted jobs by their keys.
    jobs: Mutex<BTreeMap<String, String>>,
    /// What commands and submissions were refused with, and how often.
    refusals: Mutex<BTreeMap<String, u64>>,
    commands: Mutex<u64>,
    failures: Mutex<Vec<String>>,
}

impl Seen {
    fn fail(&self, what: String) {
        let mut failures = lock(&self.failures);
        if failures.len() < TOLD {
            failures.push(format!("{}: {what}", fdn_service::now().0));
        }
    }
}

/// Those who use the network until they are stopped: clients of some regions call `hello`, somebody submits jobs of `work`, somebody types commands.
pub(super) struct Users {
    stop: CancellationToken,
    tasks: JoinSet<()>,
    seen: Arc<Seen>,
}

/// What they did.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) answered: u64,
    pub(super) unclear: u64,
    /// When, after the death, the last call was sent to a machine that had died.
    pub(super) last_unclear: Duration,
    pub(super) jobs: BTreeMap<String, String>,
    pub(super) commands: u64,
    pub(super) refusals: BTreeMap<String, u64>,
}

impl Users {
    /// Begins. `servers` are asked as a resolver asks them.
    pub(super) fn start(network: &Network, servers: &[SocketAddr], regions: usize) -> Self {
        let seen = Arc::new(Seen::default());
        let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
        for region in 0..regions {
            let caller = Caller {
                servers: servers.to_vec(),
                port: network.gateway_port,
                region,
                seen: Arc::clone(&seen),
            };
            tasks.spawn(caller.run(stop.clone()));
        }
        // The session is that of whoever logged in with this home.
        let home = network.folder().join("home");
        tasks.spawn(submit(Cli::new(&home), Arc::clone(&seen), stop.clone()));
        tasks.spawn(type_commands(
            Cli::new(&home),
            Arc::clone(&seen),
            stop.clone(),
        ));
        Self { stop, tasks, seen }
    }

    /// From now on these machines are gone, or about to be.
    pub(super) fn lose(&self, machines: Vec<IpAddr>) {
        *lock(&self.seen.gone) = Some((Instant::now(), machines));
    }

    /// Waits until every region's clients had some more answers, and more jobs were accepted.
    pub(super) async fn go_on(&self, during: &str) {
        let counts = || {
            let jobs = lock(&self.seen.jobs).len() as u64;
            (lock(&self.seen.answered).clone(), jobs)
        };
        let (answered, jobs) = counts();
        wait::within(2 * wait::PATIENCE, "the users to go on", async || {
            self.nothing_failed(during);
            let now = counts();
            let each = answered.iter().all(|(region, before)| {
                now.0.get(region).is_some_and(|count| *count > before + 10)
            });
            ensure!(
                each && now.1 > jobs + 1,
                "{answered:?} {jobs}, then {now:?}"
            );
            Ok(())
        })
        .await;
    }

    pub(super) fn nothing_failed(&self, during: &str) {
        let failures = lock(&self.seen.failures);
        assert!(failures.is_empty(), "{during}: {failures:#?}");
    }

    /// What commands were refused with so far.
    pub(super) fn refusals(&self) -> BTreeMap<String, u64> {
        lock(&self.seen.refusals).clone()
    }

    /// Ends it; what was done.
    pub(super) async fn stop(mut self) -> Done {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("nobody panics");
        }
        self.nothing_failed("at the end");
        let seen = &self.seen;
        Done {
            answered: lock(&seen.answered).values().sum(),
            unclear: *lock(&seen.unclear),
            last_unclear: *lock(&seen.last_unclear),
            jobs: lock(&seen.jobs).clone(),
            commands: *lock(&seen.commands),
            refusals: lock(&seen.refusals).clone(),
        }
    }
}

/// A client of one region.
struct Caller {
    servers: Vec<SocketAddr>,
    port: u16,
    region: usize,
    seen: Arc<Seen>,
}

impl Caller {
    async fn run(self, stop: CancellationToken) {
        let http = fdn_service::http_client::build(wait::PATIENCE).expect("a client");
        while !stop.is_cancelled() {
            self.once(&http).await;
            tokio::time::sleep(CALLS).await;
        }
    }

    /// Asks where to call, and calls each of the answered machines.
    async fn once(&self, http: &reqwest::Client) {
        let (servers, subnet) = (
            self.servers.clone(),
            fdn_e2e::network::REGIONS[self.region].subnet,
        );
        let asked = move || {
            let ask = |servers: &[SocketAddr]| dns::ask_any(servers, "hello.fn.test", Some(subnet));
            match ask(&servers) {
                // One that knows nothing yet says so, and a resolver asks the next one.
                Ok(answer) if ["REFUSED", "SERVFAIL"].contains(&&*answer.status) => {
                    ask(&servers[1..])
                }
                other => other,
            }
        };
        let asked = tokio::task::spawn_blocking(asked).await;
        let answer = match asked.expect("asking does not panic") {
            Ok(answer) if answer.status == "NOERROR" && !answer.addresses.is_empty() => answer,
            other => return self.seen.fail(format!("dns {subnet}: {other:?}")),
        };
        for address in answer.addresses {
            let begun = Instant::now();
            let url = format!("http://{}/", SocketAddr::new(address, self.port));
            let called = call(http, &url, "hello").await;
            match called {
                Ok(text) if text == "one" => {
                    *lock(&self.seen.answered).entry(self.region).or_default() += 1;
                }
                other => self.unanswered(address, begun, format!("{url} {subnet}: {other:?}")),
            }
        }
    }

    fn unanswered(&self, address: IpAddr, begun: Instant, what: String) {
        let gone = lock(&self.seen.gone).clone();
        let since = gone.and_then(|(since, gone)| gone.contains(&address).then_some(since));
        match since.map(|since| begun.saturating_duration_since(since)) {
            Some(after) if after < STEERED => {
                *lock(&self.seen.unclear) += 1;
                let mut last = lock(&self.seen.last_unclear);
                *last = after.max(*last);
            }
            _ => self.seen.fail(what),
        }
    }
}

/// What an app answers at an address, if that is 200.
pub(super) async fn call(http: &reqwest::Client, url: &str, app: &str) -> Result<String> {
    let request = http.get(url).header("host", format!("{app}.fn.test"));
    let answer = request.send().await?;
    let (status, text) = (answer.status(), answer.text().await?);
    ensure!(status == 200, "{status}: {text}");
    Ok(text)
}

/// What a command printed, or the code of the error that refused it. A command that ends otherwise is a failure.
async fn typed(cli: &Arc<Cli>, seen: &Seen, args: Vec<String>) -> Option<String> {
    let (cli, what) = (Arc::clone(cli), args.join(" "));
    let typed = tokio::task::spawn_blocking(move || cli.run(args));
    let typed = typed.await.expect("a command does not panic");
    if typed.code == 0 {
        return Some(typed.out);
    }
    let mut refusals = REFUSALS.iter().map(|code| code.as_str());
    let Some(code) = refusals.find(|code| typed.err.contains(*code)) else {
        seen.fail(format!("fdn {what}: {} {}", typed.code, typed.err));
        return None;
    };
    *lock(&seen.refusals).entry(code.to_owned()).or_default() += 1;
    None
}

/// Submits jobs, each again until it is accepted.
async fn submit(cli: Cli, seen: Arc<Seen>, stop: CancellationToken) {
    let cli = Arc::new(cli);
    for number in 0_u64.. {
        let key = format!("job-{number}");
        let begun = Instant::now();
        loop {
            let submit = ["job", "submit", "work", "--data", &key, "--key", &key];
            let submit = submit.into_iter().chain(["-o", "json"]);
            let said = typed(&cli, &seen, submit.map(str::to_owned).collect()).await;
            tokio::time::sleep(OTHERS).await;
            let Some(said) = said else {
                if begun.elapsed() > LONG {
                    return seen.fail(format!("{key} is not accepted"));
                }
                continue;
            };
            let receipt: Value = serde_json::from_str(&said).unwrap_or_default();
            match receipt[0]["id"].as_str() {
                Some(id) => drop(lock(&seen.jobs).insert(key, id.to_owned())),
                None => seen.fail(format!("{key}: {said}")),
            }
            break;
        }
        if stop.is_cancelled() {
            return;
        }
    }
}

async fn type_commands(cli: Cli, seen: Arc<Seen>, stop: CancellationToken) {
    let cli = Arc::new(cli);
    while !stop.is_cancelled() {
        for command in ["list", "node list", "describe hello"] {
            let args = command.split(' ').map(str::to_owned).collect();
            typed(&cli, &seen, args).await;
            *lock(&seen.commands) += 1;
            tokio::time::sleep(OTHERS).await;
        }
    }
}

/// Every accepted job and so many others ended once, and well, and there is no other.
pub(super) async fn jobs_ended(
    cli: &Cli,
    accepted: &BTreeMap<String, String>,
    others: RangeInclusive<usize>,
) {
    wait::within(LONG, "every job to end", async || {
        for state in ["submitted", "queued", "running"] {
            let open = cli.json(["job", "list", "work", "--state", state, "--limit", "1"]);
            ensure!(open == Value::Array(Vec::new()), "{state}: {open}");
        }
        Ok(())
    })
    .await;
    let all = cli.json(["job", "list", "work", "--limit", "1000"]);
    let all = all.as_array().expect("a list");
    let found: BTreeSet<&str> = all.iter().filter_map(|job| job["id"].as_str()).collect();
    for (key, id) in accepted {
        assert!(found.contains(&**id), "{key}, {id}, is lost");
    }
    let ids: BTreeSet<&String> = accepted.values().collect();
    assert_eq!(ids.len(), accepted.len(), "no two keys made one job");
    let beside = all.len() - ids.len();
    assert!(
        others.contains(&beside),
        "no key made two jobs: {beside} of {others:?}"
    );
    for job in all {
        assert_eq!(job["state"], "succeeded", "{job}");
    }
}
