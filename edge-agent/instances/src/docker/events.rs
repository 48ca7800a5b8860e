//! Follows the engine's events about our containers: their output and their end.
//!
//! There is one stream of events for all containers of this owner. It is resumed after the last event that was seen; the engine keeps
//! only some hundred past events, so after every interruption, and periodically anyway, the running containers are compared with the held
//! ones ([`reconcile`]).

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bollard::container::LogOutput;
use bollard::models::{EventMessage, EventMessageTypeEnum};
use bollard::query_parameters::{EventsOptionsBuilder, LogsOptionsBuilder};
use fdn_core::api::LogStream;
use futures::StreamExt;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::instance::DockerInstance;
use super::{Shared, create, failure};
use crate::instance::Instance;
use crate::runtime::Kind;
use crate::state::{Exit, ExitReason, InstanceState};

/// The pauses between attempts to reach the engine again.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How often running and held containers are compared even if nothing seems wrong.
const RECONCILE: Duration = Duration::from_secs(30);

/// Follows the engine until the runtime is dropped.
pub(super) async fn follow(shared: Weak<Shared>, from: String) {
    let mut since = from;
    let mut pause = FIRST_PAUSE;
    // Outside of the loops, so that it comes round on a node with many events as well.
    let mut comparing = interval_at(Instant::now() + RECONCILE, RECONCILE);
    comparing.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let Some(runtime) = shared.upgrade() else {
            return;
        };
        let mut dropped = runtime.alive.subscribe();
        let mut events = Box::pin(listen(&runtime, &since));
        drop(runtime);
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                _ = comparing.tick() => {
                    let Some(runtime) = shared.upgrade() else { return };
                    reconcile(&runtime).await;
                    continue;
                }
                _ = dropped.changed() => return,
            };
            let Some(Ok(event)) = event else { break };
            pause = FIRST_PAUSE;
            if let Some(point) = resume_point(&event) {
                since = point;
            }
            let Some(runtime) = shared.upgrade() else {
                return;
            };
            handle(&runtime, &event);
        }
        let Some(runtime) = shared.upgrade() else {
            return;
        };
        reconcile(&runtime).await;
        drop(runtime);
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn listen(
    runtime: &Shared,
    since: &str,
) -> impl futures::Stream<Item = Result<EventMessage, bollard::errors::Error>> + use<> {
    let mut filters: HashMap<String, Vec<String>> =
        create::filters(&runtime.owner, runtime.scope());
    filters.insert("type".to_owned(), vec!["container".to_owned()]);
    filters.insert(
        "event".to_owned(),
        vec!["die".to_owned(), "destroy".to_owned()],
    );
    let options = EventsOptionsBuilder::default()
        .filters(&filters)
        .since(since)
        .build();
    runtime.docker.events(Some(options))
}

/// The time just after this event, in the engine's format: seconds, a point, nanoseconds.
fn resume_point(event: &EventMessage) -> Option<String> {
    let nanos = event.time_nano?.checked_add(1)?;
    Some(seconds_and_nanos(i128::from(nanos)))
}

fn seconds_and_nanos(nanos: i128) -> String {
    let (seconds, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    format!("{seconds}.{rest:09}")
}

/// The resume point for events from now on.
pub(super) fn now() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = now.map_or(0, |now| now.as_nanos());
    seconds_and_nanos(i128::try_from(nanos).unwrap_or(0))
}

fn handle(runtime: &Arc<Shared>, event: &EventMessage) {
    if event.typ != Some(EventMessageTypeEnum::CONTAINER) {
        return;
    }
    let Some(actor) = &event.actor else { return };
    let id = actor.id.as_deref().unwrap_or_default();
    let Some(instance) = runtime.instance(id) else {
        return;
    };
    let code = actor
        .attributes
        .as_ref()
        .and_then(|a| a.get("exitCode")?.parse().ok());
    tokio::spawn(ended(runtime.clone(), instance, code));
}

/// Compares held instances with the containers that the engine runs. If the engine does not answer, nothing changes.
pub(super) async fn reconcile(runtime: &Arc<Shared>) {
    let Ok(listed) = runtime.list(false).await else {
        return;
    };
    let running: Vec<&str> = listed.iter().filter_map(|c| c.id.as_deref()).collect();
    for instance in runtime.all() {
        let settled = matches!(
            instance.state.get(),
            InstanceState::Ready | InstanceState::Paused | InstanceState::Unresponsive { .. }
        );
        if settled && !running.contains(&instance.container.as_str()) {
            ended(runtime.clone(), instance, None).await;
        }
    }
}

