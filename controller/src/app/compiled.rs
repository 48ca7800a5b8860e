//! Machine code for nodes: what was compiled to validate an upload is signed and stored, so that the network compiles a component once per
//! engine, not once per node.
//!
//! Code is signed when it was just compiled here, never when it is read back: write access to the artifact store must not be enough to run code
//! on nodes.

use fdn_core::Digest;
use fdn_core::compiled::CompiledHead;
use tracing::warn;

use super::authority;
use crate::Error;
use crate::error::chain;
use crate::state::State;
use crate::upload::Compiled;

/// Stores the machine code of a component. Without it nodes compile the component themselves, so a failure is only logged.
pub(super) async fn store(state: &State, component: Digest, compiled: &Compiled) {
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
