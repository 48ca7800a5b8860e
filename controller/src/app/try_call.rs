//! Test calls of an app: the controller calls one of the network's gateways, which handles that like a client's call, and returns the response
//! with timings.
//!
//! Only nodes of the network are ever called: the address is not part of the request, and redirects are returned like other responses.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use fdn_core::api::header;
use fdn_core::observe::{AddressKind, BodyEncoding, TryAnswer, TryPhase, TryRequest, TryStage};
use fdn_core::{AppName, ClientPrefix, ClusterId, Coded, ErrorCode, HostName, Millis, TenantId};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use url::Url;

use super::{console, steer};
use crate::Error;
use crate::edge::node_client::NodeAddress;
use crate::error::chain;
use crate::state::{State, lock};
use crate::store::app::app_get;
use crate::store::binding::binding_list;

/// The most header fields of one call.
const HEADERS_MAX: usize = 100;
/// The shortest timeout of a call.
const SHORTEST: Duration = Duration::from_millis(100);
/// The response header in which a gateway names the cluster of each stage.
const STAGES: &str = "x-fdn-stages";
/// Header fields that a test call may not set: they belong to the connection, or tell who calls.
const NOT_SENT: [&str; 14] = [
    "host",
    "connection",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "content-length",
    "http2-settings",
    header::JOB,
    header::CALL_HOST,
    header::IDENTITY,
];

/// Why an app could not be called.
#[derive(Debug, thiserror::Error)]
pub enum TryError {
    /// The request is not valid.
    #[error("{field}: {problem}")]
    Invalid {
        /// The field of the request.
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// There is no live gateway.
    #[error("no gateway of {0} is alive; `fdn node list` shows why")]
    NoGateway(String),
    /// Controllers cannot call the live gateways.
    #[error(
        "the gateways of {0} are agents of an older release, which controllers cannot call; upgrade them"
    )]
    Older(String),
    /// The gateway was called and did not answer.
    #[error("the gateway {gateway} did not answer: {problem}")]
    NoAnswer {
        /// The gateway's address.
        gateway: SocketAddr,
        /// The reason.
        problem: String,
    },
}

impl Coded for TryError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Invalid { .. } => ErrorCode::TryInvalid,
            Self::NoGateway(_) | Self::Older(_) => ErrorCode::NoGateway,
            Self::NoAnswer { .. } => ErrorCode::TryFailed,
        }
    }
}

fn invalid(field: &'static str, problem: impl std::fmt::Display) -> TryError {
    let problem = problem.to_string();
    TryError::Invalid { field, problem }
}

/// A validated call.
#[derive(Debug, PartialEq)]
struct Call {
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

impl Call {
    fn read(request: &TryRequest) -> Result<Self, TryError> {
        let method = request.method.as_deref().unwrap_or("GET");
        let method: Method = method
            .parse()
            .map_err(|_| invalid("method", "a method such as GET or POST"))?;
        if method == Method::CONNECT {
            return Err(invalid("method", "CONNECT makes no call"));
        }
        let path = request.path.clone().unwrap_or_else(|| "/".to_owned());
        let is_clean = path.bytes().all(|b| b.is_ascii_graphic() && b != b'#');
        if !path.starts_with('/') || !is_clean || path.len() > 8192 {
            return Err(invalid(
                "path",
                "it begins with a slash and has no spaces; percent-encode others",
            ));
        }
        if request
            .timeout
            .is_some_and(|own| own.as_duration() < SHORTEST)
        {
            return Err(invalid("timeout", format!("at least {SHORTEST:?}")));
        }
        if request.headers.len() > HEADERS_MAX {
            return Err(invalid("headers", format!("at most {HEADERS_MAX}")));
        }
        let mut headers = HeaderMap::new();
        for (name, value) in &request.headers {
            let bad = || invalid("headers", format!("{name:?} cannot be sent"));
            let parsed: HeaderName = name.parse().map_err(|_| bad())?;
            if NOT_SENT.contains(&parsed.as_str()) {
                return Err(bad());
            }
            headers.append(parsed, HeaderValue::from_str(value).map_err(|_| bad())?);
        }
        let body = match request.encoding {
            BodyEncoding::Text => Bytes::from(request.body.clone()),
            BodyEncoding::Base64 => Bytes::from(
                STANDARD
                    .decode(&request.body)
                    .map_err(|e| invalid("body", e))?,
            ),
        };
        Ok(Self {
            method,
            path,
            headers,
            body,
        })
    }

