//! The runtime of a node that runs no containers itself: its calls go to instances on other nodes of its cluster.
//!
//! Nothing is ever started by it, because the cluster hears that the node has no room for instances.

use std::sync::Arc;

use async_trait::async_trait;
use fdn_instances::{
    Capabilities, Collected, Image, Instance, Kind, Owner, Runtime, RuntimeError, StartError,
    StartSpec,
};

/// Runs nothing here.
#[derive(Debug)]
pub struct Elsewhere(pub Owner);

#[async_trait]
impl Runtime for Elsewhere {
    fn kind(&self) -> Kind {
        Kind::Elsewhere
    }

    fn owner(&self) -> &Owner {
        &self.0
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            // As far as the node can that runs them; one that cannot says so, and they stay awake.
            pause: true,
            // They are left to the nodes that run them.
            survives_agent: true,
            devices: false,
        }
    }

    async fn check(&self) -> Result<(), RuntimeError> {
        Ok(())
    }

    async fn prepare(&self, _image: &Image) -> Result<(), StartError> {
        Ok(())
    }

    async fn start(&self, _spec: StartSpec) -> Result<Arc<dyn Instance>, StartError> {
        Err(StartError::NoRoom {
            reason: "this node runs no containers, and no other node of its cluster is there"
                .to_owned(),
        })
    }

    async fn adopt(&self) -> Result<Vec<Arc<dyn Instance>>, RuntimeError> {
        Ok(Vec::new())
    }

    async fn collect(&self) -> Result<Collected, RuntimeError> {
        Ok(Collected::default())
    }
}
