//! The program `fdn`; everything is in the library.

use std::process::ExitCode;

use clap::Parser as _;
use fdn_cli::args::Cli;
use fdn_cli::console::Console;
use fdn_cli::environment::Environment;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // `fdn up` compiles components in a separate process with limits, which is this same program.
    let mut words = std::env::args_os().skip(1);
    if words
        .next()
        .is_some_and(|word| word == fdn_runtime::COMPILE_WORKER_ARG)
    {
        return fdn_runtime::compile_worker_main(words);
    }
    let cli = Cli::parse();
    let env = Environment::of_process();
    let mut console = Console::of_process(cli.color, &env);
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            console.note(&format!("fdn: error: no threads could be started: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let exit = runtime.block_on(fdn_cli::main_with(&cli, &env, &mut console));
    // A pending read of standard input must not delay the end of the process.
    runtime.shutdown_background();
    exit.into()
}
