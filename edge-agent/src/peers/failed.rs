//! GPU memory that the cluster must not give away though nobody holds it: that of devices that are out of service.
//!
//! The cluster counts a node's GPU memory as one sum, fixed when the node joins; which device gives what is the node's own affair
//! (fdn-devices). Memory that no device can give is therefore held here like an instance that was found. Otherwise tasks would go on coming to a
//! node that has to refuse each of them.

use fdn_cluster::Cluster;
use fdn_cluster::TaskId;
use fdn_core::{MebiBytes, Resources};
use tracing::warn;

use super::Node;

/// What is held now: pieces, for what fails at different times is held at different times.
#[derive(Default)]
pub(super) struct Failed {
    pieces: Vec<(MebiBytes, TaskId)>,
}

impl Failed {
    fn held(&self) -> MebiBytes {
        let all = self.pieces.iter().map(|(size, _)| *size);
        all.fold(MebiBytes(0), MebiBytes::saturating_add)
    }

    /// Takes a piece more, or gives pieces back, until as much is held as is wanted. What the cluster has given away meanwhile is not to be had: then
    /// nothing is, until the next look.
    pub(super) async fn hold(&mut self, cluster: &Cluster, wanted: MebiBytes) {
        if wanted < self.held() {
            for (_, task) in self.pieces.drain(..) {
                cluster.ended(task);
            }
        }
        let lacking = wanted.saturating_sub(self.held());
        if lacking == MebiBytes(0) {
            return;
        }
        let demand = Resources {
            gpu_memory_mib: lacking,
            ..Resources::default()
        };
        match cluster.hold(demand).await {
            Ok(Some(task)) => self.pieces.push((lacking, task)),
            Ok(None) => {}
            Err(failure) => warn!(%failure, "the memory of failed devices is not held"),
        }
    }
}

impl Node {
    /// GPU memory that the cluster counts on and no device can give: what it was told of, less what is bound and what can be bound.
    pub(super) fn gpu_lost(&self) -> MebiBytes {
        if self.gpu == MebiBytes(0) {
            return MebiBytes(0);
        }
        let (free, bound) = self.local.gpu_left();
        self.gpu.saturating_sub(free).saturating_sub(bound)
    }
}
