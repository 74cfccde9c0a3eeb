//! Flags that exclude each other.

use crate::args::CreateVm;
use crate::failure::Failure;

/// Refuses flags that exclude each other, in the words and the order of `virtctl`.
pub fn check(args: &CreateVm) -> Result<(), Failure> {
    let (size, login) = (&args.size, &args.login);
    let user_data = ("cloud-init-user-data", login.cloud_init_user_data.is_some());
    let groups: [&[(&str, bool)]; 6] = [
        &[user_data, ("ga-manage-ssh", login.ga_manage_ssh.is_some())],
        &[user_data, ("password-file", login.password_file.is_some())],
        &[user_data, ("ssh-key", !login.ssh_key.is_empty())],
        &[user_data, ("user", login.user.is_some())],
        &[
            ("memory", size.memory.is_some()),
            ("instancetype", size.instancetype.is_some()),
            ("infer-instancetype", size.infer_instancetype.is_some()),
            (
                "infer-instancetype-from",
                size.infer_instancetype_from.is_some(),
            ),
        ],
        &[
            ("preference", size.preference.is_some()),
            ("infer-preference", size.infer_preference.is_some()),
            (
                "infer-preference-from",
                size.infer_preference_from.is_some(),
            ),
        ],
    ];
    for group in groups {
        let names: Vec<&str> = group.iter().map(|(name, _)| *name).collect();
        let set = group.iter().filter(|(_, is_set)| *is_set);
        let mut set: Vec<&str> = set.map(|(name, _)| *name).collect();
        if set.len() < 2 {
            continue;
        }
        set.sort_unstable();
        return Err(Failure::Refused(format!(
            "if any flags in the group [{}] are set none of the others can be; [{}] were all set",
            names.join(" "),
            set.join(" ")
        )));
    }
    Ok(())
}
