//! Sends spans to the collector: in batches, with retries where those may help, and without ever delaying a call.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use fdn_core::NodeId;
use fdn_service::{CancellationToken, http_client};
use rand::RngExt;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Client, StatusCode, Url};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::{info, warn};

use super::otlp::{Answer, Attribute, Export, Resource, Span};
use super::{EndedCall, spans};
use crate::error::Error;
use crate::metrics::TraceMetrics;
use crate::settings::{Settings, TraceSettings};

/// The longest pause before a batch is sent again.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// The time limit of a batch once the agent stops.
const LAST: Duration = Duration::from_secs(2);
/// The most bytes read of a response.
const ANSWER_MAX: usize = 64 << 10;

/// Why a batch was not accepted.
enum Refused {
    /// Sending it again would change nothing.
    Never(String),
    /// It may be accepted later; with the delay, if the collector named one.
    Later(String, Option<Duration>),
}

/// Sends the spans of ended calls to the collector.
pub struct Exporter {
    settings: TraceSettings,
    url: Url,
    client: Client,
    resource: Resource,
    calls: mpsc::Receiver<EndedCall>,
    metrics: TraceMetrics,
    /// Whether the last batch was not accepted, so that this is logged once and not for each batch.
    fails: bool,
}

impl Exporter {
    /// An exporter of a node's calls to `url`.
    ///
    /// # Errors
    /// When the file of header fields or of authorities is not usable.
    pub fn new(
        settings: &Settings,
        url: Url,
        calls: mpsc::Receiver<EndedCall>,
        metrics: TraceMetrics,
    ) -> Result<Self, Error> {
        let traces = settings.traces.clone();
        if let Some(file) = &traces.headers_file {
            let text = std::fs::read_to_string(file);
            let read = text.map_err(|error| error.to_string());
            let known = read.and_then(|text| fields(&text));
            known.map_err(|reason| Error::Settings(headers_failed(file, &reason)))?;
        }
        let client = http_client::builder_trusting(traces.ca_file.as_deref())?
            .redirect(reqwest::redirect::Policy::none())
            .timeout(traces.timeout.as_duration())
            .build()
            .map_err(fdn_service::ServiceError::HttpClient)?;
        Ok(Self {
            url,
            client,
            resource: resource(settings),
            calls,
            metrics,
            settings: traces,
            fails: false,
        })
    }

