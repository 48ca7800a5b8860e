//! `fdn top`: shows the current activity of clusters, nodes and apps, updated periodically.

mod screen;
pub mod view;

use std::time::Duration;

use clap::ValueEnum as _;
use fdn_core::figures::FiguresBy;
use fdn_core::{DurationMs, ErrorCode};
use fdn_service::signal;
use futures::future::{BoxFuture, try_join_all};
use tokio::time::MissedTickBehavior;

use super::target;
use crate::args::{SortBy, TopArgs};
use crate::client::Client;
use crate::console::Console;
use crate::environment::Environment;
use crate::error::{CliError, render};
use crate::output::Format;
use screen::Screen;
use view::{Responses, Top};

/// The shortest interval between updates: nodes' reports are a second old or more.
const INTERVAL_MIN: DurationMs = DurationMs::from_millis(500);
/// The read timeout; the controller answers these requests from memory.
const IDLE: Duration = Duration::from_secs(10);

/// Runs the command.
///
/// # Errors
/// When the controller cannot be reached at the start, or the terminal is closed.
pub async fn run(args: &TopArgs, env: &Environment, console: &mut Console) -> Result<(), CliError> {
    let target = target(&args.connect, env)?;
    let client = Client::with_idle(&target, IDLE)?;
    let responses = ask(&client).await?;
    let once = args.once || args.output.output != Format::Table || !console.out_is_terminal();
    if once {
        let top = Top::new(&responses, fdn_service::now(), args.sort);
        return console.report(args.output.output, &top);
    }
    watch(&client, responses, args).await
}

/// Redraws until `q`, Ctrl-C or SIGTERM.
async fn watch(client: &Client, mut responses: Responses, args: &TopArgs) -> Result<(), CliError> {
    let mut screen = Screen::enter()?;
    let mut keys = screen::keys();
    let mut stop = Box::pin(signal::stop());
    let mut sort = args.sort;
    let mut trouble = String::new();
    // Keys and signals are handled while a request is pending.
    let mut pending: Option<BoxFuture<'_, Result<Responses, CliError>>> = None;
    let mut tick = tokio::time::interval(args.interval.max(INTERVAL_MIN).as_duration());
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick fires at once, but its data was already requested.
    tick.tick().await;
    loop {
        let top = Top::new(&responses, fdn_service::now(), sort);
        let head = format!(
            "sorted by {}; s: another column, q: end\n{trouble}",
            name(sort)
        );
        let room = screen.height().saturating_sub(head.lines().count());
        screen.show(&format!("{head}{}", top.fit_lines(room)))?;
        tokio::select! {
            stopped = &mut stop => {
                stopped?;
                return Ok(());
            }
            key = keys.recv() => match key {
                Some('q') | None => return Ok(()),
                Some('s') => sort = next(sort),
                Some(_) => {}
            },
            _ = tick.tick(), if pending.is_none() => pending = Some(Box::pin(ask(client))),
            answer = answered(&mut pending) => {
                pending = None;
                match answer {
                    Ok(answer) => {
                        responses = answer;
                        trouble.clear();
                    }
                    // A controller that restarts is not a reason to end.
                    Err(error) => trouble = render(&error),
                }
            }
        }
    }
}

/// The answer to the pending request; never completes if there is none.
async fn answered(
    pending: &mut Option<BoxFuture<'_, Result<Responses, CliError>>>,
) -> Result<Responses, CliError> {
    match pending {
        Some(pending) => pending.await,
        None => std::future::pending().await,
    }
}

fn name(sort: SortBy) -> String {
    sort.to_possible_value()
        .map(|value| value.get_name().to_owned())
        .unwrap_or_default()
}

/// The next column.
fn next(sort: SortBy) -> SortBy {
    let all = SortBy::value_variants();
    let place = all.iter().position(|one| *one == sort).unwrap_or_default();
    all[(place + 1) % all.len()]
}

/// Requests everything. A caller without permission to see machines gets only the apps.
async fn ask(client: &Client) -> Result<Responses, CliError> {
    let apps = async { tokio::try_join!(client.apps(None, None), client.figures(FiguresBy::App)) };
    let machines = async {
        let clusters = client.clusters().await?;
        let details = clusters.iter().map(|info| client.cluster(&info.cluster));
        tokio::try_join!(try_join_all(details), client.figures(FiguresBy::Cluster))
    };
    let (apps, machines) = tokio::join!(apps, machines);
    let (clusters, by_cluster) = if_permitted(machines)?.unwrap_or_default();
    let (apps, by_app) = if_permitted(apps)?.unwrap_or_default();
    Ok(Responses {
        clusters,
        by_cluster,
        apps,
        by_app,
    })
}

/// `None` if the request was forbidden.
fn if_permitted<A, B>(
    answer: Result<(A, B), CliError>,
) -> Result<Option<(A, Option<B>)>, CliError> {
    match answer {
        Ok((list, figures)) => Ok(Some((list, Some(figures)))),
        Err(CliError::Problem(problem)) if problem.code == ErrorCode::Forbidden => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_leads_through_all_columns() {
        let mut seen = vec![SortBy::default()];
        while seen.len() < SortBy::value_variants().len() {
            let after = next(seen[seen.len() - 1]);
            assert!(!seen.contains(&after), "{after:?}");
            seen.push(after);
        }
        assert_eq!(next(seen[seen.len() - 1]), SortBy::default());
        assert_eq!(name(SortBy::P99), "p99");
    }
}
