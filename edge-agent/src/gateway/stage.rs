//! Calls of single stages of workflows: admitted, measured, recorded and logged like calls of plain functions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_http::{Payload, RequestHead, Response};
use fdn_core::Revision;
use fdn_core::usage::PlanUse;
use fdn_runtime::LoadError;
use tracing::warn;

use super::body::GatewayBody;
use super::head::{IDENTITY_FIELD, Ids, Peer};
use super::problem::ProblemResponse;
use super::service::{Gateway, Incoming, NOT_READY};
use crate::apps::{Deployed, Server};
use crate::metrics::Outcome;

/// A request to a stage.
pub(crate) struct StageRequest {
    /// Method, target and header fields.
    pub(crate) head: RequestHead,
    /// The host that the workflow's caller requested.
    pub(crate) host: String,
    /// Request id and trace.
    pub(crate) ids: Ids,
    /// The workflow's caller.
    pub(crate) peer: Peer,
    /// The body.
    pub(crate) payload: Payload,
}

/// Logs that a function version cannot be loaded. Returns the answer for the call that needs it.
pub(super) fn unloadable(deployed: &Deployed, failure: &LoadError) -> ProblemResponse {
    let (app, stage, version) = (&deployed.app, &deployed.stage, deployed.version);
    warn!(%app, ?stage, %version, %failure, "a deployed function cannot be loaded");
    NOT_READY
}

impl Gateway {
    /// Calls a stage's function on this node, or in an instance of this cluster.
    ///
    /// # Errors
    /// When the function was never reached. A failure of the function is an answer.
    pub(crate) async fn stage(
        &self,
        deployed: &Arc<Deployed>,
        revision: Revision,
        request: StageRequest,
    ) -> Result<Response<GatewayBody>, ProblemResponse> {
        let arrived = Instant::now();
        if let Err(failure) = deployed.load(&self.metrics).await {
            let answer = unloadable(deployed, &failure);
            self.apps.broken(&deployed.app, revision, deployed.digest);
            return Err(answer);
        }
        let identity = request.head.headers().get(IDENTITY_FIELD);
        let identity =
            identity.and_then(|value| http::HeaderValue::from_bytes(value.as_bytes()).ok());
        let incoming = Incoming {
            head: &request.head,
            peer: &request.peer,
            ids: &request.ids,
            arrived,
            host: &request.host,
            pass: None,
            // Set by a workflow's own gateway, or one with a certificate for stage calls; a client's own header was removed on arrival.
            stage_identity: identity.as_ref(),
            revision,
            plan_use: PlanUse::Used,
            client: request.peer.ip,
            via: None,
        };
        let held = Duration::ZERO;
        let answered = match &deployed.server {
            Server::Sandboxes(sandboxes) => {
                self.call(&incoming, request.payload, deployed, sandboxes, held)
                    .await
            }
            // Boxed, so that the future of calls in sandboxes stays small.
            Server::Instances(queue) => {
                let calling =
                    self.call_in_instance(&incoming, request.payload, deployed, queue, held);
                Box::pin(calling).await
            }
        };
        answered.inspect_err(|answer| {
            let outcome = Outcome::of_code(answer.code);
            deployed.metrics.ended(outcome, arrived.elapsed());
        })
    }
}
