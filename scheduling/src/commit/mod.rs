//! Parallel pre-scheduling with one committer.
//!
//! **Problem.** Scoring all nodes for a container takes long, and containers arrive faster than that. Several schedulers that work on one
//! state must not allocate the same capacity twice.
//!
//! **Source.** The patent "Scheduling method, scheduling device and scheduling system". Optimistic concurrency: any number of
//! pre-schedulers ([`PreScheduler`]) score on copies of the node records ([`View`]), each naming the best few nodes with the versions it
//! saw; a single [`Committer`] processes their lists one by one and makes the final decision.
//!
//! | list | what | made by |
//! | --- | --- | --- |
//! | 1 | the best `h` nodes with room: node, version, score | pre-scheduler |
//! | 2 | entries of list 1 whose node's version is unchanged | committer |
//! | 3 | the other entries | committer |
//! | 4 | nodes of list 3 that still have room, scored anew | committer |
//!
//! Lists 2 and 4 are merged by score (higher first), ties by the smaller node: the first node that fits gets the container, and its
//! version is incremented. If none fits, the container is pending again; after [`Settings::retries_max`] such lists the committer scans
//! all nodes itself.
//!
//! **Readings.**
//! - A list has `h` entries ([`Choice::length`], 8), not all nodes that fit (0).
//! - Pre-schedulers take the next container without waiting for the commit of the last, hence conflicts. So that those that see
//!   the same records do not all name the same node, equal scores are in random order, drawn for each list ([`Ties`]).
//! - Which nodes a pre-scheduler looks at is a choice ([`NodeSelection`]). All of them, as in the source, gives the best list and the most
//!   conflicts; a random sample of a tenth has fewer, and with lists of five stays within 5 % of a serial scheduler's spread
//!   while nodes fill; hands dealt out have hardly any.
//! - A list that waits for the committer goes stale. At most [`Settings::in_flight_max`] containers are handed out at a time, so that
//!   lists do not queue up.
//! - A container returned to the pending queue goes to its end.
//! - If a full scan finds no room either, the container waits, and the first node that gains capacity takes it: no earlier attempt
//!   could succeed.
//! - A pre-scheduler may fail with a container: a container handed out for longer than [`Settings::lease`] is pending again, and a
//!   list made for an earlier attempt, or a duplicate, is ignored.
//! - The node's own decision is final ([`Committer::refuse`]), and others may use it too ([`Committer::observe`]).
//!
//! **Complexity.** A list: O(n + h log h) for n nodes in the pre-scheduler, O(h log h) in the committer. Taking a container, and moving
//! it between queues: O(1); submitting and releasing it: O(log m) for m known containers. Freed capacity is offered to all w waiting
//! containers: O(w).
//!
//! With `n` containers, `t` per scoring and `r` per commit, a serial scheduler takes `n*t`; here it is `t + n*r` with enough
//! pre-schedulers.
//!
//! **Invariants.** No container is placed where it does not fit; versions only grow, even when a node's index is reused; a container is
//! known once and is in one place, so it is committed at most once; no waiting container would fit on any node; with one pre-scheduler
//! that reads after each commit, and [`Ties::Node`], the result is that of the serial scheduler ([`serial::best`]).
//!
//! ```
//! use fdn_core::{MebiBytes, MilliCpu, Millis, Resources};
//! use fdn_scheduling::commit::{
//!     Choice, Committer, Container, LeastRequested, List, PreScheduler, Settings, Verdict, View,
//! };
//! use rand::SeedableRng;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let size = |cpu, memory| Resources::new(MilliCpu(cpu), MebiBytes(memory));
//! let mut committer = Committer::new(Settings::default(), LeastRequested)?;
//! let mut placed = Vec::new();
//! committer.add_node(size(4000, 8192), &mut placed)?;
//! let roomy = committer.add_node(size(8000, 8192), &mut placed)?;
//! committer.submit(Container {
//!     id: "ins_00000000000000000000000000000001".parse()?,
//!     demand: size(1000, 512),
//! })?;
//!
//! // A pre-scheduler, on its own copy of the records.
//! let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(1);
//! let mut pre_scheduler = PreScheduler::new(LeastRequested, Choice::default());
//! let (mut view, mut list) = (View::default(), List::default());
//! let assignment = committer.take(Millis::ZERO).expect("one is pending");
//! view.read(committer.store());
//! pre_scheduler.list(&assignment, view.records(), &mut rng, &mut list);
//!
//! // The committer has the last word.
//! let Verdict::Placed(placed) = committer.commit(&list).verdict else {
//!     panic!("there is room");
//! };
//! assert_eq!(placed.node, roomy);
//! assert_eq!(committer.commit(&list).verdict, Verdict::Ignored);
//! # Ok(())
//! # }
//! ```

mod committer;
mod list;
mod merge;
mod nodes;
mod prescheduler;
mod record;
mod score;
pub mod serial;
mod settings;
mod store;
mod table;

pub use committer::{Commit, Committer, Placed, Refusal, Submitted, Verdict};
pub use list::{Assignment, Container, Entry, List, ListRequest, Ticket};
pub use merge::Merge;
pub use prescheduler::{Choice, NodeSelection, PreScheduler, Ties};
pub use record::{NodeIndex, NodeRecord, Presence, Version};
pub use score::{LeastRequested, MostFree, MostRequested, Score, Scoring};
pub use settings::{Settings, SettingsError};
pub use store::{Store, View};
pub use table::ContainerState;
