//! `fdn invoke`: calls an app like its users do, and reports where it ran and how long each part took.
//!
//! Everything it needs (DNS server, zone, port) is in the saved context, so it works without the controller. The module `call` makes
//! the connection itself instead of using the shared HTTP client, because only that way can connecting be timed and one address after
//! another be tried.

pub(super) mod call;
pub(super) mod request;

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use fdn_core::api::{NetworkInfo, header};
use fdn_core::{AppName, ClientPrefix, ErrorCode, HostName, Problem};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use super::target;
use crate::args::InvokeArgs;
use crate::client::{Client, root_cause};
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::resolver::{ResolveError, Resolved, Resolver, system_server};
use crate::target::Target;

/// The most bytes of a gateway's error that are read.
const PROBLEM_MAX: usize = 64 << 10;
/// How long to wait for a name that does not exist yet, and the pause between queries.
const COMING: Duration = Duration::from_secs(3);
const AGAIN: Duration = Duration::from_millis(300);

/// The parameters for calling an app.
#[derive(Clone, Debug)]
pub(super) struct CallTarget {
    /// The app's host name.
    pub(super) host: HostName,
    /// The port of the gateways.
    pub(super) port: u16,
    resolver: Resolver,
}

/// The parameters from flags, which override the context.
#[derive(Clone, Debug, Default)]
pub(super) struct NetworkOverrides {
    zone: Option<HostName>,
    port: Option<u16>,
    dns: Option<SocketAddr>,
}

/// Runs the command.
///
/// # Errors
/// When the name does not resolve, no gateway can be reached, or the call takes too long or is answered with a status of 400 or above.
pub async fn run(
    args: &InvokeArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let limit = args.timeout.as_duration();
    let late = |_| CliError::Timeout(format!("the call took longer than {}", args.timeout));
    tokio::time::timeout(limit, invoke(args, env, console))
        .await
        .map_err(late)?
}

async fn invoke(
    args: &InvokeArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let given = NetworkOverrides {
        zone: args.zone.clone(),
        port: args.gateway_port,
        dns: args.dns,
    };
    let network = network(&args.app, given, &target(&args.connect, env)?).await?;
    let prepared = request::prepare(args, &network.host, network.port)?;
    let (resolved, connection) = network.connect(args.client_subnet, console).await?;
    let (address, connected) = (connection.address, connection.took);
    let (response, first_byte) = call::send(connection, prepared).await?;
    let (status, headers) = (response.status(), response.headers().clone());
    if args.include {
        console.print(&head(&response))?;
    }
    let (problem, body) = deliver(response, args.output.as_deref(), console).await?;
    if !args.quiet {
        let times = Times {
            dns: resolved.took,
            connect: connected,
            first_byte,
            body,
        };
        console.note(&summary(status, &headers, address, &resolved, &times));
    }
    outcome(status, &headers, problem)
}

/// Collects the parameters: from flags, then the context, then the controller.
pub(super) async fn network(
    app: &AppName,
    given: NetworkOverrides,
    target: &Target,
) -> Result<CallTarget, CliError> {
    let saved = target.context.as_ref();
    let mut zone = given.zone.or_else(|| saved.and_then(|c| c.zone.clone()));
    let mut port = given.port.or_else(|| saved.and_then(|c| c.gateway_port));
    let mut dns = given.dns.or_else(|| saved.and_then(|c| c.dns));
    if zone.is_none() || port.is_none() {
        let known = ask(target).await?;
        zone.get_or_insert(known.zone);
        port.get_or_insert(known.gateway_port);
        dns = dns.or(known.dns);
    }
    let (Some(zone), Some(port)) = (zone, port) else {
        return Err(CliError::Config(
            "the context names no zone; run fdn login again".to_owned(),
        ));
    };
    let server = match dns {
        Some(server) => server,
        None => system_server(&std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default())?,
    };
    Ok(CallTarget {
        host: HostName::of_app(app, &zone)?,
        resolver: Resolver::new(server),
        port,
    })
}

