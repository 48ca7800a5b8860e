//! A fake instance.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use fdn_core::api::LogStream;
use futures::future::BoxFuture;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::sync::watch;

use crate::body::{Body, BoxError, Request, Response};
use crate::call::CallFailure;
use crate::error::InstanceError;
use crate::fake::program::{FakeContext, FakeProgram};
use crate::instance::Instance;
use crate::log::{LogLine, LogTail};
use crate::runtime::Owner;
use crate::spec::{Description, StartSpec};
use crate::state::{Exit, ExitReason, InstanceState};

/// An instance of a [`crate::fake::FakeProgram`].
#[derive(Debug)]
pub struct FakeInstance {
    owner: Owner,
    spec: StartSpec,
    program: FakeProgram,
    log: LogTail,
    state: watch::Sender<InstanceState>,
    calls: watch::Sender<usize>,
}

impl FakeInstance {
    pub(crate) fn new(owner: Owner, spec: StartSpec, program: FakeProgram) -> Self {
        Self {
            owner,
            log: LogTail::new(spec.logs),
            spec,
            program,
            state: watch::Sender::new(InstanceState::Starting),
            calls: watch::Sender::new(0),
        }
    }

    pub(crate) fn owner(&self) -> &Owner {
        &self.owner
    }

    pub(crate) fn spec(&self) -> &StartSpec {
        &self.spec
    }

    pub(crate) fn program(&self) -> &FakeProgram {
        &self.program
    }

    pub(crate) fn print(&self, stream: LogStream, line: &str) {
        self.log.write(stream, line.as_bytes(), |_| {});
        self.log.write(stream, b"\n", |_| {});
    }

    pub(crate) fn current(&self) -> InstanceState {
        self.state.borrow().clone()
    }

    /// Changes the state unless it has ended.
    pub(crate) fn set(&self, next: InstanceState) {
        self.state.send_if_modified(|state| {
            let change = state.exit().is_none() && *state != next;
            if change {
                *state = next;
            }
            change
        });
    }

    pub(crate) fn end(&self, exit: Exit) {
        self.set(InstanceState::Exited(exit));
    }

    async fn ended(mut state: watch::Receiver<InstanceState>) {
        // The sender lives as long as the instance, which the caller holds.
        drop(state.wait_for(|state| state.exit().is_some()).await);
    }
}

/// Counts a call for as long as it runs.
struct Running(Arc<FakeInstance>);

impl Running {
    fn new(instance: Arc<FakeInstance>) -> Self {
        instance.calls.send_modify(|calls| *calls += 1);
        Self(instance)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.calls.send_modify(|calls| *calls -= 1);
    }
}

#[async_trait]
impl Instance for Arc<FakeInstance> {
    fn description(&self) -> &Description {
        &self.spec.description
    }

    fn state(&self) -> watch::Receiver<InstanceState> {
        self.state.subscribe()
    }

    async fn call(&self, request: Request) -> Result<Response, CallFailure> {
        match self.current() {
            InstanceState::Ready => {}
            InstanceState::Exited(exit) => {
                return Err(CallFailure::not_sent(request, exit.to_string()));
            }
            InstanceState::Starting
            | InstanceState::Paused
            | InstanceState::Unresponsive { .. } => {
                return Err(CallFailure::not_sent(request, "connection refused"));
            }
        }
        let running = Running::new(self.clone());
        let handling = self.program.handle(FakeContext(self.clone()), request);
        let answer = tokio::select! {
            // An instance that ends itself while it answers has ended first.
            biased;
            () = FakeInstance::ended(self.state.subscribe()) => None,
            response = handling => Some(response),
        };
        match answer {
            Some(response) if self.current().exit().is_none() => Ok(response.map(|body| {
                Cut {
                    body,
                    ended: Box::pin(FakeInstance::ended(self.state.subscribe())),
                    _running: running,
                }
                .boxed_unsync()
            })),
            _ => Err(CallFailure::interrupted("connection reset")),
        }
    }

    async fn pause(&self) -> Result<(), InstanceError> {
        self.living()?;
        self.set(InstanceState::Paused);
        Ok(())
    }

    async fn resume(&self) -> Result<(), InstanceError> {
        self.living()?;
        self.set(InstanceState::Ready);
        Ok(())
    }

    async fn stop(&self, grace: Duration) -> Result<Exit, InstanceError> {
        let mut calls = self.calls.subscribe();
        drop(tokio::time::timeout(grace, calls.wait_for(|calls| *calls == 0)).await);
        self.end(Exit {
            code: Some(0),
            reason: ExitReason::Stopped,
        });
        Ok(self.current().exit().cloned().unwrap_or_else(Exit::lost))
    }

    fn log_tail(&self) -> Vec<LogLine> {
        self.log.lines()
    }
}

impl FakeInstance {
    fn living(&self) -> Result<(), InstanceError> {
        match self.current() {
            InstanceState::Exited(exit) => Err(InstanceError::Ended(exit)),
            _ => Ok(()),
        }
    }
}

/// A response body that fails when its instance ends.
struct Cut {
    body: Body,
    ended: BoxFuture<'static, ()>,
    _running: Running,
}

impl http_body::Body for Cut {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.ended.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Some(Err("connection reset".into())));
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
