//! `fdn dns`: shows what DNS servers answer a client and why, and where an app's clients are sent; manages text records.

use std::net::{IpAddr, SocketAddr};

use fdn_core::app::{AppDns, PutAppDns};
use fdn_core::enrol::Role;
use fdn_core::fleet::DnsServerInfo;
use fdn_core::observe::{BindingDetail, ClusterDistance, DnsLookup};
use fdn_core::{ClientPrefix, GatewayWeight, HostName, Revision, Timestamp};
use fdn_dns::admin::{AnswerExplanation, Candidate, Outcome, Steering};
use fdn_dns::policy::steer::Reason;
use hickory_proto::dnssec::rdata::CDS;
use hickory_proto::rr::RecordType;
use serde::Serialize;

use super::page::left;
use super::{client, node, txt};
use crate::args::{
    DnsCommand, DnsDsArgs, DnsDumpArgs, DnsLookupArgs, DnsRemoveArgs, DnsServersArgs, DnsTtlArgs,
    KindArg, TtlArg,
};
use crate::client::dns::server_lookup;
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::output::{Listing, Report, Row, age, indented, millis, table};
use crate::resolver::{ResolveError, Resolver};

/// Runs the command.
///
/// # Errors
/// When the controller refuses or cannot be reached.
pub async fn run(
    command: &DnsCommand,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    match command {
        DnsCommand::Lookup(args) => lookup(args, env, console).await,
        DnsCommand::Dump(args) => dump(args, env, console).await,
        DnsCommand::Ds(args) => ds(args, env, console).await,
        DnsCommand::Ttl(args) => ttl(args, env, console).await,
        DnsCommand::Token(args) => node::token(args, Role::Dns, env, console).await,
        DnsCommand::Servers(args) => servers(args, env, console).await,
        DnsCommand::Remove(args) => remove(args, env, console).await,
        DnsCommand::Txt(args) => txt::run(&args.command, env, console).await,
    }
}

async fn lookup(
    args: &DnsLookupArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    if let Some(server) = args.server {
        let told = server_lookup(server, &args.name, args.client, args.kind.into()).await?;
        return console.report(args.output.output, &ServerExplanation(&told));
    }
    if let Some(server) = args.dns {
        return console.report(args.output.output, &ServerAnswer::by(server, args).await?);
    }
    let client = client(&args.connect, env)?;
    let found = client.dns_lookup(&args.name, args.client, args.kind.into());
    console.report(args.output.output, &LookupReport(&found.await?))
}

async fn servers(
    args: &DnsServersArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let servers = client(&args.connect, env)?.dns_servers().await?;
    console.report(
        args.output.output,
        &Listing {
            rows: &servers,
            nothing: "no DNS server was let in; make a token: fdn dns token --cluster NAME",
            now: fdn_service::now(),
        },
    )
}

async fn remove(
    args: &DnsRemoveArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    client(&args.connect, env)?
        .remove_dns_server(&args.name)
        .await?;
    console.line(&format!("removed {}", args.name))
}

impl Row for DnsServerInfo {
    const COLUMNS: &'static [&'static str] = &[
        "SERVER",
        "CLUSTER",
        "ANSWERS AT",
        "CONNECTED",
        "CERTIFICATE",
        "AGE",
    ];
    const NARROW: usize = 6;

    fn cells(&self, now: Timestamp) -> Vec<String> {
        let until = self.certificate.as_ref();
        vec![
            self.server.to_string(),
            self.cluster.to_string(),
            self.addresses.gateway.to_string(),
            if self.connected { "yes" } else { "not here" }.to_owned(),
            until.map_or_else(|| "-".to_owned(), |one| left(one.expires_at, now)),
            age(self.enrolled_at, now),
        ]
    }

    fn name(&self) -> String {
        self.server.to_string()
    }
}

async fn dump(
    args: &DnsDumpArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let bindings = client(&args.connect, env)?.bindings(&args.app).await?;
    console.report(
        args.output.output,
        &Listing {
            rows: &bindings,
            nothing: "no client of the app is bound; each is sent to the nearest living cluster",
            now: fdn_service::now(),
        },
    )
}

