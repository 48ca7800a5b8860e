//! What is soak altogether: no small form of it is in the gate.

mod cluster;
mod jobs;
mod tutorial;
