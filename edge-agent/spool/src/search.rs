//! Looking for single calls in what the spool holds: what is being written, what waits to be handed over, and what was and is kept.
//!
//! Segments are read whole, one after the other, the newest first. Nothing is indexed: the log is bounded, and is looked into when a person asks. Only
//! records that name the app are taken apart.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use fdn_core::usage::{CallQuery, CallRecord, UsageOutcome};
use fdn_core::{AppName, InvocationId, Timestamp};

use crate::frame;
use crate::log::begun;
use crate::spool::Spool;

/// Bytes of a record before the name of its app, at most.
const HEAD: usize = 64;

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The calls that arrived last, these first.
    pub calls: Vec<CallRecord>,
    /// Whether there are more than were asked for.
    pub more: bool,
}

/// A search that goes from the newest record to the oldest.
struct Search<'a> {
    query: &'a CallQuery,
    needle: Vec<u8>,
    /// Calls whose last record has been seen, of those that have others before it.
    known: BTreeSet<InvocationId>,
    /// The calls that arrived last: as many as were asked for, and one more if there are more.
    found: BTreeMap<(Timestamp, InvocationId), CallRecord>,
}

impl Search<'_> {
    fn look(&mut self, payload: &[u8]) {
        // The app comes right after the invocation's id.
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

    /// Whether no record that was written before `newer` can be among the last ones.
    fn is_done(&self, newer: u64) -> bool {
        let oldest = self.found.first_key_value();
        self.found.len() > self.query.limit as usize
            && oldest.is_some_and(|((at, _), _)| at.get() >= newer)
    }
}

impl Spool {
    /// Looks for calls of an app until `unwanted` says that nobody waits for them any more. Blocks, for as long as reading all that is kept takes.
    ///
    /// # Errors
    /// The disk's.
    pub fn search(
        &self,
        app: &AppName,
        query: &CallQuery,
        unwanted: &AtomicBool,
    ) -> io::Result<Found> {
        let since = query.since.get().max(self.settings().kept_since());
        let query = CallQuery {
            since: Timestamp(since),
            limit: query.limit.min(CallQuery::LIMIT_MAX),
            ..query.clone()
        };
        let mut search = Search {
            query: &query,
            // No character of a name is written in another way in JSON.
            needle: format!("\"app\":\"{app}\"").into_bytes(),
            known: BTreeSet::new(),
            found: BTreeMap::new(),
        };
        let mut newer = u64::MAX;
        for id in self.segments().into_iter().rev() {
            // Nothing was written to it after the next one had been begun, and no call ends before it arrives.
            if newer < since || search.is_done(newer) || unwanted.load(Ordering::Relaxed) {
                break;
            }
            newer = begun(id);
            let Some(bytes) = self.look(id)? else {
                continue;
            };
            for payload in frame::scan(&bytes).payloads.into_iter().rev() {
                search.look(payload);
            }
        }
        let more = search.found.len() > query.limit as usize;
        if more {
            search.found.pop_first();
        }
        Ok(Found {
            calls: search.found.into_values().rev().collect(),
            more,
        })
    }
}
