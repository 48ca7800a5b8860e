//! Secrets, variables, objectives and domains of apps, as typed calls.

use fdn_core::api::DeployResponse;
use fdn_core::app::{ChangeEnv, SecretInfo, SetSecret};
use fdn_core::domain::{AddDomain, DomainInfo};
use fdn_core::rollout::{Objective, ObjectiveInfo};
use fdn_core::{AppName, HostName, SecretName};
use reqwest::Method;

use super::{Client, read, send};
use crate::error::CliError;

impl Client {
    /// The secrets of an app.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn secrets(&self, app: &AppName) -> Result<Vec<SecretInfo>, CliError> {
        read(self.request(Method::GET, &["v1", "apps", app.as_str(), "secrets"])?).await
    }

    /// Sets a secret.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn set_secret(
        &self,
        app: &AppName,
        name: &SecretName,
        value: &SetSecret,
    ) -> Result<SecretInfo, CliError> {
        let path = ["v1", "apps", app.as_str(), "secrets", name.as_str()];
        read(self.request(Method::PUT, &path)?.json(value)).await
    }

    /// Removes a secret.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn remove_secret(&self, app: &AppName, name: &SecretName) -> Result<(), CliError> {
        let path = ["v1", "apps", app.as_str(), "secrets", name.as_str()];
        send(self.request(Method::DELETE, &path)?).await.map(drop)
    }

    /// Changes environment variables of an app.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn change_env(
        &self,
        app: &AppName,
        change: &ChangeEnv,
    ) -> Result<DeployResponse, CliError> {
        let request = self.request(Method::PATCH, &["v1", "apps", app.as_str(), "env"])?;
        read(request.json(change)).await
    }

    /// The objective of an app, and whether its newest version meets it.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn objective(&self, app: &AppName) -> Result<ObjectiveInfo, CliError> {
        read(self.request(Method::GET, &["v1", "apps", app.as_str(), "objective"])?).await
    }

    /// Sets the objective of an app.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn set_objective(
        &self,
        app: &AppName,
        objective: &Objective,
    ) -> Result<ObjectiveInfo, CliError> {
        let request = self.request(Method::PUT, &["v1", "apps", app.as_str(), "objective"])?;
        read(request.json(objective)).await
    }

    /// Removes the objective of an app.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn clear_objective(&self, app: &AppName) -> Result<(), CliError> {
        let request = self.request(Method::DELETE, &["v1", "apps", app.as_str(), "objective"])?;
        send(request).await.map(drop)
    }

    /// The domains of an app.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn domains(&self, app: &AppName) -> Result<Vec<DomainInfo>, CliError> {
        read(self.request(Method::GET, &["v1", "apps", app.as_str(), "domains"])?).await
    }

    /// Requests a domain.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn add_domain(
        &self,
        app: &AppName,
        body: &AddDomain,
    ) -> Result<DomainInfo, CliError> {
        let request = self.request(Method::POST, &["v1", "apps", app.as_str(), "domains"])?;
        read(request.json(body)).await
    }

    /// Checks the proof of ownership of a domain.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn verify_domain(
        &self,
        app: &AppName,
        host: &HostName,
    ) -> Result<DomainInfo, CliError> {
        let path = [
            "v1",
            "apps",
            app.as_str(),
            "domains",
            host.as_str(),
            "verify",
        ];
        read(self.request(Method::POST, &path)?).await
    }

    /// Removes a domain.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn remove_domain(&self, app: &AppName, host: &HostName) -> Result<(), CliError> {
        let path = ["v1", "apps", app.as_str(), "domains", host.as_str()];
        send(self.request(Method::DELETE, &path)?).await.map(drop)
    }
}
