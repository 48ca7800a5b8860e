//! The runtime of a node that runs no containers itself: its calls go to instances on other nodes of its cluster.
//!
//! It never starts anything, because the node reports to the cluster that it has no room for instances.

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
            // The node that runs an instance pauses it; if that node cannot, it says so and the instance stays awake.
            pause: true,
            // Instances are left to the nodes that run them.
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
