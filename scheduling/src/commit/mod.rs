//! Parallel pre-scheduling with one committer.
//!
//! **Problem.** Scoring all nodes for a container takes long, and containers come faster than that. Several schedulers at work on
//! one state must not give the same room away twice.
//!
//! **Source.** The patent "Scheduling method, scheduling device and scheduling system". Optimistic concurrency: any number of
//! pre-schedulers ([`PreScheduler`]) score on copies of the node records ([`View`]), each naming the best few nodes with the
//! versions it saw; one [`Committer`] takes their lists one by one and has the last word.
//!
//! | list | what | made by |
//! | --- | --- | --- |
//! | 1 | the best `h` nodes with room: node, version, score | pre-scheduler |
//! | 2 | entries of list 1 whose node's version is unchanged | committer |
//! | 3 | the other entries | committer |
//! | 4 | nodes of list 3 that still have room, scored anew | committer |
//!
//! Lists 2 and 4 together, by score (higher first), ties by the smaller node: the first node that fits gets the container, and its
//! version goes up. If none fits, the container is pending again; after [`Settings::retries_max`] such lists the committer
//! scans all nodes itself.
//!
//! **Readings.**
//! - A list has `h` entries ([`Choice::length`], 8), not all nodes that fit (0).
//! - Pre-schedulers take the next container without waiting for the commit of the last, hence conflicts. So that those that see
//!   the same do not all name the same node, equal scores are in random order, drawn for each list ([`Ties`]).
//! - Which nodes a pre-scheduler looks at is a choice ([`Look`]). All of them, as in the source, gives the best list and the most
//!   conflicts; a random sample of a tenth has fewer, and with lists of five stays within 5 % of a serial scheduler's spread
//!   while nodes fill; hands dealt out have hardly any.
//! - A list that waits for the committer ages. At most [`Settings::in_flight_max`] containers are out at a time, so that lists do
//!   not pile up where they only grow old.
//! - A container returned to the pending queue goes to its end.
//! - If a full scan finds no room either, the container waits, and the first node that gets room takes it: trying again before
//!   a node has got room could not succeed.
//! - A pre-scheduler may die with a container: a container that is out longer than [`Settings::lease`] is pending again, and a
//!   list made for an earlier attempt is ignored. So is one that comes twice.
//! - The node has the last word ([`Committer::refuse`]), and others may use it too ([`Committer::observe`]).
//!
//! **Complexity.** A list: O(n + h log h) for n nodes in the pre-scheduler, O(h log h) in the committer. Taking a container, and
//! moving it between queues: O(1); handing it in and releasing it: O(log m) for m containers known. Room that is freed
//! is offered to all that wait: O(w) for w of them.
//!
//! With `n` containers, `t` per scoring and `r` per commit, a serial scheduler takes `n*t`; here it is `t + n*r` with enough
//! pre-schedulers.
//!
//! **Invariants.** No container is put where it does not fit; versions only grow, also when a node's place is given to another; a
//! container is known once and is in one place, so it is committed at most once; none that waits would fit on any node; with
//! one pre-scheduler that reads after each commit, and [`Ties::Node`], the result is that of the serial scheduler
//! ([`serial::best`]).
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
pub use list::{Assignment, Container, Entry, List, Ticket, Wanted};
pub use merge::Merge;
pub use prescheduler::{Choice, Look, PreScheduler, Ties};
pub use record::{NodeIndex, NodeRecord, Presence, Version};
pub use score::{LeastRequested, MostFree, MostRequested, Score, Scoring};
pub use settings::{Settings, SettingsError};
pub use store::{Store, View};
pub use table::Whereabouts;
