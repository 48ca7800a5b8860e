//! `GET /calls/{app}?since=…` on the admin listener: calls that this node keeps, for controllers, who show that they know the node's token by one that
//! follows from it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use actix_web::web::{self, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse, http::StatusCode, http::header};
use fdn_core::usage::{CallLine, CallList, CallQuery};
use fdn_core::{AppName, ErrorCode, NodeId, Problem};
use fdn_service::secret::Secret;
use fdn_spool::Spool;
use tokio::sync::Semaphore;
use tracing::warn;

/// Who may look for calls, and where they are.
#[derive(Clone)]
pub struct CallAccess {
    spool: Spool,
    node: NodeId,
    token: Secret,
    /// One search at a time: it reads all that is kept, and calls come first.
    turn: Arc<Semaphore>,
}

impl CallAccess {
    /// What `token` opens ([`Secret::for_logs_of`] this node).
    #[must_use]
    pub fn new(spool: Spool, node: NodeId, token: Secret) -> Self {
        Self {
            spool,
            node,
            token,
            turn: Arc::new(Semaphore::new(1)),
        }
    }
}

/// How long a search may wait for its turn.
const TURN: Duration = Duration::from_secs(5);

/// Whoever waits for a search; gone, the search is not wanted any more.
struct Asker(Arc<AtomicBool>);

impl Drop for Asker {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Adds the route to the admin listener.
pub fn routes(config: &mut ServiceConfig, access: &CallAccess) {
    config
        .app_data(web::Data::new(access.clone()))
        .route("/calls/{app}", web::get().to(calls));
}

fn problem(code: ErrorCode, detail: &str) -> HttpResponse {
    let problem = Problem::new(code, detail);
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    HttpResponse::build(status)
        .content_type(Problem::MEDIA_TYPE)
        .json(problem)
}

async fn calls(
    request: HttpRequest,
    app: web::Path<String>,
    access: web::Data<CallAccess>,
) -> HttpResponse {
    let bearer = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "));
    if !bearer.is_some_and(|token| access.token.matches(token.trim())) {
        return problem(
            ErrorCode::Unauthenticated,
            "calls are told to the network's controllers; look for them with fdn calls",
        );
    }
    let query = web::Query::<CallQuery>::from_query(request.query_string());
    let (Ok(query), Ok(app)) = (query, app.parse::<AppName>()) else {
        return problem(ErrorCode::BadRequest, "this asks for no calls of an app");
    };
    let turn = tokio::time::timeout(TURN, Arc::clone(&access.turn).acquire_owned());
    let Ok(Ok(turn)) = turn.await else {
        return problem(
            ErrorCode::Overloaded,
            "the node looks for other calls; try again",
        );
    };
    let (spool, query) = (access.spool.clone(), query.into_inner());
    let unwanted = Arc::new(AtomicBool::new(false));
    // If the controller hangs up, this future is dropped.
    let _asker = Asker(Arc::clone(&unwanted));
    let searched = tokio::task::spawn_blocking(move || {
        // Until the search has ended: it goes on for a moment when nobody waits for it any more.
        let _turn = turn;
        spool.search(&app, &query, &unwanted)
    });
    let failed = |failure: &dyn std::fmt::Display| {
        warn!(%failure, "the calls that are kept cannot be searched");
        problem(
            ErrorCode::Internal,
            "the calls that are kept cannot be read",
        )
    };
    match searched.await {
        Ok(Ok(found)) => HttpResponse::Ok().json(CallList {
            more: found.more,
            calls: found
                .calls
                .into_iter()
                .map(|record| CallLine::new(access.node.clone(), record))
                .collect(),
            silent: Vec::new(),
        }),
        Ok(Err(failure)) => failed(&failure),
        Err(failure) => failed(&failure),
    }
}
