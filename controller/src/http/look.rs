//! Reads for the console beyond the network's state: figures, calls, client traffic, latencies, DNS answers; and trial calls to apps.

use actix_web::{HttpRequest, HttpResponse, get, post, web};
use fdn_core::figures::{Figures, FiguresBy, Window};
use fdn_core::observe::{
    AddressKind, BindingDetail, DnsLookup, LatencyRow, TrafficMap, TryAnswer, TryRequest,
};
use fdn_core::trace::CallTrace;
use fdn_core::usage::{CallList, CallQuery, StatusFilter, UsageOutcome};
use fdn_core::{
    AppName, ByteSize, ClientPrefix, HostName, Problem, Right, Timestamp, VersionNumber,
};
use futures::StreamExt as _;
use serde::Deserialize;
use utoipa::IntoParams;

use super::auth::{Authorized, Deploy, Look, LookMachines, address};
use super::error::ApiError;
use super::page::PageParams;
use super::tenants::moment;
use crate::Error;
use crate::app::{calls, console, explain, trace, try_call};
use crate::state::State;
use crate::store::console::AppVisibility;

type Answer<T> = Result<web::Json<T>, ApiError>;
type Shared = web::Data<State>;
type App = web::Path<AppName>;

/// The most bytes of a trial request besides its body: header fields and path.
const AROUND: u64 = 64 << 10;
/// The most series in one response.
const SERIES_MAX: usize = 200;
/// The most bytes of a request or trace id.
const REQUEST_MAX: usize = 128;

/// Parameters of figures.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct FigureParams {
    /// Of the apps of this tenant (name or id).
    #[serde(rename = "tenant")]
    _tenant: Option<String>,
    /// Of this app only.
    app: Option<AppName>,
    /// How far back: `15m` in steps of 10 s, or `24h` in steps of 5 min.
    #[serde(default)]
    #[param(value_type = Option<Window>, inline)]
    window: Window,
    /// What one series is of.
    #[serde(default)]
    #[param(value_type = Option<FiguresBy>, inline)]
    by: FiguresBy,
    /// Only points that begin later than this: the `at` of the last point that the client has and that had ended.
    #[param(value_type = Option<u64>)]
    after: Option<Timestamp>,
    /// The most series, the busiest first.
    #[serde(default = "series")]
    #[param(value_type = Option<u32>, minimum = 1, maximum = 200)]
    limit: usize,
}

const fn series() -> usize {
    20
}

/// The apps that a caller can see, restricted to those requested.
fn visibility<T>(call: &Authorized<Look, T>, app: Option<AppName>) -> Result<AppVisibility, Error> {
    Ok(AppVisibility {
        tenant: call.named_tenant(),
        member: call.person()?.list_filter(Right::Look),
        app,
    })
}

/// What callers of apps saw lately: calls, errors, cold starts and how long calls took, as nodes counted them. Of the caller's tenants, an admin's are
/// all. A step without calls has no point.
#[utoipa::path(
    tag = "network",
    security(("session" = [])),
    params(FigureParams),
    responses((status = 200, body = Figures), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/metrics")]
pub(crate) async fn figures_get(
    call: Authorized<Look, web::Query<FigureParams>>,
    state: Shared,
) -> Answer<Figures> {
    let params = &call.input;
    if !(1..=SERIES_MAX).contains(&params.limit) {
        let text = format!("limit: from 1 to {SERIES_MAX}, not {}", params.limit);
        return Err(Error::BadRequest(text).into());
    }
    let visibility = visibility(&call, params.app.clone())?;
    let what = (params.window, params.by);
    let after = moment("after", params.after)?;
    Ok(web::Json(
        console::figures(&state, &visibility, what, after, params.limit).await?,
    ))
}

/// Parameters of an app's calls.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct CallParams {
    /// That arrived at this moment or later; an hour ago if absent.
    #[param(value_type = Option<u64>)]
    since: Option<Timestamp>,
    /// That arrived before this moment.
    #[param(value_type = Option<u64>)]
    until: Option<Timestamp>,
    /// That were answered with this status, or with one of a class.
    #[param(value_type = Option<String>, example = "5xx")]
    status: Option<StatusFilter>,
    /// That ended so.
    #[param(value_type = Option<UsageOutcome>, inline)]
    outcome: Option<UsageOutcome>,
    /// Of this version.
    #[param(value_type = Option<u64>, minimum = 1, maximum = 4_294_967_295u64)]
    version: Option<VersionNumber>,
    /// With this request id.
    #[param(max_length = 128)]
    request: Option<String>,
    /// Of this trace.
    #[param(max_length = 128)]
    trace: Option<String>,
    /// The most calls.
    #[serde(default = "calls_limit")]
    #[param(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    limit: u32,
}

