//! Traces of single calls: the records of the nodes, joined with the plan, the binding of the client and the workflow run.

use std::collections::BTreeMap;
use std::sync::Arc;

use fdn_core::trace::{CallTrace, PresentRevisions, TraceCalls, TraceSources, join};
use fdn_core::usage::CallQuery;
use fdn_core::{AppName, ClientPrefix, ClusterId, NodeId, TenantId};

use super::policy::existing;
use super::{calls, explain, runs};
use crate::Error;
use crate::state::{State, lock};

/// The most records read per request id: stages of a workflow, and calls of a client that reuses an id.
const CALLS: u32 = 200;
/// The most runs read per request id.
const RUNS: u32 = 10;

/// The trace of the newest call of a tenant's app with this request id. The placement is explained for `client`, or else for the client that
/// called.
///
/// # Errors
/// When there is no such app or call, there are too many searches at once, or the store fails.
pub async fn trace(
    state: &Arc<State>,
    (tenant, app): (TenantId, &AppName),
    request: &str,
    client: Option<ClientPrefix>,
) -> Result<CallTrace, Error> {
    let query = CallQuery {
        request: Some(request.to_owned()),
        limit: CALLS,
        ..CallQuery::default()
    };
    let found = calls::calls(state, tenant, app, query).await?;
    let clusters: BTreeMap<NodeId, ClusterId> = lock(&state.live)
        .alive(fdn_service::now())
        .map(|seen| (seen.status.node.clone(), seen.status.cluster.clone()))
        .collect();
    let chosen = TraceCalls::newest(found.calls)
        .ok_or_else(|| no_call(app, request, &clusters, &found.silent))?;
    let runs = runs::list(state, (tenant, app), Some(request), "", RUNS).await?;
    let row = existing(&mut *state.store.read().await?, tenant, app).await?;
    let explained = match client.or_else(|| chosen.client()) {
        Some(client) => Some(explain::explain(state, tenant, app, client).await?),
        None => None,
    };
    let sources = TraceSources {
        app: app.clone(),
        cluster_of: |node: &NodeId| clusters.get(node).cloned(),
        told: PresentRevisions {
            nodes: row.revision,
            dns: row.bindings_revision,
        },
        run: chosen.run(runs),
        explained,
        silent: found.silent,
    };
    Ok(join(chosen, sources))
}

/// The error that no call was found: how many nodes were searched, and how many did not answer.
fn no_call(
    app: &AppName,
    request: &str,
    nodes: &BTreeMap<NodeId, ClusterId>,
    silent: &[NodeId],
) -> Error {
    let answered = nodes.keys().filter(|node| !silent.contains(node)).count();
    let mut what = format!(
        "a call of {app} with request id {request} among those that are kept by {}",
        counted(answered)
    );
    if !silent.is_empty() {
        what.push_str(&format!(" ({} did not answer)", counted(silent.len())));
    }
    Error::NotFound {
        what,
        hint: "nodes keep calls for a time (`usage.log_keep`, `usage.log_size`), and dead nodes are not asked; `fdn calls APP` shows what there is",
    }
}

/// A number of nodes in words. Their names are only for those who may look at machines.
fn counted(count: usize) -> String {
    match count {
        0 => "no nodes".to_owned(),
        1 => "one node".to_owned(),
        _ => format!("{count} nodes"),
    }
}

#[cfg(test)]
mod tests {
    use fdn_core::Coded as _;

    use super::*;

    #[test]
    fn a_call_that_is_not_found_says_where_it_was_looked_for() {
        let node = |name: &str| -> NodeId { name.parse().expect("node") };
        let nodes = |names: &[&str]| -> BTreeMap<NodeId, ClusterId> {
            let of = |name: &&str| (node(name), "eu".parse().expect("cluster"));
            names.iter().map(of).collect()
        };
        let app: AppName = "hello".parse().expect("app");
        let told = |names: &[&str], silent: &[NodeId]| {
            let error = no_call(&app, "r-1", &nodes(names), silent);
            assert_eq!(error.code(), fdn_core::ErrorCode::NotFound);
            error.to_string()
        };
        let all = told(&["a", "b"], &[]);
        let expected = "a call of hello with request id r-1 among those that are kept by 2 nodes does not exist; ";
        assert!(all.starts_with(expected), "{all}");
        let some = told(&["a", "b"], &[node("b")]);
        assert!(
            some.contains("kept by one node (one node did not answer)"),
            "{some}"
        );
        assert!(told(&[], &[]).contains("kept by no nodes"));
    }
}
