//! `Idempotency-Key` on operations that make something: the same request again gets the answer of the first one.

use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use serde::Serialize;
use tracing::warn;

use super::auth::{Authorized, Needs};
use super::error::ApiError;
use crate::Error;
use crate::app::actor::Actor;
use crate::app::idempotency::{self, Turn};
use crate::error::chain;
use crate::state::State;

const HEADER: &str = "idempotency-key";
/// On an answer that was given before.
const REPLAYED: &str = "idempotency-replayed";
const KEY_MAX: usize = 255;

/// The key of a request.
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

/// Carries an operation out, once for each key of a caller. The answer may hold a secret: nobody may keep it on the way.
pub(super) async fn once<R, B, T>(
    state: &State,
    call: &Authorized<R, web::Json<B>>,
    operation: &'static str,
    run: impl AsyncFnOnce(&Actor, &B) -> Result<T, Error>,
) -> Result<HttpResponse, ApiError>
where
    R: Needs,
    B: Serialize,
    T: Serialize,
{
    let body = &*call.input;
    once_for(state, call, operation, body, async |actor| {
        run(actor, body).await
    })
    .await
}

/// The same for an operation that more than its body makes: `body` is everything by which a request differs from others.
pub(super) async fn once_for<R, I, B, T>(
    state: &State,
    call: &Authorized<R, I>,
    operation: &'static str,
    body: &B,
    run: impl AsyncFnOnce(&Actor) -> Result<T, Error>,
) -> Result<HttpResponse, ApiError>
where
    R: Needs,
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
        Beginning::Answered(text) => Ok(answer(text, true)),
        Beginning::First(begun) => {
            let outcome = run(&actor).await;
            let text = end(state, &actor, begun, outcome).await?;
            Ok(answer(text, false))
        }
    }
}

/// Carries a deploy out to its end, also if the caller no longer waits: whoever asks again with the key gets the answer.
pub(super) async fn to_the_end<F, T>(
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
            Beginning::Answered(text) => Ok((text, true)),
            Beginning::First(begun) => {
                let outcome = run(Arc::clone(&state), actor.clone()).await;
                let text = end(&state, &actor, begun, outcome).await?;
                Ok::<_, Error>((text, false))
            }
        }
    });
    let done = running.await;
    let (text, again) = done.map_err(|e| Error::Internal(format!("deploying broke: {e}")))??;
    Ok(answer(text, again))
}

/// A request, whatever its body is made of.
pub(super) struct Request {
    /// What is to be done.
    pub(super) operation: &'static str,
    /// The key it came with.
    pub(super) key: Option<String>,
    /// Everything by which it differs from others.
    pub(super) body: String,
}

/// A request with a key that is carried out now.
struct Begun {
    operation: &'static str,
    key: String,
    /// The keyed hash of what it says.
    request: String,
}

/// What a request is: the answer of an earlier one, or the first, with a key or without.
enum Beginning {
    /// It was carried out before; this was the answer.
    Answered(String),
    /// It is to be carried out, and [`end`] told how that went.
    First(Option<Begun>),
}

/// Begins a request. What is carried out for it is done by `actor` as it is afterwards.
async fn begin(state: &State, actor: &mut Actor, request: Request) -> Result<Beginning, Error> {
    let Some(key) = request.key else {
        return Ok(Beginning::First(None));
    };
    // Keyed: a body may hold a password, and a plain hash would let one guess it from the database.
    let hash = state
        .token
        .derive(&format!("fdn-request\n{}", request.body));
    let hash = hash.expose().to_owned();
    if let Turn::Again(text) = idempotency::begin(state, &actor.name, &key, &hash).await? {
        return Ok(Beginning::Answered(text));
    }
    actor.idempotency = Some(key.clone());
    Ok(Beginning::First(Some(Begun {
        operation: request.operation,
        key,
        request: hash,
    })))
}

/// Ends a request: the answer to it, kept for the next one with its key.
async fn end<T: Serialize>(
    state: &State,
    actor: &Actor,
    begun: Option<Begun>,
    outcome: Result<T, Error>,
) -> Result<String, Error> {
    let Some(begun) = begun else {
        return text(&outcome?);
    };
    let Begun {
        operation,
        key,
        request,
    } = begun;
    match outcome {
        Ok(made) => {
            let text = text(&made)?;
            let kept = idempotency::keep(state, &actor.name, &key, &request, &text).await;
            if let Err(error) = kept {
                let error = chain(&error);
                warn!(operation, error, "an answer could not be kept");
            }
            Ok(text)
        }
        Err(error) => {
            if let Err(error) = idempotency::forget(state, actor, &key).await {
                let error = chain(&error);
                warn!(operation, error, "a refused request could not be forgotten");
            }
            Err(error)
        }
    }
}

/// The JSON text of what a request or an answer is made of.
pub(super) fn text<T: Serialize>(value: &T) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|e| Error::Internal(format!("an answer: {e}")))
}

/// The answer to the caller.
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
