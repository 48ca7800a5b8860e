//! Puts devices back into service at an operator's request: each request is executed once, so that a device that fails again afterwards stays
//! out. One that fails is tried again.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fdn_core::{DeviceId, Revision};
use fdn_devices::Devices;
use fdn_service::CancellationToken;
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tracing::{error, info, warn};

use super::{Fleet, FleetView};
use crate::disk;

/// The file with the revision up to which all requests were executed, in the folder of the desired state.
const FILE: &str = "devices-restored.json";

/// The time after which requests that failed are tried again.
const AGAIN: Duration = Duration::from_secs(30);

/// A request: a device, and the revision in which it was made.
type Request = (DeviceId, Revision);

/// The requests that were executed.
#[derive(Debug, Default)]
struct Executed {
    /// All up to this revision.
    up_to: Revision,
    /// Beyond it, because others were not.
    beyond: BTreeSet<Request>,
}

impl Executed {
    /// The requests that were not executed yet.
    fn due(&self, view: &FleetView) -> Vec<Request> {
        let said = view.restored().iter();
        let new = said.filter(|(_, revision)| **revision > self.up_to);
        new.map(|(device, revision)| (device.clone(), *revision))
            .filter(|request| !self.beyond.contains(request))
            .collect()
    }

    /// Adds requests. Returns the new `up_to` if that were all.
    fn add(&mut self, requests: Vec<Request>, view: &FleetView) -> Option<Revision> {
        self.beyond.extend(requests);
        if !self.due(view).is_empty() {
            return None;
        }
        let newest = self.beyond.iter().map(|(_, revision)| *revision).max()?;
        self.beyond.clear();
        self.up_to = self.up_to.max(newest);
        Some(self.up_to)
    }
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
    let mut executed = Executed {
        up_to: read(&path),
        ..Executed::default()
    };
    let mut views = fleet.subscribe();
    loop {
        let view = views.borrow_and_update().clone();
        let due = executed.due(&view);
        let is_due = !due.is_empty();
        if is_due {
            let devices = devices.clone();
            // Blocking, because the result must be on disk.
            let doing = spawn_blocking(move || put_back(&devices, due));
            let restored = doing.await.unwrap_or_else(|failure| {
                error!(%failure, "devices could not be put back into service");
                Vec::new()
            });
            if let Some(up_to) = executed.add(restored, &view) {
                let path = path.clone();
                if let Err(failure) = spawn_blocking(move || keep(&path, up_to)).await {
                    error!(%failure, "it is not kept which devices were put back into service");
                }
            }
            changed.notify_one();
        }
        let failed = is_due && !executed.due(&view).is_empty();
        tokio::select! {
            () = stop.cancelled() => return,
            changed = views.changed() => if changed.is_err() { return },
            () = sleep(AGAIN), if failed => {}
        }
    }
}

/// Executes requests; returns those that succeeded.
fn put_back(devices: &Devices, mut due: Vec<Request>) -> Vec<Request> {
    due.retain(|(device, _)| match devices.restore(device) {
        Ok(_) => {
            info!(%device, "an operator put a device back into service");
            true
        }
        Err(failure) => {
            error!(%device, %failure, "the device could not be put back into service; it is tried again");
            false
        }
    });
    due
}

/// Keeps the revision up to which all requests were executed.
fn keep(path: &Path, up_to: Revision) {
    // Written afterwards: if the write is lost, the requests are executed once more.
    let bytes = serde_json::to_vec(&up_to).unwrap_or_default();
    if let Err(failure) = disk::replace(path, &bytes) {
        error!(%failure, "it is not kept which devices were put back into service");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use fdn_core::fleet::FleetDesired;
    use fdn_core::{NodeId, Timestamp};
    use fdn_devices::discovery::from_settings;
    use fdn_devices::{DeviceMetrics, DevicesSettings, Parts, SimulatedGroup};

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
        let due = |up_to| {
            let executed = Executed {
                up_to: Revision(up_to),
                ..Executed::default()
            };
            executed.due(&view)
        };
        let (first, last) = (
            (device("GPU-1"), Revision(3)),
            (device("GPU-2"), Revision(7)),
        );
        assert_eq!(due(0), [first.clone(), last.clone()]);
        assert_eq!(due(3), std::slice::from_ref(&last));
        assert!(due(7).is_empty());

        // One that fails is due again, the others are not.
        let mut executed = Executed::default();
        assert_eq!(executed.add(Vec::new(), &view), None);
        assert_eq!(executed.add(vec![last], &view), None);
        assert_eq!(executed.due(&view), std::slice::from_ref(&first));
        assert_eq!(executed.add(vec![first], &view), Some(Revision(7)));
        assert!(executed.due(&view).is_empty());

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        assert_eq!(read(&path), Revision(0));
        disk::replace(&path, &serde_json::to_vec(&Revision(7)).unwrap()).unwrap();
        assert_eq!(read(&path), Revision(7));
        std::fs::write(&path, "no number").unwrap();
        assert_eq!(read(&path), Revision(0));
    }

    #[test]
    fn what_cannot_be_written_is_not_done() {
        let settings = DevicesSettings {
            simulated: SimulatedGroup {
                count: 1,
                ..SimulatedGroup::default()
            },
            ..DevicesSettings::default()
        };
        let node: NodeId = "n-1".parse().unwrap();
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("devices");
        let devices = Devices::open(Parts {
            discovery: from_settings(&settings),
            settings,
            folder: &folder,
            metrics: DeviceMetrics::new(&prometheus::Registry::new(), &node).unwrap(),
            boot: "one".to_owned(),
            now: || Timestamp(1),
        })
        .unwrap();
        let device: DeviceId = "SIM-0".parse().unwrap();
        devices.take_out(&device, "Xid 79").unwrap();
        let due = vec![(device, Revision(3))];
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(put_back(&devices, due.clone()).is_empty());
        assert!(!devices.status()[0].state.is_in_service());
        std::fs::create_dir(&folder).unwrap();
        assert_eq!(put_back(&devices, due.clone()), due);
        assert!(devices.status()[0].state.is_in_service());
    }
}
