//! A server queried in each of four ways: over UDP and TCP, IPv4 and IPv6.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use fdn_dns::Settings;
use fdn_testkit::ports;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use crate::common::{Fixture, dig};

/// How long an answer may take before the test fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// An address and transport to query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Endpoint {
    pub(crate) server: SocketAddr,
    pub(crate) tcp: bool,
}

impl Endpoint {
    /// Queries with `dig`. Cookies are off unless requested: most rules do not depend on them.
    pub(crate) async fn dig(&self, arguments: &[&str]) -> String {
        let transport = if self.tcp { "+tcp" } else { "+notcp" };
        dig(
            self.server,
            &[&["+nocookie", transport], arguments].concat(),
        )
        .await
    }

    /// Sends raw bytes, and returns the answer's.
    pub(crate) async fn exchange(&self, bytes: &[u8]) -> Vec<u8> {
        timeout(PATIENCE, self.try_exchange(bytes))
            .await
            .expect("an answer in time")
            .expect("an answer")
    }

    async fn try_exchange(&self, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
        if self.tcp {
            let mut stream = TcpStream::connect(self.server).await?;
            let len = u16::try_from(bytes.len()).map_err(std::io::Error::other)?;
            stream
                .write_all(&[&len.to_be_bytes(), bytes].concat())
                .await?;
            let mut answer = vec![0; usize::from(stream.read_u16().await?)];
            stream.read_exact(&mut answer).await?;
            return Ok(answer);
        }
        let socket = UdpSocket::bind((unspecified(self.server.ip()), 0)).await?;
        socket.connect(self.server).await?;
        socket.send(bytes).await?;
        let mut answer = vec![0; 65_535];
        let len = socket.recv(&mut answer).await?;
        answer.truncate(len);
        Ok(answer)
    }
}

fn unspecified(server: IpAddr) -> IpAddr {
    match server {
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    }
}

/// A server that knows the app `hello`, and the four endpoints to query it. These tests need IPv6.
pub(crate) async fn four_endpoints(change: impl FnOnce(&mut Settings)) -> (Fixture, Vec<Endpoint>) {
    let loopback: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    let port = ports::free(&loopback);
    let servers = loopback.map(|ip| SocketAddr::new(ip, port));
    let fixture = Fixture::with_hello(|settings| {
        settings.listen = servers.to_vec();
        change(settings);
    })
    .await;
    let endpoints = servers
        .iter()
        .flat_map(|server| {
            [false, true].map(|tcp| Endpoint {
                server: *server,
                tcp,
            })
        })
        .collect();
    (fixture, endpoints)
}

/// The parts of a message's header that tests check.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) id: u16,
    pub(crate) response: bool,
    pub(crate) truncated: bool,
    pub(crate) code: u8,
    /// The numbers of questions, answers, authority and additional records.
    pub(crate) counts: [u16; 4],
}

/// Parses a header byte by byte (RFC 1035, section 4.1.1), without any code of the server.
pub(crate) fn head(message: &[u8]) -> Head {
    let word = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
    Head {
        id: word(0),
        response: message[2] & 0x80 != 0,
        truncated: message[2] & 0x02 != 0,
        code: message[3] & 0x0f,
        counts: [word(4), word(6), word(8), word(10)],
    }
}

/// A request with id 4711, these counts and this content.
pub(crate) fn request(counts: [u16; 4], rest: &[&[u8]]) -> Vec<u8> {
    let mut bytes = vec![0x12, 0x67, 0x01, 0x00];
    bytes.extend(counts.iter().flat_map(|count| count.to_be_bytes()));
    bytes.extend(rest.concat());
    bytes
}

/// `hello.fn.test`, type A, class IN.
pub(crate) const HELLO_A: &[u8] = b"\x05hello\x02fn\x04test\x00\x00\x01\x00\x01";
/// An OPT record without options, with a payload size of 1232 bytes.
pub(crate) const OPT: &[u8] = b"\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x00";
/// The same with the DO bit (RFC 3225).
pub(crate) const OPT_DO: &[u8] = b"\x00\x00\x29\x04\xd0\x00\x00\x80\x00\x00\x00";
/// The same with the DO and CO bits (RFC 9824, section 5).
pub(crate) const OPT_CO: &[u8] = b"\x00\x00\x29\x04\xd0\x00\x00\xc0\x00\x00\x00";
