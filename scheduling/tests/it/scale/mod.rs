//! The autoscaler: examples with numbers, and what holds for every course of events.

mod examples;
mod properties;

use fdn_core::Millis;
use fdn_scheduling::scale::{Autoscaler, Keep, Load, Profile, Scaler, Settings, Size};

fn profile(exec: f64, cold: f64) -> Profile {
    Profile {
        exec: Millis::new(exec),
        cold: Millis::new(cold),
    }
}

fn scaler(settings: Settings) -> Autoscaler {
    Autoscaler::new(settings, profile(200.0, 2000.0)).expect("good settings")
}

/// Steady work: as many in execution as given, none waiting.
fn steady(busy: f64, arrivals: u64) -> Load {
    Load {
        arrivals,
        busy,
        executing: busy as u64,
        queued: 0,
    }
}

/// As many instances as were wanted.
fn met(scaler: &Autoscaler) -> Size {
    Size {
        running: scaler.target(),
        pending: 0,
    }
}

/// Ticks every 2 s with the same load and every wish met; the sizes.
fn run(scaler: &mut Autoscaler, from: f64, ticks: u32, load: &Load) -> Vec<u32> {
    (0..ticks)
        .map(|n| {
            let now = Millis::new(from + 2000.0 * f64::from(n));
            let size = met(scaler);
            scaler.tick(now, size, Some(load), Keep::Grace).wanted
        })
        .collect()
}