const fn calls_limit() -> u32 {
    100
}

impl CallParams {
    fn query(self) -> Result<CallQuery, Error> {
        let most = CallQuery::LIMIT_MAX;
        if !(1..=most).contains(&self.limit) {
            let text = format!("limit: from 1 to {most}, not {}", self.limit);
            return Err(Error::BadRequest(text));
        }
        let is_long =
            |text: &Option<String>| text.as_ref().is_some_and(|text| text.len() > REQUEST_MAX);
        if is_long(&self.request) || is_long(&self.trace) {
            return Err(Error::BadRequest(format!(
                "request, trace: at most {REQUEST_MAX} bytes"
            )));
        }
        let hour_ago = || Timestamp(fdn_service::now().get().saturating_sub(3_600_000));
        Ok(CallQuery {
            since: moment("since", self.since)?.unwrap_or_else(hour_ago),
            until: moment("until", self.until)?,
            status: self.status,
            outcome: self.outcome,
            version: self.version,
            request: self.request,
            trace: self.trace,
            limit: self.limit,
        })
    }
}

/// Single calls of an app, newest first, as the nodes keep them that they came to: for some hours, and up to a size.
#[utoipa::path(
    tag = "apps",
    security(("session" = [])),
    params(("app" = String, Path, description = "The app's name"), CallParams),
    responses((status = 200, body = CallList), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/apps/{app}/calls")]
pub(crate) async fn app_calls(
    call: Authorized<Look, (App, web::Query<CallParams>)>,
    state: Shared,
) -> Answer<CallList> {
    let tenant = call.tenant()?;
    let (app, params) = call.input;
    let query = params.into_inner().query()?;
    Ok(web::Json(calls::calls(&state, tenant, &app, query).await?))
}

/// Parameters of a call's trace.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct TraceParams {
    /// The call's request id: what its answer has in `x-request-id`.
    #[param(min_length = 1, max_length = 128)]
    request: String,
    /// For whom it is explained: an address or prefix; for the caller, as the gateway knows it, if absent.
    #[param(example = "203.0.113.7")]
    client: Option<String>,
}

/// One call as a whole: what nodes keep of it and of its stages, where plan and DNS send its client and why, and the revisions of all of them.
#[utoipa::path(
    tag = "apps",
    security(("session" = [])),
    params(("app" = String, Path, description = "The app's name"), TraceParams),
    responses((status = 200, body = CallTrace), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/apps/{app}/calls/trace")]
pub(crate) async fn call_trace(
    call: Authorized<Look, (App, web::Query<TraceParams>)>,
    state: Shared,
) -> Answer<CallTrace> {
    let tenant = call.tenant()?;
    let (app, params) = &call.input;
    if !(1..=REQUEST_MAX).contains(&params.request.len()) {
        let text = format!("request: from 1 to {REQUEST_MAX} bytes");
        return Err(Error::BadRequest(text).into());
    }
    let client = params
        .client
        .as_deref()
        .map(str::parse::<ClientPrefix>)
        .transpose();
    let client = client.map_err(Error::from)?;
    let traced = trace::trace(&state, (tenant, app), &params.request, client).await?;
    Ok(web::Json(traced))
}

/// Parameters of the traffic map.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct TrafficParams {
    /// Of the apps of this tenant (name or id).
    #[serde(rename = "tenant")]
    _tenant: Option<String>,
    /// Of this app only.
    app: Option<AppName>,
}

