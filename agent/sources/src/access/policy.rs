//! Grants, and what a caller has by them.

use std::collections::BTreeSet;

use proto_node::node::Role;

use super::caller::{Account, Caller};
use super::certificate::Subject;
use super::permit::{Permit, role_word};

/// Gives callers a role. A caller has it who fits any of the lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Role that the grant gives.
    pub role: Role,
    /// Where; everywhere when it is absent.
    pub namespaces: Option<BTreeSet<String>>,
    /// Users of the node, by name or number.
    pub users: Vec<String>,
    /// Groups of the node, by name or number.
    pub groups: Vec<String>,
    /// CN of a certificate's subject.
    pub common_names: Vec<String>,
    /// O of a certificate's subject.
    pub organizations: Vec<String>,
    /// DNS names, URIs and e-mail addresses of a certificate.
    pub alternative_names: Vec<String>,
}

impl Grant {
    /// Somebody on this node is meant.
    #[must_use]
    pub fn is_local(&self) -> bool {
        !self.users.is_empty() || !self.groups.is_empty()
    }

    fn fits(&self, caller: &Caller) -> bool {
        match caller {
            Caller::Local(account) => self.fits_account(account),
            Caller::Remote { subject, .. } => self.fits_subject(subject),
        }
    }

    fn fits_account(&self, account: &Account) -> bool {
        let number_or_name = |listed: &[String], number: u32, name: Option<&str>| {
            listed
                .iter()
                .any(|one| *one == number.to_string() || Some(one.as_str()) == name)
        };
        let in_group = |gid: &u32| number_or_name(&self.groups, *gid, None);
        let by_name = |name: &String| self.groups.contains(name);
        number_or_name(&self.users, account.uid, account.user_name.as_deref())
            || account.gids.iter().any(in_group)
            || account.group_names.iter().any(by_name)
    }

    fn fits_subject(&self, subject: &Subject) -> bool {
        let any = |listed: &[String], has: &[String]| has.iter().any(|name| listed.contains(name));
        any(&self.common_names, &subject.common_names)
            || any(&self.organizations, &subject.organizations)
            || any(&self.alternative_names, &subject.alternative_names)
    }
}

/// Roles that callers have.
#[derive(Clone, Debug)]
pub struct Policy {
    /// What the configuration grants. Root and the agent's own user may do everything besides.
    pub grants: Vec<Grant>,
    /// The configuration file, for messages.
    pub origin: String,
}

impl Policy {
    /// Where a caller has `role`. The answer covers no namespace when it has it nowhere.
    pub(crate) fn permit(&self, caller: &Caller, role: Role) -> Permit {
        let grants = self.grants.iter().filter(|grant| grant.fits(caller));
        let higher = [Role::Console, Role::Operate, Role::Admin].into_iter();
        let higher = higher.filter(|higher| *higher > role);
        Permit {
            caller: caller.to_string(),
            budget: caller.budget(),
            role,
            namespaces: self.namespaces(caller, role),
            higher: higher
                .map(|role| (role, self.namespaces(caller, role)))
                .collect(),
            has: grants.map(|grant| grant.role).max(),
            way_out: self.way_out(caller, role),
        }
    }

    /// Where a caller has a role; everywhere when absent.
    fn namespaces(&self, caller: &Caller, role: Role) -> Option<BTreeSet<String>> {
        if is_master(caller) {
            return None;
        }
        let mut namespaces = BTreeSet::new();
        let grants = self.grants.iter();
        for grant in grants.filter(|grant| grant.role >= role && grant.fits(caller)) {
            namespaces.extend(grant.namespaces.as_ref()?.iter().cloned());
        }
        Some(namespaces)
    }

    /// The setting that would give a caller a role.
    fn way_out(&self, caller: &Caller, role: Role) -> String {
        let who = match caller {
            Caller::Local(account) => {
                let name = account.user_name.clone();
                let name = name.unwrap_or_else(|| account.uid.to_string());
                format!("users = [{name:?}]")
            }
            Caller::Remote { subject, .. } => {
                let lists = [
                    ("common_names", &subject.common_names),
                    ("organizations", &subject.organizations),
                    ("alternative_names", &subject.alternative_names),
                ];
                let named = lists
                    .into_iter()
                    .find_map(|(list, names)| Some((list, names.first()?)));
                named.map_or_else(String::new, |(list, name)| format!("{list} = [{name:?}]"))
            }
        };
        format!(
            "[[grants]] role = {:?}, {who} in {}",
            role_word(role),
            self.origin
        )
    }
}

/// Root and the agent's own user may do everything: they could replace the agent.
pub(super) fn is_master(caller: &Caller) -> bool {
    match caller {
        Caller::Local(account) => {
            account.uid == 0 || account.uid == nix::unistd::geteuid().as_raw()
        }
        Caller::Remote { .. } => false,
    }
}

#[cfg(test)]
mod tests;
