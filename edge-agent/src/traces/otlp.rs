//! The JSON encoding of OTLP's `ExportTraceServiceRequest`, as far as it is used here
//! (<https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding>): ids are hexadecimal, 64-bit numbers are strings, enums are numbers.

use serde::{Deserialize, Serialize};

/// One export request.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Export<'a> {
    resource_spans: [ResourceSpans<'a>; 1],
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans<'a> {
    resource: &'a Resource,
    scope_spans: [ScopeSpans<'a>; 1],
}

/// The source of the spans.
#[derive(Debug, Serialize)]
pub struct Resource {
    /// The attributes of the source.
    pub attributes: Vec<Attribute>,
}

#[derive(Debug, Serialize)]
struct ScopeSpans<'a> {
    scope: Scope,
    spans: &'a [Span],
}

#[derive(Debug, Serialize)]
struct Scope {
    name: &'static str,
    version: &'static str,
}

impl<'a> Export<'a> {
    /// A request with these spans of this resource.
    #[must_use]
    pub const fn new(resource: &'a Resource, spans: &'a [Span]) -> Self {
        Self {
            resource_spans: [ResourceSpans {
                resource,
                scope_spans: [ScopeSpans {
                    scope: Scope {
                        name: "fdn",
                        version: env!("CARGO_PKG_VERSION"),
                    },
                    spans,
                }],
            }],
        }
    }
}

/// One span.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Span {
    /// 32 hexadecimal digits.
    pub trace_id: String,
    /// 16 hexadecimal digits.
    pub span_id: String,
    /// The id of the parent span, if any: 16 hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_span_id: Option<String>,
    /// The name of the operation.
    pub name: String,
    /// The span's kind: one of the constants of this module.
    pub kind: u8,
    /// Nanoseconds since 1970.
    pub start_time_unix_nano: String,
    /// Nanoseconds since 1970.
    pub end_time_unix_nano: String,
    /// The span's attributes.
    pub attributes: Vec<Attribute>,
    /// The error status; absent if the operation did not fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
}

/// The kind of an internal part of a call.
pub const INTERNAL: u8 = 1;
/// The kind of a call that was received.
pub const SERVER: u8 = 2;
/// The kind of a call that was made.
pub const CLIENT: u8 = 3;

/// The status of a span.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    code: u8,
    message: String,
}

impl Status {
    /// A failure.
    #[must_use]
    pub fn failed(message: impl Into<String>) -> Self {
        Self {
            code: 2,
            message: message.into(),
        }
    }
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Attribute {
    key: &'static str,
    value: Value,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum Value {
    StringValue(String),
    IntValue(String),
}

impl Attribute {
    /// A string value.
    #[must_use]
    pub fn text(key: &'static str, value: impl ToString) -> Self {
        let value = Value::StringValue(value.to_string());
        Self { key, value }
    }

    /// A number value.
    #[must_use]
    pub fn number(key: &'static str, value: impl Into<u64>) -> Self {
        let value = Value::IntValue(value.into().to_string());
        Self { key, value }
    }
}

/// The response of a collector.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Answer {
    partial_success: PartialSuccess,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PartialSuccess {
    rejected_spans: serde_json::Value,
}

impl Answer {
    /// The number of spans that the collector rejected.
    #[must_use]
    pub fn rejected(&self) -> u64 {
        let told = &self.partial_success.rejected_spans;
        let text = told.as_str().and_then(|text| text.parse().ok());
        told.as_u64().or(text).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_request_is_what_collectors_read() {
        let span = Span {
            trace_id: "0af7651916cd43dd8448eb211c80319c".to_owned(),
            span_id: "b7ad6b7169203331".to_owned(),
            parent_span_id: None,
            name: "GET hello".to_owned(),
            kind: SERVER,
            start_time_unix_nano: "1".to_owned(),
            end_time_unix_nano: "18446744073709551615".to_owned(),
            attributes: vec![Attribute::number("http.response.status_code", 502_u16)],
            status: Some(Status::failed("function_ended")),
        };
        let resource = Resource {
            attributes: vec![Attribute::text("service.name", "fdn-edge-agent")],
        };
        let spans = [span];
        let sent = serde_json::to_value(Export::new(&resource, &spans)).expect("json");
        let wanted = json!({ "resourceSpans": [{
            "resource": { "attributes": [
                { "key": "service.name", "value": { "stringValue": "fdn-edge-agent" } },
            ] },
            "scopeSpans": [{
                "scope": { "name": "fdn", "version": env!("CARGO_PKG_VERSION") },
                "spans": [{
                    "traceId": "0af7651916cd43dd8448eb211c80319c",
                    "spanId": "b7ad6b7169203331",
                    "name": "GET hello",
                    "kind": 2,
                    "startTimeUnixNano": "1",
                    "endTimeUnixNano": "18446744073709551615",
                    "attributes": [
                        { "key": "http.response.status_code", "value": { "intValue": "502" } },
                    ],
                    "status": { "code": 2, "message": "function_ended" },
                }],
            }],
        }] });
        assert_eq!(sent, wanted);
    }

    #[test]
    fn what_a_collector_did_not_take_is_read_in_either_form() {
        let rejected = |text: &str| {
            let answer: Answer = serde_json::from_str(text).expect("an answer");
            answer.rejected()
        };
        assert_eq!(rejected("{}"), 0);
        assert_eq!(rejected(r#"{"partialSuccess":{}}"#), 0);
        assert_eq!(rejected(r#"{"partialSuccess":{"rejectedSpans":"3"}}"#), 3);
        assert_eq!(rejected(r#"{"partialSuccess":{"rejectedSpans":4}}"#), 4);
    }
}
