//! From the start to the ordered end, across restarts of the agent.

use std::time::Duration;

use fdn_instances::{CallFailure, ExitReason, InstanceState};

use crate::subject::{PATIENCE, Program, Running, Subject, ask, begin, get, owner, spec, text};

const GRACE: Duration = PATIENCE;

pub(crate) async fn stop_lets_a_running_call_finish(subject: &dyn Subject) {
    let running = Running::start(subject, Program::Sleep).await;
    let call = begin(&running.instance, "/sleep/1500").await;
    let exit = running.instance.stop(GRACE).await.expect("it stops");
    assert_eq!(exit.reason, ExitReason::Stopped);
    let response = call.await.expect("no panic").expect("the call finished");
    assert_eq!(text(response).await, "slept");
}

pub(crate) async fn stop_is_final_and_idempotent(subject: &dyn Subject) {
    let running = Running::start(subject, Program::Hello).await;
    let first = running.instance.stop(GRACE).await.expect("it stops");
    let again = running.instance.stop(GRACE).await.expect("it has stopped");
    assert_eq!(first, again);
    assert_eq!(
        *running.instance.state().borrow(),
        InstanceState::Exited(first)
    );
    let failure = running.instance.call(get("/hello")).await;
    assert!(
        matches!(failure, Err(CallFailure::NotSent { .. })),
        "{failure:?}"
    );
    assert_eq!(subject.leftovers(&running.owner).await, 0, "nothing stays");
    let adopted = running.runtime.adopt().await.expect("the engine answers");
    assert!(adopted.is_empty(), "{adopted:?}");
}

pub(crate) async fn stop_kills_what_does_not_end(subject: &dyn Subject) {
    let running = Running::start(subject, Program::Sleep).await;
    let call = begin(&running.instance, "/sleep/600000").await;
    let stopping = running.instance.stop(Duration::from_millis(200));
    let exit = tokio::time::timeout(PATIENCE, stopping)
        .await
        .expect("the grace ends")
        .expect("it stops");
    assert_eq!(exit.reason, ExitReason::Stopped);
    let outcome = call.await.expect("no panic");
    assert!(
        matches!(outcome, Err(CallFailure::Interrupted { .. })),
        "{outcome:?}"
    );
}

pub(crate) async fn a_description_is_kept(subject: &dyn Subject) {
    let owner = owner();
    let runtime = subject.runtime(owner.clone()).await;
    assert_eq!(runtime.owner(), &owner);
    let spec = spec(subject.image(Program::Hello), Program::Hello);
    let expected = spec.description.clone();
    let instance = runtime.start(spec).await.expect("it starts");
    assert_eq!(instance.description(), &expected);
    assert_eq!(instance.id(), expected.id);
    instance.stop(GRACE).await.expect("it stops");
}

pub(crate) async fn a_new_agent_adopts_what_runs(subject: &dyn Subject) {
    let Running {
        runtime,
        instance,
        owner,
    } = Running::start(subject, Program::Hello).await;
    assert!(runtime.capabilities().survives_agent);
    let description = instance.description().clone();
    drop((runtime, instance));
    let runtime = subject.runtime(owner.clone()).await;
    // Collecting first must not affect what runs.
    let collected = runtime.collect().await.expect("the engine answers");
    assert!(collected.removed.is_empty(), "{collected:?}");
    let adopted = runtime.adopt().await.expect("the engine answers");
    let [instance] = adopted.as_slice() else {
        panic!("one instance runs: {adopted:?}");
    };
    assert_eq!(instance.description(), &description);
    assert_eq!(*instance.state().borrow(), InstanceState::Ready);
    assert_eq!(ask(&**instance, "/hello").await, "hello");
    let again = runtime.adopt().await.expect("the engine answers");
    assert_eq!(again.len(), 1, "adopting twice gives it once");
    // Adopted instances are watched like started ones.
    subject.kill(&**instance).await;
    crate::subject::until(&**instance, "its end", |state| state.exit().is_some()).await;
    instance.stop(GRACE).await.expect("it has ended");
    assert_eq!(subject.leftovers(&owner).await, 0);
}

pub(crate) async fn others_are_left_alone(subject: &dyn Subject) {
    let theirs = Running::start(subject, Program::Hello).await;
    let mine = Running::start(subject, Program::Hello).await;
    let stranger = owner();
    subject
        .leave_half_made(&stranger, &subject.image(Program::Hello))
        .await;
    mine.runtime.collect().await.expect("the engine answers");
    let adopted = mine.runtime.adopt().await.expect("the engine answers");
    let ids: Vec<_> = adopted.iter().map(|instance| instance.id()).collect();
    assert_eq!(ids, [mine.instance.id()]);
    assert_eq!(ask(&*theirs.instance, "/hello").await, "hello");
    assert_eq!(subject.leftovers(&stranger).await, 1, "not even half-made");
    let stranger = subject.runtime(stranger).await;
    stranger.collect().await.expect("the engine answers");
    theirs.end().await;
    mine.end().await;
}

pub(crate) async fn what_a_crash_left_is_collected(subject: &dyn Subject) {
    let running = Running::start(subject, Program::Hello).await;
    let image = subject.image(Program::Hello);
    subject.leave_half_made(&running.owner, &image).await;
    assert_eq!(subject.leftovers(&running.owner).await, 2);
    let collected = running.runtime.collect().await.expect("the engine answers");
    assert_eq!((collected.removed.len(), collected.failed.len()), (1, 0));
    assert_eq!(subject.leftovers(&running.owner).await, 1);
    assert_eq!(ask(&*running.instance, "/hello").await, "hello");
    running.end().await;
}

pub(crate) async fn a_paused_instance_takes_no_calls(subject: &dyn Subject) {
    let running = Running::start(subject, Program::Hello).await;
    if !running.runtime.capabilities().pause {
        let refused = running.instance.pause().await;
        assert!(
            matches!(
                refused,
                Err(fdn_instances::InstanceError::Unsupported { .. })
            ),
            "{refused:?}"
        );
        return running.end().await;
    }
    for _ in 0..3 {
        running.instance.pause().await.expect("it pauses");
        running.instance.pause().await.expect("twice is once");
        assert_eq!(*running.instance.state().borrow(), InstanceState::Paused);
        let failure = running.instance.call(get("/hello")).await;
        assert!(
            matches!(failure, Err(CallFailure::NotSent { .. })),
            "{failure:?}"
        );
        running.instance.resume().await.expect("it goes on");
        running.instance.resume().await.expect("twice is once");
        assert_eq!(ask(&*running.instance, "/hello").await, "hello");
    }
    // A paused instance can be stopped.
    running.instance.pause().await.expect("it pauses");
    running.end().await;
}
