//! Machines at the edge on one controller: what their connections take of memory and of the processor, and how long a deploy takes until the last of them has
//! heard of it. The machines are real ones as far as the controller can see (certificates of their own, TLS, the feed, reports), without anything
//! behind them; they live in another process of this machine. Every cluster holds every app here (`planner.spread` is 0), which is the worst case.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use fdn_bus::{Limits, MemoryBroker};
use fdn_controller::app::actor::Actor;
use fdn_controller::app::{enrol, fleet, join_token};
use fdn_controller::settings::{ArtifactSettings, DatabaseSettings, NetworkSettings};
use fdn_controller::{Controller, Settings};
use fdn_core::enrol::{EnrolRequest, NodeAddresses, Role};
use fdn_core::feed::Frame;
use fdn_core::fleet::{CreateCluster, CreateJoinToken};
use fdn_core::message::{Message, NodeStatus};
use fdn_core::{
    ClusterId, DurationMs, GeoPoint, MebiBytes, MessageId, MilliCpu, Millis, NodeId, Resources,
};
use fdn_link::join::Identity;
use fdn_link::{Connection, ControllerLinkSettings, FeedEvent, Link, LinkMetrics};
use fdn_service::CancellationToken;
use fdn_service::pki::NodeKey;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::billing::Client;
use crate::{Options, median};

pub(crate) mod moved;

/// The hidden argument with which this program is the machines.
pub(crate) const CHILD: &str = "__machines";
/// Machines of one cluster.
const OF_A_CLUSTER: usize = 100;
/// How often a node reports, as agents do unless told otherwise.
const EVERY: Duration = Duration::from_secs(2);
/// How long what is idle is watched.
const WATCHED: Duration = Duration::from_secs(20);
const DEPLOYS: usize = 5;

/// What the machines tell.
#[derive(Debug, Serialize, Deserialize)]
enum Line {
    /// All are connected, and have heard their first snapshot.
    Up { ms: u64 },
    /// All have heard of an app: the first and the last when.
    Heard { app: String, first: u64, last: u64 },
    /// When machines were connected again whose controller had died.
    Back { ms: Vec<u64> },
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(measure(options))
}

async fn measure(options: &Options) -> Result<()> {
    let count = options.machines;
    println!(
        "machines: {count} on one controller (SQLite), {OF_A_CLUSTER} in each cluster, the machines in another process on the same {} cores",
        std::thread::available_parallelism().map_or(0, usize::from)
    );
    let folder = tempfile::tempdir()?;
    let mut settings = settings(folder.path());
    settings.edge.connections = settings.edge.connections.max(count + 100);
    let broker = Arc::new(MemoryBroker::new(Limits::default()));
    moved::keep(&settings, folder.path())?;
    let controller =
        Controller::start_with(settings, broker, fdn_runtime::Compiler::InProcess).await?;
    let client = Client::login(&controller, &folder.path().join("password")).await?;
    let begin = Instant::now();
    let machines = join(&controller, folder.path(), count).await?;
    row(
        "joined, one after another",
        &format!("{:.1} ms each", per(begin.elapsed(), count) * 1e3),
    );
    let list = folder.path().join("machines.json");
    std::fs::write(&list, serde_json::to_vec(&machines)?)?;

    let (memory, processor) = (resident()?, processor()?);
    let begin = Instant::now();
    let edge = controller.edge_address().to_string();
    let (mut child, mut to, mut from) = start([CHILD, &list.display().to_string(), &edge])?;
    let measured = async {
        let Line::Up { .. } = next(&mut from)? else {
            anyhow::bail!("the machines said something else");
        };
        row(
            "all connected",
            &format!("after {:.1} s", begin.elapsed().as_secs_f64()),
        );
        row(
            "a connection",
            &format!(
                "{:.1} ms of the controller's processor time, {:.1} KiB resident",
                (self::processor()? - processor) / as_f64(count) * 1e3,
                (resident()? - memory) / as_f64(count) / 1024.0
            ),
        );
        idle("idle, heartbeats alone").await?;
        told(&client, &mut from).await?;
        to.write_all(b"report\n")?;
        tokio::time::sleep(EVERY * 2).await;
        idle("each reports every two seconds").await?;
        row(
            "resident in all",
            &format!("{:.0} MiB", resident()? / 1024.0 / 1024.0),
        );
        told(&client, &mut from).await
    };
    let measured = measured.await;
    drop(to);
    child.kill()?;
    child.wait()?;
    let measured = match measured {
        Ok(()) => moved::measure(options, &controller, (&list, folder.path()), count).await,
        failed => failed,
    };
    controller.stop().await;
    measured
}

