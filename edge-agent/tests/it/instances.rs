//! Functions in instances, through the whole agent: what is retried, what is refused, how the number of instances follows the load, and what is
//! reported when they do not start.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fdn_core::manifest::Manifest;
use fdn_core::message::AppPhase;
use fdn_core::{ByteSize, DurationMs, ErrorCode, MilliCpu, TenantId};
use fdn_instances::fake::{AtStart, FakeProgram};
use fdn_instances::{Exit, full_body};
use fdn_testkit::wait;
use tokio::sync::watch;
use uuid::Uuid;

use crate::bursts::{burst, container, deployed, engine, runtime};
use crate::support::{Network, problem};

/// Dies while it answers the first calls; then answers with the number of calls so far.
fn dying(times: usize) -> (FakeProgram, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&calls);
    let program = FakeProgram::new(move |context, _| {
        let call = seen.fetch_add(1, Ordering::Relaxed);
        async move {
            if call < times {
                context.exit(Exit::ended(137));
                std::future::pending::<()>().await;
            }
            http::Response::new(full_body(call.to_string()))
        }
    });
    (program, calls)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_may_have_been_seen_is_made_again_only_where_that_is_safe() {
    let network = Network::start().await;
    let (once, once_calls) = dying(1);
    let (twice, _) = dying(2);
    let (declared, _) = dying(1);
    let engine = engine("once", once);
    engine.add_image("twice", twice);
    engine.add_image("declared", declared);
    let agent = network
        .agent_with(network.settings("eu-west-1"), runtime(&engine, "eu-west-1"))
        .await;
    deployed(&network, "once", "once", container()).await;
    deployed(&network, "twice", "twice", container()).await;
    let idempotent = Manifest {
        idempotent: true,
        ..container()
    };
    deployed(&network, "declared", "declared", idempotent).await;
    let answer = network.post(&agent, "once", "/").body("x").send().await;
    let answer = answer.expect("an answer");
    assert_eq!(problem(answer).await.code, ErrorCode::InstanceLost);
    assert_eq!(
        once_calls.load(Ordering::Relaxed),
        1,
        "a POST is not made twice"
    );
    let answer = network
        .get(&agent, "twice", "/")
        .send()
        .await
        .expect("an answer");
    assert_eq!(answer.text().await.expect("text"), "2", "a GET is");
    let answer = network.post(&agent, "declared", "/").body("x").send().await;
    assert_eq!(answer.expect("an answer").text().await.expect("text"), "1");
    let retries = network.metric(&agent, "fdn_agent_call_retries_total").await;
    assert_eq!(retries, Some(3.0));
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_are_sent_again_up_to_the_bound_and_streamed_beyond() {
    let network = Network::start().await;
    let calls = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&calls);
    let echo = FakeProgram::new(move |context, request| {
        let first = seen.fetch_add(1, Ordering::Relaxed) == 0;
        async move {
            if first {
                context.exit(Exit::ended(1));
                std::future::pending::<()>().await;
            }
            http::Response::new(request.into_body())
        }
    });
    let engine = engine("echo", echo);
    let mut settings = network.settings("eu-west-1");
    settings.instances.replay_body = ByteSize::from_bytes(64 << 10);
    let agent = network
        .agent_with(settings, runtime(&engine, "eu-west-1"))
        .await;
    deployed(&network, "echo", "echo", container()).await;
    for size in [64 << 10, 8 << 20] {
        let body = vec![b'x'; size];
        let url = format!("http://{}/", agent.gateway_address());
        let request = network.client.put(url).header("host", "echo.fn.test");
        let answer = request.body(body.clone()).send().await.expect("an answer");
        assert_eq!(answer.status(), 200, "{size}");
        assert_eq!(answer.bytes().await.expect("body"), body, "{size}");
    }
    assert_eq!(
        calls.load(Ordering::Relaxed),
        3,
        "the first one was made again"
    );
    let too_large = vec![b'x'; 11 << 20];
    let answer = network
        .post(&agent, "echo", "/")
        .body(too_large)
        .send()
        .await;
    assert_eq!(
        problem(answer.expect("an answer")).await.code,
        ErrorCode::BodyTooLarge
    );
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_announces_another_one_is_none() {
    let network = Network::start().await;
    let interim = FakeProgram::new(|_, _| async {
        let mut answer = http::Response::new(full_body("more comes"));
        *answer.status_mut() = http::StatusCode::PROCESSING;
        answer
    });
    let engine = engine("interim", interim);
    let settings = network.settings("eu-west-1");
    let agent = network
        .agent_with(settings, runtime(&engine, "eu-west-1"))
        .await;
    deployed(&network, "interim", "interim", container()).await;
    let answer = network.get(&agent, "interim", "/").send().await;
    let answer = problem(answer.expect("an answer")).await;
    assert_eq!(answer.code, ErrorCode::NoResponse);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_app_whose_instances_do_not_start_is_degraded_with_the_reason() {
    let network = Network::start().await;
    let broken =
        FakeProgram::text("never").at_start(AtStart::Exits(Exit::ended(3)), &["no config"]);
    let engine = engine("broken", broken);
    let mut settings = network.settings("eu-west-1");
    settings.instances.wait = DurationMs::from_millis(400);
    settings.instances.retry_first = DurationMs::from_millis(20);
    // However many starts failed before the image is repaired, the next one is due within this time.
    settings.instances.retry_max = DurationMs::from_millis(80);
    let agent = network
        .agent_with(settings, runtime(&engine, "eu-west-1"))
        .await;
    deployed(&network, "broken", "broken", container()).await;
    // Reported once the first start has failed, which on a slow machine takes longer than a call waits.
    wait::until("the call to be told why", async || {
        let answer = network.get(&agent, "broken", "/").send().await;
        let answer = answer.expect("an answer");
        assert_eq!(answer.headers()["retry-after"], "1");
        match problem(answer).await.code {
            ErrorCode::NotReady => Ok(()),
            ErrorCode::Overloaded => Err("it waited for too long, and no more is known"),
            other => panic!("{other}"),
        }
    })
    .await;
    let status = network
        .until_status(|status| status.apps.iter().any(|app| app.degraded.is_some()))
        .await;
    let degraded = status.apps[0].degraded.clone().expect("degraded");
    assert!(
        degraded.contains("status 3") && degraded.ends_with("\nno config"),
        "{degraded}"
    );
    engine.add_image("broken", FakeProgram::text("repaired"));
    wait::until("the repaired app to answer", async || {
        let answer = network.get(&agent, "broken", "/").send().await;
        let text = answer.expect("an answer").text().await.expect("a body");
        if text == "repaired" {
            Ok(())
        } else {
            Err(text)
        }
    })
    .await;
    network
        .until_status(|status| status.apps.iter().all(|app| app.degraded.is_none()))
        .await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn beyond_the_bounds_calls_are_told_to_come_again() {
    let network = Network::start().await;
    let engine = engine("hello", FakeProgram::text("hi"));
    let mut settings = network.settings("eu-west-1");
    settings.instances.waiting = 3;
    settings.queue.per_function = 2;
    let agent = network
        .agent_with(settings, runtime(&engine, "eu-west-1"))
        .await;
    deployed(&network, "hello", "hello", container()).await;
    deployed(&network, "other", "hello", container()).await;
    engine.hold_starts();
    let call = |app: &'static str| network.get(&agent, app, "/").send();
    let waiting = [call("hello"), call("hello"), call("other")].map(|call| tokio::spawn(call));
    wait::until("three calls to wait", async || {
        let waiting = network.metric(
            &agent,
            r#"fdn_agent_instance_calls{node="eu-west-1",state="waiting"}"#,
        );
        match waiting.await {
            Some(3.0) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    let answer = call("hello").await.expect("an answer");
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["retry-after"]),
        (429, &"1".parse().expect("value"))
    );
    assert_eq!(problem(answer).await.code, ErrorCode::TooManyRequests);
    let answer = call("other").await.expect("an answer");
    assert_eq!(answer.status(), 503);
    assert_eq!(problem(answer).await.code, ErrorCode::Overloaded);
    engine.release_starts();
    for call in waiting {
        assert_eq!(
            call.await.expect("a call").expect("an answer").status(),
            200
        );
    }
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_run_as_many_calls_as_the_manifest_says_and_evict_each_other() {
    let network = Network::start().await;
    let running = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let (now, top) = (Arc::clone(&running), Arc::clone(&most));
    let counting = FakeProgram::new(move |_, _| {
        let (now, top) = (Arc::clone(&now), Arc::clone(&top));
        async move {
            top.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            // Waits until the first four run at the same time, however slowly they start.
            while top.load(Ordering::Relaxed) < 4 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            tokio::time::sleep(Duration::from_millis(30)).await;
            now.fetch_sub(1, Ordering::Relaxed);
            http::Response::new(full_body("counted"))
        }
    });
    let engine = engine("counting", counting);
    engine.add_image("other", FakeProgram::text("other"));
    let mut settings = network.settings("eu-west-1");
    // Room for one instance of either.
    settings.capacity.cpu_milli = MilliCpu(15);
    let agent = network
        .agent_with(settings, runtime(&engine, "eu-west-1"))
        .await;
    let four = Manifest {
        concurrency: 4,
        ..container()
    };
    deployed(&network, "counting", "counting", four).await;
    deployed(&network, "other", "other", container()).await;
    for app in ["counting", "other", "counting"] {
        let (good, others) = burst(&network, &agent, app, 20).await;
        assert_eq!((good, others), (20, Vec::new()), "{app}");
        assert_eq!(engine.alive().len(), 1, "one evicts the other");
    }
    assert_eq!(most.load(Ordering::Relaxed), 4);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_version_takes_over_without_a_failed_call_and_an_agent_finds_its_instances_again() {
    let network = Network::start().await;
    let engine = engine("one", FakeProgram::text("one"));
    engine.add_image("two", FakeProgram::text("two"));
    let settings = network.settings("eu-west-1");
    let agent = network
        .agent_with(settings.clone(), runtime(&engine, "eu-west-1"))
        .await;
    deployed(&network, "app", "one", container()).await;
    assert_eq!(network.text(&agent, "app").await, "one");
    let replace = network.deploy("app", 2, b"two", container());
    let calls = async {
        for _ in 0..10 {
            let (_, others) = burst(&network, &agent, "app", 20).await;
            assert!(others.is_empty(), "{others:?}");
        }
    };
    tokio::join!(replace, calls);
    network.until_text(&agent, "app", "two").await;
    let before = engine.alive();
    let starts = engine.starts();
    agent.stop().await;
    assert!(
        engine.alive().iter().any(|alive| before.contains(alive)),
        "instances outlive the agent"
    );
    let agent = network
        .agent_with(settings, runtime(&engine, "eu-west-1"))
        .await;
    network.until_text(&agent, "app", "two").await;
    assert_eq!(engine.starts(), starts, "what ran serves on");
    agent.stop().await;
}

/// Calls that hang keep their instances busy, and these hold memory: those of one app hold its share only, and another app has room.
#[tokio::test(flavor = "multi_thread")]
async fn instances_of_an_app_whose_calls_hang_leave_memory_for_those_of_others() {
    let network = Network::start().await;
    let (go, gone) = watch::channel(false);
    let hanging = FakeProgram::new(move |_, _| {
        let mut gone = gone.clone();
        async move {
            drop(gone.wait_for(|gone| *gone).await);
            http::Response::new(full_body("let go"))
        }
    });
    let engine = engine("hangs", hanging);
    engine.add_image("other", FakeProgram::text("other"));
    let mut settings = network.settings("eu-west-1");
    // Four instances, of which one app may have three.
    settings.capacity.memory = ByteSize::from_mib(400);
    settings.capacity.cpu_milli = MilliCpu(1000);
    let agent = network
        .agent_with(settings, runtime(&engine, "eu-west-1"))
        .await;
    let large = Manifest {
        memory: ByteSize::from_mib(100),
        timeout: DurationMs::from_secs(600),
        ..container()
    };
    deployed(&network, "hangs", "hangs", large.clone()).await;
    deployed(&network, "other", "other", large).await;
    let calls = burst(&network, &agent, "hangs", 8);
    let others = async {
        let held = "fdn_agent_held{node=\"eu-west-1\",what=\"memory_of_instances\"}";
        let at_share = "fdn_agent_instance_apps_at_share";
        wait::until("the app to have its share", async || {
            let held = network.metric(&agent, held).await;
            let at_share = network.metric(&agent, at_share).await;
            match (engine.alive().len(), held, at_share) {
                (3, Some(300.0), Some(1.0)) => Ok(()),
                state => Err(format!("{state:?}")),
            }
        })
        .await;
        let served = burst(&network, &agent, "other", 5).await;
        assert_eq!(served, (5, Vec::new()), "beside calls that hang");
        assert_eq!(engine.alive().len(), 4, "three, and one of the other app");
        go.send_replace(true);
    };
    let (hung, ()) = tokio::join!(calls, others);
    assert_eq!(hung, (8, Vec::new()), "and in the end all of its own");
    agent.stop().await;
}

/// Deploys an app of a tenant and waits until the node has it.
async fn deployed_of(network: &Network, tenant: u128, app: &str, image: &str, manifest: Manifest) {
    network.controller.store(image.as_bytes());
    let mut desired = network.desired(app, 1, image.as_bytes(), manifest, true);
    let spec = desired.spec.as_mut().expect("an app");
    spec.tenant = Some(TenantId::from_uuid(Uuid::from_u128(tenant)).tag());
    let revision = desired.revision;
    network.demand(desired).await;
    let ready = |phase: &AppPhase| *phase == AppPhase::Ready;
    network.until_phase(app, revision, ready).await;
}

/// Two apps of a tenant whose calls hang hold what one tenant may, and another tenant's app has room. Once they have ended, idle instances of the
/// tenant give way to its third app before those of another tenant.
#[tokio::test(flavor = "multi_thread")]
async fn instances_of_all_apps_of_a_tenant_leave_memory_for_those_of_other_tenants() {
    let network = Network::start().await;
    let (go, gone) = watch::channel(false);
    let hanging = FakeProgram::new(move |_, _| {
        let mut gone = gone.clone();
        async move {
            drop(gone.wait_for(|gone| *gone).await);
            http::Response::new(full_body("let go"))
        }
    });
    let engine = engine("hangs", hanging);
    engine.add_image("other", FakeProgram::text("other"));
    let mut settings = network.settings("eu-west-1");
    // Five instances, of which one app may have three and one tenant four.
    settings.capacity.memory = ByteSize::from_mib(500);
    settings.capacity.cpu_milli = MilliCpu(1000);
    let agent = network
        .agent_with(settings, runtime(&engine, "eu-west-1"))
        .await;
    let large = Manifest {
        memory: ByteSize::from_mib(100),
        timeout: DurationMs::from_secs(600),
        ..container()
    };
    for (tenant, app, image) in [
        (1, "one", "hangs"),
        (1, "two", "hangs"),
        (1, "three", "other"),
        (2, "other", "other"),
    ] {
        deployed_of(&network, tenant, app, image, large.clone()).await;
    }
    let calls = async {
        tokio::join!(
            burst(&network, &agent, "one", 8),
            burst(&network, &agent, "two", 8)
        )
    };
    let others = async {
        let held = "fdn_agent_held{node=\"eu-west-1\",what=\"memory_of_instances\"}";
        let at_share = "fdn_agent_instance_apps_at_share";
        wait::until("the tenant to have its share", async || {
            let held = network.metric(&agent, held).await;
            let at_share = network.metric(&agent, at_share).await;
            match (engine.alive().len(), held, at_share) {
                (4, Some(400.0), Some(2.0)) => Ok(()),
                state => Err(format!("{state:?}")),
            }
        })
        .await;
        let served = burst(&network, &agent, "other", 5).await;
        assert_eq!(served, (5, Vec::new()), "beside calls that hang");
        assert_eq!(engine.alive().len(), 5, "four, and one of the other tenant");
        go.send_replace(true);
    };
    let (hung, ()) = tokio::join!(calls, others);
    let all = (8, Vec::new());
    assert_eq!(hung, (all.clone(), all), "and in the end all of its own");
    // All room is taken, and the other tenant's instance is the least recently used one.
    let starts = engine.starts();
    network.until_text(&agent, "three", "other").await;
    network.until_text(&agent, "other", "other").await;
    assert_eq!(
        engine.starts(),
        starts + 1,
        "in place of one of its tenant's"
    );
    agent.stop().await;
}

mod soak {
    use super::*;
    use crate::bursts::{most_during, up_and_down};

    #[tokio::test(flavor = "multi_thread")]
    async fn a_thousand_calls_while_instances_go_from_0_to_20_to_0() {
        let network = Network::start().await;
        let slow = FakeProgram::new(|_, _| async {
            tokio::time::sleep(Duration::from_millis(40)).await;
            http::Response::new(full_body("done"))
        });
        let engine = engine("slow", slow);
        let mut settings = network.settings("eu-west-1");
        settings.capacity.cpu_milli = MilliCpu(200);
        settings.scale.stable = DurationMs::from_millis(600);
        settings.scale.panic = DurationMs::from_millis(100);
        settings.scale.interval = DurationMs::from_millis(50);
        settings.instances.keep = DurationMs::from_millis(300);
        let agent = network
            .agent_with(settings, runtime(&engine, "eu-west-1"))
            .await;
        deployed(&network, "slow", "slow", container()).await;
        let mut served = 0;
        // 200 thousandths of a core are enough for 20 instances.
        up_and_down(async |count| {
            let calls = burst(&network, &agent, "slow", count);
            let alive = async || {
                tokio::time::sleep(Duration::from_millis(1)).await;
                engine.alive().len()
            };
            let ((good, others), most) = most_during(calls, alive).await;
            assert!(others.is_empty(), "{others:?}");
            served += good;
            most
        })
        .await;
        assert!(served >= 1000, "{served}");
        wait::until("the last instance to go", async || {
            match engine.alive().len() {
                0 => Ok(()),
                left => Err(format!("{left} instances")),
            }
        })
        .await;
        wait::until("what they held to be free", async || {
            let line = r#"fdn_agent_held{node="eu-west-1",what="cpu_of_instances"}"#;
            match network.metric(&agent, line).await {
                Some(0.0) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
        assert_eq!(
            network.text(&agent, "slow").await,
            "done",
            "and from zero again"
        );
        agent.stop().await;
    }
}
