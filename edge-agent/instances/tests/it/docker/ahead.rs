//! Containers created ahead of their start.

use bollard::models::{ContainerSummary, ContainerSummaryStateEnum};
use bollard::query_parameters::{ListContainersOptionsBuilder, RemoveContainerOptionsBuilder};
use fdn_core::InstanceId;
use fdn_instances::docker::Network;
use fdn_instances::{Owner, Runtime, StartSpec};
use fdn_testkit::wait;

use super::{Engine, GRACE, labels};
use crate::subject::{Program, Subject, ask, owner, spec};

impl Engine {
    /// All containers of an owner, in whatever state.
    async fn all(&self, owner: &Owner) -> Vec<ContainerSummary> {
        let filters =
            std::collections::HashMap::from([("label".to_owned(), labels(owner).to_vec())]);
        let options = ListContainersOptionsBuilder::default().all(true);
        let options = options.filters(&filters).build();
        let listed = self.client().list_containers(Some(options)).await;
        listed.expect("the engine answers")
    }

    /// The one container of an owner that is created and not started.
    async fn until_created(&self, owner: &Owner) -> String {
        wait::until("a container to be created ahead", async || {
            let all = self.all(owner).await;
            let created = Some(ContainerSummaryStateEnum::CREATED);
            let mut ready = all.iter().filter(|one| one.state == created);
            match (ready.next(), ready.next()) {
                (Some(one), None) => one.id.clone().ok_or_else(|| "no id".to_owned()),
                _ => Err(format!("{} containers", all.len())),
            }
        })
        .await
    }

    async fn until_left(&self, owner: &Owner, count: usize) {
        wait::until("containers to be removed", async || {
            let left = self.all(owner).await.len();
            (left == count).then_some(()).ok_or(left)
        })
        .await;
    }
}

/// The id of a prepared start. The engine shows a container before the runtime has heard that it was created.
async fn until_prepared(runtime: &dyn Runtime, spec: &StartSpec) -> InstanceId {
    wait::until("a start to be prepared", async || {
        runtime.take_precreated(spec).ok_or("none is ready")
    })
    .await
}

fn secretive(engine: &Engine) -> StartSpec {
    let mut spec = spec(engine.image(Program::Env), Program::Env);
    let name = "TOKEN".parse().expect("it parses");
    spec.secrets.0.insert(name, "hush".to_owned());
    spec
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_takes_the_container_of_its_specification_and_another_is_created() {
    let engine = Engine::with(Network::Isolated).await;
    let owner = owner();
    let runtime = engine.runtime(owner.clone()).await;
    let mut spec = secretive(&engine);
    let expected = runtime.expect(&spec).expect("they can be created ahead");
    let created = engine.until_created(&owner).await;
    let mut other = spec.clone();
    other.secrets.0.clear();
    assert_eq!(runtime.take_precreated(&other), None, "another environment");
    spec.description.id = until_prepared(&*runtime, &spec).await;
    let instance = runtime.start(spec.clone()).await.expect("it starts");
    assert_eq!(ask(&*instance, "/env/TOKEN").await, "hush");
    let runs = engine.client().inspect_container(&created, None).await;
    let state = runs.expect("it is there").state.unwrap_or_default();
    assert_eq!(state.running, Some(true), "the very one");
    let next = engine.until_created(&owner).await;
    assert_ne!(next, created);
    spec.description.id = until_prepared(&*runtime, &spec).await;

    // Somebody cleans up on the engine.
    let options = RemoveContainerOptionsBuilder::default().build();
    let removed = engine.client().remove_container(&next, Some(options)).await;
    removed.expect("it can be removed");
    let again = runtime.start(spec).await.expect("it is made anew");
    assert_eq!(ask(&*again, "/env/TOKEN").await, "hush");

    engine.until_created(&owner).await;
    drop(expected);
    engine.until_left(&owner, 2).await;
    for instance in [instance, again] {
        instance.stop(GRACE).await.expect("it stops");
    }
    engine.until_left(&owner, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_created_ahead_is_not_taken_for_a_leftover_but_by_the_next_agent() {
    let engine = Engine::with(Network::Isolated).await;
    let owner = owner();
    let runtime = engine.runtime(owner.clone()).await;
    let expected = runtime.expect(&secretive(&engine));
    engine.until_created(&owner).await;
    let collected = runtime.collect().await.expect("the engine answers");
    assert!(collected.removed.is_empty(), "{collected:?}");
    // As if the process had ended at once.
    std::mem::forget(expected);
    drop(runtime);
    let next = engine.runtime(owner.clone()).await;
    let collected = next.collect().await.expect("the engine answers");
    assert_eq!(collected.removed.len(), 1, "{collected:?}");
    engine.until_left(&owner, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn none_are_created_where_they_could_not_be_started() {
    // A port of the node may be taken by then; or the feature is switched off.
    for (network, ahead) in [(Network::Host, 1), (Network::Isolated, 0)] {
        let engine = Engine::with(network).await;
        let owner = owner();
        let runtime = engine
            .runtime_with(owner.clone(), |options| options.ahead = ahead)
            .await;
        let spec = spec(engine.image(Program::Hello), Program::Hello);
        let expected = runtime.expect(&spec);
        // It takes longer than creating another one would.
        let instance = runtime.start(spec).await.expect("it starts");
        let all = engine.all(&owner).await;
        let states: Vec<_> = all.iter().map(|one| one.state).collect();
        assert_eq!(states, [Some(ContainerSummaryStateEnum::RUNNING)]);
        drop(expected);
        instance.stop(GRACE).await.expect("it stops");
        engine.until_left(&owner, 0).await;
    }
}
