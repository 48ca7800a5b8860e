//! What is soak altogether: no small form of it is in the gate.

mod clock;
mod cluster;
mod controllers;
mod disk_full;
mod endurance;
mod jobs;
mod region;
mod rotation;
mod runbook;
mod servers;
mod tutorial;
mod upgrade;
