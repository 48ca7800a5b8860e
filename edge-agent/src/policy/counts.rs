//! Metrics of policies. Labels are apps that are deployed with a policy, and a fixed list of reasons.

use fdn_core::policy::decide::Reason;
use fdn_core::{AppName, NodeId};
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

/// Metrics of policies.
#[derive(Clone, Debug)]
pub struct PolicyMetrics {
    refused: IntCounterVec,
    clients: IntGaugeVec,
    overflow: IntCounterVec,
    /// Fetches of identity providers' keys, by result.
    pub(super) fetches: IntCounterVec,
    /// Identity providers whose keys are followed.
    pub(super) key_sets: IntGauge,
}

impl PolicyMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// When a metric of the same name is registered already.
    pub fn new(registry: &Registry, node: &NodeId) -> Result<Self, prometheus::Error> {
        let opts = |name: &str, help: &str| {
            Opts::new(format!("fdn_agent_policy_{name}"), help).const_label("node", node.as_str())
        };
        let metrics = Self {
            refused: IntCounterVec::new(
                opts(
                    "refused_total",
                    "Calls that an app's policy refused, by reason",
                ),
                &["app", "reason"],
            )?,
            clients: IntGaugeVec::new(
                opts("clients", "Clients in the table of an app's client rate"),
                &["app"],
            )?,
            overflow: IntCounterVec::new(
                opts(
                    "clients_overflow_total",
                    "Calls counted under the rate that clients share who have no room in the table",
                ),
                &["app"],
            )?,
            fetches: IntCounterVec::new(
                opts(
                    "jwks_fetches_total",
                    "Fetches of identity providers' keys, by result",
                ),
                &["result"],
            )?,
            key_sets: IntGauge::with_opts(opts(
                "jwks",
                "Identity providers whose keys are followed",
            ))?,
        };
        registry.register(Box::new(metrics.refused.clone()))?;
        registry.register(Box::new(metrics.clients.clone()))?;
        registry.register(Box::new(metrics.overflow.clone()))?;
        registry.register(Box::new(metrics.fetches.clone()))?;
        registry.register(Box::new(metrics.key_sets.clone()))?;
        Ok(metrics)
    }

    /// The metrics of one app.
    pub(super) fn app(&self, app: &AppName) -> AppCounts {
        let app = app.as_str();
        AppCounts {
            refused: Reason::ALL
                .map(|reason| self.refused.with_label_values(&[app, reason.as_str()])),
            clients: self.clients.with_label_values(&[app]),
            overflow: self.overflow.with_label_values(&[app]),
        }
    }

    /// Removes the series of an app.
    pub(super) fn forget(&self, app: &AppName) {
        let app = app.as_str();
        for reason in Reason::ALL {
            drop(self.refused.remove_label_values(&[app, reason.as_str()]));
        }
        drop(self.clients.remove_label_values(&[app]));
        drop(self.overflow.remove_label_values(&[app]));
    }
}

/// The metrics of one app.
#[derive(Clone, Debug)]
pub(super) struct AppCounts {
    refused: [IntCounter; Reason::ALL.len()],
    pub(super) clients: IntGauge,
    pub(super) overflow: IntCounter,
}

impl AppCounts {
    pub(super) fn refused(&self, reason: Reason) {
        self.refused[reason as usize].inc();
    }
}
