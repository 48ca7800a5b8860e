//! Handles the requests of the simulated API server.

use std::collections::BTreeMap;

use http::{Method, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::faults::Fault;
use super::http::{Body, Closed};
use super::objects::{self, Status, bad_request, not_found, status};
use super::store::Resource;
use super::{Shared, TOKEN, stream};

/// A parsed request.
pub(super) struct Call {
    pub(super) verb: &'static str,
    pub(super) resource: Resource,
    pub(super) namespace: String,
    pub(super) name: Option<String>,
    pub(super) log: bool,
    pub(super) query: BTreeMap<String, String>,
}

impl Call {
    fn parse(method: &Method, uri: &http::Uri) -> Option<Self> {
        let query = uri.query().unwrap_or_default();
        let query: BTreeMap<String, String> = query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(name, value)| (name.to_owned(), decoded(value)))
            .collect();
        let rest = uri.path().strip_prefix("/api/v1/namespaces/")?;
        let parts: Vec<&str> = rest.split('/').collect();
        let (namespace, plural, name, sub) = match parts[..] {
            [namespace, plural] => (namespace, plural, None, None),
            [namespace, plural, name] => (namespace, plural, Some(name), None),
            [namespace, plural, name, sub] => (namespace, plural, Some(name), Some(sub)),
            _ => return None,
        };
        let all = [Resource::Pods, Resource::Secrets];
        let resource = all.into_iter().find(|r| r.plural() == plural)?;
        if sub.is_some_and(|sub| sub != "log" || resource != Resource::Pods) {
            return None;
        }
        let watches = query
            .get("watch")
            .is_some_and(|on| on == "true" || on == "1");
        let verb = match (method, name.is_some()) {
            (&Method::GET, true) => "get",
            (&Method::GET, false) if watches => "watch",
            (&Method::GET, false) => "list",
            (&Method::POST, false) => "create",
            (&Method::DELETE, true) if sub.is_none() => "delete",
            _ => return None,
        };
        Some(Self {
            verb,
            resource,
            namespace: namespace.to_owned(),
            name: name.map(str::to_owned),
            log: sub.is_some(),
            query,
        })
    }

    fn permission(&self) -> (String, String) {
        let sub = if self.log { "/log" } else { "" };
        (
            format!("{}{sub}", self.resource.plural()),
            self.verb.to_owned(),
        )
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.query.get(name)?.parse().ok()
    }

    pub(super) fn text(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }
}

/// Percent-decodes the value of a query parameter.
fn decoded(value: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [rest.next().unwrap_or(b'0'), rest.next().unwrap_or(b'0')];
                let text = String::from_utf8_lossy(&digits).into_owned();
                u8::from_str_radix(&text, 16).unwrap_or(b'?')
            }
            other => other,
        });
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

pub(super) async fn answer(
    shared: &std::sync::Arc<Shared>,
    request: hyper::Request<Incoming>,
) -> Result<Response<Body>, Closed> {
    let (head, body) = request.into_parts();
    let token = head.headers.get(http::header::AUTHORIZATION);
    let known = token.is_some_and(|token| token.as_bytes() == format!("Bearer {TOKEN}").as_bytes());
    if !known {
        return Ok(refused(&status(401, "Unauthorized", "Unauthorized")));
    }
    let Some(call) = Call::parse(&head.method, &head.uri) else {
        let message = "the server could not find the requested resource";
        return Ok(refused(&status(404, "NotFound", message)));
    };
    let permission = call.permission();
    if !shared.allows(&permission) {
        let message = format!(
            "{} is forbidden: User \"agent\" cannot {} resource \"{}\" in API group \"\" in the namespace \"{}\"",
            call.resource.plural(),
            permission.1,
            permission.0,
            call.namespace
        );
        return Ok(refused(&status(403, "Forbidden", &message)));
    }
    let Ok(body) = body.collect().await else {
        return Err(Closed);
    };
    let fault = shared
        .faults
        .take(&format!("{} {}", permission.1, permission.0));
    match &fault {
        Some(Fault::Status(code, seconds)) => return Ok(refused(&injected(*code, *seconds))),
        Some(Fault::Slow(while_)) => tokio::time::sleep(*while_).await,
        Some(Fault::AnswerLost) | None => {}
    }
    let done = perform(shared, &call, &body.to_bytes());
    if fault == Some(Fault::AnswerLost) {
        return Err(Closed);
    }
    Ok(done.unwrap_or_else(|status| refused(&status)))
}