/// Records how a container ended, and removes what is left of it. May be repeated.
pub(super) async fn ended(runtime: Arc<Shared>, instance: Arc<DockerInstance>, code: Option<i64>) {
    let exit = exit_of(&instance, code).await;
    let Some(exit) = exit else { return };
    // The last lines may still be arriving; they are worth a short wait.
    let mut log = instance.log_ended.subscribe();
    let limit = runtime.options.last_lines;
    drop(tokio::time::timeout(limit, log.wait_for(|ended| *ended)).await);
    if instance.state.set(InstanceState::Exited(exit.clone())) {
        runtime.options.metrics.exited(Kind::Docker, &exit);
    }
    match instance.remove().await {
        Ok(()) => runtime.forget(&instance.container),
        // `collect` will find it.
        Err(error) => {
            tracing::warn!(instance = %instance.description.id, %error, "an ended container stays for now");
            instance.removed.send_replace(true);
            runtime.forget(&instance.container);
        }
    }
}

/// How it ended; `None` if it is running, or the engine does not answer and no exit code is known.
async fn exit_of(instance: &DockerInstance, code: Option<i64>) -> Option<Exit> {
    let stopped = instance.stopping.load(Ordering::SeqCst);
    let by = |other| if stopped { ExitReason::Stopped } else { other };
    match instance
        .docker
        .inspect_container(&instance.container, None)
        .await
    {
        Ok(found) => {
            let state = found.state.unwrap_or_default();
            if state.running == Some(true) {
                return None;
            }
            let memory = state.oom_killed == Some(true) && !stopped;
            Some(Exit {
                code: state.exit_code.or(code),
                reason: if memory {
                    ExitReason::OutOfMemory
                } else {
                    by(ExitReason::Ended)
                },
            })
        }
        Err(error) if failure::status(&error) == Some(404) => Some(Exit {
            code,
            reason: by(if code.is_some() {
                ExitReason::Ended
            } else {
                ExitReason::Lost
            }),
        }),
        // The engine is unreachable. With a code the end is certain; otherwise the next reconciliation determines it.
        Err(_) => code.map(|code| Exit {
            code: Some(code),
            reason: by(ExitReason::Ended),
        }),
    }
}

/// Captures a container's output until it ends.
pub(super) async fn capture(instance: Arc<DockerInstance>, history: LogHistory) {
    let mut since = match history {
        LogHistory::FromStart => 0,
        LogHistory::Tail(lines) => {
            let options = LogsOptionsBuilder::default()
                .stdout(true)
                .stderr(true)
                .tail(&lines.to_string())
                .build();
            let now = unix_seconds();
            let mut tail = instance.docker.logs(&instance.container, Some(options));
            while let Some(Ok(piece)) = tail.next().await {
                write(&instance, &piece, false);
            }
            now
        }
    };
    while instance.state.get().exit().is_none() {
        let options = LogsOptionsBuilder::default()
            .follow(true)
            .stdout(true)
            .stderr(true)
            .since(since)
            .build();
        let mut output = instance.docker.logs(&instance.container, Some(options));
        let mut broken = false;
        while let Some(piece) = output.next().await {
            match piece {
                Ok(piece) => write(&instance, &piece, true),
                Err(_) => broken = true,
            }
        }
        if !broken {
            break;
        }
        // The engine was unreachable while the container runs. A line may come twice, but none is lost.
        since = unix_seconds();
        tokio::time::sleep(FIRST_PAUSE).await;
    }
    instance
        .log
        .finish(|line| instance.sink.line(&instance.description, line));
    instance.log_ended.send_replace(true);
}

/// How much of the earlier output is captured.
#[derive(Clone, Copy, Debug)]
pub(super) enum LogHistory {
    /// All of it: the container was only just started.
    FromStart,
    /// Only the last lines, for those who ask; the log sink already received them.
    Tail(usize),
}

fn write(instance: &DockerInstance, piece: &LogOutput, forward: bool) {
    let (stream, bytes) = match piece {
        LogOutput::StdErr { message } => (LogStream::Stderr, message),
        LogOutput::StdOut { message }
        | LogOutput::Console { message }
        | LogOutput::StdIn { message } => (LogStream::Stdout, message),
    };
    instance.log.write(stream, bytes, |line| {
        if forward {
            instance.sink.line(instance.description(), line);
        }
    });
}

fn unix_seconds() -> i32 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    // The engine's client wants 32 bits, which end in 2038; from then on all output since the start is requested.
    now.ok()
        .and_then(|now| i32::try_from(now.as_secs()).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_goes_on_just_after_the_last_event() {
        let event = EventMessage {
            time_nano: Some(1_700_000_000_999_999_999),
            ..EventMessage::default()
        };
        assert_eq!(
            resume_point(&event).expect("it has a time"),
            "1700000001.000000000"
        );
    }
}
