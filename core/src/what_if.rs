//! Hypothetical changes of the network, about whose effect a plan can be asked, in text form: `cluster eu-west down`,
//! `rtt us-east +50ms`, `nodes ap-south 4`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Coded, ErrorCode};
use crate::id::ClusterId;
use crate::unit::{DurationMs, Millis};

/// The most changes in one request.
pub const CHANGES_MAX: usize = 16;
/// The most nodes that a cluster can be assumed to have.
pub const NODES_MAX: u32 = 10_000;
/// The largest assumed change of a round-trip time, up or down.
pub const RTT_MAX: DurationMs = DurationMs::from_secs(60);

/// A hypothetical change of the network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum WhatIf {
    /// A cluster is down.
    Down(ClusterId),
    /// The round trips of a cluster, to clients and to other clusters, change by this much; negative if shorter.
    Rtt(ClusterId, Millis),
    /// A cluster has this many nodes, like the present ones; new ones are idle.
    Nodes(ClusterId, u32),
}

/// The text is not a change of the network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "what-if {text:?}: {reason}; write \"cluster NAME down\", \"rtt NAME +50ms\" or \"nodes NAME 4\""
)]
pub struct WhatIfError {
    text: String,
    reason: String,
}

impl Coded for WhatIfError {
    fn code(&self) -> ErrorCode {
        ErrorCode::BadRequest
    }
}

impl WhatIf {
    /// The cluster that changes.
    #[must_use]
    pub const fn cluster(&self) -> &ClusterId {
        match self {
            Self::Down(cluster) | Self::Rtt(cluster, _) | Self::Nodes(cluster, _) => cluster,
        }
    }
}

impl FromStr for WhatIf {
    type Err = WhatIfError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = |reason: String| WhatIfError {
            text: text.chars().take(100).collect(),
            reason,
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        let [what, name, value] = words[..] else {
            return Err(wrong(format!("{} words, not 3", words.len())));
        };
        let cluster = || {
            let name: Result<ClusterId, _> = name.parse();
            name.map_err(|error| wrong(error.to_string()))
        };
        match (what, value) {
            ("cluster", "down") => Ok(Self::Down(cluster()?)),
            ("rtt", change) => {
                let (sign, length) = match (change.strip_prefix('+'), change.strip_prefix('-')) {
                    (Some(length), _) => (1.0, length),
                    (_, Some(length)) => (-1.0, length),
                    _ => return Err(wrong("a change begins with + or -".to_owned())),
                };
                let length: DurationMs =
                    length.parse().map_err(|error| wrong(format!("{error}")))?;
                if length > RTT_MAX {
                    return Err(wrong(format!("a round trip changes by at most {RTT_MAX}")));
                }
                let change = Millis::from(length.as_duration()) * sign;
                Ok(Self::Rtt(cluster()?, change))
            }
            ("nodes", count) => {
                let count: u32 = count
                    .parse()
                    .map_err(|_| wrong(format!("{count} is no number of nodes")))?;
                if count > NODES_MAX {
                    return Err(wrong(format!("at most {NODES_MAX} nodes")));
                }
                Ok(Self::Nodes(cluster()?, count))
            }
            _ => Err(wrong("it is none of the changes known".to_owned())),
        }
    }
}

impl TryFrom<String> for WhatIf {
    type Error = WhatIfError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<WhatIf> for String {
    fn from(change: WhatIf) -> Self {
        change.to_string()
    }
}

impl fmt::Display for WhatIf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Down(cluster) => write!(f, "cluster {cluster} down"),
            Self::Rtt(cluster, change) => {
                let sign = if change.get() < 0.0 { '-' } else { '+' };
                write!(f, "rtt {cluster} {sign}{}ms", change.get().abs())
            }
            Self::Nodes(cluster, count) => write!(f, "nodes {cluster} {count}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_written_as_they_are_read() {
        for (text, back) in [
            ("cluster eu-west down", "cluster eu-west down"),
            ("rtt us-east +50ms", "rtt us-east +50ms"),
            ("rtt  us-east -1s", "rtt us-east -1000ms"),
            ("nodes ap-south 4", "nodes ap-south 4"),
            ("nodes ap-south 0", "nodes ap-south 0"),
        ] {
            let change: WhatIf = text.parse().expect(text);
            assert_eq!(change.to_string(), back);
            assert_eq!(back.parse(), Ok(change.clone()));
            let json = serde_json::to_string(&change).expect("json");
            assert_eq!(serde_json::from_str::<WhatIf>(&json).expect("own"), change);
        }
    }

    #[test]
    fn what_is_none_says_how_to_write_one() {
        for text in [
            "",
            "cluster eu-west",
            "cluster eu-west up",
            "cluster EU down",
            "rtt eu-west 50ms",
            "rtt eu-west +soon",
            "rtt eu-west +2m",
            "nodes eu-west -1",
            "nodes eu-west 10001",
            "price eu-west 5",
        ] {
            let error = text.parse::<WhatIf>().expect_err(text).to_string();
            assert!(error.contains("write \"cluster NAME down\""), "{error}");
        }
    }
}
