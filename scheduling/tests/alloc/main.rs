//! Once their buffers are warm, decisions do not allocate; and what the schedulers of instances hold. One counting allocator sees every module's tests; it counts by thread,
//! so that tests side by side do not see each other.

mod commit;
mod counting;
mod instance;
mod instance_memory;
mod invocation;
mod online;
mod place;
mod resource;
mod scale;
