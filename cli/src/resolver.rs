//! A small stub resolver that queries one DNS server, so that `fdn invoke` takes the same path as a user's call without involving the
//! machine's own resolver.
//!
//! UDP first, with a new socket and a new id for each attempt, so that a late or forged answer is not accepted (RFC 5452,
//! section 9); TCP if the answer is truncated (RFC 7766, section 5). A client subnet (RFC 7871) can be sent along, to see the answer for
//! a client elsewhere.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use fdn_core::api::edns::REVISION;
use fdn_core::{ClientPrefix, Coded, ErrorCode, HostName, Revision};
use hickory_proto::dnssec::rdata::{CDS, DNSSECRData};
use hickory_proto::op::{Edns, Message, MessageType, Query, ResponseCode};
use hickory_proto::rr::rdata::SOA;
use hickory_proto::rr::rdata::opt::{ClientSubnet, EdnsCode, EdnsOption};
use hickory_proto::rr::{Name, RData, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

/// The largest UDP answer in bytes: fits into one packet nearly everywhere (DNS flag day 2020).
const UDP_PAYLOAD: u16 = 1232;

/// Why a name was not resolved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// The server answered that the name does not exist.
    #[error("{name} does not exist, says the DNS server {server}")]
    NoSuchName {
        /// The name.
        name: String,
        /// The server.
        server: SocketAddr,
    },
    /// The name exists but has no address.
    #[error("{name} has no address at present, says the DNS server {server}")]
    NoAddress {
        /// The name.
        name: String,
        /// The server.
        server: SocketAddr,
    },
    /// The server answered with an error.
    #[error("the DNS server {server} answered {code} for {name}")]
    Refused {
        /// The name.
        name: String,
        /// The server.
        server: SocketAddr,
        /// The response code.
        code: ResponseCode,
    },
    /// There was no answer.
    #[error("the DNS server {server} did not answer: {reason}")]
    Silent {
        /// The server.
        server: SocketAddr,
        /// The reason.
        reason: String,
    },
    /// No DNS server is known.
    #[error("it is not known which DNS server to ask: {0}")]
    NoServer(String),
    /// The name is longer than DNS allows.
    #[error("{name} is not a DNS name: {reason}")]
    BadName {
        /// The name.
        name: String,
        /// The reason.
        reason: String,
    },
}

impl Coded for ResolveError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::NoSuchName { .. } => ErrorCode::UnknownHost,
            Self::NoAddress { .. } => ErrorCode::NoClusterFits,
            Self::BadName { .. } => ErrorCode::BadRequest,
            Self::Refused { .. } | Self::Silent { .. } | Self::NoServer(_) => {
                ErrorCode::ControllerUnreachable
            }
        }
    }
}

/// The result of resolving a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The addresses, in the order of the answer.
    pub addresses: Vec<IpAddr>,
    /// The TTL in seconds.
    pub ttl_s: u32,
    /// The scope: the prefix length of the client subnet that the answer is valid for, if the server says so.
    pub scope: Option<u8>,
    /// The revision of the answer's state, if it was requested and the server reports it.
    pub revision: Option<Revision>,
    /// Whether the answer was truncated and had to be fetched over TCP.
    pub by_tcp: bool,
    /// The time taken.
    pub took: Duration,
}

/// A resolver that queries one server.
#[derive(Clone, Copy, Debug)]
pub struct Resolver {
    server: SocketAddr,
    attempts: u32,
    timeout: Duration,
    /// Whether to request the revision of answers.
    revision: bool,
}

impl Resolver {
    /// A resolver that queries `server`, with at most three attempts of one second each.
    #[must_use]
    pub const fn new(server: SocketAddr) -> Self {
        Self {
            server,
            attempts: 3,
            timeout: Duration::from_secs(1),
            revision: false,
        }
    }

    /// The same resolver with this timeout per attempt.
    #[must_use]
    pub const fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// The same resolver, requesting the revision of answers.
    #[must_use]
    pub const fn asking_for_revision(self) -> Self {
        Self {
            revision: true,
            ..self
        }
    }

