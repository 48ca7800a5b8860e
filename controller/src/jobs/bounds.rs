//! How many jobs may run at once: of an app, and of each function that its jobs call.
//!
//! An app has the network's bound and its policy's. A function has the bound of the policy of the app of its own name, and every job that calls it
//! counts there: those of its own app and those of workflows that run it. Which functions a running job calls is written beside it when it is claimed,
//! so that a workflow that is changed meanwhile changes no count.

use std::collections::{BTreeMap, BTreeSet};

use fdn_core::job::JobState;
use fdn_core::{AppName, FunctionName, TenantId, Timestamp};
use sqlx::AnyConnection;

use crate::store::StoreError;
use crate::store::app::app_get;
use crate::store::job_look::{function_count, lane_count, lane_lock};
use crate::store::policy::policy_jobs_at_once;

/// What a claim keeps to.
#[derive(Debug)]
pub(super) struct Bounds {
    app: AppName,
    /// Of the app's jobs.
    own: u32,
    /// Whose functions they are; nobody's if the app is gone.
    tenant: Option<TenantId>,
    /// What the app's jobs call.
    functions: BTreeSet<FunctionName>,
    /// Of jobs that call these functions.
    shared: BTreeMap<FunctionName, u32>,
}

impl Bounds {
    /// The bounds of an app's jobs, where the network lets `most` of an app run.
    ///
    /// # Errors
    /// When the store fails.
    pub(super) async fn of(
        connection: &mut AnyConnection,
        app: &AppName,
        most: u32,
    ) -> Result<Self, StoreError> {
        let mut bounds = Self {
            app: app.clone(),
            own: most,
            tenant: None,
            functions: BTreeSet::new(),
            shared: BTreeMap::new(),
        };
        // Without the app, the attempt finds out and ends the job.
        let Some(row) = app_get(connection, app).await? else {
            return Ok(bounds);
        };
        bounds.tenant = Some(row.tenant);
        let stages = row.workflow.stages().iter();
        bounds.functions = stages.map(|stage| stage.function.clone()).collect();
        if let Some(own) = policy_jobs_at_once(connection, row.tenant, app).await? {
            bounds.own = most.min(own);
        }
        for function in &bounds.functions {
            let policy = AppName::from(function.clone());
            let bound = policy_jobs_at_once(connection, row.tenant, &policy).await?;
            bounds
                .shared
                .extend(bound.map(|bound| (function.clone(), bound)));
        }
        Ok(bounds)
    }

    /// Locks everything that is counted, until the transaction ends: always in one order, so that two claims never wait for each other.
    ///
    /// # Errors
    /// When the store fails.
    pub(super) async fn lock(
        &self,
        connection: &mut AnyConnection,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let mut lanes: BTreeSet<AppName> = self.shared.keys().cloned().map(Into::into).collect();
        lanes.insert(self.app.clone());
        for lane in &lanes {
            lane_lock(connection, lane, now).await?;
        }
        Ok(())
    }

    /// The most of the app's jobs that can ever run at once.
    pub(super) fn most(&self) -> u32 {
        self.shared
            .values()
            .copied()
            .fold(self.own, |most, bound| most.min(bound))
    }

    /// Whether as many run as may.
    ///
    /// # Errors
    /// When the store fails.
    pub(super) async fn reached(&self, connection: &mut AnyConnection) -> Result<bool, StoreError> {
        let running = lane_count(connection, &self.app, JobState::Running, self.own).await?;
        if running >= u64::from(self.own) {
            return Ok(true);
        }
        let Some(tenant) = self.tenant else {
            return Ok(false);
        };
        for (function, bound) in &self.shared {
            let running = function_count(connection, (tenant, function), *bound).await?;
            if running >= u64::from(*bound) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The functions as they are written beside a running job.
    pub(super) fn functions(&self) -> String {
        let names = self.functions.iter().map(|name| format!("{name} "));
        format!(" {}", names.collect::<String>())
    }
}
