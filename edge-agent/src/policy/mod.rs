//! Policies of apps at the gateway: `fdn_core::policy` decides, this module keeps the counters and keys that the decisions need.
//!
//! [`guard::Guard`] is an app's policy in executable form: its rates (`rates`), running calls, quota (`quota`) and the provider's keys that
//! tokens are verified with (`jwks`, `verify`). [`Guards`] keeps one for each app that has a policy, and keeps its counters when a change does
//! not touch the policy itself. An app without a policy has no guard and costs one comparison for each call.

mod counts;
pub mod guard;
mod jwks;
mod quota;
mod rates;
mod verify;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use fdn_core::AppName;
use fdn_core::policy::quota::AppQuotaUsage;
use fdn_core::policy::{Authentication, GatewaySpec};
use fdn_service::address_policy::AddressPolicy;
use fdn_service::{CancellationToken, ServiceError};
use tokio::task::JoinHandle;
use tracing::warn;

pub use counts::PolicyMetrics;
use guard::PolicyState;
pub use guard::{Guard, Pass};
use jwks::KeySets;
use quota::Quotas;

use crate::settings::PolicySettings;

/// The guards of a node's apps. Owned by the task that owns the apps.
pub struct Guards {
    settings: PolicySettings,
    metrics: PolicyMetrics,
    keys: KeySets,
    quotas: Arc<Quotas>,
    guards: BTreeMap<AppName, Arc<Guard>>,
    /// The task that writes counts to disk until the agent stops.
    keeper: Option<JoinHandle<()>>,
}

impl Guards {
    /// Starts without guards. Files are kept in `folder`; background tasks end with `stop`. `reach` limits the addresses from which identity
    /// providers' keys may be fetched.
    ///
    /// # Errors
    /// When the HTTP client that fetches keys cannot be created.
    pub fn new(
        settings: PolicySettings,
        metrics: PolicyMetrics,
        reach: AddressPolicy,
        folder: PathBuf,
        stop: CancellationToken,
    ) -> Result<Self, ServiceError> {
        let keys = KeySets::new(
            reach,
            settings.clone(),
            metrics.clone(),
            folder.join("jwks"),
            stop.clone(),
        )?;
        let quotas = Arc::new(Quotas::open(folder.join("quotas.json")));
        let interval = settings.quota_save.as_duration();
        let keeper = tokio::spawn(Arc::clone(&quotas).keep(interval, stop));
        Ok(Self {
            keys,
            settings,
            metrics,
            quotas,
            guards: BTreeMap::new(),
            keeper: Some(keeper),
        })
    }

    /// Waits until the counts are on disk, after `stop` was cancelled.
    pub async fn close(&mut self) {
        if let Some(keeper) = self.keeper.take()
            && let Err(failure) = keeper.await
        {
            warn!(%failure, "calls counted towards quotas were not kept");
        }
    }

    /// The guard of an app with this gateway specification; `None` if that is empty.
    pub fn guard(&mut self, app: &AppName, spec: &GatewaySpec) -> Option<Arc<Guard>> {
        if spec.is_empty() {
            self.forget(app);
            return None;
        }
        let known = self.guards.get(app);
        if let Some(known) = known.filter(|known| known.spec() == spec) {
            if let Some(keys) = known.state().keys() {
                self.keys.retry(keys);
            }
            return Some(Arc::clone(known));
        }
        // Counters are kept if the limits are the same.
        let state = known
            .filter(|known| known.spec().policy == spec.policy)
            .map(|known| Arc::clone(known.state()));
        let state = state.unwrap_or_else(|| {
            let url = match &spec.policy.authentication {
                Authentication::Jwt(rule) => Some(rule.jwks_url.as_str()),
                Authentication::None | Authentication::ApiKey {} => None,
            };
            let left = known.and_then(|known| known.state().keys());
            if let Some(left) = left.filter(|left| Some(left.url()) != url) {
                self.keys.leave(left);
            }
            let keys = url.map(|url| self.keys.of(url));
            let quota = self.quotas.of(app);
            Arc::new(PolicyState::new(
                app,
                &spec.policy,
                &self.settings,
                &self.metrics,
                keys,
                quota,
            ))
        });
        let guard = Arc::new(Guard::new(app.clone(), spec.clone(), state));
        self.guards.insert(app.clone(), Arc::clone(&guard));
        Some(guard)
    }

    /// Removes the guard of an app that was deleted or no longer has a policy.
    pub fn forget(&mut self, app: &AppName) {
        if let Some(guard) = self.guards.remove(app) {
            if let Some(keys) = guard.state().keys() {
                self.keys.leave(keys);
            }
            self.metrics.forget(app);
            self.quotas.forget(app);
        }
    }

    /// Applies the numbers of calls that the controller has counted.
    pub fn used(&self, used: &[AppQuotaUsage]) {
        self.quotas.apply(used, fdn_service::now());
    }
}
