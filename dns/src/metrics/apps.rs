//! Answers by app: a series for each of a limited number of apps, and one for all the others.
//!
//! An app gets its counter when its table is built, so that answering needs no lookup. There are at most `max_named` labels and "other": apps
//! beyond the limit are counted together, and one of them gets a series of its own when its table is next built while there is room.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fdn_core::AppName;
use fdn_service::ServiceError;
use prometheus::{IntCounter, IntCounterVec, Opts, Registry};

/// The default number of apps with a series of their own.
pub const MAX_NAMED: usize = 1000;
/// The label of all other apps. An app of this name is counted there too.
const OTHER: &str = "other";

/// The counters.
#[derive(Debug)]
pub struct AppMetrics {
    answers: IntCounterVec,
    others: IntCounter,
    max_named: usize,
    /// The apps with a series of their own. Locked only while tables are built, never by a query.
    named: Mutex<HashSet<AppName>>,
}

impl AppMetrics {
    /// Creates and registers the metric.
    ///
    /// # Errors
    /// When the name is already registered.
    pub fn new(registry: &Registry) -> Result<Self, ServiceError> {
        let answers = IntCounterVec::new(
            Opts::new(
                "fdn_dns_app_answers_total",
                "Answers for an app's clients, by app; \"other\": apps without a series of their own.",
            ),
            &["app"],
        )?;
        registry.register(Box::new(answers.clone()))?;
        Ok(Self {
            others: answers.with_label_values(&[OTHER]),
            answers,
            max_named: MAX_NAMED,
            named: Mutex::default(),
        })
    }

    /// The same metrics, with at most `max_named` apps that have a series of their own.
    #[must_use]
    pub fn naming(self, max_named: usize) -> Self {
        Self { max_named, ..self }
    }

    /// The counter of an app's answers: its own, or that of all others if the limit is reached.
    #[must_use]
    pub fn counter(&self, app: &AppName) -> IntCounter {
        let mut named = self.named();
        let has_one = named.contains(app);
        if !has_one && (named.len() >= self.max_named || app.as_str() == OTHER) {
            return self.others.clone();
        }
        if !has_one {
            named.insert(app.clone());
        }
        self.answers.with_label_values(&[app.as_str()])
    }

    /// Removes the series of a deleted app, if it had one.
    pub fn forget(&self, app: &AppName) {
        if self.named().remove(app) {
            // This fails only for a label that does not exist.
            drop(self.answers.remove_label_values(&[app.as_str()]));
        }
    }

    fn named(&self) -> MutexGuard<'_, HashSet<AppName>> {
        // The set is valid after every single change.
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use prometheus::{Encoder, TextEncoder};

    use super::*;

    fn app(name: &str) -> AppName {
        name.parse().expect("app")
    }

    #[test]
    fn so_many_apps_have_a_series_and_make_room_when_they_leave() {
        let registry = Registry::new();
        let metrics = AppMetrics::new(&registry).expect("metrics").naming(2);
        let series = || {
            let mut text = Vec::new();
            let encoded = TextEncoder::new().encode(&registry.gather(), &mut text);
            encoded.expect("metrics");
            let text = String::from_utf8(text).expect("text");
            let lines = text.lines().filter_map(|line| line.split_once('{'));
            lines.map(|(_, line)| line.to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(series(), [r#"app="other"} 0"#]);
        for (name, times) in [("one", 1), ("two", 2), ("three", 3), ("four", 4)] {
            metrics.counter(&app(name)).inc_by(times);
        }
        // The app named like the label of the others takes up no series.
        metrics.counter(&app("other")).inc();
        let full = [r#"app="one"} 1"#, r#"app="other"} 8"#, r#"app="two"} 2"#];
        assert_eq!(series(), full);
        metrics.counter(&app("one")).inc();
        metrics.forget(&app("three"));
        metrics.forget(&app("other"));
        metrics.forget(&app("two"));
        assert_eq!(series(), [r#"app="one"} 2"#, r#"app="other"} 8"#]);
        metrics.counter(&app("three")).inc();
        metrics.counter(&app("two")).inc();
        let after = [r#"app="one"} 2"#, r#"app="other"} 9"#, r#"app="three"} 1"#];
        assert_eq!(series(), after);
    }

    #[test]
    fn none_has_one_if_none_is_to() {
        let metrics = AppMetrics::new(&Registry::new())
            .expect("metrics")
            .naming(0);
        metrics.counter(&app("one")).inc();
        assert_eq!(metrics.others.get(), 1);
    }
}
