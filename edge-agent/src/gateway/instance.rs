//! Runs a call in an instance: acquires a place, sends the request, retries where that is safe, and streams the answer back.
//!
//! The client does not notice that an instance was started, evicted, replaced or lost for its call, as long as there is time left and a retry is
//! safe ([`retry`]).

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use actix_http::header::HeaderValue;
use actix_http::{Method, Payload, Response, StatusCode};
use bytes::Bytes;
use fdn_core::{ByteSize, Coded, ErrorCode};
use fdn_instances::CallFailure;
use fdn_runtime::CallError;
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tokio::time::{Sleep, timeout};

use super::answer::{TIMING, VERSION, timing};
use super::body::{GatewayBody, Source, drain};
use super::end::{Attempts, CallEnd, Measured};
use super::head;
use super::problem::ProblemResponse;
use super::service::{Gateway, Incoming, NOT_READY, NOT_UPLOADED, left};
use super::upload::{Outgoing, Pump, poll_pump, upload_to_instance};
use crate::apps::Deployed;
use crate::invocations::instances::InstanceQueue;
use crate::invocations::retry::{self, AttemptFailure, FailedAttempts};
use crate::invocations::{InFlight, Instances, Refused, Slot};
use crate::peers::Placement;

/// The state of a call over its attempts.
struct AttemptState {
    head: http::Request<()>,
    outgoing: Outgoing,
    /// The request of an attempt that was not handed over, for the next attempt.
    returned: Option<fdn_instances::Request>,
    pump: Option<Pump>,
    tries: FailedAttempts,
    idempotent: bool,
    deadline: Instant,
    /// Answers up to this size, in bytes, are read completely before they are passed on.
    small: u64,
}

/// An answer of an instance.
struct InstanceAnswer {
    parts: http::response::Parts,
    body: AnswerBody,
}

enum AnswerBody {
    Whole(Bytes),
    Stream(fdn_instances::Body),
}

impl InstanceAnswer {
    /// Reads a small answer completely: for the client, an instance that is lost while it sends such an answer has not answered yet.
    async fn of(
        response: fdn_instances::Response,
        in_flight: &InFlight,
        small: u64,
    ) -> Result<Self, AttemptError> {
        let (parts, body) = response.into_parts();
        if parts.status.is_informational() {
            // Another answer must follow such a status; the client would wait for that.
            let answer = ProblemResponse::of_call(ErrorCode::NoResponse);
            return Err(AttemptError::Answer(answer));
        }
        if body.size_hint().exact().is_none_or(|size| size > small) {
            let body = AnswerBody::Stream(body);
            return Ok(Self { parts, body });
        }
        match body.collect().await {
            Ok(whole) => {
                let body = AnswerBody::Whole(whole.to_bytes());
                Ok(Self { parts, body })
            }
            Err(error) => {
                let failure = CallFailure::interrupted(error.to_string());
                in_flight.failed(&failure).await;
                Err(AttemptError::Failed(failure))
            }
        }
    }
}

/// Why an attempt ended without a usable answer.
enum AttemptError {
    /// The instance failed.
    Failed(CallFailure),
    /// The client's body failed, the call's time is over, or the instance sent no final answer; this is the answer for the client.
    Answer(ProblemResponse),
}

impl AttemptState {
    /// The request for the next attempt; `None` if its body was already consumed.
    fn request(&mut self) -> Option<fdn_instances::Request> {
        if let Some(returned) = self.returned.take() {
            return Some(returned);
        }
        let body = self.outgoing.take()?;
        let mut request = http::Request::new(body);
        *request.method_mut() = self.head.method().clone();
        *request.uri_mut() = self.head.uri().clone();
        *request.headers_mut() = self.head.headers().clone();
        Some(request)
    }

    /// Hands the request over and waits for the answer's head, or for all of a small answer, while the body is uploaded.
    async fn run(&mut self, in_flight: &mut InFlight) -> Result<InstanceAnswer, AttemptError> {
        let request = self.request().ok_or_else(|| {
            AttemptError::Failed(CallFailure::interrupted(
                "the request body was sent already",
            ))
        })?;
        let pump = &mut self.pump;
        let small = self.small;
        let mut call = pin!(async {
            let response = in_flight
                .call(request)
                .await
                .map_err(AttemptError::Failed)?;
            InstanceAnswer::of(response, in_flight, small).await
        });
        let both = poll_fn(|cx| {
            if let Poll::Ready(result) = call.as_mut().poll(cx) {
                return Poll::Ready(result);
            }
            if let Err(error) = poll_pump(pump, cx) {
                return Poll::Ready(Err(AttemptError::Answer(ProblemResponse::of_call(
                    error.code(),
                ))));
            }
            Poll::Pending
        });
        timeout(left(self.deadline), both)
            .await
            .unwrap_or_else(|_| {
                Err(AttemptError::Answer(ProblemResponse::of_call(
                    ErrorCode::FunctionTimeout,
                )))
            })
    }

