//! What callers of apps saw lately, in figures.

use fdn_core::figures::{Figures, FiguresBy};
use reqwest::Method;

use super::{Client, read};
use crate::error::CliError;

/// How many series are asked for: what is quieter than so many others is shown without figures.
const SERIES: u32 = 100;

impl Client {
    /// The last quarter of an hour, in steps of ten seconds.
    ///
    /// # Errors
    /// As [`Client::network`].
    pub async fn figures(&self, by: FiguresBy) -> Result<Figures, CliError> {
        let request = self.request(Method::GET, &["v1", "metrics"])?;
        let query = [("by", by.to_string()), ("limit", SERIES.to_string())];
        read(request.query(&query)).await
    }
}
