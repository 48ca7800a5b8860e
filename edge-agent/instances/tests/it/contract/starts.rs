//! Starts that fail, and what they leave behind: nothing.

use std::time::Duration;

use fdn_core::{Coded, ErrorCode};
use fdn_instances::StartError;

use crate::subject::{Program, Running, Subject, owner, spec};

pub(crate) async fn a_missing_image_is_told(subject: &dyn Subject) {
    let owner = owner();
    let runtime = subject.runtime(owner.clone()).await;
    let image = subject.missing_image();
    let prepared = runtime.prepare(&image).await.expect_err("it is nowhere");
    assert_eq!(prepared.code(), ErrorCode::ImageMissing, "{prepared}");
    let started = runtime.start(spec(image, Program::Hello)).await;
    let error = started.expect_err("it is nowhere");
    assert_eq!(error.code(), ErrorCode::ImageMissing, "{error}");
    assert_eq!(subject.leftovers(&owner).await, 0);
}

pub(crate) async fn an_id_is_used_once(subject: &dyn Subject) {
    let running = Running::start(subject, Program::Hello).await;
    let mut second = spec(subject.image(Program::Hello), Program::Hello);
    second.description.id = running.instance.id();
    let error = running
        .runtime
        .start(second)
        .await
        .expect_err("it is taken");
    assert!(matches!(error, StartError::Exists { .. }), "{error}");
    assert_eq!(
        crate::subject::ask(&*running.instance, "/hello").await,
        "hello"
    );
    running.end().await;
}

pub(crate) async fn preparing_twice_is_harmless(subject: &dyn Subject) {
    let runtime = subject.runtime(owner()).await;
    let image = subject.image(Program::Hello);
    let both = tokio::join!(runtime.prepare(&image), runtime.prepare(&image));
    both.0.expect("it is there");
    both.1.expect("it is there");
    runtime.prepare(&image).await.expect("it is there");
}

pub(crate) async fn an_exit_at_start_is_told_with_its_last_lines(subject: &dyn Subject) {
    let owner = owner();
    let runtime = subject.runtime(owner.clone()).await;
    let program = Program::FailsAtStart;
    let started = runtime.start(spec(subject.image(program), program)).await;
    let error = started.expect_err("it ends at once");
    let StartError::Exited { exit, log } = &error else {
        panic!("{error}");
    };
    assert_eq!(exit.code, Some(3));
    // Not necessarily last: the two streams of a process are not ordered relative to each other.
    let told = log.iter().any(|line| line.text == "fatal: told to fail");
    assert!(told, "{log:?}");
    assert_eq!(error.code(), ErrorCode::InstanceNotStarted);
    assert_eq!(subject.leftovers(&owner).await, 0);
}

pub(crate) async fn an_instance_that_never_answers_is_told(subject: &dyn Subject) {
    let owner = owner();
    let runtime = subject.runtime(owner.clone()).await;
    let mut spec = spec(subject.image(Program::Deaf), Program::Deaf);
    // Long enough for its first line to arrive on a busy machine.
    spec.description.readiness.timeout = Duration::from_secs(5);
    let error = runtime.start(spec).await.expect_err("it never answers");
    let StartError::NotReady { log, .. } = &error else {
        panic!("{error}");
    };
    assert!(log.iter().any(|l| l.text.contains("deaf")), "{log:?}");
    assert_eq!(subject.leftovers(&owner).await, 0);
}

pub(crate) async fn a_dropped_start_leaves_nothing(subject: &dyn Subject) {
    let owner = owner();
    let runtime = subject.runtime(owner.clone()).await;
    let start = runtime.start(spec(subject.image(Program::Deaf), Program::Deaf));
    {
        let mut start = Box::pin(start);
        // Dropped once there is something to leave behind.
        loop {
            tokio::select! {
                started = &mut start => panic!("it never answers: {started:?}"),
                () = tokio::time::sleep(Duration::from_millis(20)) => {}
            }
            if subject.leftovers(&owner).await > 0 {
                break;
            }
        }
    }
    fdn_testkit::wait::until("the start to be undone", async || {
        match subject.leftovers(&owner).await {
            0 => Ok(()),
            left => Err(format!("{left} left")),
        }
    })
    .await;
}
