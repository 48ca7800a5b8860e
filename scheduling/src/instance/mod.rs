//! Where in a cluster an instance starts: local check, a probe of two nodes, the global scheduler; or forwarding by hints.
//!
//! Three state machines, driven alike by simulator and edge agents: [`Node`], the scheduler of one node; [`Global`], the global
//! scheduler; [`Submitter`], which requests instances. They take messages and the time, and append [`Action`]s to a list of their caller:
//! messages to send, instances to start. They are generic over the resources of an instance ([`Demand`]): unit [`Slots`], or
//! [`fdn_core::Resources`].
//!
//! # The path of a task
//! ```text
//! submitter --Submit--> node: local check, starts it
//!                      | no room
//!                      +--Probe--> two others, which reserve and answer: the first yes gets --Assign--
//!                      | two noes
//!                      +--Forward--> global --Place--> the node with the most room, or back: --Bounce-->
//! ```
//! [`Policy`] has the comparators: bottom-up leaves the probes out, re-probing the global scheduler; late binding leaves probes in
//! the queues of two nodes (after Sparrow: Ousterhout and others, SOSP 2013); hints send the task itself instead of probes.
//!
//! # At most one instance per task
//! Messages may be lost, duplicated or late, and nodes may be lost. Three rules keep this guarantee:
//!
//! 1. **One holder at a time.** An attempt at a task is a chain: each holder gets it with a leg number, decides once (start it, or
//!    pass it on to one other), and remembers. A message with a known leg is a duplicate, and repeats the decision. So
//!    one attempt starts at most one instance, and the submitter recovers every loss by sending the task again: no
//!    message on the way needs an acknowledgement.
//! 2. **A fence between attempts.** If a holder is lost, the chain is broken. The submitter begins another attempt only after every
//!    remaining scheduler has promised not to start the old one any more, and none has started it.
//! 3. **A deadline.** Nobody starts a task after its deadline, so everybody may forget it some time later: memory is bounded by
//!    a time window. It also has a size limit; at the limit new tasks are refused, not old ones forgotten.
//!
//! The same rules cover the loss of the global scheduler. Each has a term ([`Term`]), larger than all before it. A successor
//! ([`Global::take_over`]) knows nothing; nodes that learn of it ([`Node::headed`]) report at once, and what they had forwarded to its
//! predecessor is a broken chain: nobody knows whether it was placed. When the submitter sends such a task again it is told so, and a
//! fence settles it. Messages for another term are ignored, so two global schedulers at a time do no harm either.
//!
//! The global scheduler chooses by itself ([`Global::decide`]), or with pre-schedulers that score copies of its view ([`Global::take`],
//! [`Global::commit`]); the rules are those of [`crate::commit`], and the rest of the protocol is the same.
//!
//! Reservations are outside these rules: they are made for a task and attempt, have a lease, and only keep resources free. Losing a
//! positive reply or a release costs at most the lease.
//!
//! Assumptions: a node that is declared lost does not return with its memory or instances (fail-stop), and clocks differ by less than the
//! retention setting ([`Settings::memory`]).
//!
//! # An example
//! ```
//! use fdn_core::Millis;
//! use fdn_scheduling::instance::{Action, Node, NodeIndex, Settings, Slots, Task, TaskId, ToNode};
//! use rand::SeedableRng;
//!
//! let settings = Settings::for_round_trip(Millis::new(0.5));
//! let mut node = Node::new(NodeIndex(0), 3, Slots(1), settings).unwrap();
//! let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(1);
//! let mut actions = Vec::new();
//!
//! // Two tasks arrive together; there is one slot.
//! for (id, remaining) in [(1, 80.0), (2, 30.0)] {
//!     let task = Task {
//!         id: TaskId(id),
//!         attempt: 1,
//!         leg: 0,
//!         demand: Slots(1),
//!         remaining: Millis::new(remaining),
//!         deadline: Millis::new(30_000.0),
//!     };
//!     node.receive(Millis::ZERO, ToNode::Submit(task), &mut rng, &mut actions);
//! }
//! node.poll(Millis::ZERO, &mut rng, &mut actions);
//!
//! // The shorter one starts; for the other both other nodes are asked.
//! assert!(matches!(&actions[0], Action::Start { task, .. } if task.id == TaskId(2)));
//! let asked = actions.iter().filter(|action| matches!(action, Action::Node(_, ToNode::Probe(_))));
//! assert_eq!(asked.count(), 2);
//! ```

mod demand;
mod global;
mod hints;
mod index;
mod ledger;
mod memory;
mod message;
mod node;
mod order;
mod peers;
mod settings;
mod slab;
mod submitter;
mod view;

pub use demand::{Demand, Slots};
pub use global::{ByRoom, Commit, Global, ListSettings, Verdict};
pub use hints::Load;
pub use message::{
    Action, Fence, NodeIndex, NodeReport, Probe, Refusal, Running, Stage, Task, TaskId, Term,
    ToGlobal, ToNode, ToSubmitter,
};
pub use node::Node;
pub use settings::{
    GlobalSettings, HINT_SAMPLE_MAX, Limits, Policy, Settings, SettingsError, Spread,
};
pub use submitter::{Settled, Submitter, SubmitterSettings, TooManyOpen};
