//! The trace of one call.

use fdn_core::trace::CallTrace;
use fdn_core::{AppName, ClientPrefix};
use reqwest::Method;

use super::{Client, read};
use crate::error::CliError;

impl Client {
    /// The newest call of an app with this request id, explained for `client` or else for the original caller.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn trace(
        &self,
        app: &AppName,
        request: &str,
        client: Option<ClientPrefix>,
    ) -> Result<CallTrace, CliError> {
        let path = ["v1", "apps", app.as_str(), "calls", "trace"];
        let asked = self.request(Method::GET, &path)?;
        let asked = asked.query(&[("request", request)]);
        let client = client.map(|client| ("client", client.to_string()));
        read(asked.query(&client.as_slice())).await
    }
}
