//! The log of an app, gathered from every live node and merged.
//!
//! The last lines of all nodes come first, in order of time. A follower then gets lines as nodes send them; nodes that join are added, nodes that
//! die drop out. A slow reader slows the nodes down: nothing is buffered beyond a bounded channel.
//!
//! A node knows an app by its name alone, and names of deleted apps are free for others. So a follower is judged again at every look: its stream
//! ends when the app is gone or somebody else's, or when the caller may not look at it any more. Like a stream of events it ends after
//! `events.lifetime` at the latest, and the client comes again. Lines of the time when another tenant had an app of this name are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use fdn_core::api::LogLine;
use fdn_core::{AppName, NodeId, Right, TenantId, Timestamp};
use futures::{Stream, StreamExt};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tracing::debug;

use super::access::{Caller, Verdict, present};
use crate::Error;
use crate::edge::node_client::NodeAddress;
use crate::error::chain;
use crate::state::{State, lock};
use crate::store::app::app_get;
use crate::store::billing::owner::{NOBODY, Owners, owner_list};

/// How often a follower looks for nodes that joined, and whether it still may.
const LOOK: Duration = Duration::from_secs(2);
/// The number of last lines that are requested again, so that none is lost between two requests.
const OVERLAP: u32 = 100;
/// The pause before a node whose stream ended is asked again.
const AGAIN: Duration = Duration::from_secs(2);

/// The options of a reader.
#[derive(Clone, Copy, Debug)]
pub struct LogQuery {
    /// Whether to wait for further lines.
    pub follow: bool,
    /// The number of last lines to begin with.
    pub tail: u32,
}

/// The only field of a line that merging needs: its time.
#[derive(Deserialize)]
struct Stamp {
    at: u64,
}

/// Whose app's log is read, and by whom.
struct Reading {
    state: Arc<State>,
    caller: Caller,
    tenant: TenantId,
    app: AppName,
    /// Who owned an app of this name, and since when.
    owners: Owners,
}

impl Reading {
    /// Whether a line of this time is the tenant's, and not one of another tenant that had an app of this name. An app without a known owner
    /// had no other.
    fn includes(&self, at: u64) -> bool {
        [self.tenant, NOBODY].contains(&self.owners.at(&self.app, Timestamp(at)))
    }

    /// Whether the app was the tenant's all the time, and the caller may still look at it.
    async fn is_allowed(&self) -> Result<bool, Error> {
        let mut connection = self.state.store.read().await?;
        let row = app_get(&mut connection, &self.app).await?;
        let owners = owner_list(&mut connection, [&self.app]).await?;
        if row.is_none_or(|row| row.tenant != self.tenant) || owners != self.owners {
            return Ok(false);
        }
        let caller = present(&mut connection, &self.caller, fdn_service::now()).await?;
        Ok(caller.is_some_and(|caller| {
            caller.allowed(Right::Look, Some(self.tenant)) == Verdict::Allowed
        }))
    }
}

/// The lines of an app as `application/x-ndjson`, for a caller who may look at it.
///
/// # Errors
/// When there is no such app, there are too many readers, or the store fails.
pub async fn logs(
    state: Arc<State>,
    caller: Caller,
    tenant: TenantId,
    app: AppName,
    query: LogQuery,
) -> Result<impl Stream<Item = Bytes> + 'static, Error> {
    let mut connection = state.store.read().await?;
    app_get(&mut connection, &app)
        .await?
        .filter(|row| row.tenant == tenant)
        .ok_or_else(|| Error::no_app(&app))?;
    let owners = owner_list(&mut connection, [&app]).await?;
    drop(connection);
    let reader = Arc::clone(&state.log_readers)
        .try_acquire_owned()
        .map_err(|_| Error::TooMany {
            what: "too many readers of logs",
            after: Duration::from_secs(5),
        })?;
    let (sender, receiver) = mpsc::channel(state.settings.function_logs.buffer.max(1));
    let query = LogQuery {
        tail: query.tail.min(state.settings.function_logs.tail),
        ..query
    };
    let reading = Arc::new(Reading {
        state,
        caller,
        tenant,
        app,
        owners,
    });
    tokio::spawn(async move {
        let _reader = reader;
        tokio::select! {
            // The reader disconnected: dropping the tasks ends every request to a node.
            () = sender.closed() => {}
            () = gather(&reading, query, &sender) => {}
        }
    });
    Ok(ReceiverStream::new(receiver))
}

