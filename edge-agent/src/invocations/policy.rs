//! Translates the agent's settings into those of the schedulers.

use fdn_core::{DurationMs, Millis};
use fdn_scheduling::invocation::{
    Fixed, Gdsf, Guard, Histogram, HistogramSettings, KeepAlive, Lru, Order, QueueLimits, Refusal,
    Settings,
};
use fdn_scheduling::scale;

use crate::error::Error;
use crate::settings::{InstanceSettings, KeepAliveName, OrderName, QueueSettings, ScaleSettings};

fn refused(error: impl std::fmt::Display) -> Error {
    Error::Settings(error.to_string())
}

/// A duration in the schedulers' unit.
#[must_use]
pub fn millis(time: DurationMs) -> Millis {
    Millis::from(time.as_duration())
}

/// The settings of an invocation scheduler with at most `waiting` waiting calls.
///
/// # Errors
/// When a setting is invalid.
pub fn scheduler(queue: &QueueSettings, waiting: u32) -> Result<Settings, Error> {
    let order = match queue.order {
        OrderName::Funcsched | OrderName::QueueOrCold | OrderName::UseOrEvict => Order::FuncSched,
        OrderName::Fcfs => Order::Fcfs,
        OrderName::Sjf => Order::Sjf,
        OrderName::Srf => Order::Srf,
    };
    let guard = match queue.starve_after.as_millis() {
        0 => None,
        _ => Some(Guard::new(millis(queue.starve_after), queue.starve_share).map_err(refused)?),
    };
    Ok(Settings {
        order,
        queue_or_cold: matches!(queue.order, OrderName::QueueOrCold | OrderName::UseOrEvict),
        use_before_evicting: queue.order == OrderName::UseOrEvict,
        starvation: guard,
        // Executions are reported by call, and one instance may run several calls at once.
        learn: None,
        queue: QueueLimits {
            total: waiting as usize,
            per_function: queue.per_function as usize,
        },
        ..Settings::default()
    })
}

/// The keep-alive policy for idle instances.
///
/// # Errors
/// When its settings are invalid.
pub fn keep_alive(settings: &InstanceSettings) -> Result<Box<dyn KeepAlive>, Error> {
    Ok(match settings.keep_alive {
        KeepAliveName::Fixed => Box::new(Fixed::new(millis(settings.keep))),
        KeepAliveName::Lru => Box::new(Lru),
        KeepAliveName::Gdsf => Box::new(Gdsf::default()),
        KeepAliveName::Hist => {
            let histogram = HistogramSettings {
                default: millis(settings.keep),
                ..HistogramSettings::default()
            };
            let histogram: Result<Histogram, Refusal> = Histogram::new(histogram);
            Box::new(histogram.map_err(refused)?)
        }
    })
}

/// How long instances are idle before they are paused; `None` if they never are.
#[must_use]
pub fn pause_after(settings: &InstanceSettings) -> Option<Millis> {
    (settings.pause_after.as_millis() > 0).then(|| millis(settings.pause_after))
}

/// The most buckets that a stable window is divided into.
const BUCKETS: f64 = 60.0;

/// The settings of the autoscaler of a function whose instances run `concurrency` calls at once.
#[must_use]
pub fn scale(settings: &ScaleSettings, concurrency: u32) -> scale::Settings {
    let (stable, panic) = (millis(settings.stable), millis(settings.panic));
    // At most half of the panic window, so that the window consists of several buckets.
    let bucket = (stable.get() / BUCKETS).min(panic.get() / 2.0).max(1.0);
    scale::Settings {
        concurrency: f64::from(concurrency),
        headroom: settings.headroom,
        stable,
        panic,
        bucket: Millis::new(bucket),
        panic_factor: settings.panic_factor,
        idle_grace: stable,
        rate_period: panic,
        max: settings.max,
        ..scale::Settings::default()
    }
}

/// Checks the settings of queue, instances and scaling.
///
/// # Errors
/// When a setting cannot work; the text names it.
pub fn check(
    queue: &QueueSettings,
    instances: &InstanceSettings,
    scaling: &ScaleSettings,
) -> Result<(), Error> {
    let bounds = scheduler(queue, instances.waiting)?;
    fdn_scheduling::invocation::Scheduler::new(bounds, keep_alive(instances)?).map_err(refused)?;
    scale(scaling, 1)
        .validate()
        .map_err(|error| Error::Settings(format!("scale: {error}")))?;
    let rules = [
        (
            instances.attempts > 0,
            "instances.attempts must be at least 1",
        ),
        (
            instances.wait.as_millis() > 0,
            "instances.wait must be more than 0",
        ),
        (
            scaling.interval.as_millis() >= 10,
            "scale.interval must be at least 10ms",
        ),
        (
            instances.resume_timeout.as_millis() >= 10,
            "instances.resume_timeout must be at least 10ms",
        ),
        (
            instances.log_lines > 0,
            "instances.log_lines must be at least 1",
        ),
    ];
    match rules.iter().find(|(holds, _)| !holds) {
        Some((_, rule)) => Err(Error::Settings((*rule).to_owned())),
        None => Ok(()),
    }
}
