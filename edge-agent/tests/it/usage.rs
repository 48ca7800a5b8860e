//! Every call is billed once, whatever dies.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use fdn_core::manifest::Manifest;
use fdn_core::usage::{UsageOutcome, UsageRecord};
use fdn_core::{ByteSize, DurationMs, InvocationId};
use fdn_edge_agent::Settings;
use fdn_spool::AnswerAfter;
use fdn_testkit::process::{Process, Program};
use fdn_testkit::{components, ports, wait};
use reqwest::header::HOST;

use crate::support::{Network, host, problem};

type Calls = BTreeMap<InvocationId, (UsageRecord, usize)>;

/// Waits until the controller has the ends of this many calls.
async fn until_billed(network: &Network, count: usize) -> Calls {
    wait::until("the records of all calls", async || {
        let calls = network.controller.usage();
        let ended = calls.values().filter(|(_, ends)| *ends > 0).count();
        if ended == count {
            Ok(calls)
        } else {
            Err(ended)
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_is_billed_once_with_what_it_used() {
    for answer_after in [AnswerAfter::Written, AnswerAfter::Synced] {
        let network = Network::start().await;
        let mut settings = network.settings("eu-west-1");
        settings.usage.answer_after = answer_after;
        let agent = network.agent(settings).await;
        let hello = components::hello("hello there");
        network
            .deploy("hello", 3, &hello, Manifest::default())
            .await;
        network
            .deploy("trap", 1, &components::trapping(), Manifest::default())
            .await;
        network
            .deploy("echo", 1, &components::echo(), Manifest::default())
            .await;
        network.until_text(&agent, "hello", "hello there").await;
        let calls = until_billed(&network, network_calls(&network).await).await;
        let before = calls.len();
        // The receipt of one batch is lost: it comes again and is not counted again.
        network.controller.lose_receipts(1);
        assert_eq!(network.text(&agent, "hello").await, "hello there");
        let trapped = network
            .get(&agent, "trap", "/")
            .send()
            .await
            .expect("an answer");
        assert_eq!(trapped.status(), 502);
        let body = vec![b'x'; 300_000];
        let echoed = network
            .post(&agent, "echo", "/")
            .body(body.clone())
            .send()
            .await
            .expect("an answer");
        assert_eq!(echoed.bytes().await.expect("a body"), body);
        let head = network
            .client
            .head(format!("http://{}/", agent.gateway_address()))
            .header(HOST, host("hello"));
        assert_eq!(head.send().await.expect("an answer").status(), 200);
        // Not a call: no function was reached.
        let nobody = network
            .get(&agent, "nobody", "/")
            .send()
            .await
            .expect("an answer");
        assert_eq!(nobody.status(), 404);
        let calls = until_billed(&network, before + 4).await;
        assert!(calls.values().all(|(_, ends)| *ends == 1), "{calls:?}");
        let of = |app: &str, outcome, egress| {
            let mut all = calls.values().map(|(record, _)| record);
            all.any(|r| r.app.as_str() == app && r.outcome == outcome && r.egress_bytes == egress)
        };
        assert!(of("hello", UsageOutcome::Ok, 11), "{calls:?}");
        assert!(
            of("hello", UsageOutcome::Ok, 0),
            "the HEAD request: {calls:?}"
        );
        assert!(of("trap", UsageOutcome::FunctionEnded, 0), "{calls:?}");
        assert!(of("echo", UsageOutcome::Ok, 300_000), "{calls:?}");
        let (record, _) = calls
            .values()
            .find(|(r, _)| r.app.as_str() == "hello")
            .expect("a record");
        assert_eq!((record.version.get(), record.memory_mib.get()), (3, 64));
        assert!(record.duration_us > 0 && record.started_at.get() > 1_700_000_000_000);
        wait::until(
            "the batch whose receipt was lost to come again",
            async || match network.controller.usage_again() {
                0 => Err("not yet"),
                _ => Ok(()),
            },
        )
        .await;
        let again = network.controller.usage();
        assert_eq!(again, calls, "nothing is counted again");
        agent.stop().await;
    }
}

/// Calls whose records the controller has now, once they stop coming: those of the tests' own waiting.
async fn network_calls(network: &Network) -> usize {
    let mut last = usize::MAX;
    wait::until("records to stop coming", async || {
        let now = network.controller.usage().len();
        let same = now == last && now > 0;
        last = now;
        tokio::time::sleep(Duration::from_millis(200)).await;
        if same { Ok(now) } else { Err(now) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn without_room_for_its_record_no_call_runs_and_none_is_lost() {
    let network = Network::start().await;
    let mut settings = network.settings("eu-west-1");
    settings.usage.segment = ByteSize::from_bytes(4096);
    settings.usage.size = ByteSize::from_bytes(96 << 10);
    network.controller.usage_away(true);
    let agent = network.agent(settings).await;
    network
        .deploy("hello", 1, &components::hello("hi"), Manifest::default())
        .await;
    network.until_text(&agent, "hello", "hi").await;
    let mut answered = 0;
    let refused = loop {
        let answer = network
            .get(&agent, "hello", "/")
            .send()
            .await
            .expect("an answer");
        if answer.status() != 200 {
            break answer;
        }
        answered += 1;
        assert!(answered < 10_000, "the spool is bounded");
    };
    assert_eq!(refused.headers()["retry-after"], "1");
    let problem = problem(refused).await;
    assert_eq!((problem.status, problem.code.as_str()), (503, "FDN-3007"));
    assert!(answered > 50, "{answered}");
    assert!(
        network
            .metric(&agent, "fdn_agent_usage_refused_total")
            .await
            .expect("counted")
            >= 1.0
    );
    let used = network
        .metric(&agent, "fdn_agent_usage_spool_bytes")
        .await
        .expect("shown");
    assert!(used <= f64::from(96 << 10), "{used}");
    // The controller is back: the spool empties and calls run again.
    network.controller.usage_away(false);
    network.until_text(&agent, "hello", "hi").await;
    wait::until("all records", async || {
        let billed = network.controller.usage().len();
        if billed > answered {
            Ok(())
        } else {
            Err(billed)
        }
    })
    .await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_handed_over_is_after_a_restart() {
    let network = Network::start().await;
    network.controller.usage_away(true);
    let agent = network.agent(network.settings("eu-west-1")).await;
    network
        .deploy("hello", 1, &components::hello("hi"), Manifest::default())
        .await;
    network.until_text(&agent, "hello", "hi").await;
    for _ in 0..20 {
        network.text(&agent, "hello").await;
    }
    agent.stop().await;
    assert!(network.controller.usage().is_empty());
    network.controller.usage_away(false);
    let agent = network.agent(network.settings("eu-west-1")).await;
    wait::until("the records of the calls before", async || {
        let calls = network.controller.usage();
        if calls.len() > 20 {
            Ok(())
        } else {
            Err(calls.len())
        }
    })
    .await;
    agent.stop().await;
}

/// An agent as a process of its own, which can be killed.
struct Killable {
    config: PathBuf,
    log: PathBuf,
    gateway: SocketAddr,
}

impl Killable {
    fn new(network: &Network) -> Self {
        let local = std::net::IpAddr::V4(Ipv4Addr::LOCALHOST);
        let gateway = SocketAddr::new(local, ports::local());
        let mut settings: Settings = network.settings("eu-west-1");
        settings.gateway.listen = gateway;
        settings.admin.listen = SocketAddr::new(local, ports::local());
        // Nobody is there; desired state comes from the disk and from snapshots.
        settings.broker.url = format!("amqp://fdn@127.0.0.1:{}/%2f", ports::local());
        settings.controller.snapshot_interval = DurationMs::from_millis(100);
        settings.usage.seal_after = DurationMs::from_millis(20);
        let config = network.folder.path().join("agent.toml");
        std::fs::write(&config, toml::to_string(&settings).expect("TOML")).expect("written");
        Self {
            config,
            log: network.folder.path().join("agent.log"),
            gateway,
        }
    }

    async fn start(&self) -> Process {
        let exe = env!("CARGO_BIN_EXE_fdn-edge-agent");
        let program = Program::new(exe, ["--config".as_ref(), self.config.as_os_str()]);
        let mut process = program.start(&self.log).expect("it starts");
        wait::until("the agent to listen", async || {
            if let Some(status) = process.ended() {
                panic!("it ended with {status}: {}", process.log());
            }
            tokio::net::TcpStream::connect(self.gateway).await.map(drop)
        })
        .await;
        process
    }

    /// Calls until the agent is gone; how many were answered.
    async fn call_until_gone(&self, client: reqwest::Client) -> usize {
        let mut answered = 0;
        loop {
            let call = client
                .get(format!("http://{}/", self.gateway))
                .header(HOST, host("hello"));
            match call.send().await {
                Ok(answer) if answer.status() == 200 => match answer.bytes().await {
                    Ok(_) => answered += 1,
                    Err(_) => return answered,
                },
                Ok(_) => {}
                Err(_) => return answered,
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_killed_loses_no_call_that_was_answered_and_bills_none_twice() {
    let network = Network::start().await;
    let component = components::hello("hi");
    network.controller.store(&component);
    let desired = network.desired("hello", 1, &component, Manifest::default(), true);
    network.controller.set(desired);
    let agent = Killable::new(&network);
    let mut answered = 0;
    for run in 0..8_u64 {
        let mut process = agent.start().await;
        wait::until("the app to answer", async || {
            let call = network
                .client
                .get(format!("http://{}/", agent.gateway))
                .header(HOST, host("hello"));
            match call.send().await {
                Ok(answer) if answer.status() == 200 => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
        answered += 1;
        network.controller.lose_receipts(usize::from(run % 2 == 0));
        let kill = async {
            // Some time in the middle of it: which moment that is, differs each time.
            tokio::time::sleep(Duration::from_millis(20 + 37 * run)).await;
            process.kill();
        };
        let callers = futures::future::join_all(
            (0..4).map(|_| agent.call_until_gone(network.client.clone())),
        );
        let (counts, ()) = tokio::join!(callers, kill);
        answered += counts.iter().sum::<usize>();
    }
    let process = agent.start().await;
    let mut last = 0;
    let calls = wait::until("the records of all answered calls", async || {
        let calls = network.controller.usage();
        let (now, before) = (calls.len(), std::mem::replace(&mut last, calls.len()));
        tokio::time::sleep(Duration::from_millis(200)).await;
        if now >= answered && now == before {
            Ok(calls)
        } else {
            Err(format!("{now} of {answered}"))
        }
    })
    .await;
    assert!(
        calls.values().all(|(_, ends)| *ends == 1),
        "a call is in two batches, or has no end"
    );
    assert!(answered > 100, "{answered}");
    drop(process);
}
