//! Calls of `fdn apply` and `fdn plan`, which name their tenant in each call.

use std::collections::BTreeSet;

use fdn_core::account::TenantRef;
use fdn_core::api::AppDetail;
use fdn_core::applied::{AppliedSet, Item, SetName};
use fdn_core::preview::{PlanPreview, PlanRequest};
use fdn_core::txt::{SetTxt, TxtInfo};
use fdn_core::{AppName, RecordName};
use reqwest::Method;

use super::{Client, read, send};
use crate::error::CliError;

impl Client {
    /// An app of this tenant. One of another tenant is not found, whatever rights the caller has there.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn app_of(&self, tenant: &TenantRef, app: &AppName) -> Result<AppDetail, CliError> {
        read(self.request_of(Some(tenant), Method::GET, &["v1", "apps", app.as_str()])?).await
    }

    /// Sets the text records of a name below an app of a tenant, replacing all of them.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn set_txt_of(
        &self,
        tenant: &TenantRef,
        name: &RecordName,
        body: &SetTxt,
    ) -> Result<TxtInfo, CliError> {
        let path = ["v1", "dns", "txt", name.as_str()];
        let request = self.request_of(Some(tenant), Method::PUT, &path)?;
        read(request.json(body)).await
    }

    /// Removes all text records of a name below an app of a tenant.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn remove_txt_of(
        &self,
        tenant: &TenantRef,
        name: &RecordName,
    ) -> Result<(), CliError> {
        let path = ["v1", "dns", "txt", name.as_str()];
        send(self.request_of(Some(tenant), Method::DELETE, &path)?)
            .await
            .map(drop)
    }

    /// The preview of a plan.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn plan(
        &self,
        body: &PlanRequest,
        tenant: Option<&TenantRef>,
    ) -> Result<PlanPreview, CliError> {
        let request = self.request_of(tenant, Method::POST, &["v1", "plan"])?;
        read(request.json(body)).await
    }

    /// The items that were applied under a set name, and their entity tag.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn applied(
        &self,
        set: &SetName,
        tenant: &TenantRef,
    ) -> Result<(AppliedSet, Option<String>), CliError> {
        let request = self.request_of(Some(tenant), Method::GET, &["v1", "sets", set.as_str()])?;
        let response = send(request).await?;
        let tag = super::repository::tag(&response);
        Ok((super::body(response).await?, tag))
    }

    /// Stores the items that were applied under a set name, if the set still has the entity tag `tag`. Returns the new tag.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn remember_applied(
        &self,
        set: &SetName,
        tenant: &TenantRef,
        items: &BTreeSet<Item>,
        tag: Option<String>,
    ) -> Result<Option<String>, CliError> {
        let request = self.request_of(Some(tenant), Method::PUT, &["v1", "sets", set.as_str()])?;
        let mut request = request.json(items);
        if let Some(tag) = tag {
            request = request.header("if-match", tag);
        }
        Ok(super::repository::tag(&send(request).await?))
    }
}
