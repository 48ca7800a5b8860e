//! Online placement: the jobs of many users, bound container by container as they run.
//!
//! **Problem.** Jobs arrive over time, each a DAG of containers with a user who waits; clusters have `k` slots and a queue each, come, go
//! and change their speed; run times are not known exactly. Decide what runs where and when, so that users wait little, and none without
//! bound.
//!
//! **Source.** The article on FDN, the function delivery network, for the model and the names of the comparators; late binding is the
//! response of list scheduling to costs that are not known beforehand. A plan made for a whole job on arrival reserves slots ahead, and
//! the gaps between reservations are lost to later jobs (see [`crate::place::HeuOrche`]); here nothing is reserved. A container is bound
//! to a cluster when its parents are done ([`Choice`]), its data goes there ([`Delivery`]), it waits in the cluster's queue ([`Order`])
//! and starts when a slot is free.
//!
//! **Readings.**
//! - The expected finish of a container counts the unfinished work bound to a cluster, whatever its order in the queue: that work fills
//!   the slots, each from the time when it is expected to be free.
//! - The remaining work of a job is the work of its unfinished containers; running ones count in full.
//! - The queued work of a cluster is the remaining run time of the containers bound there and not done.
//! - "Room" at the nearest cluster means resources, not slots: with slots the rule would balance load, whereas the article finds it the
//!   worst of all for large jobs.
//! - Round robin continues from container to container and from job to job, skipping clusters that cannot run the container.
//! - Pre-emption happens at events of the cluster, not at the moment when two remaining times cross: there, two containers would
//!   alternate without end.
//! - Resources held per container ([`Hold::Task`](crate::place::Hold::Task)) are taken when it starts; those held per job are reserved
//!   for all its containers before the first is bound, so that jobs never deadlock.
//! - Containers that a lost cluster ran or had queued are bound anew and start over. Finished ones are not run again: outputs are kept by
//!   the network, not by the cluster that produced them.
//!
//! **Use.** [`Online`] is driven by [`Online::arrive`] and [`Online::apply`] and returns [`Action`]s, which the caller carries out and
//! reports on. Time is an argument; a duplicate or late event is [`Handled::Stale`] and has no effect. At its bounds ([`Limits`]) it
//! refuses the next job; it never drops one.
//!
//! **Complexity.** For n clusters of k slots, J jobs in progress, w containers of a job in one queue: a container is bound in O(n (k +
//! parents)), queued, started or finished in O(log J + log w + k), and when it ends its job is re-keyed in every queue, O(n log J), if
//! the order depends on remaining work. An arrival costs O(n m + |E|) for m tasks. Losing a cluster and changing a speed visit every task
//! in progress. Nothing is allocated once places, queues and buffers have grown; memory is O(tasks + n J).
//!
//! **Invariants.** Each container of an accepted job finishes exactly once, however often it is bound; at most one attempt of it is live.
//! It starts after its parents are done and its data has arrived. A slot runs one container. What is held never exceeds a cluster's
//! capacity. A slot is idle beside a non-empty queue only for lack of resources.

mod admit;
mod bind;
mod cluster_state;
mod dispatch;
mod heap;
mod hold;
mod job;
mod loss;
mod machine;
mod message;
mod placer;
mod progress;
mod queue;
mod settings;

pub use job::Work;
pub use machine::Online;
pub use message::{Action, Event, Handled, Input, JobRef, Refused, RunRef};
pub use placer::EventDriven;
pub use settings::{Choice, Delivery, Limits, Order, Settings, Starvation};
