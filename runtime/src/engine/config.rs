//! The configuration of wasmtime. What determines the machine code is the same for compiling and running and not configurable, so that
//! a node's compiled files stay valid when its operator changes the size of the pool.

use std::hash::{Hash as _, Hasher};
use std::num::NonZeroUsize;
use std::sync::Arc;

use fdn_core::digest::DigestBuilder;
use wasmtime::{
    CacheStore, Config, Enabled, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig,
};

use super::EngineOptions;

/// Address space for each linear memory: with all 4 GiB reserved, compiled code needs no bounds checks.
const MEMORY_RESERVATION: u64 = 4 << 30;
const WASM_STACK: usize = 512 << 10;
const ASYNC_STACK: usize = 1 << 20;
/// Memory, in bytes, that stays mapped when an instance ends and is cleared explicitly, which is cheaper than unmapping it.
const MEMORY_KEPT: usize = 2 << 20;
const TABLE_KEPT: usize = 128 << 10;
const STACK_KEPT: usize = 64 << 10;
/// Components written in JavaScript and Python consist of about 14 core instances that share a memory and some tables.
const CORE_INSTANCES_PER_COMPONENT: u32 = 48;
const TABLES_PER_COMPONENT: u32 = 48;
const MEMORIES_PER_COMPONENT: u32 = 8;
/// The pool as a whole holds this many per instance: not every instance is of the largest kind.
const CORE_INSTANCES_PER_INSTANCE: u32 = 16;
const TABLES_PER_INSTANCE: u32 = 10;
const TABLE_ELEMENTS: usize = 30_000;

/// The settings that determine the machine code.
fn common() -> Config {
    let mut config = Config::new();
    config
        .wasm_component_model(true)
        // wasi:http 0.2 needs no concurrent calls inside an instance, and supporting them costs half of the throughput.
        .concurrency_support(false)
        .epoch_interruption(true)
        .memory_init_cow(true)
        .memory_reservation(MEMORY_RESERVATION)
        .max_wasm_stack(WASM_STACK)
        .async_stack_size(ASYNC_STACK)
        .cranelift_opt_level(OptLevel::Speed)
        // Function names say more about a trap than offsets do, and the address map takes a fifth of a compiled file.
        .generate_address_map(false)
        .native_unwind_info(false)
        // A panic in Rust takes more than a dozen itself.
        .wasm_backtrace_max_frames(NonZeroUsize::new(32));
    config
}

/// An engine that only compiles and has no pool. Functions found in `known` are not compiled again, which does not change the machine code.
pub(crate) fn for_compiling(
    known: Option<Arc<dyn CacheStore>>,
) -> wasmtime::Result<wasmtime::Engine> {
    let mut config = common();
    if let Some(known) = known {
        config.enable_incremental_compilation(known)?;
    }
    wasmtime::Engine::new(&config)
}

/// The configuration of an engine that runs components.
pub(super) fn for_running(options: &EngineOptions) -> Config {
    let instances = options.max_instances;
    let mut pool = PoolingAllocationConfig::default();
    pool.total_component_instances(instances)
        .total_core_instances(instances.saturating_mul(CORE_INSTANCES_PER_INSTANCE))
        // A few components have more than one memory; reserving address space for two in each would be wasted on the others.
        .total_memories(instances.saturating_add(instances / 4).saturating_add(8))
        .total_tables(instances.saturating_mul(TABLES_PER_INSTANCE))
        .total_stacks(instances)
        .max_core_instances_per_component(CORE_INSTANCES_PER_COMPONENT)
        .max_memories_per_component(MEMORIES_PER_COMPONENT)
        .max_tables_per_component(TABLES_PER_COMPONENT)
        .max_tables_per_module(8)
        .max_memories_per_module(2)
        .max_core_instance_size(4 << 20)
        .max_component_instance_size(4 << 20)
        .table_elements(TABLE_ELEMENTS)
        .max_memory_size(options.max_memory.as_usize())
        .linear_memory_keep_resident(MEMORY_KEPT)
        .table_keep_resident(TABLE_KEPT)
        .async_stack_keep_resident(STACK_KEPT)
        .pagemap_scan(Enabled::Auto);
    let mut config = common();
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    config
}

/// Feeds what wasmtime hashes to SHA-256; the standard hasher may differ from one toolchain to the next.
#[derive(Default)]
struct KeyHasher(DigestBuilder);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        let digest = self.0.clone().finish().hex();
        u64::from_str_radix(&digest[..16], 16).expect("16 hexadecimal digits fit 64 bits")
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
}

/// The key of `engine`: sixteen hexadecimal digits.
pub(super) fn key_of(engine: &wasmtime::Engine) -> String {
    let mut hasher = KeyHasher::default();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// The key of the engine for which this program compiles.
pub(crate) fn compatibility_key() -> wasmtime::Result<String> {
    Ok(key_of(&for_compiling(None)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compiled_runs_whatever_the_size_of_the_pool() {
        let compiled = compatibility_key().expect("an engine");
        for max_instances in [1, 50] {
            let options = EngineOptions {
                max_instances,
                ..EngineOptions::default()
            };
            let engine = wasmtime::Engine::new(&for_running(&options)).expect("an engine");
            assert_eq!(key_of(&engine), compiled);
        }
    }
}
