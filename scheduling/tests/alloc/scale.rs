//! A tick of an autoscaler allocates nothing.

use fdn_core::Millis;
use fdn_scheduling::scale::{
    Autoscaler, Keep, Load, Profile, Proportional, Scaler, Settings, Size,
};

use crate::counting::allocations;

#[test]
fn a_tick_allocates_nothing() {
    let profile = Profile {
        exec: Millis::new(150.0),
        cold: Millis::new(2500.0),
    };
    let settings = Settings::default();
    let scalers: [Box<dyn Scaler>; 2] = [
        Box::new(Autoscaler::new(settings, profile).unwrap()),
        Box::new(Proportional::new(settings).unwrap()),
    ];
    for mut scaler in scalers {
        let count = allocations(|| {
            let mut size = Size::default();
            for n in 0..1000u64 {
                let load = Load {
                    arrivals: n % 7 * 10,
                    busy: (n % 5) as f64,
                    executing: n % 5,
                    queued: n % 3 * 20,
                };
                // Sometimes late, sometimes with nothing to see.
                let now = Millis::new((2000 * n + n % 11 * 900) as f64);
                let seen = (n % 13 != 0).then_some(&load);
                let decision = scaler.tick(now, size, seen, Keep::Grace);
                size.running = decision.wanted;
            }
        });
        assert_eq!(count, 0, "{}", scaler.name());
    }
}
