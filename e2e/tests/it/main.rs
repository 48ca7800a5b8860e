//! The whole network as separate processes, as its users meet it.

mod deploy;
mod forms;
mod functions;
mod images;
mod join;
mod network;
mod rollback;
mod soak;
mod uploads;
mod workflows;
