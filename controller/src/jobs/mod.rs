//! Execution of jobs. Any number of controllers run jobs at the same time; the metadata store holds the state of each job and who has it.
//!
//! | module | does |
//! | --- | --- |
//! | [`change`] | the only way in which the state of a job changes |
//! | `bounds` | the limits on running jobs, of an app and of a function |
//! | `dispatcher` | receives tickets, shares capacity between tenants, starts attempts |
//! | `turns` | lets the queue of one tenant not delay those of others |
//! | [`plan`] | chooses the cluster of an attempt, over live state |
//! | `own` | counts the attempts of this dispatcher at each node |
//! | `attempt` | one attempt: claimed, sent to a gateway, judged, recorded |
//! | [`sweep`] | what no ticket announces: expired leases, expired jobs, broken submissions, schedules that are due |
//! | [`webhooks`] | notifies others of the end of jobs, and of budget alerts |
//!
//! A ticket from the broker only wakes a dispatcher. It is acknowledged when the job's attempt is recorded, so the broker redelivers it if a
//! dispatcher crashes; but nothing depends on that, since dispatchers also poll the store, tenant by tenant. Polling also keeps the shares fair
//! however long the queue is, and finds jobs whose back-off is over.

pub(crate) mod attempt;
mod bounds;
pub mod change;
mod dispatcher;
mod expected;
mod own;
pub mod plan;
pub mod sweep;
mod turns;
pub mod webhooks;

pub(crate) use dispatcher::run;
