//! A distant runtime: every order, call and answer takes a while to arrive.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fdn_instances::{
    CallFailure, Capabilities, Collected, Description, Exit, Image, Instance, InstanceError,
    InstanceState, Kind, LogLine, Owner, Request, Response, Runtime, RuntimeError, StartError,
    StartSpec,
};
use tokio::sync::watch;
use tokio::time::sleep;

/// A runtime behind a link with this delay in each direction.
#[derive(Debug)]
pub(crate) struct Far<R> {
    pub(crate) near: R,
    pub(crate) delay: Duration,
}

#[derive(Debug)]
struct FarInstance {
    near: Arc<dyn Instance>,
    delay: Duration,
}

#[async_trait]
impl<R: Runtime> Runtime for Far<Arc<R>> {
    fn kind(&self) -> Kind {
        self.near.kind()
    }

    fn owner(&self) -> &Owner {
        self.near.owner()
    }

    fn capabilities(&self) -> Capabilities {
        self.near.capabilities()
    }

    async fn check(&self) -> Result<(), RuntimeError> {
        self.near.check().await
    }

    async fn prepare(&self, image: &Image) -> Result<(), StartError> {
        self.near.prepare(image).await
    }

    async fn start(&self, spec: StartSpec) -> Result<Arc<dyn Instance>, StartError> {
        sleep(self.delay).await;
        let near = self.near.start(spec).await;
        sleep(self.delay).await;
        Ok(Arc::new(FarInstance {
            near: near?,
            delay: self.delay,
        }))
    }

    async fn adopt(&self) -> Result<Vec<Arc<dyn Instance>>, RuntimeError> {
        self.near.adopt().await
    }

    async fn collect(&self) -> Result<Collected, RuntimeError> {
        self.near.collect().await
    }
}

#[async_trait]
impl Instance for FarInstance {
    fn description(&self) -> &Description {
        self.near.description()
    }

    fn state(&self) -> watch::Receiver<InstanceState> {
        // State changes arrive as late as everything else.
        let mut near = self.near.state();
        let (here, state) = watch::channel(near.borrow().clone());
        let delay = self.delay;
        tokio::spawn(async move {
            loop {
                let changed = tokio::select! {
                    changed = near.changed() => changed.is_ok(),
                    () = here.closed() => false,
                };
                if !changed {
                    return;
                }
                sleep(delay).await;
                let now = near.borrow_and_update().clone();
                let is_over = now.exit().is_some();
                here.send_replace(now);
                if is_over {
                    return;
                }
            }
        });
        state
    }

    async fn call(&self, request: Request) -> Result<Response, CallFailure> {
        sleep(self.delay).await;
        let answer = self.near.call(request).await;
        sleep(self.delay).await;
        answer
    }

    async fn pause(&self) -> Result<(), InstanceError> {
        sleep(self.delay).await;
        self.near.pause().await
    }

    async fn resume(&self) -> Result<(), InstanceError> {
        sleep(self.delay).await;
        let resumed = self.near.resume().await;
        sleep(self.delay).await;
        resumed
    }

    async fn stop(&self, grace: Duration) -> Result<Exit, InstanceError> {
        sleep(self.delay).await;
        self.near.stop(grace).await
    }

    fn log_tail(&self) -> Vec<LogLine> {
        self.near.log_tail()
    }
}
