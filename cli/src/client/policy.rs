//! Policies of apps and keys of their callers, as typed calls.

use fdn_core::policy::api::{CreateKey, CreatedKey, KeyInfo, PolicyInfo, TrafficInfo};
use fdn_core::policy::{Policy, Traffic};
use fdn_core::{AppName, KeyId};
use reqwest::Method;

use super::{Client, read, send};
use crate::error::CliError;

impl Client {
    /// The policy of an app.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn policy(&self, app: &AppName) -> Result<PolicyInfo, CliError> {
        read(self.request(Method::GET, &["v1", "apps", app.as_str(), "policy"])?).await
    }

    /// Sets the policy of an app.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn set_policy(&self, app: &AppName, policy: &Policy) -> Result<PolicyInfo, CliError> {
        let request = self.request(Method::PUT, &["v1", "apps", app.as_str(), "policy"])?;
        read(request.json(policy)).await
    }

    /// Removes the policy of an app.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn clear_policy(&self, app: &AppName) -> Result<(), CliError> {
        let request = self.request(Method::DELETE, &["v1", "apps", app.as_str(), "policy"])?;
        send(request).await.map(drop)
    }

    /// Creates a key for a caller of an app.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn create_key(
        &self,
        app: &AppName,
        body: &CreateKey,
    ) -> Result<CreatedKey, CliError> {
        let request = self.request(Method::POST, &["v1", "apps", app.as_str(), "keys"])?;
        read(request.json(body)).await
    }

    /// The keys of an app.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn keys(&self, app: &AppName) -> Result<Vec<KeyInfo>, CliError> {
        read(self.request(Method::GET, &["v1", "apps", app.as_str(), "keys"])?).await
    }

    /// Revokes a key.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn revoke_key(&self, app: &AppName, key: KeyId) -> Result<(), CliError> {
        let key = key.to_string();
        let path = ["v1", "apps", app.as_str(), "keys", &key];
        send(self.request(Method::DELETE, &path)?).await.map(drop)
    }

    /// The traffic split of an app between its versions.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn traffic(&self, app: &AppName) -> Result<TrafficInfo, CliError> {
        read(self.request(Method::GET, &["v1", "apps", app.as_str(), "traffic"])?).await
    }

    /// Sets the traffic split of an app between its versions.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn set_traffic(
        &self,
        app: &AppName,
        traffic: &Traffic,
    ) -> Result<TrafficInfo, CliError> {
        let request = self.request(Method::PUT, &["v1", "apps", app.as_str(), "traffic"])?;
        read(request.json(traffic)).await
    }
}
