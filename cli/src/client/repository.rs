//! The code repository, as typed calls, and the deletion of tenants and users. All fail like [`Client::network`].

use fdn_core::account::{TenantInfo, TenantRef};
use fdn_core::api::DeployResponse;
use fdn_core::label::Labels;
use fdn_core::repository::{
    CatalogueEntry, DeployCatalogue, PutSigningKey, SetSignaturePolicy, SigningKeyInfo,
};
use fdn_core::{AppName, FunctionName, SigningKeyName, UserName, VersionNumber};
use reqwest::{Method, Response};

use super::{Client, read, send};
use crate::error::CliError;

/// The entity tag of an answer.
pub(super) fn tag(response: &Response) -> Option<String> {
    let tag = response.headers().get("etag")?;
    tag.to_str().ok().map(str::to_owned)
}

impl Client {
    /// The labels of an app's function, or of one of its versions, and their entity tag.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn labels(
        &self,
        app: &AppName,
        version: Option<VersionNumber>,
    ) -> Result<(Labels, Option<String>), CliError> {
        let request = self.request(Method::GET, &["v1", "apps", app.as_str(), "labels"])?;
        let query = version.map(|version| ("version", version.get()));
        let response = send(request.query(query.as_slice())).await?;
        let tag = tag(&response);
        Ok((super::body(response).await?, tag))
    }

    /// Replaces labels, if they still have the entity tag `tag`.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn set_labels(
        &self,
        app: &AppName,
        version: Option<VersionNumber>,
        labels: &Labels,
        tag: Option<String>,
    ) -> Result<Labels, CliError> {
        let request = self.request(Method::PUT, &["v1", "apps", app.as_str(), "labels"])?;
        let query = version.map(|version| ("version", version.get()));
        let mut request = request.query(query.as_slice()).json(labels);
        if let Some(tag) = tag {
            request = request.header("if-match", tag);
        }
        read(request).await
    }

    /// A tenant's signing keys.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn signing_keys(&self, tenant: &TenantRef) -> Result<Vec<SigningKeyInfo>, CliError> {
        let path = ["v1", "tenants", &tenant.to_string(), "signing-keys"];
        self.list(&path, &[]).await
    }

    /// Adds a signing key.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn put_signing_key(
        &self,
        tenant: &TenantRef,
        name: &SigningKeyName,
        body: &PutSigningKey,
    ) -> Result<SigningKeyInfo, CliError> {
        let tenant = tenant.to_string();
        let path = ["v1", "tenants", &tenant, "signing-keys", name.as_str()];
        read(self.request(Method::PUT, &path)?.json(body)).await
    }

    /// Removes a signing key.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn remove_signing_key(
        &self,
        tenant: &TenantRef,
        name: &SigningKeyName,
    ) -> Result<(), CliError> {
        let tenant = tenant.to_string();
        let path = ["v1", "tenants", &tenant, "signing-keys", name.as_str()];
        send(self.request(Method::DELETE, &path)?).await.map(drop)
    }

    /// Sets whether a tenant's uploads must be signed.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn set_signature_policy(
        &self,
        tenant: &TenantRef,
        body: &SetSignaturePolicy,
    ) -> Result<TenantInfo, CliError> {
        let path = ["v1", "tenants", &tenant.to_string(), "signature-policy"];
        read(self.request(Method::PUT, &path)?.json(body)).await
    }

    /// The functions of the catalogue.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn catalogue(&self) -> Result<Vec<CatalogueEntry>, CliError> {
        self.list(&["v1", "catalogue"], &[]).await
    }

    /// Deploys a function of the catalogue.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn deploy_catalogue(
        &self,
        name: &FunctionName,
        tenant: Option<&TenantRef>,
        body: &DeployCatalogue,
    ) -> Result<DeployResponse, CliError> {
        let request = self.request(Method::POST, &["v1", "catalogue", name.as_str(), "deploy"])?;
        let query = tenant.map(|tenant| ("tenant", tenant.to_string()));
        read(request.query(query.as_slice()).json(body)).await
    }

    /// Deletes a tenant.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn delete_tenant(&self, tenant: &TenantRef, force: bool) -> Result<(), CliError> {
        let request = self.request(Method::DELETE, &["v1", "tenants", &tenant.to_string()])?;
        send(request.query(&[("force", force)])).await.map(drop)
    }

    /// Deletes a user.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn delete_user(&self, user: &UserName) -> Result<(), CliError> {
        send(self.request(Method::DELETE, &["v1", "users", user.as_str()])?)
            .await
            .map(drop)
    }
}
