//! Logs of functions: a bounded ring buffer of lines per app, with followers that never block a function.
//!
//! A function's thread pushes a line under a short lock and continues. A follower that cannot keep up loses lines and is told how many; the ring
//! drops its oldest lines. Tail and subscription are taken under one lock, so a follower sees each line once.

mod http;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use fdn_core::api::{LogLine, LogStream};
use fdn_core::{AppName, InstanceId, NodeId};
use prometheus::IntCounter;
use tokio::sync::{Semaphore, broadcast};
use uuid::Uuid;

pub(crate) use http::answer;

use crate::metrics::Metrics;
use crate::settings::LogsSettings;

/// The size in bytes that a line counts with in a ring, besides its text and request id.
const LINE_OVERHEAD: usize = 256;

/// The log of one app on this node.
#[derive(Debug)]
pub struct AppLog {
    app: AppName,
    node: NodeId,
    lines_max: usize,
    size_max: usize,
    follow_buffer: usize,
    captured: IntCounter,
    ring: Mutex<Ring>,
}

#[derive(Debug, Default)]
struct Ring {
    lines: VecDeque<Arc<LogLine>>,
    size: usize,
    /// Created by the first follower, dropped at the first line after the last follower has gone.
    followers: Option<broadcast::Sender<Arc<LogLine>>>,
}

fn cost(line: &LogLine) -> usize {
    line.text.len() + line.request.len() + LINE_OVERHEAD
}

impl AppLog {
    fn ring(&self) -> MutexGuard<'_, Ring> {
        // A panic under the lock leaves at worst a size that is off by one line.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a line.
    pub fn push(&self, line: LogLine) {
        self.captured.inc();
        let line = Arc::new(line);
        let mut ring = self.ring();
        ring.size += cost(&line);
        ring.lines.push_back(Arc::clone(&line));
        while ring.lines.len() > self.lines_max || ring.size > self.size_max {
            let Some(oldest) = ring.lines.pop_front() else {
                break;
            };
            ring.size -= cost(&oldest);
        }
        if let Some(followers) = &ring.followers
            && followers.send(line).is_err()
        {
            ring.followers = None;
        }
    }

    /// The last `tail` lines, oldest first.
    #[must_use]
    pub fn tail(&self, tail: usize) -> Vec<Arc<LogLine>> {
        self.ring().tail(tail)
    }

    /// The last `tail` lines, and a receiver of every line after them.
    #[must_use]
    pub fn follow(&self, tail: usize) -> (Vec<Arc<LogLine>>, broadcast::Receiver<Arc<LogLine>>) {
        let mut ring = self.ring();
        let receiver = match &ring.followers {
            Some(followers) => followers.subscribe(),
            None => {
                let (sender, receiver) = broadcast::channel(self.follow_buffer);
                ring.followers = Some(sender);
                receiver
            }
        };
        (ring.tail(tail), receiver)
    }

    /// A line by the node itself that tells a follower that it missed `lost` lines.
    fn lost(&self, last: Option<&LogLine>, lost: u64) -> LogLine {
        LogLine {
            at: fdn_service::now(),
            app: self.app.clone(),
            function: last.map_or_else(|| self.app.clone().into(), |line| line.function.clone()),
            version: last.map_or(fdn_core::VersionNumber::FIRST, |line| line.version),
            node: self.node.clone(),
            instance: InstanceId::from_uuid(Uuid::nil()),
            request: String::new(),
            stage: None,
            stream: LogStream::System,
            text: format!("{lost} lines were dropped because the follower was too slow"),
        }
    }
}

impl Ring {
    fn tail(&self, tail: usize) -> Vec<Arc<LogLine>> {
        let skip = self.lines.len().saturating_sub(tail);
        self.lines.iter().skip(skip).cloned().collect()
    }
}

/// The logs of all apps on this node.
#[derive(Debug)]
pub struct LogHub {
    settings: LogsSettings,
    node: NodeId,
    metrics: Metrics,
    apps: RwLock<BTreeMap<AppName, Arc<AppLog>>>,
    followers: Arc<Semaphore>,
}

