//! Calls that nobody waits for any more, but on which instances still work.

use tokio::sync::Notify;

use super::*;

/// A program that answers only when notified, even if nobody waits any more; it notifies `arrived` of each call.
fn stubborn(arrived: &Arc<Notify>, answers: &Arc<Notify>) -> FakeProgram {
    let (arrived, answers) = (Arc::clone(arrived), Arc::clone(answers));
    let program = FakeProgram::new(move |_, _| {
        let (arrived, answers) = (Arc::clone(&arrived), Arc::clone(&answers));
        async move {
            arrived.notify_one();
            answers.notified().await;
            http::Response::new(fdn_instances::full_body("late"))
        }
    });
    program.working_on()
}

/// Starts a call and abandons it while its instance works on it.
async fn given_up(mut in_flight: InFlight, arrived: &Notify) {
    tokio::select! {
        answer = in_flight.call(request()) => panic!("{answer:?}"),
        () = arrived.notified() => {}
    }
    assert!(in_flight.is_worked_on());
}

#[tokio::test]
async fn a_place_is_given_back_when_the_instance_has_let_go_of_the_call() {
    let rig = rig(InstanceSettings::default()).await;
    let (arrived, answers) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    // There is no room for a second instance.
    let queue = rig.queue("stubborn", stubborn(&arrived, &answers), 60);
    let in_flight = rig.in_flight(&queue).await.expect("started");
    let first = in_flight.instance();
    given_up(in_flight, &arrived).await;
    assert_eq!(queue.counts().running, 1, "it works on it");
    let mut next = Box::pin(rig.in_flight(&queue));
    assert!(next.as_mut().now_or_never().is_none(), "its place is taken");
    answers.notify_one();
    let next = next.await.expect("the place is free");
    assert_eq!((next.instance(), rig.engine.starts()), (first, 1));
    drop(next);
    assert_eq!(queue.counts().running, 0);
}

#[tokio::test]
async fn an_instance_that_works_on_for_longer_than_it_may_is_replaced() {
    let settings = InstanceSettings {
        stop_grace: fdn_core::DurationMs::from_millis(20),
        ..InstanceSettings::default()
    };
    let rig = rig(settings).await;
    let (arrived, answers) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let queue = rig.queue("stubborn", stubborn(&arrived, &answers), 60);
    let until = Instant::now() + Duration::from_millis(20);
    let mut in_flight = rig.in_flight(&queue).await.expect("started");
    let first = in_flight.instance();
    in_flight.until = until;
    given_up(in_flight, &arrived).await;
    let next = rig.in_flight(&queue).await.expect("another one");
    assert!(next.instance() != first && rig.engine.starts() == 2);
    fdn_testkit::wait::until("the end of the first", async || {
        let alive = rig.engine.alive().len();
        (alive == 1).then_some(()).ok_or(alive)
    })
    .await;
    let lost = rig.instances.metrics().lost.with_label_values(&["overrun"]);
    assert_eq!(lost.get(), 1);
}
