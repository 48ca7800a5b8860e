//! Every call is billed once, whatever dies.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fdn_core::api::header;
use fdn_core::billing::{Meter, Quantities};
use fdn_core::manifest::Manifest;
use fdn_core::usage::{CallList, CallRecord, UsageOutcome, UsageRecord};
use fdn_core::{ByteSize, DurationMs, InvocationId};
use fdn_instances::Exit;
use fdn_instances::fake::{AtStart, FakeProgram};
use fdn_spool::AnswerAfter;
use fdn_testkit::{components, wait};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use reqwest::header::HOST;
use tokio::sync::{Notify, watch};

use crate::bursts::{container, deployed, engine, runtime};
use crate::support::killable::Killable;
use crate::support::{Network, host, problem};

/// By call: its last record, and how many of its records are its end.
type Calls = BTreeMap<InvocationId, (UsageRecord, usize)>;

/// The calls that the node has written: those in its log, and those waiting to be handed over.
fn written(network: &Network) -> Calls {
    loop {
        // Files are renamed when they are sealed and when they were handed over; then another look finds them.
        if let Some(calls) = try_written(network) {
            return calls;
        }
    }
}

fn try_written(network: &Network) -> Option<Calls> {
    let folder = network.settings("eu-west-1").data.join("usage");
    let entries = std::fs::read_dir(folder).expect("the spool");
    let mut paths: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    // Sorted by id, which grows with time.
    paths.sort();
    let mut calls = Calls::new();
    for path in paths {
        let bytes = std::fs::read(path).ok()?;
        for payload in fdn_spool::frame::scan(&bytes).payloads {
            let record: CallRecord = serde_json::from_slice(payload).expect("a record");
            let entry = calls.entry(record.used.invocation);
            let entry = entry.or_insert_with(|| (record.used.clone(), 0));
            entry.1 += usize::from(record.used.outcome != UsageOutcome::Running);
            entry.0 = record.used;
        }
    }
    Some(calls)
}

/// Waits until the controller has counted what the node has written, with this many ended calls.
async fn until_billed(network: &Network, count: usize) -> Calls {
    let ended = |calls: &Calls| calls.values().filter(|(_, ends)| *ends > 0).count();
    until_counted(network, |calls| ended(calls) == count).await
}

/// Waits until the controller has counted what the node has written, and `is_enough` accepts it.
async fn until_counted(network: &Network, is_enough: impl Fn(&Calls) -> bool) -> Calls {
    wait::until("all calls to be counted", async || {
        let calls = written(network);
        let mut all = Quantities::default();
        for (record, _) in calls.values() {
            let of_call = Quantities::of(record).expect("bounded");
            all.add(&of_call).expect("fits");
        }
        let counted = network.controller.counted();
        if is_enough(&calls) && counted == all {
            Ok(calls)
        } else {
            Err(format!("{all:?} written, {counted:?} counted"))
        }
    })
    .await
}