impl LogHub {
    /// A hub without apps.
    #[must_use]
    pub fn new(settings: LogsSettings, node: NodeId, metrics: Metrics) -> Self {
        Self {
            followers: Arc::new(Semaphore::new(settings.followers)),
            settings,
            node,
            metrics,
            apps: RwLock::default(),
        }
    }

    /// The log of `app`, created if it does not exist.
    #[must_use]
    pub fn open(&self, app: &AppName) -> Arc<AppLog> {
        if let Some(log) = self.get(app) {
            return log;
        }
        let mut apps = self.apps.write().unwrap_or_else(PoisonError::into_inner);
        let log = apps.entry(app.clone()).or_insert_with(|| {
            Arc::new(AppLog {
                app: app.clone(),
                node: self.node.clone(),
                lines_max: self.settings.lines,
                size_max: self.settings.size.as_usize(),
                follow_buffer: self.settings.follow_buffer,
                captured: self.metrics.log_lines.clone(),
                ring: Mutex::default(),
            })
        });
        Arc::clone(log)
    }

    /// The log of `app`, if it exists here.
    #[must_use]
    pub fn get(&self, app: &AppName) -> Option<Arc<AppLog>> {
        let apps = self.apps.read().unwrap_or_else(PoisonError::into_inner);
        apps.get(app).cloned()
    }

    /// Drops the log of an app that is gone. Its followers' streams end.
    pub fn close(&self, app: &AppName) {
        let mut apps = self.apps.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(log) = apps.remove(app) {
            log.ring().followers = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn hub(settings: LogsSettings) -> LogHub {
        let node: NodeId = "n-1".parse().expect("node");
        let metrics = Metrics::new(&node).expect("metrics");
        LogHub::new(settings, node, metrics)
    }

    pub(super) fn line(log: &AppLog, text: &str) -> LogLine {
        LogLine {
            text: text.to_owned(),
            stream: LogStream::Stdout,
            ..log.lost(None, 0)
        }
    }

    fn texts(lines: &[Arc<LogLine>]) -> Vec<&str> {
        lines.iter().map(|line| line.text.as_str()).collect()
    }

    #[test]
    fn the_ring_is_bounded_by_lines_and_by_size() {
        let hub = hub(LogsSettings {
            lines: 3,
            size: fdn_core::ByteSize::from_bytes(3000),
            ..LogsSettings::default()
        });
        let log = hub.open(&"hello".parse().expect("app"));
        for n in 0..5 {
            log.push(line(&log, &n.to_string()));
        }
        assert_eq!(texts(&log.tail(10)), ["2", "3", "4"]);
        assert_eq!(texts(&log.tail(1)), ["4"]);
        log.push(line(&log, &"x".repeat(2500)));
        assert_eq!(log.tail(10).len(), 1, "a large line pushes the others out");
    }

    #[tokio::test]
    async fn a_follower_gets_each_line_once_and_a_slow_one_is_told() {
        let hub = hub(LogsSettings {
            follow_buffer: 4,
            ..LogsSettings::default()
        });
        let log = hub.open(&"hello".parse().expect("app"));
        log.push(line(&log, "before"));
        let (tail, mut follower) = log.follow(10);
        assert_eq!(texts(&tail), ["before"]);
        log.push(line(&log, "after"));
        assert_eq!(follower.recv().await.expect("line").text, "after");
        for n in 0..10 {
            log.push(line(&log, &n.to_string()));
        }
        let lagged = follower.recv().await.expect_err("lagged");
        assert!(matches!(lagged, broadcast::error::RecvError::Lagged(6)));
        drop(follower);
        log.push(line(&log, "nobody listens"));
        assert!(log.ring().followers.is_none());
    }

    #[tokio::test]
    async fn closing_ends_the_followers() {
        let hub = hub(LogsSettings::default());
        let app = "hello".parse().expect("app");
        let log = hub.open(&app);
        let (_, mut follower) = log.follow(0);
        hub.close(&app);
        assert!(hub.get(&app).is_none());
        assert!(follower.recv().await.is_err());
    }
}
