//! Captures the output of a pod through the API server.
//!
//! Every line is requested with its time. A broken connection is made again from the second of the last line that was
//! seen, and lines seen before are skipped: no line is lost, none comes twice. The API server does not say to which of the
//! two outputs a line was written; all count as standard output.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use fdn_core::api::LogStream;
use futures::io::{AsyncBufRead, AsyncBufReadExt};
use k8s_openapi::jiff::Timestamp;
use kube::api::LogParams;

use super::Shared;
use super::instance::PodInstance;
use crate::log::LogLimits;

/// The pauses between attempts.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Bytes reserved for the time before each line.
const STAMP: usize = 40;

/// How much of the earlier output is captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogHistory {
    /// All of it: the pod was only just started.
    FromStart,
    /// Only the last lines, for those who ask; the log sink already received them.
    Tail(usize),
}

/// Captures a pod's output until it ends.
pub(super) async fn capture(shared: Arc<Shared>, instance: Arc<PodInstance>, history: LogHistory) {
    let server = instance.pod.server.clone();
    let mut alive = shared.alive.subscribe();
    drop(shared);
    let permit = tokio::select! {
        permit = server.logs.acquire() => permit.ok(),
        // Too many pods are being followed: what is still available is read at the end.
        () = instance.pod.until_ended() => None,
        _ = alive.changed() => return,
    };
    let mut reader = Reader::new(instance.clone(), history);
    tokio::select! {
        () = reader.run() => {}
        _ = alive.changed() => return,
    }
    drop(permit);
    instance
        .log
        .finish(|line| instance.sink.line(&instance.description, line));
    instance.log_ended.send_replace(true);
}

struct Reader {
    instance: Arc<PodInstance>,
    history: LogHistory,
    /// The time of the last line that was handled.
    last: Option<Timestamp>,
    /// The value of `last` when the present connection was made: lines up to there come twice.
    resumed: Option<Timestamp>,
    pause: Duration,
}

impl Reader {
    fn new(instance: Arc<PodInstance>, history: LogHistory) -> Self {
        Self {
            instance,
            history,
            last: None,
            resumed: None,
            pause: FIRST_PAUSE,
        }
    }

    async fn run(&mut self) {
        loop {
            let over = self.instance.pod.has_ended();
            let whole = self.follow().await;
            // A stream that ends while the container runs was cut somewhere between here and its node.
            if whole && (over || self.instance.pod.has_ended()) {
                return;
            }
            if !whole && over && self.instance.pod.is_gone() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(self.pause) => {}
                () = self.instance.pod.until_ended(), if !over => {}
            }
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Reads until the stream ends; returns whether it ended regularly.
    async fn follow(&mut self) -> bool {
        let mut params = LogParams {
            container: Some(super::pod::CONTAINER.to_owned()),
            follow: true,
            timestamps: true,
            ..LogParams::default()
        };
        self.resumed = self.last;
        match (self.last, self.history) {
            // Whole seconds, rounded down: the client rounds to the nearest and would lose up to half a second.
            (Some(last), _) => params.since_time = Timestamp::from_second(last.as_second()).ok(),
            (None, LogHistory::Tail(lines)) => params.tail_lines = i64::try_from(lines).ok(),
            (None, LogHistory::FromStart) => {}
        }
        let server = self.instance.pod.server.clone();
        let Ok(stream) = server.output(&self.instance.pod.name, &params).await else {
            return false;
        };
        let tail_until =
            (self.history != LogHistory::FromStart && self.last.is_none()).then(Timestamp::now);
        self.read(stream, tail_until).await
    }

    async fn read(&mut self, stream: impl AsyncBufRead, tail_until: Option<Timestamp>) -> bool {
        let mut stream = pin!(stream);
        let mut line = Vec::new();
        let most = LogLimits::default().line.max(self.instance.line_limit) + STAMP;
        loop {
            let Ok(piece) = stream.fill_buf().await else {
                return false;
            };
            if piece.is_empty() {
                if !line.is_empty() {
                    self.take(&line, tail_until);
                }
                return true;
            }
            let (part, used, ends) = match piece.iter().position(|byte| *byte == b'\n') {
                Some(at) => (&piece[..at], at + 1, true),
                None => (piece, piece.len(), false),
            };
            let room = most.saturating_sub(line.len());
            line.extend_from_slice(&part[..part.len().min(room)]);
            stream.consume_unpin(used);
            if ends {
                self.take(&line, tail_until);
                line.clear();
            }
        }
    }

    fn take(&mut self, line: &[u8], tail_until: Option<Timestamp>) {
        let (at, text) = split(line);
        if let (Some(at), Some(resumed)) = (at, self.resumed)
            && at <= resumed
        {
            return;
        }
        self.pause = FIRST_PAUSE;
        let known = matches!((at, tail_until), (Some(at), Some(until)) if at <= until);
        if at.is_some() {
            self.last = at;
        }
        let text = String::from_utf8_lossy(text);
        let instance = &self.instance;
        instance.log.line(LogStream::Stdout, &text, |line| {
            if !known {
                instance.sink.line(&instance.description, line);
            }
        });
    }
}

/// Splits a line into its time and its text.
fn split(line: &[u8]) -> (Option<Timestamp>, &[u8]) {
    let Some(space) = line.iter().take(STAMP).position(|byte| *byte == b' ') else {
        let whole = std::str::from_utf8(line).ok().and_then(|t| t.parse().ok());
        return if whole.is_some() {
            (whole, &[])
        } else {
            (None, line)
        };
    };
    let stamp = std::str::from_utf8(&line[..space]).ok();
    match stamp.and_then(|stamp| stamp.parse().ok()) {
        Some(at) => (Some(at), &line[space + 1..]),
        None => (None, line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_and_its_time_come_apart() {
        let (at, text) = split(b"2026-11-21T18:00:00.123456789Z hello  world");
        assert_eq!(at.map(Timestamp::subsec_nanosecond), Some(123_456_789));
        assert_eq!(text, b"hello  world");
        assert_eq!(split(b"2026-11-21T18:00:00Z ").1, b"");
        assert_eq!(split(b"2026-11-21T18:00:00Z").1, b"");
        assert_eq!(split(b"no time here"), (None, &b"no time here"[..]));
        assert_eq!(split(b""), (None, &b""[..]));
    }
}
