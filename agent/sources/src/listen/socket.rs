//! The Unix socket that the service listens on.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::unistd::{Gid, chown};
use tokio::net::UnixListener;

use crate::access::group_number;

/// Who may connect, whatever they may do then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketAccess {
    /// The group that the socket belongs to, where it exists and this process may give files to it. Empty:
    /// that of this process.
    pub group: String,
    /// Everybody may connect, rather than owner and group: grants say what others may do.
    pub everybody: bool,
}

impl SocketAccess {
    /// Gives a socket the permissions.
    ///
    /// # Errors
    /// When the file cannot be changed.
    pub fn apply(&self, path: &Path) -> io::Result<()> {
        let mode = if self.everybody { 0o666 } else { 0o660 };
        if let Some(gid) = self.gid() {
            chown(path, None, Some(gid))?;
        }
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
    }

    fn gid(&self) -> Option<Gid> {
        let groups = std::fs::read_to_string("/etc/group").ok()?;
        let number = group_number(&groups, &self.group)?;
        nix::unistd::geteuid()
            .is_root()
            .then_some(Gid::from_raw(number))
    }
}

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
#[error("the socket {path} cannot be made ({doing})")]
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
    pub fn bind(path: &Path, access: &SocketAccess) -> Result<Self, SocketError> {
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
        access
            .apply(&hidden)
            .map_err(explain("its group and mode"))?;
        std::fs::rename(&hidden, path).map_err(explain("its name"))?;
        Ok(Self {
            path: path.to_owned(),
            listener: Some(listener),
        })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // A socket file without a listener only misleads; that it cannot be removed harms nobody.
        drop(std::fs::remove_file(&self.path));
    }
}
