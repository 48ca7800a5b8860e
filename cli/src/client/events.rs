//! What happens, as a stream.

use reqwest::{Method, Response};

use super::{Client, send};
use crate::error::CliError;

impl Client {
    /// The stream of events, after the one of the number `after` if there is one.
    ///
    /// # Errors
    /// As [`Client::network`].
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
