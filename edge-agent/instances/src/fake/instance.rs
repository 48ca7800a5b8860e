//! A fake instance.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use fdn_core::api::LogStream;
use tokio::sync::watch;

use crate::body::{GuardedBody, Request, Response};
use crate::call::{CallFailure, CallGuard};
use crate::error::InstanceError;
use crate::fake::engine::FakeEngine;
use crate::fake::program::{FakeContext, FakeProgram};
use crate::instance::Instance;
use crate::log::{LogLine, LogTail};
use crate::runtime::Owner;
use crate::spec::{Description, StartSpec};
use crate::state::{Exit, ExitReason, InstanceState, StateCell, ended};

/// An instance of a [`crate::fake::FakeProgram`].
#[derive(Debug)]
pub struct FakeInstance {
    owner: Owner,
    spec: StartSpec,
    program: FakeProgram,
    log: LogTail,
    state: StateCell,
    /// Whether it is paused, even if its state does not say so.
    frozen: AtomicBool,
    calls: watch::Sender<usize>,
    /// Weak, because the engine holds its instances.
    engine: Weak<FakeEngine>,
}

impl FakeInstance {
    pub(crate) fn new(
        engine: &Arc<FakeEngine>,
        owner: Owner,
        spec: StartSpec,
        program: FakeProgram,
    ) -> Self {
        Self {
            owner,
            log: LogTail::new(spec.logs),
            spec,
            program,
            state: StateCell::new(InstanceState::Starting),
            frozen: AtomicBool::new(false),
            calls: watch::Sender::new(0),
            engine: Arc::downgrade(engine),
        }
    }

    pub(crate) fn owner(&self) -> &Owner {
        &self.owner
    }

    pub(crate) fn spec(&self) -> &StartSpec {
        &self.spec
    }

    pub(crate) fn running(&self) -> usize {
        *self.calls.borrow()
    }

    pub(crate) fn program(&self) -> &FakeProgram {
        &self.program
    }

    pub(crate) fn print(&self, stream: LogStream, line: &str) {
        self.log.write(stream, line.as_bytes(), |_| {});
        self.log.write(stream, b"\n", |_| {});
    }

    pub(crate) fn current(&self) -> InstanceState {
        self.state.get()
    }

    /// Whether it lives and is paused.
    pub(crate) fn is_frozen(&self) -> bool {
        self.frozen.load(Ordering::SeqCst) && self.current().exit().is_none()
    }

    pub(crate) fn set(&self, next: InstanceState) {
        self.state.set(next);
    }

    pub(crate) fn end(&self, exit: Exit) {
        self.set(InstanceState::Exited(exit));
    }
}

/// Counts a call for as long as it runs.
struct Running {
    instance: Arc<FakeInstance>,
    _guard: Option<CallGuard>,
}

impl Running {
    fn new(instance: Arc<FakeInstance>, guard: Option<CallGuard>) -> Self {
        instance.calls.send_modify(|calls| *calls += 1);
        Self {
            instance,
            _guard: guard,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.instance.calls.send_modify(|calls| *calls -= 1);
    }
}

#[async_trait]
impl Instance for Arc<FakeInstance> {
    fn description(&self) -> &Description {
        &self.spec.description
    }

    fn state(&self) -> watch::Receiver<InstanceState> {
        self.state.watch()
    }

    async fn call(&self, mut request: Request) -> Result<Response, CallFailure> {
        match self.current() {
            InstanceState::Ready if !self.is_frozen() => {}
            InstanceState::Exited(exit) => {
                return Err(CallFailure::not_sent(request, exit.to_string()));
            }
            InstanceState::Starting
            | InstanceState::Ready
            | InstanceState::Paused
            | InstanceState::Unresponsive { .. } => {
                return Err(CallFailure::not_sent(request, "connection refused"));
            }
        }
        let guard = request.extensions_mut().remove();
        let running = Running::new(self.clone(), guard);
        let handling = self.program.handle(FakeContext(self.clone()), request);
        let instance = self.clone();
        let answering = async move {
            let answer = tokio::select! {
                // An instance that ends itself while it answers counts as ended first.
                biased;
                _ = instance.state.ended() => None,
                response = handling => Some(response),
            };
            (answer, running)
        };
        let (answer, running) = if self.program.works_on {
            let answered = tokio::spawn(answering).await;
            answered.map_err(|error| CallFailure::interrupted(error.to_string()))?
        } else {
            answering.await
        };
        match answer {
            Some(response) if self.current().exit().is_none() => Ok(response.map(|body| {
                let ended = ended(self.state.watch());
                GuardedBody::boxed(body, Box::pin(ended), running)
            })),
            _ => Err(CallFailure::interrupted("connection reset")),
        }
    }

    async fn pause(&self) -> Result<(), InstanceError> {
        self.living()?;
        self.frozen.store(true, Ordering::SeqCst);
        let engine = self.engine.upgrade();
        if !engine.is_some_and(|engine| engine.hides_pauses()) {
            self.set(InstanceState::Paused);
        }
        Ok(())
    }

    async fn resume(&self) -> Result<(), InstanceError> {
        self.living()?;
        if !self.is_frozen() {
            return Ok(());
        }
        if let Some(engine) = self.engine.upgrade() {
            engine.resume().await?;
        }
        self.living()?;
        self.frozen.store(false, Ordering::SeqCst);
        self.set(InstanceState::Ready);
        Ok(())
    }

    async fn stop(&self, grace: Duration) -> Result<Exit, InstanceError> {
        if let Some(engine) = self.engine.upgrade() {
            engine.stop()?;
        }
        if self.current().exit().is_none() {
            let mut calls = self.calls.subscribe();
            drop(tokio::time::timeout(grace, calls.wait_for(|calls| *calls == 0)).await);
        }
        self.end(Exit {
            code: Some(0),
            reason: ExitReason::Stopped,
        });
        if let Some(engine) = self.engine.upgrade() {
            engine.forget(self.spec.description.id);
        }
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
