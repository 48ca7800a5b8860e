//! Handing calls on to other gateways, if this one cannot serve them.

use fdn_core::device::Percent;
use fdn_core::{ByteSize, DurationMs};
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The default of `gain`, in percent: it leaves a margin because loads are known only roughly.
const GAIN: u8 = 20;

/// How calls that this node cannot serve are handed on, over the connections of [`super::WorkflowSettings`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ForwardSettings {
    /// How long a call waits for its app to be ready on this node before other gateways are asked.
    pub after: DurationMs,
    /// The largest request body of a call that is handed on; it is kept in memory until a gateway has answered.
    pub body: ByteSize,
    /// The most calls that are handed on at a time, each with its body; further ones are held or refused as if there were no other gateway.
    pub calls: usize,
    /// The most gateways that one call asks; 0 disables handing calls on.
    pub gateways: usize,
    /// How long a gateway that did not serve an app is not asked for it again.
    pub avoid: DurationMs,
    /// How much sooner a call that would wait here must be finished elsewhere to be handed on, in percent of its time here; 100 means never.
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
    /// The maximum of `gateways`.
    pub const GATEWAYS_MAX: usize = 32;

    /// Checks that the values can work.
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
        let max = Self::GATEWAYS_MAX;
        if self.gateways > max {
            return Err(Error::Settings(format!(
                "forward.gateways must be at most {max}: each call that cannot be served would ask so many"
            )));
        }
        Ok(())
    }
}
