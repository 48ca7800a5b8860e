//! Freezes a container, and limits its CPU, through its control group, without the engine.
//!
//! The engine's own pause starts a process and takes over ten milliseconds each way, for which the call that wakes an instance has to wait; the
//! kernel's freezer needs one write to a file. It requires the right to write there and access to the engine's processes; if the agent lacks
//! either, the engine is asked instead ([`super::freeze`]).
//!
//! Sources: the kernel's documentation of the freezer (`cgroup-v1/freezer-subsystem`: `freezer.state` may read `FREEZING` for a while, and the
//! write is to be repeated then) and of `cgroup.freeze` and `cgroup.events` (`cgroup-v2`).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bollard::models::ContainerInspectResponse;

/// How long the kernel may take to freeze every process; it takes far less than a millisecond unless one is deep in the kernel.
const PATIENCE: Duration = Duration::from_millis(500);
/// The pause between two checks.
const LOOK: Duration = Duration::from_micros(200);

/// The two versions of the kernel's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// `freezer.state`.
    V1,
    /// `cgroup.freeze`.
    V2,
}

/// The control group of one container's processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cgroup {
    form: Form,
    folder: PathBuf,
    /// The control group in which its CPU is limited.
    cpu: Option<(Form, PathBuf)>,
}

/// The period of a CPU limit, in microseconds: the engine's, and the kernel's default.
const PERIOD: i64 = 100_000;

impl Cgroup {
    /// The group of a running container, if this process may freeze it. `root` is where control groups are mounted.
    pub(super) fn of(container: &ContainerInspectResponse, root: &Path) -> Option<Self> {
        let pid = container.state.as_ref()?.pid.filter(|pid| *pid > 0)?;
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        Self::named(container.id.as_deref()?, &groups, root)
    }

    /// The group among `groups` (the content of `/proc/PID/cgroup`) that belongs to the container `id`: a process id may have been reused
    /// by now, or be one of another namespace, but the name of a group contains the container's whole id.
    fn named(id: &str, groups: &str, root: &Path) -> Option<Self> {
        let path_of = |line: &str, wanted: &str| -> Option<(Form, PathBuf)> {
            let mut parts = line.splitn(3, ':');
            let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            let path = path.strip_prefix('/')?;
            // The path must not lead out of the mount.
            if path.split('/').any(|part| part == "..") || id.is_empty() || !path.contains(id) {
                return None;
            }
            if controllers.split(',').any(|name| name == wanted) {
                return Some((Form::V1, root.join(wanted).join(path)));
            }
            (number == "0" && controllers.is_empty()).then(|| (Form::V2, root.join(path)))
        };
        let group_of = |wanted: &str| {
            let path_of = |line| path_of(line, wanted);
            let found: Vec<_> = groups.lines().filter_map(path_of).collect();
            // If both versions are mounted, a controller is where version 1 has it.
            let first = found.iter().find(|(form, _)| *form == Form::V1);
            first.or(found.first()).cloned()
        };
        let (form, folder) = group_of("freezer")?;
        let cpu = group_of("cpu");
        let group = Self { form, folder, cpu };
        // Opened instead of checked with access(2), which ignores the capabilities of a user other than root (DAC_OVERRIDE of the unit's drop-in).
        let writable = fs::OpenOptions::new().write(true).open(group.switch());
        writable.is_ok().then_some(group)
    }

    fn switch(&self) -> PathBuf {
        self.folder.join(match self.form {
            Form::V1 => "freezer.state",
            Form::V2 => "cgroup.freeze",
        })
    }

    /// Limits its CPU, in billionths of a core.
    ///
    /// # Errors
    /// When the group is gone, may not be written, or the kernel rejects the limit.
    pub(super) fn limit_cpu(&self, nano_cpus: i64) -> io::Result<()> {
        let (form, folder) = self.cpu.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let quota = nano_cpus / (1_000_000_000 / PERIOD);
        match form {
            Form::V1 => fs::write(folder.join("cpu.cfs_quota_us"), quota.to_string()),
            Form::V2 => fs::write(folder.join("cpu.max"), format!("{quota} {PERIOD}")),
        }
    }

    /// Whether all its processes are frozen.
    ///
    /// # Errors
    /// When the group is gone.
    pub(super) fn frozen(&self) -> io::Result<bool> {
        Ok(match self.form {
            Form::V1 => fs::read_to_string(self.switch())?.trim() == "FROZEN",
            Form::V2 => fs::read_to_string(self.folder.join("cgroup.events"))?
                .lines()
                .any(|line| line == "frozen 1"),
        })
    }