/// Deploys, and prints how long it takes until the last machine has heard of it.
async fn told(client: &Client, from: &mut BufReader<ChildStdout>) -> Result<()> {
    let (mut firsts, mut lasts) = (Vec::new(), Vec::new());
    for _ in 0..DEPLOYS {
        let app = format!("bench-{}", uuid::Uuid::new_v4().simple());
        client.deploy(&app).await?;
        let answered = fdn_service::now().get();
        let Line::Heard {
            app: heard,
            first,
            last,
        } = next(from)?
        else {
            anyhow::bail!("the machines said something else");
        };
        ensure!(app == heard, "the machines heard of another app");
        firsts.push(signed(first, answered));
        lasts.push(signed(last, answered));
    }
    row(
        "a deploy, after its answer",
        &format!(
            "the first machine hears of it after {:.0} ms, the last after {:.0} ms",
            median(firsts),
            median(lasts)
        ),
    );
    Ok(())
}

async fn idle(what: &str) -> Result<()> {
    let before = processor()?;
    tokio::time::sleep(WATCHED).await;
    let used = (processor()? - before) / WATCHED.as_secs_f64();
    row(what, &format!("{:.1} % of a core", used * 100.0));
    Ok(())
}

fn row(what: &str, figure: &str) {
    println!("{what:<34} {figure}");
}

fn per(time: Duration, count: usize) -> f64 {
    time.as_secs_f64() / as_f64(count)
}

fn as_f64(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::NAN, f64::from)
}

fn signed(at: u64, from: u64) -> f64 {
    let (at, from) = (i64::try_from(at), i64::try_from(from));
    let apart = at.unwrap_or_default() - from.unwrap_or_default();
    i32::try_from(apart).map_or(f64::NAN, f64::from)
}

/// Settings of a controller with everything in a folder, whose clusters hold every app.
pub(crate) fn settings(folder: &Path) -> Settings {
    let mut settings = Settings {
        listen: ([127, 0, 0, 1], 0).into(),
        network: NetworkSettings {
            token_file: folder.join("token"),
            key_file: folder.join("key"),
        },
        database: DatabaseSettings {
            url: format!("sqlite://{}", folder.join("controller.db").display()),
            ..DatabaseSettings::default()
        },
        artifacts: ArtifactSettings {
            local: folder.join("artifacts"),
            ..ArtifactSettings::default()
        },
        ..Settings::default()
    };
    settings.edge.listen = ([127, 0, 0, 1], 0).into();
    settings.planner.spread = 0;
    settings.accounts.initial_password_file = Some(folder.join("password"));
    settings.uploads.folder = Some(folder.join("uploads"));
    settings
}

/// A machine that joined.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Joined {
    node: NodeId,
    cluster: ClusterId,
    addresses: NodeAddresses,
    /// Where its identity lies.
    data: PathBuf,
}

async fn join(controller: &Controller, folder: &Path, count: usize) -> Result<Vec<Joined>> {
    let (state, actor) = (controller.state(), Actor::network());
    let (mut all, mut token) = (Vec::new(), String::new());
    for number in 0..count {
        let cluster: ClusterId = format!("c{}", number / OF_A_CLUSTER).parse()?;
        let now = fdn_service::now();
        if number % OF_A_CLUSTER == 0 {
            let wish = CreateCluster {
                cluster: cluster.clone(),
                region: cluster.as_str().parse()?,
                location: Some(place(number)?),
            };
            fleet::create(state, &actor, &wish, now).await?;
            let wish = CreateJoinToken {
                role: Role::Node,
                cluster: cluster.clone(),
                ttl: DurationMs::from_secs(3600),
                uses: u32::try_from(OF_A_CLUSTER)?,
            };
            token = join_token::create(state, &actor, &wish, now).await?.token;
        }
        let data = folder.join(format!("machine-{number}"));
        let identity = Identity::below(&data);
        identity.prepare()?;
        let key = NodeKey::read_or_create(&identity.key)?;
        let node: NodeId = format!("m-{number}").parse()?;
        let [_, _, high, low] = u32::try_from(number + 256)?.to_be_bytes();
        let at = |port| SocketAddr::from((Ipv4Addr::new(127, 9, high, low), port));
        let addresses = NodeAddresses {
            gateway: at(8080),
            admin: at(8081),
            peer: None,
            names: Vec::new(),
        };
        let request = EnrolRequest {
            token: token.clone(),
            role: Role::Node,
            csr: key.request(&node)?,
            node: node.clone(),
            addresses: addresses.clone(),
            cluster: None,
            region: None,
        };
        let answer = enrol::enrol(state, &request, &actor, now).await?;
        identity.write(Role::Node, &answer)?;
        all.push(Joined {
            node,
            cluster,
            addresses,
            data,
        });
    }
    Ok(all)
}

