//! Parses DNS declarations: text records of names, and the TTL of answers for an app.

use serde_json::Value;
use serde_saphyr::Spanned;

use fdn_core::RecordName;
use fdn_core::app::{PutAppDns, app_ttl_problem};
use fdn_core::txt::{self, SetTxt};

use super::parts::is_empty;
use super::{App, Mistake, Position, Reader, Source};

/// The declared text records of a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Txt {
    /// The complete set of records.
    pub request: SetTxt,
    /// The file of the declaration.
    pub file: String,
    /// The line in it, counted from 1.
    pub line: u64,
}

impl Txt {
    /// A mistake of this declaration that was found only once the network was known.
    #[must_use]
    pub fn mistake(&self, name: &RecordName, what: String) -> Mistake {
        Mistake {
            file: self.file.clone(),
            line: self.line,
            path: format!("txt.{name}"),
            what,
        }
    }
}

impl Reader<'_> {
    /// Parses the text records of a name. Only the network knows whether the name belongs to the tenant; everything else is checked here.
    pub(super) fn txt(&mut self, source: &Source, name: &str, value: &Spanned<Value>) {
        let written = Position::new(source, value, format!("txt.{name}"));
        let name = match RecordName::parse_lenient(name) {
            Ok(name) => name,
            Err(error) => {
                self.record_mistake(&written, Some(error));
                return;
            }
        };
        // The name in canonical form: different spellings must not allow a second declaration.
        let position = Position::new(source, value, format!("txt.{name}"));
        if txt::is_challenge(&name) {
            let what = format!(
                "names with {0} in them are those of clients of certificate authorities, whose values come and go; leave it out, and let the \
                 client set them: fdn dns txt add {name} VALUE",
                txt::CHALLENGE_LABEL
            );
            self.mistakes.push(position.mistake(what));
            return;
        }
        let Some(request) = self.value::<SetTxt>(&position, &value.value) else {
            return;
        };
        let wrong = problems(&request);
        let told = wrong.into_iter().map(|what| position.mistake(what));
        self.mistakes.extend(told);
        if self.is_first(&position) {
            let records = Txt {
                request,
                file: source.name.clone(),
                line: position.line,
            };
            self.declared.txt.insert(name, records);
        }
    }

    /// Parses the TTL of DNS answers for an app; an empty value means the network's default.
    pub(super) fn dns(&mut self, position: &Position<'_>, value: &Value, app: &mut App) {
        app.dns = match is_empty(value) {
            true => Some(PutAppDns::default()),
            false => self.value(position, value),
        };
        let ttl = app.dns.and_then(|request| request.ttl);
        self.record_mistake(position, ttl.and_then(app_ttl_problem));
    }
}

/// All mistakes in text records that do not depend on their name.
fn problems(request: &SetTxt) -> Vec<String> {
    let mut wrong = Vec::new();
    if request.values.is_empty() {
        wrong.push(
            "values: at least one; a name that is left out loses its records with --prune"
                .to_owned(),
        );
    }
    if request.values.len() > txt::VALUES_MAX {
        let (count, most) = (request.values.len(), txt::VALUES_MAX);
        wrong.push(format!(
            "values: {count}, more than {most} are not allowed; leave some out"
        ));
    }
    for (index, value) in request.values.iter().enumerate() {
        if let Some(problem) = txt::value_problem(value, txt::VALUE_MAX) {
            wrong.push(format!("values[{index}]: {problem}"));
        }
        if request.values[..index].contains(value) {
            wrong.push(format!(
                "values[{index}]: it is there already; each value stands once"
            ));
        }
    }
    wrong.extend(request.ttl.and_then(txt::ttl_problem));
    if request.expires_in.is_some() {
        wrong.push(
            "expires_in: what files declare has no end; leave it out, or set such records with fdn dns txt set NAME VALUE --expires-in DURATION"
                .to_owned(),
        );
    }
    wrong
}
