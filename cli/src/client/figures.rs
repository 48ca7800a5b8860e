//! Metrics of apps, as seen by their callers.

use fdn_core::figures::{Figures, FiguresBy};
use reqwest::Method;

use super::{Client, read};
use crate::error::CliError;

/// The most series that are requested: quieter ones are shown without metrics.
const SERIES: u32 = 100;

impl Client {
    /// The last quarter of an hour, in steps of ten seconds.
    ///
    /// # Errors
    /// As for [`Client::network`].
    pub async fn figures(&self, by: FiguresBy) -> Result<Figures, CliError> {
        let request = self.request(Method::GET, &["v1", "metrics"])?;
        let query = [("by", by.to_string()), ("limit", SERIES.to_string())];
        read(request.query(&query)).await
    }
}
