//! Pods that others change, delete, lose or evict, and the agent's own record of them.

use std::sync::Arc;
use std::time::Duration;

use fdn_instances::{ExitReason, InstanceState, Runtime, StartError};
use fdn_testkit::kubernetes::{Fault, Image, Resource};
use serde_json::json;

use super::faults::counted;
use super::{GRACE, Lines, NAMESPACE, Pods, image_named, owner_labels, strange_pod, text};
use crate::subject::{Program, Running, Subject, ask, begin, get, owner, spec, until};

fn exited(state: &InstanceState) -> bool {
    state.exit().is_some()
}

fn reason(state: &InstanceState) -> ExitReason {
    state.exit().expect("it ended").reason
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_others_delete_gets_no_calls_and_ends_those_it_has() {
    let pods = Pods::new().await;
    let running = Running::start(&pods, Program::Sleep).await;
    let call = begin(&running.instance, "/sleep/3000").await;
    pods.cluster
        .delete(NAMESPACE, text(&pods.pod(&*running.instance), "name"), 30);
    let state = until(&*running.instance, "the news of its deletion", exited).await;
    assert_eq!(reason(&state), ExitReason::Lost);
    let refused = running.instance.call(get("/hello")).await;
    assert!(refused.expect_err("no new calls").into_request().is_some());
    let response = call
        .await
        .expect("no panic")
        .expect("it was within its grace");
    assert_eq!(crate::subject::text(response).await, "slept");
    let owner = running.owner.clone();
    running.end().await;
    assert_eq!(pods.leftovers(&owner).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_removed_by_force_is_lost() {
    let pods = Pods::new().await;
    let running = Running::start(&pods, Program::Hello).await;
    pods.cluster
        .delete(NAMESPACE, text(&pods.pod(&*running.instance), "name"), 0);
    let state = until(&*running.instance, "its end", exited).await;
    assert_eq!(reason(&state), ExitReason::Lost);
    running.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pod_of_a_node_that_is_gone_is_lost_and_removed_without_it() {
    let pods = Pods::new().await;
    let owner = owner();
    let runtime = pods
        .connect(owner.clone(), |options| {
            options.engine_timeout = Duration::from_secs(6)
        })
        .await;
    let start = || runtime.start(spec(image_named("probe"), Program::Hello));
    let lost = start().await.expect("it starts");
    let stopped = start().await.expect("it starts");
    pods.kubelet.power_off();
    // The node's controller reports it after some time.
    let name = text(&pods.pod(&*lost), "name").to_owned();
    pods.cluster.set_status(NAMESPACE, &name, |status| {
        status["reason"] = json!("NodeLost");
        status["message"] = json!("Node worker-1 which was running pod is unresponsive");
    });
    let state = until(&*lost, "its end", exited).await;
    assert_eq!(reason(&state), ExitReason::Lost);
    lost.stop(GRACE).await.expect("it is removed");
    // And one that is stopped before anybody noticed.
    let exit = stopped
        .stop(Duration::from_millis(100))
        .await
        .expect("it is removed");
    assert_eq!(exit.reason, ExitReason::Stopped);
    assert_eq!(pods.leftovers(&owner).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_evicted_pod_is_lost_and_too_much_memory_is_told() {
    let pods = Pods::new().await;
    let evicted = Running::start(&pods, Program::Hello).await;
    let name = text(&pods.pod(&*evicted.instance), "name").to_owned();
    pods.cluster.set_status(NAMESPACE, &name, |status| {
        *status = json!({ "phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory" });
    });
    let state = until(&*evicted.instance, "its end", exited).await;
    assert_eq!(reason(&state), ExitReason::Lost);
    evicted.end().await;

    let hog = Running::start(&pods, Program::Hog).await;
    let call = hog.instance.call(get("/alloc/200")).await;
    assert!(call.is_err(), "200 MiB in an instance of 64");
    let state = until(&*hog.instance, "its end", exited).await;
    let exit = state.exit().expect("it ended");
    assert_eq!(
        (exit.reason, exit.code),
        (ExitReason::OutOfMemory, Some(137))
    );
    hog.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_of_others_are_not_touched_whatever_they_look_like() {
    let pods = Pods::new().await;
    let running = Running::start(&pods, Program::Hello).await;
    let other_node = crate::subject::owner();
    let mut half = owner_labels(&running.owner);
    half["net.fdn.node"] = json!(other_node.node.as_str());
    let instance = json!({ "net.fdn.instance": running.instance.id().to_string() });
    for (name, labels) in [
        ("unlabelled", json!({})),
        ("of-another-node", half),
        ("of-another-cluster", owner_labels(&other_node)),
        ("named-like-ours-only", instance),
    ] {
        pods.cluster
            .put(Resource::Pods, NAMESPACE, strange_pod(name, &labels));
    }
    let elsewhere = strange_pod("elsewhere", &owner_labels(&running.owner));
    pods.cluster.put(Resource::Pods, "default", elsewhere);
    running
        .runtime
        .collect()
        .await
        .expect("the API server answers");
    let runtime = pods.runtime(running.owner.clone()).await;
    runtime.collect().await.expect("the API server answers");
    let left: Vec<String> = pods
        .pods()
        .iter()
        .map(|pod| text(pod, "name").to_owned())
        .collect();
    assert_eq!(left.len(), 5, "{left:?}");
    assert_eq!(pods.cluster.objects(Resource::Pods, "default").len(), 1);
    running.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_name_is_not_the_same_pod() {
    let pods = Pods::new().await;
    let running = Running::start(&pods, Program::Hello).await;
    let name = text(&pods.pod(&*running.instance), "name").to_owned();
    pods.cluster.disconnect();
    pods.cluster.delete(NAMESPACE, &name, 0);
    let another = strange_pod(&name, &owner_labels(&running.owner));
    pods.cluster.put(Resource::Pods, NAMESPACE, another);
    pods.cluster.reconnect();
    let state = until(&*running.instance, "its end", exited).await;
    assert_eq!(reason(&state), ExitReason::Lost);
    running.instance.stop(GRACE).await.expect("it is gone");
    let [pod] = &pods.pods()[..] else {
        panic!("the other pod stays: {:?}", pods.pods());
    };
    assert!(pod["metadata"]["deletionTimestamp"].is_null(), "{pod}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_deletes_its_own_pod_or_none() {
    let pods = Pods::new().await;
    let registry = prometheus::Registry::new();
    let metrics = fdn_instances::Metrics::default();
    metrics.register(&registry).expect("fresh");
    let owner = owner();
    let runtime = pods
        .connect(owner.clone(), |options| {
            options.metrics = metrics;
            options.engine_timeout = Duration::from_secs(5);
        })
        .await;
    let started = runtime
        .start(spec(image_named("probe"), Program::Hello))
        .await;
    let instance = started.expect("it starts");
    let name = text(&pods.pod(&*instance), "name").to_owned();
    // No news arrive, so the runtime believes that its pod exists.
    let refused = Fault::Status(503, 0);
    pods.cluster.faults().next("watch pods", &refused, 1_000);
    pods.cluster.faults().cut_streams();
    fdn_testkit::wait::until("the watch to fail", async || {
        let failed = counted(&registry, "fdn_kubernetes_watches_total", "broken");
        if failed > 0.5 { Ok(()) } else { Err(failed) }
    })
    .await;
    pods.cluster.delete(NAMESPACE, &name, 0);
    let another = strange_pod(&name, &owner_labels(&owner));
    pods.cluster.put(Resource::Pods, NAMESPACE, another);
    let exit = instance.stop(Duration::ZERO).await.expect("it is gone");
    assert_eq!(exit.reason, ExitReason::Stopped);
    let [pod] = &pods.pods()[..] else {
        panic!("the other pod stays: {:?}", pods.pods());
    };
    assert!(pod["metadata"]["deletionTimestamp"].is_null(), "{pod}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_a_stranger_has_is_taken() {
    let pods = Pods::new().await;
    let runtime = pods.runtime(owner()).await;
    let spec = spec(image_named("probe"), Program::Hello);
    let name = format!("fdn-{}", spec.description.id).replace('_', "-");
    pods.cluster
        .put(Resource::Pods, NAMESPACE, strange_pod(&name, &json!({})));
    let error = runtime
        .start(spec.clone())
        .await
        .expect_err("the name is taken");
    assert!(matches!(error, StartError::Exists { .. }), "{error}");
    let [pod] = &pods.pods()[..] else {
        panic!("the stranger's pod stays");
    };
    assert!(pod["metadata"]["deletionTimestamp"].is_null(), "{pod}");
    pods.cluster.delete(NAMESPACE, &name, 0);
    let instance = runtime.start(spec).await.expect("the id is free again");
    instance.stop(GRACE).await.expect("it stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_ended_while_no_agent_ran_is_collected_and_what_runs_goes_on() {
    let pods = Pods::new().await;
    let owner = owner();
    let first = pods.runtime(owner.clone()).await;
    let start = |runtime: Arc<dyn Runtime>| async move {
        let spec = spec(image_named("probe"), Program::Print);
        runtime.start(spec).await.expect("it starts")
    };
    let (ends, stays) = (start(first.clone()).await, start(first.clone()).await);
    ask(&*stays, "/print/3").await;
    let (gone, kept) = (pods.pod(&*ends), pods.pod(&*stays));
    drop((first, ends, stays));
    pods.kubelet.kill(text(&gone, "uid"));
    let lines = Arc::new(Lines::default());
    let sink = lines.clone();
    let second = pods
        .connect(owner.clone(), |options| options.sink = sink)
        .await;
    fdn_testkit::wait::until("the end to be stored", async || {
        let ended = pods
            .pods()
            .iter()
            .any(|pod| pod["status"]["phase"] == "Failed");
        // The previous agent may have removed it at its last moment.
        if ended || pods.pods().len() == 1 {
            Ok(())
        } else {
            Err("it runs")
        }
    })
    .await;
    second.collect().await.expect("the API server answers");
    let [pod] = &pods.pods()[..] else {
        panic!("one runs: {:?}", pods.pods());
    };
    assert_eq!(text(pod, "uid"), text(&kept, "uid"));
    let adopted = second.adopt().await.expect("the API server answers");
    let [instance] = &adopted[..] else {
        panic!("{adopted:?}");
    };
    fdn_testkit::wait::until("its earlier lines", async || {
        let tail = instance.log_tail();
        if tail.iter().any(|line| line.text.starts_with("line 2")) {
            Ok(())
        } else {
            Err(format!("{tail:?}"))
        }
    })
    .await;
    drop(instance.call(get("/exit/0")).await);
    until(&**instance, "its end", exited).await;
    assert!(
        lines.seen().iter().all(|line| !line.starts_with("line ")),
        "they were told before"
    );
    instance.stop(GRACE).await.expect("it has ended");
    assert_eq!(pods.leftovers(&owner).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn starts_at_once_all_answer() {
    start_at_once(4).await;
}

async fn start_at_once(count: usize) {
    let pods = Pods::new().await;
    pods.add_image("probe", Image::default());
    let owner = owner();
    let runtime = pods
        .connect(owner.clone(), |options| options.requests = 2)
        .await;
    let starts = (0..count).map(|_| runtime.start(spec(image_named("probe"), Program::Hello)));
    let started = futures::future::join_all(starts).await;
    let instances: Vec<_> = started.into_iter().map(|s| s.expect("it starts")).collect();
    for instance in &instances {
        assert_eq!(ask(&**instance, "/hello").await, "hello");
    }
    let stops = instances.iter().map(|instance| instance.stop(GRACE));
    for stopped in futures::future::join_all(stops).await {
        stopped.expect("it stops");
    }
    assert_eq!(pods.leftovers(&owner).await, 0);
}

mod soak {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn twenty_starts_at_once_all_answer() {
        let _turn = fdn_testkit::exclusive::lock().await;
        start_at_once(20).await;
    }
}
