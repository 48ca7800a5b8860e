//! Parts of the API document that all operations share: the statuses of refusals, the links of lists, the patterns of names.
//!
//! A handler lists only its particular responses; those that follow from its shape (it needs credentials, has a body, is within a tenant) are added
//! here. `scripts/schemathesis.sh` checks real responses against the document: a status that is not listed by number is a failure there.

use std::collections::BTreeMap;

use fdn_core::Problem;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::{Operation, Parameter, ParameterIn, PathItem};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::security::SecurityRequirement;
use utoipa::openapi::{ContentBuilder, OpenApi, Ref, RefOr, Response, ResponseBuilder};

/// The pattern of names in the network: DNS labels.
const LABEL: &str = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$";
/// The pattern of record names: labels, possibly with underscores, joined by dots.
const RECORD: &str = "^[a-z0-9_.-]{1,253}$";
/// The prefix of paths with record names.
const RECORDS: &str = "/v1/dns/txt/";
/// Path parameters that are labels.
const LABELS: [&str; 5] = ["app", "cluster", "node", "name", "set"];

/// Completes the document.
pub(super) struct Common;

impl utoipa::Modify for Common {
    fn modify(&self, document: &mut OpenApi) {
        for (path, item) in &mut document.paths.paths {
            tags(item);
            let pattern = match path.starts_with(RECORDS) {
                true => RECORD,
                false => LABEL,
            };
            for (writes, operation) in operations(item) {
                names(operation, pattern);
                link(operation);
                for (status, what) in refusals(operation, writes) {
                    let responses = &mut operation.responses.responses;
                    responses
                        .entry(status.to_owned())
                        .or_insert_with(|| RefOr::T(problem(what)));
                }
            }
        }
    }
}

/// The operations of a path, each with whether it changes something.
fn operations(item: &mut PathItem) -> impl Iterator<Item = (bool, &mut Operation)> {
    let all = [
        (false, &mut item.get),
        (true, &mut item.put),
        (true, &mut item.post),
        (true, &mut item.delete),
        (true, &mut item.patch),
    ];
    all.into_iter()
        .filter_map(|(writes, operation)| Some((writes, operation.as_mut()?)))
}

fn has(operation: &Operation, place: ParameterIn, name: Option<&str>) -> bool {
    let wanted = |parameter: &RefOr<Parameter>| match parameter {
        RefOr::T(own) => own.parameter_in == place && name.is_none_or(|name| own.name == name),
        RefOr::Ref(_) => false,
    };
    operation.parameters.iter().flatten().any(wanted)
}

/// The refusals that follow from the shape of an operation.
fn refusals(operation: &Operation, writes: bool) -> BTreeMap<&'static str, &'static str> {
    let open = SecurityRequirement::default();
    let mut schemes = operation.security.iter().flatten();
    let secured = schemes.any(|scheme| *scheme != open);
    let mut all = BTreeMap::from([
        ("400", "The request cannot be understood"),
        (
            "429",
            "Too many requests of this kind; `retry-after` says when to come again",
        ),
        ("500", "A fault of the network's own"),
        (
            "503",
            "Something that it takes does not answer now; `retry-after` says when to come again",
        ),
    ]);
    if secured {
        all.insert("401", "No valid credentials were sent");
        all.insert(
            "403",
            "The credentials do not have the right that `x-fdn-right` names",
        );
    }
    if secured || has(operation, ParameterIn::Path, None) {
        all.insert(
            "404",
            "There is no such thing, or none that the caller may know of",
        );
    }
    if writes && operation.operation_id.as_deref() != Some("plan_preview") {
        all.insert("409", "The present state stands against it");
    }
    if has(operation, ParameterIn::Header, Some("if-match")) {
        all.insert("412", "FDN-2013: it has changed since it was read");
    }
    if operation.request_body.is_some() {
        all.insert("413", "The body is larger than allowed");
        all.insert(
            "422",
            "The body can be read, and what it says cannot be done",
        );
    }
    all
}

