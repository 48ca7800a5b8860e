//! Waits until the components know each other: every node has reported to the controller, and DNS answers for the zone.

use std::time::Duration;

use fdn_service::secret::Secret;
use tokio::time::Instant;
use url::Url;

use super::plan::Plan;
use crate::client::Client;
use crate::error::CliError;
use crate::resolver::Resolver;
use crate::target::Target;

/// How long a slow machine may take; after that the network is announced with what is missing.
const PATIENCE: Duration = Duration::from_secs(20);
const INTERVAL: Duration = Duration::from_millis(20);

/// Waits. Returns what is still missing at the deadline; usually nothing.
///
/// # Errors
/// When the HTTP client cannot be created.
pub async fn wait(
    plan: &Plan,
    controller: &Url,
    token: Option<&Secret>,
) -> Result<Vec<String>, CliError> {
    let target = Target::of(controller.clone(), token.cloned(), None);
    let client = Client::new(&target)?;
    let deadline = Instant::now() + PATIENCE;
    let mut missing = Vec::new();
    if token.is_some() {
        missing.extend(until(deadline, async || nodes(&client, plan.nodes.len()).await).await);
    }
    let resolver = Resolver::new(plan.dns).with_timeout(Duration::from_millis(500));
    missing.extend(
        until(deadline, async || {
            resolver
                .zone(&plan.zone)
                .await
                .map(drop)
                .map_err(|e| e.to_string())
        })
        .await,
    );
    Ok(missing)
}

async fn nodes(client: &Client, wanted: usize) -> Result<(), String> {
    let nodes = client.nodes().await.map_err(|e| e.to_string())?;
    let alive = nodes.iter().filter(|node| node.alive).count();
    if alive >= wanted {
        Ok(())
    } else {
        Err(format!(
            "{alive} of {wanted} nodes have reported to the controller"
        ))
    }
}

/// Polls until the condition holds; returns the last reason if the deadline passes.
async fn until(
    deadline: Instant,
    condition: impl AsyncFn() -> Result<(), String>,
) -> Option<String> {
    loop {
        match condition().await {
            Ok(()) => return None,
            Err(reason) if Instant::now() >= deadline => return Some(reason),
            Err(_) => tokio::time::sleep(INTERVAL).await,
        }
    }
}
