//! Ends that were not ordered.

use fdn_instances::{CallFailure, ExitReason, InstanceState, LogLimits};
use http_body_util::BodyExt;

use crate::subject::{PATIENCE, Program, Running, Subject, ask, begin, get, until};

fn exited(state: &InstanceState) -> bool {
    state.exit().is_some()
}

pub(crate) async fn an_exit_is_seen_with_its_code_and_last_lines(subject: &dyn Subject) {
    let running = Running::start(subject, Program::Exit).await;
    let failure = running.instance.call(get("/exit/7")).await;
    assert!(
        matches!(failure, Err(CallFailure::Interrupted { .. })),
        "{failure:?}"
    );
    let state = until(&*running.instance, "its end", exited).await;
    let exit = state.exit().expect("it ended");
    assert_eq!((exit.code, exit.reason), (Some(7), ExitReason::Ended));
    let lines = running.instance.log_tail();
    let last = lines.last().map(|line| line.text.as_str());
    assert_eq!(last, Some("last words"), "{lines:?}");
    let owner = running.owner.clone();
    running.end().await;
    assert_eq!(subject.leftovers(&owner).await, 0, "nothing stays");
}

pub(crate) async fn a_kill_interrupts_calls_and_is_seen(subject: &dyn Subject) {
    let running = Running::start(subject, Program::Sleep).await;
    let call = begin(&running.instance, "/sleep/60000").await;
    subject.kill(&*running.instance).await;
    let outcome = tokio::time::timeout(PATIENCE, call)
        .await
        .expect("the call ends with its instance")
        .expect("no panic");
    assert!(
        matches!(outcome, Err(CallFailure::Interrupted { .. })),
        "{outcome:?}"
    );
    let state = until(&*running.instance, "its end", exited).await;
    let exit = state.exit().expect("it ended");
    assert_eq!((exit.code, exit.reason), (Some(137), ExitReason::Ended));
    running.end().await;
}

pub(crate) async fn a_body_that_is_cut_is_no_whole_body(subject: &dyn Subject) {
    let running = Running::start(subject, Program::Stall).await;
    let response = running.instance.call(get("/stall")).await;
    let mut body = response.expect("a head").into_body();
    let first = body.frame().await.expect("a piece").expect("no error");
    assert_eq!(first.into_data().expect("data"), "first");
    subject.kill(&*running.instance).await;
    let next = tokio::time::timeout(PATIENCE, body.frame())
        .await
        .expect("the body ends with its instance");
    assert!(matches!(next, Some(Err(_))), "{next:?}");
    running.end().await;
}

pub(crate) async fn what_was_not_sent_comes_back_whole(subject: &dyn Subject) {
    let running = Running::start(subject, Program::Hello).await;
    subject.kill(&*running.instance).await;
    until(&*running.instance, "its end", exited).await;
    let request = http::Request::post("/hello")
        .header("x-test", "1")
        .body(fdn_instances::full_body("the body"))
        .expect("it cannot fail here");
    let failure = running
        .instance
        .call(request)
        .await
        .expect_err("it is gone");
    let back = failure.into_request().expect("the request was not sent");
    assert_eq!(back.headers()["x-test"], "1");
    let body = back.into_body().collect().await.expect("untouched");
    assert_eq!(body.to_bytes(), "the body");
    running.end().await;
}

pub(crate) async fn output_is_bounded(subject: &dyn Subject) {
    let limits = LogLimits {
        line: 40,
        lines: 10,
        bytes: 300,
    };
    let running = Running::with(subject, Program::Print, |spec| spec.logs = limits).await;
    ask(&*running.instance, "/print/500").await;
    let instance = &running.instance;
    fdn_testkit::wait::until("the last line to arrive", async || {
        let lines = instance.log_tail();
        let last = lines.last().is_some_and(|l| l.text.starts_with("line 499"));
        if last {
            Ok(())
        } else {
            Err(format!("{lines:?}"))
        }
    })
    .await;
    let lines = instance.log_tail();
    assert!(lines.len() <= 10, "{lines:?}");
    assert!(lines.iter().all(|line| line.text.len() <= 40), "{lines:?}");
    assert!(lines.iter().map(|l| l.text.len()).sum::<usize>() <= 300);
    running.end().await;
}
