//! Puts devices back into service at an operator's request: each request is executed once, so that a device that fails again afterwards stays
//! out.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fdn_core::{DeviceId, Revision};
use fdn_devices::Devices;
use fdn_service::CancellationToken;
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tracing::{error, info, warn};

use super::{Fleet, FleetView};
use crate::disk;

/// The file with the revision up to which all requests were executed, in the folder of the desired state.
const FILE: &str = "devices-restored.json";

/// The requests that were not executed yet.
fn due(view: &FleetView, done: Revision) -> Vec<(DeviceId, Revision)> {
    let said = view.restored().iter();
    let new = said.filter(|(_, revision)| **revision > done);
    new.map(|(device, revision)| (device.clone(), *revision))
        .collect()
}

/// The revision up to which all requests were executed; 0 on a new node.
fn read(path: &Path) -> Revision {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(_) => return Revision(0),
    };
    serde_json::from_slice(&bytes).unwrap_or_else(|error| {
        warn!(path = %path.display(), %error, "it is not known which devices were put back into service; it is done again");
        Revision(0)
    })
}

/// Executes operators' requests until `stop` is cancelled; notifies `changed`, so that the next report is sent at once.
pub async fn restore(
    fleet: Arc<Fleet>,
    devices: Devices,
    folder: PathBuf,
    changed: Arc<Notify>,
    stop: CancellationToken,
) {
    let path = folder.join(FILE);
    let mut done = read(&path);
    let mut views = fleet.subscribe();
    loop {
        let view = views.borrow_and_update().clone();
        let due = due(&view, done);
        let newest = due.iter().map(|(_, revision)| *revision).max();
        if let Some(newest) = newest {
            let (devices, path) = (devices.clone(), path.clone());
            // Blocking, because the result must be on disk.
            let doing = spawn_blocking(move || put_back(&devices, &due, &path, newest));
            if let Err(failure) = doing.await {
                error!(%failure, "devices could not be put back into service");
            }
            done = newest;
            changed.notify_one();
        }
        tokio::select! {
            () = stop.cancelled() => return,
            changed = views.changed() => if changed.is_err() { return },
        }
    }
}

fn put_back(devices: &Devices, due: &[(DeviceId, Revision)], path: &Path, newest: Revision) {
    for (device, _) in due {
        match devices.restore(device) {
            Ok(_) => info!(%device, "an operator put a device back into service"),
            Err(failure) => {
                error!(%device, %failure, "the device could not be put back into service");
            }
        }
    }
    // Written afterwards: if the write is lost, the requests are executed once more.
    let bytes = serde_json::to_vec(&newest).unwrap_or_default();
    if let Err(failure) = disk::replace(path, &bytes) {
        error!(%failure, "it is not kept which devices were put back into service");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use fdn_core::NodeId;
    use fdn_core::fleet::FleetDesired;

    use super::*;

    #[test]
    fn each_word_counts_once_and_only_for_its_node() {
        let (me, other): (NodeId, NodeId) = ("n-1".parse().unwrap(), "n-2".parse().unwrap());
        let device = |name: &str| name.parse::<DeviceId>().unwrap();
        let of = |list: &[(&str, u64)]| -> BTreeMap<DeviceId, Revision> {
            let all = list.iter().map(|(name, at)| (device(name), Revision(*at)));
            all.collect()
        };
        let desired = FleetDesired {
            revision: Revision(9),
            restored: BTreeMap::from([
                (me.clone(), of(&[("GPU-1", 3), ("GPU-2", 7)])),
                (other, of(&[("GPU-3", 8)])),
            ]),
            ..FleetDesired::default()
        };
        let view = FleetView::new(&me, None, desired);
        assert_eq!(due(&view, Revision(0)).len(), 2);
        assert_eq!(due(&view, Revision(3)), [(device("GPU-2"), Revision(7))]);
        assert!(due(&view, Revision(7)).is_empty());

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        assert_eq!(read(&path), Revision(0));
        disk::replace(&path, &serde_json::to_vec(&Revision(7)).unwrap()).unwrap();
        assert_eq!(read(&path), Revision(7));
        std::fs::write(&path, "no number").unwrap();
        assert_eq!(read(&path), Revision(0));
    }
}
