//! HTTP between the gateway and an instance, with connection reuse and classified failures.
//!
//! HTTP/1.1 (RFC 9112), one request at a time on a connection. A connection returns to the idle list when a response has
//! been read to its end. The differences to a client library: a failed call says whether the instance may have seen
//! the request, and returns it complete if not; an abandoned call tells when the instance has dropped it; and
//! connections may lead into another network namespace.

mod abandoned;
mod body;
mod connect;
pub(crate) mod health;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{Uri, Version};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

pub(crate) use connect::{Endpoint, NamespaceConnector};

use crate::body::{Body, Request, Response, ensure_host};
use crate::call::{CallFailure, CallGuard};

/// Limits on the connections to one instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkLimits {
    /// The time limit for making a connection.
    pub connect: Duration,
    /// The most idle connections that are kept.
    pub idle: usize,
    /// How long an idle one is kept. Shorter than servers keep theirs (5 s is common), because otherwise a request may meet a
    /// connection that its server has just closed.
    pub idle_for: Duration,
}

impl Default for LinkLimits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(2),
            idle: 32,
            idle_for: Duration::from_secs(2),
        }
    }
}

/// How long a connection may take to be ready for the next request after a response was read to its end. It takes longer
/// only if the server answered before it had read the request, and then a new connection is better.
const READY_TIMEOUT: Duration = Duration::from_millis(5);

/// The connections to one instance.
#[derive(Debug)]
pub(crate) struct HttpLink {
    endpoint: Endpoint,
    pool: Arc<Pool>,
}

#[derive(Debug)]
struct Pool {
    limits: LinkLimits,
    /// The most recently used one is at the end and taken first.
    idle: Mutex<Vec<Idle>>,
    calls: AtomicUsize,
}

#[derive(Debug)]
struct Idle {
    connection: Connection,
    since: Instant,
}

/// A connection, and the guard of the call on it.
#[derive(Debug)]
struct Connection {
    sender: SendRequest<Body>,
    call_slot: CallSlot,
}

/// Shared with the task that drives the connection, which outlives an abandoned call.
type CallSlot = Arc<Mutex<Option<CallGuard>>>;

impl Connection {
    /// Notes that the next call uses the connection.
    fn begin_call(&self, guard: Option<&CallGuard>) {
        *self.lock() = guard.cloned();
    }

    /// Notes that the call on it is over.
    fn end_call(&self) {
        drop(self.lock().take());
    }

    fn lock(&self) -> MutexGuard<'_, Option<CallGuard>> {
        self.call_slot
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pool {
    fn take(&self) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = Instant::now().checked_sub(self.limits.idle_for);
        idle.retain(|i| {
            !i.connection.sender.is_closed() && oldest.is_none_or(|oldest| i.since > oldest)
        });
        idle.pop().map(|idle| idle.connection)
    }

    /// Returns a connection whose call has ended regularly.
    fn give_back(&self, connection: Connection) {
        connection.end_call();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < self.limits.idle && !connection.sender.is_closed() {
            idle.push(Idle {
                connection,
                since: Instant::now(),
            });
        }
    }
}

/// Counts a call from its start to the end of its response body.
#[derive(Debug)]
struct InFlightGuard(Arc<Pool>);

impl InFlightGuard {
    fn new(pool: &Arc<Pool>) -> Self {
        pool.calls.fetch_add(1, Ordering::Relaxed);
        Self(pool.clone())
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

impl HttpLink {
    pub(crate) fn new(endpoint: Endpoint, limits: LinkLimits) -> Self {
        Self {
            endpoint,
            pool: Arc::new(Pool {
                limits,
                idle: Mutex::default(),
                calls: AtomicUsize::new(0),
            }),
        }
    }

    /// The number of calls whose response has not ended.
    pub(crate) fn in_flight(&self) -> usize {
        self.pool.calls.load(Ordering::Relaxed)
    }

    /// See [`crate::Instance::call`].
    pub(crate) async fn call(&self, request: Request) -> Result<Response, CallFailure> {
        let in_flight = InFlightGuard::new(&self.pool);
        let mut request = in_origin_form(request);
        let guard = request.extensions_mut().remove::<CallGuard>();
        loop {
            let (mut connection, fresh) = match self.ready_connection().await {
                Some(connection) => (connection, false),
                None => match self.connect().await {
                    Ok(connection) => (connection, true),
                    Err(reason) => return Err(CallFailure::not_sent(request, reason)),
                },
            };
            connection.begin_call(guard.as_ref());
            let mut error = match connection.sender.try_send_request(request).await {
                Ok(response) => {
                    return Ok(body::pooled(response, connection, in_flight));
                }
                Err(error) => error,
            };
            // The connection is gone, and with it the call.
            connection.end_call();
            match error.take_message() {
                // An idle connection was closed meanwhile: each idle one is tried once, then a fresh one.
                Some(back) if !fresh => request = back,
                Some(back) => {
                    let reason = chain(&error.into_error());
                    return Err(CallFailure::not_sent(back, reason));
                }
                None => return Err(CallFailure::interrupted(chain(&error.into_error()))),
            }
        }
    }

    /// An idle connection that is ready for a request; `None` if there is none.
    async fn ready_connection(&self) -> Option<Connection> {
        while let Some(mut connection) = self.pool.take() {
            let sender = &mut connection.sender;
            let ready = sender.is_ready()
                || matches!(
                    tokio::time::timeout(READY_TIMEOUT, sender.ready()).await,
                    Ok(Ok(()))
                );
            if ready {
                return Some(connection);
            }
        }
        None
    }

    async fn connect(&self) -> Result<Connection, String> {
        let limit = self.pool.limits.connect;
        let connecting = async {
            let stream = self.endpoint.connect().await.map_err(|e| e.to_string())?;
            http1::handshake(TokioIo::new(stream))
                .await
                .map_err(|e| chain(&e))
        };
        let (sender, connection) = tokio::time::timeout(limit, connecting)
            .await
            .map_err(|_| format!("no connection within {limit:?}"))??;
        let call_slot = CallSlot::default();
        let slot = Arc::clone(&call_slot);
        tokio::spawn(async move {
            match connection.without_shutdown().await {
                Ok(parts) => {
                    let slot = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
                    if let Some(guard) = slot {
                        let answers = !parts.read_buf.is_empty();
                        abandoned::until_dropped(parts.io.into_inner(), answers, &guard).await;
                    }
                }
                Err(error) => {
                    tracing::trace!(error = chain(&error), "a connection to an instance ended");
                    drop(slot.lock().unwrap_or_else(PoisonError::into_inner).take());
                }
            }
        });
        Ok(Connection { sender, call_slot })
    }
}

/// Converts a request to the form that an origin server expects (RFC 9112, section 3.2.1).
fn in_origin_form(mut request: Request) -> Request {
    *request.version_mut() = Version::HTTP_11;
    ensure_host(&mut request);
    if request.uri().authority().is_some() {
        let path = request.uri().path_and_query().cloned();
        *request.uri_mut() = path.map_or_else(|| Uri::from_static("/"), Uri::from);
    }
    request
}

/// The text of an error and its causes, on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests;
