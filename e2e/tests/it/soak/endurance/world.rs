//! What all parts of a run share: the network, its judge, its clock, and somebody who is logged in.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fdn_e2e::endurance::growth::{DESCRIPTORS, Growth, MEMORY, Sample};
use fdn_e2e::endurance::judge::{Judge, Rule, Tally};
use fdn_e2e::endurance::lives::State;
use fdn_e2e::endurance::processes::{Processes, all};
use fdn_e2e::endurance::report::Held as Grown;
use fdn_e2e::endurance::schedule::{GUESTS, Part};
use fdn_e2e::network::NODES;
use fdn_e2e::{Cli, Held};
use fdn_testkit::{components, wait};

/// The function that is called, and deployed anew.
pub(crate) const HELLO: &str = "hello";
/// The workflow that is called.
pub(crate) const FLOW: &str = "flow";
/// The function that jobs run, which tells each of its runs.
pub(crate) const WORK: &str = "work";
/// What functions say of themselves that are called by clients.
const LIGHT: &str = "memory = \"16MiB\"\nidempotent = true\n";
/// The memory of the smallest function, in MiB.
pub(crate) const SMALLEST_MIB: f64 = 8.0;
/// For how long something is asked of the centre, whose servers die.
const ASKED: Duration = Duration::from_secs(150);
/// Between two tries.
const AGAIN: Duration = Duration::from_millis(500);

/// Memory and descriptors of one life of a process.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    pub(crate) memory: Vec<Sample>,
    pub(crate) descriptors: Vec<Sample>,
}

/// All of it.
pub(crate) struct World {
    pub(crate) processes: tokio::sync::Mutex<Processes>,
    judge: Mutex<Judge>,
    began: Instant,
    people: [Cli; 2],
    pub(crate) http: reqwest::Client,
    pub(crate) token: String,
    pub(crate) apis: [SocketAddr; 2],
    pub(crate) dns: [SocketAddr; 2],
    pub(crate) dns_admin: [SocketAddr; 2],
    pub(crate) gateway_port: u16,
    pub(crate) admin_port: u16,
    folder: PathBuf,
    lives: Mutex<BTreeMap<Part, u32>>,
    /// By process and id.
    pub(crate) samples: Mutex<BTreeMap<(Part, u32), Samples>>,
    /// What the function may answer: every version that was ever deployed.
    pub(crate) texts: Mutex<BTreeSet<String>>,
    /// Its newest version, and the one that is current.
    pub(crate) versions: Mutex<(u64, u64)>,
    pub(crate) tallies: Mutex<BTreeMap<&'static str, Tally>>,
    /// Accepted jobs by their keys.
    pub(crate) jobs: Mutex<BTreeMap<String, String>>,
}