async fn gather(reading: &Arc<Reading>, query: LogQuery, out: &mpsc::Sender<Bytes>) {
    let nodes = living(&reading.state);
    let (lines, sent) = last_lines(reading, query.tail, &nodes).await;
    for line in lines {
        if out.send(line).await.is_err() {
            return;
        }
    }
    if query.follow {
        follow(reading, sent, query.tail, out).await;
    }
}

fn living(state: &State) -> Vec<NodeAddress> {
    let now = fdn_service::now();
    lock(&state.live)
        .alive(now)
        .filter_map(|seen| NodeAddress::of(&seen.status))
        .collect()
}

/// The last lines of all nodes, oldest first, and the time of the last line of each node.
async fn last_lines(
    reading: &Arc<Reading>,
    tail: u32,
    nodes: &[NodeAddress],
) -> (Vec<Bytes>, BTreeMap<NodeId, u64>) {
    let settings = &reading.state.settings.function_logs;
    let limit = settings.node_timeout.as_duration();
    let mut asked = JoinSet::new();
    for at in nodes.iter().cloned() {
        let reading = Arc::clone(reading);
        asked.spawn(async move {
            let (sender, mut receiver) = mpsc::channel(64);
            let node = at.node.node.clone();
            let source = Source { at, after: 0 };
            let request = tokio::spawn(async move {
                let asking = read_node(
                    &reading,
                    &source,
                    LogQuery {
                        follow: false,
                        tail,
                    },
                    &sender,
                );
                // What arrived within the time is shown; a node that hangs does not delay the others.
                drop(tokio::time::timeout(limit, asking).await);
            });
            let mut lines = Vec::new();
            while let Some(line) = receiver.recv().await {
                if lines.len() < tail as usize {
                    lines.push(line);
                }
            }
            drop(request.await);
            (node, lines)
        });
    }
    let mut lines: Vec<(u64, Bytes)> = Vec::new();
    let mut last = BTreeMap::new();
    while let Some(done) = asked.join_next().await {
        let Ok((node, of_node)) = done else { continue };
        let stamped: Vec<_> = of_node
            .into_iter()
            .filter_map(|line| Some((stamp(&line)?, line)))
            .collect();
        last.insert(node, stamped.iter().map(|(at, _)| *at).max().unwrap_or(0));
        lines.extend(stamped);
    }
    lines.sort_by_key(|(at, _)| *at);
    let first = lines.len().saturating_sub(tail as usize);
    (
        lines
            .split_off(first)
            .into_iter()
            .map(|(_, line)| line)
            .collect(),
        last,
    )
}

fn stamp(line: &[u8]) -> Option<u64> {
    serde_json::from_slice::<Stamp>(line)
        .ok()
        .map(|stamp| stamp.at)
}

/// Follows all nodes until the caller may not any more, or has for long enough and must show it again. `sent` has, by node, the time up to which
/// lines have been sent; a node is always asked for some of its last lines again, so that none is lost between two requests.
async fn follow(
    reading: &Arc<Reading>,
    mut sent: BTreeMap<NodeId, u64>,
    tail: u32,
    out: &mpsc::Sender<Bytes>,
) {
    let mut open: BTreeSet<NodeAddress> = BTreeSet::new();
    let mut streams = JoinSet::new();
    let mut look = tokio::time::interval(LOOK);
    let ends = Instant::now() + reading.state.settings.events.lifetime.as_duration();
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(ends) => return,
            _ = look.tick() => {
                match reading.is_allowed().await {
                    Ok(true) => {}
                    Ok(false) => return,
                    Err(error) => {
                        debug!(app = %reading.app, error = chain(&error), "it cannot be told who may read a log");
                        return;
                    }
                }
                for at in living(&reading.state) {
                    if !open.insert(at.clone()) {
                        continue;
                    }
                    let source = Source { after: sent.get(&at.node.node).copied().unwrap_or(0), at };
                    let query = LogQuery { follow: true, tail: tail.max(OVERLAP) };
                    let (reading, out) = (Arc::clone(reading), out.clone());
                    streams.spawn(async move {
                        let last = read_node(&reading, &source, query, &out).await;
                        tokio::time::sleep(AGAIN).await;
                        (source, last)
                    });
                }
            }
            Some(ended) = streams.join_next() => {
                if let Ok((source, last)) = ended {
                    open.remove(&source.at);
                    sent.insert(source.at.node.node, last);
                }
            }
        }
    }
}

