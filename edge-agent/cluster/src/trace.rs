//! The trace of a task through the cluster: the stages that it passed, on which nodes, and how long each held it.
//!
//! Every holder adds one entry when it passes the task on, with a duration only, because clocks of nodes differ. What was lost on the way is
//! missing: a trace explains, but proves nothing.

use std::time::Duration;

use fdn_core::NodeId;
use serde::Serialize;

use crate::identity::Tag;

/// The most entries of a trace; tasks seldom pass through more than four holders.
const HOPS_MAX: usize = 12;
/// The longest duration of an entry: 2^32 microseconds.
const MICROS_MAX: u128 = u32::MAX as u128;

/// What a node did with a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// Started it where it had arrived.
    Local,
    /// Probed other nodes and sent it to the one that accepted.
    Probed,
    /// Started it after accepting a probe.
    Probe,
    /// Sent it on according to a hint.
    Hinted,
    /// Started it after a hint had sent it here.
    Hint,
    /// Sent it to the global scheduler.
    Forwarded,
    /// Chose a node for it, as the global scheduler.
    Placed,
    /// Started it after the global scheduler had sent it here.
    Global,
    /// Had no room for it although the global scheduler had chosen this node, and sent it back.
    Bounced,
}

impl Step {
    /// The name in metrics and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Probed => "probed",
            Self::Probe => "probe",
            Self::Hinted => "hinted",
            Self::Hint => "hint",
            Self::Forwarded => "forwarded",
            Self::Placed => "placed",
            Self::Global => "global",
            Self::Bounced => "bounced",
        }
    }
}

/// All steps, in order.
pub(crate) const STEPS: [Step; 9] = [
    Step::Local,
    Step::Probed,
    Step::Probe,
    Step::Hinted,
    Step::Hint,
    Step::Forwarded,
    Step::Placed,
    Step::Global,
    Step::Bounced,
];

/// One entry of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hop {
    /// The node; `None` if it is no longer a member.
    pub node: Option<NodeId>,
    /// What it did with the task.
    pub step: Step,
    /// How long it held the task, in microseconds.
    pub micros: u32,
}

/// Adds an entry in its packed form: 24 bits of the tag, 8 of the step, 32 of the microseconds.
pub(crate) fn push(hops: &mut Vec<u64>, tag: Tag, step: Step, held: Duration) {
    if hops.len() < HOPS_MAX {
        let micros = held.as_micros().min(MICROS_MAX) as u64;
        hops.push(u64::from(tag.get()) << 40 | (step as u64) << 32 | micros);
    }
}

/// Decodes a trace; entries with an unknown step are left out.
pub(crate) fn read(hops: &[u64], name: impl Fn(Tag) -> Option<NodeId>) -> Vec<Hop> {
    let read = |packed: &u64| {
        let step = STEPS.get(usize::from((packed >> 32) as u8))?;
        Some(Hop {
            node: name(Tag::new((packed >> 40) as u32)),
            step: *step,
            micros: *packed as u32,
        })
    };
    hops.iter().take(HOPS_MAX).filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_read_as_it_was_written() {
        let (a, b) = (Tag::new(0xABCDEF), Tag::new(7));
        let mut hops = Vec::new();
        push(&mut hops, a, Step::Forwarded, Duration::from_micros(17));
        push(&mut hops, b, Step::Bounced, Duration::from_secs(100_000));
        hops.push(0xFF << 32);
        let name = |tag| (tag == a).then(|| "a".parse().unwrap());
        let read = read(&hops, name);
        assert_eq!(read.len(), 2, "the unknown step is left out");
        assert_eq!(read[0].node.as_ref().unwrap().as_str(), "a");
        assert_eq!((read[0].step, read[0].micros), (Step::Forwarded, 17));
        assert_eq!((read[1].step, read[1].micros), (Step::Bounced, u32::MAX));
        assert_eq!(read[1].node, None);
        for (at, step) in STEPS.iter().enumerate() {
            assert_eq!(*step as usize, at);
        }
    }

    #[test]
    fn a_trace_does_not_grow_for_ever() {
        let mut hops = Vec::new();
        for _ in 0..100 {
            push(&mut hops, Tag::new(1), Step::Hinted, Duration::ZERO);
        }
        assert_eq!(hops.len(), HOPS_MAX);
    }
}
