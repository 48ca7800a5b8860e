//! TCP connections to an instance: to an address, or to the loopback of another network namespace.
//!
//! A container without any network is the safest and the fastest to start: no bridge, no addresses, nothing to filter, nothing
//! to reach. Its port is still reachable from its own loopback. A socket belongs for ever to the namespace in which it was
//! created (network_namespaces(7)), so one thread enters the container's namespace, creates the socket there, starts the
//! connection, and passes the socket to the rest of the process, which stays in its own namespace.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

/// How many connections may wait for the thread. Each takes it some ten microseconds.
const QUEUE: usize = 1024;

/// The address at which an instance listens.
#[derive(Clone, Debug)]
pub(crate) enum Endpoint {
    /// An address that this process can reach.
    Address(SocketAddr),
    /// A port on the loopback of another network namespace.
    Namespace {
        namespace: Arc<OwnedFd>,
        port: u16,
        connector: NamespaceConnector,
    },
}

impl Endpoint {
    pub(crate) async fn connect(&self) -> io::Result<TcpStream> {
        let stream = match self {
            Self::Address(address) => TcpStream::connect(address).await?,
            Self::Namespace {
                namespace,
                port,
                connector,
            } => connector.connect(namespace, *port).await?,
        };
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

struct Order {
    namespace: Arc<OwnedFd>,
    port: u16,
    reply: oneshot::Sender<io::Result<OwnedFd>>,
}

/// A handle to the thread that enters other namespaces. The thread ends with the last handle.
#[derive(Clone, Debug)]
pub(crate) struct NamespaceConnector(SyncSender<Order>);

impl NamespaceConnector {
    /// Starts the thread.
    ///
    /// # Errors
    /// When this process may not enter network namespaces (it lacks `CAP_SYS_ADMIN`), or cannot start a thread.
    pub(crate) fn start() -> io::Result<Self> {
        let (sender, orders) = sync_channel(QUEUE);
        let (started, outcome) = std::sync::mpsc::channel();
        std::thread::Builder::new()
            .name("fdn-netns".to_owned())
            .spawn(move || match own_namespace() {
                Ok(home) => {
                    drop(started.send(Ok(())));
                    serve(&home, &orders);
                }
                Err(error) => drop(started.send(Err(error))),
            })?;
        outcome
            .recv()
            .map_err(|_| io::Error::other("the thread ended at once"))??;
        Ok(Self(sender))
    }

    async fn connect(&self, namespace: &Arc<OwnedFd>, port: u16) -> io::Result<TcpStream> {
        let (reply, answer) = oneshot::channel();
        let order = Order {
            namespace: namespace.clone(),
            port,
            reply,
        };
        self.0.try_send(order).map_err(|error| match error {
            TrySendError::Full(_) => io::Error::other("too many connections are being made"),
            TrySendError::Disconnected(_) => gone(),
        })?;
        let socket = answer.await.map_err(|_| gone())??;
        let stream = TcpStream::from_std(std::net::TcpStream::from(socket))?;
        stream.writable().await?;
        match stream.take_error()? {
            Some(error) => Err(error),
            None => Ok(stream),
        }
    }
}

fn gone() -> io::Error {
    io::Error::other("the thread that makes connections is gone")
}

/// The namespace of this process, entered once to check that this is allowed.
fn own_namespace() -> io::Result<OwnedFd> {
    let home = OwnedFd::from(File::open("/proc/self/ns/net")?);
    enter(&home)?;
    Ok(home)
}

fn enter(namespace: &OwnedFd) -> io::Result<()> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(io::Error::from)
}

fn serve(home: &OwnedFd, orders: &Receiver<Order>) {
    for order in orders {
        let socket = enter(&order.namespace).and_then(|()| begin(order.port));
        // The thread must not stay in the container's namespace, which would then live as long as the thread.
        if let Err(error) = enter(home) {
            tracing::error!(%error, "cannot return from a container's network namespace");
            return;
        }
        drop(order.reply.send(socket));
    }
}

/// A socket that connects to this port on the loopback of the present namespace, without waiting for the result.
fn begin(port: u16) -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
        None,
    )?;
    match rustix::net::connect(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}
