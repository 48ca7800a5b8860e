//! The DNS server over real sockets, asked by an independent client (`dig`) and by hand-made messages.

mod common;
mod controller;
mod health;
mod process;
mod protocol;
mod state;
mod tcp;
