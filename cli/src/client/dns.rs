//! What DNS answers.

use fdn_core::account::TenantRef;
use fdn_core::app::{AppDns, PutAppDns};
use fdn_core::observe::{AddressKind, BindingDetail, DnsLookup};
use fdn_core::txt::{AddTxt, SetTxt, TxtInfo};
use fdn_core::{AppName, ClientPrefix, HostName, RecordName};
use reqwest::Method;

use super::{Client, read, send};
use crate::error::CliError;

impl Client {
    /// What a client is answered for a name, and why.
    ///
    /// # Errors
    /// As [`Client::network`].
    pub async fn dns_lookup(
        &self,
        name: &HostName,
        client: ClientPrefix,
        kind: AddressKind,
    ) -> Result<DnsLookup, CliError> {
        let request = self.request(Method::GET, &["v1", "dns", "lookup"])?;
        let kind = match kind {
            AddressKind::A => "A",
            AddressKind::Aaaa => "AAAA",
        };
        let query = [
            ("name", name.to_string()),
            ("client", client.to_string()),
            ("type", kind.to_owned()),
        ];
        read(request.query(&query)).await
    }

    /// For how long resolvers may keep the answers for an app.
    ///
    /// # Errors
    /// As [`Client::network`].
    pub async fn app_dns(&self, app: &AppName) -> Result<AppDns, CliError> {
        read(self.request(Method::GET, &["v1", "apps", app.as_str(), "dns"])?).await
    }

    /// Sets for how long they may.
    ///
    /// # Errors
    /// As [`Client::network`].
    pub async fn set_app_dns(&self, app: &AppName, wish: PutAppDns) -> Result<AppDns, CliError> {
        let request = self.request(Method::PUT, &["v1", "apps", app.as_str(), "dns"])?;
        read(request.json(&wish)).await
    }

    /// The text records that are set, of one tenant's apps or of all.
    ///
    /// # Errors
    /// As [`Client::network`].
    pub async fn txt(&self, tenant: Option<&TenantRef>) -> Result<Vec<TxtInfo>, CliError> {
        let tenant = tenant.map(|tenant| ("tenant", tenant.to_string()));
        let query: Vec<_> = tenant.into_iter().collect();
        self.list(&["v1", "dns", "txt"], &query).await
    }

    /// Sets the text records of a name, whole.
    ///
    /// # Errors
    /// As [`Client::network`].
    pub async fn set_txt(&self, name: &RecordName, wish: &SetTxt) -> Result<TxtInfo, CliError> {
        let request = self.request(Method::PUT, &["v1", "dns", "txt", name.as_str()])?;
        read(request.json(wish)).await
    }

    /// Adds a value to the text records of a name.
    ///
    /// # Errors
    /// As [`Client::network`].
    pub async fn add_txt(&self, name: &RecordName, wish: &AddTxt) -> Result<TxtInfo, CliError> {
        let request = self.request(Method::POST, &["v1", "dns", "txt", name.as_str()])?;
        read(request.json(wish)).await
    }

    /// Takes a value of a name away, or all.
    ///
    /// # Errors
    /// As [`Client::network`].
    pub async fn remove_txt(&self, name: &RecordName, value: Option<&str>) -> Result<(), CliError> {
        let request = self.request(Method::DELETE, &["v1", "dns", "txt", name.as_str()])?;
        let query: Vec<_> = value.map(|value| ("value", value)).into_iter().collect();
        send(request.query(&query)).await.map(drop)
    }

    /// Where an app's clients are sent.
    ///
    /// # Errors
    /// As [`Client::network`].
    pub async fn bindings(&self, app: &AppName) -> Result<Vec<BindingDetail>, CliError> {
        self.list(&["v1", "apps", app.as_str(), "bindings"], &[])
            .await
    }
}