    /// The request target, checked to stay on this node's origin whatever the path looks like.
    fn target(&self, node: &NodeAddress) -> Result<&str, TryError> {
        let read = |target: &str| node.url(target).parse::<Url>();
        let origin = read("/").map_err(|e| invalid("path", e))?.origin();
        let url = read(&self.path).map_err(|e| invalid("path", e))?;
        if url.origin() != origin || !url.username().is_empty() {
            return Err(invalid("path", "it must be a path"));
        }
        Ok(&self.path)
    }
}

/// Calls the app as `client` would.
///
/// # Errors
/// When there is no such app, the request is not valid, no gateway answers, or there are too many test calls at once.
pub async fn try_call(
    state: &State,
    (tenant, app): (TenantId, &AppName),
    client: ClientPrefix,
    request: &TryRequest,
) -> Result<TryAnswer, Error> {
    let console = &state.settings.console;
    let call = Call::read(request)?;
    if call.body.len() as u64 > console.try_body.as_bytes() {
        return Err(Error::BodyTooLarge(console.try_body));
    }
    let _place = state.tries.try_acquire().map_err(|_| Error::TooMany {
        what: "too many calls to try apps with",
        after: Duration::from_secs(1),
    })?;
    let (host, gateway) = gateway(state, (tenant, app), client, request.cluster.as_ref()).await?;
    let most = console.try_timeout.as_duration();
    let limit = request
        .timeout
        .map_or(most, |own| own.as_duration().min(most));
    let answer = send(state, &call, (&host, &gateway), limit).await;
    let result = if answer.is_ok() { "answered" } else { "failed" };
    state
        .metrics
        .console
        .tries
        .with_label_values(&[result])
        .inc();
    answer
}

/// The app's host name, and the node whose gateway is called.
async fn gateway(
    state: &State,
    (tenant, app): (TenantId, &AppName),
    client: ClientPrefix,
    wanted: Option<&ClusterId>,
) -> Result<(HostName, NodeAddress), Error> {
    let mut connection = state.store.read().await?;
    let found = app_get(&mut connection, app)
        .await?
        .filter(|row| row.tenant == tenant);
    let host = found.ok_or_else(|| Error::no_app(app))?.host;
    let bindings = binding_list(&mut connection, app).await?;
    drop(connection);
    let cluster = match wanted {
        Some(cluster) => Some(cluster.clone()),
        None => {
            let (view, gateways) = console::client_view(state, client, AddressKind::A);
            steer::steer(&bindings, client, &view, &gateways).cluster
        }
    };
    let now = fdn_service::now();
    let live = lock(&state.live);
    if let Some(cluster) = wanted.filter(|cluster| !live.clusters().contains_key(*cluster)) {
        return Err(Error::no_cluster(cluster));
    }
    let fits = |of: &ClusterId| cluster.as_ref().is_none_or(|cluster| cluster == of);
    let alive = live.alive(now).map(|seen| &seen.status);
    // A draining node is still better than none.
    let first = alive
        .filter(|status| fits(&status.cluster))
        .min_by_key(|status| (status.controller_port.is_none(), status.draining));
    let named = cluster
        .as_ref()
        .map_or_else(|| "any cluster".to_owned(), |c| format!("cluster {c}"));
    let Some(status) = first else {
        return Err(TryError::NoGateway(named).into());
    };
    Ok((host, NodeAddress::of(status).ok_or(TryError::Older(named))?))
}

async fn send(
    state: &State,
    call: &Call,
    (host, node): (&HostName, &NodeAddress),
    limit: Duration,
) -> Result<TryAnswer, Error> {
    let id = uuid::Uuid::now_v7().simple().to_string();
    let mut headers = call.headers.clone();
    if let Ok(value) = HeaderValue::from_str(host.as_str()) {
        headers.insert(HeaderName::from_static(header::CALL_HOST), value);
    }
    if let Ok(value) = HeaderValue::from_str(&id) {
        headers.insert(HeaderName::from_static(header::REQUEST_ID), value);
    }
    let gateway = node.address;
    let request = state
        .edge
        .node_clients
        .request(call.method.clone(), node, call.target(node)?)?
        .headers(headers)
        .body(call.body.clone());
    let failed = |problem: String| TryError::NoAnswer { gateway, problem };
    let start = Instant::now();
    let most = state.settings.console.try_answer.as_usize();
    let asking = async {
        let response = request.send().await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let (body, truncated) = read(response, most).await?;
        Ok::<_, reqwest::Error>((status, headers, body, truncated))
    };
    let (status, headers, body, truncated) = match tokio::time::timeout(limit, asking).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => return Err(failed(chain(&error.without_url())).into()),
        Err(_) => return Err(failed(format!("nothing came for {limit:?}")).into()),
    };
    Ok(answer(
        (status, &headers),
        (&body, truncated),
        gateway,
        &id,
        start.elapsed(),
    ))
}

