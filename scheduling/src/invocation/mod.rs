//! Which waiting invocation starts next, in which container, and which containers are kept (FuncSched).
//!
//! **Problem.** Invocations of functions wait for memory on a few workers. An invocation that finds a warm container of its function
//! executes for `E`; any other loads a container first, for `D`, and takes memory `R` away from others, possibly by evicting idle
//! containers. The mean time from arrival to completion (8) is to be minimized.
//!
//! **Source.** The article on FuncSched, scheduling by the functions' time and space features (Peking University): the order is
//! formula (10), see [`Queue`]; the head that does not fit blocks those behind it (9). Keep-alive policies: see [`KeepAlive`].
//! Waiting for a busy container instead of an eviction (*queue or cold*), *use before evicting* and the guard against
//! starvation ([`Guard`]) go beyond the article.
//!
//! **Placement.** An idle container of the function on any worker, the most recently used; else a new one on the worker with
//! most free memory, if it fits there; else on the worker with most free and idle memory, of which idle containers are
//! evicted by the keep-alive policy until it fits; else the invocation waits. Busy containers are never evicted.
//!
//! **Queue or cold.** When the head `f` has `W(f) = 0` and would need an eviction, let `b` be the busy containers of `f` not past their
//! expected end and `n` its waiting invocations: if `b >= 1` and `n*E/b < D`, `f` is skipped, since its own containers are free sooner
//! than a new one is loaded. It is considered again when one of these figures changes or memory becomes free; that a container is past
//! its expected end is noticed with the next event, or `D` later if there is none.
//!
//! **Use before evicting** ([`Settings::use_before_evicting`]). When the head needs an eviction, and invocations wait for the function of
//! the first victim, one of them is started on a warm container instead: evicting it would turn a warm start into a cold one. The head is
//! considered again right after. A head that starts because of its age does not give way.
//!
//! **Readings.** A container is *used* when an invocation takes it; recency means this everywhere. Ties: the smaller index. A function
//! larger than every worker (since a worker was lost) is left out of the order until one is large enough.
//!
//! # Events and actions
//!
//! [`Scheduler`] is a state machine without a clock: every method that reports an event appends [`Action`]s to the caller's buffer. The
//! gateway of an edge node and the simulator call the same methods.
//!
//! | event | method |
//! | --- | --- |
//! | an invocation came, was given up | [`Scheduler::arrive`], [`Scheduler::cancel`] |
//! | a container is loaded, its invocation has ended, it is gone | [`Scheduler::ready`], [`Scheduler::finished`], [`Scheduler::failed`] |
//! | time has passed | [`Scheduler::tick`] at [`Scheduler::next_tick`] |
//! | a scaler has decided on a function | [`Scheduler::scale`], from [`Scheduler::function_state`] |
//! | a worker came, has other memory, is lost | [`Scheduler::add_worker`], [`Scheduler::memory_changed`], [`Scheduler::worker_lost`] |
//! | an autoscaler wants more containers, or fewer | [`Scheduler::set_limit`], [`Scheduler::prewarm`], [`Scheduler::trim`] |
//! | a container was found warm | [`Scheduler::adopt`] |
//! | what those of one group and of one owner may hold | [`Scheduler::join`], [`Scheduler::set_owner`], [`Scheduler::set_bounds`] |
//!
//! Where invocations need no loaded container, only a place to run, [`AdmissionQueue`] applies the same order.
//!
//! ```
//! use fdn_core::{MebiBytes, Millis};
//! use fdn_scheduling::invocation::{Action, Lru, Profile, RequestId, Scheduler, Settings};
//!
//! # fn main() -> Result<(), fdn_scheduling::invocation::Refusal> {
//! let mut scheduler = Scheduler::new(Settings::default(), Box::new(Lru))?;
//! let mut actions = Vec::new();
//! let ms = Millis::new;
//! scheduler.add_worker(ms(0.0), MebiBytes(1024), &mut actions)?;
//! let resize = scheduler.register(Profile::new(ms(40.0), ms(300.0), MebiBytes(512))?)?;
//!
//! // The first invocation loads a container.
//! scheduler.arrive(ms(0.0), RequestId(1), resize, &mut actions)?;
//! let Some(Action::StartCold { container, .. }) = actions.pop() else { panic!() };
//! scheduler.ready(ms(290.0), container, &mut actions)?;
//! scheduler.finished(ms(331.0), container, &mut actions)?;
//! assert_eq!((scheduler.warm(resize), actions.len()), (1, 0));
//!
//! // The second one finds it warm.
//! scheduler.arrive(ms(400.0), RequestId(2), resize, &mut actions)?;
//! assert!(matches!(actions[..], [Action::StartWarm { request: RequestId(2), .. }]));
//! # Ok(())
//! # }
//! ```
//!
//! **Complexity.** O(log F + log N + log m) for each event and each start, F functions with waiting invocations, N containers,
//! m workers; O(N) when a worker is lost. No allocation once the tables have grown.
//!
//! **Bounds.** Waiting invocations in all and of each function, functions, workers ([`Settings`]): at the bound a [`Refusal`].
//! Containers are bounded by the memory of the workers.
//!
//! **Invariants.** `W(j)` is the number of idle containers of `j`. A container serves one invocation at a time. The containers of a
//! worker hold at most its memory, unless that was reduced under busy ones. Every accepted invocation is started, cancelled or still
//! waits; each start is of the smallest key, except for starved and skipped ones.

mod admission_queue;
mod amount;
mod container;
mod dispatch;
mod event;
mod heap;
mod id;
mod inspect;
mod keep_alive;
mod keeping;
mod learn;
mod list;
mod order;
mod profile;
mod queue;
mod refusal;
mod scaling;
mod scheduler;
mod settings;
mod share;
mod starvation;
mod tables;
mod weight;
mod worker;

pub use admission_queue::{AdmissionQueue, Candidate};
pub use event::{Action, ReleaseReason};
pub use id::{ContainerId, FunctionIndex, RequestId, Ticket, WorkerIndex};
pub use inspect::{Activity, ContainerView, WorkerView};
pub use keep_alive::{
    Fixed, Gdsf, Histogram, HistogramSettings, KEEP_DEFAULT, Keep, KeepAlive, Lru,
};
pub use learn::{LearnSettings, LiveProfile};
pub use order::{Order, QUANTUM};
pub use profile::Profile;
pub use queue::{Queue, QueueLimits, Queued};
pub use refusal::Refusal;
pub use scaling::FunctionState;
pub use scheduler::Scheduler;
pub use settings::{Settings, TableLimits};
pub use share::{Bounds, most_of, part_of};
pub use starvation::Guard;
pub use weight::Weight;
