//! One call of a function: it takes context, limits and a request, and yields a response and measurements.
//!
//! ```text
//! let call = function.call(context, request);      // nothing runs yet
//! let stats = call.stats();                        // keep it to read measurements later
//! match call.response().await {                    // runs the guest until it has set the head
//!     Ok(response) => …stream response.into_body() // a http_body::Body that drives the guest on
//!     Err(error)   => …answer error.code()…
//! }
//! ```
//!
//! Dropping the call or the response body before its end cancels the guest. If the guest still has work to do when the body has
//! ended, it continues in the background until its timeout, if there is a place; [`StatsHandle::finished`] tells when it has ended.
//!
//! Invariants: the guest is polled by one thread at a time; a failure is recorded before the instance is dropped, so that
//! a body that ends because its instance is gone is never mistaken for a complete one; the first failure recorded stands,
//! even if the guest itself had ended successfully before it.

mod context;
mod driver;
mod request_body;
mod response_body;
mod shared;
mod stats;

use std::sync::Arc;
use std::task::{Context, Poll};

pub use context::{CallContext, Limits, ResourceGuard};
pub use request_body::{RequestBody, RequestBodySender};
pub use response_body::ResponseBody;
pub use stats::{CallStats, StatsHandle};

pub(crate) use request_body::GuestRequestBody;
pub(crate) use shared::{Shared, SliceStatus};

use crate::error::CallError;
use crate::function::Function;
use crate::guest;
use driver::Driver;

/// A prepared call, which runs while [`Call::response`] is awaited. It is `Send`; it needs a tokio
/// runtime with time enabled.
pub struct Call {
    driver: Driver,
}

impl Call {
    pub(crate) fn new(
        function: Arc<Function>,
        context: CallContext,
        request: http::Request<RequestBody>,
    ) -> Self {
        let shared = Arc::new(Shared::new(context.limits, context.log.clone()));
        let serving = guest::serve(function.clone(), context, request, shared.clone());
        let guest = Box::pin(serving);
        Self {
            driver: Driver::new(guest, shared, function),
        }
    }

    /// Measurements of this call, readable at any time and final once the response body has ended.
    #[must_use]
    pub fn stats(&self) -> StatsHandle {
        StatsHandle(self.driver.shared.clone())
    }

    /// Runs the guest until it has set the response head. A small function has usually ended by then, and the body is
    /// complete and of known length.
    ///
    /// # Errors
    /// When the guest ended, or was ended, before it set the head.
    pub async fn response(self) -> Result<http::Response<ResponseBody>, CallError> {
        let mut driver = Some(self.driver);
        std::future::poll_fn(move |cx| {
            let mut running = driver
                .take()
                .expect("a future is not polled after it was ready");
            match poll_head(&mut running, cx) {
                Poll::Pending => {
                    driver = Some(running);
                    Poll::Pending
                }
                Poll::Ready(Ok((parts, body))) => Poll::Ready(
                    response_body::start(running, body, &parts.headers, cx)
                        .map(|body| http::Response::from_parts(parts, body)),
                ),
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            }
        })
        .await
    }
}

type HeadParts = (
    http::response::Parts,
    wasmtime_wasi_http::p2::body::HyperOutgoingBody,
);

fn poll_head(driver: &mut Driver, cx: &mut Context<'_>) -> Poll<Result<HeadParts, CallError>> {
    let ended = driver.poll(cx).is_ready();
    if driver.shared.body_exceeded() {
        driver.cancel(CallError::RequestTooLarge {
            limit: driver.shared.limits.body,
        });
    }
    // A guest that has already failed gets a clean error even if it had set a head: nobody has seen that head yet.
    if let Some(Err(error)) = driver.shared.outcome() {
        return Poll::Ready(Err(error));
    }
    match driver.shared.take_head() {
        Some(Ok(response)) if response.status().is_informational() => {
            driver.cancel(CallError::NoResponse {
                reason: format!(
                    "it answered with the status {}, after which another answer must follow",
                    response.status().as_u16()
                ),
            });
            Poll::Ready(Err(last_error(driver)))
        }
        Some(Ok(response)) => Poll::Ready(Ok(response.into_parts())),
        Some(Err(code)) => {
            driver.cancel(CallError::NoResponse {
                reason: format!("it answered with the error {code:?}"),
            });
            Poll::Ready(Err(last_error(driver)))
        }
        None if ended => Poll::Ready(Err(last_error(driver))),
        None => Poll::Pending,
    }
}

fn last_error(driver: &Driver) -> CallError {
    match driver.shared.outcome() {
        Some(Err(error)) => error,
        _ => CallError::NoResponse {
            reason: "it returned without setting a response".to_owned(),
        },
    }
}
