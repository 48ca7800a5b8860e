//! Two controllers behind nginx, as docs/operations/high-availability.md says it: each is killed in turn, while somebody types commands, somebody submits jobs and
//! somebody works in the console.

#![allow(
    clippy::print_stderr,
    reason = "figures that a reader of the test wants to see"
)]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fdn_core::api::CSRF_HEADER;
use fdn_e2e::tutorial::Step;
use fdn_e2e::{Cli, Fleet, Programs, binary};
use fdn_testkit::{components, ports, wait};
use reqwest::Client;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::runbook::{Page, Terminal, certificate, jobs_ended, lock};

/// Where the proxy listens and asks from, and where commands come from: an address of loopback is asked from the first one.
const PROXY: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9));
const OPERATOR: &str = "127.0.0.1";
/// Where somebody guesses passwords, and somebody else does not.
const GUESSER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 77);
const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 78);
/// Guesses until both controllers refuse more: five each, and some.
const GUESSES: usize = 40;
/// Between two things that one person does.
const PAUSE: Duration = Duration::from_millis(500);
/// A change that was sent to a controller this soon after its death was sent over a connection that nginx still believed in.
const MOMENT: Duration = Duration::from_secs(1);
/// Changes of one person that one death can catch: the one that is under way.
const CAUGHT: usize = 1;

/// What was done through the proxy.
#[derive(Default)]
struct Seen {
    done: Mutex<u64>,
    /// Jobs that were accepted, by key.
    jobs: Mutex<BTreeMap<String, String>>,
    failures: Mutex<Vec<Failure>>,
}

/// Something that failed.
#[derive(Clone, Debug)]
struct Failure {
    what: String,
    /// Whether it was a change: nginx asks nobody else once it has been sent.
    change: bool,
    begun: Instant,
    ended: Instant,
}

impl Seen {
    fn note(&self, what: &str, change: bool, begun: Instant, result: Result<()>) {
        match result {
            Ok(()) => *lock(&self.done) += 1,
            Err(reason) => lock(&self.failures).push(Failure {
                what: format!("{what}: {reason:#}"),
                change,
                begun,
                ended: Instant::now(),
            }),
        }
    }
}

/// Those who work through the proxy.
struct People {
    stop: CancellationToken,
    tasks: JoinSet<()>,
    seen: Arc<Seen>,
    /// When controllers died.
    deaths: Vec<Instant>,
}

impl People {
    fn start(cli: &Arc<Cli>, console: Console) -> Self {
        let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
        let seen = Arc::new(Seen::default());
        let console = Arc::new(console);
        for changes in [false, true] {
            let typing = types(Arc::clone(cli), changes, Arc::clone(&seen), stop.clone());
            tasks.spawn(typing);
            let console = Arc::clone(&console);
            tasks.spawn(console.works(changes, Arc::clone(&seen), stop.clone()));
        }
        Self {
            stop,
            tasks,
            seen,
            deaths: Vec::new(),
        }
    }

    /// Waits until some more was done.
    async fn go_on(&self) {
        let before = *lock(&self.seen.done);
        wait::until("people to go on", async || {
            let now = *lock(&self.seen.done);
            ensure!(now > before + 20, "{before}, then {now}");
            Ok(())
        })
        .await;
        self.only_at_deaths();
    }

    /// Nothing failed but a change at the moment at which its controller died.
    fn only_at_deaths(&self) {
        let failures = lock(&self.seen.failures).clone();
        let excused = |failure: &&Failure| {
            let caught =
                |death: &&Instant| failure.begun <= **death + MOMENT && failure.ended >= **death;
            failure.change && self.deaths.iter().any(|death| caught(&death))
        };
        let (caught, others): (Vec<&Failure>, Vec<&Failure>) = failures.iter().partition(excused);
        assert!(others.is_empty(), "{others:#?}");
        let people = 2;
        assert!(
            caught.len() <= people * CAUGHT * self.deaths.len(),
            "{caught:#?}"
        );
    }

    /// Ends it; the jobs that were accepted, by key, and how many changes may have been made or not.
    async fn end(mut self) -> (BTreeMap<String, String>, usize) {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("nobody panics");
        }
        self.only_at_deaths();
        let (done, failures) = (*lock(&self.seen.done), lock(&self.seen.failures).clone());
        eprintln!(
            "{done} commands and requests were answered, {} caught by a death:",
            failures.len()
        );
        for failure in &failures {
            eprintln!("  {}", failure.what);
        }
        let jobs = std::mem::take(&mut *lock(&self.seen.jobs));
        (jobs, failures.len())
    }
}

