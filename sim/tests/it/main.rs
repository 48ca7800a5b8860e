//! The simulator as its users see it: files in, figures out.

mod autoscale;
mod data;
mod devices;
mod paper;
