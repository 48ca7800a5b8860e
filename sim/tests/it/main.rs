//! The simulator as its users see it: files in, figures out.

mod autoscale;
mod data;
mod devices;
mod e4;
mod invocations;
mod online;
mod optimistic;
mod optimum;
mod paper;
mod place;
mod scaled;
mod scaling;
mod scaling_optimistic;
