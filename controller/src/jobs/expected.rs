//! What jobs of an app are expected to run: as measured, or, without measurements, as the manifests say. Also the cost of bringing artifacts to a
//! cluster, from their sizes and the time that compiling took.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fdn_core::form::cold_start;
use fdn_core::manifest::RuntimeKind;
use fdn_core::{AppName, Millis, TenantId};
use fdn_scheduling::dag::Dag;
use tokio::time::Instant;

use super::plan::ExpectedRun;
use crate::Error;
use crate::reconcile::profile;
use crate::reconcile::serving::readiness::ProvisioningCost;
use crate::state::State;
use crate::store::app::app_get;
use crate::store::job::JobRow;
use crate::store::version::{VersionRow, version_get};

/// How long what was looked up for an app is cached.
const TTL: Duration = Duration::from_secs(10);
/// The most apps in the cache.
const APPS_MAX: usize = 1000;

struct CachedRun {
    runs: Arc<ExpectedRun>,
    until: Instant,
}

/// The cached expectations, by app.
#[derive(Default)]
pub(super) struct RunCache {
    known: BTreeMap<AppName, CachedRun>,
}

impl RunCache {
    /// What a job is expected to run.
    pub(super) async fn of(
        &mut self,
        state: &State,
        row: &JobRow,
    ) -> Result<Arc<ExpectedRun>, Error> {
        let now = Instant::now();
        if let Some(known) = self.known.get(&row.app).filter(|known| known.until > now) {
            return Ok(Arc::clone(&known.runs));
        }
        let runs = Arc::new(load(state, &row.app, row.tenant).await?);
        self.known.retain(|_, known| known.until > now);
        if self.known.len() < APPS_MAX {
            let known = CachedRun {
                runs: Arc::clone(&runs),
                until: now + TTL,
            };
            self.known.insert(row.app.clone(), known);
        }
        Ok(runs)
    }
}

async fn load(state: &State, app: &AppName, tenant: TenantId) -> Result<ExpectedRun, Error> {
    let runs = |dag: Dag, forms: Vec<ProvisioningCost>| ExpectedRun {
        app: app.clone(),
        dag: Arc::new(dag),
        forms,
    };
    let mut connection = state.store.read().await?;
    let found = app_get(&mut connection, app).await?;
    let Some(found) = found else {
        // The attempt finds that out, and ends the job.
        let nothing = fdn_core::Resources::default();
        let dag = Dag::single("gone", Millis::new(1.0), nothing);
        let dag = dag.map_err(|e| Error::Internal(format!("a job of nothing: {e}")))?;
        return Ok(runs(dag, Vec::new()));
    };
    let (mut manifests, mut forms) = (BTreeMap::new(), Vec::new());
    let mb_per_s = state.settings.planner.bandwidth_mb_per_s;
    for stage in found.workflow.stages() {
        let version = version_get(&mut connection, tenant, &stage.function, stage.version);
        if let Some(version) = version.await? {
            if stage == found.workflow.entry() {
                forms = provisioning_costs(&version, mb_per_s);
            }
            manifests.insert(stage.name.clone(), version.profile());
        }
    }
    drop(connection);
    let world = state.world(fdn_service::now());
    let nothing = || profile(&fdn_core::manifest::Manifest::default());
    let profiles = world.profiles(app, &found.workflow, |stage| {
        manifests.get(&stage.name).copied().unwrap_or_else(nothing)
    });
    Ok(runs(world.dag(&found.workflow, &profiles)?, forms))
}

/// The cost of bringing a version to a node, in each of its forms.
fn provisioning_costs(version: &VersionRow, mb_per_s: f64) -> Vec<ProvisioningCost> {
    let compile = version
        .validation
        .iter()
        .filter(|one| one.step == "compile");
    let compile: f64 = compile.map(|one| one.took.get()).sum();
    let of = |kind, bytes, cold| {
        let compile = match kind {
            RuntimeKind::Wasm => Millis::new(compile),
            RuntimeKind::Docker => Millis::ZERO,
        };
        ProvisioningCost::new(kind, bytes, mb_per_s, compile, cold)
    };
    let first = version.manifest.runtime;
    let first = of(first, version.size, cold_start(first));
    let others = version.forms.iter();
    let others =
        others.map(|form| of(form.manifest.runtime, form.size, form.manifest.cold_start()));
    std::iter::once(first).chain(others).collect()
}
