//! From desired state to an answered call, and from one version to the next.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use fdn_core::manifest::Manifest;
use fdn_core::message::AppPhase;
use fdn_core::{ByteSize, DurationMs, ErrorCode};
use fdn_testkit::{components, wait};

use crate::support::{Network, problem};

#[tokio::test(flavor = "multi_thread")]
async fn a_deployed_app_is_fetched_compiled_once_and_called() {
    let network = Network::start().await;
    let agent = network.agent(network.settings("eu-west-1")).await;
    let revision = network
        .deploy(
            "hello",
            1,
            &components::hello("hi there"),
            Manifest::default(),
        )
        .await;
    network
        .until_phase("hello", revision, |phase| *phase == AppPhase::Ready)
        .await;
    let answer = network
        .get(&agent, "hello", "/")
        .send()
        .await
        .expect("an answer");
    assert_eq!(answer.status(), 200);
    let headers = answer.headers().clone();
    assert_eq!(headers["x-fdn-version"], "v1");
    assert_eq!(headers["x-fdn-node"], "eu-west-1");
    assert_eq!(headers["x-fdn-cluster"], "eu-west");
    assert_eq!(headers["content-length"], "8");
    assert!(
        headers["server-timing"]
            .to_str()
            .expect("text")
            .contains("exec;dur=")
    );
    assert_eq!(answer.text().await.expect("text"), "hi there");
    assert_eq!(network.controller.artifact_requests(), (1, 0));
    // The same component under a second name is neither fetched nor compiled again.
    network
        .deploy(
            "second",
            1,
            &components::hello("hi there"),
            Manifest::default(),
        )
        .await;
    wait::until("the second app", async || {
        let answer = network
            .get(&agent, "second", "/")
            .send()
            .await
            .map_err(|e| e.to_string())?;
        if answer.status() == 200 {
            Ok(())
        } else {
            Err(answer.status().to_string())
        }
    })
    .await;
    assert_eq!(network.controller.artifact_requests(), (1, 0));
    assert_eq!(
        network.metric(&agent, "fdn_agent_compiles_total").await,
        Some(1.0)
    );
    agent.stop().await;
}

