//! Who runs jobs. Any number of controllers do so at once; what each job is and whose turn it is stands in the metadata store.
//!
//! | module | does |
//! | --- | --- |
//! | [`change`] | the only way in which a job changes |
//! | `bounds` | how many may run at once, of an app and of a function |
//! | `dispatcher` | takes tickets, shares turns out between tenants, starts attempts |
//! | [`plan`] | which cluster an attempt goes to, over live state |
//! | `attempt` | one attempt: claimed, sent to a gateway, judged, written down |
//! | [`sweep`] | what nobody was told of: leases that ended, jobs too old, submissions that broke, schedules that are due |
//! | [`webhooks`] | telling others of the end, and of alerts of budgets |
//!
//! A ticket from the broker only wakes a dispatcher. It is acknowledged when the job's attempt is written down, so the broker brings it
//! again when a dispatcher is lost; but nothing depends on that, since dispatchers look into the store as well, tenant by tenant. That is also
//! what makes shares fair however long the queue is, and how jobs are found whose pause is over.

pub(crate) mod attempt;
mod bounds;
pub mod change;
mod dispatcher;
mod expected;
pub mod plan;
pub mod sweep;
pub mod webhooks;

pub(crate) use dispatcher::run;
