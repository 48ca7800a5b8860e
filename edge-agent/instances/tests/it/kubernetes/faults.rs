//! An API server that forgets, cuts connections, refuses, loses answers, or is unreachable.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fdn_core::{Coded, ErrorCode};
use fdn_instances::{InstanceState, Metrics, Runtime, StartError};
use fdn_testkit::kubernetes::Fault;
use prometheus::Registry;

use super::{GRACE, Lines, Pods, image_named, text};
use crate::subject::{Program, Running, Subject, ask, get, owner, spec, until};

fn exited(state: &InstanceState) -> bool {
    state.exit().is_some()
}

/// The value of a counter in a registry.
pub(super) fn counted(registry: &Registry, name: &str, label: &str) -> f64 {
    let families = registry.gather();
    let family = families.iter().find(|family| family.name() == name);
    let metrics = family.map(|family| family.get_metric()).unwrap_or_default();
    let of = metrics
        .iter()
        .filter(|m| m.get_label().iter().any(|l| l.value() == label));
    of.map(|metric| metric.get_counter().get_value()).sum()
}

/// An end in a gap of the watch whose history is forgotten, reported by an event or by the status of the answer.
async fn a_forgotten_version_means_a_new_list(by_status: bool) {
    let pods = Pods::new().await;
    let registry = Registry::new();
    let metrics = Metrics::default();
    metrics.register(&registry).expect("fresh");
    let owner = owner();
    let runtime = pods
        .connect(owner.clone(), |options| options.metrics = metrics)
        .await;
    let started = runtime
        .start(spec(pods.image(Program::Hello), Program::Hello))
        .await;
    let instance = started.expect("it starts");
    let uid = text(&pods.pod(&*instance), "uid").to_owned();
    pods.cluster.faults().tell_gone_by_status(by_status);
    // No watch succeeds until the history is gone.
    let refused = Fault::Status(503, 0);
    pods.cluster.faults().next("watch pods", &refused, 1_000);
    pods.cluster.faults().cut_streams();
    pods.kubelet.kill(&uid);
    fdn_testkit::wait::until("the end to be stored", async || {
        let pod = pods.pod(&*instance);
        if pod["status"]["phase"] == "Failed" {
            Ok(())
        } else {
            Err(pod["status"].to_string())
        }
    })
    .await;
    assert_eq!(
        *instance.state().borrow(),
        InstanceState::Ready,
        "nobody knows yet"
    );
    pods.cluster.compact();
    pods.cluster.faults().clear();
    let state = until(&*instance, "its end", exited).await;
    assert_eq!(state.exit().expect("it ended").code, Some(137));
    instance.stop(GRACE).await.expect("it has ended");
    assert_eq!(pods.leftovers(&owner).await, 0);
    let relisted = counted(&registry, "fdn_kubernetes_watches_total", "relisted");
    assert!(relisted >= 1.0, "{relisted}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_forgotten_by_an_event_means_a_new_list() {
    a_forgotten_version_means_a_new_list(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_forgotten_by_status_means_a_new_list() {
    a_forgotten_version_means_a_new_list(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_vanished_with_the_history_is_lost() {
    let pods = Pods::new().await;
    let running = Running::start(&pods, Program::Hello).await;
    let name = text(&pods.pod(&*running.instance), "name").to_owned();
    pods.cluster.disconnect();
    pods.cluster.delete(super::NAMESPACE, &name, 0);
    pods.cluster.compact();
    pods.cluster.reconnect();
    let state = until(&*running.instance, "its end", exited).await;
    let reason = state.exit().expect("it ended").reason;
    assert_eq!(reason, fdn_instances::ExitReason::Lost);
    running.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_is_cut_is_resumed_without_a_list() {
    let pods = Pods::new().await;
    let registry = Registry::new();
    let metrics = Metrics::default();
    metrics.register(&registry).expect("fresh");
    let runtime = pods
        .connect(owner(), |options| options.metrics = metrics)
        .await;
    let started = runtime
        .start(spec(pods.image(Program::Hello), Program::Hello))
        .await;
    let instance = started.expect("it starts");
    let lists = counted(&registry, "fdn_kubernetes_requests_total", "list");
    for round in 1..=3 {
        pods.cluster.faults().cut_streams();
        fdn_testkit::wait::until("the watch to be resumed", async || {
            let watches = counted(&registry, "fdn_kubernetes_requests_total", "watch");
            if watches > f64::from(round) {
                Ok(())
            } else {
                Err(watches)
            }
        })
        .await;
    }
    pods.kill(&*instance).await;
    until(&*instance, "its end", exited).await;
    instance.stop(GRACE).await.expect("it has ended");
    let after = counted(&registry, "fdn_kubernetes_requests_total", "list");
    assert!((after - lists).abs() < 0.5, "{lists} lists, then {after}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_whose_creation_was_not_answered_is_ours_and_the_only_one() {
    let pods = Pods::new().await;
    let owner = owner();
    let runtime = pods.runtime(owner.clone()).await;
    pods.cluster
        .faults()
        .next("create pods", &Fault::AnswerLost, 1);
    pods.cluster
        .faults()
        .next("create secrets", &Fault::AnswerLost, 1);
    let mut wanted = spec(pods.image(Program::Env), Program::Env);
    wanted
        .secrets
        .0
        .insert("TOKEN".parse().expect("it parses"), "hush".to_owned());
    let instance = runtime.start(wanted).await.expect("it starts");
    assert_eq!(pods.pods().len(), 1);
    assert_eq!(ask(&*instance, "/env/TOKEN").await, "hush");
    pods.cluster
        .faults()
        .next("delete pods", &Fault::AnswerLost, 1);
    instance.stop(GRACE).await.expect("it stops");
    assert_eq!(
        pods.leftovers(&owner).await,
        0,
        "the secret went with its pod"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_fails_says_whether_something_is_left_of_its_pod() {
    let pods = Pods::new().await;
    let owner = owner();
    let runtime = pods
        .connect(owner.clone(), |options| options.attempts = 1)
        .await;
    let faults = pods.cluster.faults();
    // The pod was created, which neither the answer nor a first look says.
    faults.next("create pods", &Fault::AnswerLost, 1);
    faults.next("get pods", &Fault::Status(500, 0), 1);
    let started = runtime.start(spec(image_named("probe"), Program::Hello));
    let error = started.await.expect_err("the server said nothing");
    assert_eq!(error.code(), ErrorCode::EngineFailed, "{error}");
    assert_eq!((faults.left(), pods.leftovers(&owner).await), (0, 0));

    faults.next("delete pods", &Fault::Status(500, 0), 1);
    let started = runtime.start(spec(pods.missing_image(), Program::Hello));
    let error = started.await.expect_err("there is no such image");
    let StartError::Remains { error, remains } = error else {
        panic!("the pod could not be deleted at once: {error}");
    };
    assert_eq!(error.code(), ErrorCode::ImageMissing, "{error}");
    remains.gone().await;
    assert_eq!((faults.left(), pods.leftovers(&owner).await), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_server_is_asked_again_but_not_for_ever() {
    let pods = Pods::new().await;
    let owner = owner();
    let runtime = pods
        .connect(owner.clone(), |options| options.attempts = 4)
        .await;
    let faults = pods.cluster.faults();
    for code in [429, 500, 504] {
        faults.next("create pods", &Fault::Status(code, 0), 1);
    }
    faults.next("delete pods", &Fault::Status(429, 1), 1);
    let started = runtime
        .start(spec(pods.image(Program::Hello), Program::Hello))
        .await;
    let instance = started.expect("the fourth try");
    let began = Instant::now();
    instance.stop(GRACE).await.expect("it stops");
    assert!(
        began.elapsed() >= Duration::from_millis(500),
        "it was asked to wait a second, less at most half"
    );
    assert_eq!(faults.left(), 0, "all were met");

    faults.next("create pods", &Fault::Status(500, 0), 4);
    let started = runtime
        .start(spec(pods.image(Program::Hello), Program::Hello))
        .await;
    let error = started.expect_err("four tries are enough");
    assert_eq!(error.code(), ErrorCode::EngineFailed, "{error}");
    assert_eq!((faults.left(), pods.leftovers(&owner).await), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_answer_in_time_is_asked_again() {
    let pods = Pods::new().await;
    let runtime = pods
        .connect(owner(), |options| {
            options.engine_timeout = Duration::from_secs(6)
        })
        .await;
    let slow = Fault::Slow(Duration::from_secs(3600));
    pods.cluster.faults().next("create pods", &slow, 1);
    let started = runtime
        .start(spec(pods.image(Program::Hello), Program::Hello))
        .await;
    let instance = started.expect("the second try");
    assert_eq!(ask(&*instance, "/hello").await, "hello");
    instance.stop(GRACE).await.expect("it stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_server_is_away_instances_are_called_and_what_happened_is_learnt_after() {
    let pods = Pods::new().await;
    let owner = owner();
    let registry = Registry::new();
    let metrics = Metrics::default();
    metrics.register(&registry).expect("fresh");
    let runtime = pods
        .connect(owner.clone(), |options| {
            options.attempts = 2;
            options.health.interval = Duration::from_millis(100);
            options.metrics = metrics;
        })
        .await;
    let start = || runtime.start(spec(image_named("probe"), Program::Hello));
    let stays = start().await.expect("it starts");
    let ends = start().await.expect("it starts");
    let uid = text(&pods.pod(&*ends), "uid").to_owned();
    pods.cluster.disconnect();
    assert!(runtime.check().await.is_err(), "the node says so");
    for _ in 0..20 {
        assert_eq!(ask(&*stays, "/hello").await, "hello");
    }
    let again = runtime.clone();
    let unmade = tokio::spawn(async move {
        let spec = spec(image_named("probe"), Program::Hello);
        again.start(spec).await
    });
    fdn_testkit::wait::until("both tries to make a pod to fail", async || {
        let tries = counted(&registry, "fdn_kubernetes_requests_total", "create");
        if tries > 3.5 { Ok(()) } else { Err(tries) }
    })
    .await;
    let failed = stays.stop(GRACE).await.expect_err("nobody deletes pods");
    assert_eq!(failed.code(), ErrorCode::EngineFailed, "{failed}");
    assert_eq!(ask(&*stays, "/hello").await, "hello", "it was not stopped");
    pods.kubelet.kill(&uid);
    until(&*ends, "its silence", |state| {
        matches!(state, InstanceState::Unresponsive { .. })
    })
    .await;
    pods.cluster.reconnect();
    let state = until(&*ends, "its end", exited).await;
    assert_eq!(state.exit().expect("it ended").code, Some(137));
    runtime.check().await.expect("it answers again");
    // That it was not made was told although the server could not be asked whether it has.
    let failed = unmade.await.expect("it ends");
    let failed = failed.expect_err("nobody made the pod");
    assert_eq!(failed.code(), ErrorCode::EngineFailed, "{failed}");
    stays.stop(GRACE).await.expect("it stops");
    ends.stop(GRACE).await.expect("it has ended");
    assert_eq!(pods.leftovers(&owner).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn output_that_is_cut_goes_on_without_loss_or_repetition() {
    let pods = Pods::new().await;
    let lines = Arc::new(Lines::default());
    let sink = lines.clone();
    let runtime = pods.connect(owner(), |options| options.sink = sink).await;
    let started = runtime
        .start(spec(pods.image(Program::Print), Program::Print))
        .await;
    let instance = started.expect("it starts");
    for round in 1..=5 {
        ask(&*instance, "/print/40").await;
        // In the middle of the output, as happens in practice.
        pods.cluster.faults().cut_streams();
        ask(&*instance, "/print/40").await;
        let wanted = 80 * round;
        fdn_testkit::wait::until("all lines", async || {
            let seen = lines
                .seen()
                .iter()
                .filter(|line| line.starts_with("line "))
                .count();
            if seen >= wanted { Ok(()) } else { Err(seen) }
        })
        .await;
    }
    drop(instance.call(get("/exit/0")).await);
    until(&*instance, "its end", exited).await;
    let seen = lines.seen();
    let told: Vec<&String> = seen
        .iter()
        .filter(|line| line.starts_with("line "))
        .collect();
    assert_eq!(told.len(), 400, "{told:?}");
    let different: BTreeSet<&String> = told.iter().copied().collect();
    assert_eq!(different.len(), 40, "each of 40 ten times");
    assert_eq!(seen.last().map(String::as_str), Some("last words"));
    instance.stop(GRACE).await.expect("it has ended");
}
