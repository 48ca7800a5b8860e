//! The simulator as its users see it: files in, figures out.

mod data;
mod e4;
mod optimistic;
mod paper;
mod scaling;
mod scaling_optimistic;