impl CallTarget {
    /// Resolves the name like a client in `subnet`, and connects to the first gateway that answers.
    pub(super) async fn connect(
        &self,
        subnet: Option<ClientPrefix>,
        console: &mut Console,
    ) -> Result<(Resolved, call::Connection), CliError> {
        let resolved = self.resolved(subnet).await?;
        let addresses: Vec<SocketAddr> = resolved
            .addresses
            .iter()
            .map(|a| SocketAddr::new(*a, self.port))
            .collect();
        let (connection, skipped) = call::connect(&addresses).await?;
        for (address, reason) in &skipped {
            console.note(&format!(
                "fdn: {address} does not answer ({reason}); trying the next address"
            ));
        }
        Ok((resolved, connection))
    }

    /// Resolves the name. DNS servers may learn of an app a moment after its nodes, so queries for a nonexistent name are repeated for a while.
    async fn resolved(&self, subnet: Option<ClientPrefix>) -> Result<Resolved, ResolveError> {
        let begun = Instant::now();
        loop {
            match self.resolver.lookup(&self.host, subnet).await {
                Err(ResolveError::NoSuchName { .. }) if begun.elapsed() < COMING => {
                    tokio::time::sleep(AGAIN).await;
                }
                found => return found,
            }
        }
    }
}

async fn ask(target: &Target) -> Result<NetworkInfo, CliError> {
    Client::new(target)?
        .network_and_clock()
        .await
        .map(|(network, _)| network)
}

/// The durations of a call's parts.
#[derive(Clone, Copy, Debug)]
struct Times {
    dns: Duration,
    connect: Duration,
    /// From the request to the head of the response.
    first_byte: Duration,
    /// From the head of the response to the last byte.
    body: Duration,
}

impl Times {
    fn total(&self) -> Duration {
        self.dns + self.connect + self.first_byte + self.body
    }
}

/// The status line and headers, as received.
fn head(response: &Response<Incoming>) -> String {
    let mut text = format!("{:?} {}\n", response.version(), response.status());
    for (name, value) in response.headers() {
        text.push_str(&format!(
            "{name}: {}\n",
            String::from_utf8_lossy(value.as_bytes())
        ));
    }
    text.push('\n');
    text
}

/// Writes the body as it arrives. Returns the gateway's problem, if the answer is one, and the duration.
async fn deliver(
    response: Response<Incoming>,
    file: Option<&Path>,
    console: &mut Console,
) -> Result<(Option<Problem>, Duration), CliError> {
    let began = std::time::Instant::now();
    let is_problem = response.headers().contains_key(header::ERROR);
    let unwritable = |path: &Path, e: std::io::Error| CliError::File {
        path: path.to_owned(),
        reason: e.to_string(),
        code: ErrorCode::BadRequest,
    };
    // A gateway's own error goes to standard error: it is not the function's answer.
    let mut out = match file.filter(|_| !is_problem) {
        Some(path) => Some((
            path,
            std::fs::File::create(path).map_err(|e| unwritable(path, e))?,
        )),
        None => None,
    };
    let mut body = response.into_body();
    let mut problem = Vec::new();
    let mut last = None;
    while let Some(frame) = body.frame().await {
        let frame = frame
            .map_err(|e| CliError::Cut(format!("the answer broke off: {}", root_cause(&e))))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        last = data.last().copied().or(last);
        match &mut out {
            _ if is_problem => {
                problem.extend_from_slice(&data[..data.len().min(PROBLEM_MAX - problem.len())])
            }
            Some((path, file)) => file.write_all(&data).map_err(|e| unwritable(path, e))?,
            None => console.print_bytes(&data)?,
        }
    }
    let took = began.elapsed();
    // On a terminal, the summary must not continue the last line of the answer; a pipe gets the exact bytes.
    if out.is_none() && !is_problem && console.out_is_terminal() && last.is_some_and(|b| b != b'\n')
    {
        console.print("\n")?;
    }
    Ok((serde_json::from_slice(&problem).ok(), took))
}

