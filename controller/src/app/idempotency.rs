//! Requests that may be sent again: carried out once, answered alike.
//!
//! A request with a key is noted before it is carried out. The transaction that carries it out marks it as done (together with the audit
//! entry, see [`crate::store::audit::audit_insert`]); the answer is kept after that, sealed, since it may hold a secret. So a request is
//! never carried out twice, wherever this process is lost: before the transaction it may begin anew when its lease is over, after it the
//! second one is told that its answer is not kept.

use fdn_core::{ErrorCode, Timestamp};

use super::actor::Actor;
use crate::Error;
use crate::state::State;
use crate::store::idempotency::{
    IdempotencyRow, idempotency_answer, idempotency_begin, idempotency_forget, idempotency_get,
    idempotency_trim,
};
use crate::store::in_transaction;

/// Why a request with a key is not answered as the first one was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The key stands for another request.
    #[error("this idempotency key was used for another request; take a new one")]
    Mismatch,
    /// The first one still runs.
    #[error("the first request with this idempotency key still runs; ask again in a moment")]
    Running,
    /// It was carried out, and its answer is lost.
    #[error(
        "the request was carried out before, but its answer is not kept; look at what exists before you send it with a new key"
    )]
    Lost,
}

impl Refusal {
    /// The stable code.
    #[must_use]
    pub const fn code(self) -> ErrorCode {
        match self {
            Self::Mismatch => ErrorCode::IdempotencyMismatch,
            Self::Running => ErrorCode::IdempotencyRunning,
            Self::Lost => ErrorCode::IdempotencyLost,
        }
    }
}

/// What a request with a key is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The first one: to be carried out.
    First,
    /// A later one: this was the answer.
    Again(String),
}

/// How a request that could not begin stands to the one that is there.
fn judge(row: &IdempotencyRow, request: &str) -> Result<(), Refusal> {
    match row {
        row if row.request != request => Err(Refusal::Mismatch),
        row if row.answer.is_some() => Ok(()),
        row if row.done_at.is_some() => Err(Refusal::Lost),
        _ => Err(Refusal::Running),
    }
}

/// To what a sealed answer is bound: nobody else's request can be answered with it.
fn context(caller: &str, key: &str, request: &str) -> String {
    format!("idempotency\n{caller}\n{key}\n{request}")
}

/// Begins a request of `caller` under `key`; `request` is the keyed hash of operation and body.
///
/// # Errors
/// When the key stands for something else or the first request is not over; when the store fails.
pub async fn begin(state: &State, caller: &str, key: &str, request: &str) -> Result<Turn, Error> {
    let settings = &state.settings.api;
    let now = fdn_service::now();
    let ago = |millis: u64| Timestamp(now.get().saturating_sub(millis));
    let stale = ago(settings.idempotency_lease.as_millis());
    let oldest = ago(settings.idempotency_keep.as_millis());
    let there: Option<IdempotencyRow> = in_transaction!(state.store, tx => {
        idempotency_trim(&mut tx, caller, settings.idempotency_keys, oldest).await?;
        if idempotency_begin(&mut tx, caller, key, request, (now, stale)).await? {
            return Ok(None);
        }
        idempotency_get(&mut tx, caller, key).await
    })?;
    let Some(row) = there else {
        return Ok(Turn::First);
    };
    judge(&row, request)?;
    let sealed = row.answer.ok_or(Refusal::Lost)?;
    let answer = state.key.open(&context(caller, key, request), &sealed)?;
    Ok(Turn::Again(answer))
}

/// Keeps the answer of a request that was carried out. That it was is true even if this fails.
///
/// # Errors
/// When the store fails.
pub async fn keep(
    state: &State,
    caller: &str,
    key: &str,
    request: &str,
    answer: &str,
) -> Result<(), Error> {
    let sealed = state.key.seal(&context(caller, key, request), answer)?;
    let now = fdn_service::now();
    in_transaction!(state.store, tx => {
        Ok::<_, Error>(idempotency_answer(&mut tx, caller, key, &sealed, now).await?)
    })
}

/// Forgets a request that was refused.
///
/// # Errors
/// When the store fails.
pub async fn forget(state: &State, actor: &Actor, key: &str) -> Result<(), Error> {
    in_transaction!(state.store, tx => {
        Ok::<_, Error>(idempotency_forget(&mut tx, &actor.name, key).await?)
    })
}

#[cfg(test)]
mod tests {
    use fdn_core::message::Sealed;

    use super::*;

    #[test]
    fn a_second_request_is_judged_by_what_became_of_the_first() {
        let row = |done: bool, answer: bool| IdempotencyRow {
            request: "a".to_owned(),
            created_at: Timestamp(1),
            done_at: done.then_some(Timestamp(2)),
            answer: answer.then(|| Sealed(String::new())),
        };
        assert_eq!(judge(&row(true, true), "a"), Ok(()));
        assert_eq!(judge(&row(true, true), "b"), Err(Refusal::Mismatch));
        assert_eq!(judge(&row(false, false), "b"), Err(Refusal::Mismatch));
        assert_eq!(judge(&row(true, false), "a"), Err(Refusal::Lost));
        assert_eq!(judge(&row(false, false), "a"), Err(Refusal::Running));
    }
}
