//! Answers a controller's `GET /logs/{app}?follow=BOOL&tail=N`: one JSON [`LogLine`] per line.

use std::sync::Arc;

use actix_web::web;
use bytes::Bytes;
use fdn_core::api::LogLine;
use fdn_core::{AppName, ErrorCode};
use fdn_service::CancellationToken;
use futures::stream;
use http::{Response, StatusCode};
use serde::Deserialize;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::{Receiver, error::RecvError};

use super::{AppLog, LogHub};
use crate::workflows::{StageBody, problem, response};

/// The default of `tail`, in lines.
const DEFAULT_TAIL: usize = 100;
/// The media type.
const KIND: &str = "application/x-ndjson";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Query {
    #[serde(default)]
    follow: bool,
    tail: Option<usize>,
}

/// Answers with the log of an app. A stream that follows it ends with `closing`.
pub(crate) fn answer(
    hub: &Arc<LogHub>,
    app: &str,
    query: &str,
    closing: &CancellationToken,
) -> Response<StageBody> {
    let Ok(query) = web::Query::<Query>::from_query(query) else {
        return problem(
            ErrorCode::BadRequest,
            "the query may have follow=true or false and tail=NUMBER",
        );
    };
    let log = app.parse::<AppName>().ok();
    let Some(log) = log.and_then(|app| hub.get(&app)) else {
        return problem(ErrorCode::NotFound, "no such app on this node");
    };
    let tail = query.tail.unwrap_or(DEFAULT_TAIL);
    if !query.follow {
        let mut body = Vec::new();
        for line in log.tail(tail) {
            append(&mut body, &line);
        }
        return response(StatusCode::OK, KIND, StageBody::Whole(body.into()));
    }
    let Ok(permit) = Arc::clone(&hub.followers).try_acquire_owned() else {
        return problem(
            ErrorCode::TooManyRequests,
            "too many followers on this node; raise logs.followers",
        );
    };
    let (lines, receiver) = log.follow(tail);
    let mut first = Vec::new();
    for line in &lines {
        append(&mut first, line);
    }
    let follower = Follower {
        last: lines.last().cloned(),
        hub: Arc::clone(hub),
        log,
        receiver,
        first: Some(first),
        closing: closing.clone(),
        _permit: permit,
    };
    let pieces = stream::unfold(follower, |mut follower| async {
        let piece = follower.next().await?;
        Some((piece, follower))
    });
    response(StatusCode::OK, KIND, StageBody::Pieces(Box::pin(pieces)))
}

fn append(out: &mut Vec<u8>, line: &LogLine) {
    let start = out.len();
    // Writing a log line as JSON to memory cannot fail; if it ever did, the whole line would be left out.
    if serde_json::to_writer(&mut *out, line).is_err() {
        out.truncate(start);
        return;
    }
    out.push(b'\n');
}

/// A client that follows a log.
struct Follower {
    hub: Arc<LogHub>,
    log: Arc<AppLog>,
    receiver: Receiver<Arc<LogLine>>,
    first: Option<Vec<u8>>,
    last: Option<Arc<LogLine>>,
    closing: CancellationToken,
    _permit: OwnedSemaphorePermit,
}

impl Follower {
    /// The next part of the body; `None` at its end.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take()
            && !first.is_empty()
        {
            return Some(Bytes::from(first));
        }
        let received = tokio::select! {
            received = self.receiver.recv() => received,
            () = self.closing.cancelled() => return None,
        };
        let mut out = Vec::new();
        match received {
            Ok(line) => {
                append(&mut out, &line);
                self.last = Some(line);
            }
            Err(RecvError::Lagged(lost)) => {
                self.hub.metrics.log_lines_dropped.inc_by(lost);
                append(&mut out, &self.log.lost(self.last.as_deref(), lost));
            }
            Err(RecvError::Closed) => return None,
        }
        // Lines that are already there go into the same part.
        while out.len() < 16 << 10 {
            let Ok(line) = self.receiver.try_recv() else {
                break;
            };
            append(&mut out, &line);
            self.last = Some(line);
        }
        Some(Bytes::from(out))
    }
}
