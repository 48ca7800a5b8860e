//! Exporting spans of calls to an OpenTelemetry collector.

use std::path::PathBuf;

use fdn_core::DurationMs;
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Where spans of calls go, and how many of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TraceSettings {
    /// The collector's base URL, without `/v1/traces`; absent: no spans are exported.
    pub otlp: Option<String>,
    /// Which share of the traces that begin at this node is exported, from 0 to 1. Of others their `traceparent` says it.
    pub sample: f64,
    /// Calls that wait to be exported; those beyond are counted and dropped.
    pub queue: usize,
    /// Calls that go in one request, at most.
    pub batch: usize,
    /// How long the first call of a batch waits for others.
    pub interval: DurationMs,
    /// How long the collector may take for one batch.
    pub timeout: DurationMs,
    /// How often a batch is sent before it is counted and dropped.
    pub attempts: u32,
    /// The pause before it is sent again; it doubles up to 30 s.
    pub retry_first: DurationMs,
    /// A file with fields that each request carries, a `name: value` each line.
    pub headers_file: Option<PathBuf>,
    /// Authorities that the collector's certificate may be of, in place of those of the web.
    pub ca_file: Option<PathBuf>,
}

impl Default for TraceSettings {
    fn default() -> Self {
        Self {
            otlp: None,
            sample: 1.0,
            queue: 8192,
            batch: 256,
            interval: DurationMs::from_secs(1),
            timeout: DurationMs::from_secs(10),
            attempts: 4,
            retry_first: DurationMs::from_secs(1),
            headers_file: None,
            ca_file: None,
        }
    }
}

impl TraceSettings {
    /// Refuses values that cannot work.
    ///
    /// # Errors
    /// Names the key and what it must be.
    pub fn check(&self) -> Result<(), &'static str> {
        let is_url = |url: &String| url.starts_with("http://") || url.starts_with("https://");
        let rules = [
            (
                self.otlp.as_ref().is_none_or(is_url),
                "traces.otlp must begin with http:// or https://",
            ),
            (
                (0.0..=1.0).contains(&self.sample),
                "traces.sample must be from 0 to 1",
            ),
            (
                self.queue > 0 && self.batch > 0 && self.attempts > 0,
                "traces.queue, traces.batch and traces.attempts must be at least 1",
            ),
            (
                self.timeout.as_millis() > 0,
                "traces.timeout must be longer than 0s",
            ),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            Some((_, rule)) => Err(rule),
            None => Ok(()),
        }
    }

    /// Where batches are posted, if they are.
    ///
    /// # Errors
    /// When it is no URL.
    pub fn endpoint(&self) -> Result<Option<reqwest::Url>, Error> {
        let url = self.otlp.as_ref().map(|base| {
            let url = format!("{}/v1/traces", base.trim_end_matches('/'));
            url.parse()
                .map_err(|error| Error::Settings(format!("traces.otlp: {error}")))
        });
        url.transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_work_is_named_and_the_path_is_added() {
        type Change = fn(&mut TraceSettings);
        let cases: [(&str, Change); 6] = [
            ("traces.otlp", |s| s.otlp = Some("collector:4318".into())),
            ("traces.sample", |s| s.sample = 1.5),
            ("traces.sample", |s| s.sample = f64::NAN),
            ("traces.queue", |s| s.queue = 0),
            ("traces.batch", |s| s.batch = 0),
            ("traces.timeout", |s| s.timeout = DurationMs::from_secs(0)),
        ];
        for (key, change) in cases {
            let mut settings = TraceSettings::default();
            change(&mut settings);
            let rule = settings.check().expect_err(key);
            assert!(rule.contains(key), "{rule}");
        }
        let mut settings = TraceSettings::default();
        assert_eq!(settings.endpoint().expect("off"), None);
        settings.otlp = Some("http://collector:4318/".to_owned());
        settings.check().expect("a collector");
        let url = settings.endpoint().expect("a URL").expect("on");
        assert_eq!(url.as_str(), "http://collector:4318/v1/traces");
    }
}
