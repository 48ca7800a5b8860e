//! The manifests of `deploy/kubernetes` fit the agent: no right is missing or superfluous, and labels are those that policies expect.

use serde_json::json;

use super::{GRACE, NAMESPACE, Pods, granted, manifest, owner_labels, strange_pod};
use crate::subject::{PATIENCE, Program, Subject, ask, owner, spec};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exactly_the_rights_that_are_used_are_granted() {
    let pods = Pods::new().await;
    let owner = owner();
    let runtime = pods.runtime(owner.clone()).await;
    runtime.check().await.expect("it answers");
    let image = pods.image(Program::Hello);
    runtime.prepare(&image).await.expect("it is pulled");
    let mut wanted = spec(image.clone(), Program::Env);
    wanted
        .secrets
        .0
        .insert("TOKEN".parse().expect("it parses"), "hush".to_owned());
    // The answer is lost, so the pod is looked up.
    let lost = fdn_testkit::kubernetes::Fault::AnswerLost;
    pods.cluster.faults().next("create pods", &lost, 1);
    let instance = runtime.start(wanted).await.expect("it starts");
    assert_eq!(ask(&*instance, "/env/TOKEN").await, "hush");
    fdn_testkit::wait::within(PATIENCE, "its output", async || {
        if instance.log_tail().is_empty() {
            Err("none yet")
        } else {
            Ok(())
        }
    })
    .await;
    pods.leave_half_made(&owner, &image).await;
    runtime.collect().await.expect("it answers");
    instance.stop(GRACE).await.expect("it stops");
    assert_eq!(pods.cluster.used(), granted());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_that_is_missing_is_named() {
    let pods = Pods::new().await;
    let mut rights = granted();
    rights.remove(&("pods".to_owned(), "create".to_owned()));
    pods.cluster.grant(rights);
    let runtime = pods.runtime(owner()).await;
    let started = runtime
        .start(spec(pods.image(Program::Hello), Program::Hello))
        .await;
    let error = started.expect_err("it may not");
    let text = format!("{error:?}");
    assert!(
        text.contains("create the pod") && text.contains("rbac.yaml"),
        "{text}"
    );
}

#[test]
fn the_role_is_bound_to_the_account_of_the_agents() {
    let rbac = manifest("rbac.yaml");
    let of = |kind: &str| {
        rbac.iter()
            .find(|object| object["kind"] == kind)
            .expect(kind)
            .clone()
    };
    let (account, role, binding) = (of("ServiceAccount"), of("Role"), of("RoleBinding"));
    assert_eq!(binding["metadata"]["namespace"], NAMESPACE);
    assert_eq!(binding["roleRef"]["kind"], "Role");
    assert_eq!(binding["roleRef"]["name"], role["metadata"]["name"]);
    let subject = json!({
        "kind": "ServiceAccount", "name": account["metadata"]["name"], "namespace": account["metadata"]["namespace"]
    });
    assert_eq!(binding["subjects"], json!([subject]));
    assert!(!rbac.iter().any(|object| {
        object["kind"]
            .as_str()
            .expect("a kind")
            .starts_with("Cluster")
    }));

    let agent = manifest("edge-agent.yaml");
    let set = agent
        .iter()
        .find(|object| object["kind"] == "DaemonSet")
        .expect("a DaemonSet");
    let pod = &set["spec"]["template"]["spec"];
    assert_eq!(pod["serviceAccountName"], account["metadata"]["name"]);
    assert_eq!(
        set["metadata"]["namespace"],
        account["metadata"]["namespace"]
    );
    let variables = pod["containers"][0]["env"].as_array().expect("variables");
    let node = variables
        .iter()
        .find(|variable| variable["name"] == "FDN_KUBERNETES__NODE");
    let node = node.expect("the agent is told its node");
    assert_eq!(node["valueFrom"]["fieldRef"]["fieldPath"], "spec.nodeName");
    // Its name in the network is the same, including when it joins.
    let named = variables
        .iter()
        .find(|variable| variable["name"] == "NODE_NAME");
    assert_eq!(
        named.expect("its name")["valueFrom"]["fieldRef"]["fieldPath"],
        "spec.nodeName"
    );
    let before = pod["initContainers"].as_array().expect("what joins");
    let join = before.iter().find(|container| container["name"] == "join");
    for container in [join.expect("what joins"), &pod["containers"][0]] {
        let command = container["command"].as_array().expect("a command");
        assert!(command.contains(&json!("--node=$(NODE_NAME)")));
    }
}

#[test]
fn policies_select_by_the_labels_that_pods_have() {
    for (name, outbound) in [("fdn-denied", "denied"), ("fdn-open", "open")] {
        let all = manifest("network.yaml");
        let policy = all
            .iter()
            .find(|object| object["metadata"]["name"] == name)
            .expect(name);
        assert_eq!(policy["metadata"]["namespace"], NAMESPACE);
        let selector = &policy["spec"]["podSelector"]["matchLabels"];
        assert_eq!(selector, &json!({ "net.fdn.outbound": outbound }));
        assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
        assert!(
            policy["spec"]["ingress"].is_null(),
            "nobody but the node is let in"
        );
        assert_eq!(policy["spec"]["egress"].is_null(), outbound == "denied");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_lists_are_read_page_by_page() {
    let pods = Pods::new().await;
    let owner = owner();
    let stranger = crate::subject::owner();
    for at in 0..1_100 {
        let labels = owner_labels(if at % 11 == 0 { &stranger } else { &owner });
        let mut pod = strange_pod(&format!("old-{at}"), &labels);
        // On a node without a kubelet, pods end as soon as they are asked to.
        pod["spec"]["nodeName"] = serde_json::Value::Null;
        pods.cluster
            .put(fdn_testkit::kubernetes::Resource::Pods, NAMESPACE, pod);
    }
    let runtime = pods.runtime(owner.clone()).await;
    let collected = runtime.collect().await.expect("the API server answers");
    assert!(collected.failed.is_empty(), "{:?}", collected.failed);
    assert_eq!(pods.leftovers(&owner).await, 0);
    assert_eq!(pods.leftovers(&stranger).await, 100);
}
