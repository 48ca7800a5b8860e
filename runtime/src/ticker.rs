//! The clock that cuts guests into slices: one thread for the whole process advances the epoch of every engine once per
//! millisecond. Compiled code checks the epoch on function entry and at loop heads.

use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use wasmtime::EngineWeak;

/// The length of a slice.
pub(crate) const TICK: Duration = Duration::from_millis(1);

struct Ticker {
    engines: Mutex<Vec<EngineWeak>>,
    added: Condvar,
}

static TICKER: OnceLock<Ticker> = OnceLock::new();
static STARTED: OnceLock<Result<(), std::io::ErrorKind>> = OnceLock::new();

/// Advances the epoch of `engine` from now on until the engine is dropped.
pub(crate) fn register(engine: &wasmtime::Engine) -> std::io::Result<()> {
    let ticker = TICKER.get_or_init(|| Ticker {
        engines: Mutex::new(Vec::new()),
        added: Condvar::new(),
    });
    STARTED
        .get_or_init(|| {
            std::thread::Builder::new()
                .name("fdn-epoch".to_owned())
                .spawn(move || run(ticker))
                .map(drop)
                .map_err(|error| error.kind())
        })
        .map_err(std::io::Error::from)?;
    ticker
        .engines
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(engine.weak());
    ticker.added.notify_one();
    Ok(())
}

fn run(ticker: &'static Ticker) {
    loop {
        let mut engines = ticker
            .engines
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        engines.retain(|engine| {
            let engine = engine.upgrade();
            if let Some(engine) = &engine {
                engine.increment_epoch();
            }
            engine.is_some()
        });
        if engines.is_empty() {
            // A process without engines has no reason to wake a thousand times a second.
            drop(ticker.added.wait(engines));
        } else {
            drop(engines);
            std::thread::sleep(TICK);
        }
    }
}
