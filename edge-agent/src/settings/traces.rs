//! Exporting spans of calls to an OpenTelemetry collector.

use std::path::PathBuf;

use fdn_core::DurationMs;
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Where spans of calls are sent, and how many of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TraceSettings {
    /// The collector's base URL, without `/v1/traces`; if absent, no spans are exported.
    pub otlp: Option<String>,
    /// The fraction of traces that begin at this node and are exported, from 0 to 1. For continued traces, their `traceparent` decides.
    pub sample: f64,
    /// The most calls waiting to be exported; further ones are counted and dropped.
    pub queue: usize,
    /// The most calls in one request.
    pub batch: usize,
    /// How long the first call of a batch waits for others.
    pub interval: DurationMs,
    /// The timeout for sending a batch.
    pub timeout: DurationMs,
    /// The most attempts to send a batch before it is counted and dropped.
    pub attempts: u32,
    /// The pause before a batch is sent again; it doubles up to 30 s.
    pub retry_first: DurationMs,
    /// A file with header fields to add to each request, one `name: value` per line.
    pub headers_file: Option<PathBuf>,
    /// The authorities for verifying the collector's certificate, instead of the public ones.
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
    /// Checks that the values can work.
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

    /// The URL to which batches are posted; `None` if spans are not exported.
    ///
    /// # Errors
    /// When it is not a valid URL.
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
