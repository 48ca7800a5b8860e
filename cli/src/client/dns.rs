//! What DNS answers, as the controller knows it or as one DNS server says.

use std::net::SocketAddr;
use std::time::Duration;

use fdn_core::account::TenantRef;
use fdn_core::app::{AppDns, PutAppDns};
use fdn_core::observe::{AddressKind, BindingDetail, DnsLookup};
use fdn_core::txt::{AddTxt, SetTxt, TxtInfo};
use fdn_core::{AppName, ClientPrefix, HostName, RecordName};
use fdn_dns::admin::Explained;
use reqwest::Method;

use super::{Client, read, send};
use crate::error::CliError;

/// The longest silence of a DNS server's admin listener, which answers from memory.
const SERVER_IDLE: Duration = Duration::from_secs(10);

/// What the DNS server with this admin address answers a client for a name, and why.
///
/// # Errors
/// When nobody answers there, or not as a DNS server does; [`CliError::Problem`] when it refuses the question.
pub(crate) async fn server_lookup(
    server: SocketAddr,
    name: &HostName,
    client: ClientPrefix,
    kind: AddressKind,
) -> Result<Explained, CliError> {
    let http = fdn_service::http_client::build_direct(SERVER_IDLE)?;
    let request = http.get(format!("http://{server}/lookup"));
    let asked = read(request.query(&question(name, client, kind))).await;
    asked.map_err(|error| match error {
        CliError::Problem(_) => error,
        CliError::Unreachable { reason, .. } | CliError::Answer { reason, .. } => {
            CliError::NoDnsServer { server, reason }
        }
        CliError::Foreign { status, .. } => CliError::NoDnsServer {
            server,
            reason: format!("status {status}"),
        },
        error => CliError::NoDnsServer {
            server,
            reason: error.to_string(),
        },
    })
}

fn question(
    name: &HostName,
    client: ClientPrefix,
    kind: AddressKind,
) -> [(&'static str, String); 3] {
    let kind = match kind {
        AddressKind::A => "A",
        AddressKind::Aaaa => "AAAA",
    };
    [
        ("name", name.to_string()),
        ("client", client.to_string()),
        ("type", kind.to_owned()),
    ]
}

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
        read(request.query(&question(name, client, kind))).await
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
    pub async fn set_app_dns(&self, app: &AppName, body: PutAppDns) -> Result<AppDns, CliError> {
        let request = self.request(Method::PUT, &["v1", "apps", app.as_str(), "dns"])?;
        read(request.json(&body)).await
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
    pub async fn set_txt(&self, name: &RecordName, body: &SetTxt) -> Result<TxtInfo, CliError> {
        let request = self.request(Method::PUT, &["v1", "dns", "txt", name.as_str()])?;
        read(request.json(body)).await
    }

    /// Adds a value to the text records of a name.
    ///
    /// # Errors
    /// As [`Client::network`].
    pub async fn add_txt(&self, name: &RecordName, body: &AddTxt) -> Result<TxtInfo, CliError> {
        let request = self.request(Method::POST, &["v1", "dns", "txt", name.as_str()])?;
        read(request.json(body)).await
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
