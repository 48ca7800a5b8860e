//! `fdn list`, `fdn cluster list`, `fdn node list`.

use fdn_core::Timestamp;
use fdn_core::api::{AppSummary, ClusterInfo, NodeInfo};
use fdn_core::message::AppPhase;

use super::client;
use super::owner::Names;
use crate::args::{ListArgs, ShowArgs};
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::output::{Listing, Row, age};

/// `fdn list`.
///
/// # Errors
/// When the controller cannot be reached.
pub async fn apps(
    args: &ListArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let client = client(&args.connect, env)?;
    let apps = client
        .apps(args.tenant.as_ref(), args.label.as_deref())
        .await?;
    let names = Names::of(&client, args.output.output).await;
    let rows: Vec<_> = apps
        .iter()
        .map(|app| names.row(app, Some(app.tenant)))
        .collect();
    let nothing = "nothing is deployed; try: fdn deploy NAME FILE";
    console.report(
        args.output.output,
        &Listing {
            rows: &rows,
            nothing,
            now: fdn_service::now(),
        },
    )
}

/// `fdn cluster list`.
///
/// # Errors
/// When the controller cannot be reached.
pub async fn clusters(
    args: &ShowArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let rows = client(&args.connect, env)?.clusters().await?;
    let nothing = "there is no cluster; make one with fdn cluster create, or start fdn up";
    console.report(
        args.output.output,
        &Listing {
            rows: &rows,
            nothing,
            now: fdn_service::now(),
        },
    )
}

/// `fdn node list`.
///
/// # Errors
/// When the controller cannot be reached.
pub async fn nodes(
    args: &ShowArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let rows = client(&args.connect, env)?.nodes().await?;
    let nothing = "there is no node; let one in with fdn node token, or start fdn up";
    console.report(
        args.output.output,
        &Listing {
            rows: &rows,
            nothing,
            now: fdn_service::now(),
        },
    )
}

impl Row for AppSummary {
    const COLUMNS: &'static [&'static str] = &[
        "NAME", "VERSION", "NODES", "HOST", "AGE", "DIGEST", "REVISION", "TENANT", "LABELS",
    ];
    const NARROW: usize = 5;

    fn cells(&self, now: Timestamp) -> Vec<String> {
        vec![
            self.app.to_string(),
            self.version.to_string(),
            format!("{}/{}", self.nodes_ready, self.nodes_total),
            self.host.to_string(),
            age(self.deployed_at, now),
            self.digest.short(),
            self.revision.to_string(),
            self.tenant.to_string(),
            self.labels.to_string(),
        ]
    }

    fn name(&self) -> String {
        self.app.to_string()
    }
}

impl Row for ClusterInfo {
    const COLUMNS: &'static [&'static str] = &[
        "CLUSTER",
        "REGION",
        "NODES",
        "BUSY",
        "CPU FREE",
        "MEMORY FREE",
        "GATEWAYS",
        "LOCATION",
        "SPEED",
        "CPU",
        "MEMORY",
    ];
    const NARROW: usize = 7;

    fn cells(&self, _: Timestamp) -> Vec<String> {
        let gateways: Vec<String> = self.gateways.iter().map(ToString::to_string).collect();
        vec![
            self.cluster.to_string(),
            self.region.to_string(),
            format!("{}/{}", self.nodes_alive, self.nodes_total),
            format!("{}/{}", self.busy, self.slots),
            self.free.cpu_milli.to_string(),
            self.free.memory_mib.to_string(),
            gateways.join(","),
            format!("{:.2},{:.2}", self.location.lat(), self.location.lon()),
            format!("{:.2}", self.speed),
            self.capacity.cpu_milli.to_string(),
            self.capacity.memory_mib.to_string(),
        ]
    }

    fn name(&self) -> String {
        self.cluster.to_string()
    }
}

impl Row for NodeInfo {
    const COLUMNS: &'static [&'static str] = &[
        "NODE",
        "CLUSTER",
        "STATE",
        "GATEWAY",
        "BUSY",
        "APPS",
        "SEEN",
        "ADMIN",
        "VERSION",
        "CPU FREE",
        "CPU",
        "MEMORY FREE",
        "MEMORY",
    ];
    const NARROW: usize = 7;

    fn cells(&self, now: Timestamp) -> Vec<String> {
        let ready = self
            .apps
            .iter()
            .filter(|a| a.phase == AppPhase::Ready)
            .count();
        vec![
            self.node.to_string(),
            self.cluster.to_string(),
            super::node::state(self),
            self.gateway.to_string(),
            format!("{}/{}", self.busy, self.slots),
            format!("{ready}/{}", self.apps.len()),
            age(self.seen_at, now),
            self.admin.to_string(),
            self.version.clone(),
            self.free.cpu_milli.to_string(),
            self.capacity.cpu_milli.to_string(),
            self.free.memory_mib.to_string(),
            self.capacity.memory_mib.to_string(),
        ]
    }

    fn name(&self) -> String {
        self.node.to_string()
    }
}
