//! The desired state of an app for nodes and DNS servers, built from its rows, and its publication.

use std::collections::{BTreeMap, BTreeSet};

use fdn_core::form::FormChoices;
use fdn_core::message::{
    AppBindings, AppDesired, AppSpec, BindingsChanged, BindingsDesired, FunctionSpec, Message,
    TxtDesired,
};
use fdn_core::policy::{GatewaySpec, Traffic};
use fdn_core::workflow::{RunSpec, Workflow};
use fdn_core::{ClientPrefix, ClusterId, Revision, StageName, TenantId, Timestamp};
use sqlx::AnyConnection;

use crate::store::StoreError;
use crate::store::app::AppRow;
use crate::store::binding::{BindingRow, binding_list};
use crate::store::outbox::outbox_push;
use crate::store::plan::{PlanRow, plan_list_of};
use crate::store::policy::gateway_get;
use crate::store::txt::{txt_delete, txt_list_of_app};
use crate::store::version::{VersionRow, version_get};

/// The desired state for nodes. `versions` are those that the workflow refers to, `gateway` is the app's gateway configuration.
#[must_use]
pub fn app_desired(
    app: &AppRow,
    versions: &[VersionRow],
    planned: NodePlan,
    gateway: GatewaySpec,
) -> AppDesired {
    let functions = versions
        .iter()
        .map(|version| FunctionSpec {
            function: version.function.clone(),
            version: version.number,
            digest: version.digest,
            size: version.size,
            manifest: version.manifest.clone(),
            secrets: version.secrets.clone(),
            forms: version.forms.clone(),
        })
        .collect();
    let has_forms = versions.iter().any(|version| !version.forms.is_empty());
    AppDesired {
        app: app.name.clone(),
        revision: app.revision,
        spec: Some(AppSpec {
            host: app.host.clone(),
            workflow: app.workflow.clone(),
            functions,
            primary: app.primaries.clone(),
            leaving: planned.leaving,
            holders: app.holders.clone(),
            run: app.definition.as_ref().map(|definition| {
                Box::new(RunSpec {
                    timeout: definition.timeout,
                    rules: definition.rules.clone(),
                    placement: planned.stages,
                })
            }),
            gateway: Box::new(gateway),
            // A choice made for an earlier version does not apply to one with a single form.
            forms: if has_forms {
                app.forms.clone()
            } else {
                FormChoices::new()
            },
            tenant: Some(app.tenant.tag()),
        }),
    }
}

/// The desired bindings for DNS servers; `ttl_s` is the network's default time to live.
#[must_use]
pub fn bindings_desired(app: &AppRow, bindings: &[BindingRow], ttl_s: u32) -> BindingsDesired {
    BindingsDesired {
        app: app.name.clone(),
        revision: app.bindings_revision,
        state: Some(AppBindings {
            host: app.host.clone(),
            ttl_s: app.ttl_s(ttl_s),
            bindings: bindings
                .iter()
                .map(|binding| (binding.prefix, binding.cluster.clone()))
                .collect(),
            holders: app.answering.clone(),
        }),
    }
}

/// The versions that an app's workflow refers to, without duplicates, in the order of the stages.
///
/// # Errors
/// When the database fails or one of them is missing.
pub async fn versions_of(
    connection: &mut AnyConnection,
    app: &AppRow,
) -> Result<Vec<VersionRow>, StoreError> {
    versions_of_workflow(connection, app.tenant, &app.workflow).await
}

/// The versions that a workflow refers to, without duplicates, in the order of the stages.
///
/// # Errors
/// When the database fails or one of them is missing.
pub async fn versions_of_workflow(
    connection: &mut AnyConnection,
    tenant: TenantId,
    workflow: &Workflow,
) -> Result<Vec<VersionRow>, StoreError> {
    let mut versions: Vec<VersionRow> = Vec::new();
    for stage in workflow.stages() {
        if versions
            .iter()
            .any(|known| known.function == stage.function && known.number == stage.version)
        {
            continue;
        }
        let found = version_get(connection, tenant, &stage.function, stage.version).await?;
        versions.push(found.ok_or_else(|| {
            StoreError::corrupt(
                "apps.workflow",
                format!(
                    "{} {} of stage {} is missing",
                    stage.function, stage.version, stage.name
                ),
            )
        })?);
    }
    Ok(versions)
}

