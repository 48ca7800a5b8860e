//! What the kernel knows of a TCP connection (`TCP_INFO`, `tcp(7)`): its smoothed round-trip time, and what the client has not received yet. The one
//! system call for which no dependency has a safe wrapper.
#![allow(
    unsafe_code,
    reason = "getsockopt(TCP_INFO) has no safe wrapper in rustix or socket2"
)]

use std::mem::{MaybeUninit, offset_of};
use std::os::fd::RawFd;
use std::time::Duration;

/// The smoothed round-trip time of the connection behind `socket`, if it is a TCP connection and has been measured.
#[must_use]
pub fn smoothed_rtt(socket: RawFd) -> Option<Duration> {
    let info = read(
        socket,
        offset_of!(libc::tcp_info, tcpi_rtt) + size_of::<u32>(),
    )?;
    (info.tcpi_rtt > 0).then(|| Duration::from_micros(u64::from(info.tcpi_rtt)))
}

/// How far the sending of a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sending {
    /// Whether the client has not received all that the kernel has got for it.
    pub is_pending: bool,
    /// The bytes that the client has received since the connection was made.
    pub acknowledged: u64,
}

/// How far the sending of the connection behind `socket` is, if it is a TCP connection and the kernel tells (Linux 4.6).
#[must_use]
pub fn sending(socket: RawFd) -> Option<Sending> {
    let needed = offset_of!(libc::tcp_info, tcpi_notsent_bytes) + size_of::<u32>();
    let info = read(socket, needed)?;
    Some(Sending {
        is_pending: info.tcpi_unacked > 0 || info.tcpi_notsent_bytes > 0,
        acknowledged: info.tcpi_bytes_acked,
    })
}

/// The first `needed` bytes of the kernel's description, the rest of which may be zero.
fn read(socket: RawFd, needed: usize) -> Option<libc::tcp_info> {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut length = libc::socklen_t::try_from(size_of::<libc::tcp_info>()).ok()?;
    // SAFETY: the pointers point to live, writable variables of this frame, and the kernel writes at most `length` bytes to the first. A closed
    // descriptor or one that is not a socket makes the call fail; it cannot make it unsound.
    let result = unsafe {
        libc::getsockopt(
            socket,
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result != 0 || (length as usize) < needed {
        return None;
    }
    // SAFETY: all bytes were zero before the call, the kernel wrote some of them, and every field is an integer, for which any bytes are a valid
    // value.
    Some(unsafe { info.assume_init() })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_loopback_connection_has_a_round_trip() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = listener.local_addr().expect("address");
        let mut client = TcpStream::connect(address).expect("connect");
        let (mut server, _) = listener.accept().expect("accept");
        client.write_all(b"x").expect("write");
        server.read_exact(&mut [0]).expect("read");
        let trip = smoothed_rtt(server.as_raw_fd()).expect("measured");
        assert!(trip < Duration::from_secs(5), "{trip:?}");
    }

    #[test]
    fn what_a_client_does_not_read_is_pending() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = listener.local_addr().expect("address");
        let mut client = TcpStream::connect(address).expect("connect");
        let (mut server, _) = listener.accept().expect("accept");
        let before = sending(server.as_raw_fd()).expect("told");
        assert!(!before.is_pending);
        // More than the client's buffer takes.
        server.set_nonblocking(true).expect("set");
        let mut written = 0;
        while let Ok(more) = server.write(&[0; 65_536]) {
            written += more;
        }
        let full = sending(server.as_raw_fd()).expect("told");
        assert!(full.is_pending);
        let mut left = vec![0; written];
        client.read_exact(&mut left).expect("read");
        let mut after = full;
        while after.is_pending {
            after = sending(server.as_raw_fd()).expect("told");
        }
        assert!(
            after.acknowledged >= written as u64,
            "{after:?} of {written}"
        );
        assert!(after.acknowledged > full.acknowledged);
    }

    #[test]
    fn what_is_no_connection_has_none() {
        let file = File::open("/dev/null").expect("open");
        assert_eq!(smoothed_rtt(file.as_raw_fd()), None);
        assert_eq!(smoothed_rtt(-1), None);
        assert_eq!(sending(file.as_raw_fd()), None);
    }
}