fn counted(network: &Network) -> i128 {
    network.controller.counted().get(Meter::Invocations)
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
        let calls = until_billed(&network, 1).await;
        let before = calls.len();
        // The receipt of one batch is lost: the batch is sent again and not counted again.
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
        // Not a billed call: no function was reached.
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
        let again = until_billed(&network, before + 4).await;
        assert_eq!(again, calls, "nothing is counted again");
        agent.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_room_for_its_record_no_call_runs_and_none_is_lost() {
    let network = Network::start().await;
    let mut settings = network.settings("eu-west-1");
    settings.usage.segment = ByteSize::from_bytes(4096);
    settings.usage.size = ByteSize::from_bytes(104 << 10);
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
    assert!(used <= f64::from(104 << 10), "{used}");
    // The controller is back: the spool empties and calls run again.
    network.controller.usage_away(false);
    network.until_text(&agent, "hello", "hi").await;
    wait::until("all calls to be counted", async || {
        let billed = counted(&network);
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
    assert!(network.controller.counted().is_zero());
    network.controller.usage_away(false);
    let agent = network.agent(network.settings("eu-west-1")).await;
    wait::until("the calls before to be counted", async || {
        match counted(&network) {
            calls if calls > 20 => Ok(()),
            calls => Err(calls),
        }
    })
    .await;
    agent.stop().await;
}

/// Makes calls until the agent is gone, each with a body of another length, and notes which came back complete.
async fn call_until_gone(agent: &Killable, client: reqwest::Client, answers: &Answers) {
    loop {
        let length = answers.next.fetch_add(1, Ordering::SeqCst);
        let call = agent.post(&client, "echo").body(vec![b'x'; length]);
        match call.send().await {
            Ok(answer) if answer.status() == 200 => match answer.bytes().await {
                Ok(body) if body.len() == length => {
                    answers.heard.send_modify(|heard| heard.push(length));
                }
                _ => return,
            },
            Ok(_) => {}
            Err(_) => return,
        }
    }
}

/// Calls of the app that echoes its input: a call is identified by its length, also in its record.
struct Answers {
    next: AtomicUsize,
    heard: watch::Sender<Vec<usize>>,
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_killed_loses_no_call_that_was_answered_and_bills_none_twice() {
    Box::pin(killed(4, 20_000)).await;
}

/// Kills the agent this many times, each time after a number of answers derived from the seed.
async fn killed(kills: u64, seed: u64) {
    let network = Network::start().await;
    let component = components::echo();
    network.controller.store(&component);
    let desired = network.desired("echo", 1, &component, Manifest::default(), true);
    network.controller.set(desired);
    let agent = Killable::new(&network);
    let answers = Answers {
        next: AtomicUsize::new(1),
        heard: watch::Sender::default(),
    };
    let mut random = StdRng::seed_from_u64(seed);
    for run in 0..kills {
        let mut process = agent.start().await;
        agent.until_it_answers(&network.client, "echo").await;
        network.controller.lose_receipts(usize::from(run % 2 == 0));
        // During the first answers, or somewhere in the middle; the other callers' calls are at any point then.
        let wanted = answers.heard.borrow().len() + random.random_range(1..40);
        let kill = async {
            let mut heard = answers.heard.subscribe();
            drop(heard.wait_for(|heard| heard.len() >= wanted).await);
            process.kill();
        };
        let callers = futures::future::join_all(
            (0..4).map(|_| call_until_gone(&agent, network.client.clone(), &answers)),
        );
        tokio::join!(callers, kill);
    }
    let process = agent.start().await;
    agent.until_it_answers(&network.client, "echo").await;
    // Records are handed over in order: once this one has arrived, so have all before it.
    let last = answers.next.load(Ordering::SeqCst);
    let call = agent.post(&network.client, "echo").body(vec![b'x'; last]);
    assert_eq!(call.send().await.expect("an answer").status(), 200);
    // What is counted is what was written, however often the node died in between.
    let calls = until_counted(&network, |calls| {
        let mut records = calls.values().map(|(record, _)| record.egress_bytes);
        records.any(|egress| egress == last as u64)
    })
    .await;
    let mut billed: BTreeMap<u64, usize> = BTreeMap::new();
    for (record, ends) in calls.values() {
        assert_eq!(*ends, 1, "in two batches, or without an end: {record:?}");
        *billed.entry(record.egress_bytes).or_default() += 1;
    }
    // Readiness is probed with calls without a body.
    billed.remove(&0);
    let twice: Vec<_> = billed.iter().filter(|(_, records)| **records > 1).collect();
    assert!(twice.is_empty(), "billed twice: {twice:?}");
    let heard = answers.heard.borrow();
    let lost: Vec<_> = heard
        .iter()
        .filter(|length| !billed.contains_key(&(**length as u64)))
        .collect();
    assert!(lost.is_empty(), "answered and not billed: {lost:?}");
    assert!(heard.len() as u64 >= kills, "{}", heard.len());
    drop(process);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_an_instance_took_and_did_not_answer_are_billed_once() {
    let network = Network::start().await;
    let dying = FakeProgram::new(|context, _| async move {
        context.exit(Exit::ended(137));
        std::future::pending().await
    });
    let arrived = Arc::new(Notify::new());
    let seen = Arc::clone(&arrived);
    let silent = FakeProgram::new(move |_, _| {
        seen.notify_one();
        std::future::pending()
    });
    let engine = engine("dying", dying);
    engine.add_image("silent", silent);
    let unable = FakeProgram::text("never").at_start(AtStart::Exits(Exit::ended(1)), &[]);
    engine.add_image("unable", unable);
    let mut settings = network.settings("eu-west-1");
    // Far longer than a start takes here, even on a busy machine; only calls of an app that never starts wait this long.
    settings.instances.wait = DurationMs::from_secs(15);
    let agent = network
        .agent_with(settings, runtime(&engine, "eu-west-1"))
        .await;
    let short = Manifest {
        timeout: DurationMs::from_secs(6),
        ..container()
    };
    deployed(&network, "dying", "dying", container()).await;
    deployed(&network, "late", "silent", short).await;
    deployed(&network, "left", "silent", container()).await;
    deployed(&network, "unable", "unable", container()).await;
    let call = |app: &'static str| network.post(&agent, app, "/").body("x").send();
    for (app, status) in [("dying", 502), ("late", 504), ("unable", 503)] {
        let answer = call(app).await.expect("an answer");
        assert_eq!(answer.status(), status, "{app}");
    }
    arrived.notified().await;
    tokio::select! {
        answer = call("left") => panic!("{answer:?}"),
        () = arrived.notified() => {}
    }
    // Calls that never reached an instance have no record.
    let calls = until_billed(&network, 3).await;
    let of = |app: &str| {
        let mut records = calls.values().filter(|(r, _)| r.app.as_str() == app);
        let (record, ends) = records.next().expect("a record");
        assert!(records.next().is_none() && *ends == 1, "{calls:?}");
        (record.outcome, record.duration_us)
    };
    assert_eq!(of("dying").0, UsageOutcome::FunctionEnded);
    let (outcome, took) = of("late");
    assert_eq!(outcome, UsageOutcome::FunctionEnded);
    assert!(took > 0, "{calls:?}");
    assert_eq!(of("left").0, UsageOutcome::Client);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_billed_until_its_instance_has_let_go_of_it() {
    let network = Network::start().await;
    let (arrived, answers) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (seen, told) = (Arc::clone(&arrived), Arc::clone(&answers));
    let stubborn = FakeProgram::new(move |_, _| {
        let (seen, told) = (Arc::clone(&seen), Arc::clone(&told));
        async move {
            seen.notify_one();
            told.notified().await;
            http::Response::new(fdn_instances::full_body("late"))
        }
    });
    let engine = engine("stubborn", stubborn.working_on());
    let mut settings = network.settings("eu-west-1");
    // So long that no pause of a busy machine gets an instance replaced.
    settings.instances.stop_grace = DurationMs::from_secs(50);
    let agent = network
        .agent_with(settings, runtime(&engine, "eu-west-1"))
        .await;
    let short = Manifest {
        timeout: DurationMs::from_secs(6),
        ..container()
    };
    deployed(&network, "late", "stubborn", short).await;
    deployed(&network, "left", "stubborn", container()).await;
    let call = |app: &'static str| network.post(&agent, app, "/").body("x").send();
    for (app, outcome) in [
        ("late", UsageOutcome::FunctionEnded),
        ("left", UsageOutcome::Client),
    ] {
        if app == "late" {
            assert_eq!(call(app).await.expect("an answer").status(), 504);
            arrived.notified().await;
        } else {
            tokio::select! {
                answer = call(app) => panic!("{answer:?}"),
                () = arrived.notified() => {}
            }
        }
        let record = async |wanted: UsageOutcome| {
            wait::until("the call to be counted", async || {
                match network.controller.outcomes(app) {
                    all if all == BTreeMap::from([(wanted, 1)]) => Ok(()),
                    all => Err(format!("{all:?}")),
                }
            })
            .await;
            let calls = written(&network);
            let mut of_app = calls.values().filter(|(r, _)| r.app.as_str() == app);
            let (found, _) = of_app.next().expect("a record").clone();
            assert!(of_app.next().is_none(), "{calls:?}");
            found
        };
        // The record that counts if the node dies now, after the caller has stopped waiting.
        let known = record(UsageOutcome::Running).await;
        assert_eq!(known.outcome, UsageOutcome::Running);
        let busy = async || network.metric(&agent, "fdn_agent_calls_busy").await;
        assert_eq!(busy().await, Some(1.0));
        answers.notify_one();
        let ended = record(outcome).await;
        assert_eq!(ended.outcome, outcome);
        assert!(ended.duration_us > known.duration_us, "{ended:?} {known:?}");
        wait::until("what it held to be free", async || match busy().await {
            Some(0.0) => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await;
    }
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_finds_single_calls_on_the_node() {
    let network = Network::start().await;
    let agent = network.agent(network.settings("eu-west-1")).await;
    for (app, component) in [
        ("hello", components::hello("hi")),
        ("trap", components::trapping()),
    ] {
        network
            .deploy(app, 1, &component, Manifest::default())
            .await;
    }
    network.until_text(&agent, "hello", "hi").await;
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let trapped = network
        .get(&agent, "trap", "/")
        .header(header::REQUEST_ID, "mine")
        .header("traceparent", format!("00-{trace}-b7ad6b7169203331-01"))
        .send();
    assert_eq!(trapped.await.expect("an answer").status(), 502);
    let ask = |app: &str, query: &str| network.ask(&agent, &format!("/calls/{app}?{query}"));
    let find = async |app: &str, query: &str| -> CallList {
        let answer = ask(app, query).send().await;
        let answer = answer.expect("an answer").error_for_status();
        answer.expect("a list").json().await.expect("a list")
    };
    let failed = find("trap", "limit=10&status=5xx").await;
    let [call] = failed.calls.as_slice() else {
        panic!("{failed:?}")
    };
    assert_eq!((call.status, call.method.as_str()), (Some(502), "GET"));
    assert_eq!(
        (call.request.as_str(), call.trace.as_str()),
        ("mine", trace)
    );
    assert_eq!(call.outcome, UsageOutcome::FunctionEnded);
    assert_eq!(call.node.as_str(), "eu-west-1");
    assert!(
        call.total_us >= call.duration_us && call.start_us + call.head_us > 0,
        "{call:?}"
    );
    assert_eq!(
        find("trap", &format!("limit=10&trace={trace}")).await,
        failed
    );
    assert!(find("trap", "limit=10&status=2xx").await.calls.is_empty());
    let answered = find("hello", "limit=1&status=200").await;
    assert_eq!(answered.calls.len(), 1);
    assert_eq!(answered.calls[0].egress_bytes, 2);
    let routed = &answered.calls[0].routed;
    let client = routed.client.map(|client| client.to_string());
    assert_eq!(client.as_deref(), Some("127.0.0.0/24"));
    assert!(routed.revision.is_some() && routed.plan_use.is_used());
    assert_eq!((&routed.via, &routed.stage), (&None, &None));
    for query in ["limit=10&who=me", "status=9xx&limit=1"] {
        let answer = ask("trap", query).send().await;
        assert_eq!(answer.expect("an answer").status(), 400, "{query}");
    }
    agent.stop().await;
}

mod cut;

mod soak {
    #![allow(clippy::print_stdout, reason = "a seed is told, to repeat what it did")]

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn an_agent_that_is_killed_a_hundred_times_loses_no_call_and_bills_none_twice() {
        let seed: u64 = rand::rng().random::<u32>().into();
        println!("the kills come from seed {seed}");
        Box::pin(killed(100, seed)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_function_does_after_its_answer_is_billed() {
    let network = Network::start().await;
    let agent = network.agent(network.settings("eu-west-1")).await;
    let late = components::lingering(300);
    network.deploy("late", 1, &late, Manifest::default()).await;
    assert_eq!(network.text(&agent, "late").await, "sent");
    let calls = until_billed(&network, 1).await;
    let (record, ends) = calls.values().next().expect("a call");
    assert_eq!((record.outcome, *ends), (UsageOutcome::Ok, 1));
    assert!(record.duration_us >= 300_000, "{record:?}");
    agent.stop().await;
}