/// By entry cluster, then by stage: the cluster that runs the stage, for stages that do not run in the entry cluster itself.
pub type StageMaps = BTreeMap<ClusterId, BTreeMap<StageName, ClusterId>>;

/// The parts of an app's plans that nodes need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodePlan {
    /// Where the stages of a workflow run; empty for a plain function.
    pub stages: StageMaps,
    /// The clusters that have the app loaded although no plan uses them any more.
    pub leaving: BTreeSet<ClusterId>,
}

/// Reads the parts of an app's plans that nodes need.
///
/// # Errors
/// When the database fails.
pub async fn node_plan_of(
    connection: &mut AnyConnection,
    app: &AppRow,
) -> Result<NodePlan, StoreError> {
    // If a single cluster has it loaded, that is the one that the plans use.
    if app.definition.is_none() && app.primaries.len() < 2 {
        return Ok(NodePlan::default());
    }
    let plans = plan_list_of(connection, &app.name).await?;
    let used: BTreeSet<ClusterId> = plans
        .iter()
        .flat_map(|plan| plan.stages.values().cloned())
        .collect();
    Ok(NodePlan {
        stages: match app.definition {
            Some(_) => {
                let bindings = binding_list(connection, &app.name).await?;
                stage_maps(&app.workflow, &plans, &bindings)
            }
            None => StageMaps::new(),
        },
        leaving: left_clusters(&app.primaries, &used),
    })
}

/// The clusters that have an app loaded although its plans do not use them; empty as long as there is no plan.
#[must_use]
pub fn left_clusters(
    primaries: &BTreeSet<ClusterId>,
    used: &BTreeSet<ClusterId>,
) -> BTreeSet<ClusterId> {
    if used.is_empty() {
        return BTreeSet::new();
    }
    primaries.difference(used).cloned().collect()
}

/// Where an app's stages run, for nodes. Of several plans with the same entry cluster, the one with the most bindings counts: a gateway
/// knows its cluster, but not its client's group. Stages in the entry cluster itself are left out, so that the message stays small.
fn stage_maps(workflow: &Workflow, plans: &[PlanRow], bindings: &[BindingRow]) -> StageMaps {
    let entry = &workflow.entry().name;
    let weight = |plan: &PlanRow| bindings.iter().filter(|b| b.group == plan.group).count();
    let mut best: BTreeMap<&ClusterId, (usize, &PlanRow)> = BTreeMap::new();
    for plan in plans {
        let Some(cluster) = plan.stages.get(entry) else {
            continue;
        };
        let weight = weight(plan);
        let known = best.entry(cluster).or_insert((weight, plan));
        if weight > known.0 {
            *known = (weight, plan);
        }
    }
    let map = |(cluster, (_, plan)): (&ClusterId, (usize, &PlanRow))| {
        let known = |stage: &StageName| workflow.stages().iter().any(|one| one.name == *stage);
        let elsewhere = plan.stages.iter();
        let elsewhere = elsewhere.filter(|(stage, at)| *at != cluster && known(stage));
        let elsewhere = elsewhere.map(|(stage, at)| (stage.clone(), at.clone()));
        (cluster.clone(), elsewhere.collect())
    };
    best.into_iter().map(map).collect()
}

/// The versions of the workflow, followed by those of the app's traffic split.
///
/// # Errors
/// When the database fails or one of them is missing.
pub async fn versions_served(
    connection: &mut AnyConnection,
    app: &AppRow,
    traffic: &Traffic,
) -> Result<Vec<VersionRow>, StoreError> {
    let mut versions = versions_of(connection, app).await?;
    let function = &app.workflow.entry().function;
    for share in &traffic.split {
        let known = |v: &VersionRow| v.function == *function && v.number == share.version;
        if versions.iter().any(known) {
            continue;
        }
        let found = version_get(connection, app.tenant, function, share.version).await?;
        versions.push(found.ok_or_else(|| {
            let problem = format!(
                "{function} {} of app {} is missing",
                share.version, app.name
            );
            StoreError::corrupt("app_traffic.traffic", problem)
        })?);
    }
    Ok(versions)
}

