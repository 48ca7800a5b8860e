//! `fdn describe`.

use fdn_core::api::AppDetail;
use fdn_core::message::{AppObserved, AppPhase};
use fdn_core::{FormName, Timestamp};
use serde::Serialize;

use super::client;
use super::objective::rollout_summary;
use crate::args::DescribeArgs;
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::output::{Report, age, indented, size, table, time};

/// Runs the command.
///
/// # Errors
/// When the controller cannot be reached, or the app does not exist.
pub async fn run(
    args: &DescribeArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let detail = client(&args.connect, env)?.app(&args.name).await?;
    console.report(
        args.output.output,
        &AppReport {
            detail: &detail,
            now: fdn_service::now(),
        },
    )
}

/// The details of an app in text form.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(transparent)]
pub struct AppReport<'a> {
    /// The controller's answer.
    pub detail: &'a AppDetail,
    /// The current time, for ages.
    #[serde(skip)]
    pub now: Timestamp,
}

/// A node's phase in one word, or the reason of its failure.
pub(super) fn phase(phase: &AppPhase) -> String {
    match phase {
        AppPhase::Fetching => "fetching".to_owned(),
        AppPhase::Compiling => "compiling".to_owned(),
        AppPhase::Ready => "ready".to_owned(),
        AppPhase::Failed { reason } => format!("failed: {reason}"),
    }
}

/// The state of an app on a node: its phase, and why it is degraded if it is.
fn standing(seen: &AppObserved) -> String {
    let phase = phase(&seen.phase);
    match &seen.degraded {
        // Only the first line; the output of the instance is in the JSON form.
        Some(reason) => {
            let reason = reason.lines().next().unwrap_or_default();
            format!("{phase}, degraded: {reason}")
        }
        None => phase,
    }
}

impl Report for AppReport<'_> {
    fn text(&self, wide: bool) -> String {
        let summary = &self.detail.summary;
        let mut rows = vec![
            vec!["name".into(), summary.app.to_string()],
            vec!["host".into(), summary.host.to_string()],
            vec!["version".into(), summary.version.to_string()],
            vec!["digest".into(), summary.digest.to_string()],
            vec![
                "nodes".into(),
                format!(
                    "{} of {} living nodes ready",
                    summary.nodes_ready, summary.nodes_total
                ),
            ],
            vec![
                "deployed".into(),
                format!(
                    "{} ({} ago)",
                    time(summary.deployed_at),
                    age(summary.deployed_at, self.now)
                ),
            ],
            vec!["revision".into(), summary.revision.to_string()],
        ];
        if !summary.labels.is_empty() {
            rows.push(vec!["labels".into(), summary.labels.to_string()]);
        }
        let mut text = table(&[], rows);
        let mut section = |title: &str, body: String| {
            text.push_str(&format!("\n{title}\n{}", indented(&body, 2)));
        };
        section("versions", self.versions(wide));
        if let Some(forms) = self.forms() {
            section("forms", forms);
        }
        if let Some(calls) = self.calls() {
            section("calls", calls);
        }
        if let Some(checks) = self.checks() {
            section("checked of the current version", checks);
        }
        section("nodes", self.nodes(wide));
        section("clients", self.bindings());
        if self.detail.workflow.stages().len() > 1 {
            section("stages", self.stages());
        }
        text
    }

    fn names(&self) -> Vec<String> {
        vec![self.detail.summary.app.to_string()]
    }
}