fn injected(code: u16, seconds: u32) -> Status {
    let reason = match code {
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "InternalError",
    };
    let mut injected = status(code, reason, "injected");
    if seconds > 0 {
        injected.body["details"] = json!({ "retryAfterSeconds": seconds });
    }
    injected
}

fn perform(
    shared: &std::sync::Arc<Shared>,
    call: &Call,
    body: &[u8],
) -> Result<Response<Body>, Status> {
    let (resource, namespace) = (call.resource, call.namespace.as_str());
    let name = call.name.as_deref().unwrap_or_default();
    match call.verb {
        "get" if call.log => stream::log(shared, call),
        "get" => {
            let found = shared.store.get(resource, namespace, name);
            let found = found.ok_or_else(|| not_found(resource, name))?;
            Ok(json_response(StatusCode::OK, &found))
        }
        "list" => list(shared, call),
        "watch" => stream::watch(shared, call),
        "create" => {
            let object = serde_json::from_slice(body).map_err(|e| bad_request(&e.to_string()))?;
            let stored = shared
                .store
                .create(resource, namespace, hidden(resource, object))?;
            Ok(json_response(StatusCode::CREATED, &stored))
        }
        _ => {
            let options: Value = serde_json::from_slice(body).unwrap_or_default();
            let deleted = shared.store.delete(resource, namespace, name, &options)?;
            Ok(json_response(StatusCode::OK, &deleted))
        }
    }
}

/// Moves `stringData` to `data`, since secrets are stored with `data` only; unlike in Kubernetes it is not encoded, but no client of this server
/// reads it.
fn hidden(resource: Resource, mut object: Value) -> Value {
    if resource == Resource::Secrets {
        let given = object["stringData"].take();
        object["data"] = given;
        if let Some(fields) = object.as_object_mut() {
            fields.remove("stringData");
        }
    }
    object
}

fn list(shared: &Shared, call: &Call) -> Result<Response<Body>, Status> {
    let limit = call
        .number("limit")
        .and_then(|limit| usize::try_from(limit).ok());
    let token = call.query.get("continue").map(String::as_str);
    let selector = call.text("labelSelector");
    let (resource, namespace) = (call.resource, call.namespace.as_str());
    let page = shared
        .store
        .list(resource, namespace, selector, limit.unwrap_or(0), token)?;
    let mut meta = json!({ "resourceVersion": page.revision.to_string() });
    if let Some(rest) = page.rest {
        meta["continue"] = json!(rest);
    }
    // The items of a list have neither kind nor version, as on a real server.
    let items: Vec<Value> = page.items.into_iter().map(bare).collect();
    let list = json!({
        "apiVersion": "v1", "kind": format!("{}List", resource.kind()), "metadata": meta, "items": items
    });
    Ok(json_response(StatusCode::OK, &list))
}

fn bare(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("kind");
        fields.remove("apiVersion");
    }
    object
}

pub(super) fn refused(status: &Status) -> Response<Body> {
    let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    json_response(code, &status.body)
}

fn json_response(code: StatusCode, value: &Value) -> Response<Body> {
    let body = Full::new(bytes::Bytes::from(value.to_string())).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let json = http::HeaderValue::from_static("application/json");
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, json);
    response
}

/// The resource version that a watch or a log begins at.
pub(super) fn version(call: &Call) -> Result<Option<u64>, Status> {
    match call.query.get("resourceVersion").map(String::as_str) {
        None | Some("" | "0") => Ok(None),
        Some(text) => text
            .parse()
            .map(Some)
            .map_err(|_| objects::bad_request("invalid resource version")),
    }
}
