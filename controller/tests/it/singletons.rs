//! Several controllers on one database and broker.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fdn_controller::singleton::Work;
use fdn_controller::store::singleton::{singleton_acquire, singleton_list, singleton_release};
use fdn_core::api::{AppDetail, AppSummary};
use fdn_core::label::Labels;
use fdn_core::message::{DemandReport, Message};
use fdn_core::{DurationMs, Timestamp};
use fdn_testkit::{components, wait};
use tokio::net::{TcpListener, TcpStream};

use crate::rig::{Backend, Rig, on_both};

on_both!(
    one_at_a_time_has_a_work,
    two_controllers_share_the_work_and_one_takes_over,
);

async fn one_at_a_time_has_a_work(backend: Backend) {
    let folder = tempfile::tempdir().expect("folder");
    let store = backend.store(folder.path()).await;
    let c = &mut *store.read().await.expect("connected");
    let mut ask = async |name: &str, holder: &str, until, now| {
        singleton_acquire(c, name, holder, Timestamp(until), Timestamp(now))
            .await
            .expect("asked")
    };
    assert!(ask("planner", "a", 100, 0).await);
    assert!(!ask("planner", "b", 150, 50).await, "it is taken");
    assert!(ask("publisher", "b", 150, 50).await, "another work is not");
    assert!(ask("planner", "a", 200, 90).await, "it is extended");
    assert!(!ask("planner", "b", 300, 199).await);
    assert!(ask("planner", "b", 300, 200).await, "it has ended");
    assert!(!ask("planner", "a", 400, 210).await, "and is another's");
    singleton_release(c, "b").await.expect("given back");
    assert_eq!(singleton_list(c).await.expect("read"), []);
}

/// Which of the works a controller has.
fn has(rig: &Rig) -> [bool; 2] {
    let singletons = &rig.controller.state().singletons;
    [Work::Planner, Work::Publisher].map(|work| singletons.has(work))
}

async fn until_has_all(rig: &Rig) {
    wait::until("it to have every work", async || match has(rig) {
        [true, true] => Ok(()),
        some => Err(format!("{some:?}")),
    })
    .await;
}