/// Where clusters are and how they are, where the clients of the caller's apps are, and which cluster DNS sends them to.
#[utoipa::path(
    tag = "network",
    security(("session" = [])),
    params(TrafficParams),
    responses((status = 200, body = TrafficMap), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/traffic")]
pub(crate) async fn traffic_map(
    call: Authorized<Look, web::Query<TrafficParams>>,
    state: Shared,
) -> Answer<TrafficMap> {
    let visibility = visibility(&call, call.input.app.clone())?;
    Ok(web::Json(console::traffic(&state, &visibility).await?))
}

/// How far clusters are from clients, by the client prefixes that something is known of: where they are, or round trips that gateways measured.
#[utoipa::path(
    tag = "network",
    security(("session" = [])),
    params(PageParams),
    responses((status = 200, body = [LatencyRow]), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/latencies")]
pub(crate) async fn latency_list(
    call: Authorized<LookMachines, web::Query<PageParams>>,
    state: Shared,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let wanted = call.input.validate(&state.settings.api)?;
    let rows = console::latencies(&state, &wanted.after, wanted.rows() as usize);
    Ok(wanted.answer(&request, rows, |row| row.prefix.to_string()))
}

/// Parameters of a DNS lookup.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct LookupParams {
    /// Of the apps of this tenant (name or id).
    #[serde(rename = "tenant")]
    _tenant: Option<String>,
    /// The name of an app, or a domain of one.
    #[param(value_type = String, example = "hello.fn.test")]
    name: HostName,
    /// The client's address or prefix; the caller's own if absent.
    #[param(example = "192.0.2.7")]
    client: Option<String>,
    /// The kind of addresses.
    #[serde(default, rename = "type")]
    #[param(value_type = Option<AddressKind>, inline)]
    kind: AddressKind,
}

/// What DNS answers a client, and why: decided from what DNS servers are told, with the nodes that the controller hears for the health that they
/// look after themselves.
#[utoipa::path(
    tag = "network",
    security(("session" = [])),
    params(LookupParams),
    responses((status = 200, body = DnsLookup), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/dns/lookup")]
pub(crate) async fn dns_lookup(
    call: Authorized<Look, web::Query<LookupParams>>,
    state: Shared,
    request: HttpRequest,
) -> Answer<DnsLookup> {
    let params = &call.input;
    let client = explain::client(params.client.as_deref(), address(&request, &state))?;
    let found = console::dns(&state, &call.caller, &params.name, client, params.kind).await?;
    Ok(web::Json(found))
}

/// Where DNS sends the clients of an app: the bound prefixes, by their text.
#[utoipa::path(
    tag = "apps",
    security(("session" = [])),
    params(("app" = String, Path, description = "The app's name"), PageParams),
    responses((status = 200, body = [BindingDetail]), (status = "default", body = Problem, content_type = "application/problem+json"))
)]
#[get("/v1/apps/{app}/bindings")]
pub(crate) async fn binding_list(
    call: Authorized<Look, (App, web::Query<PageParams>)>,
    state: Shared,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let tenant = call.tenant()?;
    let (app, page) = &call.input;
    let wanted = page.validate(&state.settings.api)?;
    let rows = console::bindings(&state, tenant, app, &wanted.after, wanted.rows()).await?;
    Ok(wanted.answer(&request, rows, |row| row.prefix.to_string()))
}

/// Call an app as a client would, by one of the network's gateways, and tell how that went. The app's answer, whatever its status, is the body of
/// this one. The call counts and costs as any other.
#[utoipa::path(
    tag = "apps",
    security(("session" = [])),
    params(("app" = String, Path, description = "The app's name")),
    request_body = TryRequest,
    responses(
        (status = 200, description = "The app or its gateway answered", body = TryAnswer),
        (status = 422, description = "FDN-2065: the call cannot be made", body = Problem, content_type = "application/problem+json"),
        (status = 502, description = "FDN-2067: the gateway did not answer", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "FDN-2066: no gateway is alive", body = Problem, content_type = "application/problem+json"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
#[post("/v1/apps/{app}/try")]
pub(crate) async fn app_try(
    call: Authorized<Deploy, (App, web::Payload)>,
    state: Shared,
    request: HttpRequest,
) -> Answer<TryAnswer> {
    let tenant = call.tenant()?;
    let (app, payload) = call.input;
    // As base64 a body is a third longer; the rest of the request is small.
    let most = state.settings.console.try_body.as_bytes();
    let most = ByteSize::from_bytes(most + most / 2 + AROUND);
    let bytes = read(payload, most).await?;
    let trial: TryRequest =
        serde_json::from_slice(&bytes).map_err(|e| Error::BadRequest(e.to_string()))?;
    let client = explain::client(trial.client.as_deref(), address(&request, &state))?;
    let answer = try_call::try_call(&state, (tenant, &app), client, &trial).await?;
    Ok(web::Json(answer))
}

/// Reads a body of at most `limit` bytes; the framework's own limit is the one for ordinary requests.
async fn read(mut payload: web::Payload, limit: ByteSize) -> Result<web::BytesMut, Error> {
    let mut bytes = web::BytesMut::new();
    while let Some(piece) = payload.next().await {
        let piece = piece.map_err(|e| Error::BadRequest(format!("the body broke off: {e}")))?;
        if bytes.len() + piece.len() > limit.as_usize() {
            return Err(Error::BodyTooLarge(limit));
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}
