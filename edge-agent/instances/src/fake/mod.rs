//! A scripted in-memory runtime with delays, failures and crashes. It passes the contract list, so tests that use it are valid
//! for real runtimes, too.
//!
//! ```
//! # use std::sync::Arc;
//! # use std::time::Duration;
//! # use fdn_instances::fake::{FakeEngine, FakeProgram};
//! let engine = FakeEngine::new();
//! let image = engine.add_image("thumbs", FakeProgram::text("hello"));
//! engine.delay_starts(Duration::from_millis(80));
//! let runtime = engine.runtime("eu-west-1".parse().unwrap(), "node-1".parse().unwrap());
//! // runtime.start(StartSpec::new(id, app, function, image, resources)).await …
//! // engine.crash_all();
//! # drop((runtime, image));
//! ```
//!
//! The [`FakeEngine`] stands for the part that outlives the agent (the Docker engine): several [`FakeRuntime`]s, one after another or of
//! different owners, can use one. It uses tokio's time, so tests may pause it.

mod engine;
mod instance;
mod program;

use std::sync::Arc;

use async_trait::async_trait;
use fdn_core::{ClusterId, NodeId};

pub use engine::FakeEngine;
pub use instance::FakeInstance;
pub use program::{AtStart, FakeContext, FakeProgram};

use crate::error::{RuntimeError, StartError};
use crate::instance::Instance;
use crate::runtime::{Capabilities, Collected, Kind, Owner, Runtime};
use crate::spec::{Image, Outbound, StartSpec};

/// A runtime on a [`FakeEngine`].
#[derive(Debug)]
pub struct FakeRuntime {
    owner: Owner,
    engine: Arc<FakeEngine>,
}

impl FakeEngine {
    /// A runtime of this owner on this engine.
    #[must_use]
    pub fn runtime(self: &Arc<Self>, cluster: ClusterId, node: NodeId) -> Arc<FakeRuntime> {
        Arc::new(FakeRuntime {
            owner: Owner { cluster, node },
            engine: self.clone(),
        })
    }
}

#[async_trait]
impl Runtime for FakeRuntime {
    fn kind(&self) -> Kind {
        Kind::Fake
    }

    fn owner(&self) -> &Owner {
        &self.owner
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            pause: true,
            survives_agent: true,
            devices: true,
        }
    }

    async fn check(&self) -> Result<(), RuntimeError> {
        self.engine.check()
    }

    async fn prepare(&self, image: &Image) -> Result<(), StartError> {
        self.engine.check()?;
        self.engine.program(image).map(drop)
    }

    async fn start(&self, spec: StartSpec) -> Result<Arc<dyn Instance>, StartError> {
        if matches!(spec.outbound, Outbound::Hosts(_)) {
            return Err(StartError::Unsupported {
                reason: "the fake cannot keep to a list of hosts".to_owned(),
            });
        }
        self.engine.start(&self.owner, spec).await
    }

    async fn adopt(&self) -> Result<Vec<Arc<dyn Instance>>, RuntimeError> {
        self.engine.check()?;
        Ok(self.engine.running(&self.owner))
    }

    async fn collect(&self) -> Result<Collected, RuntimeError> {
        self.engine.check()?;
        Ok(self.engine.collect(&self.owner))
    }
}