async fn two_controllers_share_the_work_and_one_takes_over(backend: Backend) {
    let first = Rig::start_with(backend, |settings| {
        settings.singletons.lease = DurationMs::from_secs(60);
    })
    .await;
    until_has_all(&first).await;
    let second = Rig::start_on(
        first.settings.clone(),
        Arc::clone(&first.broker),
        Arc::clone(&first.folder),
    )
    .await;
    // Each status reaches one of the two controllers; both know all nodes.
    first.two_regions().await;
    second.two_regions().await;
    // A change made at one is sent and planned by the other.
    second.deploy("hello", components::hello("x")).await;
    let entries = vec![(
        "hello".parse().expect("app"),
        "10.1.2.0/24".parse().expect("prefix"),
        3,
    )];
    let report = DemandReport {
        server: "dns-1".to_owned(),
        entries,
    };
    second.report(Message::DemandReport(report));
    let bound = async |rig: &Rig, prefix: &str| {
        wait::until("the prefix to be bound", async || {
            let detail: AppDetail = rig.get("/v1/apps/hello").await;
            let found = detail
                .bindings
                .iter()
                .any(|b| b.prefix.to_string() == prefix);
            if found { Ok(()) } else { Err("not yet") }
        })
        .await;
    };
    bound(&second, "10.1.2.0/24").await;
    assert_eq!((has(&first), has(&second)), ([true, true], [false, false]));
    // The first controller stops: its lease has most of a minute left, which is not waited for.
    first.controller.stop().await;
    until_has_all(&second).await;
    let entries = vec![(
        "hello".parse().expect("app"),
        "10.1.3.0/24".parse().expect("prefix"),
        3,
    )];
    let report = DemandReport {
        server: "dns-1".to_owned(),
        entries,
    };
    second.report(Message::DemandReport(report));
    bound(&second, "10.1.3.0/24").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_died_is_followed_when_its_lease_has_ended() {
    let first = Rig::start_with(Backend::Sqlite, |settings| {
        settings.singletons.lease = DurationMs::from_secs(2);
    })
    .await;
    until_has_all(&first).await;
    first.controller.stop().await;
    // A killed controller: its lease exists, and nobody extends it.
    let store = fdn_controller::store::Store::connect(&first.settings.database)
        .await
        .expect("connected");
    let c = &mut *store.read().await.expect("connected");
    let now = fdn_service::now();
    let until = Timestamp(now.get() + 1_500);
    for work in [Work::Planner, Work::Publisher] {
        assert!(
            singleton_acquire(c, work.as_str(), "dead", until, now)
                .await
                .expect("asked")
        );
    }
    let second = Rig::start_on(
        first.settings.clone(),
        Arc::clone(&first.broker),
        Arc::clone(&first.folder),
    )
    .await;
    until_has_all(&second).await;
    assert!(
        fdn_service::now() >= until,
        "not before the lease had ended"
    );
}

/// A load balancer: connections go to a backend that was ready at the last check.
struct Balancer {
    address: SocketAddr,
    backends: Arc<Mutex<Vec<(SocketAddr, bool)>>>,
}

impl Balancer {
    async fn start(http: reqwest::Client) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let backends: Arc<Mutex<Vec<(SocketAddr, bool)>>> = Arc::default();
        let known = Arc::clone(&backends);
        tokio::spawn(async move {
            loop {
                let all: Vec<SocketAddr> = {
                    let known = known.lock().expect("not poisoned");
                    known.iter().map(|(address, _)| *address).collect()
                };
                for backend in all {
                    let answer = http.get(format!("http://{backend}/readyz")).send().await;
                    let ready = answer.is_ok_and(|answer| answer.status() == 200);
                    let mut known = known.lock().expect("not poisoned");
                    for entry in known.iter_mut().filter(|entry| entry.0 == backend) {
                        entry.1 = ready;
                    }
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        let known = Arc::clone(&backends);
        tokio::spawn(async move {
            let mut turn = 0;
            while let Ok((mut client, _)) = listener.accept().await {
                turn += 1;
                let mut ready: Vec<SocketAddr> = {
                    let known = known.lock().expect("not poisoned");
                    let ready = known.iter().filter(|(_, ready)| *ready);
                    ready.map(|(address, _)| *address).collect()
                };
                let count = ready.len().max(1);
                ready.rotate_left(turn % count);
                tokio::spawn(async move {
                    for backend in ready {
                        if let Ok(mut server) = TcpStream::connect(backend).await {
                            drop(tokio::io::copy_bidirectional(&mut client, &mut server).await);
                            return;
                        }
                    }
                });
            }
        });
        Self { address, backends }
    }

    fn add(&self, backend: SocketAddr) {
        let mut backends = self.backends.lock().expect("not poisoned");
        backends.push((backend, false));
    }

    async fn until_ready(&self, backend: SocketAddr, wanted: bool) {
        wait::until("the balancer to notice", async || {
            let backends = self.backends.lock().expect("not poisoned");
            let found = backends.iter().find(|(address, _)| *address == backend);
            if found.is_some_and(|(_, ready)| *ready == wanted) {
                Ok(())
            } else {
                Err("not yet")
            }
        })
        .await;
    }
}

mod soak {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_rolling_restart_behind_a_balancer_fails_no_call() {
        let rig = Rig::start_with(Backend::Postgres, |settings| {
            settings.singletons.linger = DurationMs::from_secs(3);
            settings.database.max_connections = 8;
        })
        .await;
        rig.two_regions().await;
        rig.deploy("hello", components::hello("x")).await;
        let balancer = Balancer::start(rig.http.clone()).await;
        balancer.add(rig.controller.address());
        balancer.until_ready(rig.controller.address(), true).await;
        let (stop, calls) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let mut callers = tokio::task::JoinSet::new();
        for caller in 0..4 {
            let (stop, calls) = (Arc::clone(&stop), Arc::clone(&calls));
            let (token, address) = (rig.token.clone(), balancer.address);
            let http = rig.http.clone();
            callers.spawn(async move {
                let url = |path: &str| format!("http://{address}{path}");
                let mut written = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    let request = if caller == 0 {
                        let labels = serde_json::json!({ "turn": (written + 1).to_string() });
                        http.put(url("/v1/apps/hello/labels")).json(&labels)
                    } else {
                        http.get(url("/v1/apps"))
                    };
                    // One connection per call, as with many clients.
                    let request = request.header("connection", "close");
                    let answer = request.bearer_auth(&token).send().await;
                    let answer = answer.expect("every call is answered");
                    assert!(answer.status().is_success(), "{}", answer.status());
                    if caller == 0 {
                        written += 1;
                    } else {
                        let apps: Vec<AppSummary> = answer.json().await.expect("a whole answer");
                        assert_eq!(apps.len(), 1);
                    }
                    calls.fetch_add(1, Ordering::Relaxed);
                }
                written
            });
        }
        let mut rig = rig;
        for _ in 0..2 {
            let next = Rig::start_on(
                rig.settings.clone(),
                Arc::clone(&rig.broker),
                Arc::clone(&rig.folder),
            )
            .await;
            balancer.add(next.controller.address());
            balancer.until_ready(next.controller.address(), true).await;
            let (address, before) = (rig.controller.address(), calls.load(Ordering::Relaxed));
            rig.controller.stop().await;
            balancer.until_ready(address, false).await;
            assert!(
                calls.load(Ordering::Relaxed) > before,
                "calls went on meanwhile"
            );
            rig = next;
        }
        stop.store(true, Ordering::Relaxed);
        let mut written = 0;
        while let Some(ended) = callers.join_next().await {
            written += ended.expect("no call failed");
        }
        // The last write is effective, whichever controller handled it.
        let labels: Labels = rig.get("/v1/apps/hello/labels").await;
        assert_eq!(labels.to_string(), format!("turn={written}"));
    }
}
