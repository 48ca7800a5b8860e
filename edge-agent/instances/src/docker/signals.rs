//! Whether a container ends by itself once it was sent SIGTERM.
//!
//! The first process of a PID namespace gets only those signals that it handles (pid_namespaces(7)). Many images start a program that handles none, and
//! each stop of such an instance would last for the whole grace, while a call waits for its memory or its devices.

use std::fs;

use bollard::models::ContainerInspectResponse;

/// The bit of SIGTERM, which is signal 15, in the masks of `/proc/PID/status`.
const SIGTERM: u64 = 1 << 14;

/// The number of `rt_sigtimedwait`, by which sigwait(3) waits, as `/proc/PID/syscall` shows it; `None` where it is not known.
const WAITS: Option<&str> = if cfg!(target_arch = "x86_64") {
    Some("128")
} else if cfg!(target_arch = "aarch64") {
    Some("137")
} else {
    None
};

/// Whether a running container's first process ignores SIGTERM now; `false` if that cannot be seen.
pub(super) fn ignores_sigterm(container: &ContainerInspectResponse) -> bool {
    let ignores = || {
        let pid = container.state.as_ref()?.pid.filter(|pid| *pid > 0)?;
        let id = container.id.as_deref().filter(|id| !id.is_empty())?;
        let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
        // Around the masks, which do not show what is waited for.
        let before = read("syscall")?;
        let status = read("status")?;
        let after = read("syscall")?;
        // The process id may have been reused, or be one of another namespace.
        let is_its = read("cgroup")?.contains(id);
        let waits = waits_for_signals(&before)? || waits_for_signals(&after)?;
        Some(is_its && !waits && is_deaf(&status)?)
    };
    ignores().unwrap_or(false)
}

/// Whether the process of this `/proc/PID/syscall` is in sigwait(3), which takes what it waits for out of the mask of blocked signals that is shown;
/// `None` if that is not known here.
fn waits_for_signals(syscall: &str) -> Option<bool> {
    WAITS.map(|number| syscall.split_whitespace().next() == Some(number))
}

/// Whether the process of this `/proc/PID/status` is the first of its namespace and handles no SIGTERM; `None` if the kernel does not say. One that is
/// blocked may be taken with signalfd(2), or with sigwait(3) by a process that is not in it now.
fn is_deaf(status: &str) -> Option<bool> {
    let field = |name: &str| {
        let mut lines = status.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
    };
    let mask = |name| u64::from_str_radix(field(name)?.trim(), 16).ok();
    // The process id in each namespace, the innermost last.
    let is_first = field("NSpid")?.split_whitespace().next_back()? == "1";
    let taken = mask("SigCgt")? | mask("SigBlk")?;
    Some(is_first && taken & SIGTERM == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(ids: &str, blocked: u64, ignored: u64, caught: u64) -> String {
        format!(
            "Name:\tserve\nNSpid:\t{ids}\nThreads:\t1\nSigPnd:\t0000000000000000\nSigBlk:\t{blocked:016x}\nSigIgn:\t{ignored:016x}\n\
             SigCgt:\t{caught:016x}\n"
        )
    }

    #[test]
    fn who_neither_handles_nor_blocks_it_is_deaf() {
        for (text, deaf) in [
            (status("4711\t1", 0, 0x1000, 0x1_8000_0440), Some(true)),
            (status("4711\t1", 0, 0x4000, 0), Some(true)),
            (status("4711\t1", 0, 0, 0x4000), Some(false)),
            (status("4711\t1", 0x4000, 0, 0), Some(false)),
            // Outside of a namespace of its own it is ended by the signal.
            (status("4711", 0, 0, 0), Some(false)),
            (status("4711\t7", 0, 0, 0), Some(false)),
            ("Name:\tserve\n".to_owned(), None),
        ] {
            assert_eq!(is_deaf(&text), deaf, "{text}");
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn who_waits_for_a_signal_is_known_by_the_call() {
        for (text, waits) in [
            ("128 0x7f 0x0 0x7f 0x8 0x0 0x0 0x7f 0x7f\n", true),
            ("1280 0x7f\n", false),
            ("202 0x7f\n", false),
            ("running\n", false),
        ] {
            assert_eq!(waits_for_signals(text), Some(waits), "{text}");
        }
    }
}