/// The warm call is ended early, so that a function that waits for something delays no calls.
#[tokio::test(flavor = "multi_thread")]
async fn an_app_whose_calls_take_minutes_is_soon_ready() {
    let network = Network::start().await;
    let _agent = network.agent(network.settings("eu-west-1")).await;
    let patient = Manifest {
        timeout: DurationMs::from_secs(600),
        ..Manifest::default()
    };
    let component = components::sleeping(600_000);
    let revision = network.deploy("slow", 1, &component, patient).await;
    network
        .until_phase("slow", revision, |phase| *phase == AppPhase::Ready)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_held_until_the_app_is_ready() {
    let network = Network::start().await;
    let agent = network.agent(network.settings("eu-west-1")).await;
    network.controller.stall(true);
    let revision = network
        .deploy_where(
            "hello",
            1,
            &components::hello("late"),
            Manifest::default(),
            false,
        )
        .await;
    network
        .until_phase("hello", revision, |phase| *phase == AppPhase::Fetching)
        .await;
    let call = tokio::spawn(network.get(&agent, "hello", "/").send());
    wait::until("the call to be held", async || {
        match network.metric(&agent, "fdn_agent_calls_held").await {
            Some(held) if held >= 1.0 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    network.controller.stall(false);
    let answer = call.await.expect("task").expect("an answer");
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.text().await.expect("text"), "late");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_calls_than_may_be_held_are_told_to_come_again() {
    let network = Network::start().await;
    let mut settings = network.settings("eu-west-1");
    settings.admission.held = 0;
    let agent = network.agent(settings).await;
    network.controller.stall(true);
    let revision = network
        .deploy("hello", 1, &components::hello("late"), Manifest::default())
        .await;
    network
        .until_phase("hello", revision, |phase| *phase == AppPhase::Fetching)
        .await;
    let answer = network
        .get(&agent, "hello", "/")
        .send()
        .await
        .expect("an answer");
    assert_eq!(answer.headers()["retry-after"], "1");
    assert_eq!(problem(answer).await.code, ErrorCode::NotReady);
    network.controller.stall(false);
    network.until_text(&agent, "hello", "late").await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_change_under_load_without_one_failed_call() {
    let network = Arc::new(Network::start().await);
    let agent = Arc::new(network.agent(network.settings("eu-west-1")).await);
    network
        .deploy(
            "hello",
            1,
            &components::hello("version 1"),
            Manifest::default(),
        )
        .await;
    network.until_text(&agent, "hello", "version 1").await;
    let (stop, calls) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let load: Vec<_> = (0..4)
        .map(|_| {
            let (network, agent) = (Arc::clone(&network), Arc::clone(&agent));
            let (stop, calls) = (Arc::clone(&stop), Arc::clone(&calls));
            tokio::spawn(async move {
                let mut newest = 0;
                while !stop.load(Ordering::Relaxed) {
                    let text = network.text(&agent, "hello").await;
                    let version: u32 = text
                        .strip_prefix("version ")
                        .expect("a version")
                        .parse()
                        .expect("a number");
                    assert!(version >= newest, "went back from {newest} to {version}");
                    newest = version;
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for version in 2..=5 {
        let text = format!("version {version}");
        network
            .deploy(
                "hello",
                version,
                &components::hello(&text),
                Manifest::default(),
            )
            .await;
        network.until_text(&agent, "hello", &text).await;
    }
    let before = calls.load(Ordering::Relaxed);
    wait::until("more calls", async || {
        if calls.load(Ordering::Relaxed) > before + 50 {
            Ok(())
        } else {
            Err("few")
        }
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    for task in load {
        task.await.expect("no call failed");
    }
    Arc::into_inner(agent)
        .expect("the load has ended")
        .stop()
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_cannot_be_made_ready_takes_nothing_away() {
    let network = Network::start().await;
    let agent = network.agent(network.settings("eu-west-1")).await;
    network
        .deploy("hello", 1, &components::hello("good"), Manifest::default())
        .await;
    network.until_text(&agent, "hello", "good").await;
    let revision = network
        .deploy("hello", 2, &components::core_module(), Manifest::default())
        .await;
    network
        .until_phase(
            "hello",
            revision,
            |phase| matches!(phase, AppPhase::Failed { reason } if reason.contains("compile")),
        )
        .await;
    assert_eq!(network.text(&agent, "hello").await, "good");
    network
        .deploy(
            "hello",
            3,
            &components::hello("better"),
            Manifest::default(),
        )
        .await;
    network.until_text(&agent, "hello", "better").await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_do_not_match_are_fetched_again_and_a_broken_fetch_goes_on() {
    let network = Network::start().await;
    let agent = network.agent(network.settings("eu-west-1")).await;
    network.controller.corrupt_next(1);
    network
        .deploy("first", 1, &components::hello("first"), Manifest::default())
        .await;
    network.until_text(&agent, "first", "first").await;
    assert_eq!(network.controller.artifact_requests(), (2, 0));
    network.controller.cut_next(2);
    network
        .deploy(
            "second",
            1,
            &components::hello("second"),
            Manifest::default(),
        )
        .await;
    network.until_text(&agent, "second", "second").await;
    let (requests, ranged) = network.controller.artifact_requests();
    assert_eq!(requests, 5, "two cuts");
    // What had arrived before a cut is lost if the agent hears of the cut before it has read that; then there is nothing to go on from.
    assert!((1..=2).contains(&ranged), "{ranged} went on with a range");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_artifact_that_is_corrupt_for_good_fails_with_its_reason_until_it_is_mended() {
    let network = Network::start().await;
    let agent = network.agent(network.settings("eu-west-1")).await;
    network.controller.corrupt_next(usize::MAX);
    let revision = network
        .deploy(
            "hello",
            1,
            &components::hello("mended"),
            Manifest::default(),
        )
        .await;
    network
        .until_phase(
            "hello",
            revision,
            |phase| matches!(phase, AppPhase::Failed { reason } if reason.contains("do not match")),
        )
        .await;
    network.controller.corrupt_next(0);
    network.until_text(&agent, "hello", "mended").await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn older_revisions_are_ignored_and_gone_apps_stay_gone() {
    let network = Network::start().await;
    let agent = network.agent(network.settings("eu-west-1")).await;
    let (old, new) = (components::hello("old"), components::hello("new"));
    network.controller.store(&old);
    let late = network.desired("hello", 1, &old, Manifest::default(), true);
    network.deploy("hello", 2, &new, Manifest::default()).await;
    network.until_text(&agent, "hello", "new").await;
    network.tell(late.clone()).await;
    // Messages are handled in order: once the second app answers, the late message was handled.
    network.deploy("marker", 1, &new, Manifest::default()).await;
    network.until_text(&agent, "marker", "new").await;
    assert_eq!(network.text(&agent, "hello").await, "new");
    network.delete("hello").await;
    network.tell(late).await;
    wait::until("the app to be gone", async || {
        let answer = network
            .get(&agent, "hello", "/")
            .send()
            .await
            .map_err(|e| e.to_string())?;
        if answer.status() == 404 {
            Ok(())
        } else {
            Err(answer.status().to_string())
        }
    })
    .await;
    network.deploy("marker", 2, &old, Manifest::default()).await;
    network.until_text(&agent, "marker", "old").await;
    let answer = network
        .get(&agent, "hello", "/")
        .send()
        .await
        .expect("an answer");
    assert_eq!(problem(answer).await.code, ErrorCode::UnknownHost);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_missed_comes_with_the_snapshot() {
    let network = Network::start().await;
    let component = components::hello("from the snapshot");
    network.controller.store(&component);
    network
        .controller
        .set(network.desired("hello", 1, &component, Manifest::default(), true));
    let agent = network.agent(network.settings("eu-west-1")).await;
    network
        .until_text(&agent, "hello", "from the snapshot")
        .await;
    let gone = fdn_core::message::AppDesired {
        app: "hello".parse().expect("app"),
        revision: network.next_revision(),
        spec: None,
    };
    network.controller.set(gone);
    network.controller.end_feeds();
    wait::until("the app to be gone", async || {
        let answer = network
            .get(&agent, "hello", "/")
            .send()
            .await
            .map_err(|e| e.to_string())?;
        if answer.status() == 404 {
            Ok(())
        } else {
            Err(answer.status().to_string())
        }
    })
    .await;
    assert!(network.controller.snapshots() >= 2);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_and_secrets_reach_the_function() {
    let network = Network::start().await;
    let agent = network.agent(network.settings("eu-west-1")).await;
    let manifest = Manifest {
        env: [("GREETING".parse().expect("name"), "good day".to_owned())].into(),
        secrets: ["API_KEY".parse().expect("name")].into(),
        ..Manifest::default()
    };
    network
        .deploy(
            "env",
            1,
            &components::env_dump("GREETING"),
            manifest.clone(),
        )
        .await;
    network.until_text(&agent, "env", "good day").await;
    network
        .deploy("secret", 1, &components::env_dump("API_KEY"), manifest)
        .await;
    network
        .until_text(&agent, "secret", "secret of API_KEY")
        .await;
    let state = std::fs::read_to_string(network.folder.path().join("eu-west-1/state/apps.json"))
        .expect("state");
    assert!(
        !state.contains("secret of API_KEY"),
        "a secret lies on disk in the clear"
    );
    agent.stop().await;
}

/// Whether a file below `folder` contains this text.
fn lies_on_disk(folder: &Path, text: &str) -> bool {
    let entries = std::fs::read_dir(folder).expect("a folder");
    entries.into_iter().any(|entry| {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            return lies_on_disk(&path, text);
        }
        // A file that is replaced meanwhile is found under its own name.
        let bytes = std::fs::read(&path).unwrap_or_default();
        bytes.windows(text.len()).any(|at| at == text.as_bytes())
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn sealed_secrets_leave_the_disk_with_their_app() {
    let network = Network::start().await;
    let settings = network.settings("eu-west-1");
    let agent = network.agent(settings.clone()).await;
    let apps = ["leaves", "goes-unseen", "stays"];
    for app in apps {
        let manifest = Manifest {
            secrets: ["API_KEY".parse().expect("name")].into(),
            ..Manifest::default()
        };
        let component = components::env_dump("API_KEY");
        network.deploy(app, 1, &component, manifest).await;
        network.until_text(&agent, app, "secret of API_KEY").await;
    }
    let data = &settings.data;
    let kept = std::fs::read(data.join("state/apps.json")).expect("state");
    let kept: serde_json::Value = serde_json::from_slice(&kept).expect("JSON");
    let sealed = apps.map(|app| {
        let function = &kept["apps"][app]["wanted"]["spec"]["functions"][0];
        let sealed = function["secrets"]["API_KEY"].as_str();
        sealed.expect("a sealed value").to_owned()
    });
    let lie = || sealed.each_ref().map(|one| lies_on_disk(data, one));
    let until = async |expected: [bool; 3]| {
        wait::until(
            "the disk to hold the secrets of what is there",
            async || {
                let lie = lie();
                if lie == expected {
                    Ok(())
                } else {
                    Err(format!("{lie:?}"))
                }
            },
        )
        .await;
    };
    assert_eq!(lie(), [true; 3]);
    network.delete("leaves").await;
    until([false, true, true]).await;
    // An app that is deleted while the node is away is missing in the next snapshot.
    agent.stop().await;
    assert_eq!(lie(), [false, true, true]);
    network.delete("goes-unseen").await;
    let agent = network.agent(settings.clone()).await;
    until([false, false, true]).await;
    network
        .until_text(&agent, "stays", "secret of API_KEY")
        .await;
    agent.stop().await;
    assert_eq!(lie(), [false, false, true]);
    assert!(!lies_on_disk(data, "secret of API_KEY"), "in the clear");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cache_keeps_its_bound_and_never_gives_up_what_is_deployed() {
    let network = Network::start().await;
    let mut settings = network.settings("eu-west-1");
    let agent = network.agent(settings.clone()).await;
    network
        .deploy("one", 1, &components::hello("one"), Manifest::default())
        .await;
    network.until_text(&agent, "one", "one").await;
    let one = network
        .metric(&agent, "fdn_agent_cache_bytes")
        .await
        .expect("a size");
    agent.stop().await;
    // Room for one and a half apps: the first one's component may be evicted, its compiled file may not.
    settings.cache.size = ByteSize::from_bytes((one * 1.5) as u64);
    settings.cache.artifact_limit = settings.cache.size;
    let agent = network.agent(settings).await;
    network.until_text(&agent, "one", "one").await;
    let revision = network
        .deploy("two", 1, &components::hello("two"), Manifest::default())
        .await;
    network
        .until_phase("two", revision, |phase| matches!(phase, AppPhase::Failed { reason } if reason.contains("cache is full")))
        .await;
    assert_eq!(network.text(&agent, "one").await, "one");
    network.delete("one").await;
    network.until_text(&agent, "two", "two").await;
    let size = network
        .metric(&agent, "fdn_agent_cache_bytes")
        .await
        .expect("a size");
    assert!(size <= one * 1.5, "{size} of {one}");
    assert!(
        network
            .metric(&agent, "fdn_agent_cache_evictions_total")
            .await
            .expect("counted")
            >= 1.0
    );
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_share_nothing_but_the_network() {
    let network = Network::start().await;
    let first = network.agent(network.settings("eu-west-1")).await;
    let second = network.agent(network.settings("eu-west-2")).await;
    network
        .deploy("hello", 1, &components::hello("both"), Manifest::default())
        .await;
    network.until_text(&first, "hello", "both").await;
    network.until_text(&second, "hello", "both").await;
    assert_eq!(
        network.controller.artifact_requests().0,
        2,
        "once for each node"
    );
    first.stop().await;
    assert_eq!(network.text(&second, "hello").await, "both");
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_of_one_process_compile_once() {
    let network = Network::start().await;
    let machine =
        fdn_edge_agent::artifacts::Machine::new(&network.settings("x").runtime).expect("an engine");
    let mut agents = Vec::new();
    for node in ["eu-west-1", "eu-west-2", "eu-west-3"] {
        let starting = network.start_agent(network.settings(node), machine.clone(), None);
        agents.push(starting.await);
    }
    network
        .deploy(
            "hello",
            1,
            &components::hello("shared"),
            Manifest::default(),
        )
        .await;
    let mut compiled = 0.0;
    for agent in &agents {
        network.until_text(agent, "hello", "shared").await;
        compiled += network
            .metric(agent, "fdn_agent_compiles_total")
            .await
            .unwrap_or(0.0);
    }
    assert!((compiled - 1.0).abs() < 0.1, "compiled {compiled} times");
    for agent in agents {
        agent.stop().await;
    }
}
