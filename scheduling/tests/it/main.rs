//! Tests of the crate through its public interface: worked examples with published numbers, properties over random instances,
//! and slow oracles that share no code with what they judge.

mod checker;
mod commit;
mod examples;
mod explain;
mod instance;
mod instances;
mod oracle;
mod properties;
mod random;
mod registry;
mod steer;
