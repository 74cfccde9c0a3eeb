//! Users and groups of the node, as its own files and the kernel tell of them.
//!
//! Names are looked up in the files themselves: the functions of a static glibc load the host's NSS
//! libraries, which crashes when their version is another. Accounts of a directory service are known by
//! their numbers.

/// The number of a group, from text as in `/etc/group` (group(5)).
pub(crate) fn group_number(groups: &str, name: &str) -> Option<u32> {
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == name)
            .then(|| fields.nth(1)?.parse().ok())
            .flatten()
    })
}

/// The name of a number in text as in `/etc/passwd` (passwd(5)) or `/etc/group`: both have the name
/// first and the number third.
fn name_of(text: &str, number: u32) -> Option<String> {
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let found: u32 = fields.nth(1)?.parse().ok()?;
        (found == number && !name.is_empty()).then(|| name.to_owned())
    })
}

/// The name of a user, where the node's own file has it.
pub(super) fn user_name(uid: u32) -> Option<String> {
    name_of(&std::fs::read_to_string("/etc/passwd").ok()?, uid)
}

/// The names of groups, where the node's own file has them.
pub(super) fn group_names(gids: &[u32]) -> Vec<String> {
    let Ok(text) = std::fs::read_to_string("/etc/group") else {
        return Vec::new();
    };
    gids.iter().filter_map(|gid| name_of(&text, *gid)).collect()
}

/// The supplementary groups of a process, if it still is one of this user.
///
/// The process at the other end of a socket may have ended, and its number may be another's by now. That
/// one then is the same user's, who could have asked through it as well.
pub(super) fn groups_of_process(pid: i32, uid: u32) -> Vec<u32> {
    std::fs::read_to_string(format!("/proc/{pid}/status"))
        .ok()
        .and_then(|status| groups_in_status(&status, uid))
        .unwrap_or_default()
}

/// The line `Groups:` of `/proc/PID/status` (proc(5)), where the effective user is `uid`.
fn groups_in_status(status: &str, uid: u32) -> Option<Vec<u32>> {
    let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let effective: u32 = line("Uid:")?.split_whitespace().nth(1)?.parse().ok()?;
    let groups = line("Groups:")?.split_whitespace();
    (effective == uid).then(|| groups.filter_map(|gid| gid.parse().ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_found_by_its_whole_name() {
        let groups = "root:x:0:\nkvmlet-guests:x:7:\nkvmlet:x:993:alice,bob\n";
        assert_eq!(group_number(groups, "kvmlet"), Some(993));
        assert_eq!(group_number(groups, "kvm"), None);
        assert_eq!(group_number("kvmlet:x:no:", "kvmlet"), None);
        assert_eq!(name_of(groups, 993).as_deref(), Some("kvmlet"));
        assert_eq!(name_of(groups, 99), None);
    }

    #[test]
    fn groups_count_only_while_the_process_is_the_same_users() {
        let status = "Name:\tsh\nUid:\t0\t1000\t0\t0\nGid:\t5\t5\t5\t5\nGroups:\t4 993 \n";
        assert_eq!(groups_in_status(status, 1000), Some(vec![4, 993]));
        assert_eq!(groups_in_status(status, 0), None);
        assert_eq!(groups_in_status("Uid:\tx\n", 0), None);
    }
}
