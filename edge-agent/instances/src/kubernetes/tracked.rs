//! A pod of the agent as the API server reports it, and its removal.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{Mutex, watch};

use super::failure;
use super::server::Server;
use super::status::{Blocked, PodView, Stage};
use crate::error::RuntimeError;
use crate::runtime::Kind;

/// The last news of a pod from the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PodObservation {
    /// No news yet.
    Unknown,
    /// The pod exists.
    Present(PodView),
    /// The pod of this uid is gone.
    Gone(String),
}

/// One pod, from before it is created until it is gone.
pub(super) struct TrackedPod {
    /// Its name, by which news are assigned to it.
    pub(super) name: String,
    pub(super) server: Arc<Server>,
    /// The API server's id of it, set once it is created. News may arrive before the answer to its creation.
    uid: OnceLock<String>,
    seen: watch::Sender<PodObservation>,
    /// Whether the agent is ending it.
    stopping: AtomicBool,
    /// True once nothing is left of it on the API server.
    removed: watch::Sender<bool>,
    /// Held while it is removed.
    removing: Mutex<()>,
    engine_timeout: Duration,
}

impl TrackedPod {
    pub(super) fn new(name: String, server: Arc<Server>, engine_timeout: Duration) -> Self {
        Self {
            name,
            server,
            uid: OnceLock::new(),
            seen: watch::Sender::new(PodObservation::Unknown),
            stopping: AtomicBool::new(false),
            removed: watch::Sender::new(false),
            removing: Mutex::new(()),
            engine_timeout,
        }
    }

    pub(super) fn uid(&self) -> Option<&str> {
        self.uid.get().map(String::as_str)
    }

    /// Sets the identity of the pod after it was created or found. News of exactly this pod that arrived meanwhile are newer and stay.
    pub(super) fn set_identity(&self, first: PodView) {
        drop(self.uid.set(first.uid.clone()));
        self.seen.send_modify(|seen| {
            let known = match seen {
                PodObservation::Present(view) => view.uid == first.uid,
                PodObservation::Gone(uid) => *uid == first.uid,
                PodObservation::Unknown => false,
            };
            if !known {
                *seen = PodObservation::Present(first);
            }
        });
    }

