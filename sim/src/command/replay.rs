//! `fdn sim replay`: planning passes that a controller recorded, made again.

use std::fmt::Write as _;
use std::io::Write;
use std::path::PathBuf;

use clap::ValueHint;

use super::{Format, print, print_json};
use crate::Error;
use crate::progress::Progress;
use crate::replay::{Policy, Replay, replay};
use crate::report::{Cell, Table};

/// Arguments of `fdn sim replay`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The folder in which a controller recorded its planning passes (`planner.record`)
    #[arg(value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    folder: PathBuf,
    /// Also what another rule would have cost; may be given again and again
    #[arg(long = "policy", value_enum, value_name = "NAME")]
    policies: Vec<Policy>,
    /// How the result is printed
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

pub(super) fn run(args: &Args, out: &mut dyn Write, progress: &dyn Progress) -> Result<(), Error> {
    let mut policies = args.policies.clone();
    let mut seen = std::collections::BTreeSet::new();
    policies.retain(|policy| seen.insert(*policy));
    let replayed = replay(&args.folder, &policies, progress)?;
    match args.output {
        Format::Json => print_json(out, &replayed)?,
        Format::Table => print(out, &text(&replayed))?,
    }
    if replayed.passes_differing > 0 {
        return Err(Error::Differs {
            passes: replayed.passes,
            differing: replayed.passes_differing,
        });
    }
    Ok(())
}

fn text(replayed: &Replay) -> String {
    let seconds = replayed.to_ms.saturating_sub(replayed.from_ms) as f64 / 1000.0;
    let same = match replayed.passes_differing {
        0 => "all the same, to the last bit".to_owned(),
        some => format!("{some} passes decided otherwise"),
    };
    let title = format!(
        "{} passes over {seconds:.1} s in {} segments, {} decisions: {same}",
        replayed.passes, replayed.segments, replayed.decisions
    );
    let columns = [
        "policy",
        "mean ms",
        "p99 ms",
        "not served",
        "moves",
        "load moved",
        "MiB missing",
    ];
    let mut table = Table::new(title, &columns);
    let number = |number: Option<f64>, digits| {
        number.map_or(Cell::Empty, |number| Cell::Number(number, digits))
    };
    for cost in &replayed.costs {
        table.row([
            Cell::from(cost.policy),
            number(cost.mean_ms, 2),
            number(cost.p99_ms, 2),
            Cell::Number(cost.unserved_share, 3),
            cost.moves.map_or(Cell::Empty, Cell::from),
            number(cost.moved_share, 3),
            Cell::Number(cost.memory_missing_mib, 0),
        ]);
    }
    let mut text = table.text();
    for one in &replayed.differences {
        let _ = write!(
            text,
            "\npass {}, at {} ms, {}:\n  recorded {}\n  replayed {}\n",
            one.pass, one.at_ms, one.what, one.recorded, one.replayed
        );
    }
    if replayed.damages > 0 {
        let _ = writeln!(text, "\n{} places were skipped:", replayed.damages);
    }
    for damaged in &replayed.damaged {
        let _ = writeln!(
            text,
            "  {}, bytes {} to {}: {}",
            damaged.segment, damaged.from, damaged.to, damaged.why
        );
    }
    text
}
