//! Giving up what an ordinary process may not do.
//!
//! Only ports below 1024 take a capability, and only while they are bound: nothing is bound again later, certificates and keys are read
//! again as the process's own user, and no program is started. So all of them go, in every set that Linux keeps (capabilities(7)), and
//! with `no_new_privs` none comes back with a program that is executed.
//!
//! Linux keeps capabilities for each thread, and a thread begins with those of the one that starts it: they are given up while there is one.

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

/// Gives up all capabilities of this thread, and of those that it starts from now on; to be called when everything is bound and before there
/// is another. What cannot be given up is said in the log, and the server goes on: one that does not answer is of use to nobody.
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

/// What was held before.
fn give_up_all() -> Result<CapabilitySet> {
    set_no_new_privs(true)?;
    let held = capabilities(None)?;
    if held.effective.contains(CapabilitySet::SETPCAP) {
        empty_bounding_set()?;
    }
    // Where nothing is held nothing need be allowed. The ambient set follows the permitted one.
    if held != NONE {
        set_capabilities(None, NONE)?;
    }
    Ok(held.permitted)
}

/// Takes every capability that this system knows out of the bounding set.
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
