//! `fdn node`.

use std::time::Duration;

use fdn_core::Timestamp;
use fdn_core::api::NodeInfo;
use fdn_core::enrol::Role;
use fdn_core::fleet::{CreateJoinToken, JoinTokenInfo, NodeDetail, NodeState};
use serde::Serialize;
use tokio::time::Instant;

use super::describe::phase;
use super::page::{device, free, left, rows, stages};
use super::{client, each, target};
use crate::args::{DrainArgs, NodeCommand, OneNodeArgs, RemoveNodeArgs, RestoreArgs, TokenArgs};
use crate::client::Client;
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::output::{Format, Listing, Report, Row, age, indented, table, time};
use crate::{input, progress};

/// How often the controller is polled while a node drains.
const INTERVAL: Duration = Duration::from_millis(300);

/// Runs the command.
///
/// # Errors
/// When the controller refuses or cannot be reached, or on a timeout.
pub async fn run(
    command: &NodeCommand,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    match command {
        NodeCommand::Token(args) => token(args, Role::Node, env, console).await,
        NodeCommand::List(args) => super::list::nodes(args, env, console).await,
        NodeCommand::Describe(args) => {
            let detail = client(&args.connect, env)?.node(&args.name).await?;
            report(args.output.output, &detail, console)
        }
        NodeCommand::Drain(args) => drain(args, env, console).await,
        NodeCommand::Uncordon(args) => uncordon(args, env, console).await,
        NodeCommand::Restore(args) => restore(args, env, console).await,
        NodeCommand::Remove(args) => remove(args, env, console).await,
    }
}

fn report(format: Format, detail: &NodeDetail, console: &mut Console) -> Result<(), CliError> {
    console.report(
        format,
        &NodeReport {
            detail,
            now: fdn_service::now(),
        },
    )
}

/// Creates, lists or revokes join tokens of a role.
pub(super) async fn token(
    args: &TokenArgs,
    role: Role,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let target = target(&args.connect, env)?;
    let client = Client::new(&target)?;
    if let Some(id) = args.revoke {
        client.revoke_join_token(id).await?;
        return console.line(&format!("took back {id}"));
    }
    let Some(cluster) = &args.cluster else {
        let mut rows = client.join_tokens().await?;
        rows.retain(|row| row.role == role);
        return console.report(
            args.output.output,
            &Listing {
                rows: &rows,
                nothing: match role {
                    Role::Node => "there is no join token; make one: fdn node token --cluster NAME",
                    Role::Dns => "there is no join token; make one: fdn dns token --cluster NAME",
                },
                now: fdn_service::now(),
            },
        );
    };
    let request = CreateJoinToken {
        role,
        cluster: cluster.clone(),
        ttl: args.ttl,
        uses: args.uses,
    };
    let made = client.create_join_token(&request).await?;
    if args.output.output != Format::Table {
        return console.report(args.output.output, &TokenReport(&made));
    }
    // Only the token goes to standard output, so that it can be redirected to a file.
    console.line(&made.token)?;
    let machines = if args.uses == 1 {
        "one machine".to_owned()
    } else {
        format!("{} machines", args.uses)
    };
    let (program, kind) = match role {
        Role::Node => ("fdn-edge-agent", "nodes"),
        Role::Dns => ("fdn-dns", "DNS servers"),
    };
    let trusting = target.ca_file.map_or("", |_| " --ca-file FILE");
    console.note(&format!(
        "lets {machines} into cluster {cluster} as {kind} for {}; it is not shown again\n\
         join with: {program} join {} --token-file FILE{trusting}",
        args.ttl,
        client.place()
    ));
    Ok(())
}

/// A created token, for scripts.
#[derive(Serialize)]
#[serde(transparent)]
struct TokenReport<'a>(&'a fdn_core::fleet::CreatedJoinToken);

impl Report for TokenReport<'_> {
    fn text(&self, _: bool) -> String {
        format!("{}\n", self.0.token)
    }

    fn names(&self) -> Vec<String> {
        vec![self.0.info.id.to_string()]
    }
}

async fn drain(args: &DrainArgs, env: &Environment, console: &mut Console) -> Result<(), CliError> {
    let client = client(&args.connect, env)?;
    let mut detail = client.drain(&args.name).await?;
    if !args.no_wait {
        detail = until_drained(&client, args, console).await?;
    }
    if args.output.output != Format::Table {
        return report(args.output.output, &detail, console);
    }
    console.line(&format!("{} is {}", args.name, detail.info.state.as_str()))
}

/// Waits until a node has no work left.
async fn until_drained(
    client: &Client,
    args: &DrainArgs,
    console: &mut Console,
) -> Result<NodeDetail, CliError> {
    let deadline = Instant::now() + args.timeout.as_duration();
    let spinner = progress::spinner(console, "waiting for what runs to end");
    let result = loop {
        let detail = match client.node(&args.name).await {
            Ok(detail) => detail,
            Err(error) => break Err(error),
        };
        match detail.info.state {
            // There is no process that could take or do work.
            NodeState::Drained | NodeState::Lost | NodeState::Joined => break Ok(detail),
            NodeState::Alive | NodeState::Draining => {}
        }
        if Instant::now() + INTERVAL > deadline {
            break Err(CliError::Timeout(format!(
                "{} is {} after {}: {} calls run; it takes no new ones, ask again or remove it with --force",
                args.name,
                detail.info.state.as_str(),
                args.timeout,
                detail.info.busy
            )));
        }
        tokio::time::sleep(INTERVAL).await;
    };
    spinner.finish_and_clear();
    result
}

