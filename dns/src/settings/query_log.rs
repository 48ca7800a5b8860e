//! Settings of the query log.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Settings;
use crate::error::Error;
use crate::metrics::Metrics;
use crate::query_log::QueryLog;

/// The query log: a sample of the questions, on standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QueryLogSettings {
    /// One question in this many is logged, chosen by its message id. 0: none.
    pub one_in: u16,
    /// The most lines that wait to be written; further ones are dropped and counted.
    pub queue: usize,
}

impl Default for QueryLogSettings {
    fn default() -> Self {
        Self {
            one_in: 0,
            queue: 1024,
        }
    }
}

impl Settings {
    /// Starts the query log, if it is enabled.
    pub(crate) fn start_query_log(
        &self,
        metrics: &Arc<Metrics>,
    ) -> Result<Option<QueryLog>, Error> {
        let QueryLogSettings { one_in, queue } = self.query_log;
        if one_in == 0 {
            return Ok(None);
        }
        let dropped = metrics.sampled.log_dropped.clone();
        QueryLog::start(one_in, queue, dropped, std::io::stdout())
            .map(Some)
            .map_err(Error::Socket)
    }
}
