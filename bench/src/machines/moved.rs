//! How long it takes until the machines of a controller that is killed are at another one, and how many of them come at once.
//!
//! Two controllers share a database: one is a process of its own and is killed with SIGKILL, so that its connections end as the kernel ends them; the other
//! one is this process. The machines have the settings that machines have.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use fdn_bus::{Limits, MemoryBroker};
use fdn_controller::{Controller, Settings};
use fdn_link::ControllerLinkSettings;
use serde_json::json;
use tokio::sync::watch;

use super::{CHILD, Heard, Line, next, row, start};
use crate::Options;

/// The hidden argument with which this program is a controller.
pub(crate) const CONTROLLER: &str = "__controller";
/// How long all may take to be connected.
const PATIENCE: Duration = Duration::from_secs(300);
/// What counts as at once, in milliseconds.
const AT_ONCE: u64 = 100;

fn file(folder: &Path) -> PathBuf {
    folder.join("settings.json")
}

/// Keeps the settings for the controller that dies.
pub(super) fn keep(settings: &Settings, folder: &Path) -> Result<()> {
    Ok(std::fs::write(file(folder), serde_json::to_vec(settings)?)?)
}

/// The pause between two machines that begin.
pub(super) fn pace(controllers: usize) -> Duration {
    match controllers {
        1 => Duration::from_millis(1),
        // A connection's handshake takes both ends' processor, and times out as it does for machines.
        _ => Duration::from_millis(5),
    }
}

/// A controller, until it is killed.
pub(crate) fn controller(settings: &Path) -> Result<()> {
    let settings: Settings = serde_json::from_slice(&std::fs::read(settings)?)?;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let broker = Arc::new(MemoryBroker::new(Limits::default()));
        let starting = Controller::start_with(settings, broker, fdn_runtime::Compiler::InProcess);
        let controller = starting.await?;
        println!("{}", serde_json::to_string(&controller.edge_address())?);
        std::future::pending::<Result<()>>().await
    })
}

/// Notes when a machine is connected again.
pub(super) async fn watch(mut connected: watch::Receiver<bool>, heard: Arc<Heard>) {
    let mut before = false;
    while connected.wait_for(|up| *up).await.is_ok() {
        if before {
            heard.back();
        }
        before = true;
        if connected.wait_for(|up| !*up).await.is_err() {
            return;
        }
    }
}

/// Connects all machines to two controllers, kills one, and prints when its machines were at the other one.
pub(super) async fn measure(
    options: &Options,
    stays: &Controller,
    (list, folder): (&Path, &Path),
    count: usize,
) -> Result<()> {
    let settings = file(folder).display().to_string();
    let (mut dies, _to, mut from) = start([CONTROLLER, &settings])?;
    let mut line = String::new();
    let read = tokio::task::block_in_place(|| std::io::BufRead::read_line(&mut from, &mut line))?;
    ensure!(read > 0, "the other controller does not start");
    let other: std::net::SocketAddr = serde_json::from_str(&line)?;
    let both = format!("{},{other}", stays.edge_address());
    let (mut machines, mut to, mut from) = start([CHILD, &list.display().to_string(), &both])?;
    let measured = async {
        // They tell of apps as well, which were there before.
        while !matches!(next(&mut from)?, Line::Up { .. }) {}
        let here = connected(stays);
        let killed = fdn_service::now().get();
        dies.kill()?;
        until(stays, count).await?;
        to.write_all(b"back\n")?;
        let ms = loop {
            if let Line::Back { ms } = next(&mut from)? {
                break ms;
            }
        };
        let mut after: Vec<u64> = ms.iter().filter_map(|at| at.checked_sub(killed)).collect();
        after.sort_unstable();
        tell(options, &after, count - here.min(count))
    };
    let measured = measured.await;
    machines.kill()?;
    machines.wait()?;
    dies.kill()?;
    dies.wait()?;
    measured
}

fn connected(controller: &Controller) -> usize {
    controller.state().edge.machines.connected().len()
}

async fn until(controller: &Controller, count: usize) -> Result<()> {
    let begin = Instant::now();
    while connected(controller) < count {
        ensure!(
            begin.elapsed() < PATIENCE,
            "{} of {count} machines came",
            connected(controller)
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // The feeds of the last ones begin.
    tokio::time::sleep(Duration::from_secs(2)).await;
    Ok(())
}

fn tell(options: &Options, after: &[u64], moved: usize) -> Result<()> {
    let last = *after.last().context("no machine moved")?;
    let at = |part: usize| after.get((after.len() - 1) * part / 100).copied();
    let (median, late) = (at(50).unwrap_or_default(), at(99).unwrap_or_default());
    let most = busiest(after);
    let spread = ControllerLinkSettings::default().spread.as_millis();
    row(
        "a controller of two is killed",
        &format!(
            "its {moved} machines are at the other one after {median} ms (median), {late} ms (99 of 100) and {last} ms (the last); \
             {most} of them within {AT_ONCE} ms at most, of a spread of {spread} ms"
        ),
    );
    options.write_json(json!({
        "moved": {
            "machines": options.machines,
            "moved": moved,
            "connections": after.len(),
            "spread_ms": spread,
            "median_ms": median,
            "p99_ms": late,
            "last_ms": last,
            "most_in_100_ms": most,
        }
    }))
}

/// The most that came within [`AT_ONCE`], of sorted times.
fn busiest(after: &[u64]) -> usize {
    let within = |first: usize| {
        let end = after[first] + AT_ONCE;
        after.partition_point(|at| *at < end) - first
    };
    (0..after.len()).map(within).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_come_at_once_are_counted_wherever_they_come() {
        assert_eq!(busiest(&[]), 0);
        assert_eq!(busiest(&[0, 50, 99, 100, 150, 198, 400]), 4);
        assert_eq!(busiest(&[5, 5, 5, 500]), 3);
    }
}