/// Where the cluster of this machine is.
fn place(number: usize) -> Result<GeoPoint> {
    let turn = as_f64(number / OF_A_CLUSTER);
    Ok(GeoPoint::new(
        (turn * 7.0) % 120.0 - 60.0,
        (turn * 37.0) % 360.0 - 180.0,
    )?)
}

/// This program again, as something else.
fn start<const N: usize>(args: [&str; N]) -> Result<(Child, ChildStdin, BufReader<ChildStdout>)> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("this program can be started")?;
    let to = child.stdin.take().context("a pipe")?;
    let from = BufReader::new(child.stdout.take().context("a pipe")?);
    Ok((child, to, from))
}

/// What the machines tell next. The controller's tasks run on other threads meanwhile.
fn next(from: &mut BufReader<ChildStdout>) -> Result<Line> {
    let mut line = String::new();
    let read = tokio::task::block_in_place(|| from.read_line(&mut line))?;
    ensure!(read > 0, "the machines ended");
    Ok(serde_json::from_str(&line)?)
}

/// Bytes of this process that are resident (proc(5): statm counts pages).
fn resident() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u32 = text
        .split(' ')
        .nth(1)
        .context("statm has fields")?
        .parse()?;
    Ok(f64::from(pages) * as_f64(rustix::param::page_size()))
}

/// Seconds of processor time of this process so far.
pub(crate) fn processor() -> Result<f64> {
    processor_of(std::process::id())
}

/// Seconds of processor time of a process so far (proc(5): fields 14 and 15 of stat).
pub(crate) fn processor_of(process: u32) -> Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let (_, fields) = text.rsplit_once(") ").context("stat has a name")?;
    let mut fields = fields.split(' ').skip(11);
    let mut ticks = || -> Result<f64> { Ok(fields.next().context("stat has fields")?.parse()?) };
    let hertz = u32::try_from(rustix::param::clock_ticks_per_second())?;
    Ok((ticks()? + ticks()?) / f64::from(hertz))
}

/// What the machines of this process heard.
struct Heard {
    all: usize,
    up: Mutex<usize>,
    back: Mutex<Vec<u64>>,
    apps: Mutex<BTreeMap<String, (usize, u64)>>,
}

impl Heard {
    fn up(&self) {
        let mut up = self.up.lock().unwrap_or_else(PoisonError::into_inner);
        *up += 1;
        if *up == self.all {
            let ms = fdn_service::now().get();
            say(&Line::Up { ms });
        }
    }

    fn back(&self) {
        let mut back = self.back.lock().unwrap_or_else(PoisonError::into_inner);
        back.push(fdn_service::now().get());
    }

    fn tell_back(&self) {
        let back = self.back.lock().unwrap_or_else(PoisonError::into_inner);
        say(&Line::Back { ms: back.clone() });
    }

    fn app(&self, app: &str) {
        let now = fdn_service::now().get();
        let mut apps = self.apps.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, first) = apps.entry(app.to_owned()).or_insert((0, now));
        *count += 1;
        if *count == self.all {
            say(&Line::Heard {
                app: app.to_owned(),
                first: *first,
                last: now,
            });
        }
    }
}

fn say(line: &Line) {
    if let Ok(text) = serde_json::to_string(line) {
        println!("{text}");
    }
}

