//! The scheduler of invocations: worked examples, a slow oracle that shares no code with it, properties, limits.

mod admission_queue;
mod amount;
mod checker;
mod examples;
mod histogram;
mod limits;
mod naive;
mod oracle;
mod policies;
mod queue;
mod scaling;
mod world;