/// Somebody who types commands: those that look, or jobs, each once with a key of its own.
async fn types(cli: Arc<Cli>, changes: bool, seen: Arc<Seen>, stop: CancellationToken) {
    for number in 0_usize.. {
        if stop.is_cancelled() {
            return;
        }
        let key = format!("typed-{number}");
        let looks = ["list", "node list", "describe hello", "audit --limit 5"];
        let line = match changes {
            true => format!("job submit work --data x --key {key} -o name"),
            false => looks[number % looks.len()].to_owned(),
        };
        let (cli, args) = (Arc::clone(&cli), line.clone());
        let begun = Instant::now();
        let typed = tokio::task::spawn_blocking(move || cli.run(args.split(' ')));
        let typed = typed.await.expect("a command does not panic");
        let result = match typed.code {
            0 => Ok(()),
            code => Err(anyhow::anyhow!("{code} {}", typed.err.trim())),
        };
        if changes && result.is_ok() {
            lock(&seen.jobs).insert(key, typed.out.trim().to_owned());
        }
        seen.note(&format!("fdn {line}"), changes, begun, result);
        tokio::time::sleep(PAUSE).await;
    }
}

/// A browser in which somebody has logged in.
struct Console {
    http: Client,
    url: String,
    cookie: String,
    csrf: String,
}

impl Console {
    async fn begin(http: Client, url: &str, password: &str) -> Result<Self> {
        let body = serde_json::json!({ "user": "admin", "password": password });
        let request = http.post(format!("{url}/v1/session")).json(&body);
        let answer = request.send().await?.error_for_status()?;
        let cookie = answer.headers().get("set-cookie").context("no cookie")?;
        let cookie = cookie.to_str()?.split(';').next().unwrap_or_default();
        let cookie = cookie.to_owned();
        ensure!(
            cookie.starts_with("__Host-fdn-session="),
            "behind a proxy cookies are for TLS alone: {cookie}"
        );
        let who: Value = answer.json().await?;
        let csrf = who["csrf"].as_str().context("no csrf")?.to_owned();
        Ok(Self {
            http,
            url: url.to_owned(),
            cookie,
            csrf,
        })
    }