async fn ttl(args: &DnsTtlArgs, env: &Environment, console: &mut Console) -> Result<(), CliError> {
    let client = client(&args.connect, env)?;
    let info = match args.ttl {
        Some(TtlArg(ttl)) => client.set_app_dns(&args.app, PutAppDns { ttl }).await?,
        None => client.app_dns(&args.app).await?,
    };
    console.report(
        args.output.output,
        &Listing {
            rows: &[info],
            nothing: "no app",
            now: fdn_service::now(),
        },
    )
}

impl Row for AppDns {
    const COLUMNS: &'static [&'static str] = &["APP", "TTL", "OF", "REVISION"];
    const NARROW: usize = 3;

    fn cells(&self, _: Timestamp) -> Vec<String> {
        let of = if self.default {
            "the network"
        } else {
            "the app"
        };
        vec![
            self.app.to_string(),
            self.ttl.to_string(),
            of.to_owned(),
            self.revision.to_string(),
        ]
    }

    fn name(&self) -> String {
        self.app.to_string()
    }
}

async fn ds(args: &DnsDsArgs, env: &Environment, console: &mut Console) -> Result<(), CliError> {
    let network = client(&args.connect, env)?.network().await?;
    let Some(server) = args.dns.or(network.dns) else {
        let reason = "the controller names none; say --dns ADDR:PORT".to_owned();
        return Err(ResolveError::NoServer(reason).into());
    };
    let zone = network.zone;
    let found = Resolver::new(server).delegation(&zone).await?;
    let records: Vec<DsRecord> = found.iter().map(|cds| DsRecord::of(&zone, cds)).collect();
    console.report(
        args.output.output,
        &Listing {
            rows: &records,
            nothing: "the zone is not signed; docs/dns.md#dnssec says how it can be",
            now: fdn_service::now(),
        },
    )?;
    if records.iter().any(|record| record.algorithm == 0) {
        console.note("the zone asks its parent to delete its DS records (RFC 8078, section 4)");
    }
    Ok(())
}

/// A DS record (RFC 4034, section 5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DsRecord {
    zone: HostName,
    key_tag: u16,
    algorithm: u8,
    digest_type: u8,
    digest: String,
}

impl DsRecord {
    /// The DS record that corresponds to a zone's CDS record.
    #[must_use]
    pub fn of(zone: &HostName, cds: &CDS) -> Self {
        Self {
            zone: zone.clone(),
            key_tag: cds.key_tag(),
            algorithm: cds.algorithm().map_or(0, u8::from),
            digest_type: cds.digest_type().into(),
            digest: hex::encode_upper(cds.digest()),
        }
    }
}

impl Row for DsRecord {
    const COLUMNS: &'static [&'static str] =
        &["ZONE", "CLASS", "TYPE", "TAG", "ALG", "KIND", "DIGEST"];
    const NARROW: usize = 7;

    fn cells(&self, _: Timestamp) -> Vec<String> {
        let number = |number: u16| number.to_string();
        vec![
            format!("{}.", self.zone),
            "IN".to_owned(),
            "DS".to_owned(),
            number(self.key_tag),
            number(self.algorithm.into()),
            number(self.digest_type.into()),
            self.digest.clone(),
        ]
    }

    /// The record in zone file format, for the parent.
    fn name(&self) -> String {
        self.cells(Timestamp(0)).join(" ")
    }
}

/// The result of a lookup in text form.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(transparent)]
pub struct LookupReport<'a>(pub &'a DnsLookup);

const COLUMNS: [&str; 4] = ["CLUSTER", "RTT", "FROM", "GATEWAYS"];

