//! `fdn test`: runs a function's cases, against the component in its folder or against the deployed app.

use std::time::{Duration, Instant};

use fdn_core::api::LogStream;
use http::header::{CONTENT_LENGTH, HOST};
use http::{HeaderValue, Request};
use http_body_util::{BodyExt as _, Full};
use serde::Serialize;

use super::invoke::call;
use super::invoke::request::{Body, authority};
use super::invoke::{CallTarget, NetworkOverrides, network};
use super::{deploy, target};
use crate::args::TestArgs;
use crate::cases::local::{CallResult, LocalFunction};
use crate::cases::{self, Answer, BODY_MAX, Case, Difference};
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::function::FunctionFolder;
use crate::output::{Report, printable};
use crate::progress;

/// The timeout of a call over the network; in this process the manifest's timeout applies.
const CALL: Duration = Duration::from_secs(60);
/// The zone in the host name of a component that is called in this process: the default of `fdn up`.
const ZONE: &str = "fn.test";

/// Runs the command.
///
/// # Errors
/// When the cases cannot be read, the component is not a function, the app cannot be reached, or a case fails.
pub async fn run(
    args: &TestArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let folder = FunctionFolder::open(&args.dir)?;
    let cases = cases::load(&args.dir)?;
    let (place, callee) = match &args.app {
        Some(app) => {
            let network = network(
                app,
                NetworkOverrides::default(),
                &target(&args.connect, env)?,
            )
            .await?;
            let authority = authority(&network.host, network.port);
            (format!("http://{authority}/"), Callee::Deployed(network))
        }
        None => {
            let (place, local) = local(args, &folder, env, console).await?;
            (place, Callee::Here(Box::new(local)))
        }
    };
    let mut tested = Vec::with_capacity(cases.len());
    for case in &cases {
        let began = Instant::now();
        let (answer, written) = callee.call(case, console).await?;
        tested.push(CaseResult::new(case, answer, &written, began.elapsed()));
    }
    let report = TestReport {
        place,
        passed: tested.iter().filter(|case| case.passed).count(),
        failed: tested.iter().filter(|case| !case.passed).count(),
        cases: tested,
    };
    console.report(args.output.output, &report)?;
    match report.failed {
        0 => Ok(()),
        failed => Err(CliError::Unhealthy(format!(
            "{failed} of {} cases failed",
            report.cases.len()
        ))),
    }
}

/// Loads the component in the folder.
async fn local(
    args: &TestArgs,
    folder: &FunctionFolder,
    env: &Environment,
    console: &mut Console,
) -> Result<(String, LocalFunction), CliError> {
    let component = match &args.component {
        Some(file) => file.clone(),
        None => folder.component()?,
    };
    let mut secrets = deploy::secrets(&args.secrets)?;
    let mut values = Vec::new();
    for name in &folder.manifest.secrets {
        let value = secrets.remove(name).ok_or_else(|| {
            CliError::Usage(format!(
                "the manifest names the secret {name}: give it a value with --secret {name}=FILE"
            ))
        })?;
        values.push((name.to_string(), value));
    }
    if let Some(name) = secrets.keys().next() {
        return Err(CliError::Usage(format!(
            "the manifest names no secret {name}"
        )));
    }
    let spinner = progress::spinner(console, "compiling");
    let host = format!("{}.{ZONE}", folder.name()?);
    let local = LocalFunction::load(&component, &folder.manifest, values, &host, env).await;
    spinner.finish_and_clear();
    Ok((component.display().to_string(), local?))
}

/// What the cases call.
enum Callee {
    /// The component, in this process.
    Here(Box<LocalFunction>),
    /// The app, through DNS and a gateway.
    Deployed(CallTarget),
}

impl Callee {
    async fn call(&self, case: &Case, console: &mut Console) -> Result<CallResult, CliError> {
        match self {
            Self::Here(local) => Ok(local.call(case).await),
            Self::Deployed(network) => {
                let called =
                    tokio::time::timeout(CALL, call_through_gateway(network, case, console)).await;
                let answer = match called {
                    Ok(Ok(answer)) => Ok(answer),
                    Ok(Err(CliError::Cut(reason))) => Err(reason),
                    // Without a network, all other cases would fail in the same way.
                    Ok(Err(error)) => return Err(error),
                    Err(_) => Err(format!("there was no answer within {CALL:?}")),
                };
                Ok((answer, Vec::new()))
            }
        }
    }
}

/// Calls the app like its users do.
async fn call_through_gateway(
    network: &CallTarget,
    case: &Case,
    console: &mut Console,
) -> Result<Answer, CliError> {
    let (_, connection) = network.connect(None, console).await?;
    let (response, _) = call::send(connection, request(network, case)?).await?;
    let (parts, body) = response.into_parts();
    Ok(Answer {
        status: parts.status.as_u16(),
        headers: parts.headers,
        body: cases::whole(body, BODY_MAX).await.map_err(CliError::Cut)?,
    })
}

