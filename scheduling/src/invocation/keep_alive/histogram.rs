//! The hybrid histogram policy.
//!
//! **Source.** Shahrad et al.: Serverless in the Wild (USENIX ATC 2020). The idle times of a function, from the end of a run to the next
//! start, are counted in bins. Once there are enough samples and they are concentrated (coefficient of variation of the bins' counts at
//! least 2), the next invocation is expected between 0.9 times the 5th percentile (rounded down to a bin) and 1.1 times the 99th (rounded
//! up). If the former is above zero, the container is released at once and loaded again then, if memory is free; otherwise it is kept
//! until the latter. Before there are enough samples it is kept for a default time.
//!
//! **Readings.** An idle time is that of the function: from its latest end of a run to its next start, each end counting once, even when
//! other containers of the function were busy in between. Idle times beyond the last bin are not counted. Where memory is needed, the
//! container whose keep-alive time ends first is evicted first. One container is loaded ahead for a function, and none if an invocation
//! came before. The policy's forecast for rare functions (ARIMA) is left out.
//!
//! **Complexity.** O(bins) when a container turns idle after a new sample, else O(1). A function takes 4 bytes for each bin.

use fdn_core::Millis;

use super::{KEEP_DEFAULT, Keep, KeepAlive};
use crate::invocation::id::FunctionIndex;
use crate::invocation::profile::Profile;
use crate::invocation::refusal::Refusal;

/// The settings of [`Histogram`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HistogramSettings {
    /// The width of a bin, above zero.
    pub bin: Millis,
    /// The number of bins, 1 to 100 000; idle times beyond them are not counted.
    pub bins: usize,
    /// How many samples a decision needs.
    pub samples: u64,
    /// The least coefficient of variation of the bins' counts at which they count as concentrated.
    pub variation: f64,
    /// The keep-alive time until the samples are enough and concentrated.
    pub default: Millis,
}

impl Default for HistogramSettings {
    fn default() -> Self {
        Self {
            bin: Millis::new(60_000.0),
            bins: 240,
            samples: 8,
            variation: 2.0,
            default: KEEP_DEFAULT,
        }
    }
}

impl HistogramSettings {
    /// For traces in which a minute passes in 625 ms: bins of 1 s, a default of 6.25 s.
    #[must_use]
    pub fn compressed() -> Self {
        Self {
            bin: Millis::new(1000.0),
            default: Millis::new(6250.0),
            ..Self::default()
        }
    }
}

/// When, after the end of a run, the next invocation is expected.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Window {
    from: Millis,
    until: Millis,
}

#[derive(Clone, Debug, Default)]
struct Row {
    counts: Vec<u32>,
    samples: u64,
    squares: u64,
    ended: Option<Millis>,
    window: Option<Window>,
    is_stale: bool,
}

/// Keeps containers by the idle times of their functions; see the module.
#[derive(Clone, Debug)]
pub struct Histogram {
    settings: HistogramSettings,
    rows: Vec<Row>,
}

impl Histogram {
    /// A policy with these settings.
    ///
    /// # Errors
    /// When a bin has no width or there are none, or more than 100 000.
    pub fn new(settings: HistogramSettings) -> Result<Self, Refusal> {
        let bin = settings.bin;
        if bin <= Millis::ZERO || !bin.is_finite() || !(1..=100_000).contains(&settings.bins) {
            let what = "a histogram has 1 to 100 000 bins of a width above 0";
            return Err(Refusal::InvalidSetting { what });
        }
        Ok(Self {
            settings,
            rows: Vec::new(),
        })
    }
}

impl Row {
    fn add(&mut self, idle: Millis, settings: &HistogramSettings) {
        let bin = idle.get() / settings.bin.get();
        let Some(count) = self.counts.get_mut(bin as usize) else {
            return;
        };
        // (c + 1)^2 - c^2
        self.squares += 2 * u64::from(*count) + 1;
        *count += 1;
        self.samples += 1;
        self.is_stale = true;
    }

    /// The coefficient of variation of the bins' counts: standard deviation over mean.
    fn variation(&self) -> f64 {
        let bins = self.counts.len() as f64;
        let mean = self.samples as f64 / bins;
        let variance = self.squares as f64 / bins - mean * mean;
        variance.max(0.0).sqrt() / mean
    }

    fn decide(&self, settings: &HistogramSettings) -> Option<Window> {
        if self.samples < settings.samples || self.variation() < settings.variation {
            return None;
        }
        let bin = settings.bin.get();
        let low = self.bin_of(0.05) as f64;
        let high = (self.bin_of(0.99) + 1) as f64;
        Some(Window {
            from: Millis::new((0.9 * low).floor() * bin),
            until: Millis::new((1.1 * high).ceil() * bin),
        })
    }

    /// The first bin up to which at least this share of the samples lies.
    fn bin_of(&self, share: f64) -> usize {
        let wanted = share * self.samples as f64;
        let mut below = 0;
        for (bin, &count) in self.counts.iter().enumerate() {
            below += u64::from(count);
            if below as f64 >= wanted {
                return bin;
            }
        }
        self.counts.len().saturating_sub(1)
    }
}

impl KeepAlive for Histogram {
    fn name(&self) -> &'static str {
        "hist"
    }

    fn registered(&mut self, function: FunctionIndex) {
        let rows = self.rows.len().max(function.get() + 1);
        self.rows.resize_with(rows, Row::default);
        let row = &mut self.rows[function.get()];
        let mut counts = std::mem::take(&mut row.counts);
        counts.clear();
        counts.resize(self.settings.bins, 0);
        *row = Row {
            counts,
            ..Row::default()
        };
    }

    fn used(&mut self, now: Millis, function: FunctionIndex, _: &Profile) -> f64 {
        let row = &mut self.rows[function.get()];
        if let Some(ended) = row.ended.take() {
            row.add(now - ended, &self.settings);
        }
        0.0
    }

    fn standing(&self, _: f64, until: Millis) -> f64 {
        until.get()
    }

    /// Treats the container as one that turned idle, but takes no sample of an idle time.
    fn loaded_ahead(&mut self, now: Millis, function: FunctionIndex) -> Millis {
        let window = self.rows[function.get()].window;
        now + window.map_or(self.settings.default, |window| window.until)
    }

    fn turned_idle(&mut self, now: Millis, function: FunctionIndex) -> Keep {
        let row = &mut self.rows[function.get()];
        row.ended = Some(now);
        if row.is_stale {
            row.window = row.decide(&self.settings);
            row.is_stale = false;
        }
        match row.window {
            None => Keep::Until(now + self.settings.default),
            Some(Window { from, until }) if from <= Millis::ZERO => Keep::Until(now + until),
            Some(Window { from, until }) => Keep::Reload {
                at: now + from,
                until: now + until,
            },
        }
    }
}
