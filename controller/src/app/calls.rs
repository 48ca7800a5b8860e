//! Single calls of an app, collected from every live node and merged. Controllers store none of them.

use std::sync::Arc;
use std::time::Duration;

use fdn_core::usage::{CallList, CallQuery};
use fdn_core::{AppName, NodeId, TenantId};
use futures::StreamExt;
use reqwest::Method;
use tracing::debug;

use super::policy::existing;
use crate::Error;
use crate::edge::node_client::NodeAddress;
use crate::state::{State, lock};
use crate::store::billing::owner::owner_list;

/// The number of nodes that are asked at the same time.
const AT_ONCE: usize = 32;
/// The most bytes of one call in a node's answer.
const LINE_MAX: usize = 2048;

/// The calls of a tenant's app, newest first.
///
/// # Errors
/// When there is no such app, there are too many searches at once, or the store fails.
pub async fn calls(
    state: &Arc<State>,
    tenant: TenantId,
    app: &AppName,
    query: CallQuery,
) -> Result<CallList, Error> {
    let mut connection = state.store.read().await?;
    existing(&mut connection, tenant, app).await?;
    // Earlier calls may be of an app of the same name that belonged to another tenant: they are not shown.
    let owned = owner_list(&mut connection, [app]).await?.since(app);
    drop(connection);
    let _search = state
        .call_searches
        .try_acquire()
        .map_err(|_| Error::TooMany {
            what: "too many people look for calls",
            after: Duration::from_secs(5),
        })?;
    let query = CallQuery {
        since: query.since.max(owned),
        ..query
    };
    Ok(gather(state, app, &query).await)
}

async fn gather(state: &State, app: &AppName, query: &CallQuery) -> CallList {
    let now = fdn_service::now();
    let nodes: Vec<(NodeId, Option<NodeAddress>)> = lock(&state.live)
        .alive(now)
        .map(|seen| (seen.status.node.clone(), NodeAddress::of(&seen.status)))
        .collect();
    let limit = state.settings.function_logs.search_timeout.as_duration();
    let mut answers = futures::stream::iter(nodes)
        .map(async |(node, at)| {
            let Some(at) = at else {
                return (node, None);
            };
            let asking = fetch_calls(state, app, query, &at);
            let answer = tokio::time::timeout(limit, asking).await.ok().flatten();
            (node, answer)
        })
        .buffer_unordered(AT_ONCE);
    let mut all = CallList::default();
    while let Some((node, answer)) = answers.next().await {
        match answer {
            Some(answer) => merge(&mut all, answer, query.limit as usize),
            None => all.silent.push(node),
        }
    }
    all.silent.sort();
    all
}

/// Adds a node's calls and keeps the newest `limit`.
fn merge(all: &mut CallList, more: CallList, limit: usize) {
    all.calls.extend(more.calls);
    all.calls
        .sort_by_key(|call| std::cmp::Reverse((call.started_at, call.invocation)));
    all.more |= more.more || all.calls.len() > limit;
    all.calls.truncate(limit);
}

/// The calls that a node has recorded; `None` if it cannot be asked.
async fn fetch_calls(
    state: &State,
    app: &AppName,
    query: &CallQuery,
    at: &NodeAddress,
) -> Option<CallList> {
    let node = &at.node.node;
    let read = async {
        let target = format!("/calls/{app}");
        let request = state.edge.node_clients.request(Method::GET, at, &target);
        let mut answer = request
            .map_err(|e| e.to_string())?
            .query(query)
            .send()
            .await
            .and_then(reqwest::Response::error_for_status)
            .map_err(|e| e.to_string())?;
        let most = (query.limit as usize + 1) * LINE_MAX;
        let mut bytes = Vec::new();
        while let Some(piece) = answer.chunk().await.map_err(|e| e.to_string())? {
            bytes.extend_from_slice(&piece);
            if bytes.len() > most {
                return Err(format!("more than {most} bytes"));
            }
        }
        let mut list: CallList = serde_json::from_slice(&bytes).map_err(|e| e.to_string())?;
        // A node may report only its own calls, of the app and time that were asked for.
        list.calls.retain(|call| {
            call.node == *node && call.app == *app && call.started_at >= query.since
        });
        Ok::<_, String>(list)
    };
    let told: Result<CallList, String> = read.await;
    told.inspect_err(|error| debug!(%node, error, "a node's calls cannot be read"))
        .ok()
}

#[cfg(test)]
mod tests {
    use fdn_core::usage::{CallLine, CallRecord, UsageOutcome, UsageRecord};
    use fdn_core::{InvocationId, MebiBytes, Timestamp, VersionNumber};

    use super::*;

    fn list(at: &[u64], more: bool) -> CallList {
        let call = |at: &u64| {
            let used = UsageRecord {
                invocation: InvocationId::from_uuid(uuid::Uuid::from_u128(u128::from(*at))),
                app: "a".parse().expect("app"),
                function: "a".parse().expect("function"),
                version: VersionNumber::FIRST,
                started_at: Timestamp(*at),
                duration_us: 1,
                cpu_us: 1,
                memory_mib: MebiBytes(1),
                gpu_memory_mib: MebiBytes(0),
                egress_bytes: 1,
                outcome: UsageOutcome::Ok,
            };
            let record = CallRecord {
                used,
                call: None,
                noted: None,
            };
            CallLine::new("n".parse().expect("node"), record)
        };
        CallList {
            calls: at.iter().map(call).collect(),
            more,
            silent: Vec::new(),
        }
    }

    #[test]
    fn the_newest_of_all_nodes_are_kept() {
        let mut all = CallList::default();
        let told = |all: &CallList| -> Vec<u64> {
            all.calls.iter().map(|call| call.started_at.get()).collect()
        };
        merge(&mut all, list(&[5, 3], false), 3);
        assert_eq!((told(&all), all.more), (vec![5, 3], false));
        merge(&mut all, list(&[4], true), 3);
        assert_eq!((told(&all), all.more), (vec![5, 4, 3], true));
        let mut all = list(&[9, 8, 7], false);
        merge(&mut all, list(&[1], false), 3);
        assert_eq!((told(&all), all.more), (vec![9, 8, 7], true));
    }
}