fn request(network: &CallTarget, case: &Case) -> Result<Request<Body>, CliError> {
    let bytes = case.body.clone().unwrap_or_default();
    let length = bytes.len();
    let body = Full::new(bytes).map_err(|never| match never {}).boxed();
    let mut request = Request::new(body);
    *request.method_mut() = case.method.clone();
    *request.uri_mut() = http::Uri::from(case.path.clone());
    let headers = request.headers_mut();
    let host = HeaderValue::from_str(&authority(&network.host, network.port))
        .map_err(|error| CliError::Usage(error.to_string()))?;
    headers.insert(HOST, host);
    if case.body.is_some() {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    for (name, value) in &case.headers {
        headers.insert(name.clone(), value.clone());
    }
    Ok(request)
}

/// The results of all cases.
#[derive(Clone, Debug, Serialize)]
pub struct TestReport {
    /// The path of the component, or the URL that was called.
    pub place: String,
    /// The number of passed cases.
    pub passed: usize,
    /// The number of failed cases.
    pub failed: usize,
    /// The results case by case.
    pub cases: Vec<CaseResult>,
}

/// The result of one case.
#[derive(Clone, Debug, Serialize)]
pub struct CaseResult {
    /// The name of the case.
    pub name: String,
    /// Whether the answer was as expected.
    pub passed: bool,
    /// The duration of the call in ms.
    pub ms: f64,
    /// The differences from the expectation.
    pub differences: Vec<Difference>,
    /// The lines that the function wrote. Known only for a component in this process.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub written: Vec<String>,
}

impl CaseResult {
    fn new(
        case: &Case,
        answer: Result<Answer, String>,
        written: &[(LogStream, String)],
        took: Duration,
    ) -> Self {
        let differences = match answer {
            Ok(answer) => cases::compare(&case.expect, &answer),
            Err(reason) => vec![Difference::Answer { reason }],
        };
        Self {
            name: case.name.clone(),
            passed: differences.is_empty(),
            ms: (took.as_secs_f64() * 1e5).round() / 100.0,
            differences,
            written: written.iter().map(|(_, line)| line.clone()).collect(),
        }
    }
}

impl Report for TestReport {
    fn text(&self, wide: bool) -> String {
        let mut text = format!("{}\n", self.place);
        for case in &self.cases {
            let verdict = if case.passed { "ok  " } else { "FAIL" };
            text.push_str(&format!(
                "  {verdict}  {}  ({:.1} ms)\n",
                case.name, case.ms
            ));
            for difference in &case.differences {
                text.push_str(&difference_text(difference));
            }
            if !case.written.is_empty() && (wide || !case.passed) {
                text.push_str("        the function wrote\n");
                for line in &case.written {
                    text.push_str(&format!("          {}\n", printable(line)));
                }
            }
        }
        text.push_str(&format!("{} of {} passed\n", self.passed, self.cases.len()));
        text
    }

    fn names(&self) -> Vec<String> {
        self.cases.iter().map(|case| case.name.clone()).collect()
    }
}

/// A difference in text form.
fn difference_text(difference: &Difference) -> String {
    let line = match difference {
        Difference::Answer { reason } => reason.clone(),
        Difference::Status { expected, got } => format!("status {got}, expected {expected}"),
        Difference::Header {
            name,
            expected,
            got: Some(got),
        } => format!("header {name}: {got:?}, expected {expected:?}"),
        Difference::Header {
            name,
            expected,
            got: None,
        } => format!("header {name} is missing, expected {expected:?}"),
        Difference::Body { lines } => {
            let lines: String = lines
                .iter()
                .map(|line| format!("          {line}\n"))
                .collect();
            return format!("        body\n{lines}");
        }
        Difference::Contains { expected, got } => {
            format!("the body lacks {expected:?}; it begins {got:?}")
        }
        Difference::Json { reason, got } => {
            format!("the body is no JSON ({reason}); it begins {got:?}")
        }
        Difference::Image {
            expected,
            got: Some(got),
        } => format!("the picture is {got}, expected {expected}"),
        Difference::Image {
            expected,
            got: None,
        } => format!("the body is no picture, expected {expected}"),
    };
    format!("        {line}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{Format, render};

    #[test]
    fn what_failed_is_told_with_what_the_function_wrote() {
        let case = |name: &str, differences: Vec<Difference>| CaseResult {
            name: name.into(),
            passed: differences.is_empty(),
            ms: 1.234,
            differences,
            written: vec!["a line\u{1b}".into()],
        };
        let tests = TestReport {
            place: "hello.wasm".into(),
            passed: 1,
            failed: 1,
            cases: vec![
                case("greets", Vec::new()),
                case(
                    "counts",
                    vec![
                        Difference::Status {
                            expected: 200,
                            got: 500,
                        },
                        Difference::Header {
                            name: "etag".into(),
                            expected: "1".into(),
                            got: None,
                        },
                        Difference::Body {
                            lines: vec!["-a".into(), "+b".into()],
                        },
                    ],
                ),
            ],
        };
        assert_eq!(
            render(Format::Table, &tests).expect("rendered"),
            "hello.wasm\n  ok    greets  (1.2 ms)\n  FAIL  counts  (1.2 ms)\n        status 500, expected 200\n        header etag is missing, expected \"1\"\n        \
             body\n          -a\n          +b\n        the function wrote\n          a line\\u{1b}\n1 of 2 passed\n"
        );
        let json: serde_json::Value =
            serde_json::from_str(&render(Format::Json, &tests).expect("rendered")).expect("JSON");
        assert_eq!(json["cases"][1]["differences"][0]["of"], "status");
        assert_eq!(json["cases"][1]["differences"][0]["got"], 500);
        assert_eq!(
            render(Format::Name, &tests).expect("rendered"),
            "greets\ncounts\n"
        );
    }
}
