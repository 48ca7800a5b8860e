//! The simulator as its users see it: files in, figures out.

mod autoscale;
mod data;
mod devices;
mod invocations;
mod online;
mod optimistic;
mod paper;
mod place;
mod replay;
mod scaled;
mod scaling;
mod scaling_optimistic;
mod soak;
