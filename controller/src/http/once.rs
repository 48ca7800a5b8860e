//! `Idempotency-Key` for operations that create something: a repeated request gets the answer of the first one.

use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use serde::Serialize;
use tracing::warn;

use super::auth::{Authorized, RequiredRight};
use super::error::ApiError;
use crate::Error;
use crate::app::actor::Actor;
use crate::app::idempotency::{self, Attempt};
use crate::error::chain;
use crate::state::State;
use crate::store::idempotency::BegunRequest;

const HEADER: &str = "idempotency-key";
/// The header that marks a repeated answer.
const REPLAYED: &str = "idempotency-replayed";
const KEY_MAX: usize = 255;

/// The idempotency key of a request.
pub(super) fn key(request: &HttpRequest) -> Result<Option<String>, Error> {
    let Some(value) = request.headers().get(HEADER) else {
        return Ok(None);
    };
    let sane = |key: &&str| {
        (1..=KEY_MAX).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic())
    };
    match value.to_str().ok().filter(sane) {
        Some(key) => Ok(Some(key.to_owned())),
        None => Err(Error::BadRequest(format!(
            "{HEADER}: 1 to {KEY_MAX} printable ASCII characters without spaces, such as a UUID"
        ))),
    }
}

/// Executes an operation once per caller and key. The answer may contain a secret, so no cache may store it.
pub(super) async fn once<R, B, T>(
    state: &State,
    call: &Authorized<R, web::Json<B>>,
    operation: &'static str,
    run: impl AsyncFnOnce(&Actor, &B) -> Result<T, Error>,
) -> Result<HttpResponse, ApiError>
where
    R: RequiredRight,
    B: Serialize,
    T: Serialize,
{
    let body = &*call.input;
    once_for(state, call, operation, body, async |actor| {
        run(actor, body).await
    })
    .await
}

/// Like [`once`], for an operation that depends on more than its body: `body` is everything in which requests can differ.
pub(super) async fn once_for<R, I, B, T>(
    state: &State,
    call: &Authorized<R, I>,
    operation: &'static str,
    body: &B,
    run: impl AsyncFnOnce(&Actor) -> Result<T, Error>,
) -> Result<HttpResponse, ApiError>
where
    R: RequiredRight,
    B: Serialize,
    T: Serialize,
{
    let tenant = call.named_tenant().map(|id| id.to_string());
    let request = Request {
        operation,
        key: call.key.clone(),
        body: text(&(operation, tenant, body))?,
    };
    let mut actor = call.actor();
    match begin(state, &mut actor, request).await? {
        Disposition::Answered(text) => Ok(answer(text, true)),
        Disposition::First(running) => {
            let outcome = run(&actor).await;
            let text = end(state, &actor, running, outcome).await?;
            Ok(answer(text, false))
        }
    }
}

/// Executes a deploy to its end, even if the caller disconnects: a repeated request with the key then gets the answer.
pub(super) async fn run_to_completion<F, T>(
    state: Arc<State>,
    mut actor: Actor,
    request: Request,
    run: impl FnOnce(Arc<State>, Actor) -> F + Send + 'static,
) -> Result<HttpResponse, ApiError>
where
    F: Future<Output = Result<T, Error>> + Send,
    T: Serialize + Send,
{
    let running = tokio::spawn(async move {
        match begin(&state, &mut actor, request).await? {
            Disposition::Answered(text) => Ok((text, true)),
            Disposition::First(running) => {
                let outcome = run(Arc::clone(&state), actor.clone()).await;
                let text = end(&state, &actor, running, outcome).await?;
                Ok::<_, Error>((text, false))
            }
        }
    });
    let done = running.await;
    let (text, again) = done.map_err(|e| Error::Internal(format!("deploying broke: {e}")))??;
    Ok(answer(text, again))
}

/// A request, whatever its body consists of.
pub(super) struct Request {
    /// The operation.
    pub(super) operation: &'static str,
    /// Its idempotency key.
    pub(super) key: Option<String>,
    /// Everything in which requests can differ, as text.
    pub(super) body: String,
}

/// A request with a key that is being executed.
struct RunningRequest {
    operation: &'static str,
    begun: BegunRequest,
    /// The keyed hash of its content.
    request: String,
}

/// What to do with a request.
enum Disposition {
    /// It was executed before; this is the answer.
    Answered(String),
    /// It is to be executed, and [`end`] called with the result. `None` without a key.
    First(Option<RunningRequest>),
}

/// Begins a request. The operation must be executed with `actor` as this function leaves it.
async fn begin(state: &State, actor: &mut Actor, request: Request) -> Result<Disposition, Error> {
    let Some(key) = request.key else {
        return Ok(Disposition::First(None));
    };
    // Keyed: a body may contain a password, which could be guessed from a plain hash in the database.
    let hash = state
        .token
        .derive(&format!("fdn-request\n{}", request.body));
    let hash = hash.expose().to_owned();
    let begun = match idempotency::begin(state, &actor.name, &key, &hash).await? {
        Attempt::Again(text) => return Ok(Disposition::Answered(text)),
        Attempt::First(begun) => begun,
    };
    actor.idempotency = Some(begun.clone());
    Ok(Disposition::First(Some(RunningRequest {
        operation: request.operation,
        begun,
        request: hash,
    })))
}

/// Ends a request: returns its answer, and stores it for repeated requests with its key.
async fn end<T: Serialize>(
    state: &State,
    actor: &Actor,
    running: Option<RunningRequest>,
    outcome: Result<T, Error>,
) -> Result<String, Error> {
    let Some(running) = running else {
        return text(&outcome?);
    };
    let RunningRequest {
        operation,
        begun,
        request,
    } = running;
    match outcome {
        Ok(made) => {
            let text = text(&made)?;
            let kept = idempotency::store_answer(state, &actor.name, &begun, &request, &text).await;
            if let Err(error) = kept {
                let error = chain(&error);
                warn!(operation, error, "an answer could not be kept");
            }
            Ok(text)
        }
        Err(error) => {
            if let Err(error) = idempotency::forget(state, actor, &begun).await {
                let error = chain(&error);
                warn!(operation, error, "a refused request could not be forgotten");
            }
            Err(error)
        }
    }
}

/// The JSON text of a request's or an answer's content.
pub(super) fn text<T: Serialize>(value: &T) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|e| Error::Internal(format!("an answer: {e}")))
}

/// The response to the caller.
fn answer(text: String, replayed: bool) -> HttpResponse {
    let mut response = HttpResponse::build(StatusCode::OK);
    response.insert_header(("cache-control", "no-store"));
    if replayed {
        response.insert_header((REPLAYED, "true"));
    }
    response.content_type("application/json").body(text)
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn keys_are_short_and_printable() {
        let of = |value: &str| {
            let request = TestRequest::default()
                .insert_header((HEADER, value))
                .to_http_request();
            key(&request)
        };
        assert_eq!(of("a-1").expect("a key").as_deref(), Some("a-1"));
        assert!(of("").is_err() && of("a b").is_err() && of(&"x".repeat(256)).is_err());
        let none = key(&TestRequest::default().to_http_request());
        assert_eq!(none.expect("no key"), None);
    }
}
