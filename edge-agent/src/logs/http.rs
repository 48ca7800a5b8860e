//! `GET /logs/{app}?follow=BOOL&tail=N` on the admin listener: one JSON [`LogLine`] a line, for controllers, who
//! show that they know the node's token by one that follows from it.

use std::sync::Arc;

use actix_web::web::{self, Bytes, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse, http::StatusCode, http::header};
use fdn_core::api::LogLine;
use fdn_core::{AppName, ErrorCode, Problem};
use fdn_service::secret::Secret;
use futures::stream;
use serde::Deserialize;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::{Receiver, error::RecvError};

use super::{AppLog, LogHub};

/// How many lines come without `tail`.
const DEFAULT_TAIL: usize = 100;

/// Who may read which logs.
#[derive(Clone, Debug)]
pub struct LogAccess {
    /// The logs.
    pub hub: Arc<LogHub>,
    /// What opens them: [`Secret::for_logs_of`] this node.
    pub token: Secret,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Query {
    #[serde(default)]
    follow: bool,
    tail: Option<usize>,
}

/// Adds the route to the admin listener.
pub fn routes(config: &mut ServiceConfig, access: &LogAccess) {
    config
        .app_data(web::Data::new(access.clone()))
        .route("/logs/{app}", web::get().to(logs));
}

fn problem(code: ErrorCode, detail: &str) -> HttpResponse {
    let problem = Problem::new(code, detail);
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    HttpResponse::build(status)
        .content_type(Problem::MEDIA_TYPE)
        .json(problem)
}

async fn logs(
    request: HttpRequest,
    app: web::Path<String>,
    access: web::Data<LogAccess>,
) -> HttpResponse {
    let bearer = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "));
    if !bearer.is_some_and(|token| access.token.matches(token.trim())) {
        return problem(
            ErrorCode::Unauthenticated,
            "logs are given to the network's controllers; read them with fdn logs",
        );
    }
    let Ok(query) = web::Query::<Query>::from_query(request.query_string()) else {
        return problem(
            ErrorCode::BadRequest,
            "the query may have follow=true or false and tail=NUMBER",
        );
    };
    let log = app.parse::<AppName>().ok();
    let Some(log) = log.and_then(|app| access.hub.get(&app)) else {
        return problem(ErrorCode::NotFound, "no such app on this node");
    };
    let tail = query.tail.unwrap_or(DEFAULT_TAIL);
    let mut response = HttpResponse::Ok();
    response.content_type("application/x-ndjson");
    if !query.follow {
        let mut body = Vec::new();
        for line in log.tail(tail) {
            append(&mut body, &line);
        }
        return response.body(body);
    }
    let Ok(permit) = Arc::clone(&access.hub.followers).try_acquire_owned() else {
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
        hub: Arc::clone(&access.hub),
        log,
        receiver,
        first: Some(first),
        _permit: permit,
    };
    response.streaming(stream::unfold(follower, |mut follower| async {
        let piece = follower.next().await?;
        Some((Ok::<_, actix_web::Error>(piece), follower))
    }))
}

fn append(out: &mut Vec<u8>, line: &LogLine) {
    let start = out.len();
    // Writing a log line as JSON into memory cannot fail; should it ever, the line is left out whole.
    if serde_json::to_writer(&mut *out, line).is_err() {
        out.truncate(start);
        return;
    }
    out.push(b'\n');
}

/// One client that follows a log.
struct Follower {
    hub: Arc<LogHub>,
    log: Arc<AppLog>,
    receiver: Receiver<Arc<LogLine>>,
    first: Option<Vec<u8>>,
    last: Option<Arc<LogLine>>,
    _permit: OwnedSemaphorePermit,
}

impl Follower {
    /// The next piece of the body.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take()
            && !first.is_empty()
        {
            return Some(Bytes::from(first));
        }
        let received = tokio::select! {
            received = self.receiver.recv() => received,
            () = self.hub.stop.cancelled() => return None,
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
        // What else is here already goes into the same piece.
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
