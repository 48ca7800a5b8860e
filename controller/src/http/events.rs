//! `/v1/events`: a stream of events as they happen.

use std::collections::BTreeSet;
use std::convert::Infallible;

use actix_web::{HttpRequest, HttpResponse, get, web};
use fdn_core::AppName;
use fdn_core::event::EventKind;
use futures::StreamExt;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::auth::{Authorized, Look};
use super::error::ApiError;
use crate::Error;
use crate::app::events::{self, Subscription};
use crate::state::State;

/// Parameters of the event stream.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventParams {
    /// Of this tenant only (name or id).
    #[serde(rename = "tenant")]
    _tenant: Option<String>,
    /// Of this app only.
    app: Option<AppName>,
    /// Of these kinds only, separated by commas.
    #[param(example = "app,ready")]
    kind: Option<String>,
    /// After the event of this number; `last-event-id` says the same.
    #[param(value_type = Option<u64>, maximum = 9223372036854775807u64)]
    after: Option<u64>,
    /// Whether to go on with what happens from now on. If not, the answer ends with the newest event; without `after` it has all that are kept.
    #[serde(default = "follow")]
    #[param(value_type = Option<bool>)]
    follow: bool,
    /// Whether to be told each time that a step of `GET /v1/metrics` has ended, with an event `figures` that has the step's `at`.
    #[serde(default)]
    #[param(value_type = Option<bool>)]
    figures: bool,
}

const fn follow() -> bool {
    true
}

impl EventParams {
    fn kinds(&self) -> Result<BTreeSet<EventKind>, Error> {
        let kinds = self.kind.iter().flat_map(|kinds| kinds.split(','));
        Ok(kinds.map(str::parse).collect::<Result<_, _>>()?)
    }
}

/// One frame of the stream, by the fields of server-sent events. It is written by hand; this is what the document says of it.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only its shape is used")]
pub(crate) struct EventFrame {
    /// The event's number: `last-event-id` of a client that comes again.
    id: Option<String>,
    /// The event's kind, `missed`, or `figures`.
    event: Option<String>,
    /// An `Event` as JSON.
    data: Option<String>,
    /// After how many milliseconds to come again.
    retry: Option<u32>,
}

/// Follow what happens, as server-sent events: of apps and tenants that the caller may look at; of machines, for those who run them. The stream
/// ends after some minutes, or when this controller stops; a client comes again with the `id` of the last event it has in the header
/// `last-event-id`, as browsers do by themselves. An event `missed` says that some after it are no longer kept.
#[utoipa::path(
    tag = "network",
    security(("session" = [])),
    params(
        EventParams,
        ("last-event-id" = Option<String>, Header, description = "The number of the last event that the client has"),
    ),
    responses((status = 200, description = "Events", body = EventFrame, content_type = "text/event-stream"))
)]
#[get("/v1/events")]
pub(crate) async fn event_stream(
    call: Authorized<Look, web::Query<EventParams>>,
    state: web::Data<State>,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let params = &call.input;
    let subscription = Subscription {
        tenant: call.named_tenant(),
        app: params.app.clone(),
        kinds: params.kinds()?,
        after: last_id(&request)?.or(params.after).map(small).transpose()?,
        follow: params.follow,
        figures: params.figures,
    };
    let stream = events::stream(state.into_inner(), call.caller.clone(), subscription).await?;
    // A compressing or buffering proxy would delay events.
    Ok(HttpResponse::Ok()
        .content_type("text/event-stream")
        .insert_header(("cache-control", "no-store"))
        .insert_header(("content-encoding", "identity"))
        .insert_header(("x-accel-buffering", "no"))
        .streaming(stream.map(Ok::<_, Infallible>)))
}

/// Checks that an id is one that the store can hold.
fn small(id: u64) -> Result<u64, Error> {
    match i64::try_from(id) {
        Ok(_) => Ok(id),
        Err(_) => Err(bad()),
    }
}

fn bad() -> Error {
    Error::BadRequest("after, last-event-id: the id of an event, such as 42".to_owned())
}

/// The id of the last event that the client has. A browser without one sends no header or an empty one.
fn last_id(request: &HttpRequest) -> Result<Option<u64>, Error> {
    let Some(value) = request.headers().get("last-event-id") else {
        return Ok(None);
    };
    match value.to_str().map(str::trim) {
        Ok("") => Ok(None),
        Ok(text) => text.parse().map(Some).map_err(|_| bad()),
        Err(_) => Err(bad()),
    }
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn the_last_number_is_read_as_browsers_send_it() {
        let of = |value: &str| {
            let request = TestRequest::default().insert_header(("last-event-id", value));
            last_id(&request.to_http_request())
        };
        assert_eq!(of("42").expect("a number"), Some(42));
        assert_eq!(of("").expect("none yet"), None);
        assert!(of("x").is_err() && of("-1").is_err());
        assert!(small(u64::MAX).is_err());
    }
}
