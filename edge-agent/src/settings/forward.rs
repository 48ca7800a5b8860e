//! Handing calls on to gateways that can serve them, where this one cannot.

use fdn_core::device::Percent;
use fdn_core::{ByteSize, DurationMs};
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// What handing a call on must save unless it is set: loads are known roughly.
const GAIN: u8 = 20;

/// How calls are handed on that this node cannot serve, over the connections of [`super::WorkflowSettings`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ForwardSettings {
    /// How long a call waits for its app to be ready here before others are asked.
    pub after: DurationMs,
    /// The largest request body of a call that is handed on: it is kept until somebody takes it.
    pub body: ByteSize,
    /// How many calls are handed on at a time, each with its body; more are held and refused as if there were no other gateway.
    pub calls: usize,
    /// How many gateways one call asks, 0 for none.
    pub gateways: usize,
    /// How long a gateway that did not serve an app is not asked for it again.
    pub avoid: DurationMs,
    /// How much sooner a call that would wait here must be over elsewhere to be handed on, of what it would take here; 100: it never is.
    pub gain: Percent,
}

impl Default for ForwardSettings {
    fn default() -> Self {
        Self {
            after: DurationMs::from_millis(250),
            body: ByteSize::from_mib(1),
            calls: 512,
            gateways: 6,
            avoid: DurationMs::from_secs(2),
            gain: Percent::try_from(GAIN).unwrap_or(Percent::WHOLE),
        }
    }
}

impl ForwardSettings {
    /// The most gateways that one call may ask.
    pub const GATEWAYS_MAX: usize = 32;

    /// Refuses values that cannot work.
    ///
    /// # Errors
    /// Names the key and what it must be.
    pub fn check(&self) -> Result<(), Error> {
        if self.calls == 0 {
            return Err(Error::Settings(
                "forward.calls must be at least 1; forward.gateways = 0 has no call handed on"
                    .to_owned(),
            ));
        }
        let most = Self::GATEWAYS_MAX;
        if self.gateways > most {
            return Err(Error::Settings(format!(
                "forward.gateways must be at most {most}: each call that cannot be served would ask so many"
            )));
        }
        Ok(())
    }
}
