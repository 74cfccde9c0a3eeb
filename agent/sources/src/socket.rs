//! The Unix socket that the service listens on.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::unistd::{Gid, Group, chown};
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
fn group() -> Option<Gid> {
    let root = nix::unistd::geteuid().is_root();
    Group::from_name(GROUP)
        .ok()
        .flatten()
        .filter(|_| root)
        .map(|group| group.gid)
}
