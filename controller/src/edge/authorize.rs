//! What a machine may send and ask, decided by its certificate alone and by nothing that it says of itself. No I/O.

use fdn_core::AppName;
use fdn_core::enrol::{LeaseRequest, Machine, Role};
use fdn_core::message::Message;
use fdn_core::usage::{UsageBatch, UsageSums};

use crate::reconcile::node_registry::AdminState;

/// Why a machine is refused something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What it tried, as a metrics label.
    pub what: &'static str,
    /// The right that it lacks: the end of "it needs the right to".
    pub right: &'static str,
}

const fn refusal(what: &'static str, right: &'static str) -> Refusal {
    Refusal { what, right }
}

/// Authorizes a report. `informed` says whether the machine's cluster was ever informed of an app.
///
/// # Errors
/// When it is refused, with the reason.
pub fn report(
    machine: &Machine,
    message: &Message,
    informed: impl Fn(&AppName) -> bool,
) -> Result<(), Refusal> {
    match (machine.role, message) {
        (Role::Node, Message::NodeStatus(status)) => is_own(
            status.node == machine.name && status.cluster == machine.cluster,
            refusal("report", "report for another node"),
        ),
        (Role::Node, Message::RttReport(report)) => is_own(
            report.node == machine.name && report.cluster == machine.cluster,
            refusal("report", "report for another node"),
        ),
        (Role::Node, Message::RunReport(report)) => is_own(
            report
                .runs
                .iter()
                .all(|run| run.cluster == machine.cluster && informed(&run.app)),
            refusal(
                "report",
                "report runs of apps that its cluster does not serve",
            ),
        ),
        (Role::Dns, Message::DemandReport(report)) => is_own(
            report.server == machine.name.as_str(),
            refusal("report", "report for another DNS server"),
        ),
        (Role::Dns, _) => Err(refusal("report", "report anything but demand")),
        (Role::Node, _) => Err(refusal("report", "speak for controllers or DNS servers")),
    }
}

/// Checks the addresses that a node reports: users are sent there, and controllers ask for logs there.
///
/// # Errors
/// When it joined with other hosts.
pub fn addresses(admin_state: &AdminState, message: &Message) -> Result<(), Refusal> {
    match message {
        Message::NodeStatus(status) => is_own(admin_state.has_enrolled_hosts(status), ELSEWHERE),
        _ => Ok(()),
    }
}

/// The refusal for a node that reports other addresses than it joined with, in a status or when it renews its certificate.
pub const ELSEWHERE: Refusal = refusal(
    "address",
    "be reached elsewhere than it joined with; join it again if it moved",
);

/// Authorizes sums of usage.
///
/// # Errors
/// When they are refused, with the reason.
pub fn sums(
    machine: &Machine,
    sums: &UsageSums,
    informed: impl Fn(&AppName) -> bool,
) -> Result<(), Refusal> {
    usage(machine, sums.node == machine.name)?;
    is_own(
        sums.sums.iter().all(|sum| informed(&sum.app)),
        FOREIGN_USAGE,
    )
}

/// Authorizes records of usage.
///
/// # Errors
/// When they are refused, with the reason.
pub fn records(
    machine: &Machine,
    batch: &UsageBatch,
    informed: impl Fn(&AppName) -> bool,
) -> Result<(), Refusal> {
    usage(machine, batch.node == machine.name)?;
    is_own(
        batch.records.iter().all(|record| informed(&record.app)),
        FOREIGN_USAGE,
    )
}

const FOREIGN_USAGE: Refusal = refusal(
    "usage",
    "write usage of apps that its cluster does not serve",
);

fn usage(machine: &Machine, own: bool) -> Result<(), Refusal> {
    node(machine, "usage")?;
    is_own(own, refusal("usage", "write usage of another node"))
}

/// Authorizes a request for the lease of the cluster's head.
///
/// # Errors
/// When it is for another node, or comes from a DNS server.
pub fn lease(machine: &Machine, request: &LeaseRequest) -> Result<(), Refusal> {
    node(machine, "lease")?;
    is_own(
        request.node == machine.name,
        refusal("lease", "ask for a lease in another node's name"),
    )
}