impl Report for LookupReport<'_> {
    fn text(&self, _: bool) -> String {
        let found = self.0;
        let none = || "none".to_owned();
        let addresses: Vec<String> = found.addresses.iter().map(ToString::to_string).collect();
        let answer = if addresses.is_empty() {
            none()
        } else {
            addresses.join(", ")
        };
        let bound = match (&found.matched, &found.bound) {
            (Some(prefix), Some(cluster)) => {
                let revision = found
                    .revision
                    .map(|revision| format!(" (revision {revision})"));
                format!("{prefix} to {cluster}{}", revision.unwrap_or_default())
            }
            _ => none(),
        };
        let cluster = found
            .cluster
            .as_ref()
            .map_or_else(none, ToString::to_string);
        let head = [
            ("name", found.name.to_string()),
            ("app", found.app.to_string()),
            ("client", found.client.to_string()),
            ("answer", answer),
            ("ttl", format!("{} s", found.ttl_s)),
            ("holds for", format!("/{} of the client", found.scope)),
            ("cluster", format!("{cluster}: {}", found.reason)),
            ("bound", bound),
        ];
        let head = head.map(|(name, value)| vec![name.to_owned(), value]);
        let mut text = table(&[], head);
        text.push('\n');
        text.push_str(&indented(
            &table(&COLUMNS, found.clusters.iter().map(cells)),
            2,
        ));
        text
    }

    fn names(&self) -> Vec<String> {
        self.0.addresses.iter().map(ToString::to_string).collect()
    }
}

/// The answer of one DNS server to an ordinary DNS query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServerAnswer {
    /// The name asked for.
    pub name: HostName,
    /// The client subnet that was sent.
    pub client: ClientPrefix,
    /// The address of the DNS server.
    pub server: SocketAddr,
    /// The addresses, in the order of the answer.
    pub addresses: Vec<IpAddr>,
    /// How long they may be cached, in seconds; absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u32>,
    /// The scope: the answer is valid for all clients that share this many leading bits; absent if the server does not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<u8>,
    /// The revision of the app's bindings on the server; absent if the name is not an app's, or the server is not a DNS server of the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<Revision>,
}

impl ServerAnswer {
    async fn by(server: SocketAddr, args: &DnsLookupArgs) -> Result<Self, ResolveError> {
        let kind = match args.kind {
            KindArg::A => RecordType::A,
            KindArg::Aaaa => RecordType::AAAA,
        };
        let resolver = Resolver::new(server).asking_for_revision();
        let client = Some(args.client);
        let found = resolver.addresses(&args.name, kind, client).await?;
        Ok(Self {
            name: args.name.clone(),
            client: args.client,
            server,
            ttl: (!found.addresses.is_empty()).then_some(found.ttl_s),
            addresses: found.addresses,
            scope: found.scope,
            revision: found.revision,
        })
    }
}

impl Report for ServerAnswer {
    fn text(&self, _: bool) -> String {
        let addresses = if self.addresses.is_empty() {
            "no address of this kind (NODATA)".to_owned()
        } else {
            joined(&self.addresses)
        };
        let revision = self.revision.map(|revision| revision.to_string());
        let lines = [
            ("name", Some(self.name.to_string())),
            ("client", Some(self.client.to_string())),
            ("server", Some(self.server.to_string())),
            ("answer", Some(addresses)),
            ("ttl", self.ttl.map(|ttl| format!("{ttl} s"))),
            (
                "holds for",
                self.scope.map(|scope| format!("/{scope} of the client")),
            ),
            ("revision", revision),
        ];
        let lines = lines.into_iter();
        table(
            &[],
            lines.filter_map(|(name, value)| Some(vec![name.to_owned(), value?])),
        )
    }

    fn names(&self) -> Vec<String> {
        self.addresses.iter().map(ToString::to_string).collect()
    }
}

/// The explanation of one DNS server in text form.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(transparent)]
pub struct ServerExplanation<'a>(pub &'a AnswerExplanation);

const SEEN: [&str; 5] = ["CLUSTER", "RTT", "FROM", "LIVE", "DEAD"];

impl Report for ServerExplanation<'_> {
    fn text(&self, _: bool) -> String {
        let told = self.0;
        let line = |name: &str, value: String| vec![name.to_owned(), value];
        let mut head = vec![
            line("name", told.name.to_string()),
            line("client", told.client.to_string()),
            line("answer", answer_of(told)),
        ];
        if let Some(ttl) = told.ttl {
            head.push(line("ttl", format!("{ttl} s")));
        }
        head.push(line("holds for", format!("/{} of the client", told.scope)));
        let Some(steering) = &told.steering else {
            return table(&[], head);
        };
        let chosen = steering.chosen.as_ref();
        let chosen = chosen.map_or_else(|| "none".to_owned(), ToString::to_string);
        head.push(line("app", steering.app.to_string()));
        head.push(line(
            "cluster",
            format!("{chosen}: {}", reason_of(steering)),
        ));
        head.push(line("bound", bound_of(steering, told.client)));
        head.push(line("revision", steering.revision.to_string()));
        let mut text = table(&[], head);
        text.push('\n');
        let rows = steering.clusters.iter().map(candidate_row);
        text.push_str(&indented(&table(&SEEN, rows), 2));
        text
    }

    fn names(&self) -> Vec<String> {
        self.0.addresses.iter().map(ToString::to_string).collect()
    }
}

