//! The connected machines, and the revoked certificates.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use fdn_core::enrol::{Machine, Role};
use fdn_core::fleet::Revoked;
use fdn_core::{NodeId, Timestamp};
use fdn_service::CancellationToken;
use prometheus::IntGauge;
use tokio::sync::Semaphore;
use tracing::warn;

use crate::metrics::Metrics;
use crate::settings::EdgeSettings;
use crate::state::lock;

/// One connection.
#[derive(Clone, Debug)]
struct Connection {
    serial: String,
    cut: CancellationToken,
    body_permits: Arc<Semaphore>,
}

/// The connections of machines, and the serial numbers of revoked certificates.
#[derive(Debug, Default)]
pub struct Machines {
    open: Mutex<Connections>,
    /// The revoked serial numbers, with the certificates' ends.
    revoked: RwLock<HashMap<String, Timestamp>>,
    /// When each removed machine that tried to connect was last logged.
    warned: Mutex<BTreeMap<NodeId, Timestamp>>,
}

/// A removed machine tries to connect again and again: it is logged once in this time.
const WARN_PERIOD: Duration = Duration::from_secs(60);
/// The most machines logged in that time.
const WARNED_MAX: usize = 1000;

#[derive(Debug, Default)]
struct Connections {
    next: u64,
    of: BTreeMap<NodeId, BTreeMap<u64, Connection>>,
}

/// Registers a connection as long as it lives.
pub struct ConnectionGuard {
    machines: Arc<Machines>,
    name: NodeId,
    number: u64,
    gauge: IntGauge,
    /// Cancelled when the connection has to end at once.
    pub cut: CancellationToken,
    /// The machine's permits to send bodies, shared by all its connections.
    pub body_permits: Arc<Semaphore>,
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.gauge.dec();
        let mut open = lock(&self.machines.open);
        if let Some(of) = open.of.get_mut(&self.name) {
            of.remove(&self.number);
            if of.is_empty() {
                open.of.remove(&self.name);
            }
        }
    }
}

impl Machines {
    /// Whether a certificate was revoked.
    #[must_use]
    pub fn is_revoked(&self, serial: &str) -> bool {
        let revoked = self.revoked.read();
        revoked
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .contains_key(serial)
    }

    /// Logs that a removed machine presented its certificate: at most once a minute for each machine, and for at most so many machines.
    pub(super) fn warn_removed(&self, machine: &Machine, now: Timestamp) {
        if should_warn(&mut lock(&self.warned), &machine.name, now) {
            warn!(
                %machine,
                "the certificate of a machine that was removed was shown; it was refused, and so it will be for as long as that machine runs: switch it off, or let it join again"
            );
        }
    }

    /// Adds revoked certificates, and cuts the connections made with them; returns how many. A certificate stays revoked until it has expired, even
    /// if a later list lacks it.
    pub fn revoke(&self, revoked: &[Revoked], now: Timestamp) -> usize {
        {
            let known = self.revoked.write();
            let mut known = known.unwrap_or_else(std::sync::PoisonError::into_inner);
            known.retain(|_, ends| *ends > now);
            let new = revoked.iter().filter(|one| one.expires_at > now);
            known.extend(new.map(|one| (one.serial.clone(), one.expires_at)));
        }
        let open = lock(&self.open);
        let all = open.of.values().flat_map(BTreeMap::values);
        let known = self.revoked.read();
        let known = known.unwrap_or_else(std::sync::PoisonError::into_inner);
        let gone = all.filter(|one| known.contains_key(&one.serial));
        gone.inspect(|one| one.cut.cancel()).count()
    }

    /// Registers a connection; `None` if the machine has as many as it may have.
    #[must_use]
    pub fn open(
        self: &Arc<Self>,
        machine: &Machine,
        serial: &str,
        settings: &EdgeSettings,
        metrics: &Metrics,
    ) -> Option<ConnectionGuard> {
        let cut = CancellationToken::new();
        let mut open = lock(&self.open);
        open.next += 1;
        let number = open.next;
        let of = open.of.entry(machine.name.clone()).or_default();
        if of.len() >= settings.per_machine {
            return None;
        }
        let another = of.values().next();
        let body_permits = another.map_or_else(
            || Arc::new(Semaphore::new(settings.bodies.min(Semaphore::MAX_PERMITS))),
            |other| Arc::clone(&other.body_permits),
        );
        let one = Connection {
            serial: serial.to_owned(),
            cut: cut.clone(),
            body_permits: Arc::clone(&body_permits),
        };
        of.insert(number, one);
        drop(open);
        let gauge = metrics
            .edge
            .connections
            .with_label_values(&[machine.role.as_str()]);
        gauge.inc();
        // It may have been revoked since the handshake.
        if self.is_revoked(serial) {
            cut.cancel();
        }
        Some(ConnectionGuard {
            machines: Arc::clone(self),
            name: machine.name.clone(),
            number,
            gauge,
            cut,
            body_permits,
        })
    }