fn problem(what: &str) -> Response {
    let schema = Ref::from_schema_name("Problem");
    let content = ContentBuilder::new().schema(Some(schema)).build();
    ResponseBuilder::new()
        .description(what)
        .content(Problem::MEDIA_TYPE, content)
        .build()
}

/// Documents the `etag` header where changes can be conditional: in the responses to such changes, and to reads of the same path.
fn tags(item: &mut PathItem) {
    let compares = |operation: &Operation| has(operation, ParameterIn::Header, Some("if-match"));
    let compared = operations(item).any(|(_, operation)| compares(operation));
    for (writes, operation) in operations(item) {
        if !compared || (writes && !compares(operation)) {
            continue;
        }
        if let Some(RefOr::T(answer)) = operation.responses.responses.get_mut("200") {
            let header = HeaderBuilder::new()
                .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
                .description(Some("The tag of what is there now, for `if-match`"))
                .build();
            answer.headers.insert("etag".to_owned(), RefOr::T(header));
        }
    }
}

/// Documents the `link` header to the next page on every list with pages.
fn link(operation: &mut Operation) {
    if !has(operation, ParameterIn::Query, Some("cursor")) {
        return;
    }
    if let Some(RefOr::T(answer)) = operation.responses.responses.get_mut("200") {
        let header = HeaderBuilder::new()
            .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
            .description(Some(
                "The next page as `rel=\"next\"` (RFC 8288); absent on the last one",
            ))
            .build();
        answer.headers.insert("link".to_owned(), RefOr::T(header));
    }
}

/// Adds the patterns of names in paths.
fn names(operation: &mut Operation, pattern: &str) {
    let parameters = operation.parameters.iter_mut().flatten();
    for parameter in parameters {
        let RefOr::T(parameter) = parameter else {
            continue;
        };
        if parameter.parameter_in == ParameterIn::Path && LABELS.contains(&parameter.name.as_str())
        {
            let label = ObjectBuilder::new()
                .schema_type(Type::String)
                .pattern(Some(pattern));
            parameter.schema = Some(RefOr::T(label.into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::openapi_json;

    #[test]
    fn every_operation_says_how_it_refuses() {
        let document: serde_json::Value =
            serde_json::from_str(&openapi_json().expect("the document")).expect("JSON");
        let of = |method: &str, path: &str| document["paths"][path][method].clone();
        let login = of("post", "/v1/login");
        for status in ["200", "400", "401", "413", "422", "429", "503"] {
            assert!(login["responses"][status].is_object(), "{status}");
        }
        assert!(login["responses"]["404"].is_null(), "nothing is looked up");
        let update = of("patch", "/v1/tenants/{tenant}");
        for status in ["200", "401", "403", "404", "409", "412"] {
            assert!(update["responses"][status].is_object(), "{status}");
        }
        for (method, path) in [
            ("get", "/v1/tenants/{tenant}"),
            ("patch", "/v1/tenants/{tenant}"),
            ("get", "/v1/apps/{app}/policy"),
            ("put", "/v1/apps/{app}/policy"),
        ] {
            let answer = &of(method, path)["responses"]["200"];
            assert!(answer["headers"]["etag"].is_object(), "{method} {path}");
        }
        let record = of("put", "/v1/dns/txt/{name}");
        assert_eq!(record["parameters"][0]["schema"]["pattern"], super::RECORD);
        let keys = of("post", "/v1/apps/{app}/keys");
        assert!(
            keys["responses"]["200"]["headers"].is_null() && keys["responses"]["412"].is_null()
        );
        let list = of("get", "/v1/apps");
        assert!(
            list["responses"]["409"].is_null(),
            "looking conflicts with nothing"
        );
        assert!(list["responses"]["200"]["headers"]["link"].is_object());
        let app = of("get", "/v1/apps/{app}");
        assert_eq!(app["parameters"][0]["schema"]["pattern"], super::LABEL);
    }
}