    /// Decides whether a failed attempt is repeated. An error is the answer for the client.
    fn check_retry(
        &mut self,
        failure: CallFailure,
        attempts: u32,
    ) -> Result<AttemptFailure, ProblemResponse> {
        let code = failure.code();
        let failed = match failure {
            CallFailure::NotSent { request, .. } => {
                self.returned = Some(*request);
                AttemptFailure::NotSent
            }
            _ => AttemptFailure::Interrupted {
                replayable: matches!(self.outgoing, Outgoing::Whole(_)),
            },
        };
        if self.tries.should_retry(failed, self.idempotent, attempts) {
            Ok(failed)
        } else {
            Err(ProblemResponse::of_call(code))
        }
    }
}

impl Gateway {
    /// Runs a call in an instance.
    ///
    /// # Errors
    /// When no instance was available in time, or the call failed before its answer's head and is not retried.
    pub(super) async fn call_in_instance(
        &self,
        incoming: &Incoming<'_>,
        payload: Payload,
        deployed: &Arc<Deployed>,
        queue: &InstanceQueue,
        held: Duration,
    ) -> Result<Response<GatewayBody>, ProblemResponse> {
        let instances = self.instances.as_ref().ok_or(NOT_READY)?;
        let identity = incoming.identity();
        let head = head::to_guest(
            incoming.head,
            incoming.host,
            incoming.ids,
            incoming.peer,
            identity,
        )?;
        let deadline = incoming.arrived + held + deployed.manifest.timeout.as_duration();
        let length = head::content_length(incoming.head.headers());
        let kept = instances.settings().replay_body.as_bytes();
        let limit = incoming.body_limit(deployed.body_limit());
        let small = self.inline_body.as_bytes();
        let uploaded = upload_to_instance(payload, length, kept, limit);
        let (outgoing, pump) = timeout(left(deadline), uploaded)
            .await
            .map_err(|_| NOT_UPLOADED)??;
        let call = AttemptState {
            idempotent: retry::is_idempotent(head.method(), deployed.manifest.idempotent),
            head,
            outgoing,
            returned: None,
            pump,
            tries: FailedAttempts::default(),
            deadline,
            small: small.min(deployed.manifest.response_limit.as_bytes()),
        };
        let waits = deployed.metrics.waiting();
        let in_flight = instances.acquire(queue, deadline.into(), false).await;
        let in_flight = in_flight.map_err(|refused| self.not_acquired(refused, queue))?;
        drop(waits);
        let meter = self.meter(deployed, incoming)?;
        let slot = Slot::elsewhere(&deployed.metrics, &self.admission.busy);
        let waited = incoming.arrived.elapsed();
        let measured = Measured::Attempts(Attempts::default());
        let mut end = CallEnd::new(&deployed.metrics, measured, incoming.arrived, slot, meter)
            .waited(waited)
            .holding(incoming.permit())
            .counting(&deployed.counts);
        let answered = self
            .attempts(instances, queue, call, in_flight, &mut end)
            .await;
        let (answer, pump) = match answered {
            Ok(answered) => answered,
            // An instance may have worked on it, so its end is recorded.
            Err(answer) => return Ok(end.failed(answer, incoming.ids)),
        };
        let placement = end.placement();
        let body = AnswerParts {
            deadline,
            timeout: deployed.manifest.timeout.as_duration(),
            limit: deployed.manifest.response_limit,
            waited,
            is_head: incoming.head.method == Method::HEAD,
            version: &deployed.version_header,
            placement,
        };
        Ok(body.respond(answer, pump, end))
    }

    /// Hands the call over until an instance answers, or it must not be retried.
    async fn attempts(
        &self,
        instances: &Instances,
        queue: &InstanceQueue,
        mut call: AttemptState,
        first: InFlight,
        end: &mut CallEnd,
    ) -> Result<(InstanceAnswer, Option<Pump>), ProblemResponse> {
        let attempts = instances.settings().attempts;
        let begun = Instant::now();
        let mut next = first;
        loop {
            let in_flight = end.attempt(next).ok_or(NOT_READY)?;
            let failure = match call.run(in_flight).await {
                Ok(answered) => {
                    end.attempt_answered(begun.elapsed());
                    return Ok((answered, call.pump));
                }
                Err(AttemptError::Answer(answer)) => return Err(answer),
                Err(AttemptError::Failed(failure)) => failure,
            };
            let seen = !matches!(failure, CallFailure::NotSent { .. });
            end.attempt_failed(seen);
            let failed = call.check_retry(failure, attempts)?;
            let retries = &instances.metrics().retries;
            retries.with_label_values(&[failed.label()]).inc();
            let in_flight = instances.acquire(queue, call.deadline.into(), true).await;
            next = in_flight.map_err(|refused| self.not_acquired(refused, queue))?;
        }
    }

