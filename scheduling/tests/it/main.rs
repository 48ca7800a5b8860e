//! Tests of the crate through its public interface: worked examples with published numbers, properties over random instances,
//! and slow oracles that share no code with what they judge.

mod best;
mod checker;
mod commit;
mod compete;
mod compete_memory;
mod exact;
mod examples;
mod explain;
mod flapping;
mod insertion;
mod instance;
mod instances;
mod invocation;
mod lists;
mod online;
mod oracle;
mod policies;
mod properties;
mod purity;
mod random;
mod record;
mod resource;
mod scale;
mod steer;