    /// Sends until `stop` is cancelled, and then what is left, once.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut calls = Vec::new();
        while !stop.is_cancelled() {
            tokio::select! {
                () = self.collect(&mut calls) => {}
                () = stop.cancelled() => {}
            }
            self.send(&mut calls, &stop).await;
        }
        // The queue is bounded and closed, so this loop ends.
        self.calls.close();
        while let Ok(call) = self.calls.try_recv() {
            self.metrics.waiting.dec();
            calls.push(call);
            if calls.len() >= self.settings.batch {
                self.send(&mut calls, &stop).await;
            }
        }
        self.send(&mut calls, &stop).await;
    }

    /// Waits until a batch is full or its interval has passed.
    async fn collect(&mut self, calls: &mut Vec<EndedCall>) {
        let batch = self.settings.batch;
        let mut until = None;
        while calls.len() < batch {
            let more = self.calls.recv_many(calls, batch - calls.len());
            let came = match until {
                None => more.await,
                Some(until) => timeout_at(until, more).await.unwrap_or(0),
            };
            match (came, until) {
                // All senders are gone.
                (0, None) => std::future::pending().await,
                (0, Some(_)) => break,
                _ => {}
            }
            self.metrics.waiting.sub(i64::try_from(came).unwrap_or(0));
            until.get_or_insert_with(|| Instant::now() + self.settings.interval.as_duration());
        }
    }

    /// Sends a batch, with retries as long as those may help.
    async fn send(&mut self, calls: &mut Vec<EndedCall>, stop: &CancellationToken) {
        if calls.is_empty() {
            return;
        }
        let mut spans = Vec::new();
        for call in calls.drain(..) {
            spans::add(&call, &mut || rand::rng().random(), &mut spans);
        }
        let body = self.body(&spans);
        let mut pause = self.settings.retry_first.as_duration();
        let mut attempts = self.settings.attempts;
        if stop.is_cancelled() {
            // A collector that is already failing must not delay the stop by another attempt per batch.
            attempts = u32::from(!self.fails);
        }
        for attempt in 1..=attempts {
            let (reason, wait) = match self.post(body.clone(), stop).await {
                Ok(rejected) => return self.sent(spans.len() as u64, rejected),
                Err(Refused::Never(reason)) => return self.failed(spans.len() as u64, &reason),
                Err(Refused::Later(reason, wait)) => (reason, wait),
            };
            if attempt == attempts || stop.is_cancelled() {
                return self.failed(spans.len() as u64, &reason);
            }
            tokio::select! {
                () = sleep(wait.unwrap_or(pause).min(PAUSE_MAX)) => {}
                () = stop.cancelled() => {}
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
        self.failed(spans.len() as u64, "the agent stops");
    }

    fn body(&self, spans: &[Span]) -> Bytes {
        // Text and numbers can always be serialized.
        serde_json::to_vec(&Export::new(&self.resource, spans))
            .unwrap_or_default()
            .into()
    }

    fn count(&self, result: &str, spans: u64) {
        self.metrics
            .spans
            .with_label_values(&[result])
            .inc_by(spans);
    }

    fn sent(&mut self, spans: u64, rejected: u64) {
        let rejected = rejected.min(spans);
        self.count("sent", spans - rejected);
        self.count("rejected", rejected);
        if std::mem::take(&mut self.fails) {
            info!("the collector of traces takes spans again");
        }
    }

    fn failed(&mut self, spans: u64, reason: &str) {
        self.count("failed", spans);
        if !std::mem::replace(&mut self.fails, true) {
            warn!(
                reason,
                "spans are lost: the collector of traces does not take them"
            );
        }
    }

    /// Sends one request; returns the number of rejected spans.
    async fn post(&self, body: Bytes, stop: &CancellationToken) -> Result<u64, Refused> {
        let last = async {
            stop.cancelled().await;
            sleep(LAST).await;
        };
        tokio::select! {
            answered = self.export(body) => answered,
            () = last => Err(Refused::Never("no answer before the agent stops".to_owned())),
        }
    }

    async fn export(&self, body: Bytes) -> Result<u64, Refused> {
        let later = |reason| Refused::Later(reason, None);
        let mut headers = self.headers().await.map_err(later)?;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let request = self.client.post(self.url.clone()).headers(headers);
        let lost = |error| later(http_client::without_url(error));
        let mut answer = request.body(body).send().await.map_err(lost)?;
        let status = answer.status();
        if matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS
                | StatusCode::BAD_GATEWAY
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::GATEWAY_TIMEOUT
        ) {
            let wait = answer.headers().get(RETRY_AFTER);
            let wait = wait.and_then(|value| value.to_str().ok()?.parse().ok());
            let reason = format!("it answered {status}");
            return Err(Refused::Later(reason, wait.map(Duration::from_secs)));
        }
        if !status.is_success() {
            return Err(Refused::Never(format!("it answered {status}")));
        }
        let mut text = Vec::new();
        // The spans have arrived; if the response cannot be read, none counts as rejected.
        while let Ok(Some(piece)) = answer.chunk().await {
            text.extend_from_slice(&piece);
            if text.len() > ANSWER_MAX {
                return Ok(0);
            }
        }
        let answer: Answer = serde_json::from_slice(&text).unwrap_or_default();
        Ok(answer.rejected())
    }

    /// The header fields of each request. The file is read each time, so that a changed one needs no restart of the agent.
    async fn headers(&self) -> Result<HeaderMap, String> {
        let Some(file) = &self.settings.headers_file else {
            return Ok(HeaderMap::new());
        };
        let text = tokio::fs::read_to_string(file).await;
        let read = text.map_err(|error| error.to_string());
        let known = read.and_then(|text| fields(&text));
        known.map_err(|reason| headers_failed(file, &reason))
    }
}

fn headers_failed(file: &Path, reason: &str) -> String {
    format!("traces.headers_file {}: {reason}", file.display())
}

/// Parses header fields, one per line; errors name the line number, never its content, which is secret.
fn fields(text: &str) -> Result<HeaderMap, String> {
    let mut all = HeaderMap::new();
    for (at, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = || format!("line {} is not NAME: VALUE", at + 1);
        let (name, value) = line.split_once(':').ok_or_else(wrong)?;
        let name: HeaderName = name.trim().parse().map_err(|_| wrong())?;
        let mut value: HeaderValue = value.trim().parse().map_err(|_| wrong())?;
        value.set_sensitive(true);
        all.append(name, value);
    }
    Ok(all)
}

fn resource(settings: &Settings) -> Resource {
    let node: &NodeId = &settings.node;
    Resource {
        attributes: vec![
            Attribute::text("service.name", "fdn-edge-agent"),
            Attribute::text("service.version", env!("CARGO_PKG_VERSION")),
            Attribute::text("service.instance.id", node),
            Attribute::text("fdn.node", node),
            Attribute::text("fdn.cluster", &settings.cluster),
            Attribute::text("fdn.region", &settings.region),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_and_a_wrong_line_is_told_without_what_is_secret() {
        let all = fields("# who we are\nAuthorization: Bearer a:b\n\nx-tenant:shop\n");
        let all = all.expect("fields");
        assert_eq!(all["authorization"], "Bearer a:b");
        assert_eq!(all["x-tenant"], "shop");
        assert!(all["authorization"].is_sensitive());
        for wrong in ["x: 1\nsecret", "x: 1\nse cret: 2"] {
            let error = fields(wrong).expect_err("wrong");
            assert!(
                error.contains("line 2") && !error.contains("cret"),
                "{error}"
            );
        }
    }
}
