//! Waits until every live node has reached a revision, with progress on standard error.

use std::collections::BTreeSet;
use std::time::Duration;

use fdn_core::api::{AppDetail, NodeInfo, NodeProgress};
use fdn_core::message::AppPhase;
use fdn_core::{AppName, DurationMs, ErrorCode, NodeId, Revision};
use tokio::time::Instant;

use super::describe::phase;
use crate::client::Client;
use crate::console::Console;
use crate::error::CliError;
use crate::progress;

/// The interval of polling.
const INTERVAL: Duration = Duration::from_millis(200);

/// Waits until every live node serves `revision` of the app or a newer one.
///
/// # Errors
/// When the controller cannot be reached, or on a timeout; then the message lists the state of each node.
pub(super) async fn until_ready(
    client: &Client,
    app: &AppName,
    revision: Revision,
    within: DurationMs,
    console: &mut Console,
) -> Result<AppDetail, CliError> {
    let spinner = progress::spinner(console, "waiting for the nodes");
    let told = |text: String| spinner.suspend(|| console.note(&text));
    let ready = |ready: usize, all: usize| {
        spinner.set_message(format!("{ready} of {all} nodes ready"));
    };
    let result = follow(client, app, revision, within, told, ready).await;
    spinner.finish_and_clear();
    result
}

/// Like [`until_ready`], with callbacks for the progress: `told` gets each failure once per reason, from the first node that reports it; `ready`
/// gets the
/// number of ready nodes and of all.
///
/// # Errors
/// As for [`until_ready`].
pub(super) async fn follow(
    client: &Client,
    app: &AppName,
    revision: Revision,
    within: DurationMs,
    mut told: impl FnMut(String),
    mut ready: impl FnMut(usize, usize),
) -> Result<AppDetail, CliError> {
    let deadline = Instant::now() + within.as_duration();
    let mut reasons: BTreeSet<String> = BTreeSet::new();
    loop {
        let detail = client.app(app).await?;
        let summary = &detail.summary;
        let waiting: Vec<&NodeProgress> = detail
            .nodes
            .iter()
            .filter(|n| !is_ready(n, revision))
            .collect();
        if waiting.is_empty() && !detail.nodes.is_empty() && summary.revision >= revision {
            return Ok(detail);
        }
        for node in &waiting {
            if let Some(reason) = failure(node, revision)
                && reasons.insert(reason.clone())
            {
                told(format!("{}: {reason}; it tries again", node.node));
            }
        }
        let all = detail.nodes.len();
        ready(all - waiting.len(), all);
        if Instant::now() + INTERVAL > deadline {
            return Err(timed_out(app, within, &waiting, all));
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

fn is_ready(node: &NodeProgress, revision: Revision) -> bool {
    node.observed
        .as_ref()
        .is_some_and(|seen| seen.revision >= revision && seen.phase == AppPhase::Ready)
}

fn failure(node: &NodeProgress, revision: Revision) -> Option<String> {
    let seen = node
        .observed
        .as_ref()
        .filter(|seen| seen.revision >= revision)?;
    matches!(seen.phase, AppPhase::Failed { .. }).then(|| phase(&seen.phase))
}

fn timed_out(app: &AppName, within: DurationMs, waiting: &[&NodeProgress], all: usize) -> CliError {
    if all == 0 {
        return CliError::Timeout(format!(
            "no node lives that could serve {app}; none appeared within {within}"
        ));
    }
    // Group nodes by reason: many nodes may have the same one, and it may be long.
    let mut list: Vec<(String, &NodeId, usize)> = Vec::new();
    for node in waiting {
        let seen = node.observed.as_ref();
        let how = seen.map_or("waiting".to_owned(), |seen| phase(&seen.phase));
        match list.iter_mut().find(|(known, ..)| *known == how) {
            Some((.., others)) => *others += 1,
            None => list.push((how, &node.node, 0)),
        }
    }
    let list: Vec<String> = list
        .into_iter()
        .map(|(how, node, others)| match others {
            0 => format!("{node} {how}"),
            1 => format!("{node} and 1 other {how}"),
            _ => format!("{node} and {others} others {how}"),
        })
        .collect();
    CliError::Timeout(format!(
        "{app} is accepted, but not ready on {} of {all} nodes within {within}: {}",
        waiting.len(),
        list.join(", ")
    ))
}

/// Waits until no live node has any of these deleted apps. Does not wait, and says so, if the caller may not look at nodes, which only operators of
/// the network may.
///
/// # Errors
/// When the controller cannot be reached, or on a timeout; then the message lists the nodes that still have an app.
pub(super) async fn until_gone(
    client: &Client,
    apps: &[AppName],
    within: DurationMs,
    console: &mut Console,
) -> Result<(), CliError> {
    let deadline = Instant::now() + within.as_duration();
    let spinner = progress::spinner(console, "waiting for the nodes");
    let result = loop {
        let nodes = match client.nodes().await {
            Ok(nodes) => nodes,
            // The apps are deleted all the same.
            Err(CliError::Problem(problem)) if problem.code == ErrorCode::Forbidden => {
                let told = "not waited for: your role may not look at machines";
                spinner.suspend(|| console.note(told));
                break Ok(());
            }
            Err(error) => break Err(error),
        };
        let left: Vec<String> = apps
            .iter()
            .filter_map(|app| still_there(app, &nodes))
            .collect();
        if left.is_empty() {
            break Ok(());
        }
        if Instant::now() + INTERVAL > deadline {
            let left = left.join("; ");
            break Err(CliError::Timeout(format!("{left} after {within}")));
        }
        tokio::time::sleep(INTERVAL).await;
    };
    spinner.finish_and_clear();
    result
}

/// What is said of a deleted app that live nodes still have.
fn still_there(app: &AppName, nodes: &[NodeInfo]) -> Option<String> {
    let left: Vec<String> = nodes
        .iter()
        .filter(|n| n.alive && n.apps.iter().any(|a| a.app == *app))
        .map(|n| n.node.to_string())
        .collect();
    (!left.is_empty()).then(|| format!("{app} is deleted, but still on {}", left.join(", ")))
}
