use fdn_core::DurationMs;
use fdn_testkit::wait;

use super::*;

fn settings() -> InstanceSettings {
    within(DurationMs::from_secs(50))
}

/// Pauses and wakes within this time, or not at all.
fn within(limit: DurationMs) -> InstanceSettings {
    InstanceSettings {
        pause_after: DurationMs::from_millis(5),
        resume_timeout: limit,
        ..InstanceSettings::default()
    }
}

/// A lane whose one instance has served a call and is paused.
async fn asleep(rig: &Rig) -> (InstanceLane, fdn_core::InstanceId) {
    let lane = rig.lane("hello", FakeProgram::text("hi"), 10);
    let id = rig.seat(&lane).await.expect("started").instance();
    until_paused(rig).await;
    (lane, id)
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
    let (lane, id) = asleep(&rig).await;
    for _ in 0..3 {
        until_paused(&rig).await;
        let mut seat = rig.seat(&lane).await.expect("woken");
        assert_eq!(seat.instance(), id);
        assert_eq!(seat.call(request()).await.expect("an answer").status(), 200);
    }
    assert_eq!(rig.engine.starts(), 1);
}

#[tokio::test]
async fn one_that_fails_to_wake_or_hangs_is_replaced_and_the_call_goes_elsewhere() {
    for hangs in [false, true] {
        // Who hangs is waited for, and who does not has to be paused in that time.
        let limit = DurationMs::from_secs(if hangs { 2 } else { 50 });
        let rig = rig(within(limit)).await;
        let (lane, id) = asleep(&rig).await;
        if hangs {
            rig.engine.hold_resumes();
        } else {
            rig.engine.fail_resumes(1);
        }
        let mut seat = rig.seat(&lane).await.expect("another one");
        assert_ne!(seat.instance(), id);
        assert_eq!(rig.engine.starts(), 2);
        assert_eq!(seat.call(request()).await.expect("an answer").status(), 200);
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
    let (lane, id) = asleep(&first).await;
    let engine = Arc::clone(&first.engine);
    std::mem::forget((first, lane));
    let rig = on(engine, InstanceSettings::default()).await;
    let lane = rig.lane("hello", FakeProgram::text("hi"), 10);
    let mut seat = rig.seat(&lane).await.expect("woken");
    assert_eq!((seat.instance(), rig.engine.starts()), (id, 1));
    assert_eq!(seat.call(request()).await.expect("an answer").status(), 200);
}
