use fdn_core::DurationMs;
use fdn_testkit::wait;

use super::*;

fn settings() -> InstanceSettings {
    within(DurationMs::from_secs(50))
}

/// Settings that pause after 5 ms of idling, with this timeout for pausing and resuming.
fn within(limit: DurationMs) -> InstanceSettings {
    InstanceSettings {
        pause_after: DurationMs::from_millis(5),
        resume_timeout: limit,
        ..InstanceSettings::default()
    }
}

/// A queue with one instance, which has served a call and is paused.
async fn asleep(rig: &Rig) -> (InstanceQueue, fdn_core::InstanceId) {
    let queue = rig.queue("hello", FakeProgram::text("hi"), 10);
    let id = rig.in_flight(&queue).await.expect("started").instance();
    until_paused(rig).await;
    (queue, id)
}

async fn until_paused(rig: &Rig) {
    wait::until("an instance to be paused", async || {
        match rig.engine.paused() {
            0 => Err("none is"),
            _ => Ok(()),
        }
    })
    .await;
}

#[tokio::test]
async fn an_idle_instance_is_paused_and_woken_for_the_next_call() {
    let rig = rig(settings()).await;
    let (queue, id) = asleep(&rig).await;
    for _ in 0..3 {
        until_paused(&rig).await;
        let mut in_flight = rig.in_flight(&queue).await.expect("woken");
        assert_eq!(in_flight.instance(), id);
        assert_eq!(
            in_flight.call(request()).await.expect("an answer").status(),
            200
        );
    }
    assert_eq!(rig.engine.starts(), 1);
}

#[tokio::test]
async fn one_that_fails_to_wake_or_hangs_is_replaced_and_the_call_goes_elsewhere() {
    for hangs in [false, true] {
        // A hanging resume is waited for in full; otherwise the timeout must be long enough for the pause to succeed.
        let limit = DurationMs::from_secs(if hangs { 2 } else { 50 });
        let rig = rig(within(limit)).await;
        let (queue, id) = asleep(&rig).await;
        if hangs {
            rig.engine.hold_resumes();
        } else {
            rig.engine.fail_resumes(1);
        }
        let mut in_flight = rig.in_flight(&queue).await.expect("another one");
        assert_ne!(in_flight.instance(), id);
        assert_eq!(rig.engine.starts(), 2);
        assert_eq!(
            in_flight.call(request()).await.expect("an answer").status(),
            200
        );
        wait::until("the one that did not wake to go", async || {
            match rig.engine.alive().len() {
                0 | 1 => Ok(()),
                more => Err(more),
            }
        })
        .await;
    }
}

#[tokio::test]
async fn what_is_paused_when_the_agent_ends_is_woken_by_the_next_one() {
    let first = rig(settings()).await;
    let (queue, id) = asleep(&first).await;
    let engine = Arc::clone(&first.engine);
    std::mem::forget((first, queue));
    let rig = on(engine, InstanceSettings::default()).await;
    let queue = rig.queue("hello", FakeProgram::text("hi"), 10);
    let mut in_flight = rig.in_flight(&queue).await.expect("woken");
    assert_eq!((in_flight.instance(), rig.engine.starts()), (id, 1));
    assert_eq!(
        in_flight.call(request()).await.expect("an answer").status(),
        200
    );
}

#[tokio::test]
async fn one_whose_pause_is_not_heard_of_yet_is_woken_for_the_next_call() {
    let rig = rig(settings()).await;
    rig.engine.hide_pauses();
    let (queue, id) = asleep(&rig).await;
    let mut in_flight = rig.in_flight(&queue).await.expect("woken");
    assert_eq!(in_flight.instance(), id);
    let answer = in_flight.call(request()).await.expect("an answer");
    assert_eq!(answer.status(), 200);
}
