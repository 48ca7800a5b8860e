//! The operators' decisions about the network's machines, as far as this node must know them: whether it may take new work, which certificates
//! were revoked, and which authorities to trust.
//!
//! They arrive with the other desired state, the newest revision wins, and they are kept on disk: a cordoned node stays cordoned when it starts
//! without a controller, and a revoked certificate stays refused. Other parts of the agent read a [`FleetView`], or wait for the next one.

mod devices;
mod view;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use fdn_core::fleet::{FleetDesired, Revoked};
use fdn_core::{NodeId, Revision, Timestamp};
use fdn_service::ServiceError;
use fdn_service::pki::Facts;
use tokio::sync::watch;
use tracing::{error, info, warn};

pub use devices::restore as restore_devices;
pub use fdn_link::join::bundle;
pub use view::{FleetView, Work};

use crate::disk;
use crate::error::Error;
use crate::settings::TlsSettings;

/// Keeps the operators' decisions and publishes them.
#[derive(Debug)]
pub struct Fleet {
    node: NodeId,
    path: PathBuf,
    tls: TlsSettings,
    /// The newest revision on disk. Locked while a newer one is written, so that the file never goes back.
    kept: Mutex<Revision>,
    view: watch::Sender<Arc<FleetView>>,
}

impl Fleet {
    /// Reads the decisions kept in `folder`; none on a new node. An unreadable file is ignored: the next snapshot brings everything.
    ///
    /// # Errors
    /// When the folder is not usable, or the node's certificate cannot be read.
    pub fn open(folder: PathBuf, node: NodeId, tls: TlsSettings) -> Result<Self, Error> {
        disk::folder(&folder)?;
        let path = folder.join("fleet.json");
        let serial = tls.certificate.as_deref().map(serial).transpose()?;
        let desired = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice::<FleetDesired>(&bytes).unwrap_or_else(|error| {
                error!(path = %path.display(), %error, "what operators said cannot be understood and is left out");
                FleetDesired::default()
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => FleetDesired::default(),
            Err(source) => return Err(Error::Data { path, source }),
        };
        let kept = desired.revision;
        let view = FleetView::new(&node, serial, desired);
        Ok(Self {
            node,
            path,
            tls,
            kept: Mutex::new(kept),
            view: watch::Sender::new(Arc::new(view)),
        })
    }

    /// The present view.
    #[must_use]
    pub fn view(&self) -> Arc<FleetView> {
        self.view.borrow().clone()
    }

    /// A receiver of every change from now on.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Arc<FleetView>> {
        self.view.subscribe()
    }

    /// Resolves once a certificate is revoked; at once if it is already.
    pub async fn revoked(&self, serial: &str) {
        let mut views = self.subscribe();
        // The sender is this one's own.
        drop(views.wait_for(|view| view.is_revoked(serial)).await);
    }

    /// Resolves once a certificate is revoked that was not revoked before.
    pub async fn revocation(&self, serial: &str) {
        let mut views = self.subscribe();
        drop(views.wait_for(|view| !view.is_revoked(serial)).await);
        drop(views.wait_for(|view| view.is_revoked(serial)).await);
    }

    /// Applies decisions; `true` if they are newer than those held. They are on disk before they take effect.
    ///
    /// # Errors
    /// When the disk fails: the previous ones stay in effect, and the same may be applied again.
    pub fn apply(&self, desired: FleetDesired) -> Result<bool, Error> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        // A node that was admitted again receives the revision that it already has.
        let again = desired.revision == *kept && self.view().work() == Work::Removed;
        if desired.revision <= *kept && !again {
            return Ok(false);
        }
        let bytes = serde_json::to_vec(&desired).map_err(|e| Error::Data {
            path: self.path.clone(),
            source: e.into(),
        })?;
        disk::replace(&self.path, &bytes)?;
        self.trust(&desired.authorities)?;
        *kept = desired.revision;
        let before = self.view();
        let view = FleetView::new(&self.node, before.serial().map(str::to_owned), desired);
        log_work_change(before.work(), view.work());
        self.view.send_replace(Arc::new(view));
        Ok(true)
    }

    /// Records that a controller no longer knows this node's certificate.
    ///
    /// # Errors
    /// When the disk fails: it takes effect all the same, until the next start.
    pub fn removed(&self) -> Result<(), Error> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.view();
        if before.work() == Work::Removed {
            return Ok(());
        }
        let Some(serial) = before.serial().map(str::to_owned) else {
            return Ok(());
        };
        let mut desired = match std::fs::read(&self.path) {
            Ok(bytes) => serde_json::from_slice::<FleetDesired>(&bytes).unwrap_or_default(),
            Err(_) => FleetDesired::default(),
        };
        desired.revision = *kept;
        desired.revoked.push(Revoked {
            serial: serial.clone(),
            node: self.node.clone(),
            expires_at: Timestamp(u64::MAX >> 1),
        });
        let bytes = serde_json::to_vec(&desired).unwrap_or_default();
        let view = FleetView::new(&self.node, Some(serial), desired);
        log_work_change(before.work(), view.work());
        self.view.send_replace(Arc::new(view));
        Ok(disk::replace(&self.path, &bytes)?)
    }

    /// Records a new certificate of this node, and the authorities to trust.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn renewed(&self, serial: String, authorities: &[String]) -> Result<(), ServiceError> {
        self.trust(authorities)?;
        self.view
            .send_modify(|view| *view = Arc::new(view.with_serial(&self.node, serial)));
        Ok(())
    }

    /// Writes the authorities that others are verified against, if they changed.
    fn trust(&self, authorities: &[String]) -> Result<(), ServiceError> {
        let Some(path) = &self.tls.ca else {
            return Ok(());
        };
        let bundle = bundle(authorities);
        if authorities.is_empty() || std::fs::read_to_string(path).is_ok_and(|now| now == bundle) {
            return Ok(());
        }
        disk::replace_public(path, bundle.as_bytes())?;
        info!(
            count = authorities.len(),
            "the authorities that others are checked against changed"
        );
        Ok(())
    }
}

fn serial(path: &std::path::Path) -> Result<String, Error> {
    let text = std::fs::read_to_string(path).map_err(|source| Error::Data {
        path: path.to_owned(),
        source,
    })?;
    Ok(<Facts>::of_pem(&text)?.serial)
}

fn log_work_change(before: Work, now: Work) {
    match (before, now) {
        _ if before == now => {}
        (_, Work::Taken) => info!("this node takes new work again"),
        (_, Work::Cordoned) => {
            info!("this node takes no new work; what runs ends: an operator drains it");
        }
        (_, Work::Removed) => {
            warn!(
                "this node was removed from the network: it takes no new work, and its certificate no longer counts"
            );
        }
    }
}

#[cfg(test)]
mod tests;
