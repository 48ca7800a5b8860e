//! Answers a controller's `GET /calls/{app}?since=…` with calls recorded on this node.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use actix_web::web;
use fdn_core::usage::{CallLine, CallList, CallQuery};
use fdn_core::{AppName, ErrorCode, NodeId};
use fdn_spool::Spool;
use http::{Response, StatusCode};
use tokio::sync::Semaphore;
use tracing::warn;

use crate::workflows::{StageBody, problem, response};

/// The records to search.
#[derive(Clone)]
pub struct CallAccess {
    spool: Spool,
    node: NodeId,
    /// Allows one search at a time: it reads all records, and calls have priority.
    turn: Arc<Semaphore>,
}

impl CallAccess {
    /// Searches the records in this node's `spool`.
    #[must_use]
    pub fn new(spool: Spool, node: NodeId) -> Self {
        Self {
            spool,
            node,
            turn: Arc::new(Semaphore::new(1)),
        }
    }
}

/// How long a search may wait for its turn.
const TURN: Duration = Duration::from_secs(5);

/// Cancels a search when dropped, because nobody waits for it any more.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Answers with calls of an app.
pub(crate) async fn answer(access: &CallAccess, app: &str, query: &str) -> Response<StageBody> {
    let query = web::Query::<CallQuery>::from_query(query);
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
    // If the controller disconnects, this future is dropped.
    let _cancel = CancelOnDrop(Arc::clone(&unwanted));
    let searched = tokio::task::spawn_blocking(move || {
        // Held until the search ends, which is a moment after it was cancelled.
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
        Ok(Ok(found)) => {
            let list = CallList {
                more: found.more,
                calls: found
                    .calls
                    .into_iter()
                    .map(|record| CallLine::new(access.node.clone(), record))
                    .collect(),
                silent: Vec::new(),
            };
            match serde_json::to_vec(&list) {
                Ok(bytes) => {
                    let body = StageBody::Whole(bytes.into());
                    response(StatusCode::OK, "application/json", body)
                }
                Err(failure) => failed(&failure),
            }
        }
        Ok(Err(failure)) => failed(&failure),
        Err(failure) => failed(&failure),
    }
}
