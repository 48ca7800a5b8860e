//! `fdn sim paper`: every experiment.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::ValueHint;

use super::{json, print, written};
use crate::Error;
use crate::input::data_directory;
use crate::paper::{ALL, Context, Effort, Experiment};
use crate::progress::Progress;
use crate::report::{Outcome, gates};

/// Arguments of `fdn sim paper`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder for a JSON file, a Markdown file and the plots of each experiment
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    out: Option<PathBuf>,
    /// Folder of the recorded traces; without it $FDN_DATA, or shared/data here or in a folder above
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    data: Option<PathBuf>,
    /// Run these experiments only; may be given several times
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Run a small part of each, to see that everything works
    #[arg(long)]
    quick: bool,
}

pub(super) fn run(args: &Args, out: &mut dyn Write, progress: &dyn Progress) -> Result<(), Error> {
    let chosen = choose(&args.only)?;
    let data = args.data.clone().or_else(data_directory);
    let context = Context {
        data: data.as_deref(),
        effort: if args.quick {
            Effort::Quick
        } else {
            Effort::Full
        },
        progress,
    };
    for experiment in chosen {
        print(
            out,
            &format!("== {}: {}\n\n", experiment.name(), experiment.title()),
        )?;
        if experiment.needs_data() && data.is_none() {
            print(
                out,
                "left out: needs the recorded traces; name their folder with --data\n\n",
            )?;
            continue;
        }
        let outcome = experiment.run(&context)?;
        print(out, &text(&outcome))?;
        if let Some(folder) = &args.out {
            save(folder, experiment, &outcome)?;
        }
    }
    Ok(())
}

fn choose(only: &[String]) -> Result<Vec<&'static dyn Experiment>, Error> {
    if only.is_empty() {
        return Ok(ALL.to_vec());
    }
    let find = |name: &String| {
        let found = ALL.iter().find(|experiment| experiment.name() == name);
        found.copied().ok_or_else(|| {
            let names: Vec<&str> = ALL.iter().map(|experiment| experiment.name()).collect();
            Error::Usage(format!(
                "no experiment is called {name}; there are {}",
                names.join(", ")
            ))
        })
    };
    only.iter().map(find).collect()
}

fn text(outcome: &Outcome) -> String {
    let mut text = format!("{}\n\n", outcome.conditions);
    for table in &outcome.tables {
        text += &(table.text() + "\n");
    }
    if !outcome.gates.is_empty() {
        text += &(gates(&outcome.gates).text() + "\n");
    }
    for note in &outcome.notes {
        text += &format!("{note}\n");
    }
    text + "\n"
}

fn markdown(experiment: &dyn Experiment, outcome: &Outcome) -> String {
    let mut text = format!("## {}: {}\n\n", experiment.name(), experiment.title());
    text += &format!("{}\n\n", outcome.conditions);
    for table in &outcome.tables {
        text += &(table.markdown() + "\n");
    }
    if !outcome.gates.is_empty() {
        text += &(gates(&outcome.gates).markdown() + "\n");
    }
    for note in &outcome.notes {
        text += &format!("{note}\n\n");
    }
    text
}

fn save(folder: &Path, experiment: &dyn Experiment, outcome: &Outcome) -> Result<(), Error> {
    std::fs::create_dir_all(folder).map_err(written(folder))?;
    let write = |name: String, text: String| {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(written(&path))
    };
    let name = experiment.name();
    write(format!("{name}.json"), json(outcome)?)?;
    write(format!("{name}.md"), markdown(experiment, outcome))?;
    for plot in &outcome.plots {
        write(
            format!("{}.svg", plot.name),
            plot.svg().map_err(Error::Broken)?,
        )?;
    }
    Ok(())
}
