//! The event stream.

use reqwest::{Method, Response};

use super::{Client, send};
use crate::error::CliError;

impl Client {
    /// The event stream, continued after event number `after` if that is given.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn events(
        &self,
        query: &[(&str, String)],
        after: Option<u64>,
    ) -> Result<Response, CliError> {
        let request = self.request(Method::GET, &["v1", "events"])?.query(query);
        send(match after {
            Some(id) => request.header("last-event-id", id.to_string()),
            None => request,
        })
        .await
    }
}
