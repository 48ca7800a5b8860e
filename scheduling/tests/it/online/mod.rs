//! Event-driven placement: worked examples, properties in worlds where clusters fail, and a slow twin.

mod examples;
mod naive;
mod placers;
mod properties;
mod reservations;
mod world;
