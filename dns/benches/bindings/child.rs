//! A server in this process, with a feed whose content this program determines.

use std::io::BufRead;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use fdn_core::Revision;
use fdn_core::feed::Frame;
use fdn_core::message::{AppBindings, BindingsChanged, BindingsDesired};
use fdn_dns::{Dns, Settings};
use fdn_link::{Body, Connection, ControllerLink, Feed, FeedEvent, LinkError};
use http::{Request, Response};
use tokio::sync::{Notify, mpsc, watch};

use crate::world::{World, app, ask, cluster_name, network, socket};

/// The number of changes in one message.
const IN_ONE: u32 = 10;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Rejects every report.
struct Nobody;

#[async_trait]
impl ControllerLink for Nobody {
    async fn send(&self, _: Request<Bytes>) -> Result<Response<Body>, LinkError> {
        Err(LinkError::NotConnected)
    }
}

struct Sender {
    runtime: tokio::runtime::Runtime,
    told: mpsc::Sender<FeedEvent>,
    world: World,
    server: SocketAddr,
    /// The revision of each app.
    revisions: Vec<u64>,
    /// The number of completed rounds of changes over all bindings, and the next binding to change.
    round: u32,
    next: u32,
}

pub(crate) fn run(dir: &Path, world: World) {
    let settings = Settings {
        data_dir: dir.to_owned(),
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
        admin: SocketAddr::from(([127, 0, 0, 1], 0)),
        ..Settings::default()
    };
    let mut settings = settings;
    // The gateways of this world do not exist.
    settings.health.fall = u32::MAX;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let (told, heard) = mpsc::channel(64);
    let (_up, connected) = watch::channel(true);
    let connection = Connection {
        controllers: Arc::new(Nobody),
        feed: Feed {
            events: heard,
            connected,
            resync: Arc::new(Notify::new()),
        },
    };
    let dns = runtime
        .block_on(Dns::start(settings, Some(connection)))
        .expect("started");
    println!("{}", dns.address());
    let mut sender = Sender {
        runtime,
        told,
        world,
        server: dns.address(),
        revisions: vec![2; world.apps as usize],
        round: 0,
        next: 0,
    };
    let mut lines = std::io::stdin().lock().lines();
    while let Some(Ok(line)) = lines.next() {
        match line.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["tell"] => println!("{}", sender.tell()),
            ["batch", count] => println!("{}", sender.batch(count.parse().expect("a number"))),
            ["update", rate] => {
                let rate = rate.parse().expect("a number");
                println!("{}", sender.update(rate, &mut lines));
            }
            _ => break,
        }
    }
    let Sender { runtime, .. } = sender;
    runtime.block_on(dns.stop());
}

impl Sender {
    fn publish(&self, frame: Frame) {
        let told = self
            .runtime
            .block_on(self.told.send(FeedEvent::Change(frame)));
        told.expect("the server listens");
    }

    fn wait(&self, app: u32, index: u32, round: u32) {
        let socket = socket();
        let wanted = Some(self.world.cluster(app, index, round));
        while ask(&socket, self.server, app, self.world.prefix(app, index)) != wanted {
            std::thread::yield_now();
        }
    }

    /// Sends everything; returns the time in ms until the last is answered.
    fn tell(&self) -> f64 {
        let begun = Instant::now();
        self.publish(Frame::Network(network()));
        for n in 0..self.world.apps {
            let bound = |index| {
                let cluster = cluster_name(self.world.cluster(n, index, 0));
                (
                    self.world.prefix(n, index),
                    cluster.parse().expect("cluster"),
                )
            };
            let state = AppBindings {
                holders: fdn_core::message::Holders::EVERYWHERE,
                host: format!("{}.fn.test", app(n)).parse().expect("host"),
                ttl_s: 20,
                bindings: (0..self.world.each).map(bound).collect(),
            };
            self.publish(Frame::Bindings(BindingsDesired {
                app: app(n).parse().expect("app"),
                revision: Revision(2),
                state: Some(state),
            }));
        }
        self.wait(self.world.apps - 1, self.world.each - 1, 0);
        begun.elapsed().as_secs_f64() * 1e3
    }

    /// Changes the next bindings, spread over the apps; returns the last one.
    fn change(&mut self, count: u32) -> (u32, u32, u32) {
        let mut last = (0, 0, 0);
        for _ in 0..count / IN_ONE {
            let n = self.next / IN_ONE % self.world.apps;
            let first = self.next / IN_ONE / self.world.apps * IN_ONE;
            if first + IN_ONE > self.world.each {
                (self.next, self.round) = (0, self.round + 1);
                return self.change(count);
            }
            let round = self.round + 1;
            let changed = |index| {
                let cluster = cluster_name(self.world.cluster(n, index, round));
                (
                    self.world.prefix(n, index),
                    Some(cluster.parse().expect("cluster")),
                )
            };
            let base = self.revisions[n as usize];
            self.revisions[n as usize] += 1;
            self.publish(Frame::BindingsChanged(BindingsChanged {
                holders: None,
                app: app(n).parse().expect("app"),
                base: Revision(base),
                revision: Revision(base + 1),
                changes: (first..first + IN_ONE).map(changed).collect(),
            }));
            self.next += IN_ONE;
            last = (n, first + IN_ONE - 1, round);
        }
        last
    }

    /// Makes this many changes at once; returns the time in ms until the last is answered.
    fn batch(&mut self, count: u32) -> f64 {
        // Wait until the previous batch is over and the server is idle.
        std::thread::sleep(Duration::from_millis(300));
        let begun = Instant::now();
        let (app, index, round) = self.change(count);
        self.wait(app, index, round);
        begun.elapsed().as_secs_f64() * 1e3
    }

    /// Makes this many changes per second until the next line of input; returns the actual rate.
    fn update(
        &mut self,
        rate: u32,
        lines: &mut dyn Iterator<Item = std::io::Result<String>>,
    ) -> f64 {
        const TICK: Duration = Duration::from_millis(10);
        let stop = AtomicBool::new(false);
        let (begun, mut made) = (Instant::now(), 0);
        let mut last = (0, 0, 0);
        std::thread::scope(|scope| {
            let stop = &stop;
            let changes = scope.spawn(|| {
                let mut due = Instant::now();
                while !stop.load(Ordering::Relaxed) {
                    last = self.change(rate / 100);
                    made += rate / 100;
                    due += TICK;
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                }
            });
            drop(lines.next());
            stop.store(true, Ordering::Relaxed);
            changes.join().expect("no panic");
        });
        let rate = f64::from(made) / begun.elapsed().as_secs_f64();
        // Check that no change was lost.
        self.wait(last.0, last.1, last.2);
        rate
    }
}
