//! HTTP between the gateway and an instance: connections kept, failures told apart.
//!
//! HTTP/1.1 (RFC 9112), one request at a time on a connection. A connection goes back to the idle list when a response has
//! been read to its end. What makes this more than a client library: a failed call says whether the instance can have seen
//! the request, and gives it back whole where it cannot; one that is given up says when the instance has let go of it; and
//! connections may lead into another network namespace.

mod body;
mod connect;
mod end;
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

/// Bounds on the connections to one instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkLimits {
    /// How long making a connection may take.
    pub connect: Duration,
    /// Idle connections kept.
    pub idle: usize,
    /// How long one is kept. Shorter than servers keep theirs (5 s is common), or a request meets a connection that its
    /// server has just closed.
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

/// How long a connection may take to be free for the next request after a response was read to its end. It takes longer
/// only when the server answered before it had read the request, and then a new connection is better.
const SETTLE: Duration = Duration::from_millis(5);

/// The way to one instance.
#[derive(Debug)]
pub(crate) struct HttpLink {
    endpoint: Endpoint,
    pool: Arc<Pool>,
}

#[derive(Debug)]
struct Pool {
    limits: LinkLimits,
    /// The one used last is at the end and taken first.
    idle: Mutex<Vec<Idle>>,
    calls: AtomicUsize,
}

#[derive(Debug)]
struct Idle {
    connection: Connection,
    since: Instant,
}

/// A connection, and who wants to know of the call on it when that is over.
#[derive(Debug)]
struct Connection {
    sender: SendRequest<Body>,
    working: Working,
}

/// Shared with the task that drives the connection, which outlives a call that is given up.
type Working = Arc<Mutex<Option<CallGuard>>>;

impl Connection {
    /// The next call goes over it.
    fn begins(&self, hold: Option<&CallGuard>) {
        *self.lock() = hold.cloned();
    }

    /// The call on it is over.
    fn is_over(&self) {
        drop(self.lock().take());
    }

    fn lock(&self) -> MutexGuard<'_, Option<CallGuard>> {
        self.working.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// The call on it has ended in order.
    fn give_back(&self, connection: Connection) {
        connection.is_over();
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
struct InFlight(Arc<Pool>);

impl InFlight {
    fn new(pool: &Arc<Pool>) -> Self {
        pool.calls.fetch_add(1, Ordering::Relaxed);
        Self(pool.clone())
    }
}

impl Drop for InFlight {
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

    /// Calls whose response has not ended.
    pub(crate) fn in_flight(&self) -> usize {
        self.pool.calls.load(Ordering::Relaxed)
    }

    /// As [`crate::Instance::call`].
    pub(crate) async fn call(&self, request: Request) -> Result<Response, CallFailure> {
        let in_flight = InFlight::new(&self.pool);
        let mut request = in_origin_form(request);
        let hold = request.extensions_mut().remove::<CallGuard>();
        loop {
            let (mut connection, fresh) = match self.settled().await {
                Some(connection) => (connection, false),
                None => match self.connect().await {
                    Ok(connection) => (connection, true),
                    Err(reason) => return Err(CallFailure::not_sent(request, reason)),
                },
            };
            connection.begins(hold.as_ref());
            let mut error = match connection.sender.try_send_request(request).await {
                Ok(response) => {
                    return Ok(body::pooled(response, connection, in_flight));
                }
                Err(error) => error,
            };
            // The connection is gone, and the call on it.
            connection.is_over();
            match error.take_message() {
                // An idle connection that was closed meanwhile: each is tried once, then a fresh one.
                Some(back) if !fresh => request = back,
                Some(back) => {
                    let reason = chain(&error.into_error());
                    return Err(CallFailure::not_sent(back, reason));
                }
                None => return Err(CallFailure::interrupted(chain(&error.into_error()))),
            }
        }
    }

    /// An idle connection that is ready for a request.
    async fn settled(&self) -> Option<Connection> {
        while let Some(mut connection) = self.pool.take() {
            let sender = &mut connection.sender;
            let ready = sender.is_ready()
                || matches!(
                    tokio::time::timeout(SETTLE, sender.ready()).await,
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
        let working = Working::default();
        let held = Arc::clone(&working);
        tokio::spawn(async move {
            match connection.without_shutdown().await {
                Ok(parts) => {
                    let held = held.lock().unwrap_or_else(PoisonError::into_inner).take();
                    if let Some(hold) = held {
                        let answers = !parts.read_buf.is_empty();
                        end::given_up(parts.io.into_inner(), answers, &hold).await;
                    }
                }
                Err(error) => {
                    tracing::trace!(error = chain(&error), "a connection to an instance ended");
                    drop(held.lock().unwrap_or_else(PoisonError::into_inner).take());
                }
            }
        });
        Ok(Connection { sender, working })
    }
}

/// The request as a server that is no proxy expects it (RFC 9112, section 3.2.1).
fn in_origin_form(mut request: Request) -> Request {
    *request.version_mut() = Version::HTTP_11;
    ensure_host(&mut request);
    if request.uri().authority().is_some() {
        let path = request.uri().path_and_query().cloned();
        *request.uri_mut() = path.map_or_else(|| Uri::from_static("/"), Uri::from);
    }
    request
}

/// An error with its causes on one line.
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
