//! Tests of the command line from outside: help and output as golden files, commands against a fake controller, the program with its
//! exit codes, and a whole network in a process.

mod account;
mod apply;
mod billing;
mod binary;
mod calls;
mod commands;
mod deploy;
mod dev;
mod doctor;
mod end_to_end;
mod fleet;
mod function;
mod golden;
mod golden_output;
mod help;
mod invoke;
mod jobs;
mod logs;
mod resolver;
mod support;
mod tls;
mod top;
mod trace;
