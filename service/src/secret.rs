//! Tokens and keys: random, stored in files that only their owner can read, and never shown by `Debug`.

use std::fmt;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};

use crate::error::ServiceError;

/// A secret text. `Debug` hides it, and there is no `Display`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself: for comparing, hashing and sending, never for logs.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// A new secret of 256 random bits, in hexadecimal.
    ///
    /// # Errors
    /// When the operating system provides no random numbers.
    pub fn random() -> Result<Self, ServiceError> {
        Ok(Self(hex::encode(random_bytes::<32>()?)))
    }

    /// A secret derived from this one and `context`, which reveals neither: HMAC-SHA-256 (RFC 2104), in hexadecimal.
    #[must_use]
    pub fn derive(&self, context: &str) -> Self {
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, self.0.as_bytes());
        Self(hex::encode(ring::hmac::sign(&key, context.as_bytes())))
    }

    /// Whether `other` is the same text, compared in a time that does not depend on where they differ.
    #[must_use]
    pub fn matches(&self, other: &str) -> bool {
        let digest = |text: &str| ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
        digest(&self.0).as_ref() == digest(other).as_ref()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// `N` random bytes from the operating system.
///
/// # Errors
/// When it provides none.
pub fn random_bytes<const N: usize>() -> Result<[u8; N], ServiceError> {
    let mut bytes = [0; N];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| ServiceError::Random)?;
    Ok(bytes)
}

/// Reads the secret in `path`, without surrounding white space.
///
/// # Errors
/// When the file cannot be read or is empty; the message says what to do.
pub fn read(path: &Path) -> Result<Secret, ServiceError> {
    let error = |reason: String| ServiceError::File {
        path: path.to_owned(),
        reason,
    };
    let text = fs::read_to_string(path)
        .map_err(|e| error(format!("{e}; the file must hold the secret")))?;
    let text = text.trim();
    if text.is_empty() {
        return Err(error(
            "it is empty; the file must hold the secret".to_owned(),
        ));
    }
    Ok(Secret::new(text))
}

/// Reads the secret in `path`; if the file does not exist, it is created with a random one (mode 0600).
///
/// # Errors
/// When the file can be neither read nor created.
pub fn read_or_create(path: &Path) -> Result<Secret, ServiceError> {
    let secret = Secret::random()?;
    if write_new(path, &secret)? {
        Ok(secret)
    } else {
        read(path)
    }
}

/// Whose file a secret becomes, and who may read it, where root writes it for a service: in a file of root alone the service could not read it at its
/// next start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Access {
    owner: u32,
    group: u32,
    mode: u32,
}

impl Access {
    /// Like the file that is replaced, or else as its folder suggests; `None` if the caller is not root, whose files are then its own.
    fn of(path: &Path) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
        let folder = fs::metadata(folder.unwrap_or(Path::new("."))).ok()?;
        if let Some(file) = fs::symlink_metadata(path)
            .ok()
            .filter(fs::Metadata::is_file)
        {
            // Where others may write, one of them could have put the file there to be given the secret.
            let is_shared = folder.mode() & 0o022 != 0;
            let is_trusted = !is_shared || file.uid() == 0 || file.uid() == folder.uid();
            return is_trusted.then(|| Self::like(&file, file.mode() & 0o040 != 0));
        }
        // A folder that lets its group in and nobody else, as packages make it for settings.
        let for_group = folder.uid() == 0 && folder.mode() & 0o057 == 0o050;
        Some(Self::like(&folder, for_group))
    }

    fn like(that: &fs::Metadata, group_reads: bool) -> Self {
        let for_group = group_reads && that.gid() != 0;
        Self {
            owner: that.uid(),
            group: that.gid(),
            mode: if for_group { 0o640 } else { 0o600 },
        }
    }
}

/// Writes a secret to a new file that only its owner can read; returns `false` if the file already exists. The file appears with its whole content,
/// and is there after a power failure. What root writes belongs to the folder's owner and group, and the group may read it in a folder of root's that lets
/// that group in and nobody else.
///
/// # Errors
/// When the file cannot be created.
pub fn write_new(path: &Path, secret: &Secret) -> Result<bool, ServiceError> {
    let failed = |source| file_error(path, &source);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    if path.symlink_metadata().is_ok() {
        return Ok(false);
    }
    let fresh = fresh_name(path).map_err(failed)?;
    let access = Access::of(path);
    create(&fresh, secret, access).map_err(|source| {
        drop(fs::remove_file(&fresh));
        failed(source)
    })?;
    // Unlike a rename, a link replaces nothing.
    let linked = fs::hard_link(&fresh, path);
    fs::remove_file(&fresh).map_err(failed)?;
    let is_new = match linked {
        Ok(()) => true,
        Err(e) if e.kind() == ErrorKind::AlreadyExists => false,
        // The file system has no links.
        Err(e)
            if matches!(
                e.kind(),
                ErrorKind::Unsupported | ErrorKind::PermissionDenied
            ) =>
        {
            match create(path, secret, access) {
                Ok(()) => true,
                Err(e) if e.kind() == ErrorKind::AlreadyExists => false,
                Err(e) => return Err(failed(e)),
            }
        }
        Err(e) => return Err(failed(e)),
    };
    sync_folder(path).map_err(failed)?;
    Ok(is_new)
}

