//! Name resolution: the system's resolver, which blocks a thread until it has an answer or gives up.
//!
//! A call may give up sooner, but nothing ends a lookup. So the number of lookups that have not ended is bounded, for each function and for all
//! together, and they run on the engine's threads: a function whose names are answered slowly delays its own lookups, and neither those of others
//! nor the blocking work of the caller's runtime.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;

/// The most lookups of all functions at once.
const ALL: usize = 256;
/// The most lookups of one function at once: each request to a name needs one, so this bounds how many names a function can ask for in the time
/// that one is looked up.
const OF_FUNCTION: usize = 64;

/// The lookups of one function.
pub(crate) struct Lookups {
    threads: Handle,
    all: Arc<Semaphore>,
    own: Arc<Semaphore>,
}

impl Lookups {
    /// The places for the lookups of all functions.
    pub(crate) fn of_all() -> Arc<Semaphore> {
        Arc::new(Semaphore::new(ALL))
    }

    /// The lookups of a function, on these threads.
    pub(crate) fn new(threads: Handle, all: Arc<Semaphore>) -> Self {
        Self {
            threads,
            all,
            own: Arc::new(Semaphore::new(OF_FUNCTION)),
        }
    }

    /// The addresses of a host. Waits while too many lookups run; the caller must bound the time.
    pub(super) async fn look_up(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let host = host.to_owned();
        self.run(move || Ok((host.as_str(), port).to_socket_addrs()?.collect()))
            .await
    }

    async fn run(
        &self,
        resolve: impl FnOnce() -> io::Result<Vec<SocketAddr>> + Send + 'static,
    ) -> io::Result<Vec<SocketAddr>> {
        // The function's own place first: no more of its lookups then wait beside those of others.
        let own = self.own.clone().acquire_owned().await;
        let all = self.all.clone().acquire_owned().await;
        let held = (
            own.map_err(io::Error::other)?,
            all.map_err(io::Error::other)?,
        );
        let found = self.threads.spawn_blocking(move || {
            let found = resolve();
            // Held until the resolver is done, even if nobody waits for it any more.
            drop(held);
            found
        });
        found.await.map_err(io::Error::other)?
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_lookup_that_was_given_up_holds_its_place_until_the_resolver_is_done() {
        let all = Lookups::of_all();
        let [slow, other] = [(); 2].map(|()| Lookups::new(Handle::current(), all.clone()));
        let (answers, hanging): (Vec<_>, Vec<_>) = (0..OF_FUNCTION)
            .map(|_| {
                let (answer, answered) = mpsc::channel::<()>();
                let resolve = move || {
                    let answer = answered.recv().map_err(io::Error::other);
                    answer.map(|()| Vec::new())
                };
                (answer, Box::pin(slow.run(resolve)))
            })
            .unzip();
        for mut lookup in hanging {
            assert!(lookup.as_mut().now_or_never().is_none());
            // Its call waits no longer.
            drop(lookup);
        }
        let mut next = Box::pin(slow.run(|| Ok(Vec::new())));
        assert!(next.as_mut().now_or_never().is_none(), "no thread for it");
        assert!(other.run(|| Ok(Vec::new())).await.is_ok());
        assert_eq!(all.available_permits(), ALL - OF_FUNCTION);
        for answer in answers {
            answer.send(()).expect("the resolver still runs");
        }
        assert!(next.await.is_ok());
    }
}
