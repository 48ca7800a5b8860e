//! Limits on running jobs: of an app, and of each function that its jobs call.
//!
//! An app has the network's limit and that of its policy. A function has the limit in the policy of the app of its own name, and every job that
//! calls it counts: those of its own app and those of workflows that run it. The functions that a running job calls are stored with the job when
//! it is claimed, so that changing a workflow meanwhile does not change any count.

use std::collections::{BTreeMap, BTreeSet};

use fdn_core::job::JobState;
use fdn_core::{AppName, FunctionName, TenantId, Timestamp};
use sqlx::AnyConnection;

use crate::store::StoreError;
use crate::store::app::app_get;
use crate::store::job_queries::{function_count, lane_count, lane_lock};
use crate::store::policy::policy_jobs_at_once;

/// The limits that a claim must respect.
#[derive(Debug)]
pub(super) struct Bounds {
    app: AppName,
    /// The limit of the app's jobs.
    own: u32,
    /// The tenant of the functions; `None` if the app is gone.
    tenant: Option<TenantId>,
    /// The functions that the app's jobs call.
    functions: BTreeSet<FunctionName>,
    /// By function: the limit of all jobs that call it.
    shared: BTreeMap<FunctionName, u32>,
}

impl Bounds {
    /// The limits of an app's jobs, where the network lets `limit` jobs of an app run.
    ///
    /// # Errors
    /// When the store fails.
    pub(super) async fn of(
        connection: &mut AnyConnection,
        app: &AppName,
        limit: u32,
    ) -> Result<Self, StoreError> {
        let mut bounds = Self {
            app: app.clone(),
            own: limit,
            tenant: None,
            functions: BTreeSet::new(),
            shared: BTreeMap::new(),
        };
        // Without the app, the attempt finds that out and ends the job.
        let Some(row) = app_get(connection, app).await? else {
            return Ok(bounds);
        };
        bounds.tenant = Some(row.tenant);
        let stages = row.workflow.stages().iter();
        bounds.functions = stages.map(|stage| stage.function.clone()).collect();
        if let Some(own) = policy_jobs_at_once(connection, row.tenant, app).await? {
            bounds.own = limit.min(own);
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

    /// Locks everything that is counted until the transaction ends, always in the same order, so that two claims cannot deadlock.
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

    /// The most jobs of the app that can ever run at once.
    pub(super) fn max(&self) -> u32 {
        self.shared
            .values()
            .copied()
            .fold(self.own, |max, bound| max.min(bound))
    }

    /// Whether a limit is reached.
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

    /// The functions in the format in which they are stored with a running job.
    pub(super) fn functions(&self) -> String {
        let names = self.functions.iter().map(|name| format!("{name} "));
        format!(" {}", names.collect::<String>())
    }
}
