//! What the jobs of an app are expected to run: measured if calls have been measured, as the manifests expect otherwise.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fdn_core::{AppName, Millis, TenantId};
use fdn_scheduling::dag::Dag;
use tokio::time::Instant;

use crate::Error;
use crate::reconcile::profile;
use crate::state::State;
use crate::store::app::app_get;
use crate::store::job::JobRow;
use crate::store::version::version_get;

/// How long what was learned of an app is used.
const LIFE: Duration = Duration::from_secs(10);
/// Apps of which something is remembered.
const APPS: usize = 1000;

struct Known {
    dag: Arc<Dag>,
    until: Instant,
}

/// What is known of apps, for a while.
#[derive(Default)]
pub(super) struct Expected {
    known: BTreeMap<AppName, Known>,
}

impl Expected {
    /// What a job is expected to run.
    pub(super) async fn of(&mut self, state: &State, row: &JobRow) -> Result<Arc<Dag>, Error> {
        let now = Instant::now();
        if let Some(known) = self.known.get(&row.app).filter(|known| known.until > now) {
            return Ok(Arc::clone(&known.dag));
        }
        let dag = Arc::new(look_up(state, &row.app, row.tenant).await?);
        self.known.retain(|_, known| known.until > now);
        if self.known.len() < APPS {
            let known = Known {
                dag: Arc::clone(&dag),
                until: now + LIFE,
            };
            self.known.insert(row.app.clone(), known);
        }
        Ok(dag)
    }
}

async fn look_up(state: &State, app: &AppName, tenant: TenantId) -> Result<Dag, Error> {
    let mut connection = state.store.read().await?;
    let found = app_get(&mut connection, app).await?;
    let Some(found) = found else {
        // The attempt finds out, and ends the job.
        let nothing = fdn_core::Resources::default();
        let dag = Dag::single("gone", Millis::new(1.0), nothing);
        return dag.map_err(|e| Error::Internal(format!("a job of nothing: {e}")));
    };
    let mut manifests = BTreeMap::new();
    for stage in found.workflow.stages() {
        let version = version_get(&mut connection, tenant, &stage.function, stage.version);
        if let Some(version) = version.await? {
            manifests.insert(stage.name.clone(), version.profile());
        }
    }
    drop(connection);
    let world = state.world(fdn_service::now());
    let nothing = || profile(&fdn_core::manifest::Manifest::default());
    let profiles = world.profiles(app, &found.workflow, |stage| {
        manifests.get(&stage.name).copied().unwrap_or_else(nothing)
    });
    Ok(world.dag(&found.workflow, &profiles)?)
}
