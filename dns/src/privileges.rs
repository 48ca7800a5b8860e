//! Drops the privileges that an ordinary process does not have.
//!
//! Only binding ports below 1024 needs a capability: nothing is bound again later, certificates and keys are re-read as the process's own
//! user, and no program is started. So all capabilities are dropped, in every set that Linux keeps (capabilities(7)), and `no_new_privs`
//! prevents executed programs from regaining any.
//!
//! Linux keeps capabilities per thread, and a thread inherits those of the thread that starts it: they are dropped while there is only one.

use fdn_core::ErrorCode;
use rustix::io::{Errno, Result};
use rustix::process::geteuid;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, remove_capability_from_bounding_set,
    set_capabilities, set_no_new_privs,
};
use tracing::{debug, error, warn};

const NONE: CapabilitySets = CapabilitySets {
    effective: CapabilitySet::empty(),
    permitted: CapabilitySet::empty(),
    inheritable: CapabilitySet::empty(),
};

/// Drops all capabilities of this thread, and of those that it starts from now on. To be called after everything is bound and before there
/// is a second thread. A failure is logged and the server goes on: a server that does not answer is of no use.
pub fn give_up() {
    match give_up_all() {
        Ok(held) => debug!(?held, "capabilities are given up"),
        Err(cause) => error!(
            code = %ErrorCode::Internal, %cause,
            "capabilities cannot be given up: the system must allow capset(2) and prctl(2); going on with them"
        ),
    }
    if geteuid().is_root() {
        warn!(
            "this server runs as root, so that all files of root are open to it; give it a user of its own, and if it listens below port \
             1024 the capability CAP_NET_BIND_SERVICE, as deploy/systemd/fdn-dns.service does"
        );
    }
}

/// Drops everything; returns the permitted capabilities that were held before.
fn give_up_all() -> Result<CapabilitySet> {
    set_no_new_privs(true)?;
    let held = capabilities(None)?;
    if held.effective.contains(CapabilitySet::SETPCAP) {
        empty_bounding_set()?;
    }
    // If no capability is held, `capset` need not be permitted. The ambient set follows the permitted one.
    if held != NONE {
        set_capabilities(None, NONE)?;
    }
    Ok(held.permitted)
}

/// Removes every capability that this system knows from the bounding set.
fn empty_bounding_set() -> Result<()> {
    for bit in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << bit);
        match remove_capability_from_bounding_set(one) {
            Ok(()) => {}
            Err(Errno::INVAL) => break,
            Err(cause) => return Err(cause),
        }
    }
    Ok(())
}
