//! From the configuration to the listeners of the service: who may come in, and what they may do then.

use agent_host::Dialer;
use agent_sources::{
    Access, CallLimits, Grant, Listeners, Policy, Socket, SocketAccess, TlsFiles, TlsKeys,
    TlsListener,
};
use anyhow::Context;
use proto_node::node::Role;
use tracing::info;

use crate::config::{self, Config};

/// Parts of the listeners that a reload changes.
pub(crate) struct ReloadableListeners {
    access: Access,
    keys: Option<TlsKeys>,
}

/// Opens the listeners.
pub(crate) async fn open(
    config: &Config,
    dialer: &Dialer,
) -> anyhow::Result<(Listeners, ReloadableListeners)> {
    let socket = Socket::bind(&config.socket, &socket_access(config))?;
    let access = Access::new(policy(config));
    let mut reloadable = ReloadableListeners {
        access: access.clone(),
        keys: None,
    };
    let mut tls = None;
    if let (Some(address), Some(files)) = (config.grpc.listen, files(config)) {
        let setting = || format!("grpc.listen = \"{address}\" in {}", config.origin.display());
        let keys = TlsKeys::load(&files).with_context(setting)?;
        let most_each = config.grpc.max_connections_per_client;
        let listener = dialer.listen(address).await;
        let listener =
            listener.with_context(|| format!("{}: it cannot be listened there", setting()))?;
        tls = Some(TlsListener::new(listener, keys.clone(), most_each));
        reloadable.keys = Some(keys);
        info!(%address, "clients with certificates are served");
    }
    let listeners = Listeners {
        socket,
        tls,
        access,
        limits: CallLimits::default(),
    };
    Ok((listeners, reloadable))
}

impl ReloadableListeners {
    /// Takes over what another configuration says, and reads certificates again. An error changes nothing.
    pub(crate) fn change(&self, next: &Config) -> anyhow::Result<()> {
        if let (Some(keys), Some(files)) = (&self.keys, files(next)) {
            keys.reload(&files)
                .with_context(|| format!("[grpc] in {}", next.origin.display()))?;
        }
        socket_access(next)
            .apply(&next.socket)
            .with_context(|| format!("the permissions of {}", next.socket.display()))?;
        self.access.set(policy(next));
        Ok(())
    }
}

fn files(config: &Config) -> Option<TlsFiles> {
    let grpc = &config.grpc;
    Some(TlsFiles {
        certificate: grpc.certificate.clone()?,
        key: grpc.key.clone()?,
        client_ca: grpc.client_ca.clone()?,
        client_crl: grpc.client_crl.clone(),
    })
}

/// Whoever is granted something must be able to ask for it.
fn socket_access(config: &Config) -> SocketAccess {
    SocketAccess {
        group: config.admin_group.clone(),
        everybody: config
            .grants
            .iter()
            .map(grant)
            .any(|grant| grant.is_local()),
    }
}

fn policy(config: &Config) -> Policy {
    let admins = (!config.admin_group.is_empty()).then(|| Grant {
        role: Role::Admin,
        groups: vec![config.admin_group.clone()],
        ..Grant::default()
    });
    Policy {
        grants: admins
            .into_iter()
            .chain(config.grants.iter().map(grant))
            .collect(),
        origin: config.origin.display().to_string(),
    }
}

fn grant(configured: &config::Grant) -> Grant {
    let configured = configured.clone();
    Grant {
        role: match configured.role {
            config::Role::View => Role::View,
            config::Role::Console => Role::Console,
            config::Role::Operate => Role::Operate,
            config::Role::Admin => Role::Admin,
        },
        namespaces: configured
            .namespaces
            .map(|names| names.into_iter().collect()),
        users: configured.users,
        groups: configured.groups,
        common_names: configured.common_names,
        organizations: configured.organizations,
        alternative_names: configured.alternative_names,
    }
}
