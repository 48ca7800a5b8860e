//! Machine code for the nodes: what was compiled to judge an upload is signed and kept, so that a network compiles a component once for each engine and
//! not once on each node.
//!
//! It is signed when it was just compiled here, never when it is read: whoever can write to the artifact store must not be able to run code on
//! nodes.

use fdn_core::Digest;
use fdn_core::compiled::CompiledHead;
use tracing::warn;

use super::authority;
use crate::Error;
use crate::error::chain;
use crate::state::State;
use crate::upload::Compiled;

/// Keeps the machine code of a component. Without it nodes compile for themselves, so a failure is only told.
pub(super) async fn keep(state: &State, component: Digest, compiled: &Compiled) {
    if let Err(error) = sign_and_put(state, component, compiled).await {
        state.metrics.artifacts.compiled_failures.inc();
        warn!(%component, error = chain(&error), "machine code cannot be kept; nodes compile for themselves");
    }
}

async fn sign_and_put(state: &State, component: Digest, compiled: &Compiled) -> Result<(), Error> {
    let (engine, code, size) = (compiled.engine(), compiled.digest(), compiled.size());
    let text = CompiledHead::signed_text(&component, engine, &code, size);
    let head = CompiledHead {
        component,
        engine: engine.clone(),
        code,
        size,
        signature: authority::sign(state, &text, fdn_service::now()).await?,
    };
    state.artifacts.compiled_put(&head, compiled.path()).await?;
    Ok(())
}