/// Nobody leaves half a change behind a panic: what is locked is a map or a number.
pub(crate) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    /// Starts the network and deploys what is called.
    pub(crate) async fn start(told: &Held) -> Result<Arc<Self>> {
        let processes = Processes::start().await?;
        let http = fdn_service::http_client::build(Duration::from_secs(20))?;
        let token = login(&processes, &http).await?;
        let world = Self {
            judge: Mutex::default(),
            began: Instant::now(),
            people: processes.people()?,
            http,
            token,
            apis: processes.apis(),
            dns: processes.dns(),
            dns_admin: processes.dns_admin()?,
            gateway_port: processes.network.gateway_port,
            admin_port: processes.network.admin_port,
            folder: processes.network.folder().to_owned(),
            lives: Mutex::default(),
            samples: Mutex::default(),
            texts: Mutex::default(),
            versions: Mutex::default(),
            tallies: Mutex::default(),
            jobs: Mutex::default(),
            processes: tokio::sync::Mutex::new(processes),
        };
        let mut world = Arc::new(world);
        world.deploy_all(&told.address().to_string()).await?;
        world.steered().await;
        // Time begins when all is well.
        let begun = Arc::get_mut(&mut world).context("somebody else has it already")?;
        begun.began = Instant::now();
        for part in all().filter(|part| !matches!(part, Part::Node(GUESTS, _))) {
            world.becomes(part, State::Well);
        }
        Ok(world)
    }

    async fn deploy_all(self: &Arc<Self>, told: &str) -> Result<()> {
        self.next_version(&["--wait", "--timeout", "120s"]).await?;
        // So little that a node has room for all jobs that may run at once, and for calls.
        let work = format!(
            "memory = \"{SMALLEST_MIB}MiB\"\nidempotent = true\nallowed_hosts = [\"{told}\"]\n"
        );
        for (name, component, manifest) in [
            ("light", components::echo(), LIGHT),
            (WORK, components::outbound(told), work.as_str()),
        ] {
            let component = self.file(&format!("{name}.wasm"), &component)?;
            let manifest = self.file(&format!("{name}.toml"), manifest.as_bytes())?;
            let deploy = ["deploy", name, &component, "--manifest", &manifest];
            let wait = ["--wait", "--timeout", "120s"];
            let deploy: Vec<&str> = deploy.into_iter().chain(wait).collect();
            self.typed(&deploy, &[]).await?;
        }
        self.deploy_workflow(60, "--wait").await
    }

    /// Deploys the workflow: with another time-out it is another version.
    pub(crate) async fn deploy_workflow(self: &Arc<Self>, timeout: u64, wait: &str) -> Result<()> {
        let text = format!(
            "timeout: {timeout}s\nstages:\n  - {{ name: in, function: light }}\n  - {{ name: out, function: light, needs: [in] }}\n"
        );
        let file = self.file("flow.yaml", text.as_bytes())?;
        let deploy = ["workflow", "deploy", FLOW, &file, wait];
        self.typed(&deploy, &[]).await.map(drop)
    }

    /// Deploys the next version of the function.
    pub(crate) async fn next_version(self: &Arc<Self>, more: &[&str]) -> Result<u64> {
        let next = lock(&self.versions).0 + 1;
        let text = format!("version-{next}-");
        // Before it may be answered.
        lock(&self.texts).insert(text.clone());
        let file = self.file("hello.wasm", &components::hello(&text))?;
        let manifest = self.file("hello.toml", LIGHT.as_bytes())?;
        let deploy = [
            "deploy",
            HELLO,
            &file,
            "--manifest",
            &manifest,
            "-o",
            "json",
        ];
        let deploy: Vec<&str> = deploy.iter().chain(more).copied().collect();
        let out = self.typed(&deploy, &[]).await?;
        let out: serde_json::Value = serde_json::from_str(&out)?;
        let version = out["version"].as_u64().context("no version")?;
        // An attempt whose answer was lost has not made another one: the component is the same.
        ensure!(version == next, "version {version} was made, not {next}");
        *lock(&self.versions) = (version, version);
        Ok(version)
    }

    /// Both DNS servers answer for all apps.
    async fn steered(&self) {
        let client = "192.0.2.0/24".parse().expect("a prefix");
        for server in self.dns {
            for app in [HELLO, FLOW] {
                let name = format!("{app}.fn.test");
                wait::until("DNS to know the apps", async || {
                    let patience = Duration::from_secs(5);
                    let found =
                        fdn_testkit::dns::addresses(server, &name, client, patience).await?;
                    ensure!(found.len() == NODES, "{found:?}");
                    Ok::<_, anyhow::Error>(())
                })
                .await;
            }
        }
    }

    fn file(&self, name: &str, bytes: &[u8]) -> Result<String> {
        let path = self.folder.join(name);
        std::fs::write(&path, bytes)?;
        Ok(path.display().to_string())
    }

    /// Types a command, at either controller, until one does it: database, broker and controllers are away now and then. `done` are codes of
    /// refusals which say that an attempt before, whose answer was lost, has done it.
    pub(crate) async fn typed(self: &Arc<Self>, args: &[&str], done: &[&str]) -> Result<String> {
        let end = Instant::now() + ASKED;
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        for n in [0, 1].into_iter().cycle() {
            let (world, typed) = (Arc::clone(self), args.clone());
            let typed = tokio::task::spawn_blocking(move || world.people[n].run(typed)).await?;
            if typed.code == 0 || done.iter().any(|code| typed.err.contains(code)) {
                return Ok(typed.out);
            }
            self.judge().count("commands that the centre refused");
            let told = format!("{} {}", typed.out.trim(), typed.err.trim());
            ensure!(Instant::now() < end, "{args:?}: {told}");
            tokio::time::sleep(AGAIN).await;
        }
        unreachable!("the cycle has no end")
    }

    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub(crate) fn judge(&self) -> MutexGuard<'_, Judge> {
        lock(&self.judge)
    }

    pub(crate) fn violated(&self, rule: Rule, what: String) {
        let now = self.now();
        eprintln!("{now:?}: {}: {what}", rule.as_str());
        self.judge().violated(now, rule, what);
    }

    pub(crate) fn becomes(&self, part: Part, state: State) {
        if state == State::Between {
            *lock(&self.lives).entry(part).or_default() += 1;
        }
        let mut judge = self.judge();
        // Under the lock, so that times never go back.
        let now = self.now();
        judge.becomes(part, now, state);
    }

    /// Which life of a process this is.
    pub(crate) fn life(&self, part: Part) -> u32 {
        lock(&self.lives).get(&part).copied().unwrap_or_default()
    }

    pub(crate) fn tally(&self, app: &'static str, count: impl FnOnce(&mut Tally)) {
        count(lock(&self.tallies).entry(app).or_default());
    }

    /// What a process says at an address, as Prometheus reads it.
    pub(crate) async fn metrics(&self, at: SocketAddr) -> Result<String> {
        let answer = self.http.get(format!("http://{at}/metrics")).send().await?;
        Ok(answer.error_for_status()?.text().await?)
    }

    pub(crate) fn admin(&self, machine: IpAddr) -> SocketAddr {
        SocketAddr::new(machine, self.admin_port)
    }

    /// How each life of a process grew that was long enough.
    pub(crate) fn held(&self, warm: Duration) -> Vec<Grown> {
        let mut all = Vec::new();
        for ((part, id), samples) in lock(&self.samples).iter() {
            for (what, samples, allowed) in [
                ("memory", &samples.memory, MEMORY),
                ("descriptors", &samples.descriptors, DESCRIPTORS),
            ] {
                let who = format!("{part} (process {id})");
                let growth = Growth::of(samples, warm);
                all.extend(growth.map(|growth| Grown {
                    who,
                    what,
                    growth,
                    allowed,
                }));
            }
        }
        all
    }

    /// Copies the logs of all processes to a folder.
    pub(crate) async fn keep_logs(&self, folder: &Path) -> PathBuf {
        drop(std::fs::create_dir_all(folder));
        let processes = self.processes.lock().await;
        for part in all() {
            drop(std::fs::copy(
                processes.log(part),
                folder.join(format!("{part}.log")),
            ));
        }
        folder.to_owned()
    }
}

/// The value of a metric, summed over all of its series with this text in them.
pub(crate) fn metric(text: &str, name: &str, with: &str) -> Option<f64> {
    let value = |line: &str| {
        let (series, value) = line.rsplit_once(' ')?;
        let is_it = series.split('{').next() == Some(name) && series.contains(with);
        is_it.then(|| value.parse::<f64>().ok()).flatten()
    };
    let values: Vec<f64> = text.lines().filter_map(value).collect();
    (!values.is_empty()).then(|| values.iter().sum())
}

async fn login(processes: &Processes, http: &reqwest::Client) -> Result<String> {
    let password = processes.network.folder().join("admin.password");
    let password = std::fs::read_to_string(password)?;
    let body = serde_json::json!({ "user": "admin", "password": password.trim() });
    let url = format!("http://{}/v1/login", processes.apis()[0]);
    let answer = http.post(url).json(&body).send().await?;
    let answer: fdn_core::api::LoginResponse = answer.error_for_status()?.json().await?;
    Ok(answer.token)
}