/// Two lines: what answered, and how long each part took.
fn summary(
    status: StatusCode,
    headers: &HeaderMap,
    address: SocketAddr,
    resolved: &Resolved,
    times: &Times,
) -> String {
    let value = |name: &str| headers.get(name).and_then(|v| v.to_str().ok());
    let mut line = format!("{status}");
    if let Some(cluster) = value(header::CLUSTER) {
        line.push_str(&format!("  cluster {cluster}"));
    }
    if let Some(node) = value(header::NODE) {
        line.push_str(&format!("  node {node}"));
    }
    if let Some(version) = value(header::VERSION) {
        line.push_str(&format!("  version {}", version.trim_start_matches('v')));
    }
    line.push_str(&format!("  at {address}"));
    if let Some(request) = value(header::REQUEST_ID) {
        line.push_str(&format!("  request {request}"));
    }
    let ms = |d: Duration| format!("{:.1} ms", d.as_secs_f64() * 1e3);
    let mut timing = format!(
        "dns {}{}  connect {}  first byte {}  total {}",
        ms(times.dns),
        if resolved.by_tcp { " (tcp)" } else { "" },
        ms(times.connect),
        ms(times.first_byte),
        ms(times.total()),
    );
    let server: Vec<String> = headers
        .get_all(header::TIMING)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(server_timing)
        .collect();
    if !server.is_empty() {
        timing.push_str(&format!("  server: {}", server.join(", ")));
    }
    format!("{line}\n{timing}")
}

/// Formats `start;dur=0.01, exec;dur=1.2` as `start 0.01 ms`, `exec 1.2 ms`.
fn server_timing(value: &str) -> Vec<String> {
    value
        .split(',')
        .filter_map(|metric| {
            let mut parts = metric.split(';').map(str::trim);
            let name = parts.next().filter(|name| !name.is_empty())?;
            let duration = parts.find_map(|p| p.strip_prefix("dur="));
            Some(duration.map_or_else(|| name.to_owned(), |d| format!("{name} {d} ms")))
        })
        .collect()
}

/// Whether the call counts as successful.
fn outcome(
    status: StatusCode,
    headers: &HeaderMap,
    problem: Option<Problem>,
) -> Result<(), CliError> {
    if let Some(code) = headers.get(header::ERROR).and_then(|v| v.to_str().ok()) {
        let code = ErrorCode::try_from(code.to_owned()).unwrap_or(ErrorCode::Internal);
        let detail = problem.map_or_else(|| code.title().to_owned(), |p| p.detail);
        return Err(CliError::Call(detail, code));
    }
    if status.as_u16() >= 400 {
        Err(CliError::Status(status.as_u16()))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_timing_reads_well() {
        assert_eq!(
            server_timing("start;dur=0.01, exec;desc=\"x\";dur=1.2, hit"),
            ["start 0.01 ms", "exec 1.2 ms", "hit"]
        );
        assert_eq!(server_timing(""), [] as [&str; 0]);
    }

    #[test]
    fn the_summary_names_all_parts_and_their_sum() {
        let mut headers = HeaderMap::new();
        headers.insert(header::CLUSTER, "eu-west".parse().expect("value"));
        headers.insert(header::TIMING, "exec;dur=1.2".parse().expect("value"));
        let ms = Duration::from_millis;
        let times = Times {
            dns: ms(1),
            connect: ms(2),
            first_byte: ms(3),
            body: ms(4),
        };
        let resolved = Resolved {
            addresses: Vec::new(),
            ttl_s: 10,
            scope: None,
            revision: None,
            by_tcp: true,
            took: ms(1),
        };
        let text = summary(
            StatusCode::OK,
            &headers,
            SocketAddr::from(([127, 0, 1, 1], 80)),
            &resolved,
            &times,
        );
        assert_eq!(
            text,
            "200 OK  cluster eu-west  at 127.0.1.1:80\n\
             dns 1.0 ms (tcp)  connect 2.0 ms  first byte 3.0 ms  total 10.0 ms  server: exec 1.2 ms"
        );
    }

    #[test]
    fn a_gateways_error_keeps_its_code_and_a_functions_status_does_not_pass_for_success() {
        let mut headers = HeaderMap::new();
        assert!(outcome(StatusCode::OK, &headers, None).is_ok());
        assert!(matches!(
            outcome(StatusCode::IM_A_TEAPOT, &headers, None),
            Err(CliError::Status(418))
        ));
        headers.insert(header::ERROR, "FDN-3003".parse().expect("value"));
        let problem = Problem::new(ErrorCode::FunctionTimeout, "too slow");
        let error =
            outcome(StatusCode::GATEWAY_TIMEOUT, &headers, Some(problem)).expect_err("problem");
        assert!(
            matches!(&error, CliError::Call(text, ErrorCode::FunctionTimeout) if text == "too slow")
        );
        assert_eq!(error.exit(), crate::exit::Exit::Timeout);
    }
}
