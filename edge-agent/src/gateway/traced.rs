//! Exports spans of calls that are not answered by a function of this node. All other calls are exported with their usage record.

use std::time::Instant;

use actix_http::header::HeaderName;
use actix_http::{RequestHead, Response};
use fdn_core::api::header;

use super::body::GatewayBody;
use super::head::{self, Ids};
use super::problem::ProblemResponse;
use super::service::{Gateway, Incoming};
use super::trace::Trace;
use crate::metrics::Outcome;
use crate::traces::spans::EndedWork;
use crate::traces::{Traced, UnservedCall};

const SERVED_BY: HeaderName = HeaderName::from_static(header::SERVED_BY);

impl Gateway {
    /// The exporter for a call, if its trace is sampled.
    pub(crate) fn traced(&self, trace: &Trace) -> Option<Box<Traced>> {
        self.traces.as_ref()?.of(trace)
    }

    /// Exports a call that the gateway refused before it reached a function.
    pub(super) fn trace_refused(
        &self,
        head: &RequestHead,
        ids: &Ids,
        arrived: Instant,
        answer: &ProblemResponse,
    ) {
        let Some(traced) = self.traced(&ids.trace) else {
            return;
        };
        let call = UnservedCall {
            status: answer.code.http_status(),
            outcome: Outcome::of_code(answer.code).as_str(),
            code: Some(answer.code.as_str()),
            ..self.answered(head, ids, arrived, head::host(head))
        };
        traced.submit(EndedWork::Unserved(Box::new(call)));
    }

    /// Exports a call that another gateway has begun to answer.
    pub(super) fn trace_elsewhere(
        &self,
        incoming: &Incoming<'_>,
        response: &Response<GatewayBody>,
    ) {
        let Some(traced) = self.traced(&incoming.ids.trace) else {
            return;
        };
        let by = response.headers().get(SERVED_BY);
        let by = by.and_then(|by| by.to_str().ok().map(str::to_owned));
        let (head, ids) = (incoming.head, incoming.ids);
        let call = UnservedCall {
            status: response.status().as_u16(),
            outcome: "handed_on",
            served_by: by,
            ..self.answered(head, ids, incoming.arrived, Some(incoming.host))
        };
        traced.submit(EndedWork::Unserved(Box::new(call)));
    }

    /// The fields that are known for every such call.
    fn answered(
        &self,
        head: &RequestHead,
        ids: &Ids,
        arrived: Instant,
        host: Option<&str>,
    ) -> UnservedCall {
        let route = host.and_then(|host| self.routes.find(host));
        UnservedCall {
            app: route.as_ref().map(|route| route.app.clone()),
            revision: route.map(|route| route.revision),
            request: String::from_utf8_lossy(&ids.request).into_owned(),
            method: head.method.as_str().to_owned(),
            arrived: Some(arrived),
            ..UnservedCall::default()
        }
    }
}