impl AppReport<'_> {
    fn versions(&self, wide: bool) -> String {
        let mut columns = vec![
            "VERSION", "SIZE", "AGE", "MEMORY", "TIMEOUT", "REUSE", "DIGEST",
        ];
        if wide {
            columns.extend(["CPU TIME", "ENV", "SECRETS", "ALLOWED HOSTS", "LABELS"]);
        }
        let rows = self.detail.versions.iter().map(|version| {
            let manifest = &version.manifest;
            let current = if version.version == self.detail.summary.version {
                " *"
            } else {
                ""
            };
            let mut cells = vec![
                format!("{}{current}", version.version),
                size(version.size),
                age(version.created_at, self.now),
                manifest.memory.to_string(),
                manifest.timeout.to_string(),
                manifest.reuse.to_string(),
                version.digest.short(),
            ];
            if wide {
                cells.push(manifest.cpu_time.to_string());
                cells.push(joined(manifest.env.keys()));
                cells.push(joined(manifest.secrets.iter()));
                cells.push(joined(manifest.allowed_hosts.iter()));
                cells.push(version.labels.to_string());
            }
            cells
        });
        table(&columns, rows)
    }

    /// The forms of versions that have several, and the clusters that serve the current version in each; `None` if no version has.
    fn forms(&self) -> Option<String> {
        let detail = self.detail;
        let clusters = |form: &FormName| {
            let served = detail.forms.iter();
            let served = served.filter(|(_, stages)| stages.values().any(|one| one == form));
            joined(served.map(|(cluster, _)| cluster))
        };
        let mut rows = Vec::new();
        for version in detail.versions.iter().filter(|v| !v.forms.is_empty()) {
            let is_current = version.version == detail.summary.version;
            let manifest = &version.manifest;
            let first = (
                FormName::main(),
                manifest.clone(),
                version.size,
                version.digest,
            );
            let others = version.forms.iter().map(|form| {
                let own = &form.manifest;
                (own.name.clone(), own.over(manifest), form.size, form.digest)
            });
            for (name, manifest, bytes, digest) in std::iter::once(first).chain(others) {
                let gpu = manifest.gpu.as_ref();
                rows.push(vec![
                    version.version.to_string(),
                    name.to_string(),
                    manifest.runtime.as_str().to_owned(),
                    size(bytes),
                    manifest.memory.to_string(),
                    gpu.map_or_else(|| "-".to_owned(), |gpu| gpu.total().to_string()),
                    manifest.expected.to_string(),
                    if is_current {
                        clusters(&name)
                    } else {
                        "-".to_owned()
                    },
                    digest.short(),
                ]);
            }
        }
        let columns = [
            "VERSION",
            "FORM",
            "RUNTIME",
            "SIZE",
            "MEMORY",
            "GPU MEMORY",
            "EXPECTED",
            "CLUSTERS",
            "DIGEST",
        ];
        (!rows.is_empty()).then(|| table(&columns, rows))
    }

    /// The traffic split, the observed version, bad versions and domains; `None` if all calls go to the current version at the app's own name.
    fn calls(&self) -> Option<String> {
        let detail = self.detail;
        let mut text = String::new();
        for share in &detail.traffic.split {
            text.push_str(&format!("{} weight {}\n", share.version, share.weight));
        }
        if let Some(rollout) = &detail.rollout {
            text.push_str(&rollout_summary(rollout));
        }
        for version in &detail.versions {
            if let Some(bad) = &version.bad {
                text.push_str(&format!("{} is bad: {}\n", version.version, bad.reason));
            }
        }
        for host in &detail.domains {
            text.push_str(&format!("answers to {host}\n"));
        }
        (!text.is_empty()).then_some(text)
    }

    /// The checks of the current version's upload, if they are recorded.
    fn checks(&self) -> Option<String> {
        let mut versions = self.detail.versions.iter();
        let current = versions.find(|version| version.version == self.detail.summary.version)?;
        let steps = current.validation.iter();
        let rows = steps.map(|s| vec![s.step.clone(), s.result.clone(), s.took.to_string()]);
        (!current.validation.is_empty()).then(|| table(&[], rows))
    }

    fn nodes(&self, wide: bool) -> String {
        if self.detail.nodes.is_empty() {
            return "no node lives\n".to_owned();
        }
        let mut columns = vec!["NODE", "CLUSTER", "CALLS", "ERRORS", "MEAN"];
        if wide {
            columns.push("REVISION");
        }
        // The last column, because the reason of a failure is long.
        columns.push("PHASE");
        let rows = self.detail.nodes.iter().map(|node| {
            let mut cells = vec![node.node.to_string(), node.cluster.to_string()];
            match &node.observed {
                Some(seen) => {
                    cells.extend([
                        seen.invocations.to_string(),
                        seen.errors.to_string(),
                        seen.execution_mean.to_string(),
                    ]);
                    if wide {
                        cells.push(seen.revision.to_string());
                    }
                    let behind = if seen.revision < self.detail.summary.revision {
                        " (an older version)"
                    } else {
                        ""
                    };
                    cells.push(standing(seen) + behind);
                }
                None => {
                    cells.extend(vec!["-".to_owned(); columns.len() - 3]);
                    cells.push("waiting".to_owned());
                }
            }
            cells
        });
        table(&columns, rows)
    }

    fn bindings(&self) -> String {
        if self.detail.bindings.is_empty() {
            return "none asked yet; each is sent to the nearest living cluster\n".to_owned();
        }
        let rows = self.detail.bindings.iter().map(|b| {
            vec![
                b.prefix.to_string(),
                b.cluster.to_string(),
                b.revision.to_string(),
            ]
        });
        table(&["CLIENTS", "CLUSTER", "REVISION"], rows)
    }

    fn stages(&self) -> String {
        let rows = self.detail.workflow.stages().iter().map(|s| {
            vec![
                s.name.to_string(),
                s.function.to_string(),
                s.version.to_string(),
            ]
        });
        table(&["STAGE", "FUNCTION", "VERSION"], rows)
    }
}

fn joined<T: ToString>(items: impl Iterator<Item = T>) -> String {
    let all: Vec<String> = items.map(|item| item.to_string()).collect();
    if all.is_empty() {
        "-".to_owned()
    } else {
        all.join(",")
    }
}
