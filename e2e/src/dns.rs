//! Questions to the Smart DNS with `dig`, an independent client.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use fdn_core::api::edns::REVISION;
use fdn_testkit::wait;

/// What `dig` understood of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// `NOERROR`, `NXDOMAIN`, …
    pub status: String,
    /// Addresses of the answer section.
    pub addresses: BTreeSet<IpAddr>,
    /// Time to live of the first answer record.
    pub ttl: Option<u32>,
    /// The client subnet option as printed: `203.0.113.0/24/24`.
    pub subnet: Option<String>,
}

/// Asks `server` for the addresses of `name`, with a client subnet if one is given.
///
/// # Errors
/// When `dig` is missing or gets no answer.
pub fn ask(server: SocketAddr, name: &str, subnet: Option<&str>, tcp: bool) -> Result<Answer> {
    let mut arguments = vec![name.to_owned(), "A".to_owned()];
    arguments.extend(subnet.map(|subnet| format!("+subnet={subnet}")));
    arguments.extend(tcp.then(|| "+tcp".to_owned()));
    parse(&dig(server, &arguments)?)
}

/// The same as a resolver asks that knows several servers: one after the other, each for a moment, until one answers.
///
/// # Errors
/// When `dig` is missing or no server answers.
pub fn ask_any(servers: &[SocketAddr], name: &str, subnet: Option<&str>) -> Result<Answer> {
    let mut arguments = vec![name.to_owned(), "A".to_owned()];
    arguments.extend(subnet.map(|subnet| format!("+subnet={subnet}")));
    let mut last = None;
    for server in servers.iter().cycle().take(ROUNDS * servers.len()) {
        match dig_for(*server, &arguments, (MOMENT_S, 1)) {
            Ok(text) => return parse(&text),
            Err(reason) => last = Some(reason),
        }
    }
    Err(last.context("there is no server")?)
}

/// The revision that `server` answers from for `name`, as it says in the answer itself; `None` if it does not.
///
/// # Errors
/// When `dig` is missing or gets no answer, or when what it says is no number.
pub fn revision(server: SocketAddr, name: &str, subnet: &str) -> Result<Option<u64>> {
    let option = format!("+ednsopt={REVISION}");
    let subnet = format!("+subnet={subnet}");
    let text = dig(server, &[name.to_owned(), "A".to_owned(), subnet, option])?;
    let begin = format!("; OPT={REVISION}: ");
    let Some(line) = text.lines().find_map(|line| line.strip_prefix(&begin)) else {
        return Ok(None);
    };
    let digits: String = line.split(' ').take(8).collect();
    Ok(Some(u64::from_str_radix(&digits, 16)?))
}

/// The values of the text records of `name`, as `server` answers them.
///
/// # Errors
/// When `dig` is missing or gets no answer.
pub fn texts(server: SocketAddr, name: &str) -> Result<BTreeSet<String>> {
    let arguments = [name, "TXT", "+short"].map(str::to_owned);
    let text = dig(server, &arguments)?;
    let values = text.lines().map(|line| line.trim_matches('"').to_owned());
    Ok(values.collect())
}

/// For how long `dig` waits before it asks again.
const ASK_AGAIN_S: u64 = 5;

/// How long one of several servers is waited for, and how often all of them are asked.
const MOMENT_S: u64 = 2;
const ROUNDS: usize = 5;

/// What `dig` prints. It has the patience of [`wait`]: an answer that comes late on a busy machine is an answer.
fn dig(server: SocketAddr, arguments: &[String]) -> Result<String> {
    let tries = wait::PATIENCE.as_secs() / ASK_AGAIN_S;
    dig_for(server, arguments, (ASK_AGAIN_S, tries))
}

/// The same for so many seconds, so many times.
fn dig_for(server: SocketAddr, arguments: &[String], (time, tries): (u64, u64)) -> Result<String> {
    let mut command = Command::new("dig");
    command.arg(format!("@{}", server.ip()));
    if server.ip() == IpAddr::V4(Ipv4Addr::LOCALHOST) {
        // `dig` shares ports: from the server's own address it might get the server's port, and hear itself.
        command.args(["-b", "127.0.0.2"]);
    }
    let output = command
        .args(["-p", &server.port().to_string()])
        .args([format!("+time={time}"), format!("+tries={tries}")])
        .args(arguments)
        .output()
        .context("dig must be installed (Debian's bind9-dnsutils)")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "dig got no answer: {text}");
    Ok(text)
}

fn parse(text: &str) -> Result<Answer> {
    let after = |marker: &str| {
        text.split_once(marker)
            .map(|(_, rest)| rest.lines().next().unwrap_or("").trim())
    };
    let status = after("status: ")
        .and_then(|s| s.split(',').next())
        .context("no status")?
        .to_owned();
    let subnet = after("; CLIENT-SUBNET: ").map(str::to_owned);
    let records = text
        .split_once(";; ANSWER SECTION:\n")
        .map_or("", |(_, rest)| rest);
    let records: Vec<Vec<&str>> = records
        .lines()
        .take_while(|l| !l.is_empty())
        .map(|l| l.split_whitespace().collect())
        .collect();
    let ttl = records
        .first()
        .and_then(|r| r.get(1))
        .and_then(|t| t.parse().ok());
    let addresses = records
        .iter()
        .filter_map(|r| r.last()?.parse().ok())
        .collect();
    Ok(Answer {
        status,
        addresses,
        ttl,
        subnet,
    })
}