/// Permits nodes, and refuses DNS servers.
///
/// # Errors
/// When the machine is a DNS server.
pub const fn node(machine: &Machine, what: &'static str) -> Result<(), Refusal> {
    match machine.role {
        Role::Node => Ok(()),
        Role::Dns => Err(refusal(what, "do what nodes do")),
    }
}

fn is_own(own: bool, refusal: Refusal) -> Result<(), Refusal> {
    if own { Ok(()) } else { Err(refusal) }
}

#[cfg(test)]
mod tests {
    use fdn_core::Timestamp;
    use fdn_core::message::{DemandReport, RttReport};

    use super::*;

    fn machine(text: &str) -> Machine {
        text.parse().expect("a machine")
    }

    fn rtt(node: &str, cluster: &str) -> Message {
        Message::RttReport(RttReport {
            cluster: cluster.parse().expect("cluster"),
            node: node.parse().expect("node"),
            samples: Vec::new(),
            links: Vec::new(),
        })
    }

    fn demand(server: &str) -> Message {
        Message::DemandReport(DemandReport {
            server: server.to_owned(),
            entries: Vec::new(),
        })
    }

    #[test]
    fn each_speaks_for_itself() {
        let node = machine("fdn://cluster/eu/node/a");
        let dns = machine("fdn://cluster/eu/dns/ns");
        let fine =
            |machine: &Machine, message: &Message| report(machine, message, |_| true).is_ok();
        assert!(fine(&node, &rtt("a", "eu")) && fine(&dns, &demand("ns")));
        for message in [rtt("b", "eu"), rtt("a", "us"), demand("a"), demand("ns")] {
            assert!(!fine(&node, &message), "{message:?}");
        }
        for message in [rtt("ns", "eu"), rtt("a", "eu"), demand("ns2")] {
            assert!(!fine(&dns, &message), "{message:?}");
        }
        let desired = Message::AppDesired(fdn_core::message::AppDesired {
            app: "hello".parse().expect("app"),
            revision: fdn_core::Revision(9),
            spec: None,
        });
        assert!(!fine(&node, &desired) && !fine(&dns, &desired));
    }

    #[test]
    fn a_node_is_reached_where_it_joined() {
        use crate::reconcile::node_registry::Hosts;

        let status = crate::fixture::status("a", "eu");
        let admin_state = |gateway, admin| AdminState {
            enrolled: [(status.node.clone(), Hosts::of(gateway, admin))].into(),
            ..AdminState::default()
        };
        let said = Message::NodeStatus(Box::new(status.clone()));
        let port = |mut at: std::net::SocketAddr| {
            at.set_port(at.port() ^ 1);
            at
        };
        let here = admin_state(port(status.gateway), port(status.admin));
        assert_eq!(addresses(&here, &said), Ok(()));
        let other: std::net::SocketAddr = "192.0.2.99:80".parse().expect("address");
        for moved in [
            admin_state(other, status.admin),
            admin_state(status.gateway, other),
        ] {
            let refused = addresses(&moved, &said).expect_err("elsewhere");
            assert_eq!(refused.what, "address");
        }
        assert_eq!(addresses(&AdminState::default(), &said), Ok(()), "unknown");
    }

    #[test]
    fn usage_is_of_apps_that_were_told() {
        let node = machine("fdn://cluster/eu/node/a");
        let batch = |of: &str| UsageSums {
            batch: fdn_core::BatchId::from_uuid(uuid::Uuid::from_u128(1)),
            node: of.parse().expect("node"),
            records: 1,
            sums: vec![fdn_core::usage::UsageSum {
                app: "hello".parse().expect("app"),
                function: "hello".parse().expect("function"),
                version: fdn_core::VersionNumber::FIRST,
                outcome: fdn_core::usage::UsageOutcome::Ok,
                first: Timestamp(1),
                records: 1,
                calls: 1,
                memory: 1,
                cpu: 1,
                gpu: 0,
                egress: 1,
            }],
        };
        assert_eq!(sums(&node, &batch("a"), |_| true), Ok(()));
        assert!(sums(&node, &batch("b"), |_| true).is_err());
        assert_eq!(sums(&node, &batch("a"), |_| false), Err(FOREIGN_USAGE));
        let dns = machine("fdn://cluster/eu/dns/a");
        assert!(sums(&dns, &batch("a"), |_| true).is_err());
    }
}
