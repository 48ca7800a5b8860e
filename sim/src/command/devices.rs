//! `fdn sim devices`: pods that want slices of devices, on a recorded cluster.

use std::io::Write;
use std::path::PathBuf;

use clap::{ValueEnum, ValueHint};
use fdn_scheduling::resource::DeviceChoice;
use serde::Serialize;

use super::{Format, print, print_json};
use crate::Error;
use crate::devices::{Point, Rule, Run, Settings, nodes, pods, run as simulate};
use crate::progress::Progress;
use crate::report::{Cell, Table};
use crate::seed::Seed;

/// Which device of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Devices {
    /// The one with the most free
    LeastUsed,
    /// The one with the least free that still fits
    MostUsed,
}

impl From<Devices> for DeviceChoice {
    fn from(devices: Devices) -> Self {
        match devices {
            Devices::LeastUsed => Self::LeastUsed,
            Devices::MostUsed => Self::MostUsed,
        }
    }
}

/// Arguments of `fdn sim devices`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Nodes, CSV (also gzip) with the columns sn, cpu_milli, memory_mib, gpu, model
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    nodes_file: PathBuf,
    /// Pods, CSV (also gzip) with the columns cpu_milli, memory_mib, num_gpu, gpu_milli
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pods: PathBuf,
    /// How nodes are compared
    #[arg(long, value_enum, default_value_t)]
    score: Rule,
    /// Which device of the chosen node
    #[arg(long, value_enum, default_value = "most-used")]
    device_choice: Devices,
    /// Draw pods until this share of the devices' capacity has been asked for
    #[arg(long, value_name = "SHARE", default_value_t = 1.15, value_parser = share)]
    requested: f64,
    /// Seed of the draws
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Also what became of each kind of pod, and what of each model is in use
    #[arg(long)]
    detail: bool,
    /// How the result is printed
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// More than this nobody waits for.
const REQUESTED_MAX: f64 = 100.0;

fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| "is not a number".to_owned())?;
    if share > 0.0 && share <= REQUESTED_MAX {
        return Ok(share);
    }
    Err(format!("must be above 0 and at most {REQUESTED_MAX}"))
}

#[derive(Debug, Serialize)]
struct Report {
    nodes: usize,
    gpu_capacity_milli: u64,
    score: &'static str,
    device_choice: &'static str,
    seed: u64,
    pods: u64,
    refused_pods: u64,
    /// Null if no pod was refused.
    first_refusal: Option<PointReport>,
    end: PointReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<Detail>,
}

#[derive(Debug, Serialize)]
struct PointReport {
    requested_gpu_share: f64,
    allocated_gpu_share: f64,
    fragmented_gpu_share: f64,
}

impl From<Point> for PointReport {
    fn from(point: Point) -> Self {
        Self {
            requested_gpu_share: point.requested,
            allocated_gpu_share: point.allocated,
            fragmented_gpu_share: point.fragmented,
        }
    }
}

#[derive(Debug, Serialize)]
struct Detail {
    pods_by_kind: Vec<Kind>,
    gpu_by_model: Vec<Model>,
}

#[derive(Debug, Serialize)]
struct Kind {
    devices: u32,
    each_gpu_milli: u64,
    pods: u64,
    refused_pods: u64,
}

#[derive(Debug, Serialize)]
struct Model {
    model: String,
    allocated_gpu_milli: u64,
    capacity_gpu_milli: u64,
}

pub(super) fn run(args: &Args, out: &mut dyn Write, progress: &dyn Progress) -> Result<(), Error> {
    let nodes = nodes(&args.nodes_file)?;
    let pods = pods(&args.pods)?;
    let settings = Settings {
        rule: args.score,
        devices: args.device_choice.into(),
        requested: args.requested,
        seed: Seed(args.seed),
    };
    let part = progress.begin("devices", 1);
    let found = simulate(&nodes, &pods, &settings)?;
    part.advance(1);
    drop(part);
    let report = report(args, nodes.len(), &found);
    match args.output {
        Format::Json => print_json(out, &report),
        Format::Table => print(out, &text(&report)),
    }
}

fn report(args: &Args, nodes: usize, found: &Run) -> Report {
    let detail = || Detail {
        pods_by_kind: found
            .by_kind
            .iter()
            .map(|(&(devices, each_gpu_milli), fate)| Kind {
                devices,
                each_gpu_milli,
                pods: fate.pods,
                refused_pods: fate.refused,
            })
            .collect(),
        gpu_by_model: found
            .by_model
            .iter()
            .map(|(model, (allocated, capacity))| Model {
                model: model.clone(),
                allocated_gpu_milli: allocated.get(),
                capacity_gpu_milli: capacity.get(),
            })
            .collect(),
    };
    Report {
        nodes,
        gpu_capacity_milli: found.capacity.get(),
        score: args.score.name(),
        device_choice: match args.device_choice {
            Devices::LeastUsed => "least-used",
            Devices::MostUsed => "most-used",
        },
        seed: args.seed,
        pods: found.all.pods,
        refused_pods: found.all.refused,
        first_refusal: found.first_refusal.map(PointReport::from),
        end: found.end.into(),
        detail: args.detail.then(detail),
    }
}

fn text(report: &Report) -> String {
    let columns = ["when", "requested share", "allocated share", "of no use"];
    let title = format!(
        "{} of {} pods refused on {} nodes with {} devices, {}, device {}, seed {}",
        report.refused_pods,
        report.pods,
        report.nodes,
        report.gpu_capacity_milli / 1000,
        report.score,
        report.device_choice,
        report.seed
    );
    let mut table = Table::new(title, &columns);
    let first = report.first_refusal.iter().map(|p| ("first refusal", p));
    for (when, point) in first.chain([("end", &report.end)]) {
        let number = |share| Cell::Number(share, 3);
        table.row([
            Cell::from(when),
            number(point.requested_gpu_share),
            number(point.allocated_gpu_share),
            number(point.fragmented_gpu_share),
        ]);
    }
    let Some(detail) = &report.detail else {
        return table.text();
    };
    let columns = ["devices", "thousandths of each", "pods", "refused"];
    let mut kinds = Table::new("Pods by what they want", &columns);
    for kind in &detail.pods_by_kind {
        kinds.row([
            Cell::from(kind.devices as usize),
            Cell::Number(kind.each_gpu_milli as f64, 0),
            Cell::Number(kind.pods as f64, 0),
            Cell::Number(kind.refused_pods as f64, 0),
        ]);
    }
    let mut models = Table::new("Devices by model", &["model", "devices", "allocated share"]);
    for model in &detail.gpu_by_model {
        let capacity = model.capacity_gpu_milli as f64;
        let share = if capacity > 0.0 {
            Cell::Number(model.allocated_gpu_milli as f64 / capacity, 3)
        } else {
            Cell::Empty
        };
        models.row([
            Cell::from(model.model.as_str()),
            Cell::Number(capacity / 1000.0, 0),
            share,
        ]);
    }
    format!("{}\n{}\n{}", table.text(), kinds.text(), models.text())
}
