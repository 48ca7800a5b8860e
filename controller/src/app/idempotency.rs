//! Idempotent requests: those that are sent again are carried out once, and get the same response.
//!
//! A request with a key is recorded before it is carried out. The transaction that carries it out marks it as done (together with the audit
//! entry, see [`crate::store::audit::audit_insert`]); the response is stored after that, sealed, since it may contain a secret. So a request is
//! never carried out twice, wherever this process crashes: before the transaction, the request may start anew once its lease has expired; after
//! it, a retry is told that the response is lost. One that takes longer than its lease may be begun again; the transaction that commits second fails, see
//! [`StoreError::Overtaken`].
//!
//! [`StoreError::Overtaken`]: crate::store::StoreError::Overtaken

use fdn_core::{ErrorCode, Timestamp};

use super::actor::Actor;
use crate::Error;
use crate::state::State;
use crate::store::idempotency::{
    BegunRequest, IdempotencyRow, idempotency_answer, idempotency_begin, idempotency_forget,
    idempotency_get, idempotency_trim,
};
use crate::store::in_transaction;

/// The most attempts to begin a request while earlier ones with its key are refused and forgotten.
const BEGINS: u32 = 3;

/// Why a request with a known key does not get the first one's response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The key was used for another request.
    #[error("this idempotency key was used for another request; take a new one")]
    Mismatch,
    /// The first request is still running.
    #[error("the first request with this idempotency key still runs; ask again in a moment")]
    Running,
    /// The first request was carried out, and its response is lost.
    #[error(
        "the request was carried out before, but its answer is not kept; look at what exists before you send it with a new key"
    )]
    Lost,
}

impl Refusal {
    /// The stable error code.
    #[must_use]
    pub const fn code(self) -> ErrorCode {
        match self {
            Self::Mismatch => ErrorCode::IdempotencyMismatch,
            Self::Running => ErrorCode::IdempotencyRunning,
            Self::Lost => ErrorCode::IdempotencyLost,
        }
    }
}

/// Whether a request with a key is the first one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// The first one, to be carried out.
    First(BegunRequest),
    /// A retry, with the response of the first one.
    Again(String),
}

/// Compares a request that could not begin with the recorded one of its key.
fn check(row: &IdempotencyRow, request: &str) -> Result<(), Refusal> {
    match row {
        row if row.request != request => Err(Refusal::Mismatch),
        row if row.answer.is_some() => Ok(()),
        row if row.done_at.is_some() => Err(Refusal::Lost),
        _ => Err(Refusal::Running),
    }
}

/// The context that a sealed response is bound to, so that no other request can be answered with it.
fn context(caller: &str, key: &str, request: &str) -> String {
    format!("idempotency\n{caller}\n{key}\n{request}")
}

/// Begins a request of `caller` under `key`; `request` is the keyed hash of operation and body.
///
/// # Errors
/// When the key was used for something else, the first request is still running or its response is lost, or the store fails.
pub async fn begin(
    state: &State,
    caller: &str,
    key: &str,
    request: &str,
) -> Result<Attempt, Error> {
    let settings = &state.settings.api;
    let now = fdn_service::now();
    let ago = |millis: u64| Timestamp(now.get().saturating_sub(millis));
    let stale = ago(settings.idempotency_lease.as_millis());
    let oldest = ago(settings.idempotency_keep.as_millis());
    for _ in 0..BEGINS {
        let (begun, there): (bool, Option<IdempotencyRow>) = in_transaction!(state.store, tx => {
            idempotency_trim(&mut tx, caller, settings.idempotency_keys, oldest).await?;
            let begun = idempotency_begin(&mut tx, caller, key, request, (now, stale)).await?;
            let there = if begun { None } else { idempotency_get(&mut tx, caller, key).await? };
            Ok::<_, Error>((begun, there))
        })?;
        if begun {
            let key = key.to_owned();
            return Ok(Attempt::First(BegunRequest { key, at: now }));
        }
        // Without a row, the earlier request was refused and forgotten between the two statements, and this one may take its place.
        if let Some(row) = there {
            check(&row, request)?;
            let sealed = row.answer.ok_or(Refusal::Lost)?;
            let answer = state.key.open(&context(caller, key, request), &sealed)?;
            return Ok(Attempt::Again(answer));
        }
    }
    Err(Refusal::Running.into())
}

/// Stores the response of a request that was carried out. If this fails, the request still counts as carried out.
///
/// # Errors
/// When the store fails.
pub async fn store_answer(
    state: &State,
    caller: &str,
    begun: &BegunRequest,
    request: &str,
    answer: &str,
) -> Result<(), Error> {
    let context = context(caller, &begun.key, request);
    let sealed = state.key.seal(&context, answer)?;
    let now = fdn_service::now();
    in_transaction!(state.store, tx => {
        Ok::<_, Error>(idempotency_answer(&mut tx, caller, begun, &sealed, now).await?)
    })
}

/// Deletes the record of a request that was refused.
///
/// # Errors
/// When the store fails.
pub async fn forget(state: &State, actor: &Actor, begun: &BegunRequest) -> Result<(), Error> {
    in_transaction!(state.store, tx => {
        Ok::<_, Error>(idempotency_forget(&mut tx, &actor.name, begun).await?)
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
        assert_eq!(check(&row(true, true), "a"), Ok(()));
        assert_eq!(check(&row(true, true), "b"), Err(Refusal::Mismatch));
        assert_eq!(check(&row(false, false), "b"), Err(Refusal::Mismatch));
        assert_eq!(check(&row(true, false), "a"), Err(Refusal::Lost));
        assert_eq!(check(&row(false, false), "a"), Err(Refusal::Running));
    }
}