/// Publishes the desired state of an app to nodes.
///
/// # Errors
/// When the database fails.
pub async fn announce_to_nodes(
    connection: &mut AnyConnection,
    app: &AppRow,
    now: Timestamp,
) -> Result<(), StoreError> {
    let gateway = gateway_get(connection, &app.name).await?;
    let versions = versions_served(connection, app, &gateway.traffic).await?;
    let planned = node_plan_of(connection, app).await?;
    outbox_push(
        connection,
        app.revision,
        Message::AppDesired(app_desired(app, &versions, planned, gateway)),
        now,
    )
    .await
}

/// Publishes the desired bindings of an app to DNS servers.
///
/// # Errors
/// When the database fails.
pub async fn announce_to_dns(
    connection: &mut AnyConnection,
    app: &AppRow,
    bindings: &[BindingRow],
    ttl_s: u32,
    now: Timestamp,
) -> Result<(), StoreError> {
    let message = Message::BindingsDesired(bindings_desired(app, bindings, ttl_s));
    outbox_push(connection, app.bindings_revision, message, now).await
}

/// Publishes the desired bindings of an app to DNS servers, where `before` was published at the revision `base`: only the changes, if
/// they are much fewer than all.
///
/// # Errors
/// When the database fails.
pub async fn announce_changes_to_dns(
    connection: &mut AnyConnection,
    app: &AppRow,
    base: Revision,
    before: &[BindingRow],
    after: &[BindingRow],
    ttl_s: u32,
    now: Timestamp,
) -> Result<(), StoreError> {
    let changes = binding_changes(before, after);
    if changes.len() * CHANGES_PAY > after.len() {
        return announce_to_dns(connection, app, after, ttl_s, now).await;
    }
    let changed = BindingsChanged {
        app: app.name.clone(),
        base,
        revision: app.bindings_revision,
        changes,
        holders: Some(app.answering.clone()),
    };
    let message = Message::BindingsChanged(changed);
    outbox_push(connection, app.bindings_revision, message, now).await
}

/// Changes are published instead of the whole if there are this many times fewer of them.
const CHANGES_PAY: usize = 8;

/// The bindings that differ: new or moved ones with their clusters, removed ones with `None`.
fn binding_changes(
    before: &[BindingRow],
    after: &[BindingRow],
) -> Vec<(ClientPrefix, Option<ClusterId>)> {
    let of = |rows: &[BindingRow]| -> BTreeMap<ClientPrefix, ClusterId> {
        rows.iter()
            .map(|row| (row.prefix, row.cluster.clone()))
            .collect()
    };
    let (before, after) = (of(before), of(after));
    let gone = before
        .keys()
        .filter(|prefix| !after.contains_key(prefix))
        .map(|prefix| (*prefix, None));
    let new = after
        .iter()
        .filter(|(prefix, cluster)| before.get(prefix) != Some(cluster))
        .map(|(prefix, cluster)| (*prefix, Some(cluster.clone())));
    gone.chain(new).collect()
}

/// Publishes that an app no longer exists.
///
/// # Errors
/// When the database fails.
pub async fn announce_deletion(
    connection: &mut AnyConnection,
    app: &fdn_core::AppName,
    revision: Revision,
    now: Timestamp,
) -> Result<(), StoreError> {
    let nodes = AppDesired {
        app: app.clone(),
        revision,
        spec: None,
    };
    outbox_push(connection, revision, Message::AppDesired(nodes), now).await?;
    // Records of names below the app are deleted with it.
    for row in txt_list_of_app(connection, app).await? {
        txt_delete(connection, &row.name).await?;
        let gone = TxtDesired {
            name: row.name,
            revision,
            state: None,
        };
        outbox_push(connection, revision, Message::TxtDesired(gone), now).await?;
    }
    let dns = BindingsDesired {
        app: app.clone(),
        revision,
        state: None,
    };
    outbox_push(connection, revision, Message::BindingsDesired(dns), now).await
}

