//! Workflows over agents of several clusters.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use fdn_core::fleet::FleetDesired;
use fdn_core::manifest::Manifest;
use fdn_core::message::{AppDesired, AppPhase, AppSpec, FunctionSpec, NodeStatus};
use fdn_core::workflow::{Declaration, FunctionLookup, RunSpec};
use fdn_core::{ClusterId, Digest, VersionNumber};
use fdn_edge_agent::Settings;

use super::{Network, host};

/// Settings of a node of `cluster` that accepts stage calls, on loopback addresses.
pub(crate) fn settings(network: &Network, node: &str, cluster: &str) -> Settings {
    let mut settings = network.settings(node);
    settings.cluster = cluster.parse().expect("cluster");
    settings.workflows.enabled = true;
    settings.workflows.plaintext = true;
    settings.workflows.listen = SocketAddr::from(([127, 0, 0, 1], 0));
    settings
}

/// A function of a workflow: its name, its component, whether it is idempotent.
pub(crate) type Function<'a> = (&'a str, Vec<u8>, bool);

/// The desired state of a workflow as from the controller: `places` names the stages that run elsewhere for calls that come to eu-west.
pub(crate) fn desired(
    network: &Network,
    app: &str,
    declaration: &str,
    functions: &[Function<'_>],
    places: &[(&str, &str)],
) -> AppDesired {
    let declared = Declaration::parse(declaration).expect("a declaration");
    let definition = declared.resolve(|_, _| FunctionLookup::Version(VersionNumber::FIRST));
    let definition = definition.expect("a workflow");
    let functions = functions.iter().map(|(name, component, idempotent)| {
        network.controller.store(component);
        FunctionSpec {
            function: name.parse().expect("function"),
            version: VersionNumber::FIRST,
            digest: Digest::of(component),
            size: component.len() as u64,
            manifest: Manifest {
                idempotent: *idempotent,
                ..Manifest::default()
            },
            secrets: BTreeMap::new(),
            forms: Vec::new(),
        }
    });
    let places = places.iter().map(|(stage, cluster)| {
        let cluster: ClusterId = cluster.parse().expect("cluster");
        (stage.parse().expect("stage"), cluster)
    });
    let eu: ClusterId = "eu-west".parse().expect("cluster");
    let spec = AppSpec {
        holders: fdn_core::message::Holders::EVERYWHERE,
        gateway: Box::default(),
        host: host(app).parse().expect("host"),
        functions: functions.collect(),
        workflow: definition.workflow,
        primary: BTreeSet::from([eu.clone(), "us-east".parse().expect("cluster")]),
        leaving: BTreeSet::new(),
        run: Some(Box::new(RunSpec {
            timeout: definition.timeout,
            rules: definition.rules,
            placement: BTreeMap::from([(eu, places.collect())]),
        })),
        forms: Default::default(),
        tenant: None,
    };
    AppDesired {
        app: app.parse().expect("app"),
        revision: network.next_revision(),
        spec: Some(spec),
    }
}

/// Sends a workflow, and waits until `node` serves it.
pub(crate) async fn deploy(network: &Network, node: &str, desired: AppDesired) {
    network.controller.set(desired.clone());
    network.tell(desired.clone()).await;
    network
        .until_known(desired.app.as_str(), desired.revision)
        .await;
    let ready = |status: &NodeStatus| {
        status.node.as_str() == node
            && status.apps.iter().any(|app| {
                app.app == desired.app
                    && app.revision == desired.revision
                    && app.phase == AppPhase::Ready
            })
    };
    network.until_status(ready).await;
}

/// Announces the addresses at which the agents of us-east accept stage calls.
pub(crate) async fn tell_addresses(network: &Network, us: &[SocketAddr], authorities: Vec<String>) {
    let fleet = FleetDesired {
        revision: network.next_revision(),
        stage_calls: BTreeMap::from([("us-east".parse().expect("cluster"), us.to_vec())]),
        authorities,
        ..FleetDesired::default()
    };
    network.tell_fleet(fleet).await;
}
