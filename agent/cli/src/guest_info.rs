//! `kvmctl guestosinfo`, `userlist` and `fslist`: what the agent in a guest says of it, as `virtctl` prints it.

use proto_node::node::GetGuestInfoRequest;
use serde_json::{Value, json};

use crate::args::GuestName;
use crate::client::Client;
use crate::failure::Failure;
use crate::output::print_value;
use crate::resource::vmi_name;
use crate::scope::Scope;

/// What is shown of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Everything.
    All,
    /// Who is logged in.
    Users,
    /// File systems that are mounted.
    FileSystems,
}

/// Prints what the agent in a guest says, as JSON.
pub async fn run(scope: &Scope, args: &GuestName, part: Part) -> Result<(), Failure> {
    let name = vmi_name(&args.name)?;
    let mut client = Client::new(scope)?;
    let request = GetGuestInfoRequest {
        namespace: scope.namespace().to_owned(),
        name: name.clone(),
        uid: String::new(),
    };
    let answer = client.guest_info(request).await.map_err(|status| {
        Failure::of_status(&status, "VirtualMachineInstance", &name, client.address())
    })?;
    let info = proto_node::to_json(&answer.info.unwrap_or_default());
    print_value(&shown(info, part), false)
}

fn shown(info: Value, part: Part) -> Value {
    let items = match part {
        Part::All => return info,
        Part::Users => info.pointer("/userList"),
        Part::FileSystems => info.pointer("/fsInfo/disks"),
    };
    let items = items.cloned().unwrap_or_else(|| json!([]));
    json!({ "metadata": {}, "items": items })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_lists_whatever_a_guest_says() {
        let info = json!({"userList": [{"userName": "debian"}], "hostname": "dev"});
        let users = json!({"metadata": {}, "items": [{"userName": "debian"}]});
        assert_eq!(shown(info.clone(), Part::Users), users);
        let none = json!({"metadata": {}, "items": []});
        assert_eq!(shown(info.clone(), Part::FileSystems), none);
        assert_eq!(shown(info.clone(), Part::All), info);
    }
}
