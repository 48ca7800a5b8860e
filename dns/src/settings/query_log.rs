//! Settings of the log of queries.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Settings;
use crate::error::Error;
use crate::metrics::Metrics;
use crate::query_log::QueryLog;

/// A sample of the questions, on the standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QueryLogSettings {
    /// One question in so many is told, by its message id. 0: none is.
    pub one_in: u16,
    /// Lines that may wait to be written; what comes beyond is dropped and counted.
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
    /// Starts the log of queries, if it is wanted.
    pub(crate) fn start_query_log(
        &self,
        metrics: &Arc<Metrics>,
    ) -> Result<Option<QueryLog>, Error> {
        let QueryLogSettings { one_in, queue } = self.query_log;
        if one_in == 0 {
            return Ok(None);
        }
        let dropped = metrics.watched.log_dropped.clone();
        QueryLog::start(one_in, queue, dropped, std::io::stdout())
            .map(Some)
            .map_err(Error::Socket)
    }
}
