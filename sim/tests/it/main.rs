//! The simulator as its users see it: files in, figures out.

mod data;
mod online;
mod optimum;
mod paper;
mod place;
