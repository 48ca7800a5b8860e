//! The way of a task through the cluster: which stages it passed, on which nodes, and how long each had it.
//!
//! Every holder adds one entry when it passes the task on; durations only, for clocks of nodes differ. What was lost on the way is not in it: a trace
//! explains, it proves nothing.

use std::time::Duration;

use fdn_core::NodeId;
use serde::Serialize;

use crate::identity::Tag;

/// The longest trace that is kept; tasks seldom pass through more than four holders.
const HOPS_MAX: usize = 12;
/// The longest time an entry can show: 2^32 microseconds.
const MICROS_MAX: u128 = u32::MAX as u128;

/// What was done with a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// It was started where it arrived.
    Local,
    /// Other nodes were asked; it went to the one that said yes.
    Probed,
    /// It was started on a node that had said yes.
    Probe,
    /// It was sent on by a hint.
    Hinted,
    /// It was started where a hint had sent it.
    Hint,
    /// It went to the global scheduler.
    Forwarded,
    /// The global scheduler chose a node.
    Placed,
    /// It was started where the global scheduler had sent it.
    Global,
    /// The node that the global scheduler chose had no room, and sent it back.
    Bounced,
}

impl Step {
    /// As metrics and logs name it.
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
    /// On which node; none if it is no member any more.
    pub node: Option<NodeId>,
    /// What it did.
    pub step: Step,
    /// How many microseconds it had the task.
    pub micros: u32,
}

/// Adds an entry in its packed form: 24 bits of the tag, 8 of the step, 32 of microseconds.
pub(crate) fn push(hops: &mut Vec<u64>, tag: Tag, step: Step, held: Duration) {
    if hops.len() < HOPS_MAX {
        let micros = held.as_micros().min(MICROS_MAX) as u64;
        hops.push(u64::from(tag.get()) << 40 | (step as u64) << 32 | micros);
    }
}

/// Reads a trace; entries of a step that is not known are left out.
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
