//! A DNS server on loopback with TXT records set by tests: over UDP, authoritative for every name, so names without records do not exist.
//! Also a client, for thousands of queries, for which `dig` is too slow.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fdn_core::ClientPrefix;
use hickory_proto::op::{Edns, Message, MessageType, Query, ResponseCode};
use hickory_proto::rr::rdata::TXT;
use hickory_proto::rr::rdata::opt::{ClientSubnet, EdnsOption};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The largest query in bytes.
const DATAGRAM: usize = 4096;

#[derive(Default)]
struct Zone {
    texts: BTreeMap<String, Vec<String>>,
    broken: bool,
}

/// A running server; it stops when dropped.
pub struct DnsServer {
    address: SocketAddr,
    zone: Arc<Mutex<Zone>>,
    task: JoinHandle<()>,
}

impl DnsServer {
    /// Starts a server without records.
    ///
    /// # Panics
    /// When no loopback socket can be bound.
    pub async fn start() -> Self {
        let socket = UdpSocket::bind(("127.0.0.1", 0)).await.expect("a socket");
        let address = socket.local_addr().expect("an address");
        let zone = Arc::new(Mutex::new(Zone::default()));
        let task = tokio::spawn(serve(socket, Arc::clone(&zone)));
        Self {
            address,
            zone,
            task,
        }
    }

    /// The address that it listens on.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the texts of a name; with none, the name does not exist.
    pub fn set(&self, name: &str, texts: &[&str]) {
        let texts = texts.iter().map(|text| (*text).to_owned()).collect();
        self.with(|zone| zone.texts.insert(name.to_ascii_lowercase(), texts));
    }

    /// Sets whether every query is answered with SERVFAIL.
    pub fn broken(&self, broken: bool) {
        self.with(|zone| zone.broken = broken);
    }

    fn with<T>(&self, change: impl FnOnce(&mut Zone) -> T) -> T {
        change(&mut self.zone.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for DnsServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(socket: UdpSocket, zone: Arc<Mutex<Zone>>) {
    let mut buffer = vec![0; DATAGRAM];
    loop {
        let Ok((length, from)) = socket.recv_from(&mut buffer).await else {
            return;
        };
        let reply = {
            let zone = zone.lock().unwrap_or_else(PoisonError::into_inner);
            reply(&buffer[..length], &zone)
        };
        if let Some(reply) = reply {
            drop(socket.send_to(&reply, from).await);
        }
    }
}

fn reply(query: &[u8], zone: &Zone) -> Option<Vec<u8>> {
    let query = Message::from_vec(query).ok()?;
    let question = query.queries.first()?.clone();
    let mut reply = Message::response(query.metadata.id, query.metadata.op_code);
    reply.metadata.message_type = MessageType::Response;
    reply.metadata.authoritative = true;
    reply.metadata.recursion_desired = query.metadata.recursion_desired;
    reply.metadata.recursion_available = true;
    let name = question.name().to_ascii().to_ascii_lowercase();
    let texts = zone.texts.get(name.trim_end_matches('.'));
    let texts = texts.filter(|texts| !texts.is_empty());
    reply.metadata.response_code = match (zone.broken, texts) {
        (true, _) => ResponseCode::ServFail,
        (false, None) => ResponseCode::NXDomain,
        (false, Some(_)) => ResponseCode::NoError,
    };
    if !zone.broken && question.query_type() == RecordType::TXT {
        for text in texts.into_iter().flatten() {
            // Long texts are split into several strings of one record (RFC 1035, section 3.3.14).
            let parts = text.as_bytes().chunks(200);
            let parts = parts.map(|part| String::from_utf8_lossy(part).into_owned());
            let data = RData::TXT(TXT::new(parts.collect()));
            reply.add_answer(Record::from_rdata(question.name().clone(), 60, data));
        }
    }
    reply.add_query(question);
    reply.to_vec().ok()
}

/// The IPv4 addresses that `server` answers to clients of a prefix, in the order of the answer.
///
/// # Errors
/// When it does not answer in time, or its answer is invalid.
pub async fn addresses(
    server: SocketAddr,
    name: &str,
    client: ClientPrefix,
    patience: Duration,
) -> Result<Vec<Ipv4Addr>> {
    let mut question = Message::query();
    question.add_query(Query::query(
        Name::from_ascii(format!("{name}."))?,
        RecordType::A,
    ));
    let mut edns = Edns::new();
    edns.set_max_payload(1232).set_version(0);
    let subnet = ClientSubnet::new(client.addr(), client.len(), 0);
    edns.options_mut().insert(EdnsOption::Subnet(subnet));
    question.set_edns(edns);
    let answer = timeout(patience, exchange(server, &question))
        .await
        .with_context(|| format!("no answer to {name} within {patience:?}"))??;
    let code = answer.metadata.response_code;
    ensure!(code == ResponseCode::NoError, "{name}: {code}");
    let address = |record: &Record| match record.data {
        RData::A(address) => Some(address.0),
        _ => None,
    };
    Ok(answer.answers.iter().filter_map(address).collect())
}

async fn exchange(server: SocketAddr, question: &Message) -> Result<Message> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    socket.connect(server).await?;
    socket.send(&question.to_vec()?).await?;
    let mut buffer = vec![0; DATAGRAM];
    loop {
        let length = socket.recv(&mut buffer).await?;
        let answer = Message::from_vec(&buffer[..length])?;
        if answer.metadata.id == question.metadata.id {
            return Ok(answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_without_addresses_and_one_that_does_not_exist_are_told_apart() {
        let server = DnsServer::start().await;
        server.set("there.test", &["text"]);
        let client = "198.18.0.0/24".parse().expect("a prefix");
        let ask = async |name: &str| {
            addresses(server.address(), name, client, Duration::from_secs(60)).await
        };
        assert_eq!(
            ask("there.test").await.expect("an answer"),
            [] as [Ipv4Addr; 0]
        );
        let error = ask("nowhere.test").await.expect_err("no such name");
        assert!(error.to_string().starts_with("nowhere.test: "), "{error}");
    }
}
