//! `fdn cluster`.

use fdn_core::Timestamp;
use fdn_core::fleet::{ClusterDetail, ClusterLink, CreateCluster};
use serde::Serialize;

use super::client;
use super::page::{device, free, rows, stages};
use crate::args::{ClusterCommand, CreateClusterArgs, DescribeClusterArgs};
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::output::{Format, Listing, Report, indented, table};

/// The most other clusters that are shown, nearest first.
const LINKS: usize = 8;

/// Runs the command.
///
/// # Errors
/// When the controller refuses or cannot be reached.
pub async fn run(
    command: &ClusterCommand,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    match command {
        ClusterCommand::Create(args) => create(args, env, console).await,
        ClusterCommand::List(args) => super::list::clusters(args, env, console).await,
        ClusterCommand::Describe(args) => describe(args, env, console).await,
    }
}

async fn create(
    args: &CreateClusterArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let request = CreateCluster {
        cluster: args.name.clone(),
        region: args.region.clone(),
        location: args.location,
    };
    let made = client(&args.connect, env)?.create_cluster(&request).await?;
    if args.output.output == Format::Table {
        console.line(&format!(
            "made cluster {} in region {}",
            made.cluster, made.region
        ))?;
        console.note(&format!(
            "let machines in with: fdn node token --cluster {}",
            made.cluster
        ));
        return Ok(());
    }
    let rows = [made];
    console.report(
        args.output.output,
        &Listing {
            rows: &rows,
            nothing: "",
            now: fdn_service::now(),
        },
    )
}

async fn describe(
    args: &DescribeClusterArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let detail = client(&args.connect, env)?.cluster(&args.name).await?;
    console.report(
        args.output.output,
        &ClusterReport {
            detail: &detail,
            now: fdn_service::now(),
        },
    )
}

/// The details of a cluster in text form.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(transparent)]
pub struct ClusterReport<'a> {
    /// The controller's answer.
    pub detail: &'a ClusterDetail,
    /// The current time, for ages.
    #[serde(skip)]
    pub now: Timestamp,
}

impl Report for ClusterReport<'_> {
    fn text(&self, wide: bool) -> String {
        let mut text = table(&[], self.head());
        let nodes = if self.detail.nodes.is_empty() {
            format!(
                "none; let machines in with: fdn node token --cluster {}\n",
                self.detail.info.cluster
            )
        } else {
            Listing {
                rows: &self.detail.nodes,
                nothing: "",
                now: self.now,
            }
            .text(wide)
        };
        text.push_str(&format!("\nnodes\n{}", indented(&nodes, 2)));
        text
    }

    fn names(&self) -> Vec<String> {
        vec![self.detail.info.cluster.to_string()]
    }
}

impl ClusterReport<'_> {
    fn head(&self) -> Vec<Vec<String>> {
        let (detail, info) = (self.detail, &self.detail.info);
        let versions: Vec<String> = detail
            .versions
            .iter()
            .map(|(version, nodes)| format!("{version} on {nodes}"))
            .collect();
        let head = detail.head.as_ref().map_or_else(
            || "-".to_owned(),
            |head| {
                let left = head.expires_at.since(self.now).as_secs();
                format!("{} (epoch {}, {left}s left)", head.node, head.epoch)
            },
        );
        let mut all = rows([
            ("cluster", info.cluster.to_string()),
            ("region", info.region.to_string()),
            (
                "location",
                format!("{:.2},{:.2}", info.location.lat(), info.location.lon()),
            ),
            (
                "nodes",
                format!("{} of {} alive", info.nodes_alive, info.nodes_total),
            ),
        ]);
        all.extend(free(&info.free, &info.capacity));
        all.extend(rows([
            (
                "calls",
                format!(
                    "{} of {} run, {} wait",
                    info.busy, info.slots, detail.waiting
                ),
            ),
            ("stages", stages(detail.stages)),
            ("head", head),
            (
                "versions",
                if versions.is_empty() {
                    "-".to_owned()
                } else {
                    versions.join(", ")
                },
            ),
        ]));
        let devices = detail.statuses.iter().flat_map(|status| {
            let of_node = |one| format!("{}: {}", status.node, device(one));
            status.devices.iter().map(of_node)
        });
        all.extend(devices.flat_map(|one| rows([("device", one)])));
        let near = detail.links.iter().take(LINKS).map(link);
        all.extend(near.flat_map(|one| rows([("link", one)])));
        if let Some(more) = detail
            .links
            .len()
            .checked_sub(LINKS)
            .filter(|more| *more > 0)
        {
            all.extend(rows([("", format!("{more} more: --output json"))]));
        }
        all
    }
}

/// The distance to another cluster.
fn link(link: &ClusterLink) -> String {
    let ClusterLink {
        cluster,
        rtt_ms,
        source,
    } = link;
    format!("{cluster} {:.1} ms ({})", rtt_ms.get(), source.as_str())
}