async fn uncordon(
    args: &OneNodeArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let detail = client(&args.connect, env)?.uncordon(&args.name).await?;
    if args.output.output != Format::Table {
        return report(args.output.output, &detail, console);
    }
    console.line(&format!("{} may take work", args.name))
}

async fn restore(
    args: &RestoreArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let client = client(&args.connect, env)?;
    let detail = client.restore_device(&args.name, &args.device).await?;
    if args.output.output != Format::Table {
        return report(args.output.output, &detail, console);
    }
    console.line(&format!(
        "{} puts {} back into service",
        args.name, args.device
    ))
}

async fn remove(
    args: &RemoveNodeArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let client = client(&args.connect, env)?;
    if !args.yes {
        let names: Vec<String> = args.names.iter().map(ToString::to_string).collect();
        let question = format!("remove {} from {}?", names.join(", "), client.place());
        input::confirm(console, &question)?;
    }
    each(&args.names, console, async |name| {
        let removed = client.remove_node(name, args.force).await;
        removed.map(|()| format!("removed {name}"))
    })
    .await
}

impl Row for JoinTokenInfo {
    const COLUMNS: &'static [&'static str] = &[
        "ID",
        "CLUSTER",
        "USES LEFT",
        "ENDS",
        "STATE",
        "REGION",
        "AGE",
        "BY",
    ];
    const NARROW: usize = 5;

    fn cells(&self, now: Timestamp) -> Vec<String> {
        let state = match (self.revoked_at, self.is_open(now)) {
            (Some(_), _) => "taken back",
            (None, true) => "open",
            (None, false) if self.uses_left == 0 => "used up",
            (None, false) => "over",
        };
        vec![
            self.id.to_string(),
            self.cluster.to_string(),
            format!("{}/{}", self.uses_left, self.uses),
            left(self.expires_at, now),
            state.to_owned(),
            self.region.to_string(),
            age(self.created_at, now),
            self.created_by.clone(),
        ]
    }

    fn name(&self) -> String {
        self.id.to_string()
    }
}

/// The details of a node in text form.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(transparent)]
pub struct NodeReport<'a> {
    /// The controller's answer.
    pub detail: &'a NodeDetail,
    /// The current time, for ages.
    #[serde(skip)]
    pub now: Timestamp,
}

/// The state in one word, and whether the node is to be drained.
pub(super) fn state(info: &NodeInfo) -> String {
    match (info.state, info.cordoned) {
        // The node does not know about the drain yet, or cannot.
        (NodeState::Alive | NodeState::Joined | NodeState::Lost, true) => {
            format!("{}, to drain", info.state.as_str())
        }
        (state, _) => state.as_str().to_owned(),
    }
}

impl Report for NodeReport<'_> {
    fn text(&self, _: bool) -> String {
        let mut text = table(&[], self.head());
        text.push_str(&format!("\napps\n{}", indented(&self.apps(), 2)));
        text
    }

    fn names(&self) -> Vec<String> {
        vec![self.detail.info.node.to_string()]
    }
}

impl NodeReport<'_> {
    fn head(&self) -> Vec<Vec<String>> {
        let (detail, info) = (self.detail, &self.detail.info);
        let or_dash = |text: &str| if text.is_empty() { "-" } else { text }.to_owned();
        let enrolled = detail.enrolled_at.map_or_else(
            || "no".to_owned(),
            |at| format!("{} ({} ago)", time(at), age(at, self.now)),
        );
        let certificate = detail.certificate.as_ref().map_or_else(
            || "-".to_owned(),
            |one| {
                let left = left(one.expires_at, self.now);
                format!("{} until {} ({left})", one.serial, time(one.expires_at))
            },
        );
        let (waiting, counted) = detail
            .status
            .as_ref()
            .map_or((0, None), |status| (status.waiting, status.stages));
        let mut all = rows([
            ("node", info.node.to_string()),
            ("cluster", info.cluster.to_string()),
            ("region", detail.region.to_string()),
            ("state", state(info)),
            ("seen", format!("{} ago", age(info.seen_at, self.now))),
            ("version", or_dash(&info.version)),
            ("gateway", info.gateway.to_string()),
            ("admin", info.admin.to_string()),
            ("enrolled", enrolled),
            ("certificate", certificate),
        ]);
        all.extend(free(&info.free, &info.capacity));
        all.extend(rows([(
            "calls",
            format!("{} of {} run, {waiting} wait", info.busy, info.slots),
        )]));
        if counted.is_some() {
            all.extend(rows([("stages", stages(counted))]));
        }
        let devices = detail.status.iter().flat_map(|status| &status.devices);
        all.extend(devices.flat_map(|one| rows([("device", device(one))])));
        all
    }

    fn apps(&self) -> String {
        if self.detail.info.apps.is_empty() {
            return "none\n".to_owned();
        }
        let rows = self.detail.info.apps.iter().map(|app| {
            vec![
                app.app.to_string(),
                app.invocations.to_string(),
                app.errors.to_string(),
                app.execution_mean.to_string(),
                app.revision.to_string(),
                phase(&app.phase),
            ]
        });
        table(
            &["APP", "CALLS", "ERRORS", "MEAN", "REVISION", "PHASE"],
            rows,
        )
    }
}