/// The machines, until standard input ends. With several controllers, separated by commas, they have the settings that machines have.
pub(crate) fn child(list: &Path, edge: &str) -> Result<()> {
    let machines: Vec<Joined> = serde_json::from_slice(&std::fs::read(list)?)?;
    let runtime = tokio::runtime::Runtime::new()?;
    let heard = Arc::new(Heard {
        all: machines.len(),
        up: Mutex::default(),
        back: Mutex::default(),
        apps: Mutex::default(),
    });
    let (report, reporting) = watch::channel(false);
    let controllers: Vec<String> = edge.split(',').map(str::to_owned).collect();
    let settings = match controllers.len() {
        1 => ControllerLinkSettings {
            controllers,
            // The controller's processor is the machines' here: all at once would time out.
            connect_timeout: DurationMs::from_secs(120),
            spread: DurationMs::from_secs(10),
            ..ControllerLinkSettings::default()
        },
        _ => ControllerLinkSettings {
            controllers,
            ..ControllerLinkSettings::default()
        },
    };
    let pace = moved::pace(settings.controllers.len());
    runtime.block_on(async {
        for machine in machines {
            // What connects at once is what a controller's death brings to another one, and is measured there.
            tokio::time::sleep(pace).await;
            let metrics = LinkMetrics::new(&prometheus::Registry::new(), "machine")?;
            let files = Identity::below(&machine.data).files();
            let link = Link::start(&settings, files, metrics, CancellationToken::new())?;
            tokio::spawn(moved::watch(
                link.feed.connected.clone(),
                Arc::clone(&heard),
            ));
            tokio::spawn(live(machine, link, Arc::clone(&heard), reporting.clone()));
        }
        anyhow::Ok(())
    })?;
    for line in std::io::stdin().lines() {
        match line?.as_str() {
            "report" => drop(report.send_replace(true)),
            "back" => heard.tell_back(),
            _ => {}
        }
    }
    Ok(())
}

/// One machine's life.
async fn live(
    machine: Joined,
    mut link: Connection,
    heard: Arc<Heard>,
    mut reporting: watch::Receiver<bool>,
) {
    let mut known = false;
    let mut every = tokio::time::interval(EVERY);
    let mut sequence = 0;
    loop {
        tokio::select! {
            told = link.feed.events.recv() => match told {
                Some(FeedEvent::Snapshot(..)) if !known => {
                    known = true;
                    heard.up();
                }
                Some(FeedEvent::Change(Frame::App(app))) => heard.app(app.desired.app.as_str()),
                Some(_) => {}
                None => return,
            },
            _ = every.tick(), if *reporting.borrow() => {
                sequence += 1;
                let Ok(status) = status(&machine, sequence) else { return };
                let message = Message::NodeStatus(Box::new(status));
                drop(fdn_link::report(&*link.controllers, message, EVERY).await);
            }
            _ = reporting.changed() => every.reset_after(EVERY.mul_f64(spread(&machine))),
        }
    }
}

/// Between 0 and 1, by the machine's number: so that not all report at once.
fn spread(machine: &Joined) -> f64 {
    let number = machine.node.as_str().trim_start_matches("m-").parse();
    f64::from(number.unwrap_or(0_u32) % 1000) / 1000.0
}

fn status(machine: &Joined, sequence: u64) -> Result<NodeStatus> {
    let room = Resources::new(MilliCpu(4000), MebiBytes(4096));
    let number: usize = machine.node.as_str().trim_start_matches("m-").parse()?;
    Ok(NodeStatus {
        node: machine.node.clone(),
        cluster: machine.cluster.clone(),
        region: machine.cluster.as_str().parse()?,
        location: place(number)?,
        gateway: machine.addresses.gateway,
        weight: fdn_core::GatewayWeight::default(),
        admin: machine.addresses.admin,
        boot: MessageId::from_uuid(uuid::Uuid::from_u128(1)),
        sequence,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        speed: 1.0,
        capacity: room,
        free: room,
        slots: 4,
        busy: 0,
        waiting: 0,
        queued_work: Millis::ZERO,
        draining: false,
        stages: None,
        apps: Vec::new(),
        devices: Vec::new(),
        stage_calls: None,
        controller_port: None,
        runtimes: None,
    })
}