    /// Takes news of a pod of this name; news of another uid are ignored.
    pub(super) fn update(&self, observation: PodObservation) {
        let about = match &observation {
            PodObservation::Present(view) => view.uid.clone(),
            PodObservation::Gone(uid) => uid.clone(),
            PodObservation::Unknown => return,
        };
        if self.uid().is_some_and(|uid| uid != about) {
            return;
        }
        self.seen.send_if_modified(|seen| {
            let is_final = matches!(seen, PodObservation::Gone(uid) if *uid == about);
            let change = !is_final && *seen != observation;
            if change {
                *seen = observation;
            }
            change
        });
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<PodObservation> {
        self.seen.subscribe()
    }

    async fn wait_until(&self, wanted: impl FnMut(&PodObservation) -> bool) {
        // Never fails: the sender is this pod's own.
        drop(self.subscribe().wait_for(wanted).await);
    }

    pub(super) fn is_gone(&self) -> bool {
        matches!(*self.seen.borrow(), PodObservation::Gone(_))
    }

    /// Whether its container no longer runs.
    pub(super) fn has_ended(&self) -> bool {
        has_ended(&self.seen.borrow())
    }

    pub(super) async fn until_ended(&self) {
        self.wait_until(has_ended).await;
    }

    /// Sets whether the agent is ending it.
    pub(super) fn set_stopping(&self, ours: bool) {
        self.stopping.store(ours, Ordering::SeqCst);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Waits until the container runs or cannot run. Ignores an end, which is reported separately.
    pub(super) async fn address(&self) -> Result<IpAddr, Blocked> {
        let mut found = None;
        self.wait_until(|seen| {
            if let PodObservation::Present(view) = seen {
                found = match &view.stage {
                    Stage::Running(address) => Some(Ok(*address)),
                    Stage::Blocked(blocked) | Stage::Ended(_, Some(blocked)) => {
                        Some(Err(blocked.clone()))
                    }
                    Stage::Waiting(_) | Stage::Ended(_, None) => None,
                };
            }
            found.is_some()
        })
        .await;
        found.unwrap_or_else(|| Err(Blocked::Failed("nobody follows it".to_owned())))
    }

    /// Why it is not running yet.
    pub(super) fn waits_for(&self) -> String {
        match &*self.seen.borrow() {
            PodObservation::Present(PodView {
                stage: Stage::Waiting(reason),
                ..
            }) => reason.clone(),
            _ => "the API server tells nothing of it".to_owned(),
        }
    }

    /// Waits until the pod is gone, for at most `limit`. If the watch does not report it in time, the API server is asked.
    async fn gone_within(&self, limit: Duration) -> Result<bool, RuntimeError> {
        let gone = self.wait_until(|seen| matches!(seen, PodObservation::Gone(_)));
        if tokio::time::timeout(limit, gone).await.is_ok() {
            return Ok(true);
        }
        let found = self.server.get(&self.name).await;
        let found = found.map_err(|fault| failure::engine("look for the pod", &fault))?;
        let uid = self.uid().unwrap_or_default();
        let there = found.is_some_and(|pod| pod.metadata.uid.as_deref() == Some(uid));
        if !there {
            self.update(PodObservation::Gone(uid.to_owned()));
        }
        Ok(!there)
    }

    /// Removes the pod after at most `grace`, and waits until it is gone. If its node does not respond, it is removed without
    /// the node, as Kubernetes itself does after some minutes.
    pub(super) async fn remove(&self, grace: Duration) -> Result<(), RuntimeError> {
        // A second caller waits for the first: when this returns, nothing is left.
        let _turn = self.removing.lock().await;
        let Some(uid) = self.uid() else {
            return Ok(());
        };
        if *self.removed.borrow() {
            return Ok(());
        }
        if !self.is_gone() {
            let grace = match &*self.seen.borrow() {
                // Somebody else is deleting it: another request could only shorten the grace that it was given.
                PodObservation::Present(view) if view.deleting && !self.is_stopping() => {
                    Err(view.grace)
                }
                _ => Ok(grace),
            };
            if let Ok(grace) = grace {
                self.delete(uid, whole_seconds(grace)).await?;
            }
            let (Ok(grace) | Err(grace)) = grace;
            if !self
                .gone_within(grace.saturating_add(self.engine_timeout))
                .await?
            {
                tracing::warn!(
                    pod = self.name,
                    "no kubelet ends this pod; it is removed without"
                );
                self.delete(uid, 0).await?;
                if !self.gone_within(self.engine_timeout).await? {
                    return Err(RuntimeError::Refused {
                        kind: Kind::Kubernetes,
                        operation: "delete the pod",
                        reason: "something holds it, such as a finalizer".to_owned(),
                    });
                }
            }
        }
        self.removed.send_replace(true);
        Ok(())
    }

    async fn delete(&self, uid: &str, seconds: u32) -> Result<(), RuntimeError> {
        let deleted = self.server.delete(&self.name, uid, seconds).await;
        deleted.map_err(|fault| failure::engine("delete the pod", &fault))
    }
}

/// A grace in Kubernetes' unit, whole seconds; at least 1, because 0 would mean not to wait for the container's end.
fn whole_seconds(grace: Duration) -> u32 {
    let rounded = grace
        .as_secs()
        .saturating_add(u64::from(grace.subsec_nanos() > 0));
    u32::try_from(rounded.max(1)).unwrap_or(u32::MAX)
}

fn has_ended(seen: &PodObservation) -> bool {
    match seen {
        PodObservation::Present(view) => matches!(view.stage, Stage::Ended(..)),
        PodObservation::Gone(_) => true,
        PodObservation::Unknown => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grace_is_never_none_at_all() {
        assert_eq!(whole_seconds(Duration::ZERO), 1);
        assert_eq!(whole_seconds(Duration::from_millis(1001)), 2);
        assert_eq!(whole_seconds(Duration::from_secs(30)), 30);
        assert_eq!(whole_seconds(Duration::MAX), u32::MAX);
    }
}
