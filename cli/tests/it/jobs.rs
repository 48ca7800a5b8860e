//! `fdn job`: the exit code tells scripts how a job ended.

use std::sync::atomic::{AtomicUsize, Ordering};

use fdn_cli::exit::Exit;
use serde_json::json;

use crate::support::{Fake, Home, Reply};

const JOB: &str = "job_00000000000070008000000000000001";

/// A controller with one job, which has the first state at first and then the second.
async fn with_job(states: [&'static str; 2]) -> (Fake, Home) {
    let asked = AtomicUsize::new(0);
    let fake = Fake::start(move |_, _| {
        let state = states[asked.fetch_add(1, Ordering::Relaxed).min(1)];
        Reply::json(&json!({
            "id": JOB, "app": "hello", "state": state, "priority": 5, "attempts": 1, "failures": 0, "target": "/",
            "submitted_at": 1_767_225_600_000_u64, "submitted_by": "ada", "due_at": 1_767_225_600_000_u64,
            "expires_at": 1_767_312_000_000_u64, "input_size": "1KiB",
        }))
    })
    .await;
    let home = Home::logged_in(&fake.url());
    (fake, home)
}

#[tokio::test]
async fn waiting_for_a_job_ends_as_the_job_does() {
    let waited = ["job", "status", JOB, "--wait", "-o", "json"];
    let (fake, home) = with_job(["running", "succeeded"]).await;
    let ran = home.fdn(&waited).await;
    assert_eq!(ran.exit, Exit::Ok, "{ran:?}");
    assert_eq!(fake.requests().len(), 2, "it asked until the end");
    for state in ["failed", "cancelled", "dropped", "dead"] {
        let (_fake, home) = with_job(["queued", state]).await;
        let ran = home.fdn(&waited).await;
        assert_eq!(ran.exit, Exit::Failed, "{ran:?}");
        assert!(ran.out.contains(state), "it is shown all the same: {ran:?}");
        let told = format!("job {JOB} ended without success: {state}");
        assert!(ran.err.contains(&told), "{ran:?}");
    }
}

#[tokio::test]
async fn a_look_at_a_job_is_no_failure_however_it_stands() {
    let (fake, home) = with_job(["dead", "dead"]).await;
    let ran = home.fdn(&["job", "status", JOB]).await;
    assert_eq!(ran.exit, Exit::Ok, "{ran:?}");
    assert_eq!(fake.requests().len(), 1);
}

#[tokio::test]
async fn the_attempts_of_a_job_stand_below_it() {
    let fake = Fake::start(|_, _| {
        Reply::json(&json!({
            "id": JOB, "app": "hello", "state": "succeeded", "priority": 5, "attempts": 2, "failures": 1, "target": "/",
            "submitted_at": 1_767_225_600_000_u64, "submitted_by": "ada", "due_at": 1_767_225_600_000_u64,
            "expires_at": 1_767_312_000_000_u64, "input_size": "1KiB",
            "history": [
                { "number": 1, "cluster": "eu-west", "started_at": 1_767_225_601_000_u64, "ended_at": 1_767_225_631_000_u64,
                  "end": "cut_short", "reason": "no answer of cluster eu-west within 30s" },
                { "number": 2, "cluster": "us-east", "started_at": 1_767_225_633_000_u64, "ended_at": 1_767_225_633_250_u64,
                  "end": "succeeded", "status": 200 },
            ],
        }))
    })
    .await;
    let home = Home::logged_in(&fake.url());
    let ran = home.fdn(&["job", "status", JOB, "-o", "wide"]).await;
    assert_eq!(ran.exit, Exit::Ok, "{ran:?}");
    let (_, attempts) = ran.out.split_once("\n\n").expect("two tables");
    let lines: Vec<Vec<&str>> = attempts
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        lines[0],
        [
            "ATTEMPT", "CLUSTER", "BEGAN", "RAN", "END", "STATUS", "REASON"
        ]
    );
    assert_eq!(
        lines[1][..7],
        [
            "1",
            "eu-west",
            "2026-01-01T00:00:01.000Z",
            "30s",
            "cut",
            "short",
            "-"
        ]
    );
    assert_eq!(
        lines[2],
        [
            "2",
            "us-east",
            "2026-01-01T00:00:33.000Z",
            "250ms",
            "succeeded",
            "200",
            "-"
        ]
    );
    assert!(
        attempts.contains("no answer of cluster eu-west within 30s"),
        "{attempts}"
    );
}

#[tokio::test]
async fn lists_are_of_one_app_or_of_all() {
    for (list, path) in [
        (vec!["job", "list"], "/v1/jobs"),
        (vec!["job", "list", "hello"], "/v1/apps/hello/jobs"),
        (vec!["schedule", "list"], "/v1/schedules"),
        (
            vec!["schedule", "list", "hello"],
            "/v1/apps/hello/schedules",
        ),
    ] {
        let fake = Fake::start(|_, _| Reply::json(&json!([]))).await;
        let home = Home::logged_in(&fake.url());
        let ran = home.fdn(&list).await;
        assert_eq!(ran.exit, Exit::Ok, "{ran:?}");
        let asked = fake.requests();
        assert_eq!(asked.len(), 1, "{list:?}");
        assert!(
            format!("{:?}", asked[0]).contains(path),
            "{list:?}: {:?}",
            asked[0]
        );
    }
}