    /// The answer for a call that got no instance; it says so if the reason is that the app's instances do not start.
    fn not_acquired(&self, refused: Refused, queue: &InstanceQueue) -> ProblemResponse {
        let answer = self.refused(refused);
        if refused == Refused::Late && queue.degradation().is_some() {
            return ProblemResponse::new(
                ErrorCode::NotReady,
                "the app's instances do not start; its status has the reason",
            );
        }
        answer
    }
}

/// What is needed besides the answer itself to build the client's response.
struct AnswerParts<'a> {
    deadline: Instant,
    timeout: Duration,
    limit: ByteSize,
    waited: Duration,
    is_head: bool,
    version: &'a HeaderValue,
    /// How the instance was placed in the cluster, if it was started for this call.
    placement: Option<Arc<Placement>>,
}

impl AnswerParts<'_> {
    fn respond(
        self,
        answered: InstanceAnswer,
        pump: Option<Pump>,
        mut end: CallEnd,
    ) -> Response<GatewayBody> {
        let InstanceAnswer { parts, body } = answered;
        let status = StatusCode::from_u16(parts.status.as_u16()).unwrap_or(StatusCode::BAD_GATEWAY);
        end.answered(status);
        let timing = timing(self.waited, &end.stats());
        let mut out = Response::with_body(status, ());
        let headers = out.headers_mut();
        let announced = head::function_to_client(&parts.headers, headers);
        headers.insert(VERSION, self.version.clone());
        if let Ok(timing) = HeaderValue::from_maybe_shared(timing) {
            headers.append(TIMING, timing);
        }
        let placement = self
            .placement
            .map(|placement| HeaderValue::from_str(&placement.timing()));
        if let Some(Ok(placement)) = placement {
            headers.append(TIMING, placement);
        }
        let bodiless = status == StatusCode::NO_CONTENT
            || status == StatusCode::NOT_MODIFIED
            || status.is_informational();
        let body = match body {
            AnswerBody::Whole(bytes) => {
                let unsent = self.is_head || bodiless;
                if !unsent {
                    end.sending(bytes.len());
                }
                let pending = end.ended(None);
                let mut body = if unsent {
                    GatewayBody::none(announced.filter(|_| self.is_head))
                } else {
                    GatewayBody::full(bytes)
                };
                body.wait_for(pending);
                body
            }
            AnswerBody::Stream(body) => {
                let length = announced.or(body.size_hint().exact());
                let source = Source::Instance(InstanceBody {
                    body,
                    timer: None,
                    deadline: self.deadline,
                    timeout: self.timeout,
                    limit: self.limit,
                    left: self.limit.as_bytes(),
                });
                if self.is_head || bodiless {
                    let pending = end.still_runs();
                    tokio::task::spawn_local(drain(source, pump, end));
                    let mut none = GatewayBody::none(announced.filter(|_| self.is_head));
                    none.wait_for(pending);
                    none
                } else {
                    let times = (self.deadline, self.timeout);
                    GatewayBody::stream(source, pump, length, end, times)
                }
            }
        };
        out.set_body(body)
    }
}

/// The body of an instance's answer, limited to the call's time and the app's maximum size.
pub struct InstanceBody {
    body: fdn_instances::Body,
    /// Created when the body is first awaited: most bodies are available at once.
    timer: Option<Pin<Box<Sleep>>>,
    deadline: Instant,
    timeout: Duration,
    limit: ByteSize,
    left: u64,
}

impl InstanceBody {
    /// The body of another gateway's answer, which enforces the size limit itself; read until `deadline`.
    #[must_use]
    pub(crate) fn relayed(body: fdn_instances::Body, deadline: Instant) -> Self {
        Self {
            body,
            timer: None,
            deadline,
            timeout: left(deadline),
            limit: ByteSize::from_bytes(u64::MAX),
            left: u64::MAX,
        }
    }

    /// The deadline, and the timeout that it follows from.
    pub(super) const fn times(&self) -> (Instant, Duration) {
        (self.deadline, self.timeout)
    }

    /// Polls the next piece.
    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, CallError>>> {
        let late = CallError::Timeout {
            limit: self.timeout,
        };
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
            let at = self.deadline;
            let timer = self
                .timer
                .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at.into())));
            ready!(timer.as_mut().poll(cx));
            return Poll::Ready(Some(Err(late)));
        };
        Poll::Ready(match frame {
            None => None,
            Some(Err(error)) => Some(Err(CallError::NoResponse {
                reason: error.to_string(),
            })),
            Some(Ok(_)) if Instant::now() >= self.deadline => Some(Err(late)),
            Some(Ok(frame)) => {
                let size = frame.data_ref().map_or(0, Bytes::len) as u64;
                match self.left.checked_sub(size) {
                    Some(left) => {
                        self.left = left;
                        Some(Ok(frame))
                    }
                    None => Some(Err(CallError::ResponseTooLarge { limit: self.limit })),
                }
            }
        })
    }
}
