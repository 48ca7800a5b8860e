//! Parses what belongs to an app: secrets, schedules, domains, objective, labels, DNS settings.

use serde_json::Value;

use fdn_core::SecretName;
use fdn_service::secret::Secret;

use super::{App, Position, Reader, SecretSource, Workload};
use crate::input;

/// Used instead of the parser's message, which might quote a secret value.
const HOW: &str = "the value of a secret never stands in a file; say where it is: { env: NAME } or { file: PATH }, - for standard input";

impl<'a> Position<'a> {
    fn below(&self, name: &str) -> Position<'a> {
        Position {
            source: self.source,
            line: self.line,
            path: format!("{}.{name}", self.path),
        }
    }
}

impl Reader<'_> {
    /// Parses a field of an app other than what it runs.
    pub(super) fn part(
        &mut self,
        position: &Position<'_>,
        (field, value): (&str, &Value),
        app: &mut App,
    ) {
        match field {
            "secrets" => self.secrets(position, value, app),
            "schedules" => {
                for (at, name, schedule) in self.named(position, value) {
                    let (name, schedule) = (self.parse(&at, &name), self.value(&at, &schedule));
                    app.schedules.extend(name.zip(schedule));
                }
            }
            "domains" => {
                let hosts: Option<Vec<_>> = self.value(position, value);
                app.domains.extend(hosts.into_iter().flatten());
            }
            "objective" if is_empty(value) => app.objective = Some(None),
            "objective" => {
                let wanted: Option<fdn_core::rollout::Objective> = self.value(position, value);
                let wrong = wanted.as_ref().and_then(|wanted| wanted.check().err());
                self.record_mistake(position, wrong);
                app.objective = wanted.map(Some);
            }
            "labels" => app.labels = self.value(position, value),
            "version_labels" => app.version_labels = self.value(position, value),
            "dns" => self.dns(position, value, app),
            _ => self.mistakes.push(position.mistake(
                "it is not known; an app has component, image or workflow, manifest, policy, traffic, secrets, schedules, domains, objective, labels, version_labels and dns",
            )),
        }
    }

    /// Reports fields that are not allowed for what the app runs.
    pub(super) fn check_fields(&mut self, whole: &Position<'_>, app: &App) {
        if !matches!(app.workload, Some(Workload::Workflow(_))) {
            return;
        }
        if !app.secrets.is_empty() {
            let what = "a workflow has no secrets; set those of the functions that it runs";
            self.mistakes.push(whole.below("secrets").mistake(what));
        }
        if app.version_labels.is_some() {
            let what = "versions of a workflow have no labels; labels: are those of the app itself";
            let position = whole.below("version_labels");
            self.mistakes.push(position.mistake(what));
        }
    }

    /// The entries of a field by name, each with its position.
    fn named<'s>(
        &mut self,
        position: &Position<'s>,
        value: &Value,
    ) -> Vec<(Position<'s>, String, Value)> {
        let Value::Object(entries) = value else {
            let what = "names, each with what it stands for";
            self.mistakes.push(position.mistake(what));
            return Vec::new();
        };
        let entries = entries.iter();
        entries
            .map(|(name, value)| (position.below(name), name.clone(), value.clone()))
            .collect()
    }

    fn secrets(&mut self, position: &Position<'_>, value: &Value, app: &mut App) {
        for (at, name, from) in self.named(position, value) {
            let name: Option<SecretName> = self.parse(&at, &name);
            app.secrets.extend(name.zip(self.secret_source(&at, &from)));
        }
    }

    fn secret_source(&mut self, position: &Position<'_>, from: &Value) -> Option<SecretSource> {
        let fields = match from {
            Value::Object(fields) if fields.len() == 1 => fields.iter().next(),
            _ => None,
        };
        let given = match fields {
            Some((key, Value::String(name))) if key == "env" => match self.env.get(name) {
                Some(value) => Ok(SecretSource {
                    value: Secret::new(value),
                    from: format!("the environment variable {name}"),
                }),
                None => Err(format!(
                    "the environment variable {name} is not set, or empty"
                )),
            },
            Some((key, Value::String(path))) if key == "file" => self.in_file(position, path),
            _ => Err(HOW.to_owned()),
        };
        let told = given.map_err(|what| self.mistakes.push(position.mistake(what)));
        told.ok()
    }

    fn in_file(&mut self, position: &Position<'_>, path: &str) -> Result<SecretSource, String> {
        let is_input = path == "-";
        if is_input && std::mem::replace(&mut self.input_used, true) {
            return Err("standard input is read once".to_owned());
        }
        let found = match is_input {
            true => path.into(),
            false => position.source.folder.join(path),
        };
        let value = input::secret_value(&found).map_err(|error| error.to_string())?;
        Ok(SecretSource {
            value: Secret::new(value),
            from: match is_input {
                true => "standard input".to_owned(),
                false => format!("the file {}", found.display()),
            },
        })
    }
}

pub(super) fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty)
}
