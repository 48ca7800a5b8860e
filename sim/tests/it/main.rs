//! The simulator as its users see it: files in, figures out.

mod data;
mod paper;
mod scaling;