    /// The machines that are connected.
    #[must_use]
    pub fn connected(&self) -> BTreeSet<NodeId> {
        lock(&self.open).of.keys().cloned().collect()
    }
}

/// Whether a machine is to be logged now; if so, records that.
fn should_warn(warned: &mut BTreeMap<NodeId, Timestamp>, name: &NodeId, now: Timestamp) -> bool {
    warned.retain(|_, at| now.since(*at) < WARN_PERIOD);
    if warned.len() >= WARNED_MAX || warned.contains_key(name) {
        return false;
    }
    warned.insert(name.clone(), now);
    true
}

/// A gauge that is one higher for as long as this lives.
pub(super) struct GaugeGuard(IntGauge);

impl GaugeGuard {
    /// Counts a feed.
    #[must_use]
    pub(super) fn feed(metrics: &Metrics, role: Role) -> Self {
        let gauge = metrics.edge.feeds.with_label_values(&[role.as_str()]);
        gauge.inc();
        Self(gauge)
    }

    /// Counts a machine that the store has not been asked about successfully.
    #[must_use]
    pub(super) fn unverified(metrics: &Metrics, role: Role) -> Self {
        let gauge = metrics.edge.unjudged.with_label_values(&[role.as_str()]);
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_told_of_once_a_minute_and_not_all_of_them() {
        let (mut warned, at) = (BTreeMap::new(), |s: u64| Timestamp(s * 1000));
        let name = |n: usize| format!("m-{n}").parse::<NodeId>().expect("a name");
        let mut new = |n: usize, s: u64| should_warn(&mut warned, &name(n), at(s));
        assert!(new(0, 1) && !new(0, 60) && new(1, 60));
        assert!(new(0, 61) && !new(1, 119) && new(1, 120));
        let all = (0..2 * WARNED_MAX).filter(|n| new(*n, 200)).count();
        assert_eq!(all, WARNED_MAX);
        assert!(new(2 * WARNED_MAX, 260), "the next minute");
    }

    #[test]
    fn what_is_revoked_is_cut_whenever_that_is_heard() {
        let (machines, metrics) = (
            Arc::new(Machines::default()),
            Metrics::new().expect("metrics"),
        );
        let machine: Machine = "fdn://cluster/eu/node/a".parse().expect("a machine");
        let settings = EdgeSettings {
            per_machine: 2,
            ..EdgeSettings::default()
        };
        let open = |serial: &str| machines.open(&machine, serial, &settings, &metrics);
        let (old, new) = (open("01").expect("room"), open("02").expect("room"));
        assert!(open("03").is_none(), "two are the most");
        assert!(
            Arc::ptr_eq(&old.body_permits, &new.body_permits),
            "of one machine"
        );
        let revoked = [Revoked {
            serial: "01".to_owned(),
            node: machine.name.clone(),
            expires_at: Timestamp(9),
        }];
        assert_eq!(machines.revoke(&revoked, Timestamp(1)), 1);
        assert!(old.cut.is_cancelled() && !new.cut.is_cancelled());
        assert!(machines.is_revoked("01") && !machines.is_revoked("02"));
        // A shorter list revokes nothing less; expired certificates are dropped.
        machines.revoke(&[], Timestamp(8));
        assert!(machines.is_revoked("01"));
        drop(old);
        let late = open("01").expect("room again");
        assert!(late.cut.is_cancelled(), "between handshake and now");
        drop((late, new));
        assert!(machines.connected().is_empty());
        machines.revoke(&revoked, Timestamp(9));
        assert!(!machines.is_revoked("01"), "no handshake takes it any more");
    }
}