/// The log of a node.
struct Source {
    at: NodeAddress,
    /// The time up to which its lines have been sent.
    after: u64,
}

/// Forwards the lines of a node until its response ends. Returns the time of the last one.
async fn read_node(
    reading: &Reading,
    source: &Source,
    query: LogQuery,
    out: &mpsc::Sender<Bytes>,
) -> u64 {
    let Source { at, after } = source;
    let Reading { state, app, .. } = reading;
    let mut last = *after;
    let target = format!("/logs/{app}?follow={}&tail={}", query.follow, query.tail);
    let asking = async {
        let request = state.edge.node_clients.log(at, &target)?;
        let answer = request.send().await?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(answer.error_for_status()?)
    };
    let answer = match asking.await {
        Ok(answer) => answer,
        Err(error) => {
            debug!(node = %at.node, error = chain(&*error), "a node's log cannot be read");
            return last;
        }
    };
    let mut pieces = answer.bytes_stream();
    let mut lines = Lines::new(state.settings.function_logs.line.as_usize());
    while let Some(Ok(piece)) = pieces.next().await {
        for line in lines.push(&piece) {
            let at = stamp(&line).unwrap_or(last);
            if at <= *after || !reading.includes(at) {
                continue;
            }
            last = last.max(at);
            if out.send(line).await.is_err() {
                return last;
            }
        }
    }
    last
}

/// Cuts a byte stream into lines that are [`LogLine`]s; others and overlong ones are dropped.
struct Lines {
    rest: BytesMut,
    limit: usize,
    skipping: bool,
}

impl Lines {
    fn new(limit: usize) -> Self {
        Self {
            rest: BytesMut::new(),
            limit,
            skipping: false,
        }
    }

    fn push(&mut self, piece: &[u8]) -> Vec<Bytes> {
        self.rest.extend_from_slice(piece);
        let mut lines = Vec::new();
        while let Some(end) = self.rest.iter().position(|b| *b == b'\n') {
            let line = self.rest.split_to(end + 1).freeze();
            let whole = !std::mem::take(&mut self.skipping) && line.len() <= self.limit;
            if whole && serde_json::from_slice::<LogLine>(&line).is_ok() {
                lines.push(line);
            }
        }
        if self.rest.len() > self.limit {
            self.rest.clear();
            self.skipping = true;
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> String {
        let instance = format!("ins_{}", "0".repeat(32));
        format!(
            "{{\"at\":7,\"app\":\"a\",\"function\":\"a\",\"version\":1,\"node\":\"n\",\"instance\":\"{instance}\",\
             \"request\":\"r\",\"stream\":\"stdout\",\"text\":\"{text}\"}}\n"
        )
    }

    #[test]
    fn lines_come_whole_whatever_the_pieces() {
        let mut lines = Lines::new(1000);
        let text = format!("{}{}", line("one"), line("two"));
        let (first, second) = text.split_at(40);
        assert!(lines.push(first.as_bytes()).is_empty());
        let got = lines.push(second.as_bytes());
        assert_eq!(got.iter().map(|l| l.len()).sum::<usize>(), text.len());
        assert_eq!(stamp(&got[0]), Some(7));
    }

    #[test]
    fn what_is_no_log_line_is_dropped_and_memory_is_bounded() {
        let mut lines = Lines::new(300);
        assert!(lines.push(b"<html>\n").is_empty());
        assert!(lines.push(&[b'x'; 5000]).is_empty());
        assert!(lines.rest.is_empty());
        assert!(lines.push(b"the rest of it\n").is_empty());
        assert_eq!(lines.push(line("next").as_bytes()).len(), 1);
        assert!(
            lines.push(line(&"y".repeat(300)).as_bytes()).is_empty(),
            "too long"
        );
    }
}
