//! A controller that stops while jobs run: it starts no more of them, and what runs has its own time to end.

use std::sync::Arc;

use fdn_controller::Settings;
use fdn_controller::singleton::Work;
use fdn_core::job::{AttemptEnd, JobInfo, JobReceipt, JobState};
use fdn_core::{DurationMs, JobId};
use fdn_testkit::{components, wait};

use crate::gateway::FakeGateway;
use crate::jobs::{quick, submission};
use crate::rig::{Backend, Rig, on_both};

on_both!(
    what_runs_ends_and_nothing_begins_while_a_controller_stops,
    what_does_not_end_in_time_is_cut_short_and_recorded_at_once,
);

/// A controller that dispatches jobs, and another one on the same database that does not.
async fn two(backend: Backend, change: impl FnOnce(&mut Settings)) -> (Rig, Rig, FakeGateway) {
    let first = Rig::start_with(backend, |settings| {
        quick(settings);
        change(settings);
    })
    .await;
    let gateway = FakeGateway::start(&first).await;
    first.deploy("hello", components::hello("hello")).await;
    let mut settings = first.settings.clone();
    settings.jobs.dispatch = false;
    let second = Rig::start_on(
        settings,
        Arc::clone(&first.broker),
        Arc::clone(&first.folder),
    )
    .await;
    (first, second, gateway)
}

async fn submit(rig: &Rig, app: &str, body: &'static str) -> JobId {
    let receipt: JobReceipt = rig.json(submission(rig, app, "", body)).await;
    receipt.id
}

async fn job(rig: &Rig, id: JobId) -> JobInfo {
    rig.get(&format!("/v1/jobs/{id}")).await
}

async fn until_called(gateway: &FakeGateway, id: JobId) {
    wait::until("the call to run", async || match gateway.calls(id) {
        0 => Err("not yet"),
        _ => Ok(()),
    })
    .await;
}

async fn what_runs_ends_and_nothing_begins_while_a_controller_stops(backend: Backend) {
    let (first, second, gateway) = two(backend, |settings| {
        settings.jobs.stop_grace = DurationMs::from_secs(600);
        settings.singletons.linger = DurationMs::from_secs(1);
    })
    .await;
    let runs = submit(&second, "hello", "wait").await;
    until_called(&gateway, runs).await;
    let state = Arc::clone(first.controller.state());
    wait::until("the leases", async || {
        match state.singletons.has(Work::Planner) {
            true => Ok(()),
            false => Err("not yet"),
        }
    })
    .await;
    let stopped = tokio::spawn(first.controller.stop());
    // It gives its leases back when it begins to leave.
    wait::until("it to leave", async || {
        match state.singletons.has(Work::Planner) {
            true => Err("not yet"),
            false => Ok(()),
        }
    })
    .await;
    let late = submit(&second, "hello", "work").await;
    gateway.open(1);
    stopped.await.expect("stopped");
    let runs = job(&second, runs).await;
    assert_eq!(
        (runs.state, runs.attempts),
        (JobState::Succeeded, 1),
        "{runs:?}"
    );
    let late = job(&second, late).await;
    assert_eq!((late.state, late.attempts), (JobState::Queued, 0));
}

async fn what_does_not_end_in_time_is_cut_short_and_recorded_at_once(backend: Backend) {
    let (first, second, gateway) = two(backend, |settings| {
        settings.jobs.stop_grace = DurationMs::from_millis(100);
    })
    .await;
    let manifest = Some("idempotent = true\n");
    let upload = first.upload("again", components::hello("again"), manifest, None);
    let _: serde_json::Value = first.json(upload).await;
    let once = submit(&second, "hello", "wait").await;
    let again = submit(&second, "again", "wait").await;
    until_called(&gateway, once).await;
    until_called(&gateway, again).await;
    first.controller.stop().await;
    // Nobody has waited for a lease to end.
    let once = job(&second, once).await;
    assert_eq!(once.state, JobState::Failed);
    let reason = once.reason.expect("a reason");
    assert!(reason.contains("controller stopped"), "{reason}");
    assert_eq!(once.history[0].end, Some(AttemptEnd::CutShort));
    let again = job(&second, again).await;
    assert_eq!(
        (again.state, again.attempts, again.failures),
        (JobState::Queued, 1, 1),
        "it may be repeated"
    );
}
