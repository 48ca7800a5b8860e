//! How an instance was placed: its way through the cluster's stages, for the call that waited for it.

use std::fmt;
use std::time::{Duration, Instant};

use fdn_cluster::Hop;
use fdn_core::NodeId;

/// The placement of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The time from the request for room until room was found.
    pub took: Duration,
    /// When that was known.
    pub found_at: Instant,
    /// The node that had room.
    pub node: NodeId,
    /// The stages, with how long each took.
    pub hops: Vec<Hop>,
    /// How many nodes had refused to start it before.
    pub refused: u32,
}

impl Placement {
    /// The placement as an entry of `Server-Timing`.
    #[must_use]
    pub fn timing(&self) -> String {
        let millis = self.took.as_secs_f64() * 1000.0;
        // Names and steps are letters, digits and dashes: no escaping is needed.
        format!("place;dur={millis:.3};desc=\"{self}\"")
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, hop) in self.hops.iter().enumerate() {
            if at > 0 {
                f.write_str(" ")?;
            }
            let millis = f64::from(hop.micros) / 1000.0;
            match &hop.node {
                Some(node) => write!(f, "{}@{node}:{millis:.3}", hop.step.as_str())?,
                None => write!(f, "{}:{millis:.3}", hop.step.as_str())?,
            }
        }
        let gap = if self.hops.is_empty() { "" } else { " " };
        write!(f, "{gap}on {}", self.node)?;
        if self.refused > 0 {
            write!(f, " after {} refused", self.refused)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use fdn_cluster::Step;

    use super::*;

    #[test]
    fn a_way_reads_as_server_timing() {
        let hop = |node: Option<&str>, step, micros| Hop {
            node: node.map(|node| node.parse().expect("node")),
            step,
            micros,
        };
        let placement = Placement {
            took: Duration::from_micros(1234),
            found_at: Instant::now(),
            node: "n-2".parse().expect("node"),
            hops: vec![
                hop(Some("n-1"), Step::Probed, 12),
                hop(None, Step::Probe, 1500),
            ],
            refused: 1,
        };
        assert_eq!(
            placement.timing(),
            r#"place;dur=1.234;desc="probed@n-1:0.012 probe:1.500 on n-2 after 1 refused""#
        );
    }
}
