//! Checks of the machine: kernel limits that a node with many instances needs.

use std::net::{Ipv4Addr, TcpListener};

use rustix::process::{Resource, getrlimit};

use super::Check;

/// The memory mappings of a live instance (measured; they are the first limit on the number of instances).
const MAPS_PER_INSTANCE: u64 = 6;
/// The kernel's default; a lower value was set by somebody.
const MAPS_DEFAULT: u64 = 65_530;
/// The number of open files that a node with some hundred connections needs.
const FILES_WANTED: u64 = 4096;

/// Adds the checks; `local` if a network may run on this machine.
pub(super) fn check(local: bool, checks: &mut Vec<Check>) {
    if let Ok(text) = std::fs::read_to_string("/proc/sys/vm/max_map_count")
        && let Ok(count) = text.trim().parse()
    {
        checks.push(mappings(count));
    }
    let limit = getrlimit(Resource::Nofile);
    checks.push(open_files(
        limit.current.unwrap_or(u64::MAX),
        limit.maximum.unwrap_or(u64::MAX),
    ));
    if local {
        let found = TcpListener::bind((Ipv4Addr::new(127, 0, 1, 1), 0))
            .map(drop)
            .map_err(|e| e.to_string());
        checks.push(loopback(found));
    }
}

fn mappings(count: u64) -> Check {
    let found = format!(
        "vm.max_map_count is {count}: room for about {} instances on a node",
        count / MAPS_PER_INSTANCE
    );
    if count >= MAPS_DEFAULT {
        Check::ok("kernel", found)
    } else {
        Check::warn(
            "kernel",
            found,
            "sudo sysctl -w vm.max_map_count=262144, if this machine is a node",
        )
    }
}

fn open_files(soft: u64, hard: u64) -> Check {
    let found = if soft == u64::MAX {
        "unlimited".to_owned()
    } else {
        format!("{soft} allowed")
    };
    if soft >= FILES_WANTED {
        Check::ok("open files", found)
    } else if hard >= FILES_WANTED {
        Check::ok(
            "open files",
            format!("{found}; fdn up raises it to {}", hard.min(1 << 20)),
        )
    } else {
        Check::warn(
            "open files",
            found,
            format!("raise it before starting a node: ulimit -Hn {}", 1 << 16),
        )
    }
}

fn loopback(bound: Result<(), String>) -> Check {
    match bound {
        Ok(()) => Check::ok("loopback", "127.0.1.1 can be listened on, as fdn up does"),
        Err(reason) => Check::warn(
            "loopback",
            format!("127.0.1.1 cannot be listened on: {reason}"),
            "for fdn up, give the interface more addresses; on macOS: sudo ifconfig lo0 alias 127.0.1.1, and so on",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    #[test]
    fn low_limits_are_told_with_the_remedy() {
        assert_eq!(mappings(65_530).status, Status::Ok);
        assert!(mappings(65_530).found.contains("10921 instances"));
        assert!(
            mappings(1000)
                .advice
                .expect("advice")
                .contains("vm.max_map_count=")
        );
        assert_eq!(open_files(1024, 1 << 20).status, Status::Ok);
        assert_eq!(open_files(u64::MAX, u64::MAX).found, "unlimited");
        assert!(
            open_files(256, 256)
                .advice
                .expect("advice")
                .contains("ulimit")
        );
        assert_eq!(loopback(Err("no".into())).status, Status::Warn);
    }
}
