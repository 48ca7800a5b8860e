//! Event-driven placement: the jobs of many users, bound container by container while they run.
//!
//! **Problem.** Jobs arrive over time, each a DAG of containers with a user who waits; clusters have `k` slots and a queue each,
//! come, go and change their speed. Containers take as long as they take. Who runs what, where and when, so that users wait
//! little, and nobody for ever?
//!
//! **Source.** The article on FDN, the function delivery network, for the model and for the names of the comparators; late
//! binding is a list scheduler's answer to costs that are not known beforehand. A plan made for a whole job when it
//! arrives reserves slots for later, and what lies between reservations is lost to the jobs behind (see
//! [`crate::place::HeuOrche`]); here nothing is reserved. A container is bound to a cluster when its parents are done
//! ([`Choice`]), its data goes there ([`Delivery`]), it waits in the cluster's queue ([`Order`]) and starts when a slot is free.
//!
//! **Readings.**
//! - The expected finish of a container counts the work that is bound to a cluster and not done, whatever its order in the
//!   queue: what is ahead fills the slots, each from when it is expected to be free.
//! - The work left of a job is the work of its containers that are not done, running ones whole.
//! - The least queued work is that of containers that are bound and not done, as far as they have not run.
//! - "Room" at the nearest cluster means resources, not slots: with slots as room the rule would spread load, and the article
//!   finds it worst of all for large jobs.
//! - Round robin goes on from container to container and from job to job, past clusters that cannot run the container.
//! - Pre-emption happens when something happens at the cluster, not the moment two remaining times cross: there, two containers
//!   would take turns without end.
//! - Resources held per container are taken when it starts; those held per job are kept for all its containers before the
//!   first is bound, so that jobs never wait for each other's.
//! - What a lost cluster ran or had queued is bound anew and begins again. What has finished is not run again: outputs
//!   are kept by the network, not by the cluster that made them.
//!
//! **Use.** [`Online`] is driven by [`Online::arrive`] and [`Online::apply`] and answers with [`Action`]s, which somebody else
//! carries out and reports on. Time and everything that happens is told to it; what is told twice or late is
//! [`Handled::Stale`] and changes nothing. At its bounds ([`Limits`]) it refuses the next job; it never drops one.
//!
//! **Complexity.** For n clusters of k slots, J jobs under way, w containers of a job in one queue: a container is bound in
//! O(n (k + parents)), queued, started or finished in O(log J + log w + k), and when it ends its job moves in every
//! queue, O(n log J), if the order goes by remaining work. An arrival costs O(n m + |E|) for m tasks. A cluster lost, and a
//! speed changed, look at every task under way. Nothing is allocated once places, queues and buffers are warm; memory is
//! O(tasks + n J).
//!
//! **Invariants.** Each container of a job that was taken finishes exactly once, however often it is bound; at most one attempt
//! of it is live. It starts when its parents are done and its data is there. A slot runs one container. What is held never exceeds
//! what a cluster has. A slot is idle beside a queue only for want of resources.

mod admit;
mod bind;
mod dispatch;
mod heap;
mod hold;
mod job;
mod lane;
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
