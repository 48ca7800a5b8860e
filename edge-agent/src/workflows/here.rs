//! Stage calls within this process.

use std::future::poll_fn;
use std::pin::Pin;

use actix_http::Payload;
use actix_http::body::MessageBody;
use bytes::{Bytes, BytesMut};
use fdn_core::{ErrorCode, Revision};
use fdn_scheduling::run::{Failure, FailureKind};
use http::{HeaderMap, StatusCode};

use super::budget::{Budget, Held, too_large};
use super::call::{Output, StageCall, failure_of};
use crate::apps::StageServing;
use crate::gateway::body::GatewayBody;
use crate::gateway::head::{Ids, Peer};
use crate::gateway::service::Gateway;
use crate::gateway::stage::StageRequest;

/// Runs a stage on this node.
///
/// # Errors
/// How the stage failed.
pub(super) async fn call(
    gateway: &Gateway,
    revision: Revision,
    stage: &StageServing,
    call: StageCall,
) -> Result<Output, Failure> {
    let Some(deployed) = &stage.deployed else {
        let told = "this node runs no containers, or has no devices for the stage";
        return Err(Failure::new(FailureKind::NotStarted, told));
    };
    let head = call.head()?;
    let request = StageRequest {
        head,
        host: call.requested_host,
        ids: Ids {
            request: call.ids.request,
            // The gateway that leads the run has a span for the attempt; this call's span is its child, as it is in another cluster.
            trace: call.ids.trace.child(rand::random()),
        },
        peer: Peer::forwarded(call.client),
        payload: Payload::from(call.body),
    };
    let answered = gateway.stage(deployed, revision, request).await;
    let response = answered.map_err(|answer| failure_of(answer.code, false, answer.detail))?;
    let own = response.headers().get(fdn_core::api::header::ERROR);
    let own = own.and_then(|code| ErrorCode::try_from(code.to_str().ok()?.to_owned()).ok());
    let status =
        StatusCode::from_u16(response.status().as_u16()).unwrap_or(StatusCode::BAD_GATEWAY);
    let mut headers = HeaderMap::with_capacity(response.headers().len());
    for (name, value) in response.headers() {
        if let (Ok(name), Ok(value)) = (
            http::HeaderName::from_bytes(name.as_str().as_bytes()),
            http::HeaderValue::from_bytes(value.as_bytes()),
        ) {
            headers.append(name, value);
        }
    }
    let (body, held) = whole(response.into_body(), &call.budget).await?;
    if let Some(code) = own {
        let problem: Option<fdn_core::Problem> = serde_json::from_slice(&body).ok();
        if let Some(problem) = problem.filter(|problem| problem.code == code) {
            return Err(failure_of(code, true, &problem.detail));
        }
    }
    let output = Output {
        status,
        headers,
        body,
        held,
    };
    output.check_status()
}

/// Collects a body, once its call is recorded. Each piece is taken from `budget` as it arrives.
async fn whole(mut body: GatewayBody, budget: &Budget) -> Result<(Bytes, Held), Failure> {
    let lost = || {
        Failure::new(
            FailureKind::Lost,
            "the node could not take account of the call",
        )
    };
    if let Some(pending) = body.pending()
        && !pending.is_safe()
        && !pending.safe().await
    {
        return Err(lost());
    }
    let mut body = match body.try_into_bytes() {
        Ok(bytes) => {
            return match budget.take(bytes.len()) {
                Some(held) => Ok((bytes, held)),
                None => Err(too_large("output", budget.left())),
            };
        }
        Err(body) => body,
    };
    let (mut all, mut held) = (BytesMut::new(), budget.nothing());
    loop {
        match poll_fn(|cx| Pin::new(&mut body).poll_next(cx)).await {
            None => return Ok((all.freeze(), held)),
            Some(Ok(piece)) => {
                if !held.grow(piece.len()) {
                    return Err(too_large("output", held.most()));
                }
                all.extend_from_slice(&piece);
            }
            Some(Err(error)) => {
                return Err(Failure::new(
                    FailureKind::Lost,
                    format!("its answer broke off: {error}"),
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn outputs_are_taken_from_one_budget_until_they_are_dropped() {
        let budget = Budget::new(1 << 20);
        let output = || GatewayBody::full(Bytes::from(vec![1_u8; 600 << 10]));
        let first = whole(output(), &budget).await.expect("there is room");
        let failure = whole(output(), &budget).await.expect_err("no room");
        assert_eq!(failure, too_large("output", 424 << 10));
        assert_eq!((first.0.len(), budget.left()), (600 << 10, 424 << 10));
        drop(first);
        whole(output(), &budget).await.expect("there is room again");
        assert_eq!(budget.left(), 1 << 20);
    }
}
