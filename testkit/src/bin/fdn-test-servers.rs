//! One PostgreSQL and one RabbitMQ for all test programs of a run.
//!
//! Prints a line `export NAME='VALUE'` for each variable that tests read, then `ready`. Exits with the servers when its standard input
//! closes, or on SIGTERM or SIGINT; and with an error when a server ends by itself, since all later tests would fail for that reason only.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use fdn_testkit::postgres::{self, PostgresServer};
use fdn_testkit::rabbitmq::{self, RabbitServer};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

const LOOK: Duration = Duration::from_millis(500);

#[tokio::main]
async fn main() -> Result<()> {
    // Before anything else: the parent may exit while the servers start.
    let mut terminated = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let closed = input_closed();
    let end = async move {
        tokio::select! {
            _ = terminated.recv() => {}
            _ = interrupted.recv() => {}
            _ = closed => {}
        }
    };
    tokio::select! {
        () = end => Ok(()),
        outcome = serve() => outcome,
    }
}

/// Starts the servers and keeps them running; dropping the future stops them. Fails when one of them ends by itself.
async fn serve() -> Result<()> {
    let (postgres, rabbit) = tokio::join!(PostgresServer::start(), RabbitServer::start());
    let (mut postgres, mut rabbit) = (postgres?, rabbit?);
    let lines = [
        export(postgres::URL_VARIABLE, &postgres.url()),
        export(rabbitmq::URL_VARIABLE, &rabbit.url()),
        "ready\n".to_owned(),
    ];
    let mut out = std::io::stdout();
    out.write_all(lines.concat().as_bytes())
        .and_then(|()| out.flush())
        .context("nobody reads the addresses")?;
    loop {
        tokio::time::sleep(LOOK).await;
        if let Some(status) = postgres.ended() {
            bail!("the throw-away PostgreSQL of this run ended by itself: {status}");
        }
        if let Some(status) = rabbit.ended() {
            bail!("the throw-away RabbitMQ of this run ended by itself: {status}");
        }
    }
}

/// A line that a shell can evaluate.
fn export(name: &str, value: &str) -> String {
    format!("export {name}='{}'\n", value.replace('\'', r"'\''"))
}

/// Completes when the other end of standard input is closed.
fn input_closed() -> oneshot::Receiver<()> {
    let (sender, receiver) = oneshot::channel();
    std::thread::spawn(move || {
        let mut scratch = [0; 64];
        while std::io::stdin()
            .read(&mut scratch)
            .is_ok_and(|count| count > 0)
        {}
        // The receiver is gone if the servers ended first.
        let _ = sender.send(());
    });
    receiver
}