#[cfg(test)]
mod tests {
    use fdn_core::workflow::{Edge, Stage};
    use fdn_core::{ByteSize, VersionNumber};

    use super::*;

    fn plan(group: &str, stages: &[(&str, &str)]) -> PlanRow {
        let stages = stages.iter().map(|(stage, cluster)| {
            let stage = stage.parse().expect("stage");
            (stage, cluster.parse().expect("cluster"))
        });
        PlanRow {
            app: "flow".parse().expect("app"),
            group: group.to_owned(),
            stages: stages.collect(),
            explanation: None,
            revision: Revision(1),
            planned_at: Timestamp(1),
        }
    }

    fn bound(group: &str, prefix: &str) -> BindingRow {
        BindingRow {
            app: "flow".parse().expect("app"),
            prefix: prefix.parse().expect("prefix"),
            cluster: "eu".parse().expect("cluster"),
            group: group.to_owned(),
            revision: Revision(1),
        }
    }

    #[test]
    fn changes_are_what_is_new_and_what_is_gone() {
        let row = |prefix: &str, cluster: &str| BindingRow {
            cluster: cluster.parse().expect("cluster"),
            ..bound("g", prefix)
        };
        let before = [
            row("10.0.0.0/8", "eu"),
            row("11.0.0.0/8", "eu"),
            row("12.0.0.0/8", "eu"),
        ];
        let after = [
            row("10.0.0.0/8", "eu"),
            row("11.0.0.0/8", "us"),
            row("13.0.0.0/8", "eu"),
        ];
        let told: Vec<_> = binding_changes(&before, &after)
            .into_iter()
            .map(|(prefix, cluster)| (prefix.to_string(), cluster.map(|c| c.to_string())))
            .collect();
        let expected = [
            ("12.0.0.0/8", None),
            ("11.0.0.0/8", Some("us")),
            ("13.0.0.0/8", Some("eu")),
        ]
        .map(|(prefix, cluster)| (prefix.to_owned(), cluster.map(str::to_owned)));
        assert_eq!(told, expected);
    }

    #[test]
    fn a_cluster_is_left_once_no_plan_uses_it() {
        let set = |names: &[&str]| -> BTreeSet<ClusterId> {
            let name = |name: &&str| name.parse().expect("cluster");
            names.iter().map(name).collect()
        };
        assert_eq!(
            left_clusters(&set(&["eu", "us"]), &set(&["us"])),
            set(&["eu"])
        );
        assert_eq!(left_clusters(&set(&["us"]), &set(&["us", "ap"])), set(&[]));
        assert_eq!(
            left_clusters(&set(&["us"]), &set(&[])),
            set(&[]),
            "there is no plan"
        );
    }

    #[test]
    fn nodes_are_told_the_plan_of_most_clients_and_only_what_runs_elsewhere() {
        let stage = |name: &str| Stage {
            name: name.parse().expect("stage"),
            function: "f".parse().expect("function"),
            version: VersionNumber::FIRST,
        };
        let edge = Edge {
            from: "a".parse().expect("stage"),
            to: "b".parse().expect("stage"),
            size: ByteSize::from_bytes(1),
        };
        let workflow = Workflow::new(vec![stage("a"), stage("b")], vec![edge]).expect("workflow");
        let plans = [
            plan("few", &[("a", "eu"), ("b", "ap")]),
            plan("many", &[("a", "eu"), ("b", "us"), ("gone", "us")]),
            plan("none", &[("a", "us"), ("b", "us")]),
        ];
        let bindings = [
            bound("few", "10.0.0.0/24"),
            bound("many", "10.0.1.0/24"),
            bound("many", "10.0.2.0/24"),
        ];
        let maps = stage_maps(&workflow, &plans, &bindings);
        let told = serde_json::to_value(&maps).expect("JSON");
        assert_eq!(told, serde_json::json!({ "eu": { "b": "us" }, "us": {} }));
    }
}