    /// The server.
    #[must_use]
    pub const fn server(&self) -> SocketAddr {
        self.server
    }

    /// The addresses of `host`: IPv4, or IPv6 if it has no IPv4 address.
    ///
    /// # Errors
    /// When there is no such name, no address, or no answer.
    pub async fn lookup(
        &self,
        host: &HostName,
        client: Option<ClientPrefix>,
    ) -> Result<Resolved, ResolveError> {
        let began = Instant::now();
        for kind in [RecordType::A, RecordType::AAAA] {
            let found = self.addresses(host, kind, client).await?;
            if !found.addresses.is_empty() {
                let took = began.elapsed();
                return Ok(Resolved { took, ..found });
            }
        }
        Err(ResolveError::NoAddress {
            name: host.to_string(),
            server: self.server,
        })
    }

    /// The addresses of `host` of one type; there may be none.
    ///
    /// # Errors
    /// When there is no such name or no answer.
    pub async fn addresses(
        &self,
        host: &HostName,
        kind: RecordType,
        client: Option<ClientPrefix>,
    ) -> Result<Resolved, ResolveError> {
        let began = Instant::now();
        let (answer, by_tcp) = self.ask(host.as_str(), kind, client).await?;
        self.check(host.as_str(), &answer)?;
        let found = answer.answers.iter();
        let found: Vec<(IpAddr, u32)> = found
            .filter_map(|r| Some((address_of(&r.data)?, r.ttl)))
            .collect();
        Ok(Resolved {
            ttl_s: found.iter().map(|(_, ttl)| *ttl).min().unwrap_or(0),
            addresses: found.into_iter().map(|(address, _)| address).collect(),
            scope: scope_of(&answer),
            revision: revision_of(&answer),
            by_tcp,
            took: began.elapsed(),
        })
    }

    /// The SOA record of a zone, and whether the server is authoritative.
    ///
    /// # Errors
    /// When the server does not answer or does not know the zone.
    pub async fn zone(&self, zone: &HostName) -> Result<(SOA, bool), ResolveError> {
        let (answer, _) = self.ask(zone.as_str(), RecordType::SOA, None).await?;
        self.check(zone.as_str(), &answer)?;
        let authoritative = answer.metadata.authoritative;
        let soa = answer.answers.into_iter().find_map(|r| match r.data {
            RData::SOA(soa) => Some(soa),
            _ => None,
        });
        let soa = soa.ok_or_else(|| ResolveError::NoAddress {
            name: zone.to_string(),
            server: self.server,
        })?;
        Ok((soa, authoritative))
    }

    /// The DS data that a signed zone asks its parent to publish (CDS, RFC 7344, section 3.1); empty if it is not signed.
    ///
    /// # Errors
    /// When the server does not answer or does not know the zone.
    pub async fn delegation(&self, zone: &HostName) -> Result<Vec<CDS>, ResolveError> {
        let (answer, _) = self.ask(zone.as_str(), RecordType::CDS, None).await?;
        self.check(zone.as_str(), &answer)?;
        let records = answer.answers.into_iter().filter_map(|r| match r.data {
            RData::DNSSEC(DNSSECRData::CDS(cds)) => Some(cds),
            _ => None,
        });
        Ok(records.collect())
    }

    fn check(&self, name: &str, answer: &Message) -> Result<(), ResolveError> {
        let (name, server) = (name.to_owned(), self.server);
        match answer.metadata.response_code {
            ResponseCode::NoError => Ok(()),
            ResponseCode::NXDomain => Err(ResolveError::NoSuchName { name, server }),
            code => Err(ResolveError::Refused { name, server, code }),
        }
    }

