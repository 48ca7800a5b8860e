//! What is soak altogether: no small form of it is in the gate.

mod cluster;
mod endurance;
mod jobs;
mod tutorial;
mod upgrade;
