//! A DNS server on loopback whose TXT records a test sets: over UDP, authoritative for every name, so that what is not set does not exist.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use hickory_proto::op::{Message, MessageType, ResponseCode};
use hickory_proto::rr::rdata::TXT;
use hickory_proto::rr::{RData, Record, RecordType};
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

/// The largest query.
const DATAGRAM: usize = 4096;

#[derive(Default)]
struct Zone {
    texts: BTreeMap<String, Vec<String>>,
    broken: bool,
}

/// A running server; it ends when dropped.
pub struct DnsServer {
    address: SocketAddr,
    zone: Arc<Mutex<Zone>>,
    task: JoinHandle<()>,
}

impl DnsServer {
    /// Starts a server that knows nothing.
    ///
    /// # Panics
    /// When loopback cannot be listened on.
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

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the texts of a name; none of them, and the name does not exist.
    pub fn set(&self, name: &str, texts: &[&str]) {
        let texts = texts.iter().map(|text| (*text).to_owned()).collect();
        self.with(|zone| zone.texts.insert(name.to_ascii_lowercase(), texts));
    }

    /// Answers every query with a failure of the server, or no longer.
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
            // Long texts are several strings of one record (RFC 1035, section 3.3.14).
            let parts = text.as_bytes().chunks(200);
            let parts = parts.map(|part| String::from_utf8_lossy(part).into_owned());
            let data = RData::TXT(TXT::new(parts.collect()));
            reply.add_answer(Record::from_rdata(question.name().clone(), 60, data));
        }
    }
    reply.add_query(question);
    reply.to_vec().ok()
}