fn answer_of(told: &AnswerExplanation) -> String {
    let text = match told.result {
        Outcome::Answer => return joined(&told.addresses),
        Outcome::Fixed => "a record of the server's configuration",
        Outcome::NoData => "no address of this kind (NODATA)",
        Outcome::NxDomain => "no such name (NXDOMAIN)",
        Outcome::Refused => "not in the server's zone (REFUSED)",
        Outcome::Failure => "the server cannot say now (SERVFAIL)",
    };
    text.to_owned()
}

const fn reason_of(steering: &Steering) -> &'static str {
    match steering.reason {
        Reason::Bound => "its prefix is bound there",
        Reason::Nearest => "no prefix of it is bound, this is the nearest that lives",
        Reason::BoundIsDead => "the bound cluster is dead, this is the nearest that lives",
        Reason::Shed => "a nearer one has more load than it can carry and gives the client away",
        Reason::AllDead => "no gateway passes this server's checks",
        Reason::NoAddress => "no gateway has an address of this kind",
    }
}

fn bound_of(steering: &Steering, client: ClientPrefix) -> String {
    match &steering.bound {
        Some(cluster) => format!(
            "{} to {cluster}",
            ClientPrefix::new(client.addr(), steering.matched)
        ),
        None => "none".to_owned(),
    }
}

fn joined<T: ToString>(values: &[T]) -> String {
    let values: Vec<String> = values.iter().map(ToString::to_string).collect();
    if values.is_empty() {
        "-".to_owned()
    } else {
        values.join(", ")
    }
}

/// The live gateways, with their weights if any differs from the default.
fn live_gateways(candidate: &Candidate) -> String {
    let usual = u32::from(GatewayWeight::default().get());
    if candidate.weights.iter().all(|weight| *weight == usual) {
        return joined(&candidate.live);
    }
    let with_weight = candidate.live.iter().zip(&candidate.weights);
    let told = with_weight.map(|(gateway, weight)| format!("{gateway} (weight {weight})"));
    joined(&told.collect::<Vec<_>>())
}

fn candidate_row(candidate: &Candidate) -> Vec<String> {
    let dead = candidate
        .all
        .iter()
        .filter(|one| !candidate.live.contains(one));
    let latency = candidate.latency.as_ref();
    vec![
        candidate.cluster.to_string(),
        latency.map_or_else(|| "-".to_owned(), |latency| millis(latency.rtt)),
        latency
            .map_or("-", |latency| latency.source.as_str())
            .to_owned(),
        live_gateways(candidate),
        joined(&dead.collect::<Vec<_>>()),
    ]
}

fn cells(distance: &ClusterDistance) -> Vec<String> {
    let gateways = match (distance.gateways_live, distance.gateways) {
        (Some(live), Some(all)) => format!("{live}/{all}"),
        _ => "-".to_owned(),
    };
    vec![
        distance.cluster.to_string(),
        millis(distance.rtt_ms),
        distance.source.as_str().to_owned(),
        gateways,
    ]
}

impl Row for BindingDetail {
    const COLUMNS: &'static [&'static str] =
        &["PREFIX", "CLUSTER", "GROUP", "REVISION", "QUERIES", "SEEN"];
    const NARROW: usize = 5;

    fn cells(&self, now: Timestamp) -> Vec<String> {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        vec![
            self.prefix.to_string(),
            self.cluster.to_string(),
            self.group.clone(),
            self.revision.to_string(),
            or_none(self.queries.map(|queries| queries.to_string())),
            or_none(self.last_seen.map(|seen| age(seen, now))),
        ]
    }

    fn name(&self) -> String {
        self.prefix.to_string()
    }
}
