//! Serves a call that another gateway forwarded because it cannot serve it, or would finish it later. The call is refused before anything has run
//! if it cannot be served here, or not within the requested time. The app's policy is not checked again: the first gateway did that.

use std::sync::Arc;

use actix_http::body::{BodySize, MessageBody};
use fdn_scheduling::run::{Failure, FailureKind};
use http::{HeaderMap, HeaderValue, Request, Response};
use hyper::body::Incoming;
use tokio::time::timeout;

use super::call::failure_of;
use super::forward::{self, GRACE, HOPS, LENGTH, Received};
use super::serve::{self, StageBody, answered};
use crate::apps::Deployed;
use crate::gateway::body::GatewayBody;
use crate::gateway::head::{Ids, Peer};
use crate::gateway::routes::{Route, Target};
use crate::gateway::service::Gateway;
use crate::gateway::stage::StageRequest;

/// Answers a forwarded call.
pub(super) async fn answer(gateway: &Gateway, request: Request<Incoming>) -> Response<StageBody> {
    let (mut parts, body) = request.into_parts();
    let received = forward::receive(&parts.method, &parts.uri, &mut parts.headers);
    let within = received.as_ref().and_then(|received| received.within);
    let found = ready(gateway, received);
    let asked = found.as_ref().ok().map(|found| Arc::clone(&found.deployed));
    let ran = match found {
        Ok(found) => run(gateway, found, &parts.headers, body).await,
        Err(failure) => Err(failure),
    };
    let mut response = answered(ran, &gateway.workflows.forwarding.served);
    // A gateway that chooses by time learns how long one more call would take.
    if let (Some(_), Some(deployed)) = (within, asked) {
        let (_, finish) = gateway.takes(&deployed);
        let headers = response.headers_mut();
        headers.insert(forward::FINISH, forward::millis(finish));
    }
    response
}

/// A call that may run here, with its route and deployment.
struct Found {
    received: Received,
    route: Arc<Route>,
    deployed: Arc<Deployed>,
}

fn absent(told: &str) -> Failure {
    Failure::new(FailureKind::NotStarted, told)
}

fn ready(gateway: &Gateway, received: Option<Received>) -> Result<Found, Failure> {
    let received = received.ok_or_else(|| absent("this is no call"))?;
    if received.hops > HOPS {
        return Err(absent("it was handed on already"));
    }
    let route = find(gateway, &received).ok_or_else(|| absent("the app is not deployed there"))?;
    let Target::Ready(deployed) = &route.target else {
        return Err(absent("the app is not ready there"));
    };
    let deployed = Arc::clone(deployed);
    Ok(Found {
        received,
        route,
        deployed,
    })
}

async fn run(
    gateway: &Gateway,
    found: Found,
    headers: &HeaderMap,
    body: Incoming,
) -> Result<Response<StageBody>, Failure> {
    let Found {
        received,
        route,
        deployed,
    } = found;
    if let Some(within) = received.within
        && gateway.takes(&deployed).1 > within
    {
        return Err(absent("it would not be over there in time"));
    }
    let head = serve::plain_head(&received.method, &received.target, headers);
    let mut head = head.ok_or_else(|| absent("the call cannot be expressed"))?;
    // The call came over HTTP/2, whatever the client uses: cookies may be in several fields.
    head.version = actix_http::Version::HTTP_2;
    let is_head = head.method == actix_http::Method::HEAD;
    let ids = Ids::of(head.headers());
    let request_id = ids.request.clone();
    let call = StageRequest {
        head,
        host: received.host,
        ids,
        peer: Peer::forwarded(received.client),
        payload: serve::payload(body),
    };
    let how = (received.left, received.via);
    let calling = gateway.serve_forwarded(&route, deployed, call, how);
    let answered = timeout(received.left + GRACE, calling).await.map_err(|_| {
        let told = format!("no answer within {:?}", received.left);
        Failure::new(FailureKind::Lost, told)
    })?;
    let mut response = match answered {
        Ok(response) => response,
        Err(answer) => {
            let failure = failure_of(answer.code, false, answer.detail);
            if failure.kind == FailureKind::NotStarted {
                return Err(failure);
            }
            answer.respond(&request_id)
        }
    };
    let mut length = None;
    if is_head {
        let (head, mut body) = response.into_parts();
        length = Some(body.size());
        let mut none = GatewayBody::none(None);
        none.wait_for(body.pending());
        response = head.set_body(none);
    }
    let mut out = serve::respond(gateway, response).await;
    if let Some(BodySize::Sized(length)) = length {
        out.headers_mut().insert(LENGTH, HeaderValue::from(length));
    }
    Ok(out)
}

fn find(gateway: &Gateway, received: &Received) -> Option<Arc<Route>> {
    let route = gateway.routes.find(&received.host)?;
    (route.app == received.app).then_some(route)
}