/// A body up to `most` bytes, and whether there was more.
async fn read(
    mut response: reqwest::Response,
    most: usize,
) -> Result<(Bytes, bool), reqwest::Error> {
    let mut bytes = BytesMut::new();
    while let Some(piece) = response.chunk().await? {
        let room = most - bytes.len();
        bytes.extend_from_slice(&piece[..piece.len().min(room)]);
        if piece.len() > room {
            return Ok((bytes.freeze(), true));
        }
    }
    Ok((bytes.freeze(), false))
}

fn answer(
    (status, headers): (u16, &HeaderMap),
    (body, truncated): (&Bytes, bool),
    gateway: SocketAddr,
    id: &str,
    total: Duration,
) -> TryAnswer {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    // A truncated body may end within a character.
    let whole = match std::str::from_utf8(body) {
        Ok(text) => Some(text),
        Err(error) if truncated && error.error_len().is_none() => {
            std::str::from_utf8(&body[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    };
    let (encoding, shown) = match whole {
        Some(text) => (BodyEncoding::Text, text.to_owned()),
        None => (BodyEncoding::Base64, STANDARD.encode(body)),
    };
    let pairs = headers.iter().map(|(name, value)| {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        (name.to_string(), value)
    });
    TryAnswer {
        status,
        headers: pairs.collect(),
        body: shown,
        encoding,
        body_bytes: body.len() as u64,
        truncated,
        request: text(header::REQUEST_ID).unwrap_or(id).to_owned(),
        gateway,
        cluster: text(header::CLUSTER).and_then(|text| text.parse().ok()),
        node: text(header::NODE).and_then(|text| text.parse().ok()),
        version: text(header::VERSION).and_then(|text| text.parse().ok()),
        error_code: text(header::ERROR).and_then(|code| ErrorCode::try_from(code.to_owned()).ok()),
        timings: timings(headers, total),
        stages: text(STAGES).map(stages).unwrap_or_default(),
    }
}

/// The phases that the gateway reports, then the rest as `network`, then the total.
fn timings(headers: &HeaderMap, total: Duration) -> Vec<TryPhase> {
    let told = headers.get_all(header::TIMING).iter();
    let told = told
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','));
    let mut phases: Vec<TryPhase> = told.filter_map(phase).collect();
    let total = Millis::from(total);
    let known: f64 = phases.iter().map(|phase| phase.ms.get()).sum();
    for (phase, ms) in [
        ("network", Millis::new((total.get() - known).max(0.0))),
        ("total", total),
    ] {
        let phase = phase.to_owned();
        phases.push(TryPhase { phase, ms });
    }
    phases
}

/// One metric of a `server-timing` list, if it has a duration.
fn phase(metric: &str) -> Option<TryPhase> {
    let mut parts = metric.split(';').map(str::trim);
    let phase = parts.next().filter(|name| !name.is_empty())?.to_owned();
    let ms: f64 = parts
        .find_map(|part| part.strip_prefix("dur="))?
        .parse()
        .ok()?;
    (ms.is_finite() && ms >= 0.0).then(|| TryPhase {
        phase,
        ms: Millis::new(ms),
    })
}

/// Parses a list such as `resize=eu-west, face=us-east`.
fn stages(text: &str) -> Vec<TryStage> {
    let pairs = text
        .split(',')
        .filter_map(|pair| pair.trim().split_once('='));
    let stage = |(stage, cluster): (&str, &str)| {
        Some(TryStage {
            stage: stage.parse().ok()?,
            cluster: cluster.parse().ok()?,
        })
    };
    pairs.filter_map(stage).collect()
}

#[cfg(test)]
mod tests;
