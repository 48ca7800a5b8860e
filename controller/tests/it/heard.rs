//! Captures what controllers in this process log about refused machines. It is one subscriber for the whole process, since controllers log on threads
//! that no test knows.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, Once};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// The kind of a refusal, and the attempt.
type Tried = (String, String);

/// The refusals of each machine with a name from [`fresh`].
static HEARD: Mutex<BTreeMap<String, Vec<Tried>>> = Mutex::new(BTreeMap::new());

/// A name that no other test uses, whose refusals are captured from now on.
pub(crate) fn fresh(kind: &str) -> String {
    static BEGUN: Once = Once::new();
    static NEXT: AtomicU32 = AtomicU32::new(0);
    BEGUN.call_once(|| {
        tracing::subscriber::set_global_default(Ear).expect("nobody else listens");
    });
    let name = format!("thief-{kind}-{}", NEXT.fetch_add(1, Ordering::Relaxed));
    HEARD
        .lock()
        .expect("not poisoned")
        .insert(name.clone(), Vec::new());
    name
}

/// The refusals of a machine so far, in order; `machine` is its full name, as in the log.
pub(crate) fn refusals(machine: &str) -> Vec<Tried> {
    let heard = HEARD.lock().expect("not poisoned");
    let of = heard.iter().find(|(name, _)| machine.ends_with(*name));
    let whole = |(what, tried): &Tried| {
        let tried = tried.strip_prefix(&format!("{machine} tried to "));
        (what.clone(), tried.expect("the whole name").to_owned())
    };
    of.expect("one of these").1.iter().map(whole).collect()
}

/// The expected refusals, in the same form.
pub(crate) fn named(
    expected: impl IntoIterator<Item = (&'static str, &'static str)>,
) -> Vec<Tried> {
    let owned = |(what, tried): (&str, &str)| (what.to_owned(), tried.to_owned());
    expected.into_iter().map(owned).collect()
}

struct Ear;

impl Subscriber for Ear {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // The events that operators see by default.
        metadata.is_event()
            && *metadata.level() <= Level::INFO
            && metadata.target().starts_with("fdn_controller::edge")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut said = Said::default();
        event.record(&mut said);
        let Some(tried) = said.message.strip_prefix("a machine ") else {
            return;
        };
        let refused = tried.strip_suffix("; it was refused");
        let Some(tried) = refused.or_else(|| tried.strip_suffix("; it was left out")) else {
            return;
        };
        let mut heard = HEARD.lock().expect("not poisoned");
        let of = heard
            .iter_mut()
            .find(|(name, _)| said.machine.ends_with(*name));
        if let Some((_, of)) = of {
            of.push((said.what, format!("{} {tried}", said.machine)));
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The relevant fields of an event.
#[derive(Default)]
struct Said {
    machine: String,
    what: String,
    message: String,
}

impl Visit for Said {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let into = match field.name() {
            "machine" => &mut self.machine,
            "what" => &mut self.what,
            "message" => &mut self.message,
            _ => return,
        };
        *into = format!("{value:?}");
    }
}
