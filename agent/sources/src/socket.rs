//! The Unix socket that the service listens on.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::unistd::{Gid, chown};
use tokio::net::UnixListener;

/// Members of this group may use the agent.
const GROUP: &str = "kvmlet";

/// Owner and group may connect; nobody else.
const MODE: u32 = 0o660;

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
#[error("the socket {path} can not be made ({doing})")]
pub struct SocketError {
    path: PathBuf,
    doing: &'static str,
    source: io::Error,
}

/// A listening socket. Its file is removed when it is dropped.
#[derive(Debug)]
pub struct Socket {
    path: PathBuf,
    pub(crate) listener: Option<UnixListener>,
}

impl Socket {
    /// Listens at `path`. The file appears with its permissions: it is made under another name first.
    /// A file left by an agent that was killed is replaced; that no other agent lives is for the
    /// caller to know.
    ///
    /// # Errors
    /// See [`SocketError`].
    pub fn bind(path: &Path) -> Result<Self, SocketError> {
        let explain = |doing| {
            move |source| SocketError {
                path: path.to_owned(),
                doing,
                source,
            }
        };
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(explain("its directory"))?;
        }
        let mut hidden = path.as_os_str().to_owned();
        hidden.push(".new");
        let hidden = PathBuf::from(hidden);
        match std::fs::remove_file(&hidden) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(explain("an old one is in the way")(error));
            }
            _ => {}
        }
        let listener = UnixListener::bind(&hidden).map_err(explain("bind"))?;
        std::fs::set_permissions(&hidden, std::fs::Permissions::from_mode(MODE))
            .map_err(explain("its mode"))?;
        if let Some(gid) = group() {
            chown(&hidden, None, Some(gid)).map_err(|errno| explain("its group")(errno.into()))?;
        }
        std::fs::rename(&hidden, path).map_err(explain("its name"))?;
        Ok(Self {
            path: path.to_owned(),
            listener: Some(listener),
        })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // A socket file without a listener only misleads; that it can not be removed harms nobody.
        drop(std::fs::remove_file(&self.path));
    }
}

/// The group, where it exists and this process may give files to it.
///
/// Looked up in the file itself: getgrnam of a static glibc loads the host's NSS libraries, which
/// crashes when their version is another.
fn group() -> Option<Gid> {
    let groups = std::fs::read_to_string("/etc/group").ok()?;
    let number = group_number(&groups, GROUP)?;
    nix::unistd::geteuid()
        .is_root()
        .then_some(Gid::from_raw(number))
}

/// The number of a group, from text as in `/etc/group` (group(5)).
fn group_number(groups: &str, name: &str) -> Option<u32> {
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == name)
            .then(|| fields.nth(1)?.parse().ok())
            .flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::group_number;

    #[test]
    fn a_group_is_found_by_its_whole_name() {
        let groups = "root:x:0:\nkvmlet-guests:x:7:\nkvmlet:x:993:alice,bob\n";
        assert_eq!(group_number(groups, "kvmlet"), Some(993));
        assert_eq!(group_number(groups, "kvm"), None);
        assert_eq!(group_number("kvmlet:x:no:", "kvmlet"), None);
    }
}
