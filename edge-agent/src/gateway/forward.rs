//! Calls that this node cannot serve at once. If the app is not ready here, a call is held for a moment, then offered to gateways that can serve
//! it, and held further if none does. If it would have to wait for a place here, it is handed on to a gateway that would finish it sooner, if
//! there is one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_http::{Payload, Response};
use fdn_core::NodeId;
use fdn_core::usage::PlanUse;
use http::Method;
use tokio::time::timeout;

use super::body::GatewayBody;
use super::head::{self, IDENTITY_FIELD};
use super::problem::ProblemResponse;
use super::routes::{Route, Target};
use super::service::{Gateway, Incoming, NOT_READY, NOT_UPLOADED, left};
use super::stage::StageRequest;
use super::upload::{self, UpTo};
use crate::apps::{Deployed, Server};
use crate::workflows::{ForwardOutcome, ForwardTarget, ForwardedCall};

/// Where a call is served.
pub(super) enum ServedAt {
    /// By this node, after the call was held for that long.
    Here(Arc<Route>, Arc<Deployed>, Duration, Payload),
    /// By another gateway, with this response.
    Elsewhere(Box<Response<GatewayBody>>),
}

impl Gateway {
    /// Finds out who serves a call whose app is not ready here.
    ///
    /// # Errors
    /// If nobody can within the hold time.
    pub(super) async fn wait_or_forward(
        &self,
        incoming: &Incoming<'_>,
        mut payload: Payload,
        route: Arc<Route>,
    ) -> Result<ServedAt, ProblemResponse> {
        let begun = Instant::now();
        // The time spent on offering the call counts against the call's own timeout, not as holding.
        let mut offered = Duration::ZERO;
        let hold = self.admission.hold_time();
        let (host, metrics) = (incoming.host, Arc::clone(&route.metrics));
        if self.can_forward() {
            let patience = self.workflows.forward.after.as_duration().min(hold);
            if let Ok((route, deployed)) = self.hold_until_ready(host, &metrics, patience).await {
                return Ok(ServedAt::Here(route, deployed, begun.elapsed(), payload));
            }
            let offering = Instant::now();
            let targets = || self.fallback_gateways(&route.app, &route.terms.planned);
            payload = match self
                .offer(incoming, payload, (&route, "unready"), targets)
                .await?
            {
                OfferResult::Answered(response) => return Ok(ServedAt::Elsewhere(response)),
                OfferResult::Back(payload) => payload,
            };
            offered = offering.elapsed();
        }
        let rest = hold.saturating_sub(begun.elapsed());
        let (route, deployed) = self.hold_until_ready(host, &metrics, rest).await?;
        let held = begun.elapsed().saturating_sub(offered);
        Ok(ServedAt::Here(route, deployed, held, payload))
    }

    fn can_forward(&self) -> bool {
        self.workflows.client.is_some() && self.workflows.forward.gateways > 0
    }

    /// Whether a call would wait here and may be served elsewhere. Not a job's call, since the controller chose this node, nor a call served by
    /// instances, since these are placed in the whole cluster anyway.
    pub(super) fn overflows(
        &self,
        incoming: &Incoming<'_>,
        route: &Route,
        deployed: &Deployed,
    ) -> bool {
        self.admission.is_full()
            && self.can_forward()
            && self.workflows.forward.gain.get() < 100
            && incoming.stage_identity.is_none()
            && route.staged.is_none()
            && matches!(deployed.server, Server::Sandboxes(_))
    }

    /// Has a call that would wait here served by the gateway that finishes it sooner, or here if there is none.
    ///
    /// # Errors
    /// If the call's body does not arrive, or it is unknown whether the call has run.
    pub(super) async fn sooner(
        &self,
        incoming: &Incoming<'_>,
        payload: Payload,
        route: Arc<Route>,
        deployed: Arc<Deployed>,
    ) -> Result<ServedAt, ProblemResponse> {
        let here = |payload| {
            ServedAt::Here(
                Arc::clone(&route),
                Arc::clone(&deployed),
                Duration::ZERO,
                payload,
            )
        };
        let targets = self.sooner_gateways(&route.app, &deployed);
        if targets.is_empty() {
            return Ok(here(payload));
        }
        let offering = self.offer(incoming, payload, (&route, "busy"), || targets);
        Ok(match offering.await? {
            OfferResult::Answered(response) => ServedAt::Elsewhere(response),
            OfferResult::Back(payload) => here(payload),
        })
    }

