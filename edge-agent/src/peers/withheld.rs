//! Withholds from the cluster the GPU memory of devices that are out of service.
//!
//! The cluster counts a node's GPU memory as one sum, fixed when the node joins; which device provides what is known to the node only
//! (fdn-devices). Memory that no device can provide is therefore held here, like that of an instance found at startup. Otherwise the cluster
//! would go on sending tasks that the node has to refuse.

use fdn_cluster::Cluster;
use fdn_cluster::TaskId;
use fdn_core::{MebiBytes, Resources};
use tracing::warn;

use super::Node;

/// The memory held now, in pieces, because devices fail at different times.
#[derive(Default)]
pub(super) struct WithheldMemory {
    pieces: Vec<(MebiBytes, TaskId)>,
}

impl WithheldMemory {
    fn held(&self) -> MebiBytes {
        let all = self.pieces.iter().map(|(size, _)| *size);
        all.fold(MebiBytes(0), MebiBytes::saturating_add)
    }

    /// Holds a further piece or releases all pieces, until `wanted` is held. Memory that the cluster has assigned meanwhile cannot be held; that
    /// is tried again at the next look.
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
    /// GPU memory that the cluster counts on and no device can provide: the announced sum less what is bound and what can still be bound.
    pub(super) fn gpu_lost(&self) -> MebiBytes {
        if self.gpu == MebiBytes(0) {
            return MebiBytes(0);
        }
        let (free, bound) = self.local.gpu_left();
        self.gpu.saturating_sub(free).saturating_sub(bound)
    }
}
