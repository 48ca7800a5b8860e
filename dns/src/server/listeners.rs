//! The sockets that the server listens on. Binding needs no runtime, so it is done before the process has a second thread: the capability for
//! ports below 1024 can then be dropped for the whole process ([`crate::privileges`]). Nothing is bound again later.

use std::net::{SocketAddr, TcpListener, UdpSocket};

use fdn_service::{ServiceError, listen};
use socket2::{Domain, Protocol, Socket, Type};

use crate::error::Error;
use crate::handler::udp;
use crate::settings::Settings;

/// How many times a port that is free for both UDP and TCP is tried when the port is 0.
const PORT_ATTEMPTS: u32 = 16;

/// The sockets of one address.
pub(super) struct BoundAddress {
    pub(super) address: SocketAddr,
    pub(super) tcp: TcpListener,
    pub(super) udp: Vec<UdpSocket>,
}

/// All sockets of a server, bound but not yet served.
pub struct Listeners {
    pub(super) plain: Vec<BoundAddress>,
    pub(super) tls: Vec<TcpListener>,
    pub(super) https: Vec<TcpListener>,
    pub(super) admin: TcpListener,
}

impl Listeners {
    /// Binds the addresses of the settings.
    ///
    /// # Errors
    /// When an address is taken or binding it is not permitted.
    pub fn bind(settings: &Settings) -> Result<Self, Error> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let sockets = match settings.udp.sockets {
            0 => cores,
            sockets => sockets,
        };
        let buffer = settings.udp.receive_buffer.as_usize();
        let plain = settings.listen.iter();
        let all = |addresses: &[SocketAddr], setting| {
            let listeners = addresses.iter().map(|a| listen::tcp(*a, setting));
            listeners.collect::<Result<Vec<_>, _>>()
        };
        Ok(Self {
            plain: plain
                .map(|address| bind(*address, sockets, buffer))
                .collect::<Result<_, _>>()?,
            tls: all(&settings.encrypted.tls, "encrypted.tls")?,
            https: all(&settings.encrypted.https, "encrypted.https")?,
            admin: listen::tcp(settings.admin, "admin")?,
        })
    }
}

/// Binds one address for TCP and UDP. With port 0, the system chooses one that both use.
fn bind(address: SocketAddr, sockets: usize, buffer: usize) -> Result<BoundAddress, Error> {
    let mut attempt = 1;
    loop {
        // TCP first: unlike the UDP sockets it does not share its port, so a second server on this address is noticed here.
        let listener = listen::tcp(address, "listen")?;
        let bound = listener.local_addr().map_err(Error::Socket)?;
        let udp: Result<Vec<_>, _> = (0..sockets).map(|_| shared_udp(bound, buffer)).collect();
        match udp {
            Ok(udp) => {
                return Ok(BoundAddress {
                    address: bound,
                    tcp: listener,
                    udp,
                });
            }
            Err(_) if address.port() == 0 && attempt < PORT_ATTEMPTS => attempt += 1,
            Err(source) if source.kind() == std::io::ErrorKind::AddrInUse => {
                return Err(ServiceError::AddressTaken {
                    address: bound,
                    setting: "listen".to_owned(),
                }
                .into());
            }
            Err(source) => {
                return Err(ServiceError::Listen {
                    address: bound,
                    setting: "listen".to_owned(),
                    source,
                }
                .into());
            }
        }
    }
}

/// A UDP socket that shares its address with the other UDP sockets of this server.
fn shared_udp(address: SocketAddr, buffer: usize) -> std::io::Result<std::net::UdpSocket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::DGRAM,
        Some(Protocol::UDP),
    )?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    if address.ip().is_unspecified() {
        udp::local::enable_packet_info(&socket, address.is_ipv4())?;
    }
    socket.set_reuse_port(true)?;
    socket.set_recv_buffer_size(buffer)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}
