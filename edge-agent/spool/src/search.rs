//! Searches for single calls in everything that the spool holds: segments being written, waiting to be handed over, and kept afterwards.
//!
//! Segments are read completely, one after the other, the newest first. There is no index: the log is bounded, and searched only when a person
//! asks. Only records that contain the app's name are parsed.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use fdn_core::usage::{CallQuery, CallRecord, UsageOutcome};
use fdn_core::{AppName, InvocationId, Timestamp};

use crate::frame;
use crate::log::started_at;
use crate::spool::Spool;

/// The most bytes of a record before the name of its app.
const HEAD: usize = 64;

/// The result of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchResult {
    /// The calls that arrived last, the latest first.
    pub calls: Vec<CallRecord>,
    /// Whether there are more than requested.
    pub more: bool,
}

/// A search from the newest record to the oldest.
struct Search<'a> {
    query: &'a CallQuery,
    needle: Vec<u8>,
    /// Calls whose last record has been seen, and which have earlier records too.
    known: BTreeSet<InvocationId>,
    /// The calls that arrived last: as many as requested, and one more if there are more.
    found: BTreeMap<(Timestamp, InvocationId), CallRecord>,
}

impl Search<'_> {
    fn visit(&mut self, payload: &[u8]) {
        // The app follows the invocation's id.
        let head = &payload[..payload.len().min(HEAD + self.needle.len())];
        let mut parts = head.windows(self.needle.len());
        if !parts.any(|part| part == self.needle) {
            return;
        }
        let Ok(record) = serde_json::from_slice::<CallRecord>(payload) else {
            return;
        };
        let invocation = record.used.invocation;
        if record.used.outcome == UsageOutcome::Running && self.known.contains(&invocation) {
            return;
        }
        if record.noted.is_some() {
            self.known.insert(invocation);
        }
        if !self.query.takes(&record) {
            return;
        }
        self.found
            .insert((record.used.started_at, invocation), record);
        if self.found.len() > self.query.limit as usize + 1 {
            self.found.pop_first();
        }
    }

    /// Whether no record written before `newer` can be among the results.
    fn is_done(&self, newer: u64) -> bool {
        let oldest = self.found.first_key_value();
        self.found.len() > self.query.limit as usize
            && oldest.is_some_and(|((at, _), _)| at.get() >= newer)
    }
}

impl Spool {
    /// Searches for calls of an app until `cancelled` is set, because nobody waits for the result any more. Blocks for as long as reading all
    /// records takes.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn search(
        &self,
        app: &AppName,
        query: &CallQuery,
        cancelled: &AtomicBool,
    ) -> io::Result<SearchResult> {
        let since = query.since.get().max(self.settings().kept_since());
        let query = CallQuery {
            since: Timestamp(since),
            limit: query.limit.min(CallQuery::LIMIT_MAX),
            ..query.clone()
        };
        let mut search = Search {
            query: &query,
            // No character of a name is escaped in JSON.
            needle: format!("\"app\":\"{app}\"").into_bytes(),
            known: BTreeSet::new(),
            found: BTreeMap::new(),
        };
        let mut newer = u64::MAX;
        for id in self.segments().into_iter().rev() {
            // A segment is not written any more once the next one has been begun, and no call ends before it arrives.
            if newer < since || search.is_done(newer) || cancelled.load(Ordering::Relaxed) {
                break;
            }
            newer = started_at(id);
            let Some(bytes) = self.read_segment(id)? else {
                continue;
            };
            for payload in frame::scan(&bytes).payloads.into_iter().rev() {
                search.visit(payload);
            }
        }
        let more = search.found.len() > query.limit as usize;
        if more {
            search.found.pop_first();
        }
        Ok(SearchResult {
            calls: search.found.into_values().rev().collect(),
            more,
        })
    }
}
