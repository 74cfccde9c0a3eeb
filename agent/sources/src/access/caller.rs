//! Who is at the other end of a connection.

use std::fmt;
use std::net::SocketAddr;

use tokio::net::unix::UCred;

use super::accounts;
use super::certificate::Subject;

/// Who is at the other end of a connection, as the kernel or a certificate has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A process of this node.
    Local(Account),
    /// A client with a certificate that the agent's authority signed.
    Remote {
        subject: Subject,
        address: SocketAddr,
    },
}

/// A user of this node, with the groups that the process at the socket has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) uid: u32,
    pub(crate) user_name: Option<String>,
    pub(crate) gids: Vec<u32>,
    pub(crate) group_names: Vec<String>,
    pub(crate) pid: Option<i32>,
}

impl Caller {
    /// The process that connected to a Unix socket (`SO_PEERCRED` of unix(7)).
    pub(crate) fn local(credentials: &UCred) -> Self {
        let (uid, pid) = (credentials.uid(), credentials.pid());
        let mut gids = vec![credentials.gid()];
        if let Some(pid) = pid {
            gids.extend(accounts::groups_of_process(pid, uid));
        }
        Self::Local(Account {
            uid,
            user_name: accounts::user_name(uid),
            group_names: accounts::group_names(&gids),
            gids,
            pid,
        })
    }

    /// Key of a budget: all processes of a user share one, and all holders of a name.
    pub(crate) fn budget(&self) -> String {
        match self {
            Self::Local(account) => format!("uid {}", account.uid),
            Self::Remote { subject, .. } => subject.to_string(),
        }
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(account) => {
                write!(f, "uid {}", account.uid)?;
                if let Some(name) = &account.user_name {
                    write!(f, " ({name})")?;
                }
                match account.pid {
                    Some(pid) => write!(f, " pid {pid}"),
                    None => Ok(()),
                }
            }
            Self::Remote { subject, address } => write!(f, "{subject} at {address}"),
        }
    }
}