    /// Queries over UDP, and over TCP if the answer is truncated. The flag is true for TCP.
    async fn ask(
        &self,
        name: &str,
        kind: RecordType,
        client: Option<ClientPrefix>,
    ) -> Result<(Message, bool), ResolveError> {
        let mut last = String::new();
        for _ in 0..self.attempts {
            let question = question(name, kind, client, self.revision)?;
            match tokio::time::timeout(self.timeout, self.by_udp(&question)).await {
                Ok(Ok(answer)) if answer.metadata.truncation => {
                    return Ok((self.retried_by_tcp(&question).await?, true));
                }
                Ok(Ok(answer)) if answer.metadata.response_code == ResponseCode::ServFail => {
                    last = "it answered that it failed".to_owned();
                }
                Ok(Ok(answer)) => return Ok((answer, false)),
                // A refusal (nothing listens there) arrives at once; the pause keeps the attempts apart.
                Ok(Err(error)) => {
                    last = error.to_string();
                    tokio::time::sleep(self.timeout / 10).await;
                }
                Err(_) => last = format!("no answer within {} ms", self.timeout.as_millis()),
            }
        }
        let reason = format!("{last} ({} attempts)", self.attempts);
        Err(ResolveError::Silent {
            server: self.server,
            reason,
        })
    }

    async fn by_udp(&self, question: &Message) -> std::io::Result<Message> {
        let any: IpAddr = if self.server.is_ipv4() {
            Ipv4Addr::UNSPECIFIED.into()
        } else {
            Ipv6Addr::UNSPECIFIED.into()
        };
        let socket = UdpSocket::bind((any, 0)).await?;
        socket.connect(self.server).await?;
        socket.send(&encode(question)?).await?;
        let mut buffer = vec![0; usize::from(u16::MAX)];
        loop {
            let length = socket.recv(&mut buffer).await?;
            // Packets that do not answer this question are ignored; the timeout ends the wait.
            if let Ok(answer) = Message::from_vec(&buffer[..length])
                && answers(question, &answer)
            {
                return Ok(answer);
            }
        }
    }

    async fn retried_by_tcp(&self, question: &Message) -> Result<Message, ResolveError> {
        let silent = |reason: String| ResolveError::Silent {
            server: self.server,
            reason,
        };
        match tokio::time::timeout(self.timeout * self.attempts, self.by_tcp(question)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(silent(format!("its answer was cut, and by TCP: {error}"))),
            Err(_) => Err(silent(
                "its answer was cut, and by TCP it sent none in time".to_owned(),
            )),
        }
    }

    async fn by_tcp(&self, question: &Message) -> std::io::Result<Message> {
        let mut stream = TcpStream::connect(self.server).await?;
        let bytes = encode(question)?;
        let length = u16::try_from(bytes.len()).map_err(std::io::Error::other)?;
        stream
            .write_all(&[&length.to_be_bytes()[..], &bytes].concat())
            .await?;
        let length = stream.read_u16().await?;
        let mut buffer = vec![0; usize::from(length)];
        stream.read_exact(&mut buffer).await?;
        let answer = Message::from_vec(&buffer).map_err(std::io::Error::other)?;
        if answers(question, &answer) {
            Ok(answer)
        } else {
            Err(std::io::Error::other("it answered another question"))
        }
    }
}

fn question(
    name: &str,
    kind: RecordType,
    client: Option<ClientPrefix>,
    revision: bool,
) -> Result<Message, ResolveError> {
    let name = Name::from_ascii(format!("{name}.")).map_err(|e| ResolveError::BadName {
        name: name.to_owned(),
        reason: e.to_string(),
    })?;
    let mut message = Message::query();
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(name, kind));
    let mut edns = Edns::new();
    edns.set_max_payload(UDP_PAYLOAD).set_version(0);
    if let Some(client) = client {
        edns.options_mut()
            .insert(EdnsOption::Subnet(ClientSubnet::new(
                client.addr(),
                client.len(),
                0,
            )));
    }
    if revision {
        let option = EdnsOption::Unknown(REVISION, Vec::new());
        edns.options_mut().insert(option);
    }
    message.set_edns(edns);
    Ok(message)
}

