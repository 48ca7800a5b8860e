//! Sockets that listen on all addresses of a machine: answers are sent from the address that the question was sent to, or resolvers would
//! not accept them.
//!
//! The kernel reports that address with each datagram (`IP_PKTINFO`, `IPV6_RECVPKTINFO`), and accepts it with an answer. Answers from the
//! same address are sent together, so there are no further system calls unless the questions of one batch were sent to several addresses.

use std::io::IoSlice;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, MultiHeaders, RecvMsg, SockaddrStorage,
    sendmmsg, setsockopt, sockopt,
};

use super::{BATCH, PendingAnswer};

/// An address of this machine, and the interface if the address alone is ambiguous (RFC 4007, section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LocalAddress {
    address: IpAddr,
    interface: u32,
}

/// Makes a socket that will listen on all addresses report the destination of each datagram.
///
/// # Errors
/// When the system does not support that.
pub fn enable_packet_info(socket: &impl std::os::fd::AsFd, is_v4: bool) -> std::io::Result<()> {
    if is_v4 {
        setsockopt(socket, sockopt::Ipv4PacketInfo, &true)?;
    } else {
        setsockopt(socket, sockopt::Ipv6RecvPacketInfo, &true)?;
    }
    Ok(())
}

/// A buffer for the control message with the address.
fn space(is_v4: bool) -> Vec<u8> {
    if is_v4 {
        nix::cmsg_space!(libc::in_pktinfo)
    } else {
        nix::cmsg_space!(libc::in6_pktinfo)
    }
}

/// The headers of a batch of datagrams with their destination addresses.
pub(super) fn headers(is_v4: bool) -> MultiHeaders<SockaddrStorage> {
    MultiHeaders::preallocate(BATCH, Some(space(is_v4)))
}

/// The address that a datagram was sent to.
pub(super) fn of(message: &RecvMsg<'_, '_, SockaddrStorage>) -> Option<LocalAddress> {
    message.cmsgs().ok()?.find_map(|control| match control {
        // Not the destination in the header, which may be a broadcast address, but the local address that the kernel would answer from.
        ControlMessageOwned::Ipv4PacketInfo(info) => Some(LocalAddress {
            address: Ipv4Addr::from_bits(u32::from_be(info.ipi_spec_dst.s_addr)).into(),
            interface: 0,
        }),
        ControlMessageOwned::Ipv6PacketInfo(info) => {
            let address = Ipv6Addr::from(info.ipi6_addr.s6_addr);
            // For all others, the system's routes determine the interface.
            let interface = if address.is_unicast_link_local() {
                info.ipi6_ifindex
            } else {
                0
            };
            (!address.is_multicast()).then_some(LocalAddress {
                address: address.into(),
                interface,
            })
        }
        _ => None,
    })
}

/// Sends answers, each from the address that its question was sent to. One that cannot be sent is lost like any datagram.
pub(super) fn send(
    socket: &UdpSocket,
    headers: &mut MultiHeaders<SockaddrStorage>,
    pending: &mut [PendingAnswer],
) {
    pending.sort_unstable_by_key(|one| one.local);
    for group in pending.chunk_by(|one, other| one.local == other.local) {
        match group.first().and_then(|one| one.local) {
            Some(LocalAddress {
                address: IpAddr::V4(address),
                ..
            }) => {
                let info = libc::in_pktinfo {
                    ipi_ifindex: 0,
                    ipi_spec_dst: libc::in_addr {
                        s_addr: address.to_bits().to_be(),
                    },
                    ipi_addr: libc::in_addr { s_addr: 0 },
                };
                send_together(
                    socket,
                    headers,
                    group,
                    &[ControlMessage::Ipv4PacketInfo(&info)],
                );
            }
            Some(LocalAddress {
                address: IpAddr::V6(address),
                interface,
            }) => {
                let info = libc::in6_pktinfo {
                    ipi6_addr: libc::in6_addr {
                        s6_addr: address.octets(),
                    },
                    ipi6_ifindex: interface,
                };
                send_together(
                    socket,
                    headers,
                    group,
                    &[ControlMessage::Ipv6PacketInfo(&info)],
                );
            }
            // The destination is unknown: let the system choose.
            None => {
                let mut plain = MultiHeaders::preallocate(group.len(), None);
                send_together(socket, &mut plain, group, &[]);
            }
        }
    }
}

fn send_together(
    socket: &UdpSocket,
    headers: &mut MultiHeaders<SockaddrStorage>,
    group: &[PendingAnswer],
    from: &[ControlMessage<'_>],
) {
    let slices: [[IoSlice<'_>; 1]; BATCH] =
        std::array::from_fn(|at| [IoSlice::new(group.get(at).map_or(&[], |one| &one.bytes))]);
    let to: [Option<SockaddrStorage>; BATCH] =
        std::array::from_fn(|at| group.get(at).map(|one| SockaddrStorage::from(one.to)));
    let count = group.len().min(BATCH);
    let mut first = 0;
    while first < count {
        let (slices, to) = (&slices[first..count], &to[first..count]);
        match sendmmsg(
            socket.as_raw_fd(),
            headers,
            slices,
            to,
            from,
            MsgFlags::empty(),
        )
        .map(Iterator::count)
        {
            Ok(sent) if sent > 0 => first += sent,
            Err(Errno::EINTR) => {}
            // The first one cannot be sent; the others may.
            _ => first += 1,
        }
    }
}
