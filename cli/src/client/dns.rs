//! DNS answers, as computed by the controller or by one DNS server, and text records.

use std::net::SocketAddr;
use std::time::Duration;

use fdn_core::account::TenantRef;
use fdn_core::app::{AppDns, PutAppDns};
use fdn_core::observe::{AddressKind, BindingDetail, DnsLookup};
use fdn_core::txt::{AddTxt, SetTxt, TxtInfo};
use fdn_core::{AppName, ClientPrefix, HostName, RecordName};
use fdn_dns::admin::AnswerExplanation;
use reqwest::Method;

use super::{Client, read, send};
use crate::error::CliError;

/// The read timeout of a DNS server's admin listener, which answers from memory.
const SERVER_IDLE: Duration = Duration::from_secs(10);

/// What the DNS server with this admin address would answer a client for a name, and why.
///
/// # Errors
/// When nothing answers there, or it is not a DNS server; [`CliError::Problem`] when it refuses the question.
pub(crate) async fn server_lookup(
    server: SocketAddr,
    name: &HostName,
    client: ClientPrefix,
    kind: AddressKind,
) -> Result<AnswerExplanation, CliError> {
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
    /// What a client would be answered for a name, and why.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn dns_lookup(
        &self,
        name: &HostName,
        client: ClientPrefix,
        kind: AddressKind,
    ) -> Result<DnsLookup, CliError> {
        let request = self.request(Method::GET, &["v1", "dns", "lookup"])?;
        read(request.query(&question(name, client, kind))).await
    }

    /// The TTL of the DNS answers for an app.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn app_dns(&self, app: &AppName) -> Result<AppDns, CliError> {
        read(self.request(Method::GET, &["v1", "apps", app.as_str(), "dns"])?).await
    }

    /// Sets the TTL of the DNS answers for an app.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn set_app_dns(&self, app: &AppName, body: PutAppDns) -> Result<AppDns, CliError> {
        let request = self.request(Method::PUT, &["v1", "apps", app.as_str(), "dns"])?;
        read(request.json(&body)).await
    }

    /// The text records set through the API, of one tenant's apps or of all.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn txt(&self, tenant: Option<&TenantRef>) -> Result<Vec<TxtInfo>, CliError> {
        let tenant = tenant.map(|tenant| ("tenant", tenant.to_string()));
        let query: Vec<_> = tenant.into_iter().collect();
        self.list(&["v1", "dns", "txt"], &query).await
    }

    /// Sets the text records of a name, replacing all of them.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn set_txt(&self, name: &RecordName, body: &SetTxt) -> Result<TxtInfo, CliError> {
        let request = self.request(Method::PUT, &["v1", "dns", "txt", name.as_str()])?;
        read(request.json(body)).await
    }

    /// Adds a value to the text records of a name.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn add_txt(&self, name: &RecordName, body: &AddTxt) -> Result<TxtInfo, CliError> {
        let request = self.request(Method::POST, &["v1", "dns", "txt", name.as_str()])?;
        read(request.json(body)).await
    }

    /// Removes a value of a name, or all of them.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn remove_txt(&self, name: &RecordName, value: Option<&str>) -> Result<(), CliError> {
        let request = self.request(Method::DELETE, &["v1", "dns", "txt", name.as_str()])?;
        let query: Vec<_> = value.map(|value| ("value", value)).into_iter().collect();
        send(request.query(&query)).await.map(drop)
    }

    /// The bindings of an app: the clusters that its clients are sent to.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn bindings(&self, app: &AppName) -> Result<Vec<BindingDetail>, CliError> {
        self.list(&["v1", "apps", app.as_str(), "bindings"], &[])
            .await
    }
}