/// Atomically replaces the content of `path` with a secret that only its owner can read; what is written is there after a power failure. A file that root
/// replaces stays its owner's and its group's, and the group may still read it; a new one is as in [`write_new`].
///
/// # Errors
/// When the file cannot be written.
pub fn write(path: &Path, secret: &Secret) -> Result<(), ServiceError> {
    let failed = |source| file_error(path, &source);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    let fresh = fresh_name(path).map_err(failed)?;
    let placed = create(&fresh, secret, Access::of(path)).and_then(|()| fs::rename(&fresh, path));
    placed.map_err(|source| {
        drop(fs::remove_file(&fresh));
        failed(source)
    })?;
    // Who goes on believes the file written, such as one who seals data with a new key and forgets the old one.
    sync_folder(path).map_err(failed)
}

fn file_error(path: &Path, source: &std::io::Error) -> ServiceError {
    ServiceError::File {
        path: path.to_owned(),
        reason: source.to_string(),
    }
}

/// A name beside `path` that nobody else uses, on whatever machine that shares the folder.
fn fresh_name(path: &Path) -> std::io::Result<PathBuf> {
    let mut suffix = [0; 8];
    let random = SystemRandom::new().fill(&mut suffix);
    random.map_err(|_| std::io::Error::other("the operating system gives no randomness"))?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".new-{:016x}", u64::from_be_bytes(suffix)));
    Ok(path.with_file_name(name))
}

fn create(path: &Path, secret: &Secret, access: Option<Access>) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    // The process may mask even the owner's rights.
    file.set_permissions(Permissions::from_mode(0o600))?;
    if let Some(access) = access {
        give(&file, access)?;
    }
    file.write_all(secret.expose().as_bytes())?;
    file.sync_all()
}

/// Gives a file that is still empty away. It stays the caller's where root may not do that: in a container without capabilities, or on a file system
/// of another machine.
fn give(file: &File, access: Access) -> std::io::Result<()> {
    // Afterwards the file may be another's, whose mode takes a right of its own to change.
    file.set_permissions(Permissions::from_mode(access.mode))?;
    let own = file.metadata()?;
    if (own.uid(), own.gid()) == (access.owner, access.group) {
        return Ok(());
    }
    match fchown(file, Some(access.owner), Some(access.group)) {
        Err(e)
            if matches!(
                e.kind(),
                ErrorKind::PermissionDenied | ErrorKind::InvalidInput
            ) =>
        {
            file.set_permissions(Permissions::from_mode(0o600))
        }
        given => given,
    }
}

fn sync_folder(path: &Path) -> std::io::Result<()> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_made_once_and_only_its_owner_can_read_it() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("deep/token");
        let first = read_or_create(&path).expect("made");
        assert_eq!(read_or_create(&path).expect("read"), first);
        assert_eq!(
            fs::metadata(&path).expect("metadata").permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(first.expose().len(), 64);
        assert_eq!(format!("{first:?}"), "Secret(…)");
        write(&path, &Secret::new("next")).expect("written");
        assert_eq!(read(&path).expect("read").expose(), "next");
        assert!(first.matches(first.expose()) && !first.matches("next"));
        assert_eq!(first.derive("a"), first.derive("a"));
        assert_ne!(first.derive("a"), first.derive("b"));
        assert_ne!(first.derive("a"), Secret::new("next").derive("a"));
    }

    #[test]
    fn what_root_writes_for_a_service_can_be_read_by_the_service() {
        use std::os::unix::fs::chown;

        if !rustix::process::geteuid().is_root() {
            // Nobody else can give files away, and their secrets are their own.
            let folder = tempfile::tempdir().expect("folder");
            assert_eq!(Access::of(&folder.path().join("key")), None);
            return;
        }
        let folder = tempfile::tempdir().expect("folder");
        let access = |name: &str| {
            let file = fs::metadata(folder.path().join(name)).expect("there");
            (file.uid(), file.gid(), file.mode() & 0o777)
        };
        let set = |path: &Path, owner, group, mode| {
            chown(path, Some(owner), Some(group)).expect("given");
            fs::set_permissions(path, Permissions::from_mode(mode)).expect("set");
        };
        let of = |name: &str| folder.path().join(name);
        let secret = Secret::new("a");
        // A folder of the settings of a service, and one of its state.
        for (owner, mode, expected) in [(0, 0o750, 0o640), (4242, 0o700, 0o600)] {
            set(folder.path(), owner, 4243, mode);
            let name = format!("new-{owner}");
            assert!(write_new(&of(&name), &secret).expect("written"));
            assert_eq!(access(&name), (owner, 4243, expected));
            write(&of(&name), &Secret::new("b")).expect("replaced");
            assert_eq!(access(&name), (owner, 4243, expected));
        }
        // Everybody gets into this one; what root makes there is root's.
        set(folder.path(), 0, 0, 0o755);
        write(&of("own"), &secret).expect("written");
        assert_eq!(access("own"), (0, 0, 0o600));
        set(&of("own"), 4242, 4243, 0o644);
        write(&of("own"), &Secret::new("b")).expect("replaced");
        assert_eq!(access("own"), (4242, 4243, 0o640));
        // Here anybody could have made it.
        set(folder.path(), 0, 0, 0o1777);
        write(&of("own"), &Secret::new("c")).expect("replaced");
        assert_eq!(access("own"), (0, 0, 0o600));
        set(&of("own"), 0, 4243, 0o640);
        write(&of("own"), &Secret::new("d")).expect("replaced");
        assert_eq!(access("own"), (0, 4243, 0o640));
    }

    #[test]
    fn a_missing_or_empty_file_says_what_it_should_hold() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("token");
        assert!(
            read(&path)
                .expect_err("missing")
                .to_string()
                .contains("must hold the secret")
        );
        fs::write(&path, "\n").expect("write");
        assert!(
            read(&path)
                .expect_err("empty")
                .to_string()
                .contains("it is empty")
        );
    }
}
