//! Asks nodes at their admin listeners whether they can do their work, and for the time.

use std::collections::BTreeMap;
use std::time::Duration;

use fdn_core::Timestamp;
use fdn_core::api::NodeInfo;
use serde::Deserialize;

use super::Check;
use crate::client::{Client, date_header};

/// The timeout of a request.
const PATIENCE: Duration = Duration::from_secs(3);
/// The most nodes that are asked: enough to find a problem.
const NODES_MAX: usize = 256;
/// The most nodes that are named.
const NAMED: usize = 8;

/// A condition of a node's `/readyz`.
#[derive(Clone, Debug, Deserialize)]
struct Condition {
    ok: bool,
    #[serde(default)]
    detail: String,
}

/// The answer of one node.
struct NodeReadiness {
    /// Why it cannot do its work, with the node's name.
    trouble: Vec<String>,
    /// Its clock skew, with the node's name.
    clock: Option<String>,
}

/// Adds the checks. If the admin listeners cannot be reached from here, there is nothing to report: use `/readyz` and the alerts then.
pub(super) async fn check(client: &Client, checks: &mut Vec<Check>) {
    let (Ok(nodes), Ok(http)) = (
        client.nodes().await,
        fdn_service::http_client::build_direct(PATIENCE),
    ) else {
        // The check of gateways reports this.
        return;
    };
    let alive = nodes.iter().filter(|node| node.alive).take(NODES_MAX);
    let asked = alive.map(|node| tokio::time::timeout(PATIENCE, ask(&http, node)));
    let reports: Vec<NodeReadiness> = futures::future::join_all(asked)
        .await
        .into_iter()
        .filter_map(|report| report.ok().flatten())
        .collect();
    if !reports.is_empty() {
        checks.extend(node_checks(&reports));
    }
}

async fn ask(http: &reqwest::Client, node: &NodeInfo) -> Option<NodeReadiness> {
    let url = format!("http://{}/readyz", node.admin);
    let answer = http.get(url).send().await.ok()?;
    let theirs = answer
        .headers()
        .get("date")
        .and_then(|value| date_header(value.to_str().ok()?));
    let conditions: BTreeMap<String, Condition> = answer.json().await.ok()?;
    Some(node_readiness(
        node.node.as_str(),
        &conditions,
        fdn_service::now(),
        theirs,
    ))
}

fn node_readiness(
    node: &str,
    conditions: &BTreeMap<String, Condition>,
    ours: Timestamp,
    theirs: Option<Timestamp>,
) -> NodeReadiness {
    let failing = conditions.iter().filter(|(_, condition)| !condition.ok);
    let off = theirs.and_then(|theirs| super::network::clock_skew(ours, theirs));
    NodeReadiness {
        trouble: failing
            .map(|(name, condition)| format!("{node}: {name}: {}", condition.detail))
            .collect(),
        clock: off.map(|off| format!("{node} by {} s", off.as_secs())),
    }
}

fn node_checks(reports: &[NodeReadiness]) -> [Check; 2] {
    let count = reports.len();
    let trouble: Vec<&String> = reports.iter().flat_map(|report| &report.trouble).collect();
    let clocks: Vec<&String> = reports
        .iter()
        .filter_map(|report| report.clock.as_ref())
        .collect();
    let readiness = if trouble.is_empty() {
        Check::ok("readiness", format!("{count} nodes can do their work"))
    } else {
        Check::warn(
            "readiness",
            named(&trouble),
            "see the log of the node, and `fdn node describe NODE`",
        )
    };
    let clock = if clocks.is_empty() {
        Check::ok(
            "node clocks",
            format!("those of {count} nodes agree with this machine's"),
        )
    } else {
        Check::warn(
            "node clocks",
            format!("off this machine's: {}", named(&clocks)),
            "set the clocks by NTP (timedatectl set-ntp true); if all are off, it is this machine's",
        )
    };
    [readiness, clock]
}

/// The names of the first few.
fn named(all: &[&String]) -> String {
    let names: Vec<&str> = all.iter().take(NAMED).map(|name| name.as_str()).collect();
    let more = all.len().saturating_sub(NAMED);
    match more {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000_000_000);

    fn conditions(text: &str) -> BTreeMap<String, Condition> {
        serde_json::from_str(text).expect("conditions")
    }

    #[test]
    fn a_node_that_takes_no_calls_and_one_whose_clock_is_off_are_named() {
        let well = conditions(r#"{"apps":{"ok":true,"detail":"settled"}}"#);
        let full = conditions(
            r#"{"apps":{"ok":true,"detail":""},"usage":{"ok":false,"detail":"no space left"}}"#,
        );
        let all = [
            node_readiness("n-1", &well, NOW, Some(Timestamp(NOW.0 + 2_000))),
            node_readiness("n-2", &full, NOW, Some(NOW)),
            node_readiness("n-3", &well, NOW, Some(Timestamp(NOW.0 - 3_600_000))),
        ];
        let [readiness, clock] = node_checks(&all);
        assert_eq!(
            (readiness.status, &*readiness.found),
            (Status::Warn, "n-2: usage: no space left")
        );
        assert_eq!(
            (clock.status, &*clock.found),
            (Status::Warn, "off this machine's: n-3 by 3599 s")
        );
        let [readiness, clock] = node_checks(&all[..1]);
        assert_eq!((readiness.status, clock.status), (Status::Ok, Status::Ok));
    }

    #[test]
    fn of_many_the_first_are_named() {
        let names: Vec<String> = (0..10).map(|n| format!("n-{n}")).collect();
        let all: Vec<&String> = names.iter().collect();
        assert!(named(&all).ends_with("n-7 and 2 more"), "{}", named(&all));
    }
}
