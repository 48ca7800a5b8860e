//! Checks of the network: controller, token, clocks, DNS, gateways, nodes.

use std::net::SocketAddr;
use std::time::Duration;

use fdn_core::Timestamp;
use fdn_core::api::{ClusterInfo, NetworkInfo};
use tokio::net::TcpStream;

use super::Check;
use crate::client::Client;
use crate::commands::version::{VERSION, minor};
use crate::error::CliError;
use crate::resolver::{Resolver, system_server};
use crate::target::Target;

/// The largest acceptable clock skew: a larger one breaks tokens and ages.
const SKEW_MAX: Duration = Duration::from_secs(5);
const CONNECT: Duration = Duration::from_secs(2);
/// The most gateways that are tried: enough to find a problem.
const GATEWAYS_MAX: usize = 256;

/// Adds the checks.
pub(super) async fn check(target: &Target, checks: &mut Vec<Check>) {
    let client = match Client::new(target) {
        Ok(client) => client,
        Err(error) => return checks.push(Check::failed("controller", &error)),
    };
    let network = controller(&client, target, checks).await;
    dns(target, network.as_ref(), checks).await;
    let allowed = network.is_some() && target.token.is_some();
    match client.clusters().await {
        Ok(clusters) => {
            gateways(&clusters, checks).await;
            super::nodes::check(&client, checks).await;
        }
        Err(error) if allowed => checks.push(Check::failed("gateways", &error)),
        Err(_) => checks.push(Check::warn(
            "gateways",
            "not looked at: the controller could not be asked where they are",
            "mend the controller or the token first",
        )),
    }
}

/// Checks whether the controller answers, its version, whether it accepts the token, and its clock.
async fn controller(
    client: &Client,
    target: &Target,
    checks: &mut Vec<Check>,
) -> Option<NetworkInfo> {
    let (network, clock) = match client.network_and_clock().await {
        Ok(answer) => answer,
        Err(CliError::Problem(problem)) if matches!(problem.status, 401 | 403) => {
            checks.push(Check::ok(
                "controller",
                format!("{} answers", client.place()),
            ));
            let found = if target.token.is_some() {
                "the controller does not take it"
            } else {
                "there is none"
            };
            checks.push(Check::fail(
                "token",
                found,
                format!("run fdn login {}", client.place()),
            ));
            return None;
        }
        Err(error) => {
            checks.push(Check::failed("controller", &error));
            return None;
        }
    };
    let found = format!("{} answers, version {}", client.place(), network.version);
    checks.push(if minor(&network.version) == minor(VERSION) {
        Check::ok("controller", found)
    } else {
        let advice = "install the client of the controller's minor version";
        Check::warn(
            "controller",
            format!("{found}; this client is {VERSION}"),
            advice,
        )
    });
    checks.push(token(client, target).await);
    checks.extend(clock.map(|theirs| skew(fdn_service::now(), theirs)));
    Some(network)
}

async fn token(client: &Client, target: &Target) -> Check {
    if target.token.is_none() {
        return Check::fail(
            "token",
            "there is none",
            format!("run fdn login {}", client.place()),
        );
    }
    match client.network().await {
        Ok(_) => Check::ok("token", "the controller takes it"),
        Err(error) => Check::failed("token", &error),
    }
}

/// The skew between two clocks, if it is too large; one of the times was read from a header.
pub(super) fn clock_skew(ours: Timestamp, theirs: Timestamp) -> Option<Duration> {
    // The header has whole seconds, so a second of difference means nothing.
    let off = ours
        .since(theirs)
        .max(theirs.since(ours))
        .saturating_sub(Duration::from_secs(1));
    (off > SKEW_MAX).then_some(off)
}

fn skew(ours: Timestamp, theirs: Timestamp) -> Check {
    let Some(off) = clock_skew(ours, theirs) else {
        return Check::ok("clock", "agrees with the controller's");
    };
    let found = format!("differs from the controller's by {} s", off.as_secs());
    Check::warn(
        "clock",
        found,
        "set both clocks by NTP (timedatectl set-ntp true)",
    )
}

async fn dns(target: &Target, network: Option<&NetworkInfo>, checks: &mut Vec<Check>) {
    let saved = target.context.as_ref();
    let zone = saved
        .and_then(|c| c.zone.clone())
        .or_else(|| network.map(|n| n.zone.clone()));
    let Some(zone) = zone else {
        let advice = "run fdn up or fdn login, so that it is saved";
        return checks.push(Check::warn(
            "DNS",
            "not looked at: the zone is not known",
            advice,
        ));
    };
    let server = saved
        .and_then(|c| c.dns)
        .or_else(|| network.and_then(|n| n.dns));
    let server = match server {
        Some(server) => server,
        None => {
            match system_server(&std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default()) {
                Ok(server) => server,
                Err(error) => return checks.push(Check::failed("DNS", &error.into())),
            }
        }
    };
    checks.push(match Resolver::new(server).zone(&zone).await {
        Ok((soa, true)) => Check::ok(
            "DNS",
            format!(
                "{server} answers for {zone} with authority (serial {})",
                soa.serial
            ),
        ),
        Ok((soa, false)) => Check::ok(
            "DNS",
            format!("{server} resolves {zone} (serial {})", soa.serial),
        ),
        Err(error) => Check::failed("DNS", &error.into()),
    });
}

async fn gateways(clusters: &[ClusterInfo], checks: &mut Vec<Check>) {
    let all: u32 = clusters.iter().map(|c| c.nodes_total).sum();
    let alive: u32 = clusters.iter().map(|c| c.nodes_alive).sum();
    let found = format!("{alive} of {all} alive in {} clusters", clusters.len());
    checks.push(match (alive, all) {
        (0, _) => Check::fail("nodes", found, "start fdn-edge-agent on a node, or fdn up"),
        (a, b) if a < b => Check::warn("nodes", found, "fdn node list shows which are lost"),
        _ => Check::ok("nodes", found),
    });
    let addresses: Vec<SocketAddr> = clusters
        .iter()
        .flat_map(|c| &c.gateways)
        .copied()
        .take(GATEWAYS_MAX)
        .collect();
    let tries = addresses.iter().map(|address| async move {
        let reached = tokio::time::timeout(CONNECT, TcpStream::connect(address)).await;
        (!matches!(reached, Ok(Ok(_)))).then_some(*address)
    });
    let lost: Vec<String> = futures::future::join_all(tries)
        .await
        .into_iter()
        .flatten()
        .map(|a| a.to_string())
        .collect();
    checks.push(if lost.is_empty() {
        Check::ok(
            "gateways",
            format!(
                "{} of {} accept connections",
                addresses.len(),
                addresses.len()
            ),
        )
    } else {
        Check::fail(
            "gateways",
            format!(
                "no connection to {} of {}: {}",
                lost.len(),
                addresses.len(),
                lost.join(", ")
            ),
            "see whether the node runs, and whether a firewall stands between",
        )
    });
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    #[test]
    fn a_clock_may_be_off_by_a_few_seconds() {
        let now = Timestamp(1_000_000_000);
        assert_eq!(skew(now, Timestamp(now.0 - 3_000)).status, Status::Ok);
        assert_eq!(skew(now, Timestamp(now.0 + 3_000)).status, Status::Ok);
        let late = skew(now, Timestamp(now.0 - 60_000));
        assert_eq!(
            (late.status, late.found.contains("59 s")),
            (Status::Warn, true)
        );
    }
}