fn encode(message: &Message) -> std::io::Result<Vec<u8>> {
    message.to_vec().map_err(std::io::Error::other)
}

/// Whether `answer` answers `question`: same id, same question (RFC 5452, section 9.1).
fn answers(question: &Message, answer: &Message) -> bool {
    let same_question = match (question.queries.first(), answer.queries.first()) {
        (Some(q), Some(a)) => {
            q.name() == a.name()
                && q.query_type() == a.query_type()
                && q.query_class() == a.query_class()
        }
        // A server that could not parse the question does not repeat it (RFC 1035, section 4.1.1).
        (_, None) => answer.metadata.response_code != ResponseCode::NoError,
        (None, Some(_)) => false,
    };
    answer.metadata.message_type == MessageType::Response
        && answer.metadata.id == question.metadata.id
        && same_question
}

fn address_of(data: &RData) -> Option<IpAddr> {
    match data {
        RData::A(a) => Some(a.0.into()),
        RData::AAAA(aaaa) => Some(aaaa.0.into()),
        _ => None,
    }
}

fn scope_of(answer: &Message) -> Option<u8> {
    match answer.edns.as_ref()?.option(EdnsCode::Subnet)? {
        EdnsOption::Subnet(subnet) => Some(subnet.scope_prefix()),
        _ => None,
    }
}

fn revision_of(answer: &Message) -> Option<Revision> {
    match answer.edns.as_ref()?.option(REVISION.into())? {
        EdnsOption::Unknown(_, bytes) => {
            let bytes = bytes.as_slice().try_into().ok()?;
            Some(Revision(u64::from_be_bytes(bytes)))
        }
        _ => None,
    }
}

/// The machine's own DNS server: the first `nameserver` in a `resolv.conf`.
///
/// # Errors
/// When the text contains none.
pub fn system_server(resolv_conf: &str) -> Result<SocketAddr, ResolveError> {
    resolv_conf
        .lines()
        .filter_map(|line| line.trim().strip_prefix("nameserver"))
        .filter_map(|rest| rest.trim().parse::<IpAddr>().ok())
        .map(|address| SocketAddr::new(address, 53))
        .next()
        .ok_or_else(|| ResolveError::NoServer("/etc/resolv.conf names none".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_server_is_the_first_one_named() {
        let text = "# comment\nsearch example.org\nnameserver 192.0.2.53\nnameserver 192.0.2.54\n";
        assert_eq!(
            system_server(text).expect("server"),
            SocketAddr::from(([192, 0, 2, 53], 53))
        );
        assert!(system_server("search x\n").is_err());
    }

    #[test]
    fn only_the_answer_to_the_question_is_taken() {
        let asked = question("hello.fn.test", RecordType::A, None, false).expect("question");
        let mut reply = asked.clone().into_response();
        assert!(answers(&asked, &reply));
        assert!(!answers(&asked, &asked), "a question is no answer");
        reply.metadata.id = asked.metadata.id.wrapping_add(1);
        assert!(!answers(&asked, &reply), "another id");
        let mut other = question("evil.fn.test", RecordType::A, None, false)
            .expect("question")
            .into_response();
        other.metadata.id = asked.metadata.id;
        assert!(!answers(&asked, &other), "another name");
    }

    #[test]
    fn the_client_subnet_travels_with_the_question() {
        let client: ClientPrefix = "203.0.113.0/24".parse().expect("prefix");
        let asked =
            question("hello.fn.test", RecordType::A, Some(client), false).expect("question");
        let read = Message::from_vec(&asked.to_vec().expect("bytes")).expect("own bytes");
        let edns = read.edns.expect("EDNS");
        let Some(EdnsOption::Subnet(subnet)) = edns.option(EdnsCode::Subnet) else {
            panic!("no subnet")
        };
        assert_eq!(
            (subnet.addr(), subnet.source_prefix(), subnet.scope_prefix()),
            (client.addr(), 24, 0)
        );
    }
}
