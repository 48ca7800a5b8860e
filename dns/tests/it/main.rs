//! The DNS server over real sockets, queried with an independent client (`dig`) and with hand-made messages.

mod alone;
mod certificates;
mod common;
mod controller;
mod defence;
mod dnssec;
mod docs;
mod encrypted;
mod endpoints;
mod fuzz;
mod health;
mod identity;
mod keys;
mod process;
mod protocol;
mod records;
mod relay;
mod revision;
mod rules;
mod state;
mod steering;
mod tcp;
mod texts;
mod transfer;
mod validator;