    /// Whether freezing it was requested.
    ///
    /// # Errors
    /// When the group is gone.
    pub(super) fn freezing(&self) -> io::Result<bool> {
        let text = fs::read_to_string(self.switch())?;
        Ok(match self.form {
            Form::V1 => text.trim() != "THAWED",
            Form::V2 => text.trim() == "1",
        })
    }

    /// Freezes its processes and returns once they are frozen. Blocks for up to half a second; on failure they are thawed again.
    ///
    /// # Errors
    /// When the group is gone, or a process does not freeze in time.
    pub(super) fn freeze(&self) -> io::Result<()> {
        let order = match self.form {
            Form::V1 => "FROZEN",
            Form::V2 => "1",
        };
        let until = Instant::now() + PATIENCE;
        loop {
            fs::write(self.switch(), order)?;
            if self.frozen()? {
                return Ok(());
            }
            if Instant::now() >= until {
                self.thaw()?;
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Thaws its processes.
    ///
    /// # Errors
    /// When the group is gone.
    pub(super) fn thaw(&self) -> io::Result<()> {
        let order = match self.form {
            Form::V1 => "THAWED",
            Form::V2 => "0",
        };
        fs::write(self.switch(), order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "4f2c9a";

    fn mounted(folder: &str, file: &str, text: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let place = root.path().join(folder);
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join(file), text).unwrap();
        root
    }

    #[test]
    fn the_first_form_is_found_among_other_controllers() {
        let root = mounted("freezer/docker/4f2c9a", "freezer.state", "THAWED\n");
        let groups =
            "9:memory:/docker/4f2c9a\n7:freezer,hugetlb:/docker/4f2c9a\n0::/docker/4f2c9a\n";
        let group = Cgroup::named(ID, groups, root.path()).unwrap();
        assert_eq!(group.form, Form::V1);
        assert!(!group.freezing().unwrap());
        // A plain file keeps what is written, like the kernel's file once all processes are frozen.
        group.freeze().unwrap();
        assert!(group.frozen().unwrap() && group.freezing().unwrap());
        group.thaw().unwrap();
        assert!(!group.frozen().unwrap());
    }

    #[test]
    fn the_second_form_believes_events_and_not_the_order() {
        let folder = "system.slice/docker-4f2c9a.scope";
        let root = mounted(folder, "cgroup.freeze", "0\n");
        let events = root.path().join(folder).join("cgroup.events");
        fs::write(&events, "populated 1\nfrozen 0\n").unwrap();
        let groups = format!("0::/{folder}\n");
        let group = Cgroup::named(ID, &groups, root.path()).unwrap();
        assert_eq!(group.form, Form::V2);
        let refused = group.freeze().unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
        assert!(!group.freezing().unwrap(), "it was taken back");
        fs::write(&events, "populated 1\nfrozen 1\n").unwrap();
        group.freeze().unwrap();
    }

    #[test]
    fn the_cpu_is_limited_where_its_controller_is() {
        let root = mounted("freezer/docker/4f2c9a", "freezer.state", "THAWED\n");
        let cpu = root.path().join("cpu/docker/4f2c9a");
        let groups = "7:freezer:/docker/4f2c9a\n4:cpu,cpuacct:/docker/4f2c9a\n";
        let group = Cgroup::named(ID, groups, root.path()).unwrap();
        assert!(group.limit_cpu(250_000_000).is_err(), "it is gone");
        fs::create_dir_all(&cpu).unwrap();
        group.limit_cpu(250_000_000).unwrap();
        let quota = fs::read_to_string(cpu.join("cpu.cfs_quota_us")).unwrap();
        assert_eq!(quota, "25000");

        let root = mounted("docker/4f2c9a", "cgroup.freeze", "0\n");
        let group = Cgroup::named(ID, "0::/docker/4f2c9a\n", root.path()).unwrap();
        group.limit_cpu(100_000_000).unwrap();
        let most = fs::read_to_string(root.path().join("docker/4f2c9a/cpu.max")).unwrap();
        assert_eq!(most, "10000 100000");
    }

    #[test]
    fn a_group_that_is_not_the_containers_or_out_of_reach_is_left_alone() {
        let root = mounted("freezer/docker/4f2c9a", "freezer.state", "THAWED\n");
        for groups in [
            "7:freezer:/docker/other\n",
            "7:freezer:/docker/../../4f2c9a\n",
            "7:freezer:/elsewhere/4f2c9a\n",
            "9:memory:/docker/4f2c9a\n",
            "",
        ] {
            assert_eq!(Cgroup::named(ID, groups, root.path()), None, "{groups}");
        }
        assert_eq!(Cgroup::named("", "7:freezer:/docker/\n", root.path()), None);
    }
}