    /// Offers a call to other gateways.
    async fn offer(
        &self,
        incoming: &Incoming<'_>,
        payload: Payload,
        (route, why): (&Route, &str),
        targets: impl FnOnce() -> Vec<ForwardTarget>,
    ) -> Result<OfferResult, ProblemResponse> {
        let limit = incoming.body_limit(self.workflows.forward.body);
        let length = head::content_length(incoming.head.headers());
        if length.is_some_and(|length| length > limit) {
            return Ok(OfferResult::Back(payload));
        }
        // Limited in number, since each keeps its body in memory until some gateway has answered.
        let Ok(_one) = self.workflows.forward_permits.try_acquire() else {
            let sent = &self.workflows.forwarding.sent;
            sent.with_label_values(&["none", "full", why]).inc();
            return Ok(OfferResult::Back(payload));
        };
        // The time waited on this node does not count against the function's timeout.
        let deadline = Instant::now() + route.terms.timeout;
        let read = timeout(left(deadline), upload::up_to(payload, limit)).await;
        let body = match read.map_err(|_| NOT_UPLOADED)?? {
            UpTo::Whole(body) => body,
            UpTo::Larger(payload) => return Ok(OfferResult::Back(payload)),
        };
        let method = Method::from_bytes(incoming.head.method.as_str().as_bytes());
        let method = method.unwrap_or(Method::POST);
        let call = ForwardedCall {
            app: &route.app,
            head: incoming.head,
            host: incoming.host,
            ids: incoming.ids,
            peer: incoming.peer,
            identity: incoming.identity(),
            permit: incoming.permit(),
            body: body.clone(),
            deadline,
            idempotent: route.terms.may_repeat(&method),
        };
        match self.forward(call, targets()).await {
            ForwardOutcome::Answered(response) => Ok(OfferResult::Answered(response)),
            ForwardOutcome::Ended(answer) => Err(answer),
            ForwardOutcome::Nobody => Ok(OfferResult::Back(Payload::from(body))),
        }
    }

    /// Serves a call that another gateway (`via`) handed on with `left` of its time remaining; it is not handed on again.
    ///
    /// # Errors
    /// If the call did not run.
    pub(crate) async fn serve_forwarded(
        &self,
        route: &Arc<Route>,
        deployed: Arc<Deployed>,
        request: StageRequest,
        (left, via): (Duration, Option<NodeId>),
    ) -> Result<Response<GatewayBody>, ProblemResponse> {
        if deployed.load(&self.metrics).await.is_err() {
            self.apps
                .broken(&route.app, route.revision, deployed.digest);
            return Err(NOT_READY);
        }
        let identity = request.head.headers().get(IDENTITY_FIELD);
        let identity =
            identity.and_then(|value| http::HeaderValue::from_bytes(value.as_bytes()).ok());
        let incoming = Incoming {
            head: &request.head,
            peer: &request.peer,
            ids: &request.ids,
            // The call's time counts from when it was first offered.
            arrived: begun(route.terms.timeout, left),
            host: &request.host,
            pass: None,
            stage_identity: identity.as_ref(),
            revision: route.revision,
            plan_use: PlanUse::Used,
            client: request.peer.ip,
            via,
        };
        let here = self.serve_here(&incoming, request.payload, route, deployed, Duration::ZERO);
        here.await.map_err(|refusal| refusal.answer)
    }

    /// Holds a call until its app is ready and loaded, for `longest` at most.
    ///
    /// # Errors
    /// If the app is not ready by then.
    async fn hold_until_ready(
        &self,
        host: &str,
        metrics: &Arc<crate::metrics::AppMetrics>,
        longest: Duration,
    ) -> Result<(Arc<Route>, Arc<Deployed>), ProblemResponse> {
        let _place = self.admission.hold().ok_or(NOT_READY)?;
        let _waits = metrics.waiting();
        let mut changes = self.routes.changes();
        let wait = async {
            loop {
                let route = self.routes.find(host).ok_or(NOT_READY)?;
                match &route.target {
                    Target::Failed => return Err(NOT_READY),
                    Target::Preparing => {}
                    Target::Ready(deployed) => match deployed.load(&self.metrics).await {
                        Ok(()) => return Ok((Arc::clone(&route), Arc::clone(deployed))),
                        Err(failure) => {
                            tracing::warn!(app = %route.app, %failure, "a deployed function cannot be loaded");
                            self.apps
                                .broken(&route.app, route.revision, deployed.digest);
                        }
                    },
                }
                drop(route);
                // The table outlives every gateway, so its sender still exists.
                changes.changed().await.map_err(|_| NOT_READY)?;
            }
        };
        timeout(longest, wait).await.map_err(|_| NOT_READY)?
    }
}

/// When a call with timeout `whole` began, if `left` of it remains.
fn begun(whole: Duration, left: Duration) -> Instant {
    let now = Instant::now();
    now.checked_sub(whole.saturating_sub(left)).unwrap_or(now)
}

/// The result of offering a call to other gateways.
enum OfferResult {
    /// A gateway answered it.
    Answered(Box<Response<GatewayBody>>),
    /// None took it; this is its body.
    Back(Payload),
}