    /// The same session all the while: it looks, or submits jobs.
    async fn works(self: Arc<Self>, changes: bool, seen: Arc<Seen>, stop: CancellationToken) {
        for number in 0_usize.. {
            if stop.is_cancelled() {
                return;
            }
            let key = format!("clicked-{number}");
            let begun = Instant::now();
            let result = match changes {
                true => self.submit(&key).await.map(|id| {
                    lock(&seen.jobs).insert(key, id);
                }),
                false => {
                    self.look(["/v1/apps", "/v1/nodes", "/v1/login"][number % 3])
                        .await
                }
            };
            seen.note("the console", changes, begun, result);
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn look(&self, path: &str) -> Result<()> {
        let request = self.http.get(format!("{}{path}", self.url));
        let answer = request.header("cookie", &self.cookie).send().await?;
        let (status, text) = (answer.status(), answer.text().await?);
        ensure!(status == 200, "{path}: {status}: {text}");
        let nobody = path == "/v1/login" && !text.contains("admin");
        ensure!(!nobody, "the session is known: {text}");
        Ok(())
    }

    /// Submits a job; its id.
    async fn submit(&self, key: &str) -> Result<String> {
        let request = self
            .http
            .post(format!("{}/v1/apps/work/jobs", self.url))
            .header("cookie", &self.cookie)
            .header(CSRF_HEADER, &self.csrf)
            .header("idempotency-key", key)
            .body("x");
        let answer = request.send().await?;
        let (status, text) = (answer.status(), answer.text().await?);
        ensure!(status == 202, "{key}: {status}: {text}");
        let receipt: Value = serde_json::from_str(&text)?;
        let id = receipt["id"].as_str().context("no id")?;
        Ok(id.to_owned())
    }
}

/// A client that believes the proxy's authority and comes from this address.
fn client(authority: &Path, from: Ipv4Addr) -> Result<Client> {
    let builder = fdn_service::http_client::builder_trusting(Some(authority))?;
    let builder = builder.local_address(IpAddr::V4(from));
    Ok(builder.timeout(wait::PATIENCE).build()?)
}

struct World {
    fleet: Fleet,
    programs: Programs,
    operator: Terminal,
    proxy: String,
    people: Option<People>,
    /// Who dies next.
    victim: &'static str,
    folder: tempfile::TempDir,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_controllers_behind_a_proxy_are_killed_in_turn_as_the_runbook_says() {
    let mut world = begin().await;
    let mut page = Page::read("high-availability.md");
    world.follow(page.section("Behind a proxy")).await;
    world.people().await;
    let steps = page.section("A controller dies");
    for victim in ["controller-1", "controller-2"] {
        world.victim = victim;
        world.follow(steps.clone()).await;
    }
    world.follow(page.section("Who asked")).await;
    assert!(page.is_done(), "all of the page was followed");
    world.end().await;
}

/// Two controllers and two clusters; whoever works at the centre has the controllers' settings before him.
async fn begin() -> World {
    let programs = Programs::built();
    let fleet = Fleet::start(&programs).await.expect("it starts");
    let folder = tempfile::tempdir().expect("a folder");
    let proxy = format!("{PROXY}:{}", ports::free(&[PROXY]));
    let operator = Terminal::open(
        folder.path(),
        &[
            ("PROXY", proxy.clone()),
            ("FIRST", fleet.controllers[0].to_string()),
            ("SECOND", fleet.controllers[1].to_string()),
            ("OPERATOR", OPERATOR.to_owned()),
        ],
        &[
            ("fdn", format!("exec {} \"$@\"", binary("fdn").display())),
            // The part around it, which Debian's package has in /etc/nginx/nginx.conf; its way out shows the address that a machine of its own would have.
            (
                "nginx",
                "exec /usr/sbin/nginx -p \"$PWD\" -c \"$PWD/main.conf\"".to_owned(),
            ),
        ],
    );
    let folders = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let folders: String = folders
        .map(|name| format!("{name}_temp_path {name};"))
        .concat();
    let main = format!(
        "daemon off; pid nginx.pid; error_log stderr; user root; events {{}} http {{ access_log off; proxy_bind {PROXY}; {folders} include controllers.conf; }}\n"
    );
    operator.put("main.conf", main.as_bytes());
    certificate(&operator, "proxy", &format!("IP:{PROXY}"));
    for name in ["controller-1", "controller-2"] {
        let there = folder.path().join("work").join(format!("{name}.toml"));
        symlink(fleet.settings(name), there).expect("a link");
    }
    let password = std::fs::read(fleet.path("admin.password")).expect("it is there");
    operator.put("admin.password", &password);
    for (name, text) in [("hello", "one"), ("changed", "two"), ("work", "done")] {
        operator.put(&format!("{name}.wasm"), &components::hello(text));
    }
    let settings = "memory = \"16MiB\"\nidempotent = true\n";
    operator.put("fdn.toml", settings.as_bytes());
    World {
        fleet,
        programs,
        operator,
        proxy,
        people: None,
        victim: "controller-1",
        folder,
    }
}

impl World {
    fn authority(&self) -> std::path::PathBuf {
        self.folder.path().join("work/authority.crt")
    }

    /// Who works through the proxy begins, with what was deployed there.
    async fn people(&mut self) {
        let home = self.folder.path().join("home");
        let cli = Arc::new(Cli::new(&home));
        let password = String::from_utf8(self.operator.get("admin.password")).expect("text");
        let url = format!("https://{}", self.proxy);
        let http = client(&self.authority(), Ipv4Addr::LOCALHOST).expect("a client");
        let console = Console::begin(http, &url, password.trim()).await;
        let people = People::start(&cli, console.expect("logged in"));
        people.go_on().await;
        self.people = Some(people);
    }

    async fn follow(&mut self, steps: Vec<Step>) {
        for step in steps {
            let what = match &step {
                Step::Typed(command, _) => command.clone(),
                other => format!("{other:?}"),
            };
            eprintln!("  {what}");
            if let Some(asked) = self.operator.follow(step, || ()).await {
                self.does(&asked).await;
            }
            if let Some(people) = &self.people {
                people.go_on().await;
            }
        }
    }

    async fn does(&mut self, asked: &str) {
        match asked {
            "the controllers are started anew, one after the other" => {
                for name in ["controller-1", "controller-2"] {
                    let replaced = self.fleet.replace(name, &self.programs).await;
                    replaced.expect("it starts anew");
                    self.fleet.ready(name).await;
                }
            }
            "a controller dies" => {
                let now = Instant::now();
                self.fleet.kill(self.victim);
                let people = self.people.as_mut().expect("somebody works");
                people.deaths.push(now);
            }
            "it is started again" => {
                let started = self.fleet.run(self.victim, &self.programs).await;
                started.expect("it starts again");
                self.fleet.ready(self.victim).await;
            }
            "somebody guesses passwords" => self.guess().await,
            other => panic!("nobody knows how: {other}"),
        }
    }

    /// Whoever guesses passwords has to wait, at both controllers, also with the right one; who comes from elsewhere through the same proxy does not.
    async fn guess(&self) {
        let guesser = client(&self.authority(), GUESSER).expect("a client");
        let other = client(&self.authority(), OTHER).expect("a client");
        let password = String::from_utf8(self.operator.get("admin.password")).expect("text");
        let url = format!("https://{}/v1/login", self.proxy);
        let login = async |http: &Client, user: &str, password: &str| {
            let body = serde_json::json!({ "user": user, "password": password });
            let answer = http.post(&url).json(&body).send().await;
            answer.expect("an answer").status().as_u16()
        };
        let mut refused = 0;
        for n in 0..GUESSES {
            match login(&guesser, &format!("nobody-{n}"), "a wrong password").await {
                401 => refused = 0,
                429 => refused += 1,
                other => panic!("{other}"),
            }
        }
        assert!(refused >= 2, "both controllers make it wait");
        assert_eq!(login(&guesser, "admin", password.trim()).await, 429);
        assert_eq!(login(&other, "admin", password.trim()).await, 200);
    }

    async fn end(mut self) {
        let people = self.people.take().expect("somebody works");
        let (jobs, unclear) = people.end().await;
        assert!(jobs.len() > 20, "{jobs:?}");
        let cli = self
            .fleet
            .cli(&self.programs, "operator")
            .expect("logged in");
        jobs_ended(&cli, &jobs, 0..=unclear).await;
        for name in self.fleet.running() {
            self.fleet.stop(&name).expect("it stops");
        }
    }
}
